"""The API objects that the autoscaler has received, as its listers show them.

Everything is listed by name. A pod that has finished is not listed.

Source: kubernetes/autoscaler 1.36 utils/kubernetes/listers.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from services.autoscaler.core.objects import ClusterNode, ClusterPod, DaemonSet, ReplicaController
from services.kube.workloads import PodDisruptionBudget

ClusterObject: TypeAlias = (
    ClusterNode | ClusterPod | PodDisruptionBudget | DaemonSet | ReplicaController
)


@dataclass(slots=True)
class Cluster:
    """Nodes by name, pods and others by namespace/name, controllers by kind, too."""

    by_name: dict[str, ClusterNode] = field(default_factory=dict)
    by_key: dict[str, ClusterPod] = field(default_factory=dict)
    budgets_by_key: dict[str, PodDisruptionBudget] = field(default_factory=dict)
    daemon_sets_by_key: dict[str, DaemonSet] = field(default_factory=dict)
    controllers: dict[tuple[str, str], ReplicaController] = field(default_factory=dict)

    def put(self, change: ClusterObject) -> None:
        """Add or replace an object."""
        match change:
            case ClusterNode():
                self.by_name[change.name] = change
            case ClusterPod():
                self.by_key[change.key] = change
            case PodDisruptionBudget():
                self.budgets_by_key[f"{change.namespace}/{change.name}"] = change
            case DaemonSet():
                self.daemon_sets_by_key[change.key] = change
            case ReplicaController():
                self.controllers[change.kind, f"{change.namespace}/{change.name}"] = change

    def remove(self, kind: str, key: str) -> None:
        """Remove an object by Kubernetes' name of its kind; an unknown one is ignored."""
        match kind:
            case "Node":
                self.by_name.pop(key, None)
            case "Pod":
                self.by_key.pop(key, None)
            case "PodDisruptionBudget":
                self.budgets_by_key.pop(key, None)
            case "DaemonSet":
                self.daemon_sets_by_key.pop(key, None)
            case _:
                self.controllers.pop((kind, key), None)

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
