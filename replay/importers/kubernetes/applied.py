"""Applies a manifest to an existing object as `kubectl apply` does: a three-way merge of fields.

A field that the manifest lacks keeps its value (what an API server filled in, what an autoscaler
has set), unless the manifest that was applied last had it. A copy of the object, as `kubectl get -o
yaml` prints it, may be applied, too: its status, and what else only an API server writes, is left
out.

Source: kubectl v0.34 pkg/cmd/apply/patcher.go, buildMergePatch; apimachinery v0.34
pkg/util/strategicpatch/patch.go, CreateThreeWayMergePatch; kubernetes v1.34
pkg/registry/apps/daemonset/strategy.go, PrepareForUpdate, and the like (status).
"""

from __future__ import annotations

from typing import Any, TypeVar

import orjson
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from replay.importers.recording.strategic_merge import MERGE_KEYS
from replay.kube.kinds import KINDS, WORKLOADS, metadata, to_object
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from services.kube.quantity import is_same_amount
from services.rpc.errors import FieldError
from services.rpc.kube.json_codec import is_quantity

_M = TypeVar("_M", bound=Message)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ATOMIC = frozenset({"Timestamp", "IntOrString"})
_SERVERS = ("creation_timestamp", "deletion_timestamp")
"""Fields of metadata that only an API server writes, beside the UID."""


def applied(live: KubernetesObject, manifest: KubernetesObject) -> KubernetesObject:
    """Return an object that exists with a manifest of it applied; its identity stays."""
    made = KubernetesObject()
    made.CopyFrom(live)
    _merge(made, manifest, _last_applied(live))
    meta, former = metadata(made), metadata(live)
    meta.uid, meta.generation = former.uid, former.generation
    _restore(meta, former, *_SERVERS)
    case = live.WhichOneof("object") or ""
    if KINDS[case] in WORKLOADS:
        _restore(getattr(made, case), getattr(live, case), "status")
    return made


def is_edited_copy(live: KubernetesObject, copy: KubernetesObject) -> bool:
    """Return whether a workload is a copy of one that exists, with another spec."""
    case = live.WhichOneof("object") or ""
    if KINDS[case] not in WORKLOADS or metadata(live).uid != metadata(copy).uid:
        return False
    return bool(getattr(live, case).spec != getattr(copy, case).spec)


def _restore(made: Message, former: Message, *names: str) -> None:
    for name in names:
        made.ClearField(name)
        if former.HasField(name):
            getattr(made, name).CopyFrom(getattr(former, name))


def _last_applied(live: KubernetesObject) -> KubernetesObject:
    """Return the manifest that was applied last, without fields where that is not recorded."""
    try:
        return to_object(orjson.loads(metadata(live).annotations[_LAST_APPLIED]))
    except (FieldError, LookupError, TypeError, ValueError):
        return KubernetesObject()


def _merge(live: _M, manifest: _M, last: _M) -> None:
    now = {field.name for field, _ in manifest.ListFields()}
    for field, _ in last.ListFields():
        if field.name not in now:
            live.ClearField(field.name)
    for field, value in manifest.ListFields():
        name = field.name
        before, former = getattr(live, name), getattr(last, name)
        if field.is_repeated:
            if _is_map(field):
                _merge_map(field, before, value, former)
            else:
                key = _merge_key(field)
                elements = _merged(before, value, former, key) if key else list(value)
                live.ClearField(name)
                getattr(live, name).extend(elements)
        elif field.message_type is None:
            if not (is_quantity(field) and is_same_amount(before, value)):
                setattr(live, name, value)
        elif field.message_type.name in _ATOMIC:
            before.CopyFrom(value)
        else:
            before.SetInParent()
            _merge(before, value, former)


def _merge_key(field: FieldDescriptor) -> str:
    """Return the field by which a list's elements are merged, "" for a list that is replaced."""
    if field.message_type is None:
        return ""
    fields = field.message_type.fields_by_camelcase_name
    keys = MERGE_KEYS.get(field.camelcase_name, ())
    return next((fields[key].name for key in keys if key in fields), "")


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _merge_map(field: FieldDescriptor, live: Any, manifest: Any, last: Any) -> None:
    for key in last:
        if key not in manifest:
            live.pop(key, None)
    for key, value in manifest.items():
        if not (is_quantity(field) and key in live and is_same_amount(live[key], value)):
            live[key] = value


def _merged(live: Any, manifest: Any, last: Any, key: str) -> list[Message]:
    """Return the elements of the manifest, and then those that something else has added."""
    before = {getattr(item, key): item for item in live}
    former = {getattr(item, key): item for item in last}
    made = []
    for item in manifest:
        identity = getattr(item, key)
        element = type(item)()
        element.CopyFrom(before.pop(identity, element))
        _merge(element, item, former.get(identity, type(item)()))
        made.append(element)
    return made + [item for identity, item in before.items() if identity not in former]
