"""The values in JSON and YAML files, each with its file and line; gzip and zstd are removed."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import yaml

from replay import bounds
from replay.errors import TraceError
from replay.kube.kinds import list_items
from replay.kube.plain_yaml import CutError, PlainLines
from replay.trace.files import CutShortError, open_plain

_MARK = re.compile(r"---(?:[ \t].*)?$|---$")
_END = re.compile(r"\.\.\.\s*$")
_CACHED_MAX = 8192
_INDENTS = (b" ", b"\t")
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"\s*")
_LARGE = 1 << 20


def read_json(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the values of a JSON file as `json_values` does. Raises TraceError."""
    with open_plain(path) as file:
        yield from json_values(file, str(path))


def read_documents(path: Path, documents: YamlDocuments | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the values of a file that begins with "{" or "[" as JSON, of any other as YAML.

    Raises TraceError.
    """
    with open_plain(path) as file:
        if file.peek(64).lstrip()[:1] in {b"{", b"["}:
            lists = documents is not None and documents.lists
            yield from json_values(file, str(path), lists=lists)
        else:
            yield from yaml_values(file, str(path), documents)


class YamlDocumentError(ValueError):
    """Text that is not a YAML document; `line` and `column` say where in the file, from 1.

    `column` is 0 if the whole document is meant.
    """

    def __init__(self, problem: str, line: int, column: int = 0) -> None:
        super().__init__(problem)
        self.line = line
        self.column = column


class YamlDocuments:
    """Reads YAML documents: line by line where that is exact (plain_yaml.py), else by libyaml.

    `lists`: whether the items of a List as kubectl writes it are yielded in its place, one after
    the other, so that a List of any size takes the memory of its lines. The returned values are
    shared between documents and must not be changed.
    """

    def __init__(self, *, lists: bool = False) -> None:
        self.lists = lists
        self._plain = PlainLines(self._read_piece)
        self._pieces: dict[str, Any] = {}
        self._name = self._where = ""

    def read(self, lines: Iterable[str], name: str = "") -> Iterator[tuple[int, Any]]:
        """Yield each document that is not empty, with the number of its first line.

        Raises YamlDocumentError, and TraceError for a document beyond the bounds.
        """
        first, document, directives, size = 1, list[str](), False, 0
        same: dict[str, str] = {}  # most lines of a large document occur many times
        self._name = name
        for number, text in enumerate(lines, 1):
            if text[:3] == "---" and _MARK.match(text.rstrip("\r\n")):
                yield from self._document(first, document, directives)
                first, document, directives = number, [" " * 3 + text[3:]], False
                size = 0
            elif text[:3] == "..." and _END.match(text):
                yield from self._document(first, document, directives)
                first, document, directives, size = number + 1, [], False, 0
            else:
                directives = directives or text[:1] == "%"
                document.append(same.setdefault(text, text))
                size += len(text)
                bounds.check_object(size, f"{name}, line {first}")
        yield from self._document(first, document, directives)

    def _document(self, first: int, lines: list[str], whole: bool) -> Iterator[tuple[int, Any]]:
        if not any(line.strip() and line.lstrip()[0] not in "#%" for line in lines):
            return
        self._where = f"{self._name}, line {first}"
        items = 0
        try:
            if whole:
                raise CutError
            if self.lists and lines[0].startswith("apiVersion"):
                with contextlib.suppress(CutError):
                    for index, value in self._plain.items(lines):
                        yield first + index, value
                        items += 1
                    return
            if not items:
                yield first, self._plain.read(lines)
                return
        except TraceError:
            raise
        except (ValueError, yaml.YAMLError):
            pass  # the same error again by libyaml, which knows its line, or none
        value = _load("".join(lines), first, self._where)
        if items:
            if list_items(value) is None:
                raise YamlDocumentError("has items and is not a List", first)
            value["items"] = value["items"][items:]
        yield first, value

    def _read_piece(self, text: str) -> Any:
        try:
            return self._pieces[text]
        except KeyError:
            pass
        value = bounds.yaml_value(text, self._where)
        if len(self._pieces) >= _CACHED_MAX:
            self._pieces.clear()
        self._pieces[text] = value
        return value


def yaml_values(
    file: BinaryIO, name: str, documents: YamlDocuments | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield each document of a YAML file with "FILE, line N". Raises TraceError."""
    try:
        lines = bounds.text_lines(file, name)
        for line, document in (documents or YamlDocuments()).read(lines, name):
            yield f"{name}, line {line}", document
    except YamlDocumentError as error:
        where = f"{name}, line {error.line}"
        where += f", column {error.column}" if error.column else ""
        raise TraceError(where, f"is not YAML: {error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(name, f"is not UTF-8: {error}") from error


def _load(text: str, first: int, where: str) -> Any:
    try:
        return bounds.yaml_value(text, where)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "not a document"
        problem += _hint(text)
        if mark is None:
            raise YamlDocumentError(problem, first) from error
        raise YamlDocumentError(problem, first + mark.line, mark.column + 1) from error
    except TraceError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise YamlDocumentError(f"{error}{_hint(text)}", first) from error


def _hint(text: str) -> str:
    """Return what to do about a document that is a template, "" for others."""
    return "; it has {{ }}: render a template first, as helm template does" if "{{" in text else ""


def json_values(file: BinaryIO, name: str, *, lists: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield each value with "FILE, line N". Memory is bounded by the largest value.

    There may be one value a line, values over many lines, or values end to end, as
    `kubectl get -w -o json` prints them. `lists`: whether the items of a large List are yielded in
    its place. Raises TraceError with the first line of a value that is not JSON; CutShortError if
    the last value is not complete.
    """
    pending, counted, first, depth, size = list[bytes](), 0, 1, 0, 0
    for number, line in enumerate(bounds.lines(file, name), 1):
        if not pending:
            if line.isspace():
                continue
            first, counted, depth, size = number, 0, 0, 0
            where = f"{name}, line {first}"
            if lists and (items := _list_items(line, where)) is not None:
                yield from items
                continue
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError:
                pass
            else:
                bounds.check_json(line, where)
                yield where, value
                continue
        pending.append(line)
        size += len(line)
        if size > bounds.bounds().object_bytes:
            bounds.check_object(size, where)
        # A value that kubectl prints ends with the next line that is not indented. One that ends on
        # an indented line is read together with the next value.
        if line[:1] in _INDENTS:
            continue
        depth += _levels_opened(pending[counted:])
        counted = len(pending)
        if depth <= 0:
            yield from _joined(pending, where, lists)
            pending.clear()
    if pending:
        if depth + _levels_opened(pending[counted:]) > 0:
            raise CutShortError(where, "a JSON value is not complete")
        yield from _joined(pending, where, lists)


def _levels_opened(lines: list[bytes]) -> int:
    """Return by how many levels the lines end deeper than they begin."""
    read = bounds.brackets(b"".join(lines))
    return read.count(b"[") - read.count(b"]")


def _joined(lines: list[bytes], where: str, lists: bool) -> Iterator[tuple[str, Any]]:
    data = b"".join(lines)
    if lists and (items := _list_items(data, where)) is not None:
        return items
    bounds.check_json(data, where)
    return _values(data, where)


def _list_items(data: bytes, where: str) -> Iterator[tuple[str, Any]] | None:
    """Return the items of a List, read one by one; None for a smaller value, and any other.

    As Python's objects a List takes ten times the size of its text, so that one item is read at a
    time. Where items begin and end is found by the standard library's scanner, whose values are
    dropped at once. It accepts more than JSON: each item is read again by orjson.
    """
    if len(data) < _LARGE or not data.lstrip().startswith(b"{"):
        return None
    bounds.check_json(data, where)
    try:
        text = data.decode()
        spans, rest = _item_spans(text)
        skeleton = orjson.loads(rest)
    except (ValueError, RecursionError):  # the same error again where the value is read as a whole
        return None
    if list_items(skeleton) is None:
        return None

    def items() -> Iterator[tuple[str, Any]]:
        for index, (begin, end) in enumerate(spans):
            place = f"{where}, items[{index}]"
            try:
                item = orjson.loads(text[begin:end])
            except orjson.JSONDecodeError as error:
                raise TraceError(place, f"is not JSON: {error}") from error
            for completed in list_items({**skeleton, "items": [item]}) or ():
                yield place, completed

    return items()


def _item_spans(text: str) -> tuple[list[tuple[int, int]], str]:
    """Return where each item of an object's "items" begins and ends, and the object without items.

    Raises ValueError for any other text, such as an empty List.
    """
    at = begin = _start_of_items(text)
    spans = list[tuple[int, int]]()
    while True:
        item, end = _DECODER.raw_decode(text, at)
        if not isinstance(item, dict):
            raise ValueError("an item is not an object")
        spans.append((at, end))
        at = _after_space(text, end)
        if text[at : at + 1] == "]":
            break
        at = _after(text, at, ",")
    rest = text[at:]
    if '"items"' in rest:
        raise ValueError("the object may have its items twice")
    return spans, text[:begin] + rest


def _start_of_items(text: str) -> int:
    """Return where the first item of an object's "items" begins. Raises ValueError without one."""
    at = _after(text, _after_space(text, 0), "{")
    while True:
        key, at = _DECODER.raw_decode(text, at)
        at = _after(text, _after_space(text, at), ":")
        if key == "items":
            return _after(text, at, "[")
        _, at = _DECODER.raw_decode(text, at)
        at = _after(text, _after_space(text, at), ",")


def _after(text: str, at: int, mark: str) -> int:
    """Return the place behind `mark`, which stands at `at`, and behind space. Raises ValueError."""
    if text[at : at + 1] != mark:
        raise ValueError(f"no {mark} at {at}")
    return _after_space(text, at + 1)


def _values(data: bytes, where: str) -> Iterator[tuple[str, Any]]:
    try:
        yield where, orjson.loads(data)
        return
    except orjson.JSONDecodeError as error:
        problem = str(error)
    try:
        text = data.decode()
        at = _after_space(text, 0)
        while at < len(text):
            value, at = _DECODER.raw_decode(text, at)
            yield where, value
            at = _after_space(text, at)
    except ValueError as error:
        raise TraceError(where, f"is not JSON: {problem}") from error


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at
