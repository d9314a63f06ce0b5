"""The figures of a run: name, unit, meaning and computation of each.

`DecisionCounts` defines which counts a decision increases. A replay counts its whole run this way
while it runs (replay.results.summary.tally), and replay.whatif.comparison counts each pod of a
recorded run. FIGURES are computed from a `Population`, the sum over some pods, for --assert,
compare and sweep. The report computes figures that have `sql` from a run's tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from reprieve.trace.v1beta1 import trace_pb2

LOCAL_STORAGE = "local storage limit"
"""Takes the place of the signal for an eviction that exceeded a local storage limit."""
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
GROUP = "group"
"""The optional label of figures about node groups."""
RESOURCE = "resource"
"""The required label of figures about one resource."""
WORKLOAD_LABELS = ("priority", "class", "namespace", "workload", "kind")
"""Labels that select workloads, and pods by their workload."""
POD_LABELS = ("priority", "class", "namespace", "name", "node", "workload", "kind")
"""Labels that select pods."""
_UNBOUND = "no pod was bound"
_UNWAITED = "no pod waited for a node"
_NO_TIME = "no time passed while nodes had it"
_S = 1e9
_HOUR = 3600 * _S


@dataclass(slots=True)
class DecisionCounts:
    """Decisions that were carried out, counted for one pod or for a whole run.

    decisions: decisions by kind, a field of reprieve.trace.v1beta1.Observed. nominations: pods
    nominated for a node; cleared nominations do not count. against_budget: preemptions that
    violated a disruption budget. evicted: evictions by signal. ended: ended pods by phase.
    refused_pods: pods that admission refused. rejected: pods that their kubelets did not admit, by
    the kubelet's reason. invalid_causes: broken rules of invalid placements and preemptions, by
    kind (as in `decisions`) and cause.
    """

    decisions: Counter[str] = field(default_factory=Counter)
    nominations: int = 0
    against_budget: int = 0
    evicted: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    refused_pods: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    invalid_causes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def count(self, kind: str, observed: trace_pb2.Observed) -> None:
        """Count a decision; `kind` is the field that is set."""
        self.decisions[kind] += 1
        match kind:
            case "finished":
                self.ended[observed.finished.phase] += 1
            case "nominated":
                nominated = observed.nominated
                self.nominations += bool(nominated.node_name) and not nominated.expected
            case "preempted":
                self.against_budget += observed.preempted.violates_budget
            case "evicted":
                self.evicted[observed.evicted.signal or LOCAL_STORAGE] += 1
            case "refused":
                self.refused_pods += observed.refused.pods
            case "rejected":
                self.rejected[observed.rejected.reason] += 1
            case "invalid_placement" | "invalid_preemption":
                for violation in getattr(observed, kind).violations:
                    self.invalid_causes[kind, violation.cause] += 1

    def add(self, other: DecisionCounts) -> None:
        """Add another pod's counts."""
        self.decisions.update(other.decisions)
        self.nominations += other.nominations
        self.against_budget += other.against_budget
        self.evicted.update(other.evicted)
        self.ended.update(other.ended)
        self.refused_pods += other.refused_pods
        self.rejected.update(other.rejected)
        self.invalid_causes.update(other.invalid_causes)

    @property
    def bindings(self) -> int:
        """Return the number of bindings; one name may be bound again after its pod was replaced."""
        return self.decisions["scheduled"]

    @property
    def failed_attempts(self) -> int:
        """Return the number of scheduling attempts that did not bind their pod."""
        return self.decisions["failed_scheduling"]

    @property
    def preempted(self) -> int:
        """Return the number of victims."""
        return self.decisions["preempted"]


class ScalingFigures(Protocol):
    """The node groups of a run; implemented in replay.whatif.facts."""

    def node_ns(self, group: str) -> int:
        """Return the sum of the lifetimes of a group's nodes, ns."""

    def cost(self, group: str) -> float | None:
        """Return the cost of a group's nodes; for "", the cost of all groups with a price."""

    def count(self, name: str, group: str) -> int:
        """Return a group's count `name` (a field of ScaledGroup); for "", the sum of all groups."""


class OccupancyFigures(Protocol):
    """The occupancy of nodes over time; replay.whatif.occupancy measures it."""

    @property
    def nodes_ns(self) -> int:
        """Return the sum of all nodes' lifetimes, ns."""

    @property
    def empty_ns(self) -> int:
        """Return the part of `nodes_ns` in which a node ran no pod that a drain would move."""

    @property
    def peaks(self) -> Mapping[str, float]:
        """Return the peak of requested as a percentage of allocatable, by resource."""

    def mean(self, resource: str) -> float | None:
        """Return the mean over time of requested as a percentage of allocatable."""

    def fragmentation(self, resource: str) -> float | None:
        """Return the percentage of allocatable that is free on nodes where pods do not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """The sum over some pods and workloads of a run, and the resources of all nodes at its end.

    pods: the number of pods. bound: pods that were bound. pending: pods without a node at the end,
    including gated pods. refusals: decisions about any pod of the run that were refused because of
    a mistake of the scheduler. refused: pods that admission refused. not_created: refused pods that
    are missing at the end. unavailable: desired pods that are not ready at the end.

    Waits exclude the time with a scheduling gate. waited_ns: the wait before each binding.
    still_waiting_s: the wait so far of each pod that waits for a node at the end. waits_so_far_ns:
    both of these, and the waits that ended without a binding.

    work_lost_s: how long preempted pods had run. allocatable: resources of the nodes; allocated:
    requests of the pods on them; cpu in thousandths. occupancy: requested resources over time.
    scaling: the node groups.
    """

    pods: int
    bound: int
    pending: int
    refusals: int
    refused: int
    not_created: int
    unavailable: int
    counts: DecisionCounts
    waited_ns: Sequence[int]
    still_waiting_s: Sequence[float]
    waits_so_far_ns: Sequence[int]
    work_lost_s: float
    allocatable: Mapping[str, int]
    allocated: Mapping[str, int]
    occupancy: OccupancyFigures
    scaling: ScalingFigures


Measure = Callable[[Population, str], float | None]
"""Returns a figure of a population, None if it has no value.

The second argument is a signal, a resource or a node group, for figures that need one.
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    labels: the labels that a condition on the figure may use. sql: computes the figure for all pods
    of a run from the tables of replay.results.schema; there, pods that share a name are counted
    separately. missing: why the figure can have no value, such as "no pod was bound"; "" if it
    always has one.
    """

    meaning: str
    unit: str
    of: Measure
    labels: tuple[str, ...] = POD_LABELS
    sql: str = ""
    missing: str = ""


def quantile(values: Sequence[int], share: float) -> int | None:
    """Return the quantile of `values` for `share` (0 to 1); None without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _waited(share: float) -> Measure:
    return lambda p, _: _seconds(quantile(p.waited_ns, share))


def _waited_so_far(share: float) -> Measure:
    return lambda p, _: _seconds(quantile(p.waits_so_far_ns, share))


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / _S


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _allocated(population: Population, resource: str) -> float:
    allocatable = population.allocatable.get(resource, 0)
    return 100.0 * population.allocated.get(resource, 0) / allocatable if allocatable else 0.0


def _scaled(name: str) -> Measure:
    return lambda p, group: p.scaling.count(name, group)


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
        lambda p, _: p.pending + p.not_created,
        sql="SELECT (SELECT count(*) FROM pods WHERE ending = 'Pending')"
        " + (SELECT coalesce(sum(not_created), 0) FROM workloads)"
        " + (SELECT count(DISTINCT (r.namespace, r.name)) FROM failed_creates AS r"
        " WHERE r.owner IS NULL AND NOT EXISTS (FROM pods AS p"
        " WHERE p.namespace = r.namespace AND p.name = r.name))",
    ),
    "refused": Figure(
        "pods that admission refused, a pod that stays refused once",
        "pods",
        lambda p, _: p.refused,
        sql="SELECT coalesce(sum(pods), 0) FROM failed_creates",
    ),
    "refusals": Figure(
        "decisions that were refused for a mistake of the scheduler, such as a pod bound twice",
        "",
        lambda p, _: p.refusals,
        labels=(),
        sql="SELECT count(*) FROM decisions WHERE refusal_cause IS NOT NULL",
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
    "rejected": Figure(
        "pods that their kubelets did not admit",
        "pods",
        lambda p, _: p.counts.rejected.total(),
        sql="SELECT count(*) FROM decisions WHERE kind = 'rejected'",
    ),
    "invalid_placements": Figure(
        "bindings to a node that the pod did not fit, found by the audit or by a kubelet",
        "",
        lambda p, _: p.counts.decisions["invalid_placement"],
        sql="SELECT count(*) FROM decisions WHERE kind = 'invalidPlacement'",
    ),
    "invalid_preemptions": Figure(
        "preemptions that a preemptor may not decide, found by the audit",
        "",
        lambda p, _: p.counts.decisions["invalid_preemption"],
        sql="SELECT count(*) FROM decisions WHERE kind = 'invalidPreemption'",
    ),
    "failed_attempts": Figure(
        "scheduling attempts that bound nothing",
        "",
        lambda p, _: p.counts.failed_attempts,
        sql="SELECT count(*) FROM attempts WHERE result <> 'Scheduled' AND refused IS NULL",
    ),
    "succeeded": Figure(
        "pods that ended in phase Succeeded", "pods", lambda p, _: p.counts.ended["Succeeded"]
    ),
    "failed": Figure(
        "pods that ended in phase Failed", "pods", lambda p, _: p.counts.ended["Failed"]
    ),
    "work_lost": Figure(
        "how long preempted pods had run, in total", "s", lambda p, _: p.work_lost_s
    ),
    "waited_mean": Figure(
        "time without a node until the binding, mean",
        "s",
        lambda p, _: _mean([wait_ns / _S for wait_ns in p.waited_ns]),
        missing=_UNBOUND,
    ),
    "waited_p50": Figure("the same, median", "s", _waited(0.5), missing=_UNBOUND),
    "waited_p90": Figure("the same, 90th percentile", "s", _waited(0.9), missing=_UNBOUND),
    "waited_p99": Figure("the same, 99th percentile", "s", _waited(0.99), missing=_UNBOUND),
    "waited_max": Figure("the same, maximum", "s", _waited(1.0), missing=_UNBOUND),
    "total_wait": Figure(
        "the same, in total; 0 where no pod was bound", "s", lambda p, _: sum(p.waited_ns) / _S
    ),
    "longest_wait": Figure(
        "waited_max, and 0 where no pod was bound",
        "s",
        lambda p, _: max(p.waited_ns, default=0) / _S,
    ),
    "still_waiting_mean": Figure(
        "time that pods without a node have waited by the end, mean; 0 where no pod waits",
        "s",
        lambda p, _: _mean(p.still_waiting_s) or 0.0,
    ),
    "still_waiting_max": Figure(
        "the same, maximum", "s", lambda p, _: max(p.still_waiting_s, default=0.0)
    ),
    "waited_so_far_mean": Figure(
        "time without a node until the binding, or until now or the pod's end without one, mean",
        "s",
        lambda p, _: _mean([wait_ns / _S for wait_ns in p.waits_so_far_ns]),
        missing=_UNWAITED,
    ),
    "waited_so_far_p50": Figure("the same, median", "s", _waited_so_far(0.5), missing=_UNWAITED),
    "waited_so_far_p95": Figure(
        "the same, 95th percentile", "s", _waited_so_far(0.95), missing=_UNWAITED
    ),
    "waited_so_far_max": Figure("the same, maximum", "s", _waited_so_far(1.0), missing=_UNWAITED),
    "allocated": Figure(
        "requests of the pods on nodes at the end, as a share of allocatable",
        "%",
        _allocated,
        labels=(RESOURCE,),
    ),
    "allocated_mean": Figure(
        "the same over the run's time, mean",
        "%",
        lambda p, resource: p.occupancy.mean(resource),
        labels=(RESOURCE,),
        missing=_NO_TIME,
    ),
    "allocated_peak": Figure(
        "the same, the largest",
        "%",
        lambda p, resource: p.occupancy.peaks.get(resource),
        labels=(RESOURCE,),
        missing=_NO_TIME,
    ),
    "fragmentation": Figure(
        "what is free on nodes where pods do not fit, by the share of the pods that request the "
        "resource, as a share of allocatable; mean over the run's time",
        "%",
        lambda p, resource: p.occupancy.fragmentation(resource),
        labels=(RESOURCE,),
        missing="no pod requests it, or no time passed",
    ),
    "node_hours": Figure(
        "the time of all nodes together, or of a node group's",
        "h",
        lambda p, group: (p.scaling.node_ns(group) if group else p.occupancy.nodes_ns) / _HOUR,
        labels=(GROUP,),
    ),
    "empty_node_hours": Figure(
        "the part of it in which nodes ran no pod but those of DaemonSets and mirror pods",
        "h",
        lambda p, _: p.occupancy.empty_ns / _HOUR,
        labels=(),
    ),
    "cost": Figure(
        "what the nodes of the node groups cost by the prices of --autoscaler's file, from the "
        "request for each on",
        "",
        lambda p, group: p.scaling.cost(group),
        labels=(GROUP,),
        missing="no node group has a price",
    ),
    "scale_ups": Figure(
        "how often the autoscaler increased a node group", "", _scaled("scale_ups"), labels=(GROUP,)
    ),
    "nodes_added": Figure("nodes that the autoscaler added", "", _scaled("added"), labels=(GROUP,)),
    "nodes_removed": Figure(
        "nodes that the autoscaler removed", "", _scaled("removed"), labels=(GROUP,)
    ),
}
