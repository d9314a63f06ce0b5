"""Finds the disruption budgets that cover a pod: an index by namespace and selector."""

from __future__ import annotations

from reprieve.kube.v1beta1 import meta_pb2
from services.kube.selector import LabelSelectors
from services.kube.workloads import PodDisruptionBudget


class CoveringBudgets:
    """The budgets of the cluster by namespace/name, as their selectors find pods."""

    _budgets: dict[str, PodDisruptionBudget]
    _by_namespace: dict[str, LabelSelectors[str]]

    def __init__(self) -> None:
        self._budgets = {}
        self._by_namespace = {}

    def put(self, key: str, budget: PodDisruptionBudget) -> None:
        """Add or replace a budget."""
        self._budgets[key] = budget
        selectors = self._by_namespace.setdefault(budget.namespace, LabelSelectors())
        selectors.put(key, budget.selector)

    def remove(self, key: str) -> None:
        """Remove a budget that is there."""
        self._by_namespace[self._budgets.pop(key).namespace].remove(key)

    def of(self, meta: meta_pb2.ObjectMeta) -> list[str]:
        """Return the keys of the budgets that cover a pod."""
        selectors = self._by_namespace.get(meta.namespace)
        return [] if selectors is None else selectors.matching(meta.labels)

    def guarding(self, meta: meta_pb2.ObjectMeta) -> str:
        """Return the key of the first budget that guards a pod, "" if none."""
        guarding = (
            key for key in self.of(meta) if self._budgets[key].guards(meta.namespace, meta.labels)
        )
        return next(guarding, "")
