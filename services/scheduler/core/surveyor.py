"""Surveys: the dry runs of one failed cycle, all at once where resources and bounds decide.

Where a filter looks at pods in another way, or refuses a node that deleting pods might help on,
nothing is surveyed, and the preemptor tries one node after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from services.kube.pod import Pod
from services.scheduler.core import kernels, reprieve
from services.scheduler.core.budget_cover import BudgetCover
from services.scheduler.core.cached_columns import FilterColumn
from services.scheduler.core.columns import Int64s
from services.scheduler.core.framework import Framework
from services.scheduler.core.plugin import Bounds
from services.scheduler.core.plugins.node_resources_fit import Wanted
from services.scheduler.core.preemption.rules import PreemptionRules
from services.scheduler.core.preemption.survey import Survey
from services.scheduler.core.preemption.victims import NO_VICTIMS_FOUND
from services.scheduler.core.roster import Roster
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Status


class _Together(NamedTuple):
    """The bounds of all filters: int64[rows, bounds] and int64[classes, bounds].

    As `spares` and `weights` in `reprieve`; `said` is who answers what where one is broken.
    """

    room: Int64s
    weights: Int64s
    said: Sequence[tuple[FilterColumn, int]]


class _Opened(NamedTuple):
    """Rows where the pod fits without those below it; the arrays are as in `reprieve`."""

    rows: Int64s
    taken: Int64s
    weights: Int64s
    first: Int64s
    room: Int64s
    spares: Int64s


class _DryRuns(NamedTuple):
    """An answer for each row asked, and the criteria of the `rows` where the pod fits."""

    codes: Int64s
    rows: Int64s
    criteria: Int64s


class Surveyor:
    """Surveys a snapshot under one version's rules; keeps the pods' columns between surveys."""

    def __init__(self, snapshot: Snapshot, rules: PreemptionRules) -> None:
        self._snapshot = snapshot
        self._rules = rules
        self._roster = Roster(snapshot)
        self._cover = BudgetCover(snapshot, self._roster, rules.budgets)

    def survey(self, pod: Pod, framework: Framework, rows: Int64s, now_ns: int) -> Survey | None:
        """Judge a preemption on each of `rows`; None where more than resources and bounds decides.

        rows: int64[n], live rows in the nodes' order. `now_ns` stands for a start that is missing.
        """
        shape = framework.shape(pod)
        bounded = shape.bounded(rows)
        if bounded is None:
            return None
        fit = shape.pod_filters[0][1]
        bounds = self._bounds(pod, rows, bounded)
        runs = self._dry_run(pod, fit.pre.data, rows, now_ns, bounds)
        codes = runs.codes
        table = np.empty((len(codes), 2), dtype=np.int64)
        counted = dict(table[: kernels.tally(codes, table)].tolist())
        if reprieve.IN_VAIN in counted:
            return None
        counted.pop(reprieve.CANDIDATE, None)
        return Survey(
            rows=runs.rows,
            criteria=runs.criteria,
            refusals=[(_refusal(fit, bounds.said, code), count) for code, count in counted.items()],
            name=self._snapshot.name,
        )

    def _bounds(
        self, pod: Pod, rows: Int64s, bounded: Sequence[tuple[FilterColumn, Bounds]]
    ) -> _Together:
        """Return the bounds side by side, with the nominated pods that count on their nodes.

        Those that ask for pods come again without the nominated ones, which need not come.
        """
        said = [(column, each.code) for column, bounds in bounded for each in bounds.each]
        if not said:
            none = np.zeros((len(rows), 0), dtype=np.int64)
            return _Together(none, np.zeros((1, 0), dtype=np.int64), said)
        asked = [each.weights for _, bounds in bounded for each in bounds.each]
        asks = np.array([each.asks_for for _, bounds in bounded for each in bounds.each])
        signs = np.where(asks, -1, 1)
        room = np.hstack([each.room for _, each in bounded])
        counted = np.hstack([each.counted for _, each in bounded])
        alone = room[:, asks]
        census, nominations = self._snapshot.census, self._snapshot.nominations
        for place, row in enumerate(rows.tolist()) if len(nominations) else ():
            for each in nominations.counted(self._snapshot.name(row), pod):
                taken = [weights.of(census.class_of(each)) for weights in asked]
                room[place] -= np.where(counted[place], taken * signs, 0)
        for weights in asked:
            weights.sync()
        number = len(census.classes)
        table = np.stack([weights.weights[:number] for weights in asked], axis=1) * signs
        if len(nominations) and asks.any():
            room = np.hstack([room, alone])
            counted = np.hstack([counted, counted[:, asks]])
            table = np.hstack([table, table[:, asks]])
            said += [each for each, more in zip(said, asks, strict=True) if more]
        free = np.where(room < 0, -reprieve.UNBOUNDED, reprieve.UNBOUNDED)
        spares = np.ascontiguousarray(np.where(counted, room, free))
        return _Together(spares, np.ascontiguousarray(table), said)

    def _dry_run(
        self, pod: Pod, wanted: Wanted, rows: Int64s, now_ns: int, bounds: _Together
    ) -> _DryRuns:
        """Judge all rows, and those where the pod fits by who would have to go."""
        self._cover.sync()
        roster, rules = self._roster, self._rules
        load = roster.amounts[:, wanted.columns]
        taken = np.empty((len(load), 1 + len(wanted.columns)), dtype=np.int64)
        taken[:, 0], taken[:, 1:] = 1, load
        room = -self._nominated(pod, wanted, rows)
        spares, columns = bounds.room, self._snapshot.columns
        first = np.empty(len(rows), dtype=np.int64)
        codes = np.empty(len(rows), dtype=np.int64)
        pods = (roster.count, roster.table)
        reprieve.make_room(
            *(rows, -pod.priority, rules.needs_victims, wanted.columns, wanted.amounts),
            *(columns.allocatable, columns.requested, columns.pod_count, columns.pods_max),
            *(*pods, taken, bounds.weights, first, room, spares, codes),
        )
        fits = np.flatnonzero(codes == reprieve.CANDIDATE)
        found = rows[fits]
        criteria = self._judged(
            _Opened(found, taken, bounds.weights, first[fits], room[fits], spares[fits]), now_ns
        )
        if rules.needs_victims:
            codes[fits[criteria[:, reprieve.VICTIMS] == 0]] = reprieve.IN_VAIN
        return _DryRuns(codes, found, criteria)

    def _judged(self, opened: _Opened, now_ns: int) -> Int64s:
        """Return the criteria of rows whose pods of lower priority have been taken off."""
        roster, cover, rules = self._roster, self._cover, self._rules
        rows, first = opened.rows, opened.first
        pods = (roster.count, roster.table)
        order = np.empty((len(rows), roster.table.shape[1]), dtype=np.int64)
        violates, victims = np.zeros((2, *order.shape), dtype=np.bool_)
        reprieve.put_in_order(rows, now_ns, *pods, first, order)
        if len(cover.allowed):
            budgets = (cover.allowed, cover.offsets, cover.covering)
            uses_up = rules.budgets.uses_up
            reprieve.mark_violating(rows, uses_up, *pods, first, order, *budgets, violates)
        reprieve.bring_back(
            *(rows, *pods, opened.taken, opened.weights, first, order),
            *(violates, opened.room, opened.spares, victims),
        )
        criteria = np.zeros((len(rows), 5), dtype=np.int64)
        reprieve.judge(
            *(rows, now_ns, rules.sorts_victims, *pods, first, order, violates, victims, criteria)
        )
        return criteria

    def _nominated(self, pod: Pod, wanted: Wanted, rows: Int64s) -> Int64s:
        """Return what nominated pods hold that must be left room for, as `room` in `reprieve`."""
        snapshot = self._snapshot
        held = np.zeros((len(rows), len(wanted.columns) + 1), dtype=np.int64)
        for name in snapshot.nominations.node_names():
            counted = snapshot.nominations.counted(name, pod)
            places = np.flatnonzero(rows == snapshot.row(name)) if counted else ()
            for each in counted if len(places) else ():
                held[places, 0] += 1
                held[places, 1:] += snapshot.load(each.spec).amounts[wanted.columns]
        return held


def _refusal(fit: FilterColumn, said: Sequence[tuple[FilterColumn, int]], code: int) -> Status:
    if code == reprieve.NOTHING_BELOW:
        return NO_VICTIMS_FOUND
    if code <= reprieve.FIRST_BOUND:
        column, answer = said[reprieve.FIRST_BOUND - code]
        return column.status(answer)
    return fit.status(code)
