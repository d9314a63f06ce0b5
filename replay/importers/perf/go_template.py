"""The small part of Go's text/template that object templates of scheduler_perf use.

Actions are fields (`{{.Index}}`), numbers, strings and calls of upstream's arithmetic functions,
nested with parentheses (`{{Mod (AddInt .Index 1) 3}}`). Anything else (conditions, loops,
pipelines) is refused by name: to leave it out would make other objects than upstream's.

Source: kubernetes v1.36 test/integration/scheduler_perf/operations.go, getTemplateFuncs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
_TOKEN = re.compile(r'\s*(\(|\)|\.[A-Za-z_]\w*|[A-Za-z_]\w*|-?\d+(?:\.\d+)?|"[^"\\]*")')
_Value = object


class TemplateError(ValueError):
    """An action that is not understood, or that cannot be computed."""


def is_template(text: str) -> bool:
    """Tell whether the text holds an action."""
    return "{{" in text


def expand(text: str, values: Mapping[str, object]) -> str:
    """Return the text with its actions replaced. Raises TemplateError, which names the action."""
    parts, end, trim = list[str](), 0, False
    for match in _ACTION.finditer(text):
        before = text[end : match.start()]
        before = before.lstrip() if trim else before
        parts.append(before.rstrip() if match[1] else before)
        if not match[2].startswith("/*"):
            parts.append(_text(_evaluate(match[2], values)))
        end, trim = match.end(), bool(match[3])
    rest = text[end:]
    parts.append(rest.lstrip() if trim else rest)
    return "".join(parts)


def _evaluate(action: str, values: Mapping[str, object]) -> _Value:
    tokens, at = list[str](), 0
    while at < len(action):
        match = _TOKEN.match(action, at)
        if match is None:
            raise TemplateError(f"the action {{{{{action}}}}} is not understood")
        tokens.append(match[1])
        at = match.end()
    try:
        value, end = _operands(tokens, 0, values)
    except IndexError as error:
        raise TemplateError(f"the action {{{{{action}}}}} is cut short") from error
    except (ValueError, ZeroDivisionError) as error:
        raise TemplateError(f"the action {{{{{action}}}}}: {error}") from error
    if end != len(tokens):
        raise TemplateError(f"the action {{{{{action}}}}}: a parenthesis is not opened")
    return value


def _operands(tokens: Sequence[str], at: int, values: Mapping[str, object]) -> tuple[_Value, int]:
    """Return the value of a call or of a single operand that begins at `at`, and where it ends."""
    name = tokens[at]
    if not name[0].isalpha():
        return _operand(tokens, at, values)
    function = _FUNCTIONS.get(name)
    if function is None:
        raise ValueError(f"no function {name!r}")
    arguments, at = list[float](), at + 1
    while at < len(tokens) and tokens[at] != ")":
        value, at = _operand(tokens, at, values)
        arguments.append(_number(value))
    return function(arguments), at


def _operand(tokens: Sequence[str], at: int, values: Mapping[str, object]) -> tuple[_Value, int]:
    symbol = tokens[at]
    if symbol == "(":
        value, at = _operands(tokens, at + 1, values)
        if at >= len(tokens) or tokens[at] != ")":
            raise ValueError("a parenthesis is not closed")
        return value, at + 1
    if symbol[0] == ".":
        if symbol[1:] not in values:
            raise ValueError(f"no value {symbol!r}")
        return values[symbol[1:]], at + 1
    if symbol[0] == '"':
        return symbol[1:-1], at + 1
    if symbol == ")" or symbol[0].isalpha():
        raise ValueError(f"{symbol!r} where a value is wanted")
    return float(symbol) if "." in symbol else int(symbol), at + 1


def _number(value: _Value) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"{value!r} is no number")


def _text(value: _Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _two(arguments: Sequence[float]) -> tuple[float, float]:
    if len(arguments) != 2:
        raise ValueError(f"{len(arguments)} arguments where two are wanted")
    return arguments[0], arguments[1]


def _difference(arguments: Sequence[float]) -> float:
    first, second = _two(arguments)
    return first - second


def _quotient(arguments: Sequence[float]) -> float:
    first, second = _two(arguments)
    return first / second


def _remainder(arguments: Sequence[float]) -> int:
    first, second = _two(arguments)
    return int(math.fmod(int(first), int(second)))


_FUNCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "AddFloat": sum,
    "AddInt": lambda arguments: int(sum(arguments)),
    "SubtractFloat": _difference,
    "SubtractInt": lambda arguments: int(_difference(arguments)),
    "MultiplyFloat": math.prod,
    "MultiplyInt": lambda arguments: int(math.prod(arguments)),
    "DivideFloat": _quotient,
    "DivideInt": lambda arguments: int(_quotient(arguments)),
    "Mod": _remainder,
}
