"""The YAML that kubectl writes, read line by line: exact, or refused so that libyaml reads it.

libyaml's C parser makes a Python object of every event, and PyYAML another of every node, before
there is a value: 48 MB of pods take minutes and 2 GB. Nearly every line of such a file is a key, a
key with a value or an item of a sequence, and most lines occur many times. So a line is read once,
into a token, and a document is made of tokens.

Exact means: what is read here is what libyaml reads. The structure is cut
only at lines that begin with a key or "- " at the indentation of the block that they belong to, and
a value is taken from a line only where the next line is not indented further. All else (block
scalars, values of several lines or with escapes, brackets, tags, comments behind a value) is a
piece, which libyaml reads by itself: an open quote or bracket, or an alias whose anchor is in
another piece, fails there, and the caller reads the whole document by libyaml. A piece with an
anchor is never cut off, since its scope is the whole document.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import yaml

from replay.bounds import KubernetesYamlLoader

_LINE = re.compile(r"\A( *)(- )?(?:([A-Za-z][A-Za-z0-9_./-]{0,200}):(?: +|\Z))?(.*)\Z", re.DOTALL)
_ASCII = re.compile(r"[ -~]*\Z")
_QUOTED = re.compile(r"""(?:"([^"\\]*)"|'([^']*)')\Z""")
_PLAIN_FIRST = re.compile(r"[A-Za-z0-9/._+~$(^;\\]|-[^ ]")
_WORDS = frozenset({"y", "n", "yes", "no", "true", "false", "on", "off", "null"})
"""Keys that YAML 1.1 does not read as strings, in lower case."""
_EMPTY: dict[str, Any] = {"{}": {}, "[]": []}
_RESOLVERS: dict[Any, list[tuple[str, re.Pattern[str]]]] = (
    KubernetesYamlLoader.yaml_implicit_resolvers
)
_DEPTH_MAX: Final = 40
_CACHED_MAX: Final = 1 << 17
_WITHIN = frozenset({" ", "\n", "\r", "#", ""})
"""How lines begin that continue an item at the first column."""
_LIST_HEAD = ("apiVersion: v1", "items:")


class CutError(ValueError):
    """The lines cannot be cut into pieces that mean the same by themselves."""


class _Mark:
    """A marker in place of a line's value."""

    __slots__ = ()


_NOTHING: Final = _Mark()
"""No value on the line."""
_PIECE: Final = _Mark()
"""A value that libyaml has to read."""

_Token = tuple[int, bool, str | None, Any]
"""Indentation, whether "- " follows it, the key or None, and the value of a line."""
_BLANK: Final[_Token] = (-1, False, None, _NOTHING)


class PlainLines:
    """Reads lines of documents; what repeats is read once.

    `read_piece` reads a text by libyaml; it raises ValueError or yaml.YAMLError. Values are shared
    between the results and must not be changed.
    """

    def __init__(self, read_piece: Callable[[str], Any]) -> None:
        self._read_piece = read_piece
        self._tokens: dict[str, _Token] = {}
        self._lines: Sequence[str] = ()
        self._document: list[_Token] = []

    def read(self, lines: Sequence[str]) -> Any:
        """Return the mapping that the lines are. Raises CutError, ValueError, yaml.YAMLError."""
        self._open(lines)
        at = self._next(0)
        value, at = self._mapping(at, 0, 0)
        self._check_end(at)
        return value

    def items(self, lines: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Yield the items of a List as kubectl writes it, each with the index of its first line.

        One item is in memory at a time. Raises CutError if the lines are not such a List, and as
        `read` does; the items before that are right if libyaml reads the document at all.
        """
        head = [line.rstrip() for line in lines[:2]]
        if head != list(_LIST_HEAD) or len(lines) == 2 or lines[2][:2] != "- ":
            raise CutError
        first, at = 2, 3
        while first < len(lines) and lines[first][:2] == "- ":
            while at < len(lines) and lines[at][:1] in _WITHIN:
                at += 1
            self._open(lines[first:at])
            value, end = self._item(0, 0, 0)
            self._check_end(end)
            if not (isinstance(value, dict) and "kind" in value and "apiVersion" in value):
                raise CutError
            yield first, value
            first, at = at, at + 1
        rest = self.read(lines[first:])
        if rest.keys() & {"items", "apiVersion"} or not str(rest.get("kind", "")).endswith("List"):
            raise CutError

    def _open(self, lines: Sequence[str]) -> None:
        if len(self._tokens) > _CACHED_MAX:
            self._tokens.clear()
        tokens, document = self._tokens, list[_Token]()
        for line in lines:
            token = tokens.get(line)
            if token is None:
                tokens[line] = token = _token(line.rstrip("\r\n"), self._read_piece)
            document.append(token)
        self._lines, self._document = lines, document

    def _check_end(self, at: int) -> None:
        if at < len(self._document):
            raise CutError

    def _next(self, at: int) -> int:
        """Return the index of the first line from `at` on that is not blank."""
        document = self._document
        while at < len(document) and document[at] is _BLANK:
            at += 1
        return at

    def _mapping(self, at: int, indent: int, depth: int) -> tuple[dict[str, Any], int]:
        """Read the keys at `indent` from the line `at` on; return them, and the line after."""
        result: dict[str, Any] = {}
        document = self._document
        while at < len(document):
            here, is_item, key, value = document[at]
            if here < indent or is_item:
                break
            if here > indent or key is None:
                raise CutError
            result[key], at = self._value(at, indent, value, depth)
        return result, at

    def _value(self, at: int, indent: int, value: Any, depth: int) -> tuple[Any, int]:
        """Read the value of the key of line `at`; return it, and the line after it."""
        document = self._document
        after = at + 1
        if after < len(document) and document[after] is _BLANK:
            after = self._next(after)
        inner, is_item, key, _ = document[after] if after < len(document) else _BLANK
        if value is _NOTHING:
            if inner < indent or (inner == indent and not is_item):
                return None, after
            if (is_item or key is not None) and depth < _DEPTH_MAX:
                with contextlib.suppress(CutError):
                    return self._collection(after, indent, depth + 1)
        elif value is not _PIECE and inner <= indent:
            return value, after
        piece, after = self._piece(at, indent)
        [(_, content)] = piece.items() if isinstance(piece, dict) and len(piece) == 1 else _cut()
        return content, after

    def _collection(self, at: int, indent: int, depth: int) -> tuple[Any, int]:
        """Read the mapping or sequence that begins in line `at`, of a key at `indent`."""
        inner, is_item, _, _ = self._document[at]
        read = self._sequence if is_item else self._mapping
        content, after = read(at, inner, depth)
        if after < len(self._document) and self._document[after][0] > indent:
            raise CutError
        return content, after

    def _sequence(self, at: int, indent: int, depth: int) -> tuple[list[Any], int]:
        """Read the items at `indent` from the line `at` on; return them, and the line after."""
        result = []
        document = self._document
        while at < len(document):
            here, is_item, _, _ = document[at]
            if here < indent or (here == indent and not is_item):
                break
            if here > indent:
                raise CutError
            item, at = self._item(at, indent, depth)
            result.append(item)
        return result, at

    def _item(self, at: int, indent: int, depth: int) -> tuple[Any, int]:
        """Read the item of line `at`; return it, and the line after it."""
        document = self._document
        _, _, key, value = document[at]
        after = self._next(at + 1)
        if key is not None and depth < _DEPTH_MAX:
            with contextlib.suppress(CutError):
                return self._item_mapping(at, key, indent + 2, depth + 1)
        is_scalar = key is None and value is not _PIECE
        if is_scalar and (after == len(document) or document[after][0] <= indent):
            return value, after
        piece, after = self._piece(at, indent)
        [item] = piece if isinstance(piece, list) and len(piece) == 1 else _cut()
        return item, after

    def _item_mapping(
        self, at: int, key: str, indent: int, depth: int
    ) -> tuple[dict[str, Any], int]:
        """Read a mapping whose first key stands behind "- " in line `at`; its keys: at `indent`."""
        document = self._document
        value = document[at][3]
        first, after = self._value(at, indent, value, depth)
        if after == len(document) or document[after][0] < indent:
            return {key: first}, after
        rest, after = self._mapping(after, indent, depth)
        if after < len(document) and document[after][0] >= indent:
            raise CutError
        return {key: first, **rest}, after

    def _piece(self, at: int, indent: int) -> tuple[Any, int]:
        """Read the block of line `at` by libyaml: up to the next line that is not deeper."""
        document, after = self._document, at + 1
        while after < len(document) and (document[after] is _BLANK or document[after][0] > indent):
            after += 1
        first = self._lines[at]
        if document[at][0] < indent:  # the item of a sequence that begins with this key
            first = " " * indent + first[indent:]
        text = "".join((first, *self._lines[at + 1 : after]))
        if "&" in text:  # perhaps an anchor, which has the whole document as its scope
            raise CutError
        return self._read_piece(text), self._next(after)


def _cut() -> Any:
    raise CutError


def _token(line: str, read_piece: Callable[[str], Any]) -> _Token:
    """Return what a line means by itself."""
    [(spaces, dash, key, rest)] = _LINE.findall(line)  # it matches any line, as a whole
    key, rest = key or None, rest.rstrip(" ")
    if not dash and key is None and (not rest or rest[0] == "#"):
        return _BLANK
    indent = len(spaces)
    if key is not None and key.lower() in _WORDS:
        return indent, bool(dash), None, _PIECE
    if not _ASCII.match(line):  # a tab, or characters that YAML may refuse
        return indent, bool(dash), key, _PIECE
    if not rest:
        return indent, bool(dash), key, _PIECE if key is None else _NOTHING
    return indent, bool(dash), key, _scalar(rest, read_piece)


def _scalar(text: str, read_piece: Callable[[str], Any]) -> Any:
    """Return the value of a scalar that is whole on its line, else _PIECE."""
    if text in _EMPTY:
        return _EMPTY[text]
    if quoted := _QUOTED.match(text):
        return quoted[1] if quoted[1] is not None else quoted[2]
    if not _PLAIN_FIRST.match(text) or ": " in text or " #" in text or text[-1] == ":":
        return _PIECE
    resolvers = (*_RESOLVERS.get(text[0], ()), *_RESOLVERS.get(None, ()))
    if not any(pattern.match(text) for _, pattern in resolvers):
        return text
    try:
        return read_piece(text)
    except (ValueError, yaml.YAMLError):
        return _PIECE
