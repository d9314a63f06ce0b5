"""Determines whether a disruption budget allows the deletion of a victim of preemption.

A budget's status says how many disruptions it allows. Preemption deletes pods without asking it, so
that the deletions since that status are counted here: one that exceeds what the status allows
violates the budget, whatever a scheduler reports of it.

The rule for one pod is that of kubernetes v1.34 plugins/defaultpreemption/default_preemption.go,
filterPodsWithPDBViolation, which applies it to all pods that a preemption might delete, reprieved
ones too. Here it is applied to those that are deleted. Unlike there, and as in the disruption
controller, a budget with an empty selector covers every pod of its namespace.
"""

from __future__ import annotations

from collections.abc import Mapping

from reprieve.kube.v1beta1 import policy_pb2


class SpentBudgets:
    """Deletions by preemption since each budget's status, by namespace/name."""

    _deleted: dict[str, tuple[str, int]]
    """By budget: the resourceVersion of the status, and how many of its pods were deleted since."""

    def __init__(self) -> None:
        self._deleted = {}

    def delete(self, pod_name: str, covering: Mapping[str, policy_pb2.PodDisruptionBudget]) -> bool:
        """Count the deletion of a pod by its budgets; return whether one of them is violated.

        A pod whose eviction a budget has granted already does not count again.
        """
        is_violated = False
        for key, budget in covering.items():
            if pod_name in budget.status.disrupted_pods:
                continue
            version, deleted = self._deleted.get(key, ("", 0))
            if version != budget.metadata.resource_version:
                deleted = 0
            is_violated |= budget.status.disruptions_allowed <= deleted
            self._deleted[key] = budget.metadata.resource_version, deleted + 1
        return is_violated

    def forget(self, key: str) -> None:
        """Forget a budget that was removed."""
        self._deleted.pop(key, None)
