"""The nominated pods by node, as the filters count them.

The queue is the record of nominations; the scheduler copies it, because the filters count nominated
pods on every node.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/nominator.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from services.kube.pod import Pod


class NominatedPlace(NamedTuple):
    """The node that a pod is nominated to, and its place among the pods nominated there, from 0."""

    node_name: str
    place: int


class Nominations:
    """Nominated pods by node, in the order of their nomination; `epoch` counts the changes.

    `changed` is called with the name of each node that gets or loses one.
    """

    __slots__ = ("_by_node", "_changed", "_node_of", "epoch")

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._by_node: dict[str, dict[str, Pod]] = {}
        self._node_of: dict[str, str] = {}
        self.epoch = 0

    def put(self, pod: Pod, node_name: str) -> None:
        """Nominate `pod`; one that was nominated already moves to the end."""
        self.drop(pod.uid)
        self._by_node.setdefault(node_name, {})[pod.uid] = pod
        self._node_of[pod.uid] = node_name
        self.epoch += 1
        self._changed(node_name)

    def drop(self, uid: str) -> None:
        """Forget a pod's nomination, if it has one."""
        node_name = self._node_of.pop(uid, None)
        if node_name is None:
            return
        self.epoch += 1
        self._changed(node_name)
        del self._by_node[node_name][uid]
        if not self._by_node[node_name]:
            del self._by_node[node_name]

    def restore(self, pod: Pod, nominated: NominatedPlace | None) -> None:
        """Restore a place returned by `place_of`; other nominations must be as they were then.

        So changes are undone exactly where the latest is undone first.
        """
        if self.place_of(pod.uid) == nominated:
            return
        self.drop(pod.uid)
        if nominated is None:
            return
        self.put(pod, nominated.node_name)
        held = self._by_node[nominated.node_name]
        for uid in list(held)[nominated.place : -1]:
            held[uid] = held.pop(uid)

    def place_of(self, uid: str) -> NominatedPlace | None:
        """Return where a pod is nominated."""
        node_name = self._node_of.get(uid)
        if node_name is None:
            return None
        return NominatedPlace(node_name, list(self._by_node[node_name]).index(uid))

    def node_of(self, uid: str) -> str:
        """Return the node that a pod is nominated to, "" for none."""
        return self._node_of.get(uid, "")

    def any_on(self, node_name: str) -> bool:
        """Return whether pods are nominated to a node."""
        return node_name in self._by_node

    def on(self, node_name: str) -> Sequence[Pod]:
        """Return the pods nominated to a node."""
        return tuple(self._by_node.get(node_name, {}).values())

    def node_names(self) -> Sequence[str]:
        """Return the nodes that pods are nominated to."""
        return tuple(self._by_node)

    def all(self) -> Sequence[Pod]:
        """Return every nominated pod."""
        return [pod for held in self._by_node.values() for pod in held.values()]

    def counted(self, node_name: str, pod: Pod) -> Sequence[Pod]:
        """Return the nominated pods on a node that count in the filters of `pod`.

        These are the others of equal or higher priority.
        Source: kubernetes v1.34 framework/runtime/framework.go, addGENominatedPods.
        """
        held = self._by_node.get(node_name)
        if held is None:
            return ()
        return tuple(
            nominated
            for nominated in held.values()
            if nominated.priority >= pod.priority and nominated.uid != pod.uid
        )

    def __len__(self) -> int:
        return len(self._node_of)
