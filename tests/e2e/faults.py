"""A server between a replay and a service that passes everything on and spoils one answer.

What can be wrong with an answer follows from the contract: each required field can be absent, each
identity unknown, each number out of range, each enum a value that does not exist, each of parallel
columns too short. A field is required by its option, or, under a condition and in a oneof, by its
comment, which is read from the contract's image.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import grpc
from google.api import field_behavior_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import Message

from tests.e2e.replays import ROOT

IDENTITIES = frozenset({"uid", "node_name", "nominated_node_name"})
_OF_THE_PAST = frozenset({"Head.nominated_node_name"})
"""Identities of what may have gone."""
MAY_BE_NEGATIVE = frozenset({"priority", "score", "usage", "request"})
_COLUMNS = frozenset({"Refusals", "StepTimes"})
_COUNTED = frozenset({"uids", "attempt_indexes"})
"""Columns by which the others are measured."""
_INTEGERS = frozenset({FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64})
_FIELD, _MESSAGE_TYPE = 2, 4

Path = tuple[str, ...]
Spoil = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with an answer: `kind` with the field at `path`."""

    path: Path
    kind: str

    def __str__(self) -> str:
        return f"{'.'.join(self.path)} {self.kind}"

    @property
    def pattern(self) -> str:
        """Return what the refusal must name: the field, a part of it, or what holds it."""
        steps = [rf"{step}(\[\d+\])?" for step in self.path]
        return r"(\.)?".join(f"({step})?" for step in steps[:-1]) + rf"\.?{steps[-1]}"

    def spoil(self, message: Any) -> bool:
        """Spoil the first place in `message` that has the field; return whether there is one."""
        *path, last = self.path
        return any(_spoiled(holder, last, self.kind) for holder in _holders(message, path))


class Between:
    """Serves what the server at `address` does; `spoil` changes one answer of `method`.

    `largest` is the size of the largest message that went either way.
    """

    def __init__(self, address: str, method: str, answer: type[Message]) -> None:
        self._channel = grpc.insecure_channel(address)
        self.largest = 0
        self._method, self._answer = method, answer
        self.seen: list[Message] = []
        self.spoil: Spoil | None = None
        self.spoiled = False
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((_Handler(self._forward),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def begin(self, spoil: Spoil | None) -> None:
        """Spoil the next answer that can be."""
        self.spoil, self.spoiled = spoil, False

    def close(self) -> None:
        """Serve no longer."""
        self._server.stop(0).wait()
        self._channel.close()

    def _forward(
        self, method: str, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        stream: Any = self._channel.stream_stream(method)
        call = stream(map(self._measured, requests))
        try:
            for answer in map(self._measured, call):
                yield self._passed(answer) if method.endswith(f"/{self._method}") else answer
        except grpc.RpcError as error:
            failed: Any = error
            context.abort(failed.code(), failed.details())

    def _measured(self, message: bytes) -> bytes:
        self.largest = max(self.largest, len(message))
        return message

    def _passed(self, answer: bytes) -> bytes:
        message = self._answer.FromString(answer)
        if self.spoil is None:
            self.seen.append(message)
        elif not self.spoiled:
            self.spoiled = self.spoil(message)
        return message.SerializeToString()


class _Handler(grpc.GenericRpcHandler):
    """Takes every method; on the wire a unary call is a stream of one message."""

    def __init__(self, forward: Callable[..., Iterator[bytes]]) -> None:
        self._forward = forward

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of any method."""
        method = handler_call_details.method
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self._forward(method, requests, context)
        )


def faults_of(answers: Iterable[Message]) -> list[Fault]:
    """Return what can be wrong with the fields that some of `answers` has."""
    found: dict[Fault, None] = {}
    for answer in answers:
        for fault in _faults(answer, ()):
            found[fault] = None
    return list(found)


def _faults(message: Message, path: Path) -> Iterator[Fault]:
    descriptor = message.DESCRIPTOR
    for oneof in descriptor.oneofs:
        comment = comments().get(f"{descriptor.full_name}.{oneof.name}", "")
        if "equired" in comment and message.WhichOneof(oneof.name):
            yield Fault((*path, oneof.name), "absent")
    for field, value in message.ListFields():
        here = (*path, field.name)
        yield from (Fault(here, kind) for kind in _kinds(descriptor, field))
        if field.message_type is not None and not _is_map(field):
            for part in value if field.is_repeated else (value,):
                yield from _faults(part, here)


def _kinds(descriptor: Any, field: FieldDescriptor) -> Iterator[str]:
    behaviors = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
    comment = comments().get(f"{descriptor.full_name}.{field.name}", "")
    if field_behavior_pb2.REQUIRED in behaviors or "equired" in comment:
        yield "absent"
    is_column = field.is_repeated and descriptor.name in _COLUMNS
    if is_column and field.message_type is None and field.name not in _COUNTED:
        yield "short"
    named = field.name in IDENTITIES and f"{descriptor.name}.{field.name}" not in _OF_THE_PAST
    if field.enum_type is not None or named or (is_column and field.name == "uids"):
        yield "unknown"
    elif field.name == "sequence":
        yield "wrong"
    elif field.cpp_type in _INTEGERS and field.name not in MAY_BE_NEGATIVE:
        yield "out of range"


def _holders(message: Any, path: list[str]) -> Iterator[Any]:
    if not path:
        yield message
        return
    first, *rest = path
    value = getattr(message, first)
    for part in value if isinstance(value, Iterable) else (value,):
        yield from _holders(part, rest)


def _spoiled(holder: Any, name: str, kind: str) -> bool:
    if name in holder.DESCRIPTOR.oneofs_by_name:
        case = holder.WhichOneof(name)
        if case is not None:
            holder.ClearField(case)
        return case is not None
    field = holder.DESCRIPTOR.fields_by_name[name]
    if all(other is not field and other.name != name for other, _ in holder.ListFields()):
        return False
    value = getattr(holder, name)
    match kind:
        case "absent":
            holder.ClearField(name)
        case "short":
            del value[-1]
        case "unknown" if field.is_repeated:
            value[0] = "nobody"
        case "unknown":
            setattr(holder, name, 99 if field.enum_type is not None else "nobody")
        case "wrong":
            setattr(holder, name, value + 1)
        case "out of range" if field.is_repeated:
            value[0] = -1
        case "out of range":
            setattr(holder, name, -1)
    return True


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


@cache
def comments() -> dict[str, str]:
    """Return the comments of the contract's fields and oneofs, by package.MESSAGE.name."""
    image = FileDescriptorSet.FromString((ROOT / "protos" / "v1beta1.binpb").read_bytes())
    found: dict[str, str] = {}
    for file in image.file:
        for location in file.source_code_info.location:
            match list(location.path):
                case [4, message, (2 | 8) as kind, index]:
                    held = file.message_type[message]
                    part = (held.field if kind == 2 else held.oneof_decl)[index]
                    name = f"{file.package}.{held.name}.{part.name}"
                    found[name] = re.sub(r"\s+", " ", location.leading_comments).strip()
    return found
