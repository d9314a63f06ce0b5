"""Required fields: finds fields that a message lacks, by an option in the contract.

A field with `(google.api.field_behavior) = REQUIRED` must be set: a message or an `optional` scalar
must be present; a string, a list and an enum must not be empty (protos/README.md). Every request is
checked on receipt (interceptors/statuses.py), every response when it is read. The codec of a
message checks conditional rules, and numbers, which cannot be absent.

The check of a message type is built once; it covers the required fields and the parts that can lack
one. Kubernetes objects have no required field, so checking a pod costs nothing. Parts listed in
`LEFT_TO_THEIR_READERS` occur several times for each pod, and checking all of them took 1 % of the
CPU. Their readers read the fields anyway; a reader that finds an empty field calls `missing` to get
its path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from google.api.field_behavior_pb2 import REQUIRED, field_behavior
from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message import Message

from services.rpc.errors import FieldError

PROBLEM = "is required"
_Check = Callable[[Any], str]
"""Returns the path of the first required field that a message lacks; "" if it is complete."""
LEFT_TO_THEIR_READERS = frozenset(
    {
        "reprieve.scheduler.v1beta1.Event",  # services/scheduler/cluster_events.py
        "reprieve.eviction.v1beta1.PodStats",  # services/eviction/codec/operations.py
    }
)
_TEXTS = frozenset({FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_ENUM})


def missing(message: Message) -> str:
    """Return the path of the first required field that `message` lacks; "" if it is complete."""
    lacking = _check_of(message.DESCRIPTOR)
    return lacking(message) if lacking is not None else ""


def check(message: Message) -> None:
    """Raise FieldError for the first required field that `message` lacks."""
    if path := missing(message):
        raise FieldError(path, PROBLEM)


def is_required(field: FieldDescriptor) -> bool:
    """Return whether the contract marks a field as required."""
    return REQUIRED in field.GetOptions().Extensions[field_behavior]


@cache
def _check_of(descriptor: Descriptor) -> _Check | None:
    """Return the check for messages of a type; None if they are always complete."""
    if not any(map(is_required, _fields_within(descriptor))):
        return None
    checks = [*_own(descriptor), *_of_oneofs(descriptor), *_of_parts(descriptor)]
    return checks[0] if len(checks) == 1 else _first_of(tuple(checks))


def _fields_within(descriptor: Descriptor) -> Iterator[FieldDescriptor]:
    """Yield the fields of a type, and of all message types that it can contain."""
    reached, unread = {descriptor}, [descriptor]
    while unread:
        for field in unread.pop().fields:
            yield field
            part = _part_within(field)
            if part is not None and part not in reached:
                reached.add(part)
                unread.append(part)


def _own(descriptor: Descriptor) -> Iterator[_Check]:
    for field in filter(is_required, descriptor.fields):
        if field.has_presence:
            yield _absent(field.name)
        if field.is_repeated or field.cpp_type in _TEXTS:
            yield _empty(field.name)


def _absent(name: str) -> _Check:
    return lambda message: "" if message.HasField(name) else name


def _empty(name: str) -> _Check:
    return lambda message: "" if getattr(message, name) else name


def _of_oneofs(descriptor: Descriptor) -> Iterator[_Check]:
    for oneof in descriptor.oneofs:
        inner = {field.name: _part_of(field) for field in oneof.fields}
        checks = {name: lacking for name, lacking in inner.items() if lacking is not None}
        if checks and _is_choice(oneof):
            yield _of_the_case(oneof.name, checks)


def _of_the_case(oneof: str, checks: dict[str, _Check]) -> _Check:
    def lacking(message: Any) -> str:
        name = message.WhichOneof(oneof)
        inner = checks.get(name)
        path = inner(getattr(message, name)) if inner is not None else ""
        return f"{name}.{path}" if path else ""

    return lacking


def _of_parts(descriptor: Descriptor) -> Iterator[_Check]:
    for field in descriptor.fields:
        inner, oneof = _part_of(field), field.containing_oneof
        if inner is not None and (oneof is None or not _is_choice(oneof)):
            yield (_in_list if field.is_repeated else _in_one)(field.name, inner)


def _part_of(field: FieldDescriptor) -> _Check | None:
    part = _part_within(field)
    return _check_of(part) if part is not None else None


def _part_within(field: FieldDescriptor) -> Descriptor | None:
    """Return the message type of a field; None if the check does not descend into it."""
    part: Descriptor | None = field.message_type
    return None if part is None or part.full_name in LEFT_TO_THEIR_READERS else part


def _is_choice(oneof: OneofDescriptor) -> bool:
    """Return whether a oneof is declared in the file, not synthesized for an `optional` field."""
    return len(oneof.fields) > 1


def _in_one(name: str, inner: _Check) -> _Check:
    def lacking(message: Any) -> str:
        path = inner(getattr(message, name)) if message.HasField(name) else ""
        return f"{name}.{path}" if path else ""

    return lacking


def _in_list(name: str, inner: _Check) -> _Check:
    def lacking(message: Any) -> str:
        for index, part in enumerate(getattr(message, name)):
            if path := inner(part):
                return f"{name}[{index}].{path}"
        return ""

    return lacking


def _first_of(checks: tuple[_Check, ...]) -> _Check:
    def lacking(message: Any) -> str:
        for inner in checks:
            if path := inner(message):
                return path
        return ""

    return lacking
