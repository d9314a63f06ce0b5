"""Kernels: the same function runs as plain Python at first, and compiled once it has much to do.

Importing numba takes 0.4 s of CPU, loading a compiled kernel 10 ms and compiling one 0.3 s, which a
small cluster never earns back. Both tiers give the same bits: a column's elements are numpy's
scalars in plain Python, which wrap around and round as machine code does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, ParamSpec, TypeVar, cast

import numpy as np

_P = ParamSpec("_P")
_R = TypeVar("_R")

_inlined: list[Callable[..., Any]] = []


class Kernel:
    """A function of columns and numbers, called by position.

    The first argument says how many steps a call takes: a number, or a column with a step for each
    element. `machine_code` is numba's function, None before it is wanted.
    """

    __slots__ = ("_function", "_steps", "machine_code")

    plain_steps: ClassVar[float] = 10_000
    """Each kernel takes fewer steps than this as plain Python, at about 1 us each."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.machine_code: Any = None
        self._steps = 0

    def __call__(self, *arguments: Any) -> Any:
        """Run it, compiled unless this call and those before are few steps."""
        if self.machine_code is not None and self._steps >= self.plain_steps:
            return self.machine_code(*arguments)
        first = arguments[0]
        self._steps += first if isinstance(first, int) else len(first)
        if self._steps >= self.plain_steps:
            return (self.machine_code or self._compile())(*arguments)
        with np.errstate(over="ignore"):
            return _as_from_machine_code(self._function(*arguments))

    def _compile(self) -> Any:
        """Return the compiled function, which compiles on its first call or loads from disk."""
        import numba  # noqa: PLC0415 - when needed
        from numba.extending import register_jitable  # noqa: PLC0415

        while _inlined:
            register_jitable(inline="always")(_inlined.pop())
        self.machine_code = numba.njit(cache=True, nogil=True)(self._function)
        return self.machine_code


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return `function` as a kernel; numba keeps its machine code on disk."""
    return cast("Callable[_P, _R]", Kernel(function))


def inlined(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let kernels call `function`, which is inlined into them where they are compiled."""
    _inlined.append(function)
    return function


def _as_from_machine_code(found: Any) -> Any:
    """Return numpy's scalars as Python's, as compiled functions do."""
    if isinstance(found, tuple):
        return tuple(map(_as_from_machine_code, found))
    return found.item() if isinstance(found, np.generic) else found
