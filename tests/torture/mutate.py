"""Damage: a value, a text or bytes with something in them that no recorder wrote.

Every function takes the chance that decides, so that a seed gives the same damage again.
"""

from __future__ import annotations

import copy
import gzip
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import zstandard

Keys = tuple[str | int, ...]
Damage = Callable[[bytes, Random], bytes]
LONG = 3 << 19
"""Bytes of a very long token."""
DEEP = 100_000
"""Levels of deep nesting."""
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_EXTREMES = (
    *(b"-1", b"0", b"1e3", b"-0", b"nan", b"inf", b"-Infinity", b"1e308", b"1e-400", b"0x10"),
    *(b"2147483648", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809"),
    *(b"18446744073709551616", b"1e999999999", b"1e-999999999", b"9" * 30, b"9" * 5000),
    *(b"2000000000", b"0.0000000001", b"1_000", "\u0663".encode()),
)
_INVALID_UTF8 = (
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xc0\x80",
    b"\xef\xbb\xbf",
)
_PIECES = (b"\x00", b"\x00" * 4096, b"\x1b[31m", b"\r", b"\x85", b"\xe2\x80\xa8", b'"', b"'", b",")
_SYNTAX = (
    b"&a [*a, *a]",
    b"!!python/object:os.system {}",
    b"<<: *a",
    b"%YAML 9.9\n",
    b"---\n",
    b"?\n",
)
_OPEN = (b"[", b"{", b'{"a":', b"- ", b"[{")
_JUNK: tuple[Any, ...] = (
    *(None, True, False, "", "x", "$y", [], [1], {}, {"a": 1}, ["a"], [{}], [[]], 0.1, -1, 0, 1),
    *(1e300, -1e300, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**20, -(10**20)),
    *("\x00", "\u2028", "\U0001f600", "9" * 30, "9" * 5000, "1e999999999", "-1", "nan", "1Ei"),
    *("2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "10000000h"),
    *(2_000_000_000, "2000000000", 1_900_000_000.5, "x" * 300_000),
)


def places(value: Any, keys: Keys = ()) -> Iterator[Keys]:
    """Yield the keys of everything within a value."""
    parts: Any = value.items() if isinstance(value, dict) else ()
    parts = enumerate(value) if isinstance(value, list) else parts
    for key, part in parts:
        yield (*keys, key)
        yield from places(part, (*keys, key))


def with_part(value: Any, keys: Keys, part: Any) -> Any:
    """Return the value with something else at a place."""
    result = copy.deepcopy(value)
    _holder(result, keys)[keys[-1]] = part
    return result


def damaged_value(value: Any, chance: Random) -> Any:
    """Return the value with one part of it replaced, removed, repeated, renamed or exchanged."""
    all_places = list(places(value))
    if not all_places:
        return copy.deepcopy(chance.choice(_JUNK))
    keys, other = chance.choice(all_places), chance.choice(all_places)
    result = copy.deepcopy(value)
    holder: Any = _holder(result, keys)
    key: Any = keys[-1]
    match chance.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder[key:key] = [copy.deepcopy(holder[key])] * chance.choice((1, 2, 50))
        case 2 if isinstance(holder, dict):
            holder[chance.choice(("x", "", "kind", "\x00", "name", 1))] = holder.pop(key)
        case 3:
            holder[key] = _part(value, other)
        case 4:
            holder[key] = _nested(holder[key], chance)
        case _:
            holder[key] = copy.deepcopy(chance.choice(_JUNK))
    return result


def damaged_bytes(data: bytes, chance: Random) -> bytes:
    """Return the bytes with one damage of any kind."""
    return chance.choice(_DAMAGES)(data, chance)


def damaged_wrapper(data: bytes, chance: Random) -> bytes:
    """Return bytes that look like a file of gzip or zstd, and are not quite."""
    return chance.choice(_WRAPPER_DAMAGES)(data, chance)


def wrapped(data: bytes, chance: Random) -> bytes:
    """Return the content compressed by gzip or zstd, in one part, several parts, or twice."""
    at = chance.randrange(len(data) + 1)
    pack: Callable[[bytes], bytes] = chance.choice(
        (
            lambda plain: gzip.compress(plain, mtime=0),
            zstandard.compress,
            zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress,
        )
    )
    return chance.choice(
        (pack(data), pack(data[:at]) + pack(data[at:]), pack(data) + pack(b""), pack(pack(data)))
    )


def _holder(value: Any, keys: Keys) -> Any:
    for key in keys[:-1]:
        value = value[key]
    return value


def _part(value: Any, keys: Keys) -> Any:
    return copy.deepcopy(_holder(value, keys)[keys[-1]])


def _nested(value: Any, chance: Random) -> Any:
    for _ in range(chance.choice((2, 60, 150))):
        value = [value] if chance.random() < 0.5 else {"a": value}
    return value


def _flip(data: bytes, chance: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 3, 40))):
        if changed:
            at = chance.randrange(8 * len(changed))
            changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def _cut(data: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return chance.choice((data[:at], data[:at], data[at:]))


def _span(data: bytes, chance: Random) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    return start, min(len(data), start + chance.choice((1, 1, 4, 30, 400)))


def _spans(data: bytes, chance: Random) -> bytes:
    """Remove, repeat, move or overwrite a span."""
    start, end = _span(data, chance)
    to, _ = _span(data, chance)
    span = data[start:end]
    return chance.choice(
        (
            data[:start] + data[end:],
            data[:end] + span * chance.choice((1, 3, 500)) + data[end:],
            data[:to] + span + data[to:],
            data[:start] + chance.randbytes(end - start) + data[end:],
        )
    )


def _lines(data: bytes, chance: Random) -> bytes:
    """Remove, repeat, exchange or join lines."""
    lines = data.split(b"\n")
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.randrange(5):
        case 0:
            del lines[one]
        case 1:
            lines[one:one] = [lines[other]] * chance.choice((1, 2, 200))
        case 2:
            lines[one], lines[other] = lines[other], lines[one]
        case 3:
            lines[one] = b" " * chance.choice((1, 2, 200)) + lines[one]
        case _:
            lines[one : one + 2] = [b"".join(lines[one : one + 2])]
    return b"\n".join(lines)


def _number(data: bytes, chance: Random) -> bytes:
    numbers = list(_NUMBER.finditer(data))
    if not numbers:
        return _flip(data, chance)
    found = chance.choice(numbers)
    return data[: found.start()] + chance.choice(_EXTREMES) + data[found.end() :]


def _insert(data: bytes, chance: Random, pieces: tuple[bytes, ...]) -> bytes:
    at, end = _span(data, chance)
    return data[:at] + chance.choice(pieces) + data[chance.choice((at, end)) :]


def _invalid(data: bytes, chance: Random) -> bytes:
    return _insert(data, chance, _INVALID_UTF8)


def _control(data: bytes, chance: Random) -> bytes:
    return _insert(data, chance, _PIECES)


def _syntax(data: bytes, chance: Random) -> bytes:
    return _insert(data, chance, _SYNTAX)


def _long(data: bytes, chance: Random) -> bytes:
    return _insert(
        data, chance, (b"x" * LONG, b"9" * LONG, b" " * LONG, b"\n" * LONG, b"a," * LONG)
    )


def _deep(data: bytes, chance: Random) -> bytes:
    """Open brackets, or indent, without end; closed again or not."""
    opening, levels = chance.choice(_OPEN), chance.choice((150, 2_000, DEEP))
    closing = opening[::-1].translate(bytes.maketrans(b"[{", b"]}"), b'"a:- ')
    places = [found.end() for found in re.finditer(rb"[:,\[] ?|^", data[: 1 << 16])]
    at = chance.choice(places or [0])
    inner = opening * levels + chance.choice((b"", b"1")) + closing * chance.choice((0, levels))
    if chance.random() < 0.2:
        inner = b"".join(b"\n" + b" " * depth + b"a:" for depth in range(min(levels, 1_000)))
    return data[:at] + inner + data[at:]


def _append(data: bytes, chance: Random) -> bytes:
    return data + chance.choice((chance.randbytes(50), b"\x00" * 9, data, data[:20], b"\n{"))


def _frame_sizes(data: bytes, chance: Random) -> bytes:
    """Change the first bytes, which have sizes and flags."""
    changed = bytearray(data)
    at = chance.randrange(min(24, len(changed))) if changed else 0
    changed[at : at + 1] = bytes([chance.randrange(256)])
    return bytes(changed)


_DAMAGES: tuple[Damage, ...] = (
    *(_flip, _cut, _spans, _spans, _lines, _lines, _number, _number, _number),
    *(_invalid, _control, _syntax, _long, _deep, _append),
)
_WRAPPER_DAMAGES: tuple[Damage, ...] = (_flip, _cut, _cut, _spans, _frame_sizes, _append)
