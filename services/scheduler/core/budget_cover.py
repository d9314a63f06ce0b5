"""Which disruption budgets cover which groups of pods, as arrays.

A budget's selector is matched against a group once, and again only when the selector changes; a
budget whose status alone changes costs a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.kube.budget import PodDisruptionBudget
from services.kube.pod import Pod
from services.scheduler.core.columns import Int64s
from services.scheduler.core.preemption.budgets import BudgetRule
from services.scheduler.core.roster import Roster
from services.scheduler.core.snapshot import Snapshot


@dataclass(slots=True)
class _Matched:
    budget: PodDisruptionBudget
    covers: list[bool]


class BudgetCover:
    """The arrays, right after `sync`.

    allowed: int64[budgets], the disruptions that each allows. Group i is covered by the budgets
    `covering[offsets[i]:offsets[i + 1]]`; both are int64.
    """

    def __init__(self, snapshot: Snapshot, roster: Roster, rule: BudgetRule) -> None:
        self._snapshot = snapshot
        self._roster = roster
        self._rule = rule
        self._epoch = -1
        self._matched: dict[str, _Matched] = {}
        self._groups: list[Pod] = []
        self._set_up(())

    def sync(self) -> None:
        """Bring the roster and the arrays up to date."""
        changed = self._epoch != self._snapshot.budget_epoch
        if changed:
            self._epoch = self._snapshot.budget_epoch
            budgets = self._snapshot.budgets.values()
            self._roster.single_out(frozenset(n for each in budgets for n in each.disrupted_pods))
        self._roster.sync()
        groups = self._roster.groups
        if groups is not self._groups:
            self._matched.clear()
        elif not changed and len(groups) + 1 == len(self.offsets):
            return
        self._groups = groups
        self._match()

    def _match(self) -> None:
        old, self._matched = self._matched, {}
        for key, budget in self._snapshot.budgets.items():
            known = old.get(key)
            covers = known.covers if known is not None and _alike(known.budget, budget) else []
            covers += [self._rule.counts(budget, pod) for pod in self._groups[len(covers) :]]
            self._matched[key] = _Matched(budget, covers)
        self._set_up(tuple(self._matched.values()))

    def _set_up(self, matched: Sequence[_Matched]) -> None:
        self.allowed: Int64s = np.array(
            [each.budget.disruptions_allowed for each in matched], dtype=np.int64
        )
        shape = (len(matched), len(self._groups))
        table = np.array([each.covers for each in matched], dtype=np.bool_).reshape(shape)
        group, budget = np.nonzero(table.T)
        self.covering: Int64s = np.ascontiguousarray(budget, dtype=np.int64)
        self.offsets: Int64s = np.searchsorted(group, np.arange(len(self._groups) + 1))


def _alike(old: PodDisruptionBudget, new: PodDisruptionBudget) -> bool:
    return old.selector == new.selector and old.disrupted_pods.keys() == new.disrupted_pods.keys()
