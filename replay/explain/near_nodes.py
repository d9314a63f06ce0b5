"""Finds nodes on which a waiting pod nearly fitted, the pods that used them, and what freed room.

Nodes are judged by cordon, taints, node affinity and requests in the cluster's state at one moment.
A node that lacks no resource may still have refused the pod for spreading, pod affinity, ports or
volumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from replay.results.run.cluster import ActivePod, ChangeType, ClusterState, NodeUse, ObjectChange
from replay.results.run.directory import RunDirectory
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.pod import TERMINAL_PHASES, PodSpec
from services.kube.taints import CORDON, repels, tolerated

HOLDERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NearNode:
    """A node that lacked a resource; amounts by resource, CPU in thousandths.

    lacks: the missing amounts. holders: the workloads or pods that requested most of the missing
    resources on the node, with these requests.
    """

    node: str
    lacks: Mapping[str, int]
    holders: Sequence[tuple[str, Mapping[str, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """A change on a node: a sentence, and when it happened last."""

    at_ns: int
    sentence: str


def near_nodes(
    run: RunDirectory, uid: str, at_ns: int, owners: Mapping[str, str], top: int
) -> list[NearNode]:
    """Return the nodes that lacked least for a pod at a moment, the nearest first.

    Nodes are ordered by the largest missing amount as a share of allocatable. owners: by pod UID,
    the name of the pod's workload, or of the pod if it has none. Returns no nodes if the pod does
    not exist or does not wait at the moment.
    """
    state = ClusterState()
    for round_ in run.rounds():
        if round_.time_ns > at_ns:
            break
        for event in round_.events:
            state.take(event)
    pod = state.waiting.get(uid)
    if pod is None:
        return []
    short = [
        (_share(use, lacks), name, lacks)
        for name, use in state.nodes.items()
        if _may_take(use, pod.spec) and (lacks := _lacks(use, pod))
    ]
    short.sort(key=lambda found: found[:2])
    return [
        NearNode(node=name, lacks=lacks, holders=_holders(state, name, lacks, owners))
        for _, name, lacks in short[:top]
    ]


def changes_before(
    run: RunDirectory, node: str, after_ns: int, until_ns: int, top: int
) -> list[NodeChange]:
    """Return the changes on a node in (after_ns, until_ns], the latest first.

    They are pods of the node that ended or were removed, and changes of the node itself.
    """
    state, times_ns = ClusterState(), dict[str, int]()
    for round_ in run.rounds():
        if round_.time_ns > until_ns:
            break
        for event in round_.events:
            change = state.take(event)
            if change is not None and after_ns < event.time_ns <= until_ns:
                for sentence in _of_node(change, node, event):
                    times_ns.pop(sentence, None)
                    times_ns[sentence] = event.time_ns
    latest = list(reversed(times_ns.items()))[:top]
    return [NodeChange(at_ns=at_ns, sentence=sentence) for sentence, at_ns in latest]


def _of_node(change: ObjectChange, node: str, event: scheduler_pb2.Event) -> Iterator[str]:
    kind, namespace, name = change.key
    message = change.message
    if kind == "Node" and name == node:
        yield f"Node {name} was {change.type.value.lower()}"
    elif isinstance(message, pod_pb2.Pod) and message.spec.node_name == node:
        if change.type is ChangeType.DELETED:
            yield f"Pod {namespace}/{name} was removed"
        elif event.HasField("patch") and message.status.phase in TERMINAL_PHASES:
            yield f"Pod {namespace}/{name} ended ({message.status.phase})"


def _may_take(use: NodeUse, spec: PodSpec) -> bool:
    """Return whether cordon, taints and node affinity all allow the pod on the node."""
    node = use.node
    if node.unschedulable and not tolerated(CORDON, spec.tolerations):
        return False
    if any(repels(taint, spec.tolerations) for taint in node.taints):
        return False
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    return node.matches(spec.node_selector.items(), required)


def _lacks(use: NodeUse, pod: ActivePod) -> dict[str, int]:
    return {
        name: amount - use.free(name)
        for name, amount in sorted(pod.requests.items())
        if amount > use.free(name)
    }


def _share(use: NodeUse, lacks: Mapping[str, int]) -> float:
    return max(amount / max(1, use.node.allocatable.get(name, 0)) for name, amount in lacks.items())


def _holders(
    state: ClusterState, node: str, lacks: Mapping[str, int], owners: Mapping[str, str]
) -> list[tuple[str, Mapping[str, int]]]:
    held: dict[str, Counter[str]] = {}
    for uid, pod in state.pods.items():
        if pod.node_name == node:
            amounts = {name: pod.requests.get(name, 0) for name in lacks}
            held.setdefault(owners.get(uid, uid), Counter()).update(amounts)
    allocatable = state.nodes[node].node.allocatable

    def share(owner: str) -> float:
        return max(held[owner][name] / max(1, allocatable.get(name, 0)) for name in lacks)

    ranked = sorted(held, key=lambda owner: (-share(owner), owner))
    return [(owner, dict(held[owner])) for owner in ranked[:HOLDERS] if any(held[owner].values())]
