"""The API objects of the cluster, and the events that their changes cause.

Each method that changes an object does three things: it changes the object, appends the event that
a watch would send (for the scheduler's next round), and marks what controllers must look at again.
Objects are the contract's own messages: documents, as an API server stores them.

An object's resourceVersion counts its own changes here, from "1", whatever the trace says, so that
the events of one object do not depend on changes of others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from replay.world.api import conditions
from replay.world.api.covering_budgets import CoveringBudgets
from replay.world.api.device_claims import ResourceClaim, StoredClaims, key_of
from replay.world.api.owned_pods import OwnedPods, drop
from replay.world.api.pod_record import (
    PodRecord,
    controller_uid,
    keep_own,
    object_ref,
    set_controller,
    stamp,
    status_event,
)
from replay.world.api.spent_budgets import SpentBudgets
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, object_pb2, pod_pb2, policy_pb2, workloads_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.pod import DEFAULT_SCHEDULER
from services.rpc.kube.fields import set_time

StatusWriter = Callable[[int, PodRecord, conditions.Write | None], scheduler_pb2.Event]
_Replicated = (
    workloads_pb2.ReplicaSetSpec | workloads_pb2.DeploymentSpec | workloads_pb2.StatefulSetSpec
)


@dataclass(slots=True, kw_only=True)
class Changed:
    """The changed objects that controllers must sync, in order of the first change (dicts as sets).

    `relabelled` are the pods that are new, or whose labels or owners a user has changed, `disowned`
    the former controllers of pods that have another one or none now, by the pod's UID, `disrupted`
    the budgets of pods that are disrupted because the budgets' statuses allow it, `claims` the
    ResourceClaims, by namespace/name.
    """

    owners: dict[str, None] = field(default_factory=dict)
    deployments: dict[str, None] = field(default_factory=dict)
    pods: dict[str, pod_pb2.Pod] = field(default_factory=dict)
    relabelled: dict[str, None] = field(default_factory=dict)
    disowned: dict[str, str] = field(default_factory=dict)
    budgets: dict[str, None] = field(default_factory=dict)
    disrupted: dict[str, None] = field(default_factory=dict)
    nodes: dict[str, None] = field(default_factory=dict)
    claims: dict[str, None] = field(default_factory=dict)

    def add(self, later: Changed) -> None:
        """Add later changes."""
        self.owners.update(later.owners)
        self.deployments.update(later.deployments)
        self.pods.update(later.pods)
        self.relabelled.update(later.relabelled)
        self.disowned = later.disowned | self.disowned
        self.budgets.update(later.budgets)
        self.disrupted.update(later.disrupted)
        self.nodes.update(later.nodes)
        self.claims.update(later.claims)


class Cluster:
    """All objects of the simulated cluster.

    `events` are those of the next round. `watch` is called with each of them, its pod (None: it is
    about another object) and whether it ends the pod's nomination; `write_status` writes a pod's
    status and makes its event. `orphans` are the pods without a controller, by namespace. `births`
    counts the pods that each owner has ever had, except those that had ended when they were
    created, and adopted ones.
    `scales` holds the replicas of controllers other than ReplicaSets, by UID.
    `active_by_node` holds the pods of `pods_by_node` that have not ended, `ended` all pods that
    have ended and still exist. `changed_by_node` collects the UIDs of a node's changed pods for its
    kubelet, which empties it, from the kubelet's first look on.
    `enlisted` counts how often a pod became pending, `tried` the pending pods that were tried at
    the current `snapshot_version`.
    `binding_ends_nomination`: a binding clears status.nominatedNodeName, as an API server's does
    since v1.35; before, the kubelet's first status does.
    """

    _others: dict[tuple[str, str, str], int]
    pods: dict[str, PodRecord]
    nodes: dict[str, node_pb2.Node]
    pods_by_node: dict[str, dict[str, PodRecord]]
    active_by_node: dict[str, dict[str, PodRecord]]
    ended: dict[str, PodRecord]
    pods_by_owner: dict[str, dict[str, PodRecord]]
    orphans: dict[str, dict[str, PodRecord]]
    pod_uids: dict[str, str]
    budgets: dict[str, policy_pb2.PodDisruptionBudget]
    replica_sets: dict[str, workloads_pb2.ReplicaSet]
    deployments: dict[str, workloads_pb2.Deployment]
    scales: dict[str, int]
    births: dict[str, int]
    pending: dict[str, PodRecord]
    events: list[scheduler_pb2.Event]
    _changed: Changed | None
    snapshot_version: int
    tried: int
    enlisted: int

    def __init__(
        self,
        scheduler_names: frozenset[str] = frozenset({DEFAULT_SCHEDULER}),
        *,
        binding_ends_nomination: bool = False,
    ) -> None:
        self._scheduler_names = scheduler_names
        self._binding_ends_nomination = binding_ends_nomination
        self._others = {}
        self.pods = {}
        self.nodes = {}
        self.pods_by_node = {}
        self.active_by_node = {}
        self.ended = {}
        self.pods_by_owner = {}
        self.owned = OwnedPods()
        self.orphans = {}
        self.pod_uids = {}
        self.budgets = {}
        self.covering_budgets = CoveringBudgets()
        self.spent_budgets = SpentBudgets()
        self.device_claims = StoredClaims()
        self.replica_sets = {}
        self.deployments = {}
        self.scales = {}
        self.births = {}
        self.pending = {}
        self.events = []
        self.watch: Callable[[scheduler_pb2.Event, PodRecord | None, bool], None] = _ignore
        self.write_status: StatusWriter = write_status
        self.changed_by_node: dict[str, dict[str, None]] = {}
        self._changed = None
        self.snapshot_version = 0
        self.tried = 0
        self.enlisted = 0

    # Pods

    def create_pod(self, pod: PodRecord, event: scheduler_pb2.Event) -> None:
        """Add a pod that `new_pod` made, with its event; its UID and its key must be free."""
        pod.gates_changed(event.time_ns)
        self.pods[pod.uid] = pod
        self.pod_uids[pod.key] = pod.uid
        if pod.is_terminal:
            self.ended[pod.uid] = pod
        if pod.owner_uid:
            self.pods_by_owner.setdefault(pod.owner_uid, {})[pod.uid] = pod
            self.births[pod.owner_uid] = self.births.get(pod.owner_uid, 0) + (not pod.is_terminal)
        else:
            self.orphans.setdefault(pod.message.metadata.namespace, {})[pod.uid] = pod
        self.changed.relabelled[pod.uid] = None
        if pod.node_name:
            self._place(pod)
        else:
            self._enlist(pod)
        self._add_event(event, pod)
        self._pod_changed(pod)

    def bind(self, now_ns: int, pod: PodRecord, node_name: str) -> None:
        """Apply the Binding subresource.

        Source: kubernetes v1.36 pkg/registry/core/pod/storage/storage.go, BindingREST, with
        ClearingNominatedNodeNameAfterBinding.
        """
        pod.message.spec.node_name = node_name
        nominated = bool(pod.message.status.nominated_node_name)
        if self._binding_ends_nomination:
            pod.message.status.nominated_node_name = ""
        event = self.write_status(now_ns, pod, conditions.scheduled)
        event.patch.node_name = node_name
        self._delist(pod)
        self._place(pod)
        self._add_event(event, pod, ends_nomination=nominated)
        self._pod_changed(pod)

    def status_changed(
        self,
        now_ns: int,
        pod: PodRecord,
        write: conditions.Write | None = None,
        *,
        nomination_ended: bool = False,
    ) -> None:
        """Apply `write` to a pod's status (None: it has been changed already) and add the event.

        `nomination_ended`: the status no longer nominates a pending pod.
        """
        event = self.write_status(now_ns, pod, write)
        if pod.is_terminal:
            self.ended[pod.uid] = pod
            self._delist(pod)
            self._leave(pod)
        self._add_event(event, pod, ends_nomination=nomination_ended)
        self._pod_changed(pod)

    def deletion_requested(
        self, now_ns: int, pod: PodRecord, *, deletion_ns: int, grace_s: int
    ) -> None:
        """Set deletionTimestamp and its grace period, seconds; the event has the status, too."""
        meta = pod.message.metadata
        set_time(meta.deletion_timestamp, deletion_ns)
        meta.deletion_grace_period_seconds = grace_s
        event = status_event(now_ns, pod)
        event.patch.deletion_time_ns = deletion_ns
        self._delist(pod)
        self._add_event(event, pod)
        self._pod_changed(pod)

    def replace_pod(self, now_ns: int, pod: PodRecord, message: pod_pb2.Pod) -> None:
        """Replace a pod by a user's version; fields that a user cannot change stay."""
        keep_own(pod.message, message)
        stamp(message.metadata, pod.message)
        pod.message = message
        self.changed.relabelled[pod.uid] = None
        self._updated(now_ns, pod)

    def resized(self, now_ns: int, pod: PodRecord) -> None:
        """Follow a kubelet's decision on a pod's resources, which its status has already."""
        stamp(pod.message.metadata, pod.message)
        self._updated(now_ns, pod)

    def set_controller(
        self, now_ns: int, pod: PodRecord, owner: meta_pb2.OwnerReference | None
    ) -> None:
        """Let a pod be adopted by a controller, or released (None)."""
        set_controller(pod.message.metadata, owner)
        stamp(pod.message.metadata, pod.message)
        self._updated(now_ns, pod)

    def _updated(self, now_ns: int, pod: PodRecord) -> None:
        """Follow a change of a pod's metadata or spec, and add its event."""
        self._update_owner(pod)
        pod.gates_changed(now_ns)
        if pod.queued:
            self.tried -= pod.tried_at == self.snapshot_version
            pod.tried_at = -1
        elif not pod.node_name:
            self._enlist(pod)
        elif not pod.is_terminal:
            self._snapshot_changed()
        event = scheduler_pb2.Event(time_ns=now_ns)
        event.update.pod.CopyFrom(pod.message)
        self._add_event(event, pod)
        self._pod_changed(pod)

    def remove_pod(self, now_ns: int, pod: PodRecord) -> None:
        """Remove a pod from the API server."""
        del self.pods[pod.uid]
        self.ended.pop(pod.uid, None)
        if self.pod_uids.get(pod.key) == pod.uid:
            del self.pod_uids[pod.key]
        if pod.owner_uid:
            drop(self.pods_by_owner, pod.owner_uid, pod.uid)
            self.owned.drop(pod.owner_uid, pod.uid)
        else:
            drop(self.orphans, pod.message.metadata.namespace, pod.uid)
        self._delist(pod)
        self._leave(pod)
        if pod.node_name:
            drop(self.pods_by_node, pod.node_name, pod.uid)
        self._add_event(scheduler_pb2.Event(time_ns=now_ns, remove=pod.object_ref()), pod)
        self._pod_changed(pod)

    def has_pod(self, uid: str) -> bool:
        """Return whether the scheduler has a pod of that UID: its removal may not be sent yet."""
        removed = (event.remove.uid == uid for event in self.events)
        return uid in self.pods or (uid != "" and any(removed))

    def is_end_unsent(self, kind: str, identity: str) -> bool:
        """Return whether an unsent event ends or removes a pod, a node or a claim.

        `identity` is a pod's UID, a node's name or a claim's namespace/name; a pod ends by its
        removal, or by the request to delete it.
        """
        if kind != "Pod":
            removed = (event.remove for event in self.events if event.remove.kind == kind)
            return any(identity in (gone.name, f"{gone.namespace}/{gone.name}") for gone in removed)
        return any(
            event.remove.uid == identity
            or (event.patch.HasField("deletion_time_ns") and event.patch.pod.uid == identity)
            for event in self.events
        )

    def has_node(self, name: str) -> bool:
        """Return whether there is a node of that name."""
        return name in self.nodes

    def guarding_budget(self, uid: str) -> str:
        """Return namespace/name of the first budget that guards a pod, "" if none.

        A pod that is terminating, or gone, counts as not guarded: its budgets know.
        """
        pod = self.pods.get(uid)
        if pod is None or pod.is_terminating:
            return ""
        return self.covering_budgets.guarding(pod.message.metadata)

    def disrupted(self, pod: PodRecord) -> None:
        """Note that a pod is disrupted because its budgets' statuses allow it."""
        covering = self.covering_budgets.of(pod.message.metadata)
        self.changed.disrupted.update(dict.fromkeys(covering))

    def preempted(self, victim: PodRecord) -> bool:
        """Note that a victim is deleted; return whether that violates one of its budgets."""
        meta = victim.message.metadata
        covering = {key: self.budgets[key] for key in self.covering_budgets.of(meta)}
        allowing = (key for key, budget in covering.items() if budget.status.disruptions_allowed)
        self.changed.disrupted.update(dict.fromkeys(allowing))
        return self.spent_budgets.delete(meta.name, covering)

    def is_schedulable(self, pod: PodRecord) -> bool:
        """Return whether a scheduler of this replay takes the pod once it has no node."""
        if pod.is_terminal or pod.is_terminating or pod.message.spec.scheduling_gates:
            return False
        return (pod.message.spec.scheduler_name or DEFAULT_SCHEDULER) in self._scheduler_names

    def tried_now(self, pod: PodRecord) -> None:
        """Note that a pending pod was tried on the current snapshot."""
        if pod.queued and pod.tried_at != self.snapshot_version:
            pod.tried_at = self.snapshot_version
            self.tried += 1

    def assumed_pod_gone(self) -> None:
        """Note that the scheduler's snapshot loses a pod that was deleted while it was bound."""
        self._snapshot_changed()

    def all_tried(self) -> bool:
        """Return whether every pending pod was tried since the snapshot last changed."""
        return self.tried >= len(self.pending)

    def scheduler_restarted(self, scheduler_names: frozenset[str]) -> None:
        """Note that a new scheduler takes the pods of these names, and has tried none of them."""
        self._scheduler_names = scheduler_names
        for pod in self.pods.values():
            if not pod.node_name and pod.queued != self.is_schedulable(pod):
                if pod.queued:
                    self._delist(pod)
                else:
                    self._enlist(pod)
            pod.tried_at = -1
        self._snapshot_changed()

    # Nodes

    def put_node(self, now_ns: int, node: node_pb2.Node) -> None:
        """Add or replace a node."""
        name = node.metadata.name
        stored = self.nodes.get(name)
        self.nodes[name] = node
        if not node.metadata.HasField("creation_timestamp"):
            set_time(node.metadata.creation_timestamp, now_ns)
        stamp(node.metadata, stored)
        event = scheduler_pb2.Event(time_ns=now_ns)
        (event.add if stored is None else event.update).node.CopyFrom(node)
        self._add_event(event)
        self.changed.nodes[name] = None
        self._snapshot_changed()

    def remove_node(self, now_ns: int, name: str) -> None:
        """Remove a node; its pods stay."""
        node = self.nodes.pop(name)
        self.changed.nodes[name] = None
        ref = meta_pb2.ObjectReference(kind="Node", name=name, uid=node.metadata.uid)
        self._add_event(scheduler_pb2.Event(time_ns=now_ns, remove=ref))
        self._snapshot_changed()

    # Ticks

    def tick(self, now_ns: int) -> None:
        """Add the event for the wake-up time that the scheduler requested."""
        event = scheduler_pb2.Event(time_ns=now_ns)
        event.tick.SetInParent()
        self._add_event(event)

    # Other objects

    def put_budget(self, now_ns: int, budget: policy_pb2.PodDisruptionBudget) -> None:
        """Add or replace a disruption budget."""
        key = f"{budget.metadata.namespace}/{budget.metadata.name}"
        stored = self.budgets.get(key)
        self.budgets[key] = budget
        stamp(budget.metadata, stored)
        event = scheduler_pb2.Event(time_ns=now_ns)
        (event.add if stored is None else event.update).pod_disruption_budget.CopyFrom(budget)
        self._add_event(event)

    def remove_budget(self, now_ns: int, key: str) -> None:
        """Remove a disruption budget; an unknown one is accepted."""
        budget = self.budgets.pop(key, None)
        self.spent_budgets.forget(key)
        if budget is not None:
            ref = object_ref("PodDisruptionBudget", budget.metadata)
            self._add_event(scheduler_pb2.Event(time_ns=now_ns, remove=ref))

    def put_claim(self, now_ns: int, claim: ResourceClaim) -> None:
        """Add or replace a claim for devices."""
        if not claim.metadata.HasField("creation_timestamp"):
            set_time(claim.metadata.creation_timestamp, now_ns)
        stored = self.device_claims.put(claim)
        stamp(claim.metadata, stored)
        event = scheduler_pb2.Event(time_ns=now_ns)
        (event.add if stored is None else event.update).resource_claim.CopyFrom(claim)
        self._add_event(event)
        self.changed.claims[key_of(claim)] = None
        self._snapshot_changed()

    def remove_claim(self, now_ns: int, key: str) -> None:
        """Remove a claim for devices."""
        claim = self.device_claims.pop(key)
        if claim is not None:
            ref = object_ref("ResourceClaim", claim.metadata)
            self._add_event(scheduler_pb2.Event(time_ns=now_ns, remove=ref))
            self.changed.claims[key] = None
            self._snapshot_changed()

    def put_other(self, now_ns: int, message: object_pb2.KubernetesObject, *, is_new: bool) -> None:
        """Add or replace an object that only the scheduler reads."""
        event = scheduler_pb2.Event(time_ns=now_ns)
        sent = event.add if is_new else event.update
        sent.CopyFrom(message)
        content = getattr(sent, sent.WhichOneof("object") or "")
        key = _other_key(content.DESCRIPTOR.name, content.metadata)
        self._others[key] = changes = 1 + (0 if is_new else self._others.get(key, 0))
        content.metadata.resource_version = str(changes)
        self._add_event(event)

    def remove_other(self, now_ns: int, ref: meta_pb2.ObjectReference) -> None:
        """Remove an object that only the scheduler reads."""
        self._others.pop(_other_key(ref.kind, ref), None)
        self._add_event(scheduler_pb2.Event(time_ns=now_ns, remove=ref))

    def take_events(self, before_ns: int | None = None) -> list[scheduler_pb2.Event]:
        """Return the events of the next round; later ones belong to the round after it.

        before_ns: those before that time alone.
        """
        events, self.events = self.events, []
        if before_ns is not None:
            count = bisect_left(events, before_ns, key=attrgetter("time_ns"))
            events, self.events = events[:count], events[count:]
        return events

    @property
    def changed(self) -> Changed:
        """Return the changed objects for controllers; created when one is first marked.

        A replay takes it several times a round, and nothing has changed at most of them.
        """
        if self._changed is None:
            self._changed = Changed()
        return self._changed

    @property
    def has_changed(self) -> bool:
        """Return whether any object has changed for controllers."""
        return self._changed is not None

    def take_changed(self) -> Changed:
        """Return the changed objects for controllers, and reset them."""
        changed, self._changed = self._changed, None
        return changed or Changed()

    # Indexes

    def _enlist(self, pod: PodRecord) -> None:
        """Count a pod as pending, unless no scheduler of this replay takes it."""
        if self.is_schedulable(pod):
            pod.queued = True
            self.pending[pod.uid] = pod
            self.enlisted += 1

    def _place(self, pod: PodRecord) -> None:
        self.pods_by_node.setdefault(pod.node_name, {})[pod.uid] = pod
        if not pod.is_terminal:
            self.active_by_node.setdefault(pod.node_name, {})[pod.uid] = pod
            self._snapshot_changed()

    def _leave(self, pod: PodRecord) -> None:
        """Remove a pod from the active pods of its node, if it is one."""
        if pod.uid in self.active_by_node.get(pod.node_name, ()):
            drop(self.active_by_node, pod.node_name, pod.uid)
            self._snapshot_changed()

    def _update_owner(self, pod: PodRecord) -> None:
        """Follow a change of a pod's controller; both controllers must sync."""
        owner_uid = controller_uid(pod.message.metadata)
        if owner_uid == pod.owner_uid:
            return
        if pod.owner_uid:
            drop(self.pods_by_owner, pod.owner_uid, pod.uid)
            self.owned.drop(pod.owner_uid, pod.uid)
            self.changed.owners[pod.owner_uid] = None
            self.changed.disowned.setdefault(pod.uid, pod.owner_uid)
        else:
            drop(self.orphans, pod.message.metadata.namespace, pod.uid)
        pod.owner_uid = owner_uid
        if owner_uid:
            self.pods_by_owner.setdefault(owner_uid, {})[pod.uid] = pod
        else:
            self.orphans.setdefault(pod.message.metadata.namespace, {})[pod.uid] = pod

    def _delist(self, pod: PodRecord) -> None:
        if pod.queued:
            pod.queued = False
            del self.pending[pod.uid]
            self.tried -= pod.tried_at == self.snapshot_version

    def _snapshot_changed(self) -> None:
        self.snapshot_version += 1
        self.tried = 0

    def _pod_changed(self, pod: PodRecord) -> None:
        self.changed.pods[pod.uid] = pod.message
        on_node = self.changed_by_node.get(pod.node_name)
        if on_node is not None:
            on_node[pod.uid] = None
        if pod.owner_uid:
            self.changed.owners[pod.owner_uid] = None
            if pod.uid in self.pods:
                self.owned.count(pod)

    def _add_event(
        self,
        event: scheduler_pb2.Event,
        pod: PodRecord | None = None,
        *,
        ends_nomination: bool = False,
    ) -> None:
        self.events.append(event)
        self.watch(event, pod, ends_nomination)


def write_status(
    now_ns: int, pod: PodRecord, write: conditions.Write | None
) -> scheduler_pb2.Event:
    """Write a pod's status (None: it has been written) and return the event that patches it."""
    if write is not None:
        write(now_ns, pod.message)
    return status_event(now_ns, pod)


def _ignore(_event: scheduler_pb2.Event, _pod: PodRecord | None, _ends_nomination: bool) -> None:
    """Watch nothing."""


def _other_key(
    kind: str, named: meta_pb2.ObjectMeta | meta_pb2.ObjectReference
) -> tuple[str, str, str]:
    return kind, named.namespace or "default", named.name


def replicas(spec: _Replicated) -> int:
    """Return spec.replicas, 1 where it is absent.

    Source: kubernetes v1.34 pkg/apis/apps/v1/defaults.go, SetDefaults_Deployment and others.
    """
    return spec.replicas if spec.HasField("replicas") else 1
