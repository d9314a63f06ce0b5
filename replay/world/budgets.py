"""The disruption controller: each budget's status, from the pods as they stand.

A budget's status is computed between rounds, for the budgets whose pods have changed.

Source: kubernetes v1.34 pkg/controller/disruption/disruption.go: trySync, getExpectedPodCount,
getExpectedScale, countHealthyPods, buildDisruptedPodMap, updatePdbStatus, failSafe (DeletionTimeout
is 2 min).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from replay.world.cluster import Changed, Cluster, PodRecord
from replay.world.conditions import nanoseconds
from reprieve.kube.v1alpha1 import policy_pb2
from services.kube.budget import IntOrPercent, PodDisruptionBudget
from services.rpc.kube_codec import budget_from_message

DELETION_TIMEOUT_NS = 120 * 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a budget's status says."""

    healthy: int
    desired: int
    expected: int
    allowed: int


class DisruptionController:
    """Keeps the status of every budget of a cluster."""

    def __init__(self, cluster: Cluster, *, recorded_status: bool = False) -> None:
        self._cluster = cluster
        self._recorded_status = recorded_status
        self._values: dict[str, PodDisruptionBudget] = {}
        self._members: dict[str, dict[str, PodRecord]] = {}

    def put(self, now_ns: int, message: policy_pb2.PodDisruptionBudget) -> None:
        """Add or replace a budget; raises FieldError for one that cannot be read."""
        value = budget_from_message(message)
        key = f"{value.namespace}/{value.name}"
        self._values[key] = value
        self._members[key] = {
            pod.uid: pod for pod in self._cluster.pods.values() if _covers(value, pod)
        }
        self._cluster.put_budget(now_ns, message)
        self._cluster.changed.budgets[key] = None

    def remove(self, now_ns: int, key: str) -> None:
        """Forget a budget; an unknown one is accepted."""
        self._values.pop(key, None)
        self._members.pop(key, None)
        self._cluster.remove_budget(now_ns, key)

    def observed(self, now_ns: int, key: str, status: policy_pb2.PodDisruptionBudgetStatus) -> None:
        """Take a recorded status, where recorded ones are asked for."""
        message = self._cluster.budgets.get(key)
        if self._recorded_status and message is not None:
            message.status.CopyFrom(status)
            self._cluster.put_budget(now_ns, message)

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Compute the status of every budget whose pods, or which itself, has changed."""
        if self._recorded_status:
            return
        stale = dict.fromkeys(key for key in changed.budgets if key in self._values)
        for uid in changed.pods if self._values else ():
            stale |= dict.fromkeys(self._membership(uid))
        for key in stale:
            self._sync(now_ns, key)

    def _membership(self, uid: str) -> Iterable[str]:
        """Bring the members up to date for one pod and yield the budgets that it concerns."""
        pod = self._cluster.pods.get(uid)
        for key, value in self._values.items():
            members = self._members[key]
            covered = pod is not None and _covers(value, pod)
            if covered and pod is not None:
                members[uid] = pod
                yield key
            elif members.pop(uid, None) is not None:
                yield key

    def _sync(self, now_ns: int, key: str) -> None:
        message = self._cluster.budgets[key]
        pods = list(self._members[key].values())
        status = policy_pb2.PodDisruptionBudgetStatus()
        status.CopyFrom(message.status)
        disrupted = _still_disrupted(message, pods, now_ns)
        counts = self._count(self._values[key], pods, disrupted)
        if counts is None:
            status.disruptions_allowed = 0
        else:
            status.current_healthy = counts.healthy
            status.desired_healthy = counts.desired
            status.expected_pods = counts.expected
            status.disruptions_allowed = counts.allowed
            status.observed_generation = message.metadata.generation
            for name in [name for name in status.disrupted_pods if name not in disrupted]:
                del status.disrupted_pods[name]
        if status != message.status:
            message.status.CopyFrom(status)
            self._cluster.put_budget(now_ns, message)

    def _count(
        self, value: PodDisruptionBudget, pods: list[PodRecord], disrupted: Mapping[str, int]
    ) -> Counts | None:
        """Return the counts; None where a pod's controller has no scale that is known here."""
        healthy = sum(_is_healthy(pod, disrupted) for pod in pods)
        amount = value.max_unavailable or value.min_available
        if amount is None:
            return Counts(healthy=healthy, desired=0, expected=0, allowed=0)
        if value.max_unavailable is None and not amount.percent:
            expected, desired = len(pods), amount.amount
        else:
            total = self._controllers_scale(pods)
            if total is None:
                return None
            expected, desired = total, _resolve(amount, total)
            if value.max_unavailable is not None:
                desired = max(0, expected - desired)
        allowed = max(0, healthy - desired) if expected > 0 else 0
        return Counts(healthy=healthy, desired=desired, expected=expected, allowed=allowed)

    def _controllers_scale(self, pods: list[PodRecord]) -> int | None:
        """Add up the scale of the pods' controllers; pods without one do not count."""
        scales = [
            self._scale(owner) for owner in dict.fromkeys(pod.owner_uid for pod in pods) if owner
        ]
        known = [scale for scale in scales if scale is not None]
        return sum(known) if len(known) == len(scales) else None

    def _scale(self, owner_uid: str) -> int | None:
        """Return the replicas that a pod's controller asks for; None where it has no scale."""
        replica_set = self._cluster.replica_sets.get(owner_uid)
        if replica_set is None:
            return None
        for owner in replica_set.metadata.owner_references:
            deployment = self._cluster.deployments.get(owner.uid)
            if owner.controller and deployment is not None:
                return deployment.spec.replicas if deployment.spec.HasField("replicas") else 1
        return replica_set.spec.replicas if replica_set.spec.HasField("replicas") else 1


def _covers(value: PodDisruptionBudget, pod: PodRecord) -> bool:
    meta = pod.message.metadata
    return (
        value.selector is not None
        and meta.namespace == value.namespace
        and value.selector.matches(meta.labels)
    )


def _still_disrupted(
    message: policy_pb2.PodDisruptionBudget, pods: Sequence[PodRecord], now_ns: int
) -> Mapping[str, int]:
    """Return the granted disruptions that are neither over nor given up, by pod name."""
    granted = {
        name: nanoseconds(stamp) for name, stamp in sorted(message.status.disrupted_pods.items())
    }
    waiting = {pod.message.metadata.name for pod in pods if not pod.is_terminating}
    return {
        name: at_ns
        for name, at_ns in granted.items()
        if name in waiting and at_ns + DELETION_TIMEOUT_NS >= now_ns
    }


def _resolve(amount: IntOrPercent, total: int) -> int:
    """Return a count; percentages round up (intstr.GetScaledValueFromIntOrPercent, roundUp)."""
    return -(-total * amount.amount // 100) if amount.percent else amount.amount


def _is_healthy(pod: PodRecord, disrupted: Mapping[str, int]) -> bool:
    if pod.is_terminating or pod.message.metadata.name in disrupted:
        return False
    return any(
        each.type == "Ready" and each.status == "True" for each in pod.message.status.conditions
    )
