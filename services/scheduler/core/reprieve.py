"""The dry run of a preemption on many nodes at once, compiled; resources and bounds decide.

Its twin is `preemption.victims.select_victims` over a `NodeDryRun`, one node at a time: a
property test holds them equal. Resources and what bounds count only ever add up, so where the
pending pod fits beside the nominated pods it fits without them too, and one check does for both.

Names in all functions: `room` int64[wanted], what is left of each wanted resource beside the
pending pod; `spares` int64[rows, bounds], what each bound (`plugin.Bounds`) admits still, with
`counted` bool[rows, bounds] and `weights` int64[classes, bounds]; `order` int64[width], the
potential victims' places in the row, most important first; `violates` bool[width] beside it;
`left` int64[budgets]. Roster and BudgetCover say what their arrays are.
"""

from __future__ import annotations

import numpy as np

from services.scheduler.core.columns import Bools, Int64s
from services.scheduler.core.compiled import compiled, inlined
from services.scheduler.core.kernels import TOO_MANY_PODS, UNRESOLVABLE
from services.scheduler.core.preemption.pick import PRIORITY_SHIFT
from services.scheduler.core.roster import CLASS, GROUP, LOAD, NO_START, PLACE, RANK, START_NS

CANDIDATE = 0
NOTHING_BELOW = -1
IN_VAIN = -2
FIRST_BOUND = -3
"""Answers beside the fit codes: the pod fits without its victims; no pod has a lower priority;
every pod came back although the node had refused the pending pod; the first bound is broken,
the next one being one less."""

VIOLATIONS, HIGHEST, SUM, VICTIMS, EARLIEST = range(5)
"""Fields of a candidate's criteria, so that less is better; the earliest start is negated."""


@inlined
def _started(table: Int64s, row: int, place: int, now_ns: int) -> int:
    start_ns = table[row, place, START_NS]
    return now_ns if start_ns == NO_START else start_ns


@inlined
def _take_off(
    row: int, rank: int, end: int, table: Int64s, amounts: Int64s, resources: Int64s, room: Int64s
) -> int:
    """Return the first of the row's pods of lower priority, and make room of all of them."""
    first = end
    while first > 0 and table[row, first - 1, RANK] > rank:
        first -= 1
        for i in range(len(room)):
            room[i] += amounts[table[row, first, LOAD], resources[i]]
    return first


@inlined
def _fit_code(
    row: int, slots: int, room: Int64s, wanted: Int64s, allocatable: Int64s, resources: Int64s
) -> int:
    code = TOO_MANY_PODS if slots < 0 else 0
    for i in range(len(room)):
        if room[i] < 0:
            code |= 2 << i
            if wanted[i] > allocatable[row, resources[i]]:
                code |= UNRESOLVABLE
    return code


@inlined
def _give_way(  # noqa: PLR0917 - compiled code takes its arguments by position
    code: int,
    row: int,
    first: int,
    end: int,
    table: Int64s,
    i: int,
    weights: Int64s,
    counted: Bools,
    spares: Int64s,
) -> int:
    """Take the pods from `first` on off the bounds; return the fit `code`, else a broken bound."""
    broken = CANDIDATE
    for k in range(spares.shape[1] - 1, -1, -1):
        if counted[i, k]:
            for pod in range(first, end):
                spares[i, k] += weights[table[row, pod, CLASS], k]
        if spares[i, k] < 0:
            broken = FIRST_BOUND - k
    return broken if code == CANDIDATE else code


@inlined
def _put_in_order(
    row: int, first: int, lower: int, now_ns: int, table: Int64s, order: Int64s
) -> None:
    """Order the potential victims; a start that is missing is now, and may come before others."""
    for j in range(lower):
        pod = first + j
        rank = table[row, pod, RANK]
        start_ns = _started(table, row, pod, now_ns)
        at = j
        while at > 0:
            other = order[at - 1]
            if table[row, other, RANK] != rank:
                break
            other_ns = _started(table, row, other, now_ns)
            if other_ns < start_ns:
                break
            if other_ns == start_ns and table[row, other, PLACE] < table[row, pod, PLACE]:
                break
            order[at] = other
            at -= 1
        order[at] = pod


@inlined
def _mark_violating(  # noqa: PLR0917 - compiled code takes its arguments by position
    row: int,
    lower: int,
    uses_up: bool,
    table: Int64s,
    order: Int64s,
    allowed: Int64s,
    offsets: Int64s,
    covering: Int64s,
    left: Int64s,
    violates: Bools,
) -> None:
    """Let each pod in turn use its budgets up; `left` is as allowed before and after."""
    least = 0 if uses_up else 1
    for j in range(lower):
        group = table[row, order[j], GROUP]
        violates[j] = False
        for k in range(offsets[group], offsets[group + 1]):
            if uses_up:
                left[covering[k]] -= 1
            if left[covering[k]] < least:
                violates[j] = True
    for j in range(lower):
        group = table[row, order[j], GROUP]
        for k in range(offsets[group], offsets[group + 1]):
            left[covering[k]] = allowed[covering[k]]


@inlined
def _comes_back(  # noqa: PLR0917 - compiled code takes its arguments by position
    load: int,
    number: int,
    slots: int,
    amounts: Int64s,
    resources: Int64s,
    room: Int64s,
    i: int,
    weights: Int64s,
    counted: Bools,
    spares: Int64s,
) -> bool:
    """Tell whether a pod of class `number` leaves room, and take that room if so."""
    stays = slots > 0
    for w in range(len(room)):
        stays &= amounts[load, resources[w]] <= room[w]
    for k in range(spares.shape[1]):
        stays &= not counted[i, k] or weights[number, k] <= spares[i, k]
    if stays:
        for w in range(len(room)):
            room[w] -= amounts[load, resources[w]]
        for k in range(spares.shape[1]):
            if counted[i, k]:
                spares[i, k] -= weights[number, k]
    return stays


@compiled
def dry_run(  # noqa: PLR0917 - compiled code takes its arguments by position
    rows: Int64s,
    rank: int,
    now_ns: int,
    needs_victims: bool,
    sorts_victims: bool,
    uses_up: bool,
    resources: Int64s,
    wanted: Int64s,
    allocatable: Int64s,
    requested: Int64s,
    pod_count: Int64s,
    pods_max: Int64s,
    nominated: Int64s,
    count: Int64s,
    table: Int64s,
    amounts: Int64s,
    allowed: Int64s,
    offsets: Int64s,
    covering: Int64s,
    codes: Int64s,
    criteria: Int64s,
    spares: Int64s,
    counted: Bools,
    weights: Int64s,
) -> None:
    """Write what a preemption on each of `rows` comes to, for a pod of priority -`rank`.

    The pod asks `wanted` (more than 0) of the columns `resources`. nominated: int64[nodes,
    wanted + 1], what the nominated pods that count hold of these, and how many they are.
    `needs_victims`, `sorts_victims`, `uses_up`: see PreemptionRules and BudgetRule.
    codes: int64[rows], an answer above or a fit code. criteria: int64[rows, 5] of the candidates.
    spares: int64[rows, bounds], changed; counted: bool[rows, bounds]; weights: int64[classes,
    bounds].
    """
    room = np.zeros(len(resources), dtype=np.int64)
    order = np.zeros(table.shape[1], dtype=np.int64)
    violates = np.zeros(table.shape[1], dtype=np.bool_)
    left = allowed.copy()
    for i in range(len(rows)):
        row = rows[i]
        for k in range(len(resources)):
            room[k] = allocatable[row, resources[k]] - requested[row, resources[k]]
            room[k] -= wanted[k] + nominated[row, k]
        first = _take_off(row, rank, count[row], table, amounts, resources, room)
        lower = count[row] - first
        if lower == 0 and needs_victims:
            codes[i] = NOTHING_BELOW
            continue
        slots = pods_max[row] - pod_count[row] - nominated[row, len(resources)] - 1 + lower
        codes[i] = _fit_code(row, slots, room, wanted, allocatable, resources)
        codes[i] = _give_way(codes[i], row, first, count[row], table, i, weights, counted, spares)
        if codes[i] != CANDIDATE:
            continue
        _put_in_order(row, first, lower, now_ns, table, order)
        _mark_violating(
            row, lower, uses_up, table, order, allowed, offsets, covering, left, violates
        )
        violations = victims = total = earliest_ns = 0
        highest = topmost = -(1 << 62)
        for guarded in (True, False):
            for j in range(lower):
                if violates[j] != guarded:
                    continue
                pod = order[j]
                if _comes_back(
                    table[row, pod, LOAD],
                    table[row, pod, CLASS],
                    slots,
                    amounts,
                    resources,
                    room,
                    i,
                    weights,
                    counted,
                    spares,
                ):
                    slots -= 1
                    continue
                priority = -table[row, order[j], RANK]
                start_ns = _started(table, row, order[j], now_ns)
                highest = priority if victims == 0 else highest
                if priority > topmost:
                    topmost = priority
                    earliest_ns = start_ns
                elif priority == topmost:
                    earliest_ns = min(earliest_ns, start_ns)
                violations += guarded
                victims += 1
                total += priority + PRIORITY_SHIFT
        criteria[i, VIOLATIONS] = violations
        criteria[i, HIGHEST] = topmost if sorts_victims else highest
        criteria[i, SUM] = total
        criteria[i, VICTIMS] = victims
        criteria[i, EARLIEST] = -earliest_ns
        if victims == 0 and needs_victims:
            codes[i] = IN_VAIN
