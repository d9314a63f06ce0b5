"""The kernels of the batch dry run: victims, reprieve, and the pick of one node, by columns.

Their twin is `preemption.candidates.select_victims` over a `NodeDryRun`, one node at a time: a
property test holds them equal. Resources and what bounds count only ever add up, so where the
pending pod fits beside the nominated pods it fits without them too, and one check does for both. A
bound that requests pods is there twice where some are nominated, and no pod that comes back breaks
it.

The kernels are called one after the other, each makes one pass over the rows: `make_room`, and
for the rows where the pod fits then `put_in_order`, `mark_violating`, `bring_back` (the reprieve)
and `judge`.
Names in all of them:

- `room`: int64[rows, wanted + 1], what is left beside the pending pod: places for pods, then each
  wanted resource, which is in column `resources` of `amounts`: int64[loads, resources].
- `spares`: int64[rows, bounds], what each bound (`plugin.Bounds`) admits still, UNBOUNDED where a
  row's pods do not count; `weights`: int64[classes, bounds], what they count, negative where a
  bound requests them.
- `first`: int64[rows], the place of a row's first pod of lower priority; `order`: int64[rows,
  width], the places of such pods, most important first; beside it `violates` and `victims`:
  bool[rows, width].
- `codes`: int64[rows], CANDIDATE and the codes beside it, or a fit code (`kernels.fit`).

NodePods and BudgetCover document their arrays.
"""

from __future__ import annotations

from services.framework.columns.columns import Bools, Int64s
from services.framework.columns.kernels import TOO_MANY_PODS, UNRESOLVABLE, compiled
from services.framework.preemption.candidates import (
    EARLIEST,
    HIGHEST,
    PRIORITY_SHIFT,
    SUM,
    VICTIMS,
    VIOLATIONS,
)
from services.framework.snapshot.node_pods import (
    CLASS,
    GROUP,
    LOAD,
    NO_START,
    PLACE,
    RANK,
    START_NS,
)

CANDIDATE = 0
NOTHING_BELOW = -1
FIRST_BOUND = -3
NOT_TRIED = -(1 << 62)
"""Codes beside the fit codes: the pod fits without its victims; no pod has a lower priority; the
first bound is broken, the next one being one less; the row was not tried."""

UNBOUNDED = 1 << 60


@compiled
def make_room(  # noqa: PLR0917 - compiled code takes its arguments by position
    rows: Int64s,
    rank: int,
    needs_victims: bool,
    resources: Int64s,
    requests: Int64s,
    allocatable: Int64s,
    requested: Int64s,
    pod_count: Int64s,
    pods_max: Int64s,
    count: Int64s,
    table: Int64s,
    amounts: Int64s,
    weights: Int64s,
    first: Int64s,
    room: Int64s,
    spares: Int64s,
    codes: Int64s,
) -> None:
    """Remove all pods of lower priority than -`rank`, and write whether the pod fits then.

    The pod requests `requests` (more than 0) of the columns `resources`. The caller subtracts what
    nominated pods take from `room`, which is 0 otherwise, and passes in `spares` how many more pods
    each bound admits now.
    """
    for i in range(len(rows)):
        row = rows[i]
        room[i, 0] += pods_max[row] - pod_count[row] - 1
        for k in range(len(resources)):
            column = resources[k]
            room[i, k + 1] += allocatable[row, column] - requested[row, column] - requests[k]
        place = count[row]
        while place > 0 and table[row, place - 1, RANK] > rank:
            place -= 1
            room[i, 0] += 1
            for k in range(len(resources)):
                room[i, k + 1] += amounts[table[row, place, LOAD], resources[k]]
            for k in range(spares.shape[1]):
                spares[i, k] += weights[table[row, place, CLASS], k]
        first[i] = place
        code = CANDIDATE
        for k in range(spares.shape[1] - 1, -1, -1):
            if spares[i, k] < 0:
                code = FIRST_BOUND - k
        unfit = TOO_MANY_PODS if room[i, 0] < 0 else 0
        for k in range(len(resources)):
            if room[i, k + 1] < 0:
                unfit |= 2 << k
                unfit |= UNRESOLVABLE if requests[k] > allocatable[row, resources[k]] else 0
        code = unfit or code
        codes[i] = NOTHING_BELOW if place == count[row] and needs_victims else code


@compiled
def put_in_order(
    rows: Int64s, now_ns: int, count: Int64s, table: Int64s, first: Int64s, order: Int64s
) -> None:
    """Sort each row's pods of lower priority by importance.

    A pod without a start time counts as started at `now_ns`, which may be earlier than the start
    times of others.
    """
    for i in range(len(rows)):
        pods = table[rows[i]]
        for j in range(count[rows[i]] - first[i]):
            pod = first[i] + j
            missing = pods[pod, START_NS] == NO_START
            start_ns = now_ns if missing else pods[pod, START_NS]
            at = j
            while at > 0 and missing:
                other = order[i, at - 1]
                other_ns = now_ns if pods[other, START_NS] == NO_START else pods[other, START_NS]
                ahead = other_ns == start_ns and pods[other, PLACE] < pods[pod, PLACE]
                if pods[other, RANK] != pods[pod, RANK] or other_ns < start_ns or ahead:
                    break
                order[i, at] = other
                at -= 1
            order[i, at] = pod


@compiled
def mark_violating(  # noqa: PLR0917 - compiled code takes its arguments by position
    rows: Int64s,
    uses_up: bool,
    count: Int64s,
    table: Int64s,
    first: Int64s,
    order: Int64s,
    allowed: Int64s,
    offsets: Int64s,
    covering: Int64s,
    violates: Bools,
) -> None:
    """Mark the pods of each row that violate a budget; with `uses_up`, each uses a disruption.

    The caller passes `violates` filled with False.
    """
    needed = 0 if uses_up else 1
    remaining = allowed.copy()
    for i in range(len(rows)):
        pods = table[rows[i]]
        number = count[rows[i]] - first[i]
        for j in range(number):
            group = pods[order[i, j], GROUP]
            for k in range(offsets[group], offsets[group + 1]):
                remaining[covering[k]] -= uses_up
                violates[i, j] |= remaining[covering[k]] < needed
        for j in range(number):
            group = pods[order[i, j], GROUP]
            for k in range(offsets[group], offsets[group + 1]):
                remaining[covering[k]] = allowed[covering[k]]


@compiled
def bring_back(  # noqa: PLR0917 - compiled code takes its arguments by position
    rows: Int64s,
    resources: Int64s,
    count: Int64s,
    table: Int64s,
    amounts: Int64s,
    weights: Int64s,
    first: Int64s,
    order: Int64s,
    violates: Bools,
    room: Int64s,
    spares: Int64s,
    victims: Bools,
) -> None:
    """Reprieve each pod with which the pending pod fits, violating ones first; mark the others."""
    for i in range(len(rows)):
        pods = table[rows[i]]
        number = count[rows[i]] - first[i]
        for guarded in range(1, -1, -1):
            for j in range(number):
                if violates[i, j] != guarded:
                    continue
                load, kind = pods[order[i, j], LOAD], pods[order[i, j], CLASS]
                stays = room[i, 0] >= 1
                for k in range(len(resources)):
                    stays &= amounts[load, resources[k]] <= room[i, k + 1]
                for k in range(spares.shape[1]):
                    stays &= weights[kind, k] <= spares[i, k]
                victims[i, j] = not stays
                room[i, 0] -= stays
                for k in range(len(resources) if stays else 0):
                    room[i, k + 1] -= amounts[load, resources[k]]
                for k in range(spares.shape[1] if stays else 0):
                    spares[i, k] -= weights[kind, k]


@compiled
def judge(  # noqa: PLR0917 - compiled code takes its arguments by position
    rows: Int64s,
    now_ns: int,
    sorts_victims: bool,
    count: Int64s,
    table: Int64s,
    first: Int64s,
    order: Int64s,
    violates: Bools,
    victims: Bools,
    criteria: Int64s,
    lasts: Bools,
) -> None:
    """Write the criteria of each row, int64[rows, 5], zero before.

    Victims that are not sorted begin with those that violate a budget. lasts: bool[rows], true
    if the row's criteria do not depend on the current time.
    """
    for i in range(len(rows)):
        pods = table[rows[i]]
        head = topmost = -(1 << 62)
        earliest_ns = 0
        lasts[i] = True
        for j in range(count[rows[i]] - first[i]):
            pod = order[i, j]
            lasts[i] &= pods[pod, START_NS] != NO_START
            if not victims[i, j]:
                continue
            priority = -pods[pod, RANK]
            start_ns = now_ns if pods[pod, START_NS] == NO_START else pods[pod, START_NS]
            if criteria[i, VICTIMS] == 0 or (violates[i, j] and criteria[i, VIOLATIONS] == 0):
                head = priority
            if priority >= topmost:
                earliest_ns = start_ns if priority > topmost else min(earliest_ns, start_ns)
                topmost = priority
            criteria[i, VIOLATIONS] += violates[i, j]
            criteria[i, SUM] += priority + PRIORITY_SHIFT
            criteria[i, VICTIMS] += 1
        criteria[i, HIGHEST] = topmost if sorts_victims else head
        criteria[i, EARLIEST] = -earliest_ns
