"""Which potential victims would violate a disruption budget.

A budget covers a pod of its namespace that its selector picks; a pod without labels is covered
by none, and a selector that is absent or empty picks nothing here (elsewhere an empty one picks
everything).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.kube.budget import PodDisruptionBudget
from services.kube.pod import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSplit:
    """Pods whose deletion violates a budget and those whose deletion does not, in given order."""

    violating: tuple[Pod, ...]
    others: tuple[Pod, ...]


def split_using_up(pods: Sequence[Pod], budgets: Sequence[PodDisruptionBudget]) -> BudgetSplit:
    """Let each pod in turn use its budgets up; it violates once one falls below zero.

    `pods` are all potential victims, most important first: a pod that is reprieved later has
    used its share up all the same. A pod in `disrupted_pods` is already counted by the budget.
    Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go,
    filterPodsWithPDBViolation.
    """
    left = [budget.disruptions_allowed for budget in budgets]
    violating: list[Pod] = []
    others: list[Pod] = []
    for pod in pods:
        violates = False
        for index in _covering(pod, budgets):
            if pod.name in budgets[index].disrupted_pods:
                continue
            left[index] -= 1
            violates = violates or left[index] < 0
        (violating if violates else others).append(pod)
    return BudgetSplit(violating=tuple(violating), others=tuple(others))


def split_by_status(pods: Sequence[Pod], budgets: Sequence[PodDisruptionBudget]) -> BudgetSplit:
    """Let a pod violate where one of its budgets allows no disruption at all.

    Source: kubernetes v1.16 pkg/scheduler/core/generic_scheduler.go, filterPodsWithPDBViolation.
    """
    violating: list[Pod] = []
    others: list[Pod] = []
    for pod in pods:
        covering = _covering(pod, budgets)
        violates = any(budgets[index].disruptions_allowed <= 0 for index in covering)
        (violating if violates else others).append(pod)
    return BudgetSplit(violating=tuple(violating), others=tuple(others))


def _covering(pod: Pod, budgets: Sequence[PodDisruptionBudget]) -> Iterable[int]:
    if not pod.labels:
        return ()
    return [index for index, budget in enumerate(budgets) if _covers(budget, pod)]


def _covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    if budget.namespace != pod.namespace:
        return False
    selector = budget.selector
    if selector is None or not selector.requirements:
        return False
    return selector.matches(pod.labels)
