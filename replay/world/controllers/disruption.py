"""Disruption budgets: the controller of their status, and the Eviction API, which obeys it.

A budget's status is computed between rounds, for the budgets whose pods have changed, so that every
scheduling attempt reads the status after all deletions before it: upstream's attempts may read an
older one. The model `budget_delay_ns` makes the controller late by so much; a note names each
budget that was exceeded for that reason. The pods of a budget are counted at each change, so that a
change costs the same for ten pods and for ten thousand.

Source: kubernetes v1.34 pkg/controller/disruption/disruption.go: trySync, getExpectedPodCount,
getExpectedScale, countHealthyPods, buildDisruptedPodMap, updatePdbStatus, failSafe (DeletionTimeout
is 2 min); pkg/registry/core/pod/storage/eviction.go, Create, checkAndDecrement, canIgnorePDB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from replay.durations import shown
from replay.world.api.cluster import Changed, replicas
from replay.world.api.conditions import mark_disrupted
from replay.world.api.pod_record import PodRecord
from replay.world.controller import Controller
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.kube.v1beta1 import meta_pb2, object_pb2, pod_pb2, policy_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from services.kube.workloads import IntOrPercent, PodDisruptionBudget
from services.rpc.kube.codec import budget_from_message
from services.rpc.kube.fields import set_time, time_ns

DELETION_TIMEOUT_NS = 120 * SECOND_NS
DISRUPTED_MAX = 2000


@dataclass(frozen=True, slots=True)
class _CoveredPod:
    """A pod that a budget covers; `healthy`: ready and not terminating."""

    healthy: bool
    owner_uid: str


@dataclass(slots=True)
class _TrackedBudget:
    """A budget and its pods; `owners` counts them by controller, "" if none."""

    value: PodDisruptionBudget
    members: dict[str, _CoveredPod] = field(default_factory=dict)
    healthy: int = 0
    owners: dict[str, int] = field(default_factory=dict)

    def count(self, pod: PodRecord) -> None:
        """Count a pod in its current state, in place of its previous one."""
        self.drop(pod.uid)
        now = _CoveredPod(pod.is_ready and not pod.is_terminating, pod.owner_uid)
        self.members[pod.uid] = now
        self.healthy += now.healthy
        self.owners[now.owner_uid] = self.owners.get(now.owner_uid, 0) + 1

    def drop(self, uid: str) -> None:
        """Stop counting a pod; one that is not counted is accepted."""
        before = self.members.pop(uid, None)
        if before is not None:
            self.healthy -= before.healthy
            self.owners[before.owner_uid] -= 1
            if not self.owners[before.owner_uid]:
                del self.owners[before.owner_uid]


@dataclass(frozen=True, slots=True)
class _CoveringBudgets:
    """The budgets that cover a pod, by key, among the controller's budgets at `version`.

    They are valid as long as the pod has this `message`, which holds its labels.
    """

    message: pod_pb2.Pod
    version: int
    budgets: Mapping[str, _TrackedBudget]


class DisruptionController(Controller):
    """Keeps the status of every budget; `_due` are those whose delayed status is due now."""

    keeps = frozenset({"PodDisruptionBudget"})
    reads = frozenset({"observed"})
    actions = frozenset({ActionKind.RECHECK, ActionKind.BUDGET_STATUS})
    _due: dict[str, None]
    _budgets: dict[str, _TrackedBudget]
    _version: int
    _covering: dict[str, _CoveringBudgets]

    def __init__(self, state: WorldState) -> None:
        super().__init__(state)
        self._delay_ns = state.models.budget_delay_ns
        self._preemption_delay_ns = state.models.preemption_delay_ns
        self._due = {}
        self._recorded_status = state.models.recorded_budget_status

    def put(self, now_ns: int, message: object_pb2.KubernetesObject) -> None:
        """Add or replace a budget. Raises FieldError for one that cannot be decoded.

        The controller owns the status: of a message's status only the granted disruptions of a new
        budget are kept.
        """
        pdb = message.pod_disruption_budget
        pdb.metadata.namespace = pdb.metadata.namespace or "default"
        value = budget_from_message(pdb)
        key = f"{value.namespace}/{value.name}"
        if key not in self._budgets:
            self._due[key] = None
        if not self._recorded_status:
            _keep_status(self._cluster.budgets.get(key), pdb)
        budget = _TrackedBudget(value)
        for pod in self._cluster.pods.values():
            if _is_covered(value, pod):
                budget.count(pod)
                self._covering.setdefault(pod.uid, _CoveringBudgets(pod.message, self._version, {}))
        self._version += 1
        self._budgets[key] = budget
        self._cluster.covering_budgets.put(key, value)
        self._cluster.put_budget(now_ns, pdb)
        self._cluster.changed.budgets[key] = None

    def remove(self, now_ns: int, ref: meta_pb2.ObjectReference) -> None:
        """Remove a budget."""
        key = f"{ref.namespace or 'default'}/{ref.name}"
        if self._budgets.pop(key, None) is not None:
            self._version += 1
            self._cluster.covering_budgets.remove(key)
            self._timeline.cancel(ActionKind.RECHECK, key)
            self._timeline.cancel(ActionKind.BUDGET_STATUS, key)
            self._cluster.remove_budget(now_ns, key)

    def concerns(self, pod: PodRecord) -> bool:
        """Return whether a budget covers a pod."""
        return bool(self._cluster.covering_budgets.of(pod.message.metadata))

    def act(self, _now_ns: int, action: Action) -> None:
        """Compute a budget's status again: it is due, or a granted disruption has timed out."""
        self._cluster.changed.budgets[action.key] = None
        self._due[action.key] = None

    def read(self, now_ns: int, record: trace_pb2.Record) -> None:
        """Set a recorded status, if the model `recorded_budget_status` is on."""
        observed = record.observed
        if not (self._recorded_status and observed.HasField("budget_status")):
            return
        key = f"{observed.object.namespace}/{observed.object.name}"
        message = self._cluster.budgets.get(key)
        if message is not None:
            message.status.CopyFrom(observed.budget_status.status)
            self._cluster.put_budget(now_ns, message)

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Compute the status of every budget that has changed, or whose pods have."""
        if self._recorded_status:
            return
        if not self._budgets:
            self._due.clear()
            return
        stale = dict.fromkeys(key for key in changed.budgets if key in self._budgets)
        for uid in changed.pods:
            stale |= dict.fromkeys(self._recount(uid))
        if self._delay_ns or self._preemption_delay_ns:
            self._note_exceeded(now_ns, changed.disrupted)
        for key in stale:
            if not self._delay_ns or key in self._due:
                self._sync(now_ns, key)
            elif self._timeline.planned_ns(ActionKind.BUDGET_STATUS, key) is None:
                self._timeline.plan(now_ns + self._delay_ns, ActionKind.BUDGET_STATUS, key)
        self._due.clear()

    def catch_up(self, now_ns: int, uid: str) -> None:
        """Recompute the statuses that a pod's change at this instant has made stale.

        Otherwise the eviction of a pod that has just become unready would be checked against an
        older status; with a delayed status it is.
        """
        if not self._delay_ns and uid in self._cluster.changed.pods:
            self.reconcile(now_ns, self._cluster.changed)

    def _note_exceeded(self, now_ns: int, disrupted: Iterable[str]) -> None:
        """Note the budgets whose status, read too early, has allowed one disruption too many."""
        kind, why = "budget-delay", f"its status was up to {shown(self._delay_ns)} old"
        if not self._delay_ns:
            late = shown(self._preemption_delay_ns)
            kind, why = "preemption-delay", f"it was read {late} before the deletions"
        for key in disrupted:
            if key not in self._budgets:
                continue
            status = self._status(now_ns, key)
            if status.current_healthy < status.desired_healthy:
                text = f"more pods were disrupted than it allows, because {why} (--model {kind})"
                self._journal.note(kind, f"budget {key}: {text}")

    def _recount(self, uid: str) -> Iterable[str]:
        """Count one pod again and return the keys of the budgets that cover, or covered, it."""
        pod, covering = self._cluster.pods.get(uid), self._covering.get(uid)
        before = {} if covering is None else covering.budgets
        if covering is not None and covering.version != self._version:
            before = {key: budget for key, budget in self._budgets.items() if uid in budget.members}
        elif covering is not None and pod is not None and covering.message is pod.message:
            for budget in before.values():
                budget.count(pod)
            return before
        for budget in before.values():
            budget.drop(uid)
        self._covering.pop(uid, None)
        if pod is None:
            return before
        covering_now = self._cluster.covering_budgets.of(pod.message.metadata)
        now = {key: self._budgets[key] for key in covering_now}
        for budget in now.values():
            budget.count(pod)
        self._covering[uid] = _CoveringBudgets(pod.message, self._version, now)
        return [*before, *now]

    def _sync(self, now_ns: int, key: str) -> None:
        message, status = self._cluster.budgets[key], self._status(now_ns, key)
        if status != message.status:
            message.status.CopyFrom(status)
            self._cluster.put_budget(now_ns, message)

    def _status(self, now_ns: int, key: str) -> policy_pb2.PodDisruptionBudgetStatus:
        """Return a budget's status as its pods are now."""
        message, budget = self._cluster.budgets[key], self._budgets[key]
        status = policy_pb2.PodDisruptionBudgetStatus()
        status.CopyFrom(message.status)
        granted = self._still_granted(now_ns, key, message, budget)
        expected = self._expected(budget)
        if expected is None:
            status.disruptions_allowed = 0
        else:
            disrupted = self._healthy_granted(now_ns, budget, granted)
            status.current_healthy = budget.healthy - disrupted
            status.desired_healthy = _desired(budget.value, expected)
            status.expected_pods = expected
            spare = max(0, status.current_healthy - status.desired_healthy)
            status.disruptions_allowed = spare if expected > 0 else 0
            status.observed_generation = message.metadata.generation
            for name in [name for name in status.disrupted_pods if name not in granted]:
                del status.disrupted_pods[name]
        return status

    def _expected(self, budget: _TrackedBudget) -> int | None:
        """Return expectedPods; None if the scale of a pod's controller is unknown.

        A number in minAvailable is compared with the existing pods, anything else with the scale of
        their controllers; pods without a controller do not count then.
        """
        value = budget.value
        amount = value.max_unavailable or value.min_available
        if amount is None:
            return 0
        if value.max_unavailable is None and not amount.percent:
            return len(budget.members)
        scales: dict[str, int] = {}
        for owner_uid in budget.owners:
            if owner_uid:
                scale = self._scale(owner_uid)
                if scale is None:
                    return None
                scales[scale[0]] = scale[1]
        return sum(scales.values())

    def _scale(self, owner_uid: str) -> tuple[str, int] | None:
        """Return the UID of the object with the scale of a pod's controller, and the scale.

        That is a ReplicaSet's Deployment, or the ReplicaSet itself where the trace leaves its
        Deployment out. None: the scale is unknown.
        """
        replica_set = self._cluster.replica_sets.get(owner_uid)
        if replica_set is None:
            scale = self._cluster.scales.get(owner_uid)
            return None if scale is None else (owner_uid, scale)
        for owner in replica_set.metadata.owner_references:
            deployment = self._cluster.deployments.get(owner.uid)
            if owner.controller and deployment is not None:
                return owner.uid, replicas(deployment.spec)
        return owner_uid, replicas(replica_set.spec)

    def _still_granted(
        self, now_ns: int, key: str, message: policy_pb2.PodDisruptionBudget, budget: _TrackedBudget
    ) -> dict[str, int]:
        """Return when the granted disruptions that are not over time out, ns, by pod name.

        The budget is rechecked at the first of these times.
        """
        until_ns = {
            name: time_ns(stamp) + DELETION_TIMEOUT_NS
            for name, stamp in sorted(message.status.disrupted_pods.items())
        }
        granted = {
            name: at_ns
            for name, at_ns in until_ns.items()
            if at_ns >= now_ns and self._awaits_deletion(budget, name)
        }
        if granted:
            self._timeline.plan(min(granted.values()) + 1, ActionKind.RECHECK, key)
        return granted

    def _awaits_deletion(self, budget: _TrackedBudget, name: str) -> bool:
        uid = self._cluster.pod_uids.get(f"{budget.value.namespace}/{name}", "")
        return uid in budget.members and not self._cluster.pods[uid].is_terminating

    def _healthy_granted(
        self, now_ns: int, budget: _TrackedBudget, granted: Mapping[str, int]
    ) -> int:
        """Return the number of healthy pods whose granted deletion is still expected."""
        namespace = budget.value.namespace
        return sum(
            budget.members[self._cluster.pod_uids[f"{namespace}/{name}"]].healthy
            for name, until_ns in granted.items()
            if until_ns > now_ns
        )


def _desired(value: PodDisruptionBudget, expected: int) -> int:
    if value.max_unavailable is not None:
        return max(0, expected - _resolve(value.max_unavailable, expected))
    return 0 if value.min_available is None else _resolve(value.min_available, expected)


def _keep_status(
    stored: policy_pb2.PodDisruptionBudget | None, message: policy_pb2.PodDisruptionBudget
) -> None:
    """Replace the status in a user's update by the stored one; a new budget keeps disruptedPods."""
    status = policy_pb2.PodDisruptionBudgetStatus()
    if stored is not None:
        status.CopyFrom(stored.status)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRefusal:
    """A refused eviction; `budget` is the key of the budget, or of the first of several.

    is_final: another try would fail in the same way (500), and is not worth it (429).
    """

    budget: str
    text: str
    is_final: bool = False


class EvictionApi:
    """The eviction subresource of pods: evicts a pod where its budget allows it."""

    def __init__(
        self, state: WorldState, lifecycle: PodLifecycle, budgets: DisruptionController
    ) -> None:
        self._cluster = state.cluster
        self._lifecycle = lifecycle
        self._budgets = budgets

    def evict(
        self, now_ns: int, pod: PodRecord, cause: str, grace_s: int | None = None
    ) -> EvictionRefusal | None:
        """Evict a pod; return why that is refused, None if it is evicted.

        grace_s: its grace period, None for the pod's own.
        """
        self._budgets.catch_up(now_ns, pod.uid)
        refusal = self.refusal(pod)
        if refusal is not None:
            return refusal
        for key in self._decremented(pod):
            status = self._cluster.budgets[key].status
            status.disruptions_allowed -= 1
            set_time(status.disrupted_pods[pod.message.metadata.name], now_ns)
            self._cluster.put_budget(now_ns, self._cluster.budgets[key])
            self._cluster.changed.budgets[key] = None
        self._cluster.disrupted(pod)
        why = "Eviction API: evicting"
        mark_disrupted(pod.message.status, now_ns, "EvictionByEvictionAPI", why)
        self._lifecycle.delete(now_ns, pod, grace_s, cause)
        return None

    def refusal(self, pod: PodRecord) -> EvictionRefusal | None:
        """Return the refusal that `evict` would return now."""
        keys = self._decremented(pod)
        if not keys:
            return None
        if len(keys) > 1:
            text = (
                "This pod has more than one PodDisruptionBudget, which the eviction subresource "
                "does not support."
            )
            return EvictionRefusal(budget=keys[0], text=text, is_final=True)
        text = _refusal(self._cluster.budgets[keys[0]])
        return EvictionRefusal(budget=keys[0], text=text) if text else None

    def _decremented(self, pod: PodRecord) -> list[str]:
        phase = pod.message.status.phase
        if pod.is_terminal or pod.is_terminating or phase == "Pending":
            return []
        keys = self._cluster.covering_budgets.of(pod.message.metadata)
        if (
            len(keys) == 1
            and not pod.is_ready
            and _ignores_unhealthy(self._cluster.budgets[keys[0]])
        ):
            return []
        return keys


def _ignores_unhealthy(budget: policy_pb2.PodDisruptionBudget) -> bool:
    """Return whether pods that are not ready are evicted without using the budget."""
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
