"""What happened to each pod of a run, from its history and its decision log, each read once.

Memory is bounded by the number of pods. Pods that follow each other under one name, as a
StatefulSet's do, are one here, so that pods of two runs pair by namespace and name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from replay.results.run.cluster import ChangeType, ClusterState, ObjectChange
from replay.results.run.directory import RunDirectory
from replay.results.summary.figures import ALLOCATED, FIGURES, DecisionCounts, Population
from reprieve.kube.v1beta1 import pod_pb2

_S = 1e9


@dataclass(slots=True, kw_only=True)
class PodFacts:
    """What happened to the pods of one name; times are ns.

    node: where it was bound last, "" where never. pending: it exists at the end and has no node.
    waited_ns: for each of its bindings, the time since its entry into the queue.
    """

    namespace: str
    name: str
    priority: int
    priority_class: str
    node: str = ""
    pending: bool = False
    pending_since_ns: int = 0
    waited_ns: list[int] = field(default_factory=list)
    counts: DecisionCounts = field(default_factory=DecisionCounts)

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(slots=True, kw_only=True)
class RunFacts:
    """The pods of a run by key; allocatable and allocated at its end by resource."""

    start_ns: int = 0
    end_ns: int = 0
    pods: dict[str, PodFacts] = field(default_factory=dict)
    allocatable: Counter[str] = field(default_factory=Counter)
    allocated: Counter[str] = field(default_factory=Counter)

    def still_waiting_ns(self, pod: PodFacts) -> int:
        """Return how long a pod without a node has waited by the end, 0 for any other."""
        return self.end_ns - pod.pending_since_ns if pod.pending else 0

    def population(self, pods: Sequence[PodFacts]) -> Population:
        """Return the sum over some of the run's pods."""
        counts = DecisionCounts()
        for pod in pods:
            counts.add(pod.counts)
        return Population(
            pods=len(pods),
            bound=sum(bool(pod.waited_ns) for pod in pods),
            counts=counts,
            waited_ns=[wait for pod in pods for wait in pod.waited_ns],
            still_waiting_s=[self.still_waiting_ns(pod) / _S for pod in pods if pod.pending],
            allocatable=self.allocatable,
            allocated=self.allocated,
        )


def all_figures(run: RunFacts) -> dict[str, float]:
    """Return every figure of all pods; `allocated` once for each resource that nodes have."""
    everything = run.population(list(run.pods.values()))
    found = {
        name: float(figure.of(everything, ""))
        for name, figure in FIGURES.items()
        if name != ALLOCATED
    }
    for resource in sorted(run.allocatable):
        if run.allocatable[resource]:
            name = f"{ALLOCATED}{{resource={resource}}}"
            found[name] = FIGURES[ALLOCATED].of(everything, resource)
    return found


def read_facts(run: RunDirectory) -> RunFacts:
    """Read a run. Raises RunError where its files are missing or broken."""
    found, state, by_uid = RunFacts(), ClusterState(), dict[str, PodFacts]()
    played_ns = run.manifest().end_ns
    is_first = True
    for round_ in run.rounds():
        if is_first:
            found.start_ns, is_first = round_.at_ns, False
        found.end_ns = max(round_.at_ns, played_ns)
        for event in round_.events:
            change = state.take(event)
            if change is not None and isinstance(change.message, pod_pb2.Pod):
                _note_pod(found, by_uid, change, change.message)
    for decision in run.decisions():
        observed = decision.observed
        pod, kind = by_uid.get(observed.object.uid), observed.WhichOneof("observed")
        if decision.refused or pod is None or kind is None:
            continue
        pod.counts.count(kind, observed)
        if kind == "scheduled":
            pod.node = observed.scheduled.node_name
            pod.waited_ns.append(max(0, observed.scheduled.waited_ns))
    for use in state.nodes.values():
        found.allocatable.update(use.node.allocatable)
        found.allocated.update(use.requested)
    for uid, active in state.pods.items():
        by_uid[uid].pending |= not active.node_name
    return found


def _note_pod(
    found: RunFacts, by_uid: dict[str, PodFacts], change: ObjectChange, pod: pod_pb2.Pod
) -> None:
    if change.type is not ChangeType.ADDED or pod.metadata.uid in by_uid:
        return
    meta, spec = pod.metadata, pod.spec
    key = f"{meta.namespace}/{meta.name}"
    facts = found.pods.get(key)
    if facts is None:
        facts = found.pods[key] = PodFacts(
            namespace=meta.namespace,
            name=meta.name,
            priority=spec.priority,
            priority_class=spec.priority_class_name,
        )
    facts.pending_since_ns = change.at_ns
    facts.node = spec.node_name or facts.node
    by_uid[meta.uid] = facts
