"""The first pass over a recording: owners, the lives of pods, and the recorded interval.

The second pass needs both before its first record: the lives of pods, and which pods and
ReplicaSets recorded controllers made after the start of the recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from replay.hashing import object_uid
from replay.importers.recording.history import ObjectHistory, Transition
from replay.importers.records import Issues
from replay.kube import device_versions
from replay.kube.changes import (
    Raw,
    RecordedChange,
    condition,
    controller,
    deletion_requested_ns,
    ended_by_kubelet,
    is_being_deleted,
    key,
    kind,
    meta,
    node_name,
    part,
    parts,
    phase,
    rejection,
    time_ns,
    uid,
)
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.scheduling_pb2 import PriorityClass
from reprieve.trace.v1beta1.trace_pb2 import PodLife
from services.kube.pod import SYSTEM_CLASSES, TERMINAL_PHASES
from services.kube.time import SECOND_NS

SIMULATED_OWNERS = {
    "Pod": frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"}),
    "ReplicaSet": frozenset({"Deployment"}),
    "Job": frozenset({"CronJob"}),
}
"""The owners whose controllers a replay simulates, by the kind of their dependents."""
_FRESH_NS = 2 * SECOND_NS
_SYSTEM_CLASSES = frozenset(system_class.name for system_class in SYSTEM_CLASSES)


@dataclass(slots=True, kw_only=True)
class ObjectFacts:
    """The recorded life of a pod, a ReplicaSet or a Job. Times are ns since 1970, None for never.

    `ordinal` counts the dependents of the owner, from 0. `is_observed`: a controller that a replay
    simulates made the object after the start, so that it is not an input of the replay. A pod that
    a kubelet did not admit never ran.
    """

    kind: str
    namespace: str
    name: str
    owner_uid: str
    is_observed: bool
    ordinal: int
    created_ns: int
    bound_ns: int | None = None
    running_ns: int | None = None
    ready_ns: int | None = None
    deletion_requested_ns: int | None = None
    ended_ns: int | None = None
    removed_ns: int | None = None
    failed: bool = False
    by_kubelet: bool = False


@dataclass(slots=True, kw_only=True)
class Survey:
    """The result of the first pass.

    `objects` are by UID, `controllers` are (kind, namespace, name) by UID, `classes` are the names
    of PriorityClasses. `admitted` has, by the name of a class, the pod of it that was created last.
    `has_devices`: devices, or claims for them, are recorded.
    """

    start_ns: int = 0
    end_ns: int = 0
    kubernetes_version: str = ""
    objects: dict[str, ObjectFacts] = field(default_factory=dict)
    controllers: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    classes: set[str] = field(default_factory=set)
    admitted: dict[str, Raw] = field(default_factory=dict)
    has_devices: bool = False

    def inferred_classes(self) -> Iterator[PriorityClass]:
        """Yield the classes of pods where no class is recorded.

        A cluster always has its system classes. So a recording without a class is one whose user
        may not list them, or one of other kinds; otherwise a class that is missing was deleted.
        """
        for name, pod in self.admitted.items() if not self.classes else ():
            spec = part(pod, "spec")
            policy = spec.get("preemptionPolicy")
            never = "Never" if policy == "Never" else ""
            yield inferred_class(name, spec["priority"], never)

    def owner_of(self, made: ObjectFacts) -> ObjectReference:
        """Return the controller that made an object. Raises KeyError for one without."""
        kind_, namespace, name = self.controllers[made.owner_uid]
        return ObjectReference(kind=kind_, namespace=namespace, name=name, uid=made.owner_uid)


def inferred_class(name: str, value: int, preemption_policy: str) -> PriorityClass:
    """Return the class that admission gave a pod; `preemption_policy` "" is the default."""
    made = PriorityClass(value=value)
    made.metadata.name, made.metadata.uid = name, object_uid("PriorityClass", "", name)
    if preemption_policy:
        made.preemption_policy = preemption_policy
    return made


def survey(changes: Iterable[RecordedChange]) -> Survey:
    """Return the survey of all changes. Memory is bounded by the number of objects."""
    surveyor = _Surveyor()
    history = ObjectHistory(Issues())
    for change in changes:
        surveyor.add_time(change)
        for transition in history.follow(change):
            surveyor.add(transition)
    return surveyor.finished()


class _Surveyor:
    def __init__(self) -> None:
        self._result = Survey()
        self._made: dict[str, int] = {}
        self._initial_ns: int | None = None
        self._first_ns: int | None = None

    def add_time(self, change: RecordedChange) -> None:
        if not change.at_ns:
            return
        if change.initial:
            self._initial_ns = max(self._initial_ns or change.at_ns, change.at_ns)
        elif self._first_ns is None:
            self._first_ns = change.at_ns
        self._result.end_ns = max(self._result.end_ns, change.at_ns)

    def add(self, transition: Transition) -> None:
        raw = transition.new
        match kind(raw):
            case "PriorityClass":
                self._result.classes.add(key(raw)[2])
            case "Node" if not self._result.kubernetes_version:
                info = part(part(raw, "status"), "nodeInfo")
                self._result.kubernetes_version = str(info.get("kubeletVersion") or "")
            case "Deployment" | "ReplicationController" | "StatefulSet" | "DaemonSet" | "CronJob":
                self._result.controllers[uid(raw)] = key(raw)
            case "ReplicaSet" | "Job":
                self._result.controllers[uid(raw)] = key(raw)
                if transition.old is None:
                    self._register(transition)
            case "Pod":
                self._add_pod(transition)
            case kind_ if kind_ in device_versions.KINDS:
                self._result.has_devices = True

    def finished(self) -> Survey:
        result = self._result
        starts = [ns for ns in (self._initial_ns, self._first_ns) if ns is not None]
        result.start_ns = min(starts, default=0)
        for facts in result.objects.values():
            facts.created_ns = max(facts.created_ns, result.start_ns)
        return result

    def _register(self, transition: Transition) -> ObjectFacts:
        raw = transition.new
        object_kind, namespace, name = key(raw)
        owner = controller(raw) or {}
        owner_uid = str(owner.get("uid") or "")
        kinds, controllers = SIMULATED_OWNERS[object_kind], self._result.controllers
        is_simulated = str(owner.get("kind")) in kinds and owner_uid in controllers
        is_active = phase(raw) not in TERMINAL_PHASES
        ordinal = self._made.get(owner_uid, 0)
        if is_simulated and (is_active or not transition.initial):
            self._made[owner_uid] = ordinal + 1
        facts = ObjectFacts(
            kind=object_kind,
            namespace=namespace,
            name=name,
            owner_uid=owner_uid,
            is_observed=is_simulated and not transition.initial,
            ordinal=ordinal,
            created_ns=transition.at_ns,
        )
        self._result.objects[uid(raw)] = facts
        return facts

    def _add_pod(self, transition: Transition) -> None:
        raw = transition.new
        self._add_class(raw)
        facts = self._result.objects.get(uid(raw)) or self._register(transition)
        at_ns = transition.at_ns
        reached = phase(raw)
        if facts.bound_ns is None and node_name(raw):
            facts.bound_ns = _earliest_ns(
                transition, condition(raw, "PodScheduled").get("lastTransitionTime")
            )
        if facts.running_ns is None and reached == "Running":
            facts.running_ns = _earliest_ns(transition, _started_at(raw))
        if facts.ready_ns is None and condition(raw, "Ready").get("status") == "True":
            facts.ready_ns = facts.running_ns if transition.initial else at_ns
        if facts.deletion_requested_ns is None and is_being_deleted(raw):
            facts.deletion_requested_ns = (
                min(at_ns, deletion_requested_ns(raw) or at_ns) if transition.initial else at_ns
            )
        if facts.ended_ns is None and reached in TERMINAL_PHASES:
            facts.ended_ns, facts.failed = at_ns, reached == "Failed"
            facts.by_kubelet = ended_by_kubelet(raw)
            if facts.running_ns is None and not rejection(raw):
                facts.running_ns = _terminated_start_ns(raw) or facts.bound_ns
        if transition.deleted:
            facts.removed_ns = at_ns

    def _add_class(self, pod: Raw) -> None:
        spec, admitted = part(pod, "spec"), self._result.admitted
        name = spec.get("priorityClassName")
        value = spec.get("priority")
        if not name or not isinstance(name, str) or name in _SYSTEM_CLASSES:
            return
        if type(value) is not int or not -(2**31) <= value < 2**31:
            return
        last = admitted.get(name)
        if last is None or _created_ns(last) <= _created_ns(pod):
            admitted[name] = pod


def _created_ns(raw: Raw) -> int:
    return time_ns(meta(raw).get("creationTimestamp")) or 0


def _earliest_ns(transition: Transition, recorded: object) -> int:
    """Return the time of the transition, for the first list the earlier time in the object."""
    earlier = time_ns(recorded) if transition.initial else None
    return transition.at_ns if earlier is None else min(earlier, transition.at_ns)


def _started_at(raw: Raw) -> object:
    """Return the latest start of a container of a running pod, as its status has it."""
    times = [
        text
        for container_status in parts(part(raw, "status"), "containerStatuses")
        if isinstance(
            text := part(part(container_status, "state"), "running").get("startedAt"), str
        )
    ]
    return max(times, default=part(raw, "status").get("startTime"))


def _terminated_start_ns(raw: Raw) -> int | None:
    times = [
        ns
        for container_status in parts(part(raw, "status"), "containerStatuses")
        if (ns := time_ns(part(part(container_status, "state"), "terminated").get("startedAt")))
        is not None
    ]
    return min(times, default=None)


def was_listed(raw: Raw, at_ns: int) -> bool:
    """Return whether an ADDED event at `at_ns` is of the first list: its object is 2 s old."""
    created = time_ns(meta(raw).get("creationTimestamp"))
    return created is not None and at_ns - created > _FRESH_NS


def pod_life(facts: ObjectFacts, end_ns: int) -> PodLife | None:
    """Return the life of a pod; None without any recorded time. `end_ns` ends the recording.

    The time from Running to Ready is that of a pod whose becoming ready was recorded, where it did
    not come with Running.

    The service time is from Running to the end. It is censored, a lower bound, for a pod that was
    deleted or ended by its kubelet, or that still ran at the end of the recording.
    """
    life = PodLife()
    ran_ns = facts.running_ns
    if ran_ns is not None:
        stops = (facts.deletion_requested_ns, facts.ended_ns, facts.removed_ns, end_ns)
        stop_ns = min(ns for ns in stops if ns is not None)
        life.service_duration_ns = max(0, stop_ns - ran_ns)
        was_deleted = (
            facts.deletion_requested_ns is not None and facts.deletion_requested_ns <= stop_ns
        )
        ended_by_itself = facts.ended_ns == stop_ns and not was_deleted
        life.censored = not ended_by_itself or facts.by_kubelet
        if facts.ready_ns is not None and facts.ready_ns > ran_ns:
            life.ready_delay_duration_ns = facts.ready_ns - ran_ns
        life.fails = ended_by_itself and facts.failed and not facts.by_kubelet
        if facts.bound_ns is not None and facts.bound_ns >= facts.created_ns:
            life.start_delay_duration_ns = max(0, ran_ns - facts.bound_ns)
    if facts.deletion_requested_ns is not None and facts.bound_ns is not None:
        stopped_ns = facts.removed_ns if facts.ended_ns is None else facts.ended_ns
        if stopped_ns is not None and stopped_ns >= facts.deletion_requested_ns:
            life.shutdown_duration_ns = stopped_ns - facts.deletion_requested_ns
    return life if life.ByteSize() else None
