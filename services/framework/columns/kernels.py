"""The loops over rows that every scheduling cycle runs: plain Python at first, compiled later.

Importing numba takes 0.4 s of CPU, loading a compiled kernel 10 ms and compiling one 0.3 s, which a
small cluster never recovers. Both tiers give the same bits: a column's elements are numpy's scalars
in plain Python, which wrap around and round as machine code does.

Each kernel has a plain twin in the property tests, which compare the two. `rows` names the rows to
compute, and results stand at the row's index. Columns are int64 unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from services.framework.columns.columns import Int64s

_P = ParamSpec("_P")
_R = TypeVar("_R")

_inlined: list[Callable[..., Any]] = []


class Kernel:
    """A function of columns and numbers, called by position.

    The first argument says how many steps a call takes: a number, or a column with a step for each
    element. `machine_code` is numba's function, None until it is needed.
    """

    __slots__ = ("_function", "_steps", "machine_code")

    plain_steps: ClassVar[float] = 10_000
    """Each kernel takes fewer steps than this as plain Python, at about 1 us each."""
    on_compiled: ClassVar[Callable[[], None] | None] = None
    """Called after a kernel was compiled, once after an install; not where it is loaded."""
    count: ClassVar[int] = 0
    """The number of kernels."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.machine_code: Any = None
        self._steps = 0
        Kernel.count += 1

    def __call__(self, *arguments: Any) -> Any:
        """Run it as plain Python until its calls have taken `plain_steps`, then compiled."""
        if self.machine_code is not None and self._steps >= self.plain_steps:
            return self.machine_code(*arguments)
        first = arguments[0]
        self._steps += first if isinstance(first, int) else len(first)
        if self._steps >= self.plain_steps:
            return self.machine_code(*arguments) if self.machine_code else self._first(arguments)
        with np.errstate(over="ignore"):
            return _as_from_machine_code(self._function(*arguments))

    def _first(self, arguments: tuple[Any, ...]) -> Any:
        """Compile the function or load it from disk, and run it."""
        code = self._compile()
        result = code(*arguments)
        if Kernel.on_compiled is not None and code.stats.cache_misses:
            Kernel.on_compiled()
        return result

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


def _as_from_machine_code(result: Any) -> Any:
    """Return numpy's scalars as Python's, as compiled functions do."""
    if isinstance(result, tuple):
        return tuple(map(_as_from_machine_code, result))
    return result.item() if isinstance(result, np.generic) else result


Int8s = NDArray[np.int8]
Int32s = NDArray[np.int32]
UInt64s = NDArray[np.uint64]

TOO_MANY_PODS = 1
UNRESOLVABLE = 1 << 62
"""Bits of a fit code; bit i + 1 is a shortage of the i-th requested resource."""

NODE_SCORE_MAX = 100

SUM_MAX = 1 << 62
"""What a node's pods request at most in all; a larger sum counts as this one."""

NO_GROUP = -1
"""The group of a row that has none."""

OVERRIDDEN = 127
"""A refuser for rows where nominated pods, or extenders, make the difference."""


@inlined
def _rank(bits: np.uint64) -> np.uint64:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@inlined
def _place(code: int, counted: Int64s, length: int) -> int:
    """Count a code once more, and return its place among the `length` counted before or after."""
    place = 0
    while place < length and counted[place, 0] != code:
        place += 1
    if place == length:
        counted[place, 0] = code
        counted[place, 1] = 0
    counted[place, 1] += 1
    return place


@compiled
def fit(  # noqa: PLR0917 - compiled code takes its arguments by position
    rows: Int64s,
    resources: Int64s,
    amounts: Int64s,
    allocatable: Int64s,
    requested: Int64s,
    pod_count: Int64s,
    pods_max: Int64s,
    codes: Int64s,
) -> None:
    """Write each row's fit code for a pod that requests `amounts` of the columns `resources`."""
    for row in rows:
        code = 0
        if pod_count[row] + 1 > pods_max[row]:
            code |= TOO_MANY_PODS
        for i in range(len(resources)):
            column = resources[i]
            if amounts[i] > allocatable[row, column] - requested[row, column]:
                code |= 2 << i
                if amounts[i] > allocatable[row, column]:
                    code |= UNRESOLVABLE
        codes[row] = code


@compiled
def balanced_allocation(
    rows: Int64s,
    resources: Int64s,
    amounts: Int64s,
    allocatable: Int64s,
    requested: Int64s,
    by_change: bool,
    scores: Int64s,
) -> None:
    """Write each row's BalancedAllocation score, in upstream's order of float64 operations.

    by_change: not the balance with the pod, but from 50 to 100 by how the pod changes it, where
    halves are truncated as upstream's integers are.
    """
    before = np.zeros(len(resources), dtype=np.float64)
    after = np.zeros(len(resources), dtype=np.float64)
    half = NODE_SCORE_MAX // 2
    for row in rows:
        count = 0
        total_before = 0.0
        total_after = 0.0
        for i in range(len(resources)):
            column = resources[i]
            capacity = allocatable[row, column]
            if capacity == 0:
                continue
            used = requested[row, column]
            before[count] = min(float(used) / float(capacity), 1.0)
            after[count] = min(float(used + amounts[i]) / float(capacity), 1.0)
            total_before += before[count]
            total_after += after[count]
            count += 1
        deviation_before = 0.0
        deviation_after = 0.0
        if count == 2:
            deviation_before = abs((before[0] - before[1]) / 2.0)
            deviation_after = abs((after[0] - after[1]) / 2.0)
        elif count > 2:
            mean_before = total_before / float(count)
            mean_after = total_after / float(count)
            squares_before = 0.0
            squares_after = 0.0
            for i in range(count):
                squares_before += (before[i] - mean_before) * (before[i] - mean_before)
                squares_after += (after[i] - mean_after) * (after[i] - mean_after)
            deviation_before = np.sqrt(squares_before / float(count))
            deviation_after = np.sqrt(squares_after / float(count))
        balance = int((1.0 - deviation_after) * 100.0)
        if by_change:
            change = balance - int((1.0 - deviation_before) * 100.0)
            balance = half + (half + change) // 2
        scores[row] = balance


@compiled
def refuse(
    rows: Int64s,
    answers: Int64s,
    number: int,
    before: Int8s,
    codes_before: Int64s,
    refuser: Int8s,
    codes: Int64s,
) -> bool:
    """Record for each row the first plugin that refuses it, and that plugin's code.

    That is plugin `number` if its answer is not 0 and no plugin of a lower number refused the row
    `before`; else the one before. Return whether any row changed. before, refuser: int8[nodes], 0
    where no filter refuses, negative where the filters are not run. A row may be listed twice.
    """
    changed = False
    for row in rows:
        winner = before[row]
        code = codes_before[row]
        if answers[row] != 0 and (winner == 0 or winner > number):
            winner = number
            code = answers[row]
        if winner == 0 and refuser[row] == 0:
            continue
        changed |= refuser[row] != winner or codes[row] != code
        refuser[row] = winner
        codes[row] = code
    return changed


@compiled
def group(refuser: Int8s, codes: Int64s, group_of: Int32s, counted: Int64s) -> int:
    """Group the rows that were refused by their refusers and codes, and number the groups from 0.

    Return how many there are. group_of: int32[nodes], NO_GROUP where no filter refuses, the row is
    not a node (-1) or its status is not a column's (OVERRIDDEN). counted: int64[nodes, 3], number,
    refuser and code of each group's rows.
    """
    length = 0
    for row in range(len(refuser)):
        number = refuser[row]
        if number in (0, -1, OVERRIDDEN):
            group_of[row] = NO_GROUP
            continue
        place = 0
        while place < length and (counted[place, 1] != number or counted[place, 2] != codes[row]):
            place += 1
        if place == length:
            counted[place, 0] = 0
            counted[place, 1] = number
            counted[place, 2] = codes[row]
            length += 1
        counted[place, 0] += 1
        group_of[row] = place
    return length


@compiled
def count_codes(codes: Int64s, counted: Int64s) -> int:
    """Return how many distinct codes there are. counted: int64[codes, 2], each with its number."""
    length = 0
    for code in codes:
        length = max(length, _place(code, counted, length) + 1)
    return length


@inlined
def _share(raw: int, highest: int) -> int:
    """Return a raw score on the scale to 100 where `highest` is 100; 0 where that is 0."""
    share: int = NODE_SCORE_MAX * raw // highest if highest > 0 else 0
    return share


@compiled
def weigh(  # noqa: PLR0917 - compiled code takes its arguments by position
    rows: Int64s,
    scores: tuple[Int64s, ...],
    weights: Int64s,
    raw: Int64s,
    raw_weights: Int64s,
    highest: Int64s,
    before: Int64s,
    totals: Int64s,
) -> None:
    """Write each row's total: the one `before`, the weighted scores and the normalised raw ones.

    raw: int64[plugins, nodes], normalised by the `highest` of each plugin, int64[plugins]. A row
    may be named twice. Each number of scores is compiled again; warming up calls 1 and 2.
    """
    for row in rows:
        total = before[row]
        for i in range(len(scores)):
            total += scores[i][row] * weights[i]
        for i in range(len(highest)):
            total += raw_weights[i] * _share(raw[i, row], highest[i])
        totals[row] = total


@compiled
def least(values: Int64s, candidates: Int64s) -> tuple[int, int]:
    """Narrow `candidates`, rows of `values`, down to the least in lexical order, its first ones.

    Return how many those are, and the column after which a single one was left; the number of
    columns where none is.
    """
    number = len(candidates)
    for column in range(values.shape[1]):
        smallest = values[candidates[0], column]
        kept = 0
        for i in range(number):
            value = values[candidates[i], column]
            if value < smallest:
                smallest = value
                kept = 0
            if value == smallest:
                candidates[kept] = candidates[i]
                kept += 1
        number = kept
        if number == 1:
            return number, column
    return number, values.shape[1]


@compiled
def count(
    amounts: Int64s,
    row: int,
    sign: int,
    non_zero: Int64s,
    requested: Int64s,
    non_zero_requested: Int64s,
    pod_count: Int64s,
) -> bool:
    """Add a pod's amounts to a row, or take them off where `sign` is -1.

    Return whether a sum was SUM_MAX before or exceeds it now: then the row must be set by `add_up`.
    """
    full = False
    for i in range(len(amounts)):
        before = requested[row, i]
        requested[row, i] = before + sign * amounts[i]
        full |= before >= SUM_MAX or requested[row, i] >= SUM_MAX
    for i in range(len(non_zero)):
        before = non_zero_requested[row, i]
        non_zero_requested[row, i] = before + sign * non_zero[i]
        full |= before >= SUM_MAX or non_zero_requested[row, i] >= SUM_MAX
    pod_count[row] += sign
    return full


def add_up(totals: Int64s, row: int, amounts: Iterable[Int64s]) -> None:
    """Set a row of sums: exact ones, but at most SUM_MAX. A row of `amounts` may be narrower."""
    sums = [0] * totals.shape[1]
    for row_amounts in amounts:
        for column, amount in enumerate(row_amounts.tolist()):
            sums[column] += amount
    totals[row] = [min(total, SUM_MAX) for total in sums]


_LOWEST = -(1 << 62)
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
_BLOCK = 256


@inlined
def _highest(refuser: Int8s, totals: Int64s) -> int:
    """Return the highest total of the rows that fit, _LOWEST for none."""
    highest = _LOWEST
    for row in range(len(totals)):
        total = totals[row]
        highest = max(highest, total if refuser[row] == 0 else _LOWEST)
    return highest


@compiled
def normalize(
    used: int, refuser: Int8s, raw: Int64s, weights: Int64s, highest: Int64s, totals: Int64s
) -> None:
    """Normalise totals by the highest raw scores of the rows that fit, and write these.

    The totals have the raw scores as normalised by the previous `highest`, int64[plugins], 0 where
    a plugin's were not added yet. Where its highest is the same, no total is touched. raw:
    int64[plugins, nodes]; a weight is negative where less is better, and the totals hold the full
    marks then.
    """
    for i in range(len(highest)):
        before = highest[i]
        now = max(_highest(refuser[:used], raw[i][:used]), 0)
        if now != before:
            highest[i] = now
            for row in range(used):
                score = raw[i, row]
                for share, sign in ((before, -1), (now, 1)):
                    totals[row] += sign * weights[i] * _share(score, share)


@inlined
def _least_rank(
    refuser: Int8s, totals: Int64s, highest: int, name_hash: UInt64s, attempt: np.uint64
) -> tuple[np.uint64, int]:
    """Return the smallest keyed hash of the rows with the highest total, and how many these are."""
    least = _LAST
    ties = 0
    for row in range(len(totals)):
        rank = _rank(name_hash[row] + attempt)
        tied = (totals[row] == highest) & (refuser[row] == 0)
        ties += tied
        least = min(least, rank if tied else _LAST)
    return least, ties


@compiled
def choose(
    used: int, refuser: Int8s, totals: Int64s, name_hash: UInt64s, attempt: np.uint64
) -> tuple[int, int, int]:
    """Return the best row (-1 for none), the best total, and its ties.

    Among equals, the row of the smallest keyed hash is the best. Only blocks whose highest total is
    the best so far are hashed. The loops over a block neither branch nor keep a place, so that they
    compile to vector instructions: 20 us in place of 87 for 50,000 nodes that all tie, 6 in place
    of 21 where one is the best.
    """
    highest = _LOWEST
    least = _LAST
    ties = 0
    best = -1
    for start in range(0, used, _BLOCK):
        block = slice(start, min(start + _BLOCK, used))
        highest_here = _highest(refuser[block], totals[block])
        if highest_here < highest or highest_here == _LOWEST:
            continue
        if highest_here > highest:
            highest = highest_here
            least = _LAST
            ties = 0
            best = -1
        least_here, ties_here = _least_rank(
            refuser[block], totals[block], highest, name_hash[block], attempt
        )
        ties += ties_here
        if best < 0 or least_here < least:
            best = start
            least = least_here
    while best >= 0 and not (
        refuser[best] == 0 and totals[best] == highest and _rank(name_hash[best] + attempt) == least
    ):
        best += 1
    return best, highest, ties


@compiled
def choose_first(used: int, refuser: Int8s, totals: Int64s, places: Int64s) -> tuple[int, int, int]:
    """Do as `choose`, but among equals the row with the smallest place is the best."""
    highest = _highest(refuser[:used], totals[:used])
    best = -1
    ties = 0
    for row in range(used):
        if refuser[row] == 0 and totals[row] == highest:
            ties += 1
            if best < 0 or places[row] < places[best]:
                best = row
    return best, highest, ties
