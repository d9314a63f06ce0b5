"""The Eviction API: a pod's deletion, unless a disruption budget refuses it.

Source: kubernetes v1.34 pkg/registry/core/pod/storage/eviction.go, Create, checkAndDecrement,
canIgnorePDB.
"""

from __future__ import annotations

from replay.world.budgets import DisruptionController
from replay.world.cluster import Cluster
from replay.world.conditions import mark_disrupted
from replay.world.lives import Lives
from replay.world.pod_record import PodRecord
from reprieve.kube.v1alpha1 import policy_pb2
from services.rpc.kube_fields import set_time

DISRUPTED_MAX = 2000


class Evictions:
    """Evicts pods where their budgets allow it."""

    def __init__(self, cluster: Cluster, lives: Lives, budgets: DisruptionController) -> None:
        self._cluster = cluster
        self._lives = lives
        self._budgets = budgets

    def evict(self, now_ns: int, pod: PodRecord, cause: str) -> str:
        """Evict a pod, and answer why it is refused (a 429, or a 500), "" where it is not."""
        refusal = self.refusal(pod)
        if refusal:
            return refusal
        for key in self._binding(pod):
            status = self._cluster.budgets[key].status
            status.disruptions_allowed -= 1
            set_time(status.disrupted_pods[pod.message.metadata.name], now_ns)
            self._cluster.put_budget(now_ns, self._cluster.budgets[key])
            self._cluster.changed.budgets[key] = None
        why = "Eviction API: evicting"
        mark_disrupted(pod.message.status, now_ns, "EvictionByEvictionAPI", why)
        self._lives.delete(now_ns, pod, None, cause)
        return ""

    def refusal(self, pod: PodRecord) -> str:
        """Return why a pod would not be evicted now, "" where it would be."""
        keys = self._binding(pod)
        if len(keys) > 1:
            return (
                "This pod has more than one PodDisruptionBudget, which the eviction subresource "
                "does not support."
            )
        return _refusal(self._cluster.budgets[keys[0]]) if keys else ""

    def _binding(self, pod: PodRecord) -> list[str]:
        """Return the budgets that an eviction of the pod uses up."""
        phase = pod.message.status.phase
        if pod.is_terminal or pod.is_terminating or phase == "Pending":
            return []
        keys = self._budgets.covering(pod)
        if len(keys) == 1 and not pod.is_ready and _spares(self._cluster.budgets[keys[0]]):
            return []
        return keys


def _spares(budget: policy_pb2.PodDisruptionBudget) -> bool:
    """Tell whether pods that are not ready may go without being counted."""
    status = budget.status
    if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    return status.current_healthy >= status.desired_healthy > 0


def _refusal(budget: policy_pb2.PodDisruptionBudget) -> str:
    name, status = budget.metadata.name, budget.status
    if status.observed_generation < budget.metadata.generation:
        return f"The disruption budget {name} is still being processed by the server."
    if len(status.disrupted_pods) > DISRUPTED_MAX:
        return f"The disruption budget {name} has too many disruptions that are not over."
    if status.disruptions_allowed <= 0:
        return (
            "Cannot evict pod as it would violate the pod's disruption budget. The disruption "
            f"budget {name} needs {status.desired_healthy} healthy pods and has "
            f"{status.current_healthy} currently"
        )
    return ""
