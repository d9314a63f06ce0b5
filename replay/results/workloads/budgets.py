"""Disruption budgets with too few healthy pods, and the workloads that they cover.

Source: kubernetes v1.34 pkg/controller/disruption/disruption.go, updatePdbStatus.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reprieve.kube.v1beta1 import meta_pb2, policy_pb2
from services.kube.selector import LabelSelectors
from services.rpc.kube.fields import optional_selector


@dataclass(slots=True)
class Budgets:
    """The disruption budgets by namespace and name, and which have too few healthy pods."""

    _selectors: dict[str, LabelSelectors[str]] = field(default_factory=dict)
    _selector_of: dict[tuple[str, str], meta_pb2.LabelSelector | None] = field(default_factory=dict)
    _below: dict[tuple[str, str], None] = field(default_factory=dict)

    def put(self, message: policy_pb2.PodDisruptionBudget) -> bool:
        """Add or replace a budget; return whether this may change the status of a workload."""
        key = message.metadata.namespace, message.metadata.name
        spec, status = message.spec, message.status
        is_below = bool(status.expected_pods) and status.current_healthy < status.desired_healthy
        selector = spec.selector if spec.HasField("selector") else None
        was_below = key in self._below
        is_new = key not in self._selector_of or self._selector_of[key] != selector
        if is_new:
            read = optional_selector(spec, "selector", "pod_disruption_budget.spec.selector")
            self._selectors.setdefault(key[0], LabelSelectors()).put(key[1], read)
            self._selector_of[key] = selector
        if is_below:
            self._below[key] = None
        else:
            self._below.pop(key, None)
        return is_new or was_below != is_below

    def remove(self, namespace: str, name: str) -> None:
        """Remove a budget; an unknown one is accepted."""
        self._selector_of.pop((namespace, name), None)
        self._below.pop((namespace, name), None)
        if namespace in self._selectors:
            self._selectors[namespace].remove(name)

    def below(self, namespace: str, labels: dict[str, str]) -> list[str]:
        """Return the budgets that select pods with these labels and have too few healthy pods."""
        selectors = self._selectors.get(namespace)
        if selectors is None or not self._below:
            return []
        return [name for name in selectors.matching(labels) if (namespace, name) in self._below]
