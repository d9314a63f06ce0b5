"""Determines which potential victims would violate a disruption budget, singly and in groups.

A budget covers a pod of its namespace that its selector picks. A pod without labels is covered by
no budget, and a selector that is absent or empty picks nothing here (elsewhere an empty one picks
everything). For the batch dry run, BudgetCover keeps as arrays which budgets cover which groups of
pods: a selector is matched against a group once, and again only when the selector changes, so a
budget whose status alone changes costs one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from services.framework.columns.columns import Int64s
from services.framework.snapshot.node_pods import NodePods
from services.framework.snapshot.snapshot import Snapshot
from services.kube.pod import Pod
from services.kube.workloads import PodDisruptionBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSplit:
    """Pods whose deletion violates a budget and those whose deletion does not, in their order."""

    violating: tuple[Pod, ...]
    others: tuple[Pod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRule:
    """When a pod violates a budget.

    `counts` says whether a budget counts a pod, which follows from the pod's namespace, labels
    and name. With `uses_up`, each pod uses one disruption of each such budget and violates once
    one falls below zero; without, it violates where one of them allows none.
    """

    counts: Callable[[PodDisruptionBudget, Pod], bool]
    uses_up: bool

    def split(self, pods: Sequence[Pod], budgets: Sequence[PodDisruptionBudget]) -> BudgetSplit:
        """Split `pods`, which are all potential victims, most important first.

        A pod that is reprieved later has used its share up all the same.
        """
        allowed = [budget.disruptions_allowed for budget in budgets]
        violating: list[Pod] = []
        others: list[Pod] = []
        for pod in pods:
            violates = False
            for index, budget in enumerate(budgets):
                if not self.counts(budget, pod):
                    continue
                allowed[index] -= self.uses_up
                violates = violates or allowed[index] < (0 if self.uses_up else 1)
            (violating if violates else others).append(pod)
        return BudgetSplit(violating=tuple(violating), others=tuple(others))


def covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Return whether the budget covers the pod."""
    return budget.guards(pod.namespace, pod.labels)


def covers_undisrupted(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Return the same, but False for a pod in `disrupted_pods`, which is counted already."""
    return pod.name not in budget.disrupted_pods and covers(budget, pod)


def any_guarded(pods: Sequence[Pod], budgets: Iterable[PodDisruptionBudget]) -> bool:
    """Return whether any of the pods has a budget."""
    return bool(pods) and any(covers(budget, pod) for budget in budgets for pod in pods)


USED_UP = BudgetRule(counts=covers_undisrupted, uses_up=True)
"""Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go,
filterPodsWithPDBViolation."""

BY_STATUS = BudgetRule(counts=covers, uses_up=False)
"""Source: kubernetes v1.16 pkg/scheduler/core/generic_scheduler.go,
filterPodsWithPDBViolation."""


@dataclass(slots=True)
class _Matched:
    budget: PodDisruptionBudget
    covers: list[bool]


class BudgetCover:
    """The arrays, right after `sync`.

    allowed: int64[budgets], the disruptions that each allows. Group i is covered by the budgets
    `covering[offsets[i]:offsets[i + 1]]`; both are int64.
    """

    def __init__(self, snapshot: Snapshot, node_pods: NodePods, rule: BudgetRule) -> None:
        self._snapshot = snapshot
        self._node_pods = node_pods
        self._rule = rule
        self._changes = -1
        self._matched: dict[str, _Matched] = {}
        self._groups: list[Pod] = []
        self._set_up(())

    def sync(self) -> None:
        """Bring the node_pods and the arrays up to date."""
        changed = self._changes != self._snapshot.budget_changes
        if changed:
            self._changes = self._snapshot.budget_changes
            budgets = self._snapshot.budgets.values()
            self._node_pods.single_out(
                frozenset(n for budget in budgets for n in budget.disrupted_pods)
            )
        self._node_pods.sync()
        groups = self._node_pods.groups
        if groups is not self._groups:
            self._matched.clear()
        elif not changed and len(groups) + 1 == len(self.offsets):
            return
        self._groups = groups
        self._match()

    def _match(self) -> None:
        old, self._matched = self._matched, {}
        for key, budget in self._snapshot.budgets.items():
            before = old.get(key)
            covers = before.covers if before is not None and _alike(before.budget, budget) else []
            covers += [self._rule.counts(budget, pod) for pod in self._groups[len(covers) :]]
            self._matched[key] = _Matched(budget, covers)
        self._set_up(tuple(self._matched.values()))

    def _set_up(self, matched: Sequence[_Matched]) -> None:
        self.allowed: Int64s = np.array(
            [match.budget.disruptions_allowed for match in matched], dtype=np.int64
        )
        shape = (len(matched), len(self._groups))
        table = np.array([match.covers for match in matched], dtype=np.bool_).reshape(shape)
        group, budget = np.nonzero(table.T)
        self.covering: Int64s = np.ascontiguousarray(budget, dtype=np.int64)
        self.offsets: Int64s = np.searchsorted(group, np.arange(len(self._groups) + 1))


def _alike(old: PodDisruptionBudget, new: PodDisruptionBudget) -> bool:
    return old.selector == new.selector and old.disrupted_pods.keys() == new.disrupted_pods.keys()
