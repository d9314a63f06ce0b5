"""Which potential victims would violate a disruption budget.

A budget covers a pod of its namespace that its selector picks; a pod without labels is covered
by none, and a selector that is absent or empty picks nothing here (elsewhere an empty one picks
everything).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.kube.budget import PodDisruptionBudget
from services.kube.pod import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSplit:
    """Pods whose deletion violates a budget and those whose deletion does not, in given order."""

    violating: tuple[Pod, ...]
    others: tuple[Pod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRule:
    """When a pod violates a budget.

    `counts` tells whether a budget counts a pod, which follows from the pod's namespace, labels
    and name. With `uses_up`, each pod uses one disruption of each such budget and violates once
    one falls below zero; without, it violates where one of them allows none.
    """

    counts: Callable[[PodDisruptionBudget, Pod], bool]
    uses_up: bool

    def split(self, pods: Sequence[Pod], budgets: Sequence[PodDisruptionBudget]) -> BudgetSplit:
        """Part `pods`, which are all potential victims, most important first.

        A pod that is reprieved later has used its share up all the same.
        """
        left = [budget.disruptions_allowed for budget in budgets]
        violating: list[Pod] = []
        others: list[Pod] = []
        for pod in pods:
            violates = False
            for index, budget in enumerate(budgets):
                if not self.counts(budget, pod):
                    continue
                left[index] -= self.uses_up
                violates = violates or left[index] < (0 if self.uses_up else 1)
            (violating if violates else others).append(pod)
        return BudgetSplit(violating=tuple(violating), others=tuple(others))


def covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Tell whether the budget is one of the pod's."""
    if budget.namespace != pod.namespace or not pod.labels:
        return False
    selector = budget.selector
    if selector is None or not selector.requirements:
        return False
    return selector.matches(pod.labels)


def covers_undisrupted(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Tell the same, but not of a pod in `disrupted_pods`, which the budget has counted already."""
    return pod.name not in budget.disrupted_pods and covers(budget, pod)


USED_UP = BudgetRule(counts=covers_undisrupted, uses_up=True)
"""Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go,
filterPodsWithPDBViolation."""

BY_STATUS = BudgetRule(counts=covers, uses_up=False)
"""Source: kubernetes v1.16 pkg/scheduler/core/generic_scheduler.go,
filterPodsWithPDBViolation."""
