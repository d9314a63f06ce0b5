"""Required fields: what a message lacks, by the contract's own option.

A field with `(google.api.field_behavior) = REQUIRED` is set in every message that has it: a message
or an `optional` scalar is present, a text, a list and an enum are not empty (protos/README.md).
Every request is checked as it is received (interceptors/statuses.py), and every answer where it is
read. Rules with a condition, and numbers, which cannot be absent, belong to a message's codec.

A type's check is made once, of its required fields and of the parts that can lack one. Kubernetes'
objects have no such field, so that a pod costs nothing here. Parts in `LEFT_TO_THEIR_READERS` come
several times for each pod, and a look at all of them took 1 % of the CPU: their readers, which
look at the fields anyway, find one that is empty, and then ask `missing` for its path.
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
"""Returns the path of the first required field that a message lacks, "" if it is complete."""
LEFT_TO_THEIR_READERS = frozenset(
    {
        "reprieve.scheduler.v1beta1.Event",  # services/scheduler/cluster_events.py
        "reprieve.eviction.v1beta1.PodStats",  # services/eviction/codec/operations.py
    }
)
_TEXTS = frozenset({FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_ENUM})


def missing(message: Message) -> str:
    """Return the path of the first required field that `message` lacks, "" if it is complete."""
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
    """Return the check of a type's messages, None where they are always complete."""
    if not any(map(is_required, _fields_within(descriptor))):
        return None
    checks = [*_own(descriptor), *_of_oneofs(descriptor), *_of_parts(descriptor)]
    return checks[0] if len(checks) == 1 else _first_of(tuple(checks))


def _fields_within(descriptor: Descriptor) -> Iterator[FieldDescriptor]:
    """Yield the fields of a type and of all that its messages can have within them."""
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
    """Return the type of a field's messages, None where they are not looked at here."""
    part: Descriptor | None = field.message_type
    return None if part is None or part.full_name in LEFT_TO_THEIR_READERS else part


def _is_choice(oneof: OneofDescriptor) -> bool:
    """Return whether it is a oneof of the file, and not the one that `optional` makes."""
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
