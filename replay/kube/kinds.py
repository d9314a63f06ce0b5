"""The Kubernetes kinds that a trace carries, and their objects in records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from replay.errors import TraceError
from replay.kube import device_versions
from reprieve.kube.v1beta1 import meta_pb2, object_pb2
from services.kube.workloads import WORKLOAD_KINDS
from services.rpc.errors import FieldError
from services.rpc.kube import json_codec
from services.rpc.kube.codec import API_VERSIONS

_Raw = Mapping[str, Any]
_RECORDED = (
    *("Node", "Pod", "Namespace", "PriorityClass", "PodDisruptionBudget"),
    *("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"),
    *("Job", "CronJob", "Service", "PersistentVolume", "PersistentVolumeClaim", "StorageClass"),
    *("CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment"),
    *("ResourceQuota", "LimitRange", "RuntimeClass"),
    *device_versions.KINDS,
)
_FIELDS: dict[str, tuple[str, type[Message]]] = {
    field.message_type.name: (field.name, GetMessageClass(field.message_type))
    for field in object_pb2.KubernetesObject.DESCRIPTOR.fields
    if field.message_type is not None
}
KINDS = {field: kind for kind, (field, _) in _FIELDS.items()}
"""Kinds by their field of KubernetesObject."""
CLUSTER_SCOPED = frozenset(
    {
        *("Node", "Namespace", "PersistentVolume", "PriorityClass", "StorageClass", "CSINode"),
        *("VolumeAttachment", "CSIDriver", "RuntimeClass", "ResourceSlice", "DeviceClass"),
    }
)
WORKLOADS = frozenset({"Pod", *WORKLOAD_KINDS.values()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource of the API, such as pods; `api_version` is that of its objects.

    `namespace` is the only one that is meant, "" for all.
    """

    name: str
    kind: str
    api_version: str
    namespace: str = ""

    @property
    def group(self) -> str:
        """Return the API group, "" for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def path(self) -> str:
        """Return the path of the resource, in its namespace or in all."""
        place = f"namespaces/{self.namespace}/" if self.namespace else ""
        return f"/{'apis' if self.group else 'api'}/{self.api_version}/{place}{self.name}"


def _plural(kind: str) -> str:
    """Return the name of a kind's resource.

    Source: kubernetes v1.34 apimachinery pkg/api/meta/restmapper.go, UnsafeGuessKindToResource.
    """
    name = kind.lower()
    if name.endswith("s"):
        return f"{name}es"
    return f"{name.removesuffix('y')}ies" if name.endswith("y") else f"{name}s"


RESOURCES = tuple(
    Resource(name=_plural(kind), kind=kind, api_version=API_VERSIONS[kind]) for kind in _RECORDED
)
"""The resources that a trace carries, in the order in which a recorder lists them."""
NODES, PODS = RESOURCES[:2]
KINDS_BY_RESOURCE = {resource.name: resource.kind for resource in RESOURCES}
_FORMER = frozenset(("extensions", kind) for kind in ("ReplicaSet", "Deployment", "DaemonSet"))
_CARRIED = _FORMER | {(resource.group, resource.kind) for resource in RESOURCES}


def is_carried(raw: _Raw) -> bool:
    """Return whether a trace carries objects of this kind and API group."""
    version, kind = raw.get("apiVersion"), raw.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return False
    group = version.rpartition("/")[0]
    return (group, kind) in _CARRIED


def to_object(raw: _Raw) -> object_pb2.KubernetesObject:
    """Return the object of Kubernetes JSON. Raises FieldError for an invalid field.

    Each version of a kind's group is read as the one that a trace carries. In policy/v1beta1 an
    empty selector matches nothing; in policy/v1 an absent selector does.
    Source: kubernetes v1.34 api/policy/v1beta1/types.go, PodDisruptionBudgetSpec.
    """
    kind = raw.get("kind")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise FieldError("kind", "is not one that a trace carries")
    name, message = _FIELDS[kind]
    if kind in device_versions.KINDS:
        raw = device_versions.to_v1(raw)
    content: dict[str, Any] = {name: json_codec.parse(message, raw)}
    carried = object_pb2.KubernetesObject(**content)
    if raw.get("apiVersion") == "policy/v1beta1":
        spec = carried.pod_disruption_budget.spec
        if not (spec.selector.match_labels or spec.selector.match_expressions):
            spec.ClearField("selector")
    return carried


def read_object(where: str, raw: _Raw) -> object_pb2.KubernetesObject:
    """Return the object of Kubernetes JSON. Raises TraceError for an invalid field."""
    try:
        return to_object(raw)
    except FieldError as error:
        raise TraceError(where, f"{raw['kind']}: {error}") from error


def metadata(carried: object_pb2.KubernetesObject) -> meta_pb2.ObjectMeta:
    """Return the object's metadata, which may be changed."""
    result: meta_pb2.ObjectMeta = getattr(carried, carried.WhichOneof("object") or "").metadata
    return result


def namespace_in_force(kind: str, namespace: object) -> str:
    """Return where an object of `kind` is created that names `namespace`, "" or None for none.

    Source: kubernetes v1.34 apiserver pkg/registry/rest/meta.go,
    EnsureObjectNamespaceMatchesRequestNamespace.
    """
    return "" if kind in CLUSTER_SCOPED else str(namespace or "default")


def list_items(raw: _Raw) -> list[_Raw] | None:
    """Return the items of a List, each with apiVersion and kind; None for other objects."""
    kind, items = raw.get("kind"), raw.get("items")
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(items, list):
        return None
    if kind == "List":
        return [item for item in items if isinstance(item, dict)]
    common = {"apiVersion": raw.get("apiVersion"), "kind": kind.removesuffix("List")}
    return [{**common, **item} for item in items if isinstance(item, dict)]
