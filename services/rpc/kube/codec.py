"""Decodes Kubernetes messages to the cores' values; also JSON, patches, and digests of pods.

Fields that a core reads are checked here; a FieldError has the field's path. An absent field gets
the default of an API server, or of upstream's scheduler. services/rpc/kube/messages.py encodes.
JSON objects get the apiVersion and the kind that belong to the message's type.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from google.protobuf.message import Message

from reprieve.kube.v1beta1 import (
    meta_pb2,
    namespace_pb2,
    node_pb2,
    pod_pb2,
    policy_pb2,
    scheduling_pb2,
    service_pb2,
    workloads_pb2,
)
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.scheduler.v1beta1.scheduler_pb2 import PodPatch
from services.kube.node import ContainerImage, Node
from services.kube.pod import Pod, PodPhase, PriorityClass
from services.kube.selector import LabelSelector, Operator, Requirement
from services.kube.workloads import (
    Controller,
    ControllerKind,
    Namespace,
    PodDisruptionBudget,
    Service,
)
from services.rpc.kube import fields, json_codec
from services.rpc.kube.fields import set_time
from services.rpc.kube.spec import PodSpecInterner

_DIGEST_BYTES = 16


def pod_from_message(message: pod_pb2.Pod, interner: PodSpecInterner, *, field: str = "pod") -> Pod:
    """Return the pod; pods of equal specs share one PodSpec.

    `field` is the message's own path in the request. Raises FieldError.
    """
    meta, status = message.metadata, message.status
    phase = status.phase
    return Pod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        spec=interner.spec(message.spec, field=f"{field}.spec"),
        labels=fields.strings(meta.labels),
        annotations=fields.strings(meta.annotations),
        owners=fields.owners(meta.owner_references),
        node_name=message.spec.node_name,
        nominated_node_name=status.nominated_node_name,
        phase=(
            fields.choice(PodPhase, phase, f"{field}.status.phase") if phase else PodPhase.PENDING
        ),
        conditions=fields.conditions(status.conditions),
        container_resources=fields.container_resources(status, f"{field}.status"),
        pod_resources=fields.pod_resources(status, f"{field}.status"),
        claim_names=fields.claim_names(status),
        creation_ns=fields.time_ns(meta.creation_timestamp),
        start_time_ns=fields.optional_time_ns(status, "start_time"),
        deletion_ns=fields.optional_time_ns(meta, "deletion_timestamp"),
        resource_version=meta.resource_version,
    )


def node_from_message(message: node_pb2.Node, *, field: str = "node") -> Node:
    """Return the node; an absent allocatable is the capacity. Raises FieldError.

    Source: kubernetes v1.34 pkg/apis/core/v1/defaults.go, SetDefaults_NodeStatus.
    """
    meta, status = message.metadata, message.status
    capacity = fields.resources(status.capacity, f"{field}.status.capacity")
    allocatable = fields.resources(status.allocatable, f"{field}.status.allocatable")
    return Node(
        name=meta.name,
        uid=meta.uid,
        labels=fields.strings(meta.labels),
        annotations=fields.strings(meta.annotations),
        allocatable=allocatable or capacity,
        capacity=capacity,
        taints=fields.taints(message.spec.taints, f"{field}.spec.taints"),
        unschedulable=message.spec.unschedulable,
        images=tuple(
            ContainerImage(names=tuple(image.names), size_bytes=image.size_bytes)
            for image in status.images
        ),
        conditions=fields.conditions(status.conditions),
        declared_features=tuple(status.declared_features),
        resource_version=meta.resource_version,
    )


def budget_from_message(
    message: policy_pb2.PodDisruptionBudget, *, field: str = "pod_disruption_budget"
) -> PodDisruptionBudget:
    """Return the budget; an absent selector is None. Raises FieldError."""
    meta, spec, status = message.metadata, message.spec, message.status
    return PodDisruptionBudget(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        selector=fields.optional_selector(spec, "selector", f"{field}.spec.selector"),
        min_available=fields.optional_part(
            spec, "min_available", fields.int_or_percent, f"{field}.spec.minAvailable"
        ),
        max_unavailable=fields.optional_part(
            spec, "max_unavailable", fields.int_or_percent, f"{field}.spec.maxUnavailable"
        ),
        disruptions_allowed=status.disruptions_allowed,
        current_healthy=status.current_healthy,
        desired_healthy=status.desired_healthy,
        expected_pods=status.expected_pods,
        observed_generation=status.observed_generation,
        generation=meta.generation,
        disrupted_pods={
            name: fields.time_ns(granted) for name, granted in sorted(status.disrupted_pods.items())
        },
    )


def priority_class_from_message(
    message: scheduling_pb2.PriorityClass, *, field: str = "priority_class"
) -> PriorityClass:
    """Return the class; admission checks the rules for classes. Raises FieldError."""
    return PriorityClass(
        name=message.metadata.name,
        value=message.value,
        global_default=message.global_default,
        preemption_policy=fields.preemption_policy(
            message.preemption_policy, f"{field}.preemptionPolicy"
        ),
        description=message.description,
    )


def namespace_from_message(message: namespace_pb2.Namespace, _field: str = "") -> Namespace:
    """Return the namespace; every message is valid."""
    return Namespace(name=message.metadata.name, labels=fields.strings(message.metadata.labels))


def service_from_message(message: service_pb2.Service, _field: str = "") -> Service:
    """Return the service; every message is valid."""
    return Service(
        namespace=message.metadata.namespace,
        name=message.metadata.name,
        selector=fields.strings(message.spec.selector),
    )


def replication_controller_from_message(
    message: workloads_pb2.ReplicationController, _field: str = ""
) -> Controller:
    """Return the controller, its map of labels as a LabelSelector."""
    requirements = tuple(
        Requirement(key=key, operator=Operator.IN, values=(text,))
        for key, text in sorted(message.spec.selector.items())
    )
    return Controller(
        kind=ControllerKind.REPLICATION_CONTROLLER,
        namespace=message.metadata.namespace,
        name=message.metadata.name,
        selector=LabelSelector(requirements=requirements),
    )


def controller_from_message(
    message: workloads_pb2.ReplicaSet | workloads_pb2.StatefulSet, field: str = "controller"
) -> Controller:
    """Return the controller; an absent selector is None. Raises FieldError."""
    spec = message.spec
    is_set = isinstance(message, workloads_pb2.ReplicaSet)
    return Controller(
        kind=ControllerKind.REPLICA_SET if is_set else ControllerKind.STATEFUL_SET,
        namespace=message.metadata.namespace,
        name=message.metadata.name,
        selector=fields.optional_selector(spec, "selector", f"{field}.spec.selector"),
    )


def spec_digest(message: pod_pb2.Pod) -> bytes:
    """Return a 16-byte digest of all fields that may make a pod schedulable.

    These are all fields except status, metadata.resourceVersion and metadata.generation (and
    managedFields, which messages do not have).
    Source: kubernetes v1.20 pkg/scheduler/internal/queue/scheduling_queue.go, isPodUpdated.
    """
    meta = message.metadata
    if meta.resource_version or meta.generation:
        meta = meta_pb2.ObjectMeta()
        meta.CopyFrom(message.metadata)
        meta.resource_version = ""
        meta.generation = 0
    named = meta.SerializeToString(deterministic=True)
    spec = message.spec.SerializeToString(deterministic=True)
    return blake2b(len(named).to_bytes(8, "big") + named + spec, digest_size=_DIGEST_BYTES).digest()


API_VERSIONS: Mapping[str, str] = {
    **dict.fromkeys(("Pod", "Node", "Namespace", "Service", "ReplicationController"), "v1"),
    **dict.fromkeys(("PersistentVolume", "PersistentVolumeClaim"), "v1"),
    **dict.fromkeys(("ResourceQuota", "LimitRange"), "v1"),
    **dict.fromkeys(("ReplicaSet", "Deployment", "StatefulSet", "DaemonSet"), "apps/v1"),
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
    "PodDisruptionBudget": "policy/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "RuntimeClass": "node.k8s.io/v1",
    **dict.fromkeys(("StorageClass", "CSINode", "VolumeAttachment"), "storage.k8s.io/v1"),
    **dict.fromkeys(("CSIDriver", "CSIStorageCapacity"), "storage.k8s.io/v1"),
    **dict.fromkeys(("ResourceSlice", "DeviceClass"), "resource.k8s.io/v1"),
    **dict.fromkeys(("ResourceClaim", "ResourceClaimTemplate"), "resource.k8s.io/v1"),
}
"""The apiVersion of each kind."""


def apply_patch(pod: pod_pb2.Pod, patch: PodPatch) -> None:
    """Apply a patch to a pod in place; fields that the patch does not set stay unchanged."""
    if patch.resource_version:
        pod.metadata.resource_version = patch.resource_version
    if patch.node_name:
        pod.spec.node_name = patch.node_name
    if patch.HasField("status"):
        pod.status.CopyFrom(patch.status)
    if patch.HasField("deletion_time_ns"):
        set_time(pod.metadata.deletion_timestamp, patch.deletion_time_ns)


def object_to_json(message: Message) -> dict[str, Any]:
    """Return an object, or the one in a KubernetesObject, as JSON, with apiVersion and kind first.

    Raises ValueError for an empty KubernetesObject, and for a message that is not an object.
    """
    if isinstance(message, KubernetesObject):
        case = message.WhichOneof("object")
        if case is None:
            raise ValueError("a KubernetesObject holds no object")
        message = getattr(message, case)
    kind = message.DESCRIPTOR.name
    if kind not in API_VERSIONS:
        raise ValueError(f"{kind} is not a kind of object")
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, **json_codec.to_json(message)}
