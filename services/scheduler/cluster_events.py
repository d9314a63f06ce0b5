"""A round's events, decoded and checked before anything is changed.

Objects are kept as messages beside their values, because the queue receives pods as they came.
Types of which every pod makes several are NamedTuples, which are made faster than dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from reprieve.kube.v1beta1 import meta_pb2, object_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.framework.snapshot.catalog import CatalogObject
from services.kube.node import Node
from services.kube.pod import Condition, ContainerResources, Pod, PodPhase
from services.kube.workloads import PodDisruptionBudget
from services.rpc.errors import FieldError
from services.rpc.kube import codec, devices, fields, storage
from services.rpc.kube.codec import budget_from_message, node_from_message, pod_from_message
from services.rpc.kube.spec import PodSpecInterner
from services.rpc.required import PROBLEM, missing


class PutPod(NamedTuple):
    """A pod came or changed as a whole."""

    pod: Pod
    message: pod_pb2.Pod


class PodStatus(NamedTuple):
    """The fields of a pod's status that the scheduler reads."""

    phase: PodPhase
    conditions: tuple[Condition, ...]
    nominated_node_name: str
    start_time_ns: int | None
    container_resources: tuple[ContainerResources, ...] = ()
    pod_resources: ContainerResources | None = None
    claim_names: tuple[tuple[str, str | None], ...] = ()


class PatchPod(NamedTuple):
    """A part of a pod changed; absent parts are None or unset in `patch`."""

    patch: scheduler_pb2.PodPatch
    status: PodStatus | None

    def applied_to(self, pod: Pod) -> Pod:
        """Return the pod with the changed parts."""
        patch, status = self.patch, self.status
        return Pod(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            spec=pod.spec,
            labels=pod.labels,
            annotations=pod.annotations,
            owners=pod.owners,
            node_name=patch.node_name or pod.node_name,
            nominated_node_name=(status.nominated_node_name if status else pod.nominated_node_name),
            phase=status.phase if status else pod.phase,
            conditions=status.conditions if status else pod.conditions,
            container_resources=status.container_resources if status else pod.container_resources,
            pod_resources=status.pod_resources if status else pod.pod_resources,
            claim_names=status.claim_names if status else pod.claim_names,
            creation_ns=pod.creation_ns,
            start_time_ns=status.start_time_ns if status else pod.start_time_ns,
            deletion_ns=patch.deletion_time_ns
            if patch.HasField("deletion_time_ns")
            else pod.deletion_ns,
            resource_version=patch.resource_version or pod.resource_version,
        )


@dataclass(frozen=True, slots=True)
class PutNode:
    """A node came or changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class PutBudget:
    """A disruption budget came or changed."""

    budget: PodDisruptionBudget


@dataclass(frozen=True, slots=True)
class PutObject:
    """An object of another kind that plugins read came or changed; `message` is as it came."""

    value: CatalogObject
    message: object_pb2.KubernetesObject


@dataclass(frozen=True, slots=True)
class RemoveObject:
    """An object went."""

    ref: meta_pb2.ObjectReference


@dataclass(frozen=True, slots=True)
class Tick:
    """The queue's clock."""


@dataclass(frozen=True, slots=True)
class UnreadObject:
    """An object that no plugin reads yet."""


class ConfirmBinding(NamedTuple):
    """A patch that confirms the binding of a pod to whatever node the scheduler returned."""

    patch: scheduler_pb2.PodPatch
    status: PodStatus | None

    def to(self, node_name: str) -> PatchPod:
        """Return the patch to that node; the request keeps its own, for it may come again."""
        patch = scheduler_pb2.PodPatch()
        patch.CopyFrom(self.patch)
        patch.node_name = node_name
        return PatchPod(patch, self.status)


ClusterChange = (
    PutPod
    | PatchPod
    | ConfirmBinding
    | PutNode
    | PutBudget
    | PutObject
    | RemoveObject
    | Tick
    | UnreadObject
)


class TimedChange(NamedTuple):
    """A change at its time, ns since the Unix epoch."""

    at_ns: int
    change: ClusterChange


STATUSES_MAX = 4096


class Decoder:
    """Decodes the events of one session; equal specs and equal statuses share one value."""

    def __init__(self) -> None:
        self.interner = PodSpecInterner()
        self._statuses: dict[bytes, PodStatus] = {}

    def decode(self, event: scheduler_pb2.Event) -> ClusterChange:
        """Return the change of an event. Raises FieldError with the event's field."""
        match event.WhichOneof("event"):
            case "patch":
                return self._patch(event.patch)
            case "add":
                return decode_object(event.add, self.interner, "add")
            case "update":
                return decode_object(event.update, self.interner, "update")
            case "remove":
                if not event.remove.kind:
                    raise FieldError("remove.kind", 'is required, such as "Pod"')
                if not (event.remove.name or (event.remove.uid and event.remove.kind == "Pod")):
                    raise FieldError("remove.name", "is required, or a pod's uid")
                return RemoveObject(event.remove)
            case "tick":
                return Tick()
            case _:
                raise FieldError("event", "is required")

    def _patch(self, patch: scheduler_pb2.PodPatch) -> PatchPod | ConfirmBinding:
        if not patch.pod.uid:
            raise FieldError(f"patch.{missing(patch) or 'pod.uid'}", PROBLEM)
        status = self._status(patch.status) if patch.HasField("status") else None
        if not patch.node_name:
            match patch.WhichOneof("binding"):
                case "node_name":
                    problem = "is empty: a patch takes no binding back; leave it out"
                    raise FieldError("patch.node_name", problem)
                case "confirms_binding":
                    return ConfirmBinding(patch, status)
        return PatchPod(patch, status)

    def _status(self, message: pod_pb2.PodStatus) -> PodStatus:
        """Return a status' value; pods that start at one moment share all but their claims."""
        claim_names = fields.claim_names(message)
        if claim_names:
            shared = pod_pb2.PodStatus()
            shared.CopyFrom(message)
            shared.ClearField("resource_claim_statuses")
            return self._status(shared)._replace(claim_names=claim_names)
        key = message.SerializeToString()
        status = self._statuses.get(key)
        if status is None:
            if len(self._statuses) >= STATUSES_MAX:
                self._statuses.clear()
            status = self._statuses[key] = _status_value(message, "patch.status")
        return status


def _status_value(message: pod_pb2.PodStatus, field: str) -> PodStatus:
    phase = PodPhase.PENDING
    if message.phase:
        phase = fields.choice(PodPhase, message.phase, f"{field}.phase")
    start_ns = fields.optional_time_ns(message, "start_time")
    conditions = fields.conditions(message.conditions)
    container_resources = fields.container_resources(message, field)
    return PodStatus(
        *(phase, conditions, message.nominated_node_name, start_ns, container_resources),
        fields.pod_resources(message, field),
    )


def decode_object(
    message: object_pb2.KubernetesObject, interner: PodSpecInterner, field: str
) -> ClusterChange:
    """Return the change that puts an Object. Raises FieldError."""
    kind = message.WhichOneof("object")
    if kind is None:
        raise FieldError(f"{field}.object", "is required")
    content = getattr(message, kind)
    if not content.metadata.name:
        raise FieldError(f"{field}.{kind}.metadata.name", "is required")
    match kind:
        case "pod":
            if not content.metadata.uid:
                raise FieldError(f"{field}.pod.metadata.uid", "is required")
            kept = pod_pb2.Pod()
            kept.CopyFrom(content)
            return PutPod(pod_from_message(kept, interner, field=f"{field}.pod"), kept)
        case "node":
            return PutNode(node_from_message(content, field=f"{field}.node"))
        case "pod_disruption_budget":
            path = f"{field}.pod_disruption_budget"
            return PutBudget(budget_from_message(content, field=path))
        case _:
            return _other(message, kind, content, f"{field}.{kind}")


def _other(
    message: object_pb2.KubernetesObject, kind: str, content: Any, field: str
) -> ClusterChange:
    read = _READERS.get(kind)
    if read is None:
        return UnreadObject()
    kept = object_pb2.KubernetesObject()
    kept.CopyFrom(message)
    return PutObject(read(content, field), kept)


_READERS: Mapping[str, Callable[[Any, str], CatalogObject]] = {
    "namespace": codec.namespace_from_message,
    "service": codec.service_from_message,
    "replication_controller": codec.replication_controller_from_message,
    "replica_set": codec.controller_from_message,
    "stateful_set": codec.controller_from_message,
    "persistent_volume": storage.persistent_volume_from_message,
    "persistent_volume_claim": storage.claim_from_message,
    "storage_class": storage.storage_class_from_message,
    "csi_node": storage.csi_node_from_message,
    "volume_attachment": storage.volume_attachment_from_message,
    "csi_driver": storage.csi_driver_from_message,
    "csi_storage_capacity": storage.csi_storage_capacity_from_message,
    "resource_slice": devices.resource_slice_from_message,
    "device_class": devices.device_class_from_message,
    "resource_claim": devices.resource_claim_from_message,
}
