"""Tracks the disruptions that budgets still allow while removals are simulated.

Each removal that a scan keeps takes its pods off the budgets that select them, so that the next
node sees what would be left. A budget without a selector selects nothing, one with an empty
selector every pod of its namespace.

Source: kubernetes/autoscaler 1.36 core/scaledown/pdb/basic.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.autoscaler.core.objects import ClusterPod
from services.kube.workloads import PodDisruptionBudget


@dataclass(slots=True)
class RemainingBudgets:
    """Disruption budgets by name, and the disruptions that each still allows, by its index."""

    budgets: tuple[PodDisruptionBudget, ...] = ()
    remaining: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.remaining = [budget.disruptions_allowed for budget in self.budgets]

    def matching(self, pod: ClusterPod) -> list[int]:
        """Return how many disruptions each budget that selects the pod has left."""
        return [self.remaining[place] for place in self._places(pod)]

    def allow_all(self, pods: Iterable[ClusterPod]) -> bool:
        """Return whether all pods may be disrupted at once."""
        needed = [0] * len(self.budgets)
        for pod in pods:
            for place in self._places(pod):
                needed[place] += 1
        pairs = zip(needed, self.remaining, strict=True)
        return all(number <= remaining or not number for number, remaining in pairs)

    def take(self, pods: Iterable[ClusterPod]) -> None:
        """Subtract the disruption of pods from the budgets, even below 0."""
        for pod in pods:
            for place in self._places(pod):
                self.remaining[place] -= 1

    def _places(self, pod: ClusterPod) -> list[int]:
        return [
            place
            for place, budget in enumerate(self.budgets)
            if budget.namespace == pod.pod.namespace
            and budget.selector is not None
            and budget.selector.matches(pod.pod.labels)
        ]
