"""Our reader of Kubernetes JSON equals protobuf's, and our writers are its inverses.

Two kinds differ: an IntOrString is a bare number or string in Kubernetes, which protobuf's JSON
names, and a RawExtension is any value there, which protobuf's JSON has as a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprieve.kube.v1beta1.device_pb2 import RawExtension
from reprieve.kube.v1beta1.meta_pb2 import IntOrString
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1.trace_pb2 import NODE_ACTION_TYPE_DRAIN, Decision, NodeAction
from services.rpc.kube.json_codec import parse, to_json, to_proto3_json

_KINDS = [
    type(getattr(KubernetesObject(), field.name)) for field in KubernetesObject.DESCRIPTOR.fields
]
_KINDS.append(Decision)
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_STRING: _TEXTS,
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
}
_WELL_KNOWN: dict[str, st.SearchStrategy[Any]] = {
    "google.protobuf.Timestamp": st.datetimes(
        min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)
    ).map(lambda moment: moment.isoformat().replace("+00:00", "Z")),
    IntOrString.DESCRIPTOR.full_name: st.integers(-(2**31), 2**31 - 1) | _TEXTS,
    RawExtension.DESCRIPTOR.full_name: st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | _TEXTS,
        lambda one: st.lists(one, max_size=2) | st.dictionaries(_TEXTS, one, max_size=2),
        max_leaves=4,
    ).filter(lambda value: value is not None),  # a field that is null is absent
}


@cache
def _objects(descriptor: Any) -> st.SearchStrategy[Any]:
    known = _WELL_KNOWN.get(descriptor.full_name)
    if known is not None:
        return known
    plain = [field for field in descriptor.fields if not _is_choice(field)]
    fields = {field.json_name: _field(field) for field in plain}
    unknown = st.just([{"a": 1}])
    parts = [st.fixed_dictionaries({}, optional={**fields, "x-unknown": unknown})]
    for oneof in descriptor.oneofs:
        if _is_choice(oneof.fields[0]):
            members = [st.fixed_dictionaries({f.json_name: _field(f)}) for f in oneof.fields]
            parts.append(st.one_of(st.just({}), *members))
    return st.tuples(*parts).map(lambda drawn: {k: v for part in drawn for k, v in part.items()})


def _is_choice(field: FieldDescriptor) -> bool:
    return field.containing_oneof is not None and len(field.containing_oneof.fields) > 1


def _field(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is None:
        one = _SCALARS[field.cpp_type]
    elif field.message_type.GetOptions().map_entry:
        value = _field(field.message_type.fields_by_name["value"])
        return st.dictionaries(_TEXTS, value, max_size=2)
    else:
        one = _objects(field.message_type)
    return st.lists(one, max_size=2) if field.is_repeated else one


_PROTO3: dict[str, Callable[[Any], Any]] = {
    IntOrString.DESCRIPTOR.full_name: lambda value: {
        "intValue" if isinstance(value, int) else "stringValue": value
    },
    RawExtension.DESCRIPTOR.full_name: lambda value: {
        "raw": json.dumps(value, separators=(",", ":"))
    },
}
"""Values of Kubernetes' JSON as protobuf's own has them."""
_KUBERNETES: dict[str, Callable[[Any], Any]] = {
    IntOrString.DESCRIPTOR.full_name: lambda value: next(iter(value.values())),
    RawExtension.DESCRIPTOR.full_name: lambda value: json.loads(value["raw"]),
}
"""The other way round."""


def _converted(descriptor: Any, value: Any, forms: Mapping[str, Callable[[Any], Any]]) -> Any:
    """Return JSON of a message with the values of some kinds in another form."""
    if descriptor is None or descriptor.full_name in _WELL_KNOWN:
        convert = None if descriptor is None else forms.get(descriptor.full_name)
        return value if convert is None else convert(value)
    fields = {field.json_name: field for field in descriptor.fields}

    def part(name: str, held: Any) -> Any:
        field = fields.get(name)
        kind = None if field is None else field.message_type
        if field is None or kind is None:
            return held
        if kind.GetOptions().map_entry:
            of_value = kind.fields_by_name["value"].message_type
            return {key: _converted(of_value, one, forms) for key, one in held.items()}
        if field.is_repeated:
            return [_converted(kind, one, forms) for one in held]
        return _converted(kind, held, forms)

    return {name: part(name, held) for name, held in value.items()}


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: str(kind.DESCRIPTOR.name))
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_json_is_read_as_by_protobuf_and_survives_a_round_trip(
    kind: type[Message], data: st.DataObject
) -> None:
    """Generated from the descriptors, so that no field is forgotten."""
    mapping = data.draw(_objects(kind.DESCRIPTOR))
    message = parse(kind, mapping)
    named = _converted(kind.DESCRIPTOR, mapping, _PROTO3)
    assert message == json_format.ParseDict(named, kind(), ignore_unknown_fields=True)
    written = to_json(message)
    assert parse(kind, written) == message
    named = _converted(kind.DESCRIPTOR, written, _PROTO3)
    assert json_format.ParseDict(named, kind()) == message


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: str(kind.DESCRIPTOR.name))
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_proto3_json_is_as_protobuf_writes_it(kind: type[Message], data: st.DataObject) -> None:
    """Each line of a decision log is one; every field of every kind of entry is drawn."""
    message = parse(kind, data.draw(_objects(kind.DESCRIPTOR)))
    written = to_proto3_json(message)
    assert written == json_format.MessageToDict(message)
    assert json_format.ParseDict(written, kind()) == message
    assert parse(kind, _converted(kind.DESCRIPTOR, written, _KUBERNETES)) == message


def test_proto3_json_names_enums() -> None:
    """A number that the enum does not have stays one."""
    for action in (NODE_ACTION_TYPE_DRAIN, 77):
        message = NodeAction.FromString(bytes([2 << 3, action]))
        assert to_proto3_json(message) == json_format.MessageToDict(message)
