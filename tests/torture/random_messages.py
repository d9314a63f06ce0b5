"""Random and mutated protobuf messages, made from their descriptors.

Values lie at the edges: huge and negative numbers, numbers of no enum, NaN, control characters,
texts that look like quantities; messages are deep, empty or missing.
"""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

DEPTH_MAX = 7
REPEATED_MAX = 4
_INTEGERS = (0, 1, -1, 2, 7, 99, 10**9, 2**31 - 1, -(2**31), 2**32 - 1, 2**53, 2**56, 2**60)
_WIDE = (2**62 - 1, 2**62, 2**62 + 1, 2**63 - 1, -(2**63), 2**64 - 1)
_FLOATS = (0.0, -0.0, 1.5, -1.0, 100.0, float("nan"), float("inf"), -float("inf"), 3e38, 1e-45)
_TEXTS = (
    "",
    "a",
    "n",
    "p",
    "uid-default/a",
    "default",
    "\x00",
    "\x1b]0;x\x07",
    "\r\n",
    "\u202e",
    "\ud7ff\ufffe",
    "\U0010ffff",
    "x" * 3000,
    "../..",
    "%s%n{0}",
    "1e400",
    "9E",
    "-1",
    "1e-400",
    "9223372036854775807",
    "1Ki",
    "0.5",
    "500m",
    "10%",
    "Infinity",
    "nan",
    "5s",
    "cpu",
    "memory",
    "memory.available",
    "nodefs.available",
    "kubernetes.io/hostname",
    "node.kubernetes.io/memory-pressure",
    "In",
    "Exists",
    "NoSchedule",
    "NodeAdd",
    "Pod",
    "Node",
    "v1.34",
    "v1.20",
    "v1.16",
    "NodeResourcesFit",
    "default-scheduler",
    "Always",
    "Succeeded",
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n",
    "{" * 500,
    "[" * 20000,
    "a: &a [*a]",
)
_LIMITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def random_message(random: Random, kind: type[Message], depth: int = 0) -> Any:
    """Return a message of that type with random fields."""
    message = kind()
    fields = fields_of(kind.DESCRIPTOR)
    for field in random.sample(fields, random.randrange(min(len(fields), 5) + 1)):
        set_field(random, message, field, depth)
    return message


def fields_of(descriptor: Any) -> list[FieldDescriptor]:
    """Return the fields of a message's type."""
    return list(descriptor.fields)


def mutate(random: Random, message: Message) -> None:
    """Change some field of a message, or of a message within it."""
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        _mutate_once(random, message, 0)


def mutated_bytes(random: Random, data: bytes) -> bytes:
    """Return bytes that are almost `data`."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        place = random.randrange(len(changed) + 1)
        match random.randrange(6):
            case 0 if changed:
                changed[place % len(changed)] ^= 1 << random.randrange(8)
            case 1:
                del changed[place:]
            case 2:
                changed[place:place] = random.randbytes(random.randrange(1, 9))
            case 3:
                end = min(len(changed), place + random.randrange(1, 40))
                changed[place:place] = changed[place:end]
            case 4:
                del changed[place : place + random.randrange(1, 9)]
            case _:
                changed[place:place] = b"\x0a\x02" * random.choice((3, 200))
    return bytes(changed)


def _mutate_once(random: Random, message: Message, depth: int) -> None:
    parts = [(field, value) for field, value in message.ListFields() if field.message_type]
    if parts and depth < DEPTH_MAX and random.random() < 0.8:
        field, value = random.choice(parts)
        if _is_map(field):
            set_field(random, message, field, depth)
            return
        if field.is_repeated:
            if random.random() < 0.3:
                _change_list(random, value)
                return
            value = random.choice(value)
        _mutate_once(random, value, depth + 1)
        return
    fields = fields_of(message.DESCRIPTOR)
    if not fields:
        return
    field = random.choice(fields)
    if random.random() < 0.25:
        message.ClearField(field.name)
    else:
        set_field(random, message, field, depth)


def _change_list(random: Random, values: Any) -> None:
    match random.randrange(4):
        case 0:
            del values[random.randrange(len(values))]
        case 1:
            values.add().CopyFrom(random.choice(values))
        case 2:
            copies = [type(value).FromString(value.SerializeToString()) for value in values]
            random.shuffle(copies)
            del values[:]
            values.extend(copies)
        case _:
            values.add()


def set_field(random: Random, message: Any, field: FieldDescriptor, depth: int) -> None:
    """Set a field to a random value."""
    if _is_map(field):
        _set_map(random, getattr(message, field.name), field, depth)
    elif field.message_type is not None:
        target = getattr(message, field.name)
        if field.is_repeated:
            for _ in range(random.randrange(1, REPEATED_MAX)):
                target.add().CopyFrom(_inner(random, field, depth))
        else:
            target.CopyFrom(_inner(random, field, depth))
            target.SetInParent()
    elif field.is_repeated:
        count = random.randrange(REPEATED_MAX)
        getattr(message, field.name).extend(_scalar(random, field) for _ in range(count))
    else:
        setattr(message, field.name, _scalar(random, field))


def _set_map(random: Random, values: Any, field: FieldDescriptor, depth: int) -> None:
    kind: Any = field.message_type
    entry = kind.fields_by_name
    for _ in range(random.randrange(REPEATED_MAX)):
        key = _scalar(random, entry["key"])
        if entry["value"].message_type is None:
            values[key] = _scalar(random, entry["value"])
        else:
            values[key].CopyFrom(_inner(random, entry["value"], depth))


def _inner(random: Random, field: FieldDescriptor, depth: int) -> Any:
    described: Any = field.message_type
    kind = described._concrete_class
    return kind() if depth >= DEPTH_MAX else random_message(random, kind, depth + 1)


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return field.is_repeated and kind is not None and kind.GetOptions().map_entry


def _scalar(random: Random, field: FieldDescriptor) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return random.randbytes(random.randrange(20))
        return random.choice(_TEXTS)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return random.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return random.choice((-1, 0, 1, 2, 3, 4, 5, 17, 2**31 - 1, -(2**31)))
    if kind in {FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE}:
        return random.choice(_FLOATS)
    least, most = _LIMITS[kind]
    number = random.choice(_INTEGERS + _WIDE)
    return max(least, min(number, most))
