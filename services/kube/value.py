"""Values that are fast to create, and frozen only for the type checker.

They are used for values that a replay creates for every pod, such as pods and the operations that
the scheduler sends to its queue. Creating an instance of a frozen dataclass takes two to three
times as long as of a plain one, because it sets each field by a call. Here, only the type checker
prevents changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(*, kw_only: bool = False) -> Callable[[type[_T]], type[_T]]:
    """Return a decorator for a dataclass with slots, compared and hashed by its fields."""
    return dataclass(slots=True, unsafe_hash=True, kw_only=kw_only)
