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
    """Nodes by name, pods and others by namespace/name, controllers by kind, too.

    `controller_changes` counts changes of controllers and daemon sets.
    """

    by_name: dict[str, ClusterNode] = field(default_factory=dict)
    by_key: dict[str, ClusterPod] = field(default_factory=dict)
    budgets_by_key: dict[str, PodDisruptionBudget] = field(default_factory=dict)
    daemon_sets_by_key: dict[str, DaemonSet] = field(default_factory=dict)
    controllers: dict[tuple[str, str], ReplicaController] = field(default_factory=dict)
    controller_changes: int = 0
    _pod_keys: list[str] = field(default_factory=list)
    _new_pod_keys: list[str] = field(default_factory=list)

    def put(self, change: ClusterObject) -> None:
        """Add or replace an object."""
        match change:
            case ClusterNode():
                self.by_name[change.name] = change
            case ClusterPod():
                if change.key not in self.by_key:
                    self._new_pod_keys.append(change.key)
                self.by_key[change.key] = change
            case PodDisruptionBudget():
                self.budgets_by_key[f"{change.namespace}/{change.name}"] = change
            case DaemonSet():
                self.daemon_sets_by_key[change.key] = change
                self.controller_changes += 1
            case ReplicaController():
                self.controllers[change.kind, f"{change.namespace}/{change.name}"] = change
                self.controller_changes += 1

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
                self.controller_changes += 1
            case _:
                self.controllers.pop((kind, key), None)
                self.controller_changes += 1

    def nodes(self) -> list[ClusterNode]:
        """Return all nodes by name."""
        return [node for _, node in sorted(self.by_name.items())]

    def pods(self) -> list[ClusterPod]:
        """Return the pods that have not finished, by key."""
        if self._new_pod_keys or len(self._pod_keys) != len(self.by_key):
            # A key that was removed and added again is listed twice. Sorting a list that is nearly
            # sorted costs little.
            keys = sorted([*self._pod_keys, *self._new_pod_keys])
            self._pod_keys = [key for key in dict.fromkeys(keys) if key in self.by_key]
            self._new_pod_keys = []
        pods = map(self.by_key.__getitem__, self._pod_keys)
        return [pod for pod in pods if not pod.pod.is_terminal]

    def budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """Return the disruption budgets by key."""
        return tuple(budget for _, budget in sorted(self.budgets_by_key.items()))

    def daemon_sets(self) -> list[DaemonSet]:
        """Return the daemon sets by key."""
        return [daemon_set for _, daemon_set in sorted(self.daemon_sets_by_key.items())]

    def pod(self, key: str) -> ClusterPod | None:
        """Return a pod, also a finished one; None if it does not exist."""
        return self.by_key.get(key)
