"""Fields of objects by their paths: -o custom-columns, --sort-by and --field-selector.

An API server supports a few field selectors for each type; here any field of -o json can be used.

Source: kubectl v0.34 pkg/cmd/get/customcolumn.go, NewCustomColumnsPrinterFromSpec, printOneObject;
pkg/cmd/get/sorter.go, isLess (numbers and quantities by their values, other texts with the numbers
in them by value; an object without the field comes first); apimachinery v0.34
pkg/fields/selector.go, ParseSelector.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from replay.kube.changes import time_ns
from replay.results.kubectl.jsonpath import Field, JSONPathError, text_of
from replay.results.kubectl.rows import NONE
from services.kube.quantity import NANO, QuantityError, parse

_NUMBERS = re.compile(r"(\d+)")
_TERM = re.compile(r"\s*([^=!\s]+?)\s*(==|=|!=)\s*(.*?)\s*")
SortKey = tuple[int, Any]
_ABSENT, _NUMBER, _TEXT = range(3)


@dataclass(frozen=True, slots=True)
class CustomColumns:
    """Columns as HEADER:PATH, with commas between."""

    headers: Sequence[str]
    fields: Sequence[Field]

    @classmethod
    def parse(cls, text: str) -> CustomColumns:
        """Parse HEADER:PATH,HEADER:PATH. Raises JSONPathError."""
        pairs = [pair.partition(":") for pair in text.split(",")]
        for header, _, path in pairs:
            if not header or not path:
                raise JSONPathError(
                    f"{text!r} has no HEADER:PATH in each column; "
                    "write NAME:.metadata.name,NODE:.spec.nodeName"
                )
        return cls([header for header, _, _ in pairs], [Field(path) for _, _, path in pairs])

    def row(self, item: Any) -> list[str]:
        """Return the cells of an object, as JSON values; "<none>" for an absent field."""
        columns = (field.values(item) for field in self.fields)
        return [",".join(map(text_of, values)) if values else NONE for values in columns]


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Fields and the values that they must, or must not, have; an absent field has the value ""."""

    terms: Sequence[tuple[Field, bool, str]] = ()

    @classmethod
    def parse(cls, text: str) -> FieldSelector:
        """Parse FIELD=VALUE and FIELD!=VALUE, separated by commas. Raises JSONPathError."""
        terms = []
        for term in filter(None, text.split(",")):
            match = _TERM.fullmatch(term)
            if match is None:
                raise JSONPathError(
                    f"{term!r} is not FIELD=VALUE or FIELD!=VALUE; write status.phase=Failed"
                )
            terms.append((Field(match[1]), match[2] != "!=", match[3]))
        return cls(tuple(terms))

    def matches(self, item: Any) -> bool:
        """Return whether an object, as JSON values, meets every requirement."""
        return all(
            (",".join(map(text_of, field.values(item))) == text) is is_wanted
            for field, is_wanted, text in self.terms
        )


def sorted_by(
    field: Field, items: Sequence[Any], mapping: Callable[[Any], Any]
) -> tuple[list[Any], bool]:
    """Return the objects sorted by a field, and whether any object has that field.

    `mapping` converts an object to JSON values.
    """
    keyed = [(_key(field.values(mapping(item))), item) for item in items]
    keyed.sort(key=lambda pair: pair[0])
    return [row for _, row in keyed], any(key[0] != _ABSENT for key, _ in keyed)


def _key(values: Sequence[Any]) -> SortKey:
    if not values:
        return _ABSENT, 0
    value = values[0]
    if isinstance(value, int | float):
        return _NUMBER, value * NANO
    text = text_of(value)
    at_ns = time_ns(text)
    if at_ns is not None:
        return _NUMBER, at_ns
    try:
        return _NUMBER, parse(text).nano
    except QuantityError:
        return _TEXT, _natural(text)


def _natural(text: str) -> list[tuple[str, tuple[int, str]]]:
    """Return a sort key that puts "web-2" before "web-10"."""
    parts = _NUMBERS.split(text)
    digits = [part.lstrip("0") for part in parts[1::2]]
    numbers = [*((len(digit), digit) for digit in digits), (-1, "")]
    return list(zip(parts[::2], numbers, strict=True))
