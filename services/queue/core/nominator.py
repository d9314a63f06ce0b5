"""The nominations of pending pods to nodes.

A nomination is keyed by the pod's UID and may differ from the pod's status, because a preemption
nominates the pod here before its status is written. A pop keeps the nomination. A node's pods are
in the order of their nominations; nominating a pod again moves it to the end. v1.34 can nominate a
pod to the node ""; this nomination lasts until the pod's status names a node or it is removed.

Source: kubernetes v1.20 internal/queue/scheduling_queue.go, nominatedPodMap; v1.34
backend/queue/nominator.go, nominator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from services.queue.core.queued_pod import PodRef, QueuedPod


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNominations:
    """The pods nominated to one node, in order."""

    node_name: str
    pods: tuple[PodRef, ...]


class Nominator:
    """Nominated pods by node, and each pod's node by UID."""

    __slots__ = ("_by_node", "_node_by_uid")

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodRef]] = {}
        self._node_by_uid: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._node_by_uid)

    def nominate(self, pod: PodRef, node_name: str) -> None:
        """Nominate `pod` to `node_name`, after that node's other pods."""
        self.remove(pod.uid)
        self._node_by_uid[pod.uid] = node_name
        self._by_node.setdefault(node_name, {})[pod.uid] = pod

    def remove(self, uid: str) -> None:
        """Remove the nomination of the pod, if it has one."""
        node_name = self._node_by_uid.pop(uid, None)
        if node_name is None:
            return
        pods = self._by_node[node_name]
        del pods[uid]
        if not pods:
            del self._by_node[node_name]

    def follow_status(self, pod: QueuedPod) -> None:
        """Nominate the pod to the node in its status; remove the nomination without one."""
        if pod.nominated_node_name:
            self.nominate(pod.ref, pod.nominated_node_name)
        elif self._node_by_uid:
            self.remove(pod.uid)

    def follow_update(self, old: QueuedPod | None, new: QueuedPod) -> None:
        """Follow the new status, but keep the nomination if neither version names a node.

        Such an update may have been sent before a preemption wrote the status. Without an old
        version, the nomination is not kept.
        """
        if old is None:
            self.follow_status(new)
            return
        kept = self._node_by_uid.get(old.uid)
        self.remove(old.uid)
        if kept is not None and not old.nominated_node_name and not new.nominated_node_name:
            self.nominate(new.ref, kept)
        else:
            self.follow_status(new)

    def node_of(self, uid: str) -> str:
        """Return the node that the pod is nominated to; also "" if it has no nomination."""
        return self._node_by_uid.get(uid, "")

    def for_node(self, node_name: str) -> tuple[PodRef, ...]:
        """Return the pods nominated to `node_name`, in order."""
        return tuple(self._by_node.get(node_name, {}).values())

    def restore(self, nominations: Iterable[NodeNominations]) -> None:
        """Add nominations that `nominations` returned."""
        for node in nominations:
            for pod in node.pods:
                self.nominate(pod, node.node_name)

    def nominations(self) -> tuple[NodeNominations, ...]:
        """Return every node's nominations."""
        return tuple(
            NodeNominations(node_name=node_name, pods=tuple(pods.values()))
            for node_name, pods in self._by_node.items()
        )
