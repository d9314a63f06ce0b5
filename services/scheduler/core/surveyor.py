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
from services.scheduler.core.columns import Bools, Int64s
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
    """The bounds of all filters as in Bounds, with weights as int64[classes, bounds]."""

    room: Int64s
    counted: Bools
    weights: Int64s


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
        bounds = self._bounds(pod, rows, [each for _, each in bounded])
        codes, criteria = self._dry_run(pod, fit.pre.data, rows, now_ns, bounds)
        said = [(column, code) for column, each in bounded for code in each.codes]
        table = np.empty((len(codes), 2), dtype=np.int64)
        counted = dict(table[: kernels.tally(codes, table)].tolist())
        if reprieve.IN_VAIN in counted:
            return None
        found = codes == reprieve.CANDIDATE
        counted.pop(reprieve.CANDIDATE, None)
        return Survey(
            rows=rows[found],
            criteria=criteria[found],
            refusals=[(_refusal(fit, said, code), count) for code, count in counted.items()],
            name=self._snapshot.name,
        )

    def _bounds(self, pod: Pod, rows: Int64s, bounds: Sequence[Bounds]) -> _Together:
        """Return the bounds side by side, with room left for the nominated pods that count."""
        asked = [weights for each in bounds for weights in each.weights]
        none = np.zeros((len(rows), 0), dtype=np.int64)
        room = np.hstack([none, *(each.room for each in bounds)])
        counted = np.hstack([none.astype(np.bool_), *(each.counted for each in bounds)])
        if not asked:
            return _Together(room, counted, np.zeros((1, 0), dtype=np.int64))
        census, nominations = self._snapshot.census, self._snapshot.nominations
        for place, row in enumerate(rows.tolist()) if len(nominations) else ():
            for each in nominations.counted(self._snapshot.name(row), pod):
                taken = [weights.of(census.class_of(each)) for weights in asked]
                room[place] -= np.where(counted[place], taken, 0)
        for weights in asked:
            weights.sync()
        number = len(census.classes)
        table = np.stack([weights.weights[:number] for weights in asked], axis=1)
        return _Together(room, counted, np.ascontiguousarray(table))

    def _dry_run(
        self, pod: Pod, wanted: Wanted, rows: Int64s, now_ns: int, bounds: _Together
    ) -> tuple[Int64s, Int64s]:
        self._cover.sync()
        nominated = self._nominated(pod, wanted)
        columns, rules = self._snapshot.columns, self._rules
        roster, cover = self._roster, self._cover
        codes = np.empty(len(rows), dtype=np.int64)
        criteria = np.zeros((len(rows), 5), dtype=np.int64)
        reprieve.dry_run(
            rows,
            -pod.priority,
            now_ns,
            rules.needs_victims,
            rules.sorts_victims,
            rules.budgets.uses_up,
            wanted.columns,
            wanted.amounts,
            columns.allocatable,
            columns.requested,
            columns.pod_count,
            columns.pods_max,
            nominated,
            roster.count,
            roster.table,
            roster.amounts,
            cover.allowed,
            cover.offsets,
            cover.covering,
            codes,
            criteria,
            bounds.room,
            bounds.counted,
            bounds.weights,
        )
        return codes, criteria

    def _nominated(self, pod: Pod, wanted: Wanted) -> Int64s:
        """Return what nominated pods hold that must be left room for: int64[nodes, wanted + 1]."""
        snapshot = self._snapshot
        held = np.zeros((snapshot.columns.capacity, len(wanted.columns) + 1), dtype=np.int64)
        for name in snapshot.nominations.node_names():
            counted = snapshot.nominations.counted(name, pod)
            row = snapshot.row(name) if counted else None
            if row is None:
                continue
            for each in counted:
                held[row, :-1] += snapshot.load(each.spec).amounts[wanted.columns]
                held[row, -1] += 1
        return held


def _refusal(fit: FilterColumn, said: Sequence[tuple[FilterColumn, int]], code: int) -> Status:
    if code == reprieve.NOTHING_BELOW:
        return NO_VICTIMS_FOUND
    if code <= reprieve.FIRST_BOUND:
        column, answer = said[reprieve.FIRST_BOUND - code]
        return column.status(answer)
    return fit.status(code)
