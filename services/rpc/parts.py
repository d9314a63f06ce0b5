"""Splits messages into parts of a size that every gRPC library accepts without configuration.

Merging the parts, as protobuf merges messages (repeated fields are appended), gives the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from google.protobuf.message import Message

MESSAGE_BYTES_MAX = 2 * 1024 * 1024
"""The contract's limit for a message in either direction; libraries refuse 4 MiB by default."""

ACCEPTED_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
"""The size that services accept unless a limit is set: gRPC's default."""

PART_BYTES = 1024 * 1024
"""The largest size of a part, unless a single element is larger."""

_ELEMENT_BYTES = 16
"""Upper bound for the overhead of an element."""

_M = TypeVar("_M", bound=Message)


def split(message: _M, most: int = PART_BYTES) -> Iterator[_M]:
    """Yield parts of at most `most` bytes, split between elements of repeated fields."""
    if message.ByteSize() <= most:
        yield message
        return
    part, taken = type(message)(), 0
    for field, value in message.ListFields():
        if not field.is_repeated and field.message_type is not None:
            inner: Iterator[Any] = split(value, most)
            pieces: Iterable[_M] = (_holding(message, field.name, part) for part in inner)
        elif field.is_repeated and not _is_map(field):
            pieces = (_holding(message, field.name, [element]) for element in value)
        else:
            pieces = (_holding(message, field.name, value),)
        for piece in pieces:
            size = piece.ByteSize()
            if taken and taken + size > most:
                yield part
                part, taken = type(message)(), 0
            part.MergeFrom(piece)
            taken += size
    yield part


def merged(parts: Iterable[_M], whole: _M) -> _M:
    """Return `whole` with the parts merged into it, in order."""
    for part in parts:
        whole.MergeFrom(part)
    return whole


def chunks(
    elements: Iterable[_M], most: int = PART_BYTES, count: int = 2**31
) -> Iterator[list[_M]]:
    """Yield the elements in lists of at most `count` elements and `most` bytes.

    An element larger than `most` is in a list of its own.
    """
    chunk: list[_M] = []
    taken = 0
    for element in elements:
        size = element.ByteSize() + _ELEMENT_BYTES
        if chunk and (taken + size > most or len(chunk) == count):
            yield chunk
            chunk, taken = [], 0
        chunk.append(element)
        taken += size
    if chunk:
        yield chunk


def _holding(message: _M, name: str, value: object) -> _M:
    return type(message)(**{name: value})


def _is_map(field: object) -> bool:
    entry = getattr(field, "message_type", None)
    return entry is not None and entry.GetOptions().map_entry
