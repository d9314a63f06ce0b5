"""Converts messages to and from JSON, by tables that are built once from the descriptors.

The reader accepts the output of `kubectl get -o json` and YAML manifests: unknown fields are
skipped, null is an absent field, a quantity may be a bare number, and any other wrong type is
refused with its path. Unlike in Kubernetes, a 64-bit integer may also be a string, as in protobuf
JSON.

The writer has two forms. Kubernetes JSON has 64-bit integers as numbers and times as RFC 3339 (with
a fraction only if it is not 0), without absent fields. Protobuf JSON, as from
google.protobuf.json_format, has 64-bit integers as strings and enums by name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from threading import Lock
from typing import Any, NoReturn, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from reprieve.kube.v1beta1.device_pb2 import RawExtension
from reprieve.kube.v1beta1.meta_pb2 import IntOrString
from services.kube.time import SECOND_NS
from services.rpc.errors import FieldError
from services.rpc.kube import rfc3339
from services.rpc.kube.fields import timestamp

_M = TypeVar("_M", bound=Message)
_Convert = Callable[[object], object]
_INTEGER_TEXT = re.compile(r"-?[0-9]{1,20}")
_NAMES = {dict: "an object", list: "a list", type(None): "null"}
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (32, -(2**31), 2**31),
    FieldDescriptor.CPPTYPE_INT64: (64, -(2**63), 2**63),
    FieldDescriptor.CPPTYPE_UINT32: (32, 0, 2**32),
    FieldDescriptor.CPPTYPE_UINT64: (64, 0, 2**64),
}


# How to read a JSON field: the message's field, the type that needs no conversion, the conversion.
_Field = tuple[str, type | None, _Convert]
_Table = dict[str, _Field]


class _RefusedError(ValueError):
    """A value of a wrong type; `path` is extended from the innermost part outwards."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []


def parse(message_class: type[_M], mapping: Mapping[str, object]) -> _M:
    """Return the message that `mapping`, an object of Kubernetes JSON, describes.

    Raises FieldError for a value that has a wrong type or is out of range; the path is written as
    by kubectl, such as "spec.containers[0].ports[0].hostPort".
    """
    name = message_class.DESCRIPTOR.name
    try:
        return message_class(**_read(_table(message_class.DESCRIPTOR), mapping))
    except _RefusedError as refused:
        path = "".join(reversed(refused.path)).removeprefix(".")
        raise FieldError(path or name, refused.problem) from None
    except UnicodeEncodeError as error:
        raise FieldError(name, f"has text that is not Unicode: {error.reason}") from None


def to_json(message: Message) -> dict[str, Any]:
    """Return the message as an object of Kubernetes JSON, without unset fields."""
    written: dict[str, Any] = _writer(message.DESCRIPTOR, _KUBERNETES)(message)
    return written


def to_proto3_json(message: Message) -> dict[str, Any]:
    """Return the result of json_format.MessageToDict, for messages without bytes and floats."""
    written: dict[str, Any] = _writer(message.DESCRIPTOR, _PROTO3)(message)
    return written


def _read(table: _Table, mapping: object) -> dict[str, Any]:
    if not isinstance(mapping, dict):
        _refuse(mapping, "an object")
    result: dict[str, Any] = {}
    key = ""
    try:
        for key, value in mapping.items():
            field = table.get(key)
            if field is None or value is None:
                continue
            name, plain, convert = field
            result[name] = value if type(value) is plain else convert(value)
    except _RefusedError as refused:
        refused.path.append(f".{key}")
        raise
    return result


def _refuse(value: object, expected: str) -> NoReturn:
    shown = _NAMES.get(type(value)) or repr(value)
    raise _RefusedError(f"{shown} where {expected} is wanted")


@cache
def _table(descriptor: Descriptor) -> _Table:
    return {field.json_name: _field(field) for field in descriptor.fields}


def _field(field: FieldDescriptor) -> _Field:
    holds_quantity = is_quantity(field)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        if entry["key"].type != FieldDescriptor.TYPE_STRING:
            raise TypeError(f"{field.full_name}: only maps by string can be read")
        return field.name, None, _map_of(*_element(entry["value"], holds_quantity))
    plain, convert = _element(field, holds_quantity)
    if field.is_repeated:
        return field.name, None, _list_of(plain, convert)
    return field.name, plain, convert


def _element(field: FieldDescriptor, holds_quantity: bool) -> tuple[type | None, _Convert]:
    if field.message_type is not None:
        return None, _message(field.message_type)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return str, _quantity if holds_quantity else _wanted("a string")
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return bool, _wanted("true or false")
    if field.cpp_type in _INTEGERS:
        return None, _integer(*_INTEGERS[field.cpp_type])
    raise TypeError(f"{field.full_name}: a type that Kubernetes JSON does not have")


def _message(descriptor: Descriptor) -> _Convert:
    if descriptor.full_name == Timestamp.DESCRIPTOR.full_name:
        return _timestamp
    if descriptor.full_name == IntOrString.DESCRIPTOR.full_name:
        return _int_or_string
    if descriptor.full_name == RawExtension.DESCRIPTOR.full_name:
        return _raw_extension
    return partial(_read, _table(descriptor))


_QUANTITIES = frozenset(
    {
        "PodSpec.overhead",
        "ResourceRequirements.requests",
        "ResourceRequirements.limits",
        "ContainerStatus.allocated_resources",
        "EmptyDirVolumeSource.size_limit",
        "PersistentVolumeSpec.capacity",
        "VolumeResourceRequirements.requests",
        "VolumeResourceRequirements.limits",
        "PersistentVolumeClaimStatus.capacity",
        "CSIStorageCapacity.capacity",
        "CSIStorageCapacity.maximum_volume_size",
        "NodeStatus.capacity",
        "NodeStatus.allocatable",
        *(f"ResourceQuota{part}" for part in ("Spec.hard", "Status.hard", "Status.used")),
        *(f"LimitRangeItem.{name}" for name in ("max", "min", "default", "default_request")),
        "LimitRangeItem.max_limit_request_ratio",
        "Overhead.pod_fixed",
        *("Counter.value", "DeviceCapacity.value", "CapacityRequirements.requests"),
        *(f"CapacityRequestPolicy.{name}" for name in ("default", "valid_values")),
        *(f"CapacityRequestPolicyRange.{name}" for name in ("min", "max", "step")),
        "DeviceRequestAllocationResult.consumed_capacity",
    }
)


def is_quantity(field: FieldDescriptor) -> bool:
    """Return whether a field, or each value of a map, is a resource quantity such as "500m".

    In a manifest, a quantity may also be a bare number.
    """
    return ".".join(field.full_name.split(".")[-2:]) in _QUANTITIES


def _wanted(name: str) -> _Convert:
    return lambda value: _refuse(value, name)


def _list_of(plain: type | None, convert: _Convert) -> _Convert:
    def read(value: object) -> object:
        if not isinstance(value, list):
            _refuse(value, "a list")
        result = []
        try:
            for item in value:
                result.append(item if type(item) is plain else convert(item))
        except _RefusedError as refused:
            refused.path.append(f"[{len(result)}]")
            raise
        return result

    return read


def _map_of(plain: type | None, convert: _Convert) -> _Convert:
    def read(value: object) -> object:
        if not isinstance(value, dict):
            _refuse(value, "an object")
        result = {}
        key: object = ""
        try:
            for key, item in value.items():
                if type(key) is not str:
                    _refuse(key, "a string as key")
                result[key] = item if type(item) is plain else convert(item)
        except _RefusedError as refused:
            refused.path.append(f"[{key}]")
            raise
        return result

    return read


def _integer(bits: int, low: int, high: int) -> _Convert:
    def read(value: object) -> object:
        if type(value) is int:
            number = value
        elif (type(value) is float and value.is_integer()) or (
            bits == 64 and type(value) is str and _INTEGER_TEXT.fullmatch(value)
        ):
            number = int(value)
        else:
            _refuse(value, "a whole number")
        if not low <= number < high:
            raise _RefusedError(f"{number} does not fit {bits} bits")
        return number

    return read


def _quantity(value: object) -> object:
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    _refuse(value, "a quantity")


def _int_or_string(value: object) -> object:
    if type(value) is str:
        return IntOrString(string_value=value)
    if type(value) is int or (type(value) is float and value.is_integer()):
        if not -(2**31) <= value < 2**31:
            raise _RefusedError(f"{int(value)} does not fit 32 bits")
        return IntOrString(int_value=int(value))
    _refuse(value, "a whole number or a string")


def _raw_extension(value: object) -> object:
    try:
        return RawExtension(raw=json.dumps(value, separators=(",", ":")))
    except (TypeError, ValueError):
        _refuse(value, "a JSON value")


def _timestamp(value: object) -> object:
    if type(value) is not str:
        _refuse(value, "a time")
    at_ns = rfc3339.parse_ns(value)
    if at_ns is None:
        _refuse(value, 'a time such as "2026-01-01T00:00:00Z"')
    return timestamp(at_ns)


_Write = Callable[[Any], Any]
_Scalars = Mapping[int, Callable[[FieldDescriptor], _Write]]


@cache
def _writer(descriptor: Descriptor, form: _Form) -> _Write:
    """Return the function that writes messages of one kind."""
    with _MAKING:  # No other thread may use a table before it is complete.
        return form.writer(descriptor)


_MAKING = Lock()


class _Form:
    """A form of JSON: writers for special message types, and for some C++ types of fields.

    Any other message becomes an object of its set fields. `ListFields` returns only these, in the
    order of their numbers, so the cost depends on the set fields, not on all fields of the type.
    """

    def __init__(self, kinds: Mapping[str, _Write], scalars: _Scalars) -> None:
        self._scalars = scalars
        self._writers = dict(kinds)

    def writer(self, descriptor: Descriptor) -> _Write:
        """Return the function that writes messages of one type; it is created on first use."""
        name = descriptor.full_name
        if name not in self._writers:
            table: dict[FieldDescriptor, tuple[str, _Write | None]] = {}
            self._writers[name] = partial(_written, table)  # before the fields: types can recurse
            table |= {field: (field.json_name, self._field(field)) for field in descriptor.fields}
        return self._writers[name]

    def _field(self, field: FieldDescriptor) -> _Write | None:
        """Return the function that converts a field's value; None if JSON has it unchanged."""
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            return partial(_written_map, self._element(kind.fields_by_name["value"]))
        element = self._element(field)
        return partial(_written_list, element) if field.is_repeated else element

    def _element(self, field: FieldDescriptor) -> _Write | None:
        if field.message_type is not None:
            return self.writer(field.message_type)
        scalar = self._scalars.get(field.cpp_type)
        return None if scalar is None else scalar(field)


def _written(
    table: Mapping[FieldDescriptor, tuple[str, _Write | None]], message: Message
) -> dict[str, Any]:
    result = {}
    for field, value in message.ListFields():
        name, write = table[field]
        result[name] = value if write is None else write(value)
    return result


def _written_list(write: _Write | None, values: Sequence[Any]) -> list[Any]:
    return list(values) if write is None else [write(value) for value in values]


def _written_map(write: _Write | None, values: Mapping[str, Any]) -> dict[str, Any]:
    if write is None:
        return dict(sorted(values.items()))
    return {key: write(values[key]) for key in sorted(values)}


def _enum_name(field: FieldDescriptor) -> _Write:
    kind = field.enum_type
    names = {} if kind is None else {value.number: value.name for value in kind.values}
    return lambda number: names.get(number, number)


def _time_text(stamp: Timestamp) -> str:
    return rfc3339.text(stamp.seconds * SECOND_NS + stamp.nanos, digits=None)


def _int_or_string_plain(value: IntOrString) -> int | str | None:
    match value.WhichOneof("value"):
        case "int_value":
            return value.int_value
        case "string_value":
            return value.string_value
    return None


def _raw_extension_plain(value: RawExtension) -> object:
    try:
        return json.loads(value.raw) if value.raw else None
    except ValueError:
        return value.raw


_KUBERNETES = _Form(
    {
        RawExtension.DESCRIPTOR.full_name: _raw_extension_plain,
        Timestamp.DESCRIPTOR.full_name: _time_text,
        IntOrString.DESCRIPTOR.full_name: _int_or_string_plain,
    },
    {},
)
_PROTO3 = _Form(
    {Timestamp.DESCRIPTOR.full_name: Timestamp.ToJsonString},
    {
        FieldDescriptor.CPPTYPE_INT64: lambda _field: str,
        FieldDescriptor.CPPTYPE_UINT64: lambda _field: str,
        FieldDescriptor.CPPTYPE_ENUM: _enum_name,
    },
)
