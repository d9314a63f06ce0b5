"""The figures of a run: what each is called, its unit and meaning, and how it is computed.

`DecisionCounts` says what a decision adds to which count. A replay counts its whole run with it
while it goes (replay.results.summary.tally), and replay.whatif.comparison counts each pod of a
recorded run. FIGURES are computed from the sum over some pods, a `Population`, for --assert,
compare and sweep; the report computes those with `sql` from a run's tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from reprieve.trace.v1beta1 import trace_pb2

LOCAL_STORAGE = "local storage limit"
"""Stands for the signal of an eviction that no signal caused."""
SIGNALS = (
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
)
"""The signals of a kubelet, by the names that its configuration uses.

Source: kubernetes v1.34 pkg/kubelet/eviction/api/types.go.
"""
ALLOCATED = "allocated"
WORKLOAD_LABELS = ("priority", "class", "namespace", "workload", "kind")
"""Labels that choose workloads, and pods by their workload."""
POD_LABELS = ("priority", "class", "namespace", "name", "node", "workload", "kind")
"""Labels that choose pods."""
_UNBOUND = "no pod was bound"
_S = 1e9


@dataclass(slots=True)
class DecisionCounts:
    """Decisions that were carried out, counted for one pod or for a whole run.

    decisions: by kind, a field of reprieve.trace.v1beta1.Observed. nominations: those for a node,
    not the cleared ones. against_budget: preemptions that violated a disruption budget. evicted: by
    signal. ended: by the pod's phase. refused_pods: those that admission refused.
    """

    decisions: Counter[str] = field(default_factory=Counter)
    nominations: int = 0
    against_budget: int = 0
    evicted: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    refused_pods: int = 0

    def count(self, kind: str, observed: trace_pb2.Observed) -> None:
        """Count a decision; `kind` is the field that is set."""
        self.decisions[kind] += 1
        match kind:
            case "finished":
                self.ended[observed.finished.phase] += 1
            case "nominated":
                self.nominations += bool(observed.nominated.node_name)
            case "preempted":
                self.against_budget += observed.preempted.violates_budget
            case "evicted":
                self.evicted[observed.evicted.signal or LOCAL_STORAGE] += 1
            case "refused":
                self.refused_pods += observed.refused.pods

    def add(self, other: DecisionCounts) -> None:
        """Add another pod's counts."""
        self.decisions.update(other.decisions)
        self.nominations += other.nominations
        self.against_budget += other.against_budget
        self.evicted.update(other.evicted)
        self.ended.update(other.ended)
        self.refused_pods += other.refused_pods

    @property
    def bindings(self) -> int:
        """Return how often a pod was bound; a pod may be bound again under the same name."""
        return self.decisions["scheduled"]

    @property
    def failed_attempts(self) -> int:
        """Return how many scheduling attempts bound nothing."""
        return self.decisions["failed_scheduling"]

    @property
    def preempted(self) -> int:
        """Return how many victims there were."""
        return self.decisions["preempted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """Some pods and workloads of a run, summed up, and the resources of all its nodes at the end.

    pods: the number of pods. bound: those that got a node. refused: pods that admission refused.
    not_created: those of them that are missing at the end. unavailable: desired pods that are not
    ready at the end. waited_ns: the time in the queue of each binding. still_waiting_s: for each
    pod without a node at the end, how long it has waited. allocatable: what the nodes have;
    allocated: what their pods request. cpu in thousandths.
    """

    pods: int
    bound: int
    refused: int
    not_created: int
    unavailable: int
    counts: DecisionCounts
    waited_ns: Sequence[int]
    still_waiting_s: Sequence[float]
    allocatable: Mapping[str, int]
    allocated: Mapping[str, int]


Measure = Callable[[Population, str], float | None]
"""Returns a figure of some pods, None if it has no value; the text is a signal or a resource."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    labels: those that a condition on it may use. sql: the same figure of all pods of a run, over
    the tables of replay.results.schema; pods that share a name are counted one by one there.
    missing: when it has no value, such as "no pod was bound"; "" for a figure that always has one.
    """

    meaning: str
    unit: str
    of: Measure
    labels: tuple[str, ...] = POD_LABELS
    sql: str = ""
    missing: str = ""


def _quantile(share: float) -> Measure:
    def of(population: Population, _label: str) -> float | None:
        waits = sorted(population.waited_ns)
        return waits[min(len(waits) - 1, int(share * len(waits)))] / _S if waits else None

    return of


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _allocated(population: Population, resource: str) -> float:
    allocatable = population.allocatable.get(resource, 0)
    return 100.0 * population.allocated.get(resource, 0) / allocatable if allocatable else 0.0


FIGURES: Mapping[str, Figure] = {
    "pods": Figure(
        "pods that were created", "pods", lambda p, _: p.pods, sql="SELECT count(*) FROM pods"
    ),
    "bound": Figure(
        "pods that got a node",
        "pods",
        lambda p, _: p.bound,
        sql="SELECT count(*) FROM pods WHERE scheduled_ns IS NOT NULL",
    ),
    "bindings": Figure(
        "bindings; a pod that is bound again counts each time", "", lambda p, _: p.counts.bindings
    ),
    "pending": Figure(
        "pods without a node at the end, and pods that were refused and not created by then",
        "pods",
        lambda p, _: len(p.still_waiting_s) + p.not_created,
        sql="SELECT (SELECT count(*) FROM pods WHERE ending = 'Pending')"
        " + (SELECT coalesce(sum(not_created), 0) FROM workloads)"
        " + (SELECT count(DISTINCT (r.namespace, r.name)) FROM refusals AS r"
        " WHERE r.owner IS NULL AND NOT EXISTS (FROM pods AS p"
        " WHERE p.namespace = r.namespace AND p.name = r.name))",
    ),
    "refused": Figure(
        "pods that admission refused, a pod that stays refused once",
        "pods",
        lambda p, _: p.refused,
        sql="SELECT coalesce(sum(pods), 0) FROM refusals",
    ),
    "unavailable": Figure(
        "desired pods of workloads that are not ready at the end",
        "pods",
        lambda p, _: p.unavailable,
        labels=WORKLOAD_LABELS,
        sql="SELECT coalesce(sum(greatest(desired - ready, 0)), 0) FROM workloads",
    ),
    "preempted": Figure(
        "preemptions, by their victims",
        "",
        lambda p, _: p.counts.preempted,
        sql="SELECT count(*) FROM preemptions",
    ),
    "against_budget": Figure(
        "preemptions that violated a disruption budget", "", lambda p, _: p.counts.against_budget
    ),
    "evicted": Figure(
        "evictions by kubelets",
        "",
        lambda p, signal: p.counts.evicted[signal] if signal else p.counts.evicted.total(),
        labels=(*POD_LABELS, "signal"),
        sql="SELECT count(*) FROM evictions",
    ),
    "oom_killed": Figure(
        "containers that the kernel killed at a memory limit; each kill counts",
        "",
        lambda p, _: p.counts.decisions["oom_killed"],
        sql="SELECT count(*) FROM oom_kills",
    ),
    "failed_attempts": Figure(
        "scheduling attempts that bound nothing",
        "",
        lambda p, _: p.counts.failed_attempts,
        sql="SELECT count(*) FROM attempts WHERE result <> 'Scheduled'",
    ),
    "succeeded": Figure(
        "pods that ended in phase Succeeded", "pods", lambda p, _: p.counts.ended["Succeeded"]
    ),
    "failed": Figure(
        "pods that ended in phase Failed", "pods", lambda p, _: p.counts.ended["Failed"]
    ),
    "waited_mean": Figure(
        "time in the queue until the binding, mean",
        "s",
        lambda p, _: _mean([wait_ns / _S for wait_ns in p.waited_ns]),
        missing=_UNBOUND,
    ),
    "waited_p50": Figure("the same, median", "s", _quantile(0.5), missing=_UNBOUND),
    "waited_p90": Figure("the same, 90th percentile", "s", _quantile(0.9), missing=_UNBOUND),
    "waited_p99": Figure("the same, 99th percentile", "s", _quantile(0.99), missing=_UNBOUND),
    "waited_max": Figure("the same, maximum", "s", _quantile(1.0), missing=_UNBOUND),
    "still_waiting_mean": Figure(
        "time that pods without a node have waited by the end, mean; 0 where each has a node",
        "s",
        lambda p, _: _mean(p.still_waiting_s) or 0.0,
    ),
    "still_waiting_max": Figure(
        "the same, maximum", "s", lambda p, _: max(p.still_waiting_s, default=0.0)
    ),
    ALLOCATED: Figure(
        "requests of the pods on nodes at the end, as a share of allocatable",
        "%",
        _allocated,
        labels=("resource",),
    ),
}
