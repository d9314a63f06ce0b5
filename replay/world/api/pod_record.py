"""A pod as the API server stores it, with the state of its life, and the events of its changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from replay.world.api.conditions import is_ready, ready_since_ns, set_pod_condition
from replay.world.models import DEFAULT_GRACE_S
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.kube.v1beta1 import device_pb2, meta_pb2, node_pb2, pod_pb2, policy_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.pod import TERMINAL_PHASES
from services.rpc.kube.fields import set_time

JOB_TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer of a pod that its Job has not counted yet."""
_Versioned: TypeAlias = (
    pod_pb2.Pod
    | node_pb2.Node
    | policy_pb2.PodDisruptionBudget
    | device_pb2.DeviceClaims.ResourceClaim
)
_REMOVED_AT_ONCE = frozenset({JOB_TRACKING, "foregroundDeletion", "orphan"})
"""The finalizers of pods that controllers of Kubernetes' own remove: of Jobs, of garbage."""


@dataclass(slots=True, kw_only=True)
class ContainerRun:
    """A container that was killed while its pod ran, and so has another life than the pod.

    `changed_ns` is when it was killed or restarted last. `restart_ns` is when it will be restarted,
    None if it runs (`runs`) or never will. `kills` counts since the last reset of the backoff.
    """

    changed_ns: int
    runs: bool = True
    restart_ns: int | None = None
    kills: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class PodRecord:
    """A pod as the API server stores it, and the state of its life.

    `running_ns` is when its containers began to run, None before. `eviction` is set once a kubelet
    has decided to evict it. `stopping_ns` is the first request to stop its containers, `stop_ns`
    when they will have stopped; `killed`: they will not exit by themselves. `awaits_ready`: its
    containers run and are not ready yet. `removal` is the cause
    of its removal, "" if none yet. `placed`: a scheduler of this replay bound it, and its placement
    counts as valid. `waits_since_ns` is when it could first be scheduled: its
    creation, or the removal of its scheduling gates; None before. `tried_at` is the snapshot's
    version at its last scheduling attempt. `crashes` counts restarts since the last reset of the
    backoff. `containers` are those that were killed alone, by name; all others run since
    `running_ns`. `allocated` are the resources that its kubelet has allocated while a resize is
    pending, by container ("": of the pod); None: those of its spec.
    """

    uid: str
    key: str
    message: pod_pb2.Pod
    life: trace_pb2.PodLife
    owner_uid: str = ""
    queued: bool = False
    running_ns: int | None = None
    eviction: eviction_pb2.Eviction | None = None
    stopping_ns: int | None = None
    stop_ns: int | None = None
    killed: bool = False
    awaits_ready: bool = False
    removal: str = ""
    placed: bool = False
    waits_since_ns: int | None = None
    tried_at: int = -1
    crashes: int = 0
    containers: dict[str, ContainerRun] = field(default_factory=dict)
    allocated: dict[str, pod_pb2.ResourceRequirements] | None = None
    _ref: meta_pb2.ObjectReference | None = None

    @property
    def node_name(self) -> str:
        """Return spec.nodeName, "" for a pod that is not bound."""
        return self.message.spec.node_name

    @property
    def kubelet_message(self) -> pod_pb2.Pod:
        """Return the pod with the resources that its kubelet has allocated."""
        if self.allocated is None:
            return self.message
        message = pod_pb2.Pod()
        message.CopyFrom(self.message)
        spec = message.spec
        for container in (*spec.containers, *spec.init_containers):
            if container.name in self.allocated:
                container.resources.CopyFrom(self.allocated[container.name])
        if "" in self.allocated:
            spec.resources.CopyFrom(self.allocated[""])
        return message

    @property
    def is_terminal(self) -> bool:
        """Return whether the pod's phase is Succeeded or Failed."""
        return self.message.status.phase in TERMINAL_PHASES

    @property
    def is_terminating(self) -> bool:
        """Return whether the pod's deletion was requested."""
        return self.message.metadata.HasField("deletion_timestamp")

    @property
    def is_active(self) -> bool:
        """Return whether the pod has neither ended nor is terminating.

        Source: kubernetes v1.34 pkg/controller/controller_utils.go, IsPodActive.
        """
        message = self.message
        return message.status.phase not in TERMINAL_PHASES and not message.metadata.HasField(
            "deletion_timestamp"
        )

    @property
    def finalizers(self) -> list[str]:
        """Return the finalizers that hold the pod once it terminates."""
        return holding(self.message.metadata.finalizers)

    @property
    def grace_s(self) -> int:
        """Return the termination grace period, seconds."""
        spec = self.message.spec
        if spec.HasField("termination_grace_period_seconds"):
            return spec.termination_grace_period_seconds
        return DEFAULT_GRACE_S

    @property
    def is_ready(self) -> bool:
        """Return whether the condition Ready is True."""
        return is_ready(self.message.status)

    @property
    def ready_ns(self) -> int | None:
        """Return when the condition Ready became True, ns; None while it is not."""
        return ready_since_ns(self.message.status)

    def gates_changed(self, now_ns: int) -> None:
        """Note whether a pod that was created or updated can be scheduled from now on.

        Source: kubernetes v1.34 backend/queue/scheduling_queue.go, moveToActiveQ
        (InitialAttemptTimestamp), by which kube-scheduler's own measure of the wait counts.
        """
        if self.waits_since_ns is None and not self.message.spec.scheduling_gates:
            self.waits_since_ns = now_ns

    def waited_ns(self, now_ns: int) -> int:
        """Return how long it could have been scheduled, 0 while it has scheduling gates."""
        return 0 if self.waits_since_ns is None else now_ns - self.waits_since_ns

    @property
    def priority(self) -> int:
        """Return spec.priority."""
        return self.message.spec.priority

    def session_ref(self) -> meta_pb2.ObjectReference:
        """Return a new reference for messages to the services, without the kind."""
        meta = self.message.metadata
        return meta_pb2.ObjectReference(uid=self.uid, namespace=meta.namespace, name=meta.name)

    def object_ref(self) -> meta_pb2.ObjectReference:
        """Return the reference for logs; it is shared and must not be changed."""
        if self._ref is None:
            self._ref = object_ref("Pod", self.message.metadata)
        return self._ref


def holding(finalizers: Iterable[str]) -> list[str]:
    """Return the finalizers that hold a pod: those that no controller of Kubernetes removes."""
    return [name for name in finalizers if name not in _REMOVED_AT_ONCE]


def object_ref(
    kind: str, named: meta_pb2.ObjectMeta | meta_pb2.ObjectReference
) -> meta_pb2.ObjectReference:
    """Return an object's reference for logs and events."""
    return meta_pb2.ObjectReference(
        kind=kind, namespace=named.namespace, name=named.name, uid=named.uid
    )


def keep_own(old: pod_pb2.Pod, new: pod_pb2.Pod) -> None:
    """Copy to `new` the fields of `old` that a user's update cannot change.

    Source: kubernetes v1.34 pkg/registry/core/pod/strategy.go, PrepareForUpdate;
    pkg/apis/core/validation, ValidatePodUpdate (the priority is immutable).
    """
    meta, spec = new.metadata, new.spec
    meta.uid = old.metadata.uid
    meta.creation_timestamp.CopyFrom(old.metadata.creation_timestamp)
    meta.ClearField("deletion_timestamp")
    meta.ClearField("deletion_grace_period_seconds")
    if old.metadata.HasField("deletion_timestamp"):
        meta.deletion_timestamp.CopyFrom(old.metadata.deletion_timestamp)
        meta.deletion_grace_period_seconds = old.metadata.deletion_grace_period_seconds
    spec.node_name = old.spec.node_name
    spec.priority = old.spec.priority
    spec.priority_class_name = old.spec.priority_class_name
    spec.ClearField("preemption_policy")
    if old.spec.HasField("preemption_policy"):
        spec.preemption_policy = old.spec.preemption_policy
    new.status.CopyFrom(old.status)


def new_pod(
    now_ns: int, message: pod_pb2.Pod, life: trace_pb2.PodLife
) -> tuple[PodRecord, scheduler_pb2.Event]:
    """Return an admitted pod as the API server stores it, and the event that adds it."""
    meta = message.metadata
    if not meta.HasField("creation_timestamp"):
        set_time(meta.creation_timestamp, now_ns)
    message.status.phase = message.status.phase or "Pending"
    if message.spec.scheduling_gates and not message.spec.node_name:
        set_pod_condition(
            message.status,
            "PodScheduled",
            "False",
            now_ns,
            "SchedulingGated",
            "Scheduling is blocked due to non-empty scheduling gates",
        )
    stamp(meta)
    pod = PodRecord(
        uid=meta.uid,
        key=f"{meta.namespace}/{meta.name}",
        message=message,
        life=life,
        owner_uid=controller_uid(meta),
    )
    event = scheduler_pb2.Event(time_ns=now_ns)
    event.add.pod.CopyFrom(message)
    return pod, event


def status_event(now_ns: int, pod: PodRecord) -> scheduler_pb2.Event:
    """Return the event that patches a pod's status, and give the pod its next version."""
    event = scheduler_pb2.Event(time_ns=now_ns)
    patch_status(event.patch, pod.session_ref(), pod.message)
    return event


def patch_status(
    patch: scheduler_pb2.PodPatch, ref: meta_pb2.ObjectReference, pod: pod_pb2.Pod
) -> None:
    """Fill in the patch of a pod's status, and give the pod its next version."""
    patch.pod.CopyFrom(ref)
    patch.resource_version = stamp(pod.metadata, pod)
    patch.status.CopyFrom(pod.status)


def stamp(meta: meta_pb2.ObjectMeta, stored: _Versioned | None = None) -> str:
    """Set the version after that of the stored object, "1" for a new one, and return it."""
    changes = 1 + (int(stored.metadata.resource_version) if stored is not None else 0)
    version = meta.resource_version = str(changes)
    return version


def set_controller(meta: meta_pb2.ObjectMeta, owner: meta_pb2.OwnerReference | None) -> None:
    """Replace an object's reference to its controller; None: it has none from now on."""
    kept = [reference for reference in meta.owner_references if not reference.controller]
    del meta.owner_references[:]
    meta.owner_references.extend(kept)
    if owner is not None:
        meta.owner_references.append(owner)


def controller_of(meta: meta_pb2.ObjectMeta) -> meta_pb2.OwnerReference | None:
    """Return the object's reference to its controller, None without a controller."""
    for owner in meta.owner_references:
        if owner.controller:
            return owner
    return None


def controller_uid(meta: meta_pb2.ObjectMeta) -> str:
    """Return the UID of the object's controller, "" if none."""
    owner = controller_of(meta)
    return "" if owner is None else owner.uid
