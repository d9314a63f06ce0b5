"""Values that are made several times a pod: frozen to the type checker, and made fast.

Pods are such values, and what the scheduler tells its queue of them. A frozen dataclass sets each
of its fields by a call when one is made, and takes two to three times as long as a plain one. Here
the type checker alone refuses a change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(*, kw_only: bool = False) -> Callable[[type[_T]], type[_T]]:
    """Make a class of values: a dataclass with slots, equal and hashed by its fields."""
    return dataclass(slots=True, unsafe_hash=True, kw_only=kw_only)
