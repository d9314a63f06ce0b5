"""Pod control: how controllers create and delete their pods, and which pods go first.

Names and UIDs are hashes of the owner and a number, so that two runs pair their pods. The number
counts all pods that the owner ever had. Where an owner gives each pod a place (an ordinal, a node,
a completion index), it counts the pods of that place, which then pair whatever happens elsewhere.
A created pod has the life that the trace recorded for it, if any.

Source: kubernetes v1.34 pkg/controller/controller_utils.go, PodControlInterface.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, count

from replay.hashing import name_suffix, object_uid
from replay.world.api.admission import defaults
from replay.world.api.admission.refusal import RefusedPod
from replay.world.api.pod_record import PodRecord, object_ref
from replay.world.controllers.workloads import rejections
from replay.world.controllers.workloads.refusals import Refusals
from replay.world.controllers.workloads.rejections import Rejections
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.state import WorldPart, WorldState
from replay.world.timeline import ActionKind
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2, workloads_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.quantity import is_same_amount
from services.kube.time import SECOND_NS
from services.rpc.kube.fields import time_ns

GENERATED_BASE_MAX = 58
"""Characters of a generateName that are kept, so that a name has at most 63."""
REVISION_LABEL = "controller-revision-hash"
"""The label with the template that a pod of a StatefulSet or a DaemonSet was made from."""
_BATCH = frozenset({"Job", "CronJob"})
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_INT32_MAX = 2**31 - 1
_LONG_WAIT_NS = 600 * SECOND_NS
_STILL_REJECTED = (
    "kubelets reject one replacement after the other: those that come only after 10 minutes and "
    "more do not keep a replay running; use --until to replay them"
)


@dataclass(frozen=True, slots=True)
class ControllerRef:
    """The controller that owns a pod, a ReplicaSet or a Job."""

    kind: str
    meta: meta_pb2.ObjectMeta

    def own(self, meta: meta_pb2.ObjectMeta) -> None:
        """Add the owner reference of this controller to an object."""
        meta.owner_references.append(self.owner_reference())

    def owner_reference(self) -> meta_pb2.OwnerReference:
        """Return the reference by which an object belongs to this controller."""
        version = "v1" if self.kind == "ReplicationController" else "apps/v1"
        return meta_pb2.OwnerReference(
            api_version="batch/v1" if self.kind in _BATCH else version,
            kind=self.kind,
            name=self.meta.name,
            uid=self.meta.uid,
            controller=True,
        )


class PodControl(WorldPart):
    """Creates and deletes the pods of all controllers."""

    _recorded: dict[tuple[str, str, str, int], trace_pb2.ControllerPod]
    _recorded_names: dict[tuple[str, str, str, str], list[trace_pb2.ControllerPod]]
    _made_at: dict[tuple[str, str], int]
    _names_taken: dict[str, None]

    def __init__(self, state: WorldState, lifecycle: PodLifecycle) -> None:
        super().__init__(state)
        self._lifecycle = lifecycle
        self._toleration_s = state.models.toleration_s
        self._refusals = Refusals()
        self._rejections = Rejections()
        self._names_taken = {}
        lifecycle.rejected = self._rejected
        lifecycle.admitted_on_node = self._admitted_on_node

    def expect(self, record: trace_pb2.ControllerPod) -> None:
        """Add the record of a pod (or a ReplicaSet) that a controller will create."""
        owner = record.owner
        named = (owner.kind, owner.namespace, owner.name)
        self._recorded[(*named, record.ordinal)] = record
        if owner.kind == "StatefulSet" and record.name:
            self._recorded_names.setdefault((*named, record.name), []).append(record)

    def recorded(self, owner: ControllerRef, ordinal: int) -> trace_pb2.ControllerPod | None:
        """Return the record of the object that an owner creates as number `ordinal`."""
        named = (owner.kind, owner.meta.namespace, owner.meta.name)
        return self._recorded.get((*named, ordinal))

    def draft(self, owner: ControllerRef, template: workloads_pb2.PodTemplateSpec) -> pod_pb2.Pod:
        """Return a pod of the template, without a name or a UID."""
        pod = pod_pb2.Pod()
        pod.spec.CopyFrom(template.spec)
        pod.metadata.labels.update(template.metadata.labels)
        pod.metadata.annotations.update(template.metadata.annotations)
        pod.metadata.finalizers.extend(template.metadata.finalizers)
        pod.metadata.namespace = owner.meta.namespace
        owner.own(pod.metadata)
        return pod

    def create(
        self,
        now_ns: int,
        owner: ControllerRef,
        pod: pod_pb2.Pod,
        *,
        place: str = "",
        base: str = "",
        missing: int | None = None,
    ) -> bool:
        """Create a drafted pod; return whether it was admitted (if not, a note says why).

        None is created while the owner waits because kubelets have rejected its last pods.
        A pod without a name gets one that begins with `base`, or with the owner's name. `missing`
        is how many pods the owner lacks, this one included; None: this place's is one by itself.
        """
        meta, owner_meta = pod.metadata, owner.meta
        if owner.kind in rejections.KINDS and self._waits(now_ns, owner_meta):
            return False
        ordinal = self._cluster.births.get(owner_meta.uid, 0)
        number, identity = ordinal, owner_meta.uid
        if place:
            number, identity = (
                self._made_at.get((owner_meta.uid, place), 0),
                f"{owner_meta.uid}/{place}",
            )
        recorded = self._recorded_pod(owner, ordinal, meta.name)
        if not meta.name:
            meta.generate_name = base or f"{owner_meta.name}-"
            recorded_name = recorded.name if recorded else ""
            meta.name = self._free_name(meta, identity, number, recorded_name)
        meta.uid = object_uid("Pod", owner_meta.namespace, meta.name, identity, number)
        life = trace_pb2.PodLife()
        if recorded is not None:
            life.CopyFrom(recorded.life)
        defaults.fill_in(pod.spec)
        defaults.tolerate(pod.spec, self._toleration_s)
        refused_at = place if missing is None else ""
        refusal = self._lifecycle.create(now_ns, pod, life, recorded=recorded is not None)
        if refusal is not None:
            new = self._refusals.add(now_ns, owner.kind, owner_meta.uid, refused_at, missing or 1)
            if new:
                self._refused(now_ns, owner, pod, refusal, new)
            if not refusal.by_admission:
                self._names_taken[f"{meta.namespace}/{meta.name}"] = None
            if refusal.retry_ns is not None:
                due_ns = self._refusals.retries_ns(refusal.retry_ns - 1)[owner_meta.uid]
                self._timeline.plan_earlier(due_ns, ActionKind.LOOK, owner_meta.uid)
            return False
        self._refusals.admitted(owner_meta.uid, refused_at)
        self._rejections.created(owner_meta.uid)
        if place:
            self._made_at[owner_meta.uid, place] = number + 1
        self._journal.made(
            now_ns, object_ref("Pod", meta), object_ref(owner.kind, owner_meta), ordinal
        )
        return True

    def delete(self, now_ns: int, pod: PodRecord) -> None:
        """Delete a pod with its own grace period."""
        self._lifecycle.delete(now_ns, pod, None, "deleted")

    def is_available(
        self,
        now_ns: int,
        owner: workloads_pb2.StatefulSet | workloads_pb2.DaemonSet,
        pod: PodRecord,
    ) -> bool:
        """Return whether a ready pod has been ready for minReadySeconds; else plan a look.

        Source: kubernetes v1.34 pkg/api/v1/pod/util.go, IsPodAvailable.
        """
        ready_ns = pod.ready_ns
        assert ready_ns is not None  # noqa: S101 - the pod is ready
        due_ns = ready_ns + owner.spec.min_ready_seconds * SECOND_NS
        if due_ns > now_ns:
            self._timeline.plan_earlier(due_ns, ActionKind.LOOK, owner.metadata.uid)
        return due_ns <= now_ns

    def pods_changed(self, now_ns: int, pods: Mapping[str, pod_pb2.Pod]) -> None:
        """Let owners retry pods whose names were taken, if such a name is free now."""
        if not self._names_taken:
            return
        for uid, pod in pods.items():
            key = f"{pod.metadata.namespace}/{pod.metadata.name}"
            if uid not in self._cluster.pods and key in self._names_taken:
                del self._names_taken[key]
                self.retry_refused(now_ns)

    def retry_refused(self, now_ns: int) -> None:
        """Plan the next retry of each owner whose pods were refused."""
        for uid, due_ns in self._refusals.retries_ns(now_ns).items():
            self._timeline.plan_earlier(due_ns, ActionKind.LOOK, uid)

    def forget_refused(self, uid: str) -> None:
        """Forget the refused and rejected pods of a deleted owner."""
        self._refusals.forget(uid)
        self._rejections.forget(uid)

    def _rejected(self, now_ns: int, pod: PodRecord) -> None:
        if pod.owner_uid:
            self._rejections.rejected(now_ns, pod.owner_uid)

    def _admitted_on_node(self, pod: PodRecord) -> None:
        self._rejections.admitted(pod.owner_uid)

    def _waits(self, now_ns: int, owner: meta_pb2.ObjectMeta) -> bool:
        """Return whether an owner of rejected pods creates none yet, and plan when it does.

        A wait of ten minutes and more does not keep a replay running: nothing but another
        decision of the scheduler would end the series.
        """
        due_ns = self._rejections.due_ns(owner.uid)
        if due_ns <= now_ns:
            return False
        planned_ns = self._timeline.planned_ns(ActionKind.LOOK, owner.uid)
        if planned_ns is None or due_ns < planned_ns:
            is_long = due_ns - now_ns >= _LONG_WAIT_NS
            self._timeline.plan(due_ns, ActionKind.LOOK, owner.uid, idle=is_long)
            if is_long:
                self._journal.note("rejected", _STILL_REJECTED)
        return True

    def _refused(
        self, now_ns: int, owner: ControllerRef, pod: pod_pb2.Pod, refusal: RefusedPod, pods: int
    ) -> None:
        whose = object_ref(owner.kind, owner.meta)
        named = f"{whose.kind} {whose.namespace}/{whose.name}"
        lacks = "a pod" if pods == 1 else f"{pods} pods"
        self._journal.note("refused", f"{named} could not create {lacks}: {refusal.message}")
        if refusal.by_admission:
            ref = object_ref("Pod", pod.metadata)
            ref.ClearField("uid")
            self._journal.refused(now_ns, ref, refusal.message, owner=whose, pods=pods)

    def _recorded_pod(
        self, owner: ControllerRef, ordinal: int, name: str
    ) -> trace_pb2.ControllerPod | None:
        if not name:
            return self.recorded(owner, ordinal)
        named = (owner.kind, owner.meta.namespace, owner.meta.name, name)
        waiting = self._recorded_names.get(named)
        return waiting.pop(0) if waiting else None

    def _free_name(
        self, meta: meta_pb2.ObjectMeta, identity: str, number: int, recorded: str
    ) -> str:
        """Return the recorded name, or the first generated one that no other pod has.

        Source: kubernetes v1.34 apiserver pkg/storage/names/generate.go, GenerateName.
        """
        base = meta.generate_name[:GENERATED_BASE_MAX]
        made = (base + name_suffix(identity, number, 5 + more) for more in count())
        names = chain((recorded,) if recorded else (), made)
        return next(
            name for name in names if f"{meta.namespace}/{name}" not in self._cluster.pod_uids
        )


def template_hash(template: workloads_pb2.PodTemplateSpec) -> str:
    """Return a hash of the template, ten hexadecimal digits."""
    text = template.SerializeToString(deterministic=True)
    return blake2b(text, digest_size=5).hexdigest()


def shows_template(pod: pod_pb2.Pod, template: workloads_pb2.PodTemplateSpec) -> bool:
    """Return whether an adopted pod matches a template, and so may have been created from it.

    Upstream compares the name of a revision, a hash of the template as the API server stores it.
    Here the labels, annotations and node selector, the priority class and each container's image,
    requests and limits are compared.
    """
    asked_for = pod_pb2.PodSpec()
    asked_for.CopyFrom(template.spec)
    defaults.fill_in(asked_for)
    shown, meta = pod.spec, pod.metadata
    maps = (
        (template.metadata.labels, meta.labels),
        (template.metadata.annotations, meta.annotations),
        (asked_for.node_selector, shown.node_selector),
    )
    if any(there.get(key) != text for asked, there in maps for key, text in asked.items()):
        return False
    if asked_for.priority_class_name not in ("", shown.priority_class_name):
        return False
    return _same_containers(asked_for.containers, shown.containers) and _same_containers(
        asked_for.init_containers, shown.init_containers
    )


def _same_containers(
    asked_for: Sequence[pod_pb2.Container], shown: Iterable[pod_pb2.Container]
) -> bool:
    there = {container.name: container for container in shown}
    if len(there) != len(asked_for):
        return False
    for container in asked_for:
        other = there.get(container.name)
        if other is None or other.image != container.image:
            return False
        for asked, amounts in (
            (container.resources.requests, other.resources.requests),
            (container.resources.limits, other.resources.limits),
        ):
            for name, text in asked.items():
                if name not in amounts or not is_same_amount(amounts[name], text):
                    return False
    return True


def first_to_go(
    pods: Sequence[PodRecord], related: Iterable[PodRecord], now_ns: int
) -> list[PodRecord]:
    """Return active pods in the order in which a scale-down deletes them.

    First those that are unassigned; pending; not ready; of a lower deletion cost; with more active
    `related` pods (those of the same Deployment) on their node; ready for a shorter time; created
    later; then by UID. Both times count by their binary logarithm, and of two pods whose ready
    times have the same logarithm but differ upstream compares only the UIDs.
    Source: kubernetes v1.34 pkg/controller/controller_utils.go, ActivePodsWithRanks.Less,
    logarithmicRankDiff; pkg/controller/replicaset/replica_set.go,
    getPodsRankedByRelatedPodsOnSameNode.
    """
    on_node = Counter(pod.node_name for pod in related if pod.is_active)

    def rank(pod: PodRecord) -> tuple[object, ...]:
        ready_ns = pod.ready_ns
        return (
            bool(pod.node_name),
            _PHASES.get(pod.message.status.phase, 0),
            ready_ns is not None,
            deletion_cost(pod),
            -on_node[pod.node_name],
            _magnitude(now_ns - ready_ns) if ready_ns is not None else 0,
            _magnitude(now_ns - time_ns(pod.message.metadata.creation_timestamp)),
            pod.uid,
        )

    return sorted(pods, key=rank)


def deletion_cost(pod: PodRecord) -> int:
    """Return the pod's deletion cost; 0 for an annotation that is not a plain int32."""
    text = pod.message.metadata.annotations.get(DELETION_COST, "0")
    digits = text.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0")
    if not plain or text == "-0" or not -_INT32_MAX - 1 <= int(text) <= _INT32_MAX:
        return 0
    return int(text)


def _magnitude(age_ns: int) -> int:
    """Return the binary logarithm of an age, rounded down; -1 for an age of 0 or less."""
    return age_ns.bit_length() - 1 if age_ns > 0 else -1
