"""The API objects that the autoscaler has received, as its listers show them.

Everything is listed by name. A pod that has finished is not listed.

Source: kubernetes/autoscaler 1.36 utils/kubernetes/listers.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from services.autoscaler.core.objects import ClusterNode, ClusterPod, DaemonSet, ReplicaController
from services.kube.workloads import PodDisruptionBudget


@dataclass(slots=True)
class Cluster:
    """Nodes by name, pods and others by namespace/name, controllers by kind, too."""

    by_name: dict[str, ClusterNode] = field(default_factory=dict)
    by_key: dict[str, ClusterPod] = field(default_factory=dict)
    budgets_by_key: dict[str, PodDisruptionBudget] = field(default_factory=dict)
    daemon_sets_by_key: dict[str, DaemonSet] = field(default_factory=dict)
    controllers: dict[tuple[str, str], ReplicaController] = field(default_factory=dict)

    def nodes(self) -> list[ClusterNode]:
        """Return all nodes by name."""
        return [node for _, node in sorted(self.by_name.items())]

    def pods(self) -> list[ClusterPod]:
        """Return the pods that have not finished, by key."""
        return [pod for _, pod in sorted(self.by_key.items()) if not pod.pod.is_terminal]

    def budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """Return the disruption budgets by key."""
        return tuple(budget for _, budget in sorted(self.budgets_by_key.items()))

    def daemon_sets(self) -> list[DaemonSet]:
        """Return the daemon sets by key."""
        return [daemon_set for _, daemon_set in sorted(self.daemon_sets_by_key.items())]

    def pod(self, key: str) -> ClusterPod | None:
        """Return a pod, also one that has finished; None if it is gone."""
        return self.by_key.get(key)
