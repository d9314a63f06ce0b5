"""The facts of a run: its pods, its workloads and what its nodes have, for figures.

Memory is bounded by the number of pods. Pods that follow each other under one name, as a
StatefulSet's do, are one here, so that pods of two runs pair by namespace and name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from replay.results.run.cluster import ChangeType, ClusterState, ObjectChange
from replay.results.run.directory import RunDirectory
from replay.results.summary.figures import ALLOCATED, FIGURES, DecisionCounts, Population
from replay.results.workloads.tally import WorkloadTally
from replay.results.workloads.verdict import Numbers, WorkloadVerdict
from replay.results.workloads.workload import Workload
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.pod import TERMINAL_PHASES

_S = 1e9
_DELETIONS = frozenset({"deleted", "drained", "taint", "node-lost"})
"""Why pods are removed, but for preemptions, evictions by kubelets, and pods that have ended."""


@dataclass(slots=True, kw_only=True)
class PodFacts:
    """The history of the pods of one name; times are ns.

    node: where it was bound last, "" if never. ran_on: the node that it had when it was first
    seen, which is at the beginning for a pod that ran then. uid: of the last one. pending_since_ns,
    pending_until_ns: from its creation until it got its node or went without; None if it exists
    at the run's end and has no node.
    waited_ns: for each of its bindings, the time since its entry into the queue. kind, workload:
    what it belongs to, such as Deployment and web; "" for a pod without a controller. terminates:
    at the run's end. deletions: how often it was deleted, neither for a preemptor nor after it had
    ended, by the end.
    """

    namespace: str
    name: str
    priority: int
    priority_class: str
    kind: str = ""
    workload: str = ""
    node: str = ""
    ran_on: str = ""
    created_ns: int = 0
    uid: str = ""
    pending_since_ns: int = 0
    pending_until_ns: int | None = 0
    waited_ns: list[int] = field(default_factory=list)
    counts: DecisionCounts = field(default_factory=DecisionCounts)
    terminates: bool = False
    deletions: int = 0

    @property
    def pending(self) -> bool:
        """Return whether it has no node at the run's end."""
        return self.pending_until_ns is None

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """A workload, with the labels of its pods; conditions on names and nodes do not select it."""

    verdict: WorkloadVerdict
    namespace: str
    kind: str
    workload: str
    priority: int
    priority_class: str
    name: str = ""
    node: str = ""


Described = PodFacts | WorkloadFacts
"""What the labels of a condition are about."""


def _anything(_: Described) -> bool:
    return True


@dataclass(slots=True, kw_only=True)
class RunFacts:
    """The pods of a run by key; allocatable and allocated at its end by resource.

    refused: pods without a controller that were refused, by key. workloads: those at the run's end,
    by name. nodes: the names of all nodes that there were.
    """

    start_ns: int = 0
    end_ns: int = 0
    pods: dict[str, PodFacts] = field(default_factory=dict)
    refused: dict[str, PodFacts] = field(default_factory=dict)
    workloads: dict[str, WorkloadFacts] = field(default_factory=dict)
    nodes: dict[str, None] = field(default_factory=dict)
    allocatable: Counter[str] = field(default_factory=Counter)
    allocated: Counter[str] = field(default_factory=Counter)

    def still_waiting_ns(self, pod: PodFacts) -> int:
        """Return how long a pod without a node has waited by the end, 0 for any other."""
        return self.end_ns - pod.pending_since_ns if pod.pending else 0

    @property
    def length_ns(self) -> int:
        """Return the simulated time of the run."""
        return self.end_ns - self.start_ns

    def waits(self, pod: PodFacts, offset_ns: int) -> bool:
        """Return whether a pod waits for a node at a moment."""
        at_ns, until_ns = self.start_ns + offset_ns, pod.pending_until_ns
        return pod.pending_since_ns <= at_ns and (until_ns is None or at_ns < until_ns)

    def waiting_ns(self, pod: PodFacts, offset_ns: int) -> int:
        """Return how long a pod has waited at a moment, 0 for one that does not wait then."""
        at_ns = self.start_ns + offset_ns
        return at_ns - pod.pending_since_ns if self.waits(pod, offset_ns) else 0

    def described(self) -> Iterator[Described]:
        """Yield all that a condition may choose: pods, refused ones included, and workloads."""
        return chain(self.pods.values(), self.refused.values(), self.workloads.values())

    def population(self, chosen: Callable[[Described], bool] = _anything) -> Population:
        """Return the sum over the pods and workloads that are chosen."""
        pods = [pod for pod in self.pods.values() if chosen(pod)]
        refused = [pod for pod in self.refused.values() if chosen(pod)]
        verdicts = [workload.verdict for workload in self.workloads.values() if chosen(workload)]
        counts = DecisionCounts()
        for pod in (*pods, *refused):
            counts.add(pod.counts)
        return Population(
            pods=len(pods),
            bound=sum(bool(pod.waited_ns) for pod in pods),
            refused=counts.refused_pods + sum(verdict.refused for verdict in verdicts),
            not_created=sum(pod.key not in self.pods for pod in refused)
            + sum(verdict.not_created for verdict in verdicts),
            unavailable=sum(verdict.unavailable for verdict in verdicts),
            counts=counts,
            waited_ns=[wait for pod in pods for wait in pod.waited_ns],
            still_waiting_s=[self.still_waiting_ns(pod) / _S for pod in pods if pod.pending],
            allocatable=self.allocatable,
            allocated=self.allocated,
        )


def all_figures(run: RunFacts) -> dict[str, float | None]:
    """Return every figure of all pods; `allocated` once for each resource that nodes have.

    None stands for a figure without a value, such as a wait where no pod was bound.
    """
    everything = run.population()
    figures = {
        name: figure.of(everything, "") for name, figure in FIGURES.items() if name != ALLOCATED
    }
    for resource in sorted(run.allocatable):
        if run.allocatable[resource]:
            name = f"{ALLOCATED}{{resource={resource}}}"
            figures[name] = FIGURES[ALLOCATED].of(everything, resource)
    return {name: None if value is None else float(value) for name, value in figures.items()}


def read_facts(run: RunDirectory) -> RunFacts:
    """Read a run. Raises RunError if its files are missing or broken."""
    facts, workloads = RunFacts(), WorkloadTally()
    for recorded in run.object_rounds():
        for event in recorded.events:
            workloads.object_changed(event)
    by_uid = _read_rounds(run, facts, workloads)
    preempted: set[str] = set()
    for decision in run.decisions():
        observed = decision.observed
        pod, kind = by_uid.get(observed.object.uid), observed.WhichOneof("observed")
        if kind == "refused":
            pod = _note_refused(facts, observed, workloads)
        if decision.refused or pod is None or kind is None:
            continue
        pod.counts.count(kind, observed)
        match kind:
            case "scheduled":
                pod.node = observed.scheduled.node_name
                pod.waited_ns.append(max(0, observed.scheduled.waited_duration_ns))
            case "preempted":
                preempted.add(observed.object.uid)
            case "removed":
                pod.deletions += observed.removed.cause in _DELETIONS
    for pod in facts.pods.values():
        pod.deletions += pod.terminates and pod.uid not in preempted
    for verdict in workloads.verdicts(facts.end_ns):
        facts.workloads[verdict.key] = WorkloadFacts(
            verdict=verdict,
            namespace=verdict.namespace,
            kind=verdict.kind,
            workload=verdict.name,
            priority=verdict.priority,
            priority_class=verdict.priority_class,
        )
    return facts


def missing_pods(run: RunDirectory, key: str) -> dict[int, int]:
    """Return how many desired pods of a workload are not ready, by the time from which on, ns.

    Times are since the run's first round, in their order. Raises RunError if the run's files are
    missing or broken.
    """
    workloads = _MissingPods(key)
    for recorded in run.object_rounds():
        for event in recorded.events:
            workloads.object_changed(event)
    start_ns = end_ns = 0
    for round_ in run.rounds():
        start_ns, end_ns = start_ns or round_.time_ns, round_.time_ns
        for event in round_.events:
            workloads.sent(event)
    workloads.verdicts(end_ns)
    return {max(0, at_ns - start_ns): missing for at_ns, missing in workloads.steps.items()}


class _MissingPods(WorkloadTally):
    """Notes how many pods one workload lacks: `steps`, by time, ns."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
        self.steps: dict[int, int] = {}

    def judged(self, now_ns: int, workload: Workload, numbers: Numbers) -> None:
        """Note the numbers of the workload."""
        if workload.key == self.key:
            self.steps[now_ns] = numbers.missing


def _read_rounds(
    run: RunDirectory, facts: RunFacts, workloads: WorkloadTally
) -> dict[str, PodFacts]:
    """Read a run's history; return the pods by UID."""
    state, by_uid = ClusterState(), dict[str, PodFacts]()
    played_ns = run.manifest().end_ns
    is_first = True
    for round_ in run.rounds():
        if is_first:
            facts.start_ns, is_first = round_.time_ns, False
        facts.end_ns = max(round_.time_ns, played_ns)
        for event in round_.events:
            workloads.sent(event)
            change = state.take(event)
            if change is not None and isinstance(change.message, pod_pb2.Pod):
                _note_pod(facts, by_uid, change, change.message, workloads)
            elif change is not None and isinstance(change.message, node_pb2.Node):
                facts.nodes[change.message.metadata.name] = None
    for use in state.nodes.values():
        facts.allocatable.update(use.node.allocatable)
        facts.allocated.update(use.requested)
    return by_uid


def _note_refused(
    facts: RunFacts, observed: trace_pb2.Observed, workloads: WorkloadTally
) -> PodFacts | None:
    """Note a refusal; return the pod if it has no controller that the refusal counts for."""
    if observed.refused.HasField("owner"):
        workloads.refused(observed.refused.owner.uid, observed.refused.pods)
        return None
    meta = observed.object
    pod = PodFacts(namespace=meta.namespace, name=meta.name, priority=0, priority_class="")
    return facts.refused.setdefault(pod.key, pod)


def _note_pod(
    run_facts: RunFacts,
    by_uid: dict[str, PodFacts],
    change: ObjectChange,
    pod: pod_pb2.Pod,
    workloads: WorkloadTally,
) -> None:
    known = by_uid.get(pod.metadata.uid)
    if change.type is not ChangeType.ADDED or known is not None:
        if known is not None and known.uid == pod.metadata.uid:
            is_there = change.type is not ChangeType.DELETED
            known.terminates = is_there and pod.metadata.HasField("deletion_timestamp")
        is_over = change.type is ChangeType.DELETED or pod.status.phase in TERMINAL_PHASES
        waits = known is not None and known.uid == pod.metadata.uid and known.pending
        if known is not None and waits and (is_over or pod.spec.node_name):
            known.pending_until_ns = change.at_ns
        return
    meta, spec = pod.metadata, pod.spec
    key = f"{meta.namespace}/{meta.name}"
    facts = run_facts.pods.get(key)
    if facts is None:
        facts = run_facts.pods[key] = PodFacts(
            namespace=meta.namespace,
            name=meta.name,
            priority=spec.priority,
            priority_class=spec.priority_class_name,
            ran_on=spec.node_name,
            created_ns=change.at_ns,
        )
        for owner in meta.owner_references:
            if owner.controller:
                top = workloads.top_of(owner.uid)
                facts.kind, facts.workload = top or (owner.kind, owner.name)
    facts.uid, facts.pending_since_ns = meta.uid, change.at_ns
    facts.terminates = meta.HasField("deletion_timestamp")
    facts.pending_until_ns = change.at_ns if spec.node_name else None
    facts.node = spec.node_name or facts.node
    by_uid[meta.uid] = facts
