"""Reads a recording for a comparison: its changes as events, and decisions inferred from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from replay.compare.claim_writes import with_claim_writes
from replay.compare.evictions import EVICTED
from replay.compare.order_and_victims import (
    MarkedVictim,
    PodAppearance,
    decision_log,
    in_decided_order,
    recorded_preemptors,
    with_victims,
)
from replay.compare.recorded import DecisionKind, RecordedDecision, RecordedEvent, Recording
from replay.compare.verdict import PREEMPTION_MARK
from replay.importers.recording.history import ObjectHistory, Transition
from replay.importers.records import Issues
from replay.importers.registry import open_changes
from replay.kube.changes import (
    Raw,
    RecordedChange,
    condition,
    disruption,
    is_being_deleted,
    kind,
    meta,
    node_name,
    nominated_node,
    part,
    phase,
    ref,
    uid,
    version,
)
from replay.kube.kinds import to_object
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from services.kube.pod import DEFAULT_SCHEDULER, TERMINAL_PHASES
from services.rpc.errors import FieldError

_VICTIM = "PreemptionByScheduler"


def read_recording(
    paths: Sequence[Path], *, format_name: str | None, scheduler_names: Collection[str]
) -> Recording:
    """Read a whole recording, with decisions only about pods that name one of `scheduler_names`.

    Memory use grows with the number of changes. Raises TraceError for a path without a recording.
    """
    issues = Issues()
    reader = _Reader(issues, frozenset(scheduler_names))
    reader.read(open_changes(paths, format=format_name, issues=issues))
    log = decision_log(paths)
    decisions = with_victims(
        reader.decisions, reader.victims, recorded_preemptors(paths), reader.pods
    )
    return Recording(
        events=reader.events,
        decisions=in_decided_order(
            with_claim_writes(decisions, reader.events, reader.unrefused), log
        ),
        kubernetes_version=reader.kubernetes_version,
        has_order=log is not None,
        kinds=frozenset(event.ref.kind for event in reader.events),
        notes=[f"{issue.kind}: {issue.message} ({issue.count} times)" for issue in issues],
    )


class _Reader:
    def __init__(self, issues: Issues, scheduler_names: frozenset[str]) -> None:
        self.events: list[RecordedEvent] = []
        self.decisions: list[RecordedDecision] = []
        self.victims: list[MarkedVictim] = []
        self.pods: dict[str, PodAppearance] = {}
        self.unrefused: set[int] = set()
        self.kubernetes_version = ""
        self._issues = issues
        self._names = scheduler_names
        self._objects: dict[str, KubernetesObject] = {}
        self._now_ns = 0

    def read(self, changes: Iterable[RecordedChange]) -> None:
        """Add all changes."""
        history = ObjectHistory(self._issues)
        for change in changes:
            for step in history.follow(change):
                self._take(step)

    def _take(self, step: Transition) -> None:
        if not step.initial:
            self._now_ns = max(self._now_ns, step.at_ns)
        object_uid = uid(step.new)
        old = self._objects.get(object_uid)
        try:
            new = None if step.deleted else to_object(step.new)
        except FieldError as error:
            self._issues.add("unreadable-object", step.where, f"{kind(step.new)}: {error}")
            return
        if new is None:
            self._objects.pop(object_uid, None)
        else:
            self._objects[object_uid] = new
        if kind(step.new) == "Pod" and (self._is_ours(step.new) or node_name(step.new)):
            self._take_pod(step)
        elif kind(step.new) == "Node" and not self.kubernetes_version:
            info = part(part(step.new, "status"), "nodeInfo")
            self.kubernetes_version = str(info.get("kubeletVersion") or "")
        self.events.append(
            RecordedEvent(
                at_ns=self._now_ns,
                version=version(step.new),
                ref=_ref(step.new),
                old=old,
                new=new,
                matters=step.deleted or step.old is None or _matters(step.old, step.new),
            )
        )

    def _take_pod(self, step: Transition) -> None:
        pod = _ref(step.new)
        self.pods.setdefault(pod.uid, PodAppearance(ref=pod, position=len(self.events)))
        old, new = step.old or {}, step.new
        if disruption(new) == _VICTIM != disruption(old):
            self.victims.append(
                MarkedVictim(
                    uid=pod.uid,
                    name=f"{pod.namespace}/{pod.name}",
                    node=node_name(new),
                    position=len(self.events),
                    at_ns=self._now_ns,
                )
            )
        if step.initial or step.deleted:
            return
        if _is_evicted(new) and not _is_evicted(old):
            message = str(part(new, "status").get("message") or "")
            self._decided(DecisionKind.EVICTION, step, node=node_name(new), message=message)
        if not self._is_ours(new):
            return
        nominated, message = nominated_node(new), _refusal(new)
        if node_name(new) and not node_name(old):
            self._decided(DecisionKind.BIND, step, node=node_name(new))
        elif nominated and nominated != nominated_node(old):
            if message == _refusal(old):
                self.unrefused.add(len(self.events))
            self._decided(DecisionKind.PREEMPTION, step, node=nominated, message=message)
        elif message and message != _refusal(old):
            self._failed(step, nominated, message)

    def _failed(self, step: Transition, nominated: str, message: str) -> None:
        """Add a failed attempt.

        If the pod keeps its nomination and the message does not mention preemption, the attempt has
        preempted again for the same node.
        """
        if nominated and PREEMPTION_MARK not in message:
            self._decided(DecisionKind.PREEMPTION, step, node=nominated, message=message)
        else:
            self._decided(DecisionKind.FAILURE, step, message=message)

    def _decided(
        self, what: DecisionKind, step: Transition, *, node: str = "", message: str = ""
    ) -> None:
        self.decisions.append(
            RecordedDecision(
                kind=what,
                pod=_ref(step.new),
                written=len(self.events),
                position=len(self.events),
                at_ns=self._now_ns,
                version=version(step.new),
                node=node,
                message=message,
                unknown=step.unknown,
            )
        )

    def _is_ours(self, raw: Raw) -> bool:
        return (part(raw, "spec").get("schedulerName") or DEFAULT_SCHEDULER) in self._names


def _ref(raw: Raw) -> ObjectReference:
    named = ref(raw)
    named.uid = uid(raw)
    return named


def _refusal(raw: Raw) -> str:
    """Return the message of the last attempt that found no node; "" without such an attempt."""
    scheduled = condition(raw, "PodScheduled")
    if scheduled.get("status") != "False" or scheduled.get("reason") != "Unschedulable":
        return ""
    return str(scheduled.get("message") or "")


def _is_evicted(raw: Raw) -> bool:
    """Return whether a kubelet evicted the pod, not the Eviction API."""
    return phase(raw) == "Failed" and part(raw, "status").get("reason") == EVICTED


def _matters(old: Raw, new: Raw) -> bool:
    """Return whether a scheduler's decision can depend on the change."""
    if part(old, "spec") != part(new, "spec") or meta(old).get("labels") != meta(new).get("labels"):
        return True
    before, after = part(old, "status"), part(new, "status")
    match kind(new):
        case "Pod":
            ended = (phase(old) in TERMINAL_PHASES) != (phase(new) in TERMINAL_PHASES)
            deletion = is_being_deleted(old) != is_being_deleted(new)
            nominated = nominated_node(old) != nominated_node(new)
            return ended or deletion or nominated or _in_force(before) != _in_force(after)
        case "Node":
            return any(before.get(name) != after.get(name) for name in ("allocatable", "images"))
        case _:
            return before != after


def _in_force(status: Raw) -> tuple[object, ...]:
    """Return what a pod's status says of its resources, which a resize in place changes."""
    containers = (
        *_entries(status, "initContainerStatuses"),
        *_entries(status, "containerStatuses"),
    )
    reported = {
        str(container.get("name")): (
            container.get("resources"),
            container.get("allocatedResources"),
        )
        for container in containers
    }
    pending = [
        condition.get("reason")
        for condition in _entries(status, "conditions")
        if condition.get("type") == "PodResizePending"
    ]
    return reported, pending, status.get("resources"), status.get("allocatedResources")


def _entries(status: Raw, name: str) -> list[Raw]:
    entries = status.get(name)
    return (
        [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )
