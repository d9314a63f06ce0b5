"""Bounds on what is read from untrusted files: nesting, sizes, expansion, objects made.

One value holds for the process, as `csv.field_size_limit` does; `set_bounds` is called where a
command begins. A refusal names the bound's option, which raises it. The defaults are far above what
recorded clusters need.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, BinaryIO

import click
import yaml

from replay.errors import TraceError
from replay.options import option
from services.kube.yaml_scalars import as_kubectl

_MIB = 1 << 20
_EXPANSION_FROM_BYTES = 256 * _MIB
_EXPANDED_NODES_MIN = 100_000
_READ_BYTES = 1 << 14
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_OTHER_BYTES = bytes(set(range(256)) - set(b'[]{}"'))
_STRING_OF_BRACKETS = re.compile(rb'"[^"]*"')


def option_name(name: str) -> str:
    """Return the option that raises a bound."""
    return f"--max-{name.replace('_', '-')}"


def variable_name(name: str) -> str:
    """Return the environment variable that sets a bound."""
    return f"REPRIEVE_MAX_{name.upper()}"


def _bound(name: str, default: int, meaning: str) -> Any:
    """Declare a bound, with its option and its environment variable."""
    return option(
        option_name(name),
        type=click.IntRange(1),
        default=default,
        envvar=variable_name(name),
        show_envvar=True,
        show_default=True,
        help=meaning,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The largest inputs that are accepted; larger ones are refused.

    depth: levels of nesting of JSON, YAML and MessagePack. line_bytes: one line of a file, or one
    record of a ".ktr". object_bytes: one JSON value, YAML document or MessagePack value.
    expansion: bytes read of compressed content for each compressed byte, beyond 256 MiB; also the
    nodes of a YAML document with aliases, for each node written. pods_per_object: pods that one
    object may request, and objects that one row or operation of a workload may create.
    """

    depth: int = _bound(
        "depth", 500, "Refuse JSON, YAML and MessagePack that is nested more deeply."
    )
    line_bytes: int = _bound(
        "line_bytes", 256 * _MIB, "Refuse a file with a longer line, or a longer record of a .ktr."
    )
    object_bytes: int = _bound(
        "object_bytes", 256 * _MIB, "Refuse a file with a larger JSON value or YAML document."
    )
    expansion: int = _bound(
        "expansion",
        1000,
        "Refuse a file that expands to more than so many times its compressed size.",
    )
    pods_per_object: int = _bound(
        "pods_per_object",
        1_000_000,
        "Refuse an object that asks for more pods, and an operation or a row that makes more "
        "objects.",
    )

    def refuse(self, where: str, name: str, what: str) -> TraceError:
        """Return the refusal of something that exceeds the bound `name`."""
        limit, option = getattr(self, name), option_name(name)
        return TraceError(where, f"{what}; the bound is {limit:,}, and {option} raises it")


NAMES = tuple(field.name for field in fields(Bounds))
_bounds = Bounds()


def bounds() -> Bounds:
    """Return the bounds of this process."""
    return _bounds


def set_bounds(new: Bounds) -> None:
    """Set the bounds of this process."""
    global _bounds  # noqa: PLW0603 - one value for the process; see the module's docstring
    _bounds = new


def lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield a file's lines. Raises TraceError for a line that is too long, before it is read."""
    limit, number = _bounds.line_bytes, 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            check_line(len(line), f"{name}, line {number}", "the line")
        yield line


def check_line(size: int, where: str, what: str) -> None:
    """Raise TraceError for a line, or a record of a ".ktr", of so many bytes, if too many."""
    if size > _bounds.line_bytes:
        raise _bounds.refuse(where, "line_bytes", f"{what} is too long")


def text_lines(file: BinaryIO, name: str) -> Iterator[str]:
    """Yield a file's lines as text, without a byte order mark. Raises UnicodeDecodeError, too."""
    encoding = "utf-8-sig"
    for line in lines(file, name):
        if text := line.decode(encoding):
            yield text
        encoding = "utf-8"


def content(file: BinaryIO, name: str) -> bytes:
    """Return the whole content of a file. Raises TraceError if it is too large."""
    read_bytes = file.read(_bounds.object_bytes + 1)
    check_object(len(read_bytes), name)
    return read_bytes


def check_object(size: int, where: str) -> None:
    """Raise TraceError for a value or document of so many bytes, if these are too many."""
    if size > _bounds.object_bytes:
        raise _bounds.refuse(where, "object_bytes", "the object is too large")


def check_depth(depth: int, where: str) -> None:
    """Raise TraceError for so many levels of nesting, if these are too many."""
    if depth > _bounds.depth:
        raise _bounds.refuse(where, "depth", "it is nested too deeply")


def check_count(count: int, where: str, what: str) -> None:
    """Raise TraceError for so many objects of one object, row or operation, if too many."""
    if count > _bounds.pods_per_object:
        raise _bounds.refuse(where, "pods_per_object", f"{what} is {count:,}")


class PlainReader(io.RawIOBase):
    """Reads uncompressed content from `reader`, which reads `source`; counts what it expands to.

    `reader` has read1, which loses nothing where the content breaks off.
    """

    def __init__(self, reader: Any, source: BinaryIO, name: str) -> None:
        super().__init__()
        self._reader = reader
        self._source = source
        self._name = name
        self._count = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into `buffer`, and return the number of bytes. Raises TraceError."""
        data: bytes = self._reader.read1(min(len(buffer), _READ_BYTES))
        buffer[: len(data)] = data
        self._count += len(data)
        check_expansion(self._count, self._source.tell(), self._name)
        return len(data)


def check_expansion(plain: int, compressed: int, where: str) -> None:
    """Raise TraceError if `plain` bytes are too many for `compressed` ones."""
    if plain > _EXPANSION_FROM_BYTES and plain > _bounds.expansion * compressed:
        raise _bounds.refuse(where, "expansion", "its compressed content expands too much")


def brackets(data: bytes) -> bytes:
    """Return the brackets of JSON in order, all as "[" and "]"; those in strings do not count.

    `data` begins and ends outside of strings. Only brackets and quotes are kept, so that strings
    without brackets vanish as pairs of quotes. A loop over the brackets takes twenty times as long.
    """
    kept = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_ONE_KIND, _OTHER_BYTES)
    return _STRING_OF_BRACKETS.sub(b"", kept.replace(b'""', b""))


def check_json(data: bytes, where: str) -> None:
    """Raise TraceError for JSON that is nested too deeply; it need not be JSON."""
    if data.count(b"{") + data.count(b"[") <= _bounds.depth:
        return
    inner, depth = brackets(data), 0
    # Each pass takes the innermost pairs away, a level of nesting; what stays has no partner.
    while depth <= _bounds.depth and (outer := inner.replace(b"[]", b"")) != inner:
        inner = outer
        depth += 1
    check_depth(depth + inner.count(b"["), where)


_LEAD = re.compile(r"^[ ?-]*", re.MULTILINE)


@as_kubectl
class KubernetesYamlLoader(yaml.CSafeLoader):
    """Reads YAML as kubectl does."""


def yaml_value(text: str, where: str) -> Any:
    """Return the value of a YAML document within the bounds.

    Raises TraceError beyond them, and yaml.YAMLError for any text that cannot be read: PyYAML has
    other errors for scalars with an explicit type.
    """
    check_yaml(text, where)
    try:
        return yaml.load(text, KubernetesYamlLoader)  # noqa: S506 - it is a safe loader
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise yaml.YAMLError(f"a value is not of its type: {error}") from error


def check_yaml(text: str, where: str) -> None:
    """Raise TraceError for a YAML document that is nested too deeply, or expands too much.

    libyaml composes nodes by recursion in C, so that nesting is counted on events before. Most
    documents are too short of brackets and of indentation to be deep, and have no aliases.
    """
    check_object(len(text), where)
    has_aliases = "&" in text and "*" in text
    flow = text.count("[") + text.count("{")
    if not has_aliases and flow + 2 <= _bounds.depth:
        indent = max(map(len, _LEAD.findall(text)))
        if flow + 2 * indent + 2 <= _bounds.depth:
            return
    _check_events(text, where)


def _check_events(text: str, where: str) -> None:
    """Count the levels of a document, and the nodes that its aliases stand for."""
    written, open_nodes, sizes = 0, list[tuple[str | None, int]](), dict[str, int]()
    total = 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            written += 1
            open_nodes.append((event.anchor, total))
            total += 1
            check_depth(len(open_nodes), where)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.AliasEvent):
            written += 1
            total += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            written += 1
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
        if total > _EXPANDED_NODES_MIN and total > _bounds.expansion * written:
            raise _bounds.refuse(where, "expansion", "its aliases expand too much")
