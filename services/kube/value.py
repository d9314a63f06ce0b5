"""Values of which a replay makes several per pod: frozen for the type checker only, and made fast.

Pods are such values, and the steps that the scheduler sends its queue. A frozen dataclass sets each
field by a call when one is made, which takes two to three times as long as a plain one. Here only
the type checker refuses a change.
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
