"""The objects that extenders are sent, as close to how they came as is known."""

from __future__ import annotations

from collections.abc import Mapping

from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.node import Node
from services.kube.pod import Pod
from services.rpc.kube_messages import node_to_message, pod_to_message


class Sources:
    """Messages of pods and nodes by UID and by name; what is not known is made of the value.

    A session hands over the pods' messages that it keeps (`pods`), and the nodes' as they come.
    """

    def __init__(self) -> None:
        self.pods: Mapping[str, pod_pb2.Pod] = {}
        self._nodes: dict[str, node_pb2.Node] = {}

    def take(self, round_: scheduler_pb2.Round) -> None:
        """Keep the nodes that a round brings."""
        for event in round_.events:
            kind = event.WhichOneof("event")
            if kind == "remove" and event.remove.kind == "Node":
                self._nodes.pop(event.remove.name, None)
            elif kind in {"add", "update"}:
                put = event.add if kind == "add" else event.update
                if put.HasField("node"):
                    node = node_pb2.Node()
                    node.CopyFrom(put.node)
                    self._nodes[node.metadata.name] = node

    def pod(self, pod: Pod) -> pod_pb2.Pod:
        """Return a pod's message."""
        return self.pods.get(pod.uid) or pod_to_message(pod)

    def node(self, node: Node) -> node_pb2.Node:
        """Return a node's message."""
        return self._nodes.get(node.name) or node_to_message(node)
