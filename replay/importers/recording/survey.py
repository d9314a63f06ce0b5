"""The first pass over a recording: who made what, how each pod lived, when it all was.

What the second pass must know before it writes a record: the lives of pods, and which pods and
ReplicaSets the recorded controllers made after the recording's beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from replay.importers.recording.history import History, Step
from replay.importers.records import Issues
from replay.kube.changes import (
    Change,
    Raw,
    asked_ns,
    condition,
    controller,
    deletion_asked,
    key,
    kind,
    meta,
    node_name,
    part,
    parts,
    phase,
    time_ns,
    uid,
)
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.trace.v1beta1.trace_pb2 import PodLife

TERMINAL = frozenset({"Succeeded", "Failed"})
_OF_PODS = ("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job")
SERVED = {
    "Pod": frozenset(_OF_PODS),
    "ReplicaSet": frozenset({"Deployment"}),
    "Job": frozenset({"CronJob"}),
}
"""Which controllers a replay serves, by what they make."""


@dataclass(slots=True, kw_only=True)
class ObjectFacts:
    """What is known of a pod, a ReplicaSet or a Job. Times: ns since 1970, None: it never was.

    `ordinal` counts within the owner, from 0. `is_observed`: a controller that a replay serves made
    it after the beginning, so that a replay makes it itself.
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
    asked_ns: int | None = None
    ended_ns: int | None = None
    removed_ns: int | None = None
    failed: bool = False
    evicted: bool = False


@dataclass(slots=True, kw_only=True)
class Survey:
    """What the first pass found."""

    start_ns: int = 0
    end_ns: int = 0
    kubernetes_version: str = ""
    objects: dict[str, ObjectFacts] = field(default_factory=dict)
    controllers: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    classes: set[str] = field(default_factory=set)

    def owner_of(self, made: ObjectFacts) -> ObjectReference:
        """Return the controller that made an object."""
        kind_, namespace, name = self.controllers[made.owner_uid]
        return ObjectReference(kind=kind_, namespace=namespace, name=name, uid=made.owner_uid)


def survey(changes: Iterable[Change]) -> Survey:
    """Return what the changes tell as a whole. Memory is bounded by the number of objects."""
    surveyor = _Surveyor()
    history = History(Issues())
    for change in changes:
        surveyor.see_time(change)
        for step in history.follow(change):
            surveyor.see(step)
    return surveyor.finished()


class _Surveyor:
    def __init__(self) -> None:
        self._result = Survey()
        self._made: dict[str, int] = {}
        self._initial_ns: int | None = None
        self._first_ns: int | None = None

    def see_time(self, change: Change) -> None:
        if not change.at_ns:
            return
        if change.initial:
            self._initial_ns = max(self._initial_ns or change.at_ns, change.at_ns)
        elif self._first_ns is None:
            self._first_ns = change.at_ns
        self._result.end_ns = max(self._result.end_ns, change.at_ns)

    def see(self, step: Step) -> None:
        raw = step.new
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
                if step.old is None:
                    self._register(step)
            case "Pod":
                self._see_pod(step)

    def finished(self) -> Survey:
        result = self._result
        known = [ns for ns in (self._initial_ns, self._first_ns) if ns is not None]
        result.start_ns = min(known, default=0)
        for facts in result.objects.values():
            facts.created_ns = max(facts.created_ns, result.start_ns)
        return result

    def _register(self, step: Step) -> ObjectFacts:
        raw = step.new
        object_kind, namespace, name = key(raw)
        owner = controller(raw) or {}
        owner_uid = str(owner.get("uid") or "")
        kinds, known = SERVED[object_kind], self._result.controllers
        served = owner.get("kind") in kinds and owner_uid in known
        lives = phase(raw) not in TERMINAL
        ordinal = self._made.get(owner_uid, 0)
        if served and (lives or not step.initial):
            self._made[owner_uid] = ordinal + 1
        facts = ObjectFacts(
            kind=object_kind,
            namespace=namespace,
            name=name,
            owner_uid=owner_uid,
            is_observed=served and not step.initial,
            ordinal=ordinal,
            created_ns=step.at_ns,
        )
        self._result.objects[uid(raw)] = facts
        return facts

    def _see_pod(self, step: Step) -> None:
        raw = step.new
        facts = self._result.objects.get(uid(raw)) or self._register(step)
        status, at_ns = part(raw, "status"), step.at_ns
        reached = phase(raw)
        if facts.bound_ns is None and node_name(raw):
            facts.bound_ns = _seen_ns(
                step, condition(raw, "PodScheduled").get("lastTransitionTime")
            )
        if facts.running_ns is None and reached == "Running":
            facts.running_ns = _seen_ns(step, _started_at(raw))
        if facts.asked_ns is None and deletion_asked(raw):
            facts.asked_ns = min(at_ns, asked_ns(raw) or at_ns) if step.initial else at_ns
        if facts.ended_ns is None and reached in TERMINAL:
            facts.ended_ns, facts.failed = at_ns, reached == "Failed"
            facts.evicted = status.get("reason") == "Evicted"
            if facts.running_ns is None:
                facts.running_ns = _terminated_start_ns(raw) or facts.bound_ns
        if step.deleted:
            facts.removed_ns = at_ns


def _seen_ns(step: Step, recorded: object) -> int:
    """Return when something began: as seen, or for what was there before as the object tells."""
    earlier = time_ns(recorded) if step.initial else None
    return step.at_ns if earlier is None else min(earlier, step.at_ns)


def _started_at(raw: Raw) -> object:
    """Return when the last container of a running pod started."""
    times = [
        text
        for each in parts(part(raw, "status"), "containerStatuses")
        if isinstance(text := part(part(each, "state"), "running").get("startedAt"), str)
    ]
    return max(times, default=part(raw, "status").get("startTime"))


def _terminated_start_ns(raw: Raw) -> int | None:
    times = [
        ns
        for each in parts(part(raw, "status"), "containerStatuses")
        if (ns := time_ns(part(part(each, "state"), "terminated").get("startedAt"))) is not None
    ]
    return min(times, default=None)


def created_before(raw: Raw, at_ns: int, by_ns: int) -> bool:
    """Tell whether the object was made more than `by_ns` before `at_ns`."""
    created = time_ns(meta(raw).get("creationTimestamp"))
    return created is not None and at_ns - created > by_ns


def pod_life(facts: ObjectFacts, end_ns: int) -> PodLife | None:
    """Return the life of a pod; None where nothing is known of it. `end_ns` ends the recording.

    Service time is from Running to the end. A pod that was asked to stop, was evicted or still ran
    at the end of the recording would have run longer: its service time is a lower bound.
    """
    life = PodLife()
    ran_ns = facts.running_ns
    if ran_ns is not None:
        stops = (facts.asked_ns, facts.ended_ns, facts.removed_ns, end_ns)
        stop_ns = min(ns for ns in stops if ns is not None)
        life.service_time_ns = max(0, stop_ns - ran_ns)
        asked = facts.asked_ns is not None and facts.asked_ns <= stop_ns
        ended_by_itself = facts.ended_ns == stop_ns and not asked
        life.censored = not ended_by_itself or facts.evicted
        life.fails = ended_by_itself and facts.failed and not facts.evicted
        if facts.bound_ns is not None and facts.bound_ns >= facts.created_ns:
            life.start_delay_ns = max(0, ran_ns - facts.bound_ns)
    if facts.asked_ns is not None and facts.bound_ns is not None:
        stopped_ns = facts.removed_ns if facts.ended_ns is None else facts.ended_ns
        if stopped_ns is not None and stopped_ns >= facts.asked_ns:
            life.shutdown_ns = stopped_ns - facts.asked_ns
    return life if life.ByteSize() else None
