"""Messages that lack one required field each, made from the contract's descriptors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from services.rpc.required import is_required

_TEXTS = (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_ENUM)


def complete(descriptor: Descriptor) -> Any:
    """Return a message of a type with its required fields, and nothing else."""
    message: Any = GetMessageClass(descriptor)()
    for field in filter(is_required, descriptor.fields):
        if field.message_type is not None:
            put(message, field, complete(field.message_type))
        else:
            value = "x" if field.cpp_type == FieldDescriptor.CPPTYPE_STRING else 1
            put(message, field, value)
    return message


def incomplete(descriptor: Descriptor) -> Iterator[tuple[str, Message]]:
    """Yield every message of a type that lacks one required field, with that field's path.

    Plain numbers cannot be absent. Parts that are not required are set on the way to a field.
    """
    for field in descriptor.fields:
        if is_required(field) and _can_be_absent(field):
            message = complete(descriptor)
            message.ClearField(field.name)
            yield field.name, message
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for path, part in incomplete(field.message_type):
                message = complete(descriptor)
                message.ClearField(field.name)
                put(message, field, part)
                yield f"{field.name}{'[0]' if field.is_repeated else ''}.{path}", message


def put(message: Any, field: FieldDescriptor, value: Any) -> None:
    """Set a field; a list has the value as its only entry."""
    if field.is_repeated:
        getattr(message, field.name).append(value)
    elif isinstance(value, Message):
        part = getattr(message, field.name)
        part.CopyFrom(value)
        part.SetInParent()
    else:
        setattr(message, field.name, value)


def _can_be_absent(field: FieldDescriptor) -> bool:
    return field.has_presence or field.is_repeated or field.cpp_type in _TEXTS
