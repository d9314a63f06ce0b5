"""The cluster of a run, rebuilt from its history: the one reducer from rounds to state.

`ClusterObjects` holds the API objects as watches of the replay's API server showed them.
`ClusterState` also keeps the pods without a node, and the resources that bound pods request on each
node. Both take the events of the rounds in order and return the change that an event makes. `get`,
the tables, the figures of a run and `explain` read a history through these classes.
replay.results.summary.figures.DecisionCounts counts decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from google.protobuf.message import Message

from reprieve.kube.v1beta1 import node_pb2, object_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.node import Node
from services.kube.pod import TERMINAL_PHASES, PodSpec
from services.kube.requests import PODS, pod_requests
from services.rpc.kube.codec import apply_patch, node_from_message
from services.rpc.kube.spec import PodSpecInterner

ObjectKey = tuple[str, str, str]
"""Kind, namespace and name of an object."""


class ChangeType(Enum):
    """The kind of a change: the event types of a Kubernetes watch."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object that changed at `at_ns` (ns since the Unix epoch).

    `message` is the object after the change; of a deleted object, the last state. The next change
    of the same object may modify `message` in place.
    """

    at_ns: int
    type: ChangeType
    key: ObjectKey
    message: Message


class ClusterObjects:
    """The API objects after the last event, by kind, namespace and name."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, Message] = {}
        self._pod_keys: dict[str, ObjectKey] = {}

    def take(self, event: scheduler_pb2.Event) -> ObjectChange | None:
        """Apply an event and return the change that it makes.

        Returns None for a tick, and for a patch or a removal of an unknown object.
        """
        match event.WhichOneof("event"):
            case "add":
                return self._put(event.time_ns, event.add)
            case "update":
                return self._put(event.time_ns, event.update)
            case "patch":
                return self._patch(event.time_ns, event.patch)
            case "remove":
                reference = event.remove
                key = (reference.kind, reference.namespace, reference.name)
                message = self.objects.pop(key, None)
                self._pod_keys.pop(reference.uid, None)
                if message is not None:
                    return ObjectChange(event.time_ns, ChangeType.DELETED, key, message)
        return None

    def _put(self, at_ns: int, holder: object_pb2.KubernetesObject) -> ObjectChange | None:
        case = holder.WhichOneof("object")
        if case is None:
            return None
        message = getattr(holder, case)
        meta = message.metadata
        key = (message.DESCRIPTOR.name, meta.namespace, meta.name)
        change = ChangeType.MODIFIED if key in self.objects else ChangeType.ADDED
        self.objects[key] = message
        if case == "pod":
            self._pod_keys[meta.uid] = key
        return ObjectChange(at_ns, change, key, message)

    def _patch(self, at_ns: int, patch: scheduler_pb2.PodPatch) -> ObjectChange | None:
        key = self._pod_keys.get(patch.pod.uid)
        if key is None:
            return None
        pod = self.objects[key]
        assert isinstance(pod, pod_pb2.Pod)  # noqa: S101 - a pod's key leads to a pod
        apply_patch(pod, patch)
        return ObjectChange(at_ns, ChangeType.MODIFIED, key, pod)


@dataclass(slots=True, kw_only=True)
class ActivePod:
    """A pod whose phase is not terminal.

    requests: without zeros, and with 1 of the resource `pods`. node_name: "" while the pod has no
    node; it then waits for one unless it has a scheduling gate.
    """

    spec: PodSpec
    requests: Mapping[str, int]
    node_name: str = ""


@dataclass(slots=True, kw_only=True)
class NodeUse:
    """A node and the sum of its active pods' requests, by resource."""

    node: Node
    requested: dict[str, int] = field(default_factory=dict)

    def free(self, resource: str) -> int:
        """Return allocatable minus requested; 0 if pods request more than the node has."""
        have = self.node.allocatable.get(resource, 0)
        return max(0, have - self.requested.get(resource, 0))


class ClusterState:
    """Pods by UID and nodes by name, after the last event.

    pods: active pods. waiting: active pods that have neither a node nor a scheduling gate.
    changed_nodes: nodes whose use or allocatable changed; the caller clears it.
    """

    def __init__(self) -> None:
        self.pods: dict[str, ActivePod] = {}
        self.waiting: dict[str, ActivePod] = {}
        self.nodes: dict[str, NodeUse] = {}
        self.changed_nodes: dict[str, None] = {}
        self._cluster = ClusterObjects()
        self._interner = PodSpecInterner()

    def take(self, event: scheduler_pb2.Event) -> ObjectChange | None:
        """Apply an event and return what it changed, as ClusterObjects does."""
        change = self._cluster.take(event)
        if change is None:
            return None
        message, removed = change.message, change.type is ChangeType.DELETED
        if isinstance(message, pod_pb2.Pod):
            if removed:
                self._drop_pod(message.metadata.uid)
            elif event.HasField("patch"):
                self._patch_pod(message)
            else:
                self._put_pod(message, is_new=change.type is ChangeType.ADDED)
        elif isinstance(message, node_pb2.Node):
            if removed:
                self.nodes.pop(message.metadata.name, None)
                self.changed_nodes.pop(message.metadata.name, None)
            else:
                self._put_node(node_from_message(message))
        return change

    def active_pod(self, message: pod_pb2.Pod) -> ActivePod:
        """Return a pod's spec and requests, without a node; equal specs share one value."""
        spec = self._interner.spec(message.spec)
        requests = {name: amount for name, amount in pod_requests(spec).items() if amount}
        return ActivePod(spec=spec, requests=requests | {PODS: 1})

    def _put_pod(self, message: pod_pb2.Pod, *, is_new: bool) -> None:
        uid = message.metadata.uid
        if uid not in self.pods and not is_new:
            return
        self._drop_pod(uid)
        if message.status.phase in TERMINAL_PHASES:
            return
        pod = self.pods[uid] = self.active_pod(message)
        if message.spec.node_name:
            self._place(pod, message.spec.node_name)
        elif not pod.spec.scheduling_gates:
            self.waiting[uid] = pod

    def _patch_pod(self, message: pod_pb2.Pod) -> None:
        """Apply a patch of a pod; nodeName is the only field of the spec that a patch changes."""
        uid, node_name = message.metadata.uid, message.spec.node_name
        pod = self.pods.get(uid)
        if pod is None:
            return
        if node_name and not pod.node_name:
            self.waiting.pop(uid, None)
            self._place(pod, node_name)
        if message.status.phase in TERMINAL_PHASES:
            self._drop_pod(uid)

    def _place(self, pod: ActivePod, node_name: str) -> None:
        pod.node_name = node_name
        self._account(pod, 1)

    def _drop_pod(self, uid: str) -> None:
        self.waiting.pop(uid, None)
        pod = self.pods.pop(uid, None)
        if pod is not None and pod.node_name:
            self._account(pod, -1)

    def _account(self, pod: ActivePod, sign: int) -> None:
        use = self.nodes.get(pod.node_name)
        if use is None:
            return
        for name, amount in pod.requests.items():
            use.requested[name] = use.requested.get(name, 0) + sign * amount
        self.changed_nodes[pod.node_name] = None

    def _put_node(self, node: Node) -> None:
        use = self.nodes.get(node.name)
        if use is not None:
            if use.node.allocatable != node.allocatable:
                self.changed_nodes[node.name] = None
            use.node = node
            return
        self.nodes[node.name] = NodeUse(node=node)
        self.changed_nodes[node.name] = None
        for pod in self.pods.values():
            if pod.node_name == node.name:
                self._account(pod, 1)
