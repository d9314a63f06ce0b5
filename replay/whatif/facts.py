"""The facts of a run: its pods, its workloads and how full its nodes are, for figures.

They come from the history and the decision log, which the world writes, so that runs of different
schedulers compare: waits are from a pod's creation to its binding, and not what a scheduler says.
Memory is bounded by the number of pods. Pods that follow each other under one name, as a
StatefulSet's do, are one here, so that pods of two runs pair by namespace and name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from replay.autoscaling.file import of_configuration
from replay.results.run.cluster import ChangeType, ClusterState, ObjectChange
from replay.results.run.directory import RunDirectory
from replay.results.summary.figures import FIGURES, GROUP, RESOURCE, DecisionCounts, Population
from replay.results.summary.scaling import ScaledGroup, ScalingTally
from replay.results.workloads.tally import WorkloadTally
from replay.results.workloads.verdict import Numbers, WorkloadVerdict
from replay.results.workloads.workload import Workload
from replay.whatif.occupancy import Occupancy, OccupancyMeter
from replay.whatif.window import time_of
from replay.world.controllers.autoscaling.node_groups import Autoscaling
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.pod import TERMINAL_PHASES
from services.rpc.kube.fields import time_ns

_S = 1e9
_DELETIONS = frozenset({"deleted", "drained", "taint", "node-lost"})
"""Why pods are removed, but for preemptions, evictions by kubelets, and pods that have ended."""


@dataclass(slots=True, kw_only=True)
class PodFacts:
    """The history of the pods of one name; times are ns.

    node: where it was bound last, "" if never. ran_on: the node that it had when it was first
    seen, which is at the beginning for a pod that ran then. uid: of the last one. pending_since_ns,
    pending_until_ns: from its creation, or from when its last scheduling gate went, until it got
    its node or went without; None if it exists at the run's end and has no node. gated: it has a
    scheduling gate then, and so does not wait for a node yet.
    waited_ns: for each of its bindings, the time that it was pending. unbound_ns: the same of each
    time that it went without a node. work_lost_ns: how long it ran before it was preempted, in
    total. kind, workload: what it belongs to, such as Deployment and web; "" for a pod without a
    controller. terminates: at the run's end. deletions: how often it was deleted, neither for a
    preemptor nor after it had ended, by the end.
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
    gated: bool = False
    waited_ns: list[int] = field(default_factory=list)
    unbound_ns: list[int] = field(default_factory=list)
    work_lost_ns: int = 0
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


@dataclass(frozen=True, slots=True)
class Scaling:
    """The node groups of a run, by name."""

    groups: Mapping[str, ScaledGroup] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the groups."""
        return tuple(self.groups)

    def node_ns(self, group: str) -> int:
        """Return the time of all nodes of a group together."""
        return self.groups[group].node_ns

    def cost(self, group: str) -> float | None:
        """Return the cost of a group's nodes; for "", of all groups with a price."""
        costs = [one.cost for one in self._chosen(group) if one.cost is not None]
        return sum(costs) if costs else None

    def count(self, name: str, group: str) -> int:
        """Return a count of a group, or of all groups for ""."""
        return sum(getattr(one, name) for one in self._chosen(group))

    def _chosen(self, group: str) -> Iterable[ScaledGroup]:
        return (self.groups[group],) if group else self.groups.values()


@dataclass(slots=True, kw_only=True)
class RunFacts:
    """The pods of a run by key; allocatable and allocated at its end by resource.

    refused: pods without a controller that were refused, by key. workloads: those at the run's end,
    by name. nodes: the names of all nodes that there were. refusals: decisions that were refused
    for a mistake of the scheduler. occupancy: of its nodes over its time. scaling: the node groups.
    """

    start_ns: int = 0
    end_ns: int = 0
    pods: dict[str, PodFacts] = field(default_factory=dict)
    refused: dict[str, PodFacts] = field(default_factory=dict)
    workloads: dict[str, WorkloadFacts] = field(default_factory=dict)
    nodes: dict[str, None] = field(default_factory=dict)
    allocatable: Counter[str] = field(default_factory=Counter)
    allocated: Counter[str] = field(default_factory=Counter)
    occupancy: Occupancy = field(default_factory=Occupancy)
    scaling: Scaling = field(default_factory=Scaling)
    refusals: int = 0

    def waits_so_far_ns(self, pod: PodFacts) -> Iterator[int]:
        """Yield how long a pod waited for each node that it got or did not get, until the end."""
        yield from pod.waited_ns
        yield from pod.unbound_ns
        if self.still_waits(pod):
            yield self.waiting_ns(pod, self.length_ns)

    @property
    def resources(self) -> Counter[str]:
        """Return the resources that nodes had at any time, with amounts of no meaning but 0."""
        return self.occupancy.allocatable_ns | self.allocatable

    @property
    def length_ns(self) -> int:
        """Return the simulated time of the run."""
        return self.end_ns - self.start_ns

    def waits(self, pod: PodFacts, offset_ns: int) -> bool:
        """Return whether a pod waits for a node at a moment; with a scheduling gate it does not.

        A pod that is gated at the end was so all the time, since gates are never added.
        """
        at_ns, until_ns = self.start_ns + offset_ns, pod.pending_until_ns
        is_pending = pod.pending_since_ns <= at_ns and (until_ns is None or at_ns < until_ns)
        return is_pending and not pod.gated

    def still_waits(self, pod: PodFacts) -> bool:
        """Return whether a pod waits for a node at the end."""
        return self.waits(pod, self.length_ns)

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
        waiting = [pod for pod in pods if self.still_waits(pod)]
        refused = [pod for pod in self.refused.values() if chosen(pod)]
        verdicts = [workload.verdict for workload in self.workloads.values() if chosen(workload)]
        counts = DecisionCounts()
        for pod in (*pods, *refused):
            counts.add(pod.counts)
        return Population(
            pods=len(pods),
            bound=sum(bool(pod.waited_ns) for pod in pods),
            pending=sum(pod.pending for pod in pods),
            refusals=self.refusals,
            refused=counts.refused_pods + sum(verdict.refused for verdict in verdicts),
            not_created=sum(pod.key not in self.pods for pod in refused)
            + sum(verdict.not_created for verdict in verdicts),
            unavailable=sum(verdict.unavailable for verdict in verdicts),
            counts=counts,
            waited_ns=[wait for pod in pods for wait in pod.waited_ns],
            still_waiting_s=[self.waiting_ns(pod, self.length_ns) / _S for pod in waiting],
            waits_so_far_ns=[wait for pod in pods for wait in self.waits_so_far_ns(pod)],
            work_lost_s=sum(pod.work_lost_ns for pod in pods) / _S,
            occupancy=self.occupancy,
            scaling=self.scaling,
            allocatable=self.allocatable,
            allocated=self.allocated,
        )


def all_figures(run: RunFacts) -> dict[str, float | None]:
    """Return every figure of all pods; one of resources once for each that nodes have.

    One of node groups comes for all of them, and for each.

    None stands for a figure without a value, such as a wait where no pod was bound.
    """
    everything = run.population()
    resources = sorted(name for name, amount in run.resources.items() if amount)
    figures: dict[str, float | None] = {}
    for name, figure in FIGURES.items():
        if RESOURCE not in figure.labels:
            figures[name] = figure.of(everything, "")
            for group in run.scaling.names if GROUP in figure.labels else ():
                figures[f"{name}{{{GROUP}={group}}}"] = figure.of(everything, group)
            continue
        for resource in resources:
            figures[f"{name}{{{RESOURCE}={resource}}}"] = figure.of(everything, resource)
    return {name: None if value is None else float(value) for name, value in figures.items()}


def read_facts(run: RunDirectory, length_ns: int | None = None) -> RunFacts:
    """Read a run, until `length_ns` after its beginning where that is set.

    A run that ended before stays as it is until then. Raises RunError if its files are missing or
    broken.
    """
    time = time_of(run)
    end_ns = time.end_ns if length_ns is None else time.start_ns + length_ns
    facts, workloads = RunFacts(start_ns=time.start_ns, end_ns=end_ns), WorkloadTally()
    for event in _object_events(run, end_ns):
        workloads.object_changed(event)
    manifest = run.manifest()
    autoscaling = of_configuration(manifest.configuration, manifest.seed)
    scaling = ScalingTally()
    lives = _read_rounds(run, facts, workloads, scaling, autoscaling)
    for decision in run.decisions():
        if decision.time_ns > end_ns:
            break
        facts.refusals += bool(decision.refusal_cause)
        if not decision.refused:
            scaling.decided(decision.observed)
        _note_decision(facts, lives, decision, workloads)
    if autoscaling is not None:
        groups = scaling.groups(autoscaling, facts.end_ns)
        facts.scaling = Scaling({group.group: group for group in groups})
    for pod in facts.pods.values():
        life = lives.get(pod.uid)
        pod.deletions += pod.terminates and not (life is not None and life.preempted)
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


def missing_pods(run: RunDirectory, key: str, length_ns: int) -> dict[int, int]:
    """Return how many desired pods of a workload are not ready, by the time from which on, ns.

    Times are since the run's first round, in their order, up to `length_ns`. Raises RunError if the
    run's files are missing or broken.
    """
    workloads = _MissingPods(key)
    start_ns = time_of(run).start_ns
    end_ns = start_ns + length_ns
    for event in _object_events(run, end_ns):
        workloads.object_changed(event)
    for event in _events(run, end_ns):
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


@dataclass(slots=True, kw_only=True)
class _Life:
    """The life of one pod, by UID: since when it waited for a node last, and since when it ran."""

    pod: PodFacts
    pending_since_ns: int
    running_since_ns: int | None = None
    preempted: bool = False


def _read_rounds(
    run: RunDirectory,
    facts: RunFacts,
    workloads: WorkloadTally,
    scaling: ScalingTally,
    autoscaling: Autoscaling | None,
) -> dict[str, _Life]:
    """Read a run's history; return the lives of its pods by UID."""
    state, lives = ClusterState(), dict[str, _Life]()
    meter = OccupancyMeter(state, start_ns=facts.start_ns, end_ns=facts.end_ns)
    for event in _events(run, facts.end_ns):
        workloads.sent(event)
        if autoscaling is not None:
            scaling.sent(event, autoscaling)
        meter.reach(event.time_ns)
        change = state.take(event)
        if change is None:
            continue
        meter.applied(change)
        if isinstance(change.message, pod_pb2.Pod):
            _note_pod(facts, lives, change, change.message, workloads)
        elif isinstance(change.message, node_pb2.Node):
            facts.nodes[change.message.metadata.name] = None
    facts.occupancy = meter.measured()
    for use in state.nodes.values():
        facts.allocatable.update(use.node.allocatable)
        facts.allocated.update(use.requested)
    for name, devices in meter.devices_at_end().items():
        facts.allocatable[name] += devices.devices
        facts.allocated[name] += devices.in_use
    return lives


def _events(run: RunDirectory, end_ns: int) -> Iterator[scheduler_pb2.Event]:
    """Yield the events of a history up to a moment."""
    return _until(end_ns, run.rounds())


def _object_events(run: RunDirectory, end_ns: int) -> Iterator[scheduler_pb2.Event]:
    """Yield the changes of objects that the scheduler does not receive in full, up to a moment."""
    return _until(end_ns, run.object_rounds())


def _until(end_ns: int, rounds: Iterable[scheduler_pb2.Round]) -> Iterator[scheduler_pb2.Event]:
    for round_ in rounds:
        for event in round_.events:
            if event.time_ns > end_ns:
                return
            yield event


def _note_decision(
    facts: RunFacts, lives: dict[str, _Life], decision: trace_pb2.Decision, workloads: WorkloadTally
) -> None:
    observed = decision.observed
    life, kind = lives.get(observed.object.uid), observed.WhichOneof("observed")
    if kind == "refused":
        refused = _note_refused(facts, observed, workloads)
        if refused is not None and not decision.refused:
            refused.counts.count(kind, observed)
        return
    if decision.refused or life is None or kind is None:
        return
    pod = life.pod
    pod.counts.count(kind, observed)
    match kind:
        case "scheduled":
            pod.node = observed.scheduled.node_name
            pod.waited_ns.append(max(0, decision.time_ns - life.pending_since_ns))
        case "started":
            if life.running_since_ns is None:
                life.running_since_ns = decision.time_ns
        case "preempted":
            life.preempted = True
            if life.running_since_ns is not None:
                pod.work_lost_ns += max(0, decision.time_ns - life.running_since_ns)
        case "removed":
            pod.deletions += observed.removed.cause in _DELETIONS


def _note_refused(
    facts: RunFacts, observed: trace_pb2.Observed, workloads: WorkloadTally
) -> PodFacts | None:
    """Note a refusal; return the pod if no controller counts the refusal."""
    if observed.refused.HasField("owner"):
        workloads.refused(observed.refused.owner.uid, observed.refused.pods)
        return None
    meta = observed.object
    pod = PodFacts(namespace=meta.namespace, name=meta.name, priority=0, priority_class="")
    return facts.refused.setdefault(pod.key, pod)


def _note_pod(
    run_facts: RunFacts,
    lives: dict[str, _Life],
    change: ObjectChange,
    pod: pod_pb2.Pod,
    workloads: WorkloadTally,
) -> None:
    life = lives.get(pod.metadata.uid)
    if life is None and change.type is ChangeType.ADDED:
        _note_new_pod(run_facts, lives, change.at_ns, pod, workloads)
        return
    if life is None or life.pod.uid != pod.metadata.uid:
        return
    facts, is_there = life.pod, change.type is not ChangeType.DELETED
    facts.terminates = is_there and pod.metadata.HasField("deletion_timestamp")
    if not facts.pending:
        return
    if facts.gated and not pod.spec.scheduling_gates:
        facts.gated, facts.pending_since_ns = False, change.at_ns
        life.pending_since_ns = change.at_ns
    if pod.spec.node_name:
        facts.pending_until_ns = change.at_ns
    elif not is_there or pod.status.phase in TERMINAL_PHASES:
        facts.pending_until_ns = change.at_ns
        if not facts.gated:
            facts.unbound_ns.append(change.at_ns - life.pending_since_ns)


def _note_new_pod(
    run_facts: RunFacts,
    lives: dict[str, _Life],
    at_ns: int,
    pod: pod_pb2.Pod,
    workloads: WorkloadTally,
) -> None:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    key = f"{meta.namespace}/{meta.name}"
    facts = run_facts.pods.get(key)
    if facts is None:
        facts = run_facts.pods[key] = PodFacts(
            namespace=meta.namespace,
            name=meta.name,
            priority=spec.priority,
            priority_class=spec.priority_class_name,
            ran_on=spec.node_name,
            created_ns=at_ns,
        )
        for owner in meta.owner_references:
            if owner.controller:
                top = workloads.top_of(owner.uid)
                facts.kind, facts.workload = top or (owner.kind, owner.name)
    facts.uid, facts.pending_since_ns = meta.uid, at_ns
    facts.gated = bool(spec.scheduling_gates)
    facts.terminates = meta.HasField("deletion_timestamp")
    facts.pending_until_ns = at_ns if spec.node_name else None
    facts.node = spec.node_name or facts.node
    running_since_ns = (time_ns(status.start_time) or at_ns) if status.phase == "Running" else None
    lives[meta.uid] = _Life(pod=facts, pending_since_ns=at_ns, running_since_ns=running_since_ns)
