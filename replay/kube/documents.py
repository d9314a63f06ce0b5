"""The values in JSON and YAML files, each with its file and line; gzip and zstd are removed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import yaml

from replay import bounds
from replay.errors import TraceError
from replay.trace.files import CutShortError, open_plain

_MARK = re.compile(r"---(?:[ \t].*)?$|---$")
_END = re.compile(r"\.\.\.\s*$")
_KEY = re.compile(r"( *)([A-Za-z][A-Za-z0-9_./-]*):(?: (.*))?$")
# Plain scalars that are strings in every YAML schema: never a number, a time or a boolean.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*$")
_WORDS = frozenset({"y", "n", "yes", "no", "true", "false", "on", "off", "null"})
_CACHED_MAX = 8192
_CUT_KEYS = frozenset({"metadata"})
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"\s*")


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
            yield from json_values(file, str(path))
        else:
            yield from yaml_values(file, str(path), documents)


class YamlDocumentError(ValueError):
    """Text that is not a YAML document; `line` and `column` say where in the file, from 1.

    `column` is 0 where the whole document is meant.
    """

    def __init__(self, problem: str, line: int, column: int = 0) -> None:
        super().__init__(problem)
        self.line = line
        self.column = column


class _CutError(ValueError):
    """The document cannot be cut into blocks; it is read whole."""


class YamlDocuments:
    """Reads YAML documents, fast where their blocks repeat.

    The manifests of thousands of pods differ in a name or two. A document is therefore cut into the
    blocks of its outermost mapping, and the values of repeated blocks come from a cache. The result
    is exact: a cut is made only before a line "key:" at the mapping's indentation, each block is
    read by itself, and unless each block is a mapping of one key (an open quote, an open bracket,
    or an alias whose anchor is in another block all fail) the document is read whole. The returned
    values are shared between documents and must not be changed.
    """

    def __init__(self) -> None:
        self._cache: dict[str, Any] = {}
        self._name = self._where = ""

    def read(self, lines: Iterable[str], name: str = "") -> Iterator[tuple[int, Any]]:
        """Yield each document that is not empty, with the number of its first line.

        Raises YamlDocumentError, and TraceError for a document beyond the bounds.
        """
        first, document, directives, size = 1, list[str](), False, 0
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
                document.append(text)
                size += len(text)
                bounds.check_object(size, f"{name}, line {first}")
        yield from self._document(first, document, directives)

    def _document(self, first: int, lines: list[str], whole: bool) -> Iterator[tuple[int, Any]]:
        if not any(line.strip() and line.lstrip()[0] not in "#%" for line in lines):
            return
        self._where = f"{self._name}, line {first}"
        try:
            if whole:
                raise _CutError
            value = self._mapping(lines, 0)
        except TraceError:
            raise
        except (ValueError, yaml.YAMLError):
            value = _load("".join(lines), first, self._where)
        yield first, value

    def _mapping(self, lines: list[str], indent: int) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, rest, block in _blocks(lines, indent):
            if len(block) == 1 and _PLAIN.match(rest) and rest.lower() not in _WORDS:
                result[key] = rest
            elif key in _CUT_KEYS and not rest and indent == 0:
                result[key] = self._cut(key, block)
            else:
                result.update(self._piece("".join(block)))
        return result

    def _cut(self, key: str, block: list[str]) -> Any:
        text = "".join(block)
        if (cached := self._cache.get(text)) is not None:
            return cached[key]
        inner = next((line for line in block[1:] if line.strip()), "")
        indent = len(inner) - len(inner.lstrip(" "))
        if indent == 0:
            return self._piece(text)[key]
        try:
            return self._mapping(block[1:], indent)
        except TraceError:
            raise
        except (ValueError, yaml.YAMLError):
            return self._piece(text)[key]

    def _piece(self, text: str) -> dict[Any, Any]:
        value: dict[Any, Any] | None = self._cache.get(text)
        if value is None:
            if "&" in text:  # perhaps an anchor, which has the whole document as its scope
                raise _CutError
            value = bounds.yaml_value(text, self._where)
            if not isinstance(value, dict) or len(value) != 1:
                raise _CutError
            if len(self._cache) >= _CACHED_MAX:
                self._cache.clear()
            self._cache[text] = value
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


def _blocks(lines: list[str], indent: int) -> Iterator[tuple[str, str, list[str]]]:
    """Yield key, text after it and lines of each block at `indent`."""
    key, rest, block = "", "", list[str]()
    for text in lines:
        bare = text.rstrip("\r\n")
        match = _KEY.match(bare) if bare[indent : indent + 1].isalpha() else None
        if match and len(match[1]) == indent and match[2].lower() not in _WORDS:
            if block:
                yield key, rest, block
            key, rest, block = match[2], (match[3] or "").strip(), [text]
        elif block and (not bare[: indent + 1].strip() or bare.startswith(("-", "#"), indent)):
            # A deeper line, or a comment or an item of a sequence at the mapping's indentation.
            block.append(text)
        elif bare.strip() and not bare.lstrip().startswith("#"):
            raise _CutError
    if block:
        yield key, rest, block


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


def json_values(file: BinaryIO, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each value with "FILE, line N". Memory is bounded by the largest value.

    There may be one value a line, values over many lines, or values end to end, as
    `kubectl get -w -o json` prints them. Raises TraceError with the first line of a value that is
    not JSON; CutShortError where the last value is not complete.
    """
    pending, first, depth, size = list[bytes](), 1, 0, 0
    for number, line in enumerate(bounds.lines(file, name), 1):
        if not pending:
            if line.isspace():
                continue
            first, size = number, 0
            where = f"{name}, line {first}"
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
        bounds.check_object(size, f"{name}, line {first}")
        bare = _STRING.sub(b"", line)
        depth += bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")
        if depth <= 0:
            yield from _values(b"".join(pending), f"{name}, line {first}")
            pending.clear()
            depth = 0
    if pending:
        raise CutShortError(f"{name}, line {first}", "a JSON value is not complete")


def _values(data: bytes, where: str) -> Iterator[tuple[str, Any]]:
    bounds.check_json(data, where)
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
