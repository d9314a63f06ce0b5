"""Resolves YAML scalars without quotes as kubectl does: null, booleans, numbers, strings.

kubectl, kube-scheduler and the kubelet read YAML with sigs.k8s.io/yaml. It uses YAML 1.1 for
booleans (`yes`, `off`, `y`), Go's literals for integers (`0x1f`, `017`, `0o17`, `0b11`), `1e3` for
floating point, and allows underscores anywhere in a number. Base 60 numbers (`12:30:45`) and times
are strings. A value then passes through JSON, where a number has no type: `1e3` is 1000.

A scalar is resolved in time linear in its length.

Source: sigs.k8s.io/yaml v1.6 goyaml.v2/resolve.go, resolve; yaml.go, convertToJSONableObject.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import yaml

_L = TypeVar("_L", bound=type[Any])
_TAG = "tag:yaml.org,2002:"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {
    form: value
    for value, words in ((True, ("y", "yes", "true", "on")), (False, ("n", "no", "false", "off")))
    for word in words
    for form in (word, word.capitalize(), word.upper())
}
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|([1-9][0-9]*|0))")
_BASES = (16, 2, 8, 10)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = {
    f"{sign}.{form}": value
    for sign, value in (("", math.inf), ("+", math.inf), ("-", -math.inf))
    for form in ("inf", "Inf", "INF")
} | dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan)
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that reorder text on a terminal; PyYAML escapes only control characters."""
_PLAIN_MAX = 1e21
"""From this value on, Go writes a float in JSON with an exponent; no integer field accepts that."""


def as_kubectl(loader: _L) -> _L:
    """Change a loader class of PyYAML to resolve scalars as kubectl does; return it."""
    loader.yaml_implicit_resolvers = _RESOLVERS
    for name, form in _FORMS.items():
        loader.add_constructor(_TAG + name, _constructor(form, name))
    loader.construct_mapping = _construct_mapping
    return loader


class _Dumper(yaml.SafeDumper):
    """Quotes strings that kubectl, or YAML 1.1, would otherwise not read as strings."""


def written(value: object) -> str:
    """Return data as YAML that kubectl reads as the same data, safe for a terminal."""
    text = str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True))
    return _BIDI.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Return the node of a text; it has double quotes if it has characters to escape."""
    style = '"' if _BIDI.search(text) else None
    return dumper.represent_scalar(f"{_TAG}str", text, style)


_Dumper.add_representer(str, _text)


def _construct_mapping(
    loader: yaml.SafeLoader, node: yaml.MappingNode, deep: bool = False
) -> dict[Any, Any]:
    """Return a mapping with strings as keys, as in JSON."""
    mapping = yaml.SafeLoader.construct_mapping(loader, node, deep)
    if {*map(type, mapping)} <= {str}:
        return mapping
    return {key if type(key) is str else _key(key, node): value for key, value in mapping.items()}


def _key(key: object, node: yaml.MappingNode) -> str:
    if isinstance(key, bool):
        return str(key).lower()
    if isinstance(key, int | float):
        return f"{key}"
    raise yaml.constructor.ConstructorError(
        None, None, f"a key is a {type(key).__name__}, not a text", node.start_mark
    )


class _Null:
    """Matches the texts of null; PyYAML calls `match` as that of a compiled pattern."""

    def match(self, text: str) -> bool:
        return text in _NULLS

    def value(self, text: str) -> None:  # noqa: ARG002 - there is one
        return None


class _Bool:
    def match(self, text: str) -> bool:
        return text in _BOOLS

    def value(self, text: str) -> bool:
        return _BOOLS[text]


class _Integer:
    def match(self, text: str) -> bool:
        return _INTEGER.fullmatch(text.replace("_", "")) is not None

    def value(self, text: str) -> int:
        """Return the number. Raises ValueError if it has more digits than Python accepts."""
        match = _INTEGER.fullmatch(text.replace("_", ""))
        assert match is not None  # noqa: S101 - it matches
        sign, *digits = match.groups()
        [number] = [int(text, base) for text, base in zip(digits, _BASES, strict=True) if text]
        return -number if sign == "-" else number


class _Float:
    def match(self, text: str) -> bool:
        if text in _SPECIAL:
            return True
        plain = text if text[:1] == "." else text.replace("_", "")
        return _FLOAT.fullmatch(plain) is not None and math.isfinite(float(plain))

    def value(self, text: str) -> float | int:
        number = _SPECIAL.get(text)
        if number is None:
            number = float(text.replace("_", ""))
        if math.isfinite(number) and number.is_integer() and abs(number) < _PLAIN_MAX:
            return int(number)
        return number


_FORMS: Mapping[str, Any] = {"null": _Null(), "bool": _Bool(), "int": _Integer(), "float": _Float()}
_FIRST = {
    "null": ("~", "n", "N", ""),
    "bool": "yYnNtTfFoO",
    "int": "-+0123456789",
    "float": "-+.0123456789",
}
_RESOLVERS: dict[str, list[tuple[str, Any]]] = {"<": [(_TAG + "merge", re.compile(r"<<\Z"))]}
for _name, _form in _FORMS.items():
    for _first in _FIRST[_name]:
        _RESOLVERS.setdefault(_first, []).append((_TAG + _name, _form))
_Dumper.yaml_implicit_resolvers = {
    first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()), *_RESOLVERS.get(first, ())]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *_RESOLVERS}
}


def _constructor(form: Any, name: str) -> Any:
    """Return the constructor of scalars with a tag, resolved or explicit (`!!int "017"`)."""

    def construct(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> object:
        text = loader.construct_scalar(node)
        is_number = name == "float" and _Integer().match(text)
        if not (form.match(text) or is_number):
            problem = f"a value is not of its type: {text:.40} is not {name}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return _Integer().value(text) if is_number else form.value(text)

    return construct
