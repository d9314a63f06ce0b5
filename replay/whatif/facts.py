"""What befell each pod of a run, from its history and its decision log, each read once.

Memory is bounded by the number of pods. Pods that follow each other under one name, as a
StatefulSet's do, are one here, so that two runs of a trace pair by namespace and name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from replay.overrides.assignment import amounts
from replay.results.run.directory import RunDirectory
from replay.results.run.history import Change, ClusterHistory, Verb
from replay.results.summary.tally import LOCAL_STORAGE
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.requests import PODS, pod_requests
from services.rpc.kube.spec import PodSpecInterner

_TERMINAL = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True, kw_only=True)
class PodFacts:
    """What befell the pods of one name; times are ns.

    node: where it was bound last, "" where never. pending: it is there at the end and has no node.
    waited_ns: of each of its bindings, from its entry into the queue. preempted, evicted (by
    signal), against_budget, failed_attempts: how often.
    """

    namespace: str
    name: str
    priority: int
    priority_class: str
    node: str = ""
    pending: bool = False
    pending_since_ns: int = 0
    waited_ns: list[int] = field(default_factory=list)
    preempted: int = 0
    against_budget: int = 0
    evicted: Counter[str] = field(default_factory=Counter)
    failed_attempts: int = 0
    ended: Counter[str] = field(default_factory=Counter)

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
    nodes: int = 0
    allocatable: Counter[str] = field(default_factory=Counter)
    allocated: Counter[str] = field(default_factory=Counter)

    def still_waiting_ns(self, pod: PodFacts) -> int:
        """Return how long a pod without a node has waited by the end, 0 for any other."""
        return self.end_ns - pod.pending_since_ns if pod.pending else 0


def read_facts(run: RunDirectory) -> RunFacts:
    """Read a run. Raises RunError for one that cannot be read."""
    found, history, uids = RunFacts(), ClusterHistory(), dict[str, PodFacts]()
    played_ns = run.manifest().end_ns
    is_first = True
    for round_ in run.rounds():
        if is_first:
            found.start_ns, is_first = round_.at_ns, False
        found.end_ns = max(round_.at_ns, played_ns)
        for event in round_.events:
            change = history.take(event)
            if change is not None and isinstance(change.message, pod_pb2.Pod):
                _note_pod(found, uids, change, change.message)
    for decision in run.decisions():
        if not decision.refused:
            _note_decision(uids, decision)
    _note_end(found, history)
    return found


def _note_pod(found: RunFacts, uids: dict[str, PodFacts], change: Change, pod: pod_pb2.Pod) -> None:
    if change.verb is not Verb.ADDED or pod.metadata.uid in uids:
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
    uids[meta.uid] = facts


def _note_decision(uids: dict[str, PodFacts], decision: trace_pb2.Decision) -> None:
    observed = decision.observed
    pod = uids.get(observed.object.uid)
    if pod is None:
        return
    match observed.WhichOneof("observed"):
        case "scheduled":
            pod.node = observed.scheduled.node_name
            pod.waited_ns.append(max(0, observed.scheduled.waited_ns))
        case "failed_scheduling":
            pod.failed_attempts += 1
        case "preempted":
            pod.preempted += 1
            pod.against_budget += observed.preempted.violates_budget
        case "evicted":
            pod.evicted[observed.evicted.signal or LOCAL_STORAGE] += 1
        case "finished":
            pod.ended[observed.finished.phase] += 1


def _note_end(found: RunFacts, history: ClusterHistory) -> None:
    nodes = set()
    for message in history.objects.values():
        if isinstance(message, node_pb2.Node):
            nodes.add(message.metadata.name)
            status = message.status
            found.allocatable.update(amounts(status.allocatable or status.capacity))
    found.nodes = len(nodes)
    specs = PodSpecInterner()
    for pod in _pods(history):
        if pod.status.phase in _TERMINAL:
            continue
        if pod.spec.node_name in nodes:
            found.allocated.update(pod_requests(specs.spec(pod.spec)))
            found.allocated[PODS] += 1
        elif not pod.spec.node_name:
            found.pods[f"{pod.metadata.namespace}/{pod.metadata.name}"].pending = True


def _pods(history: ClusterHistory) -> Iterator[pod_pb2.Pod]:
    for message in history.objects.values():
        if isinstance(message, pod_pb2.Pod):
            yield message
