"""Which Kubernetes kinds a trace carries, and how they stand in a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from reprieve.kube.v1alpha1 import meta_pb2, object_pb2
from services.rpc import kube_json

_Raw = Mapping[str, Any]
_GROUPS = {
    "": "Pod Node Namespace Service ReplicationController PersistentVolume PersistentVolumeClaim",
    "apps": "ReplicaSet Deployment StatefulSet DaemonSet",
    "extensions": "ReplicaSet Deployment DaemonSet",
    "batch": "Job CronJob",
    "policy": "PodDisruptionBudget",
    "scheduling.k8s.io": "PriorityClass",
    "storage.k8s.io": "StorageClass CSINode VolumeAttachment CSIDriver CSIStorageCapacity",
}
_CARRIED = frozenset((group, kind) for group, kinds in _GROUPS.items() for kind in kinds.split())
_FIELDS: dict[str, tuple[str, type[Message]]] = {
    each.message_type.name: (each.name, GetMessageClass(each.message_type))
    for each in object_pb2.Object.DESCRIPTOR.fields
    if each.message_type is not None
}
KINDS = {field: kind for kind, (field, _) in _FIELDS.items()}
"""Kinds by the field of an Object that holds them."""
_CLUSTER_SCOPED = (
    "Node Namespace PersistentVolume PriorityClass StorageClass CSINode VolumeAttachment CSIDriver"
)
_WORKLOADS = "Pod ReplicationController ReplicaSet Deployment StatefulSet DaemonSet Job CronJob"
CLUSTER_SCOPED = frozenset(_CLUSTER_SCOPED.split())
WORKLOADS = frozenset(_WORKLOADS.split())
RESOURCES = {
    "pods": "Pod",
    "nodes": "Node",
    "deployments": "Deployment",
    "replicasets": "ReplicaSet",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "priorityclasses": "PriorityClass",
    "namespaces": "Namespace",
    "services": "Service",
    "replicationcontrollers": "ReplicationController",
    "statefulsets": "StatefulSet",
    "daemonsets": "DaemonSet",
    "jobs": "Job",
    "cronjobs": "CronJob",
    "persistentvolumes": "PersistentVolume",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "storageclasses": "StorageClass",
    "csinodes": "CSINode",
    "volumeattachments": "VolumeAttachment",
    "csidrivers": "CSIDriver",
    "csistoragecapacities": "CSIStorageCapacity",
}
"""Kinds by the name of their resource, as requests name them."""


def is_carried(raw: _Raw) -> bool:
    """Tell whether a trace carries objects of this kind and API group."""
    version, kind = raw.get("apiVersion"), raw.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return False
    group = version.rpartition("/")[0]
    return (group, kind) in _CARRIED


def to_object(raw: _Raw) -> object_pb2.Object:
    """Return the object that Kubernetes JSON describes. Raises FieldError where it is wrong."""
    name, message = _FIELDS[raw["kind"]]
    content: dict[str, Any] = {name: kube_json.parse(message, raw)}
    return object_pb2.Object(**content)


def metadata(carried: object_pb2.Object) -> meta_pb2.ObjectMeta:
    """Return the object's metadata, to be read or changed."""
    result: meta_pb2.ObjectMeta = getattr(carried, carried.WhichOneof("object") or "").metadata
    return result


def listed(raw: _Raw) -> list[_Raw] | None:
    """Return the items of a list, each with its kind and version; None for anything else."""
    kind, items = raw.get("kind"), raw.get("items")
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(items, list):
        return None
    if kind == "List":
        return [each for each in items if isinstance(each, dict)]
    common = {"apiVersion": raw.get("apiVersion"), "kind": kind.removesuffix("List")}
    return [{**common, **each} for each in items if isinstance(each, dict)]
