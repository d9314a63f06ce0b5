"""The one place that compiles a kernel to machine code.

Only modules of the scheduler's process import this; numba takes 0.15 s to import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

_P = ParamSpec("_P")
_R = TypeVar("_R")


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return `function` compiled on its first call, and kept in numba's cache on disk."""
    return cast("Callable[_P, _R]", numba.njit(cache=True, nogil=True)(function))


def inlined(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return `function` to be inlined into the kernels that call it; define it before them."""
    return cast("Callable[_P, _R]", numba.njit(inline="always")(function))
