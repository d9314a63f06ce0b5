"""Disruption budgets: the controller that keeps their status, and the Eviction API that obeys it.

A budget's status is computed between rounds, for the budgets whose pods have changed. The pods of a
budget are counted as they come, change and go, so that a change costs the same for ten pods and for
ten thousand.

Source: kubernetes v1.34 pkg/controller/disruption/disruption.go: trySync, getExpectedPodCount,
getExpectedScale, countHealthyPods, buildDisruptedPodMap, updatePdbStatus, failSafe (DeletionTimeout
is 2 min); pkg/registry/core/pod/storage/eviction.go, Create, checkAndDecrement, canIgnorePDB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from replay.world.api.cluster import Changed, Cluster
from replay.world.api.conditions import mark_disrupted
from replay.world.api.pod_record import PodRecord
from replay.world.kubelet.pod_lifecycle import Lives
from replay.world.timeline import Kind, Timeline
from reprieve.kube.v1beta1 import pod_pb2, policy_pb2
from services.kube.selector import LabelSelectors
from services.kube.workloads import IntOrPercent, PodDisruptionBudget
from services.rpc.kube.codec import budget_from_message
from services.rpc.kube.fields import set_time, time_ns

DELETION_TIMEOUT_NS = 120 * 1_000_000_000
DISRUPTED_MAX = 2000


@dataclass(frozen=True, slots=True)
class _Member:
    """A pod that a budget covers; `healthy`: ready and not terminating."""

    healthy: bool
    owner_uid: str


@dataclass(slots=True)
class _Watched:
    """A budget and its pods; `owners` counts them by controller, "" for none."""

    value: PodDisruptionBudget
    members: dict[str, _Member] = field(default_factory=dict)
    healthy: int = 0
    owners: dict[str, int] = field(default_factory=dict)

    def count(self, pod: PodRecord) -> None:
        """Count a pod as it is now."""
        self.drop(pod.uid)
        now = _Member(pod.is_ready and not pod.is_terminating, pod.owner_uid)
        self.members[pod.uid] = now
        self.healthy += now.healthy
        self.owners[now.owner_uid] = self.owners.get(now.owner_uid, 0) + 1

    def drop(self, uid: str) -> None:
        """Count a pod no more; one that is not counted is accepted."""
        before = self.members.pop(uid, None)
        if before is not None:
            self.healthy -= before.healthy
            self.owners[before.owner_uid] -= 1
            if not self.owners[before.owner_uid]:
                del self.owners[before.owner_uid]


@dataclass(frozen=True, slots=True)
class _Cover:
    """The budgets over a pod, by key, when the controller's budgets were those of `version`.

    They are the same while its message is (labels are in it).
    """

    message: pod_pb2.Pod
    version: int
    budgets: Mapping[str, _Watched]


class DisruptionController:
    """Keeps the status of every budget of a cluster."""

    def __init__(
        self, cluster: Cluster, timeline: Timeline, *, recorded_status: bool = False
    ) -> None:
        self._cluster = cluster
        self._timeline = timeline
        self._recorded_status = recorded_status
        self._watched: dict[str, _Watched] = {}
        self._by_namespace: dict[str, LabelSelectors[str]] = {}
        self._version = 0
        self._covers: dict[str, _Cover] = {}

    def put(self, now_ns: int, message: policy_pb2.PodDisruptionBudget) -> None:
        """Add or replace a budget; raises FieldError for one that cannot be read.

        The status is the controller's: of one that is given, only the granted disruptions of a new
        budget are read.
        """
        value = budget_from_message(message)
        key = f"{value.namespace}/{value.name}"
        if not self._recorded_status:
            _keep_status(self._cluster.budgets.get(key), message)
        watched = _Watched(value)
        for pod in self._cluster.pods.values():
            if _is_covered(value, pod):
                watched.count(pod)
                self._covers.setdefault(pod.uid, _Cover(pod.message, self._version, {}))
        self._version += 1
        self._watched[key] = watched
        self._by_namespace.setdefault(value.namespace, LabelSelectors()).put(key, value.selector)
        self._cluster.put_budget(now_ns, message)
        self._cluster.changed.budgets[key] = None

    def remove(self, now_ns: int, key: str) -> None:
        """Forget a budget; an unknown one is accepted."""
        watched = self._watched.pop(key, None)
        if watched is not None:
            self._version += 1
            self._by_namespace[watched.value.namespace].remove(key)
            self._timeline.cancel(Kind.RECHECK, key)
            self._cluster.remove_budget(now_ns, key)

    def covering(self, pod: PodRecord) -> list[str]:
        """Return the keys of the budgets over a pod."""
        meta = pod.message.metadata
        selectors = self._by_namespace.get(meta.namespace)
        return [] if selectors is None else selectors.matching(meta.labels)

    def recheck(self, key: str) -> None:
        """Look at a budget again, since a granted disruption may have waited for too long."""
        self._cluster.changed.budgets[key] = None

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
        stale = dict.fromkeys(key for key in changed.budgets if key in self._watched)
        for uid in changed.pods if self._watched else ():
            stale |= dict.fromkeys(self._concerned(uid))
        for key in stale:
            self._sync(now_ns, key)

    def _concerned(self, uid: str) -> Iterable[str]:
        """Count one pod anew and return the budgets that it concerns, or has concerned."""
        pod, cover = self._cluster.pods.get(uid), self._covers.get(uid)
        known = {} if cover is None else cover.budgets
        if cover is not None and cover.version != self._version:
            known = {key: each for key, each in self._watched.items() if uid in each.members}
        elif cover is not None and pod is not None and cover.message is pod.message:
            for watched in known.values():
                watched.count(pod)
            return known
        for watched in known.values():
            watched.drop(uid)
        self._covers.pop(uid, None)
        if pod is None:
            return known
        found = {key: self._watched[key] for key in self.covering(pod)}
        for watched in found.values():
            watched.count(pod)
        self._covers[uid] = _Cover(pod.message, self._version, found)
        return [*known, *found]

    def _sync(self, now_ns: int, key: str) -> None:
        message, watched = self._cluster.budgets[key], self._watched[key]
        status = policy_pb2.PodDisruptionBudgetStatus()
        status.CopyFrom(message.status)
        granted = self._still_granted(now_ns, key, message, watched)
        expected = self._expected(watched)
        if expected is None:
            status.disruptions_allowed = 0
        else:
            status.current_healthy = watched.healthy - self._doomed(now_ns, watched, granted)
            status.desired_healthy = _desired(watched.value, expected)
            status.expected_pods = expected
            spare = max(0, status.current_healthy - status.desired_healthy)
            status.disruptions_allowed = spare if expected > 0 else 0
            status.observed_generation = message.metadata.generation
            for name in [name for name in status.disrupted_pods if name not in granted]:
                del status.disrupted_pods[name]
        if status != message.status:
            message.status.CopyFrom(status)
            self._cluster.put_budget(now_ns, message)

    def _expected(self, watched: _Watched) -> int | None:
        """Return how many pods there should be; None where a pod's controller has no known scale.

        A number in minAvailable is compared with the pods that there are, all else with the scale
        of their controllers; pods without one do not count then.
        """
        value = watched.value
        amount = value.max_unavailable or value.min_available
        if amount is None:
            return 0
        if value.max_unavailable is None and not amount.percent:
            return len(watched.members)
        scales: dict[str, int] = {}
        for owner_uid in watched.owners:
            if owner_uid:
                found = self._scale(owner_uid)
                if found is None:
                    return None
                scales[found[0]] = found[1]
        return sum(scales.values())

    def _scale(self, owner_uid: str) -> tuple[str, int] | None:
        """Return who decides on a pod's controller's replicas, and how many; None: not known.

        A ReplicaSet whose Deployment is not known speaks for itself: a trace may leave it out.
        """
        replica_set = self._cluster.replica_sets.get(owner_uid)
        if replica_set is None:
            scale = self._cluster.scales.get(owner_uid)
            return None if scale is None else (owner_uid, scale)
        for owner in replica_set.metadata.owner_references:
            deployment = self._cluster.deployments.get(owner.uid)
            if owner.controller and deployment is not None:
                spec = deployment.spec
                return owner.uid, spec.replicas if spec.HasField("replicas") else 1
        return owner_uid, (
            replica_set.spec.replicas if replica_set.spec.HasField("replicas") else 1
        )

    def _still_granted(
        self,
        now_ns: int,
        key: str,
        message: policy_pb2.PodDisruptionBudget,
        watched: _Watched,
    ) -> dict[str, int]:
        """Return until when the granted disruptions that are not over are waited for, by pod name.

        The budget is looked at again when the first of them is given up.
        """
        until_ns = {
            name: time_ns(stamp) + DELETION_TIMEOUT_NS
            for name, stamp in sorted(message.status.disrupted_pods.items())
        }
        granted = {
            name: at_ns
            for name, at_ns in until_ns.items()
            if at_ns >= now_ns and self._awaits_deletion(watched, name)
        }
        if granted:
            self._timeline.plan(min(granted.values()) + 1, Kind.RECHECK, key)
        return granted

    def _awaits_deletion(self, watched: _Watched, name: str) -> bool:
        uid = self._cluster.pod_uids.get(f"{watched.value.namespace}/{name}", "")
        return uid in watched.members and not self._cluster.pods[uid].is_terminating

    def _doomed(self, now_ns: int, watched: _Watched, granted: Mapping[str, int]) -> int:
        """Count the healthy pods that are about to be deleted."""
        namespace = watched.value.namespace
        return sum(
            watched.members[self._cluster.pod_uids[f"{namespace}/{name}"]].healthy
            for name, until_ns in granted.items()
            if until_ns > now_ns
        )


def _desired(value: PodDisruptionBudget, expected: int) -> int:
    """Return how many healthy pods a budget asks for, where so many are expected."""
    if value.max_unavailable is not None:
        return max(0, expected - _resolve(value.max_unavailable, expected))
    return 0 if value.min_available is None else _resolve(value.min_available, expected)


def _keep_status(
    known: policy_pb2.PodDisruptionBudget | None, message: policy_pb2.PodDisruptionBudget
) -> None:
    status = policy_pb2.PodDisruptionBudgetStatus()
    if known is not None:
        status.CopyFrom(known.status)
    else:
        for name, stamp in message.status.disrupted_pods.items():
            status.disrupted_pods[name].CopyFrom(stamp)
    message.status.CopyFrom(status)


def _is_covered(value: PodDisruptionBudget, pod: PodRecord) -> bool:
    meta = pod.message.metadata
    return (
        value.selector is not None
        and meta.namespace == value.namespace
        and value.selector.matches(meta.labels)
    )


def _resolve(amount: IntOrPercent, total: int) -> int:
    """Return a count; percentages round up (intstr.GetScaledValueFromIntOrPercent, roundUp)."""
    return -(-total * amount.amount // 100) if amount.percent else amount.amount


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
