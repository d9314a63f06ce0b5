"""A mirror of the queue's nominations: which pending pods wait for room on which node.

The queue is the record; the scheduler copies it, because the filters count nominated pods.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/nominator.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from services.kube.pod import Pod


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
        """Return the nominated pods that `pod` has to leave room for on a node.

        These are the others of equal or higher priority.
        Source: kubernetes v1.34 framework/runtime/framework.go, addGENominatedPods.
        """
        held = self._by_node.get(node_name)
        if held is None:
            return ()
        return tuple(
            each for each in held.values() if each.priority >= pod.priority and each.uid != pod.uid
        )

    def __len__(self) -> int:
        return len(self._node_of)
