r"""kubectl's templates of -o jsonpath: text, and paths in braces.

{.a.b} and {$.a.b} print a value; several results are separated by spaces, and maps and lists are
printed as JSON. {range .items[*]}...{end} repeats its body with paths relative to the item. {"\n"}
is literal text. A path consists of .name, ['name'], .*, ..name, [3], [-1], [1:5:2], [*], [0,2],
['a','b'] and [?(@.a == "b")]; an absent field gives no result. Text without braces is one path.

Source: client-go v0.34 util/jsonpath/parser.go and jsonpath.go; kubectl
pkg/cmd/get/customcolumn.go, RelaxedJSONPathExpression. Regular expressions are not in kubectl's
templates either.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_NAME = re.compile(r"(?:\\.|[^\s.\[\]{}()'\",:=<>!|\\])+")
_INDEX = re.compile(r"\s*(-?\d*)(?:(:)(-?\d*))?(?:(:)(-?\d*))?\s*\]")
_LITERAL = re.compile(
    r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|(-?\d+(?:\.\d+)?)|(true|false))"""
)
_OPERATOR = re.compile(r"\s*(==|!=|<=|>=|<|>)")
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}

Step = Callable[[Any, Any], Iterator[Any]]
"""Yields the results of a value; the second argument is the root."""


class JSONPathError(ValueError):
    """A template that cannot be parsed; the message gives the position."""


@dataclass(frozen=True, slots=True)
class _Path:
    is_from_root: bool
    steps: Sequence[Step]

    def results(self, value: Any, root: Any) -> list[Any]:
        results = [root if self.is_from_root else value]
        for step in self.steps:
            results = [result for item in results for result in step(item, root)]
        return results


@dataclass(slots=True)
class _Range:
    path: _Path
    body: list[str | _Path | _Range] = field(default_factory=list)


_RELAXED = re.compile(r"\{\.?([^{}]+)\}|\.?([^{}]+)")
"""Source: kubectl v0.34 pkg/cmd/get/customcolumn.go, RelaxedJSONPathExpression."""


class Template:
    """A parsed template. Raises JSONPathError for an invalid one."""

    def __init__(self, text: str) -> None:
        self._body = _Reader(text if "{" in text else f"{{.{text.lstrip('.')}}}").body()

    def render(self, root: Any) -> str:
        """Return the template's text for an object or a List, as JSON values."""
        return "".join(_rendered(self._body, root, root))


class Field:
    """A parsed path: `.a.b`, `a.b` or `{.a.b}`. Raises JSONPathError for an invalid one."""

    def __init__(self, text: str) -> None:
        match = _RELAXED.fullmatch(text.strip())
        inner = (match[1] or match[2]) if match else ""
        body = _Reader(f"{{.{inner}}}").body() if inner.strip(".") else []
        if len(body) != 1 or not isinstance(body[0], _Path):
            raise JSONPathError(f"{text!r} is not a path of fields; write .metadata.name")
        self._text, self._path = f".{inner}", body[0]

    def __str__(self) -> str:
        return self._text

    def values(self, root: Any) -> list[Any]:
        """Return the values at the path in an object (as JSON values)."""
        return self._path.results(root, root)


def _rendered(body: Sequence[str | _Path | _Range], value: Any, root: Any) -> Iterator[str]:
    for part in body:
        if isinstance(part, str):
            yield part
        elif isinstance(part, _Path):
            yield " ".join(map(text_of, part.results(value, root)))
        else:
            for item in part.path.results(value, root):
                yield from _rendered(part.body, item, root)


def text_of(value: Any) -> str:
    """Return a JSON value as a template prints it: a string has no quotes."""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def body(self) -> list[str | _Path | _Range]:
        stack: list[tuple[int, list[str | _Path | _Range]]] = [(0, [])]
        while self._at < len(self._text):
            begin = self._text.find("{", self._at)
            if begin != self._at:
                end = len(self._text) if begin < 0 else begin
                stack[-1][1].append(self._text[self._at : end])
                self._at = end
                continue
            self._at += 1
            self._action(begin, stack)
        if len(stack) > 1:
            raise self._error("{range} has no {end}", stack[-1][0])
        return stack[0][1]

    def _action(self, begin: int, stack: list[tuple[int, list[str | _Path | _Range]]]) -> None:
        self._spaces()
        if self._takes_word("end"):
            if len(stack) == 1:
                raise self._error("{end} has no {range}", begin)
            stack.pop()
        elif self._takes_word("range"):
            self._spaces()
            made = _Range(self._path())
            stack[-1][1].append(made)
            stack.append((begin, made.body))
        else:
            while self._text[self._at : self._at + 1] not in ("", "}"):
                literal = _LITERAL.match(self._text, self._at)
                if literal is not None and self._text[self._at] in "\"'":
                    self._at = literal.end()
                    stack[-1][1].append(str(_literal(literal)))
                else:
                    stack[-1][1].append(self._path())
                self._spaces()
        self._spaces()
        self._take("}")

    def _path(self) -> _Path:
        is_from_root = self._text.startswith("$", self._at)
        if self._text[self._at : self._at + 1] in ("$", "@"):
            self._at += 1
        elif self._text[self._at : self._at + 1] not in (".", "["):
            raise self._error("a path begins with '.', '[', '$' or '@'")
        steps: list[Step] = []
        while self._text[self._at : self._at + 1] in (".", "["):
            steps.append(self._bracket() if self._takes("[") else self._dot())
        return _Path(is_from_root, [step for step in steps if step is not _itself])

    def _dot(self) -> Step:
        self._take(".")
        is_recursive = self._takes(".")
        if self._takes("*"):
            return _recursively(_children) if is_recursive else _children
        match = _NAME.match(self._text, self._at)
        if match is None:
            if is_recursive:
                return _recursively(self._bracket()) if self._takes("[") else _descendants
            return _itself
        self._at = match.end()
        step = _field(re.sub(r"\\(.)", r"\1", match[0]))
        return _recursively(step) if is_recursive else step

    def _bracket(self) -> Step:
        self._spaces()
        if self._takes("?("):
            step = self._filter()
            self._spaces()
            self._take(")")
            self._spaces()
            self._take("]")
            return step
        if self._takes("*"):
            self._spaces()
            self._take("]")
            return _children
        begin, steps = self._at, list[Step]()
        while True:
            match = _LITERAL.match(self._text, self._at)
            slice_ = _INDEX.match(self._text, self._at)
            if slice_ is not None and (slice_[1] or slice_[2]):
                self._at = slice_.end()
                return _union([*steps, _slice(slice_)])
            if match is None or match[4] or "." in (match[3] or ""):
                raise self._error("'[' wants a number, a slice, a quoted name, * or ?()", begin)
            self._at = match.end()
            steps.append(_field(str(_literal(match))) if match[3] is None else _at(int(match[3])))
            self._spaces()
            if self._takes("]"):
                return _union(steps)
            self._take(",")

    def _filter(self) -> Step:
        operand = self._operand()
        match = _OPERATOR.match(self._text, self._at)
        if match is None:
            return _where(lambda item, root: bool(operand(item, root)))
        self._at = match.end()
        compared, right = _COMPARED[match[1]], self._operand()

        def holds(item: Any, root: Any) -> bool:
            pairs = zip(operand(item, root), right(item, root), strict=False)
            try:
                return any(compared(one, other) for one, other in pairs)
            except TypeError:
                return False

        return _where(holds)

    def _operand(self) -> Callable[[Any, Any], list[Any]]:
        self._spaces()
        match = _LITERAL.match(self._text, self._at)
        if match is None:
            return self._path().results
        self._at = match.end()
        value = _literal(match)
        return lambda _item, _root: [value]

    def _spaces(self) -> None:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1

    def _takes(self, text: str) -> bool:
        is_next = self._text.startswith(text, self._at)
        self._at += len(text) if is_next else 0
        return is_next

    def _takes_word(self, word: str) -> bool:
        after = self._text[self._at + len(word) : self._at + len(word) + 1]
        return (after.isspace() or after == "}") and self._takes(word)

    def _take(self, text: str) -> None:
        if not self._takes(text):
            raise self._error(f"{text!r} is missing")

    def _error(self, problem: str, at: int | None = None) -> JSONPathError:
        at = self._at if at is None else at
        rest = self._text[at : at + 20] or "the end"
        return JSONPathError(f"the jsonpath template: {problem}, at character {at + 1}: {rest}")


def _literal(match: re.Match[str]) -> str | float | bool:
    if match[3] is not None:
        return float(match[3]) if "." in match[3] else int(match[3])
    if match[4] is not None:
        return match[4] == "true"
    text = match[1] if match[1] is not None else match[2]
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)


def _itself(value: Any, _root: Any) -> Iterator[Any]:
    yield value


def _field(name: str) -> Step:
    def step(value: Any, _root: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _at(index: int) -> Step:
    def step(value: Any, _root: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _slice(match: re.Match[str]) -> Step:
    first, second, last, third, by = match.groups()
    if not second:
        return _at(int(first))
    bounds = slice(*(int(bound) if bound else None for bound in (first, last, by)))
    if third and by and int(by) <= 0:
        raise JSONPathError(f"the jsonpath template: the step {by} of a slice is not positive")

    def step(value: Any, _root: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[bounds]

    return step


def _children(value: Any, _root: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _descendants(value: Any, root: Any) -> Iterator[Any]:
    yield value
    for child in _children(value, root):
        yield from _descendants(child, root)


def _recursively(step: Step) -> Step:
    def found(value: Any, root: Any) -> Iterator[Any]:
        for descendant in _descendants(value, root):
            yield from step(descendant, root)

    return found


def _union(steps: Sequence[Step]) -> Step:
    def step(value: Any, root: Any) -> Iterator[Any]:
        for step in steps:
            yield from step(value, root)

    return step


def _where(holds: Callable[[Any, Any], bool]) -> Step:
    def step(value: Any, root: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from (item for item in value if holds(item, root))

    return step
