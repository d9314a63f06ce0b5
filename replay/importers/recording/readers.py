"""The records of recorded objects: user actions are inputs, the cluster's actions are observations.

Inputs are creations, changes of labels and spec, and deletions by users. Observations are bindings,
nominations, statuses, preemptions, evictions by a kubelet, clean-up, and the pods that a recorded
controller made after the start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from replay.importers.recording.history import RecordMaker, Transition
from replay.importers.recording.survey import SIMULATED_OWNERS, ObjectFacts, Survey, pod_life
from replay.kube.changes import (
    Raw,
    condition,
    conditions,
    controller,
    desired_state,
    disruption,
    finalizers,
    grace_s,
    is_being_deleted,
    kind,
    meta,
    node_name,
    nominated_node,
    part,
    parts,
    phase,
    rejection,
    uid,
    without_status,
)
from replay.kube.kinds import WORKLOADS
from replay.world.api.pod_record import holding
from replay.world.kubelet.critical_pods import EVICTED_REASONS, PREEMPTING, PREEMPTION_SIGNAL
from reprieve.trace.v1beta1 import trace_pb2
from reprieve.trace.v1beta1.trace_pb2 import BudgetStatus, ConditionChanged, Created, Record
from services.kube.devices import FINALIZER
from services.kube.pod import SYSTEM_CLASSES, TERMINAL_PHASES
from services.kube.taints import DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE

# A binding copies these labels from the node (v1.34); users do not set them.
_TOPOLOGY = frozenset({"topology.kubernetes.io/zone", "topology.kubernetes.io/region"})
_SYSTEM_CLASSES = frozenset(system_class.name for system_class in SYSTEM_CLASSES)
_COMPONENTS = ("system:kube-", "system:serviceaccount:kube-system:", "system:node:")
"""Prefixes of the names of API users that are components of the cluster."""
_CAUSES = {"EvictionByEvictionAPI": "drain"}
_BY_THE_CLUSTER = frozenset(
    {
        *("PreemptionByScheduler", "TerminationByKubelet", "DeletionByPodGC"),
        *("DeletionByTaintManager", "DeletionByDeviceTaintManager"),
    }
)
# These delete pods because of nodes and completions, not of a number of replicas.
_WITHOUT_REPLICAS = frozenset({"DaemonSet", "Job"})
_LOW_ON = re.compile(r"The node was low on resource: ([a-z-]+)")
_SIGNALS = {
    "memory": "memory.available",
    "ephemeral-storage": "nodefs.available",
    "inodes": "nodefs.inodesFree",
    "pids": "pid.available",
}
# Conditions of a kubelet under pressure and their taints: a replay decides them.
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_PRESSURE_TAINTS = frozenset({MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE})


@dataclass(slots=True, kw_only=True)
class PodReader:
    """Makes the records of pods; `live` returns an existing object by its UID."""

    facts: Survey
    output: RecordMaker
    scheduler_names: tuple[str, ...]
    live: Callable[[str], Raw | None]
    _active: dict[str, set[str]] = field(default_factory=dict)

    def read(self, change: Transition) -> Iterator[Record]:
        """Yield the records of one change."""
        facts = self.facts.objects[uid(change.new)]
        if change.old is None:
            yield from self._added(change, facts)
        else:
            yield from self._changed(change, change.old, facts)
        if change.deleted:
            removed = trace_pb2.Removed(cause=_removal(change.new))
            yield self.output.observed(change, removed=removed)
        self._count(change, facts)

    def _added(self, change: Transition, facts: ObjectFacts) -> Iterator[Record]:
        if facts.is_observed:
            created = trace_pb2.Created(owner=self.facts.owner_of(facts), ordinal=facts.ordinal)
            yield self.output.observed(change, created=created)
        elif phase(change.new) in TERMINAL_PHASES and not is_being_deleted(change.new):
            self.output.dropped(change, "ended-pod", "had ended before the recording began")
        elif self._is_replayed(change.new) or node_name(change.new):
            yield from self._create(change, change.new, facts)
        if not change.initial:
            yield from self._observe(change, {}, facts)

    def _changed(self, change: Transition, old: Raw, facts: ObjectFacts) -> Iterator[Record]:
        written = self.output.numbering.sequence
        is_binding = bool(node_name(change.new)) and not node_name(old)
        if is_binding and not self._is_replayed(change.new) and not facts.is_observed:
            yield from self._create(change, change.new, facts)
        elif _user_changed(old, change.new):
            yield from self.output.update(change, _user_update(change.new))
        if change.deleted and holding(finalizers(change.new)):
            # The update that removes the last finalizer deletes the pod: a watch shows that only.
            yield from self.output.update(change, _without_finalizers(change.new))
        yield from self._observe(change, old, facts)
        if _deletion_changed(old, change.new) or (change.deleted and not is_being_deleted(old)):
            yield from self._deletion(change, old, facts)
        if written == self.output.numbering.sequence and not change.deleted:
            self.output.dropped(change, "status-only", "a change of status that no replay reads")

    def _create(self, change: Transition, raw: Raw, facts: ObjectFacts) -> Iterator[Record]:
        # The status that an API server gives a new pod at once is not an input.
        carried = self.output.object(change, raw if change.initial else without_status(raw))
        if carried is None:
            return
        self._check_class(change, raw)
        life = pod_life(facts, self.facts.end_ns)
        yield from self.output.templates.pod_create(change.at_ns, carried.pod, life)

    def _check_class(self, change: Transition, raw: Raw) -> None:
        name = part(raw, "spec").get("priorityClassName")
        classes = self.facts.classes
        if classes and name and name not in classes and name not in _SYSTEM_CLASSES:
            message = f"PriorityClass {name!r} is not recorded: its pods keep spec.priority"
            self.output.issues.add("missing-priority-class", change.where, message)

    def _observe(self, change: Transition, old: Raw, facts: ObjectFacts) -> Iterator[Record]:
        new, out = change.new, self.output
        node = node_name(new)
        nominated = nominated_node(new)
        if nominated != nominated_node(old):
            yield out.observed(change, nominated=trace_pb2.Nominated(node_name=nominated))
        before, after = condition(old, "PodScheduled"), condition(new, "PodScheduled")
        if after.get("status") == "False" and _message_of(before) != _message_of(after):
            message, reason = _message_of(after)
            failed = trace_pb2.FailedScheduling(message=message, reason=reason)
            yield out.observed(change, failed_scheduling=failed)
        if node and not node_name(old):
            waited_ns = change.at_ns - facts.created_ns
            yield out.observed(
                change, scheduled=trace_pb2.Scheduled(node_name=node, waited_duration_ns=waited_ns)
            )
        if disruption(new) == "PreemptionByScheduler" and disruption(old) != disruption(new):
            yield out.observed(change, preempted=trace_pb2.Preempted(node_name=node))
        new_phase = phase(new)
        if new_phase != phase(old):
            if new_phase == "Running":
                yield out.observed(change, started=trace_pb2.Started(node_name=node))
            elif new_phase in TERMINAL_PHASES:
                yield from self._ended(change, node, new_phase)

    def _ended(self, change: Transition, node: str, terminal_phase: str) -> Iterator[Record]:
        status = part(change.new, "status")
        reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
        if why := rejection(change.new):
            rejected = trace_pb2.Rejected(node_name=node, reason=reason, message=why)
            yield self.output.observed(change, rejected=rejected)
        elif reason in EVICTED_REASONS:
            match = _LOW_ON.match(message)
            signal = _SIGNALS.get(match[1], "") if match else ""
            if reason == PREEMPTING:
                signal = PREEMPTION_SIGNAL
            evicted = trace_pb2.Evicted(node_name=node, signal=signal, message=message)
            yield self.output.observed(change, evicted=evicted)
            return
        finished = trace_pb2.Finished(phase=terminal_phase, reason=reason)
        yield self.output.observed(change, finished=finished)

    def _deletion(self, change: Transition, old: Raw, facts: ObjectFacts) -> Iterator[Record]:
        cause = self._cause(change, old, facts)
        if not cause or not (self._is_replayed(old) or node_name(old)):
            return
        requested_s = grace_s(change.new)
        own_s = part(change.new, "spec").get("terminationGracePeriodSeconds", 30)
        is_other = bool(node_name(change.new)) and requested_s != own_s
        yield self.output.delete(change, cause, requested_s if is_other else None)

    def _cause(self, change: Transition, old: Raw, facts: ObjectFacts) -> str:
        """Return who requested a deletion; "" for the cluster, which a replay simulates."""
        reason = disruption(change.new)
        if reason in _BY_THE_CLUSTER:
            return ""
        if phase(old) in TERMINAL_PHASES:
            self.output.dropped(change, "clean-up", "the deletion of a pod that had ended")
            return ""
        if reason in _CAUSES:
            return _CAUSES[reason]
        is_owned = facts.owner_uid in self.facts.controllers
        if change.actor:
            return ("" if is_owned else "owner") if change.actor.startswith(_COMPONENTS) else "user"
        if is_owned:
            owner = self.live(facts.owner_uid)
            if owner is None or is_being_deleted(owner):
                return ""
            if kind(owner) in _WITHOUT_REPLICAS:
                return ""
            replicas = part(owner, "spec").get("replicas")
            active = len(self._active.get(facts.owner_uid, ()))
            if active > (replicas if isinstance(replicas, int) else 1):
                return ""
        return "user"

    def _count(self, change: Transition, facts: ObjectFacts) -> None:
        active = self._active.setdefault(facts.owner_uid, set())
        ended = (
            change.deleted or is_being_deleted(change.new) or phase(change.new) in TERMINAL_PHASES
        )
        if not ended:
            active.add(uid(change.new))
        else:
            active.discard(uid(change.new))
            if not active:
                del self._active[facts.owner_uid]

    def _is_replayed(self, raw: Raw) -> bool:
        name = part(raw, "spec").get("schedulerName") or self.scheduler_names[0]
        return name in self.scheduler_names


def _message_of(scheduled: Raw) -> tuple[str, str]:
    return str(scheduled.get("message") or ""), str(scheduled.get("reason") or "")


def _deletion_changed(old: Raw, new: Raw) -> bool:
    """Return whether a deletion was requested, or again with a shorter grace period.

    The kubelet's last request has a grace period of 0.
    """
    if not is_being_deleted(new):
        return False
    if not is_being_deleted(old):
        return True
    return 0 < (grace_s(new) or 0) < (grace_s(old) or 0)


def _removal(last: Raw) -> str:
    status, reason = part(last, "status"), disruption(last)
    if reason == "PreemptionByScheduler":
        return "preempted"
    if status.get("reason") in EVICTED_REASONS:
        return "evicted"
    if reason == "DeletionByPodGC":
        return "node-lost"
    if reason in {"DeletionByTaintManager", "DeletionByDeviceTaintManager"}:
        return "taint"
    return "deleted"


def _user_changed(old: Raw, new: Raw) -> bool:
    """Return whether labels, spec or finalizers changed; a replay does not read annotations."""
    if set(holding(finalizers(old))) != set(holding(finalizers(new))):
        return True
    if part(old, "spec") != part(new, "spec"):
        before, after = dict(part(old, "spec")), dict(part(new, "spec"))
        before.pop("nodeName", None)
        after.pop("nodeName", None)
        if before != after:
            return True
    old_labels, new_labels = part(meta(old), "labels"), part(meta(new), "labels")
    return old_labels != new_labels and _user_labels(old_labels) != _user_labels(new_labels)


def _without_finalizers(raw: Raw) -> Raw:
    updated = _user_update(raw)
    return {**updated, "metadata": {**meta(updated), "finalizers": []}}


def _user_labels(labels: Raw) -> Raw:
    return {name: text for name, text in labels.items() if name not in _TOPOLOGY}


def _user_update(raw: Raw) -> Raw:
    """Return the pod as a user's update, without the fields that the cluster sets."""
    metadata, spec = dict(meta(raw)), dict(part(raw, "spec"))
    metadata["labels"] = _user_labels(part(metadata, "labels"))
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        metadata.pop(name, None)
    spec.pop("nodeName", None)
    return {"apiVersion": raw.get("apiVersion"), "kind": "Pod", "metadata": metadata, "spec": spec}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReader:
    """Makes the records of objects other than pods."""

    facts: Survey
    output: RecordMaker

    def read(self, change: Transition) -> Iterator[Record]:
        """Yield the records of one change."""
        if kind(change.new) == "ResourceClaim":
            yield from self._claim(change)
        elif kind(change.new) in SIMULATED_OWNERS and self._has_simulated_owner(change.new):
            yield from self._dependent(change)
        elif change.old is None:
            yield from self._added(change)
        else:
            yield from self._changed(change, change.old)
        if kind(change.new) == "Node":
            yield from self._pressure(change)

    def _added(self, change: Transition) -> Iterator[Record]:
        raw = change.new
        match kind(raw):
            case "Node":
                yield from self.output.create(change, _node_without_pressure(raw))
            case "PodDisruptionBudget":
                yield from self.output.create(change, without_status(raw))
                yield from self._budget_status(change, {})
            case name if name in WORKLOADS and not change.initial:
                yield from self.output.create(change, without_status(raw))
            case _:
                yield from self.output.create(change, raw)

    def _changed(self, change: Transition, old: Raw) -> Iterator[Record]:
        raw, object_kind = change.new, kind(change.new)
        if change.deleted or (is_being_deleted(raw) and not is_being_deleted(old)):
            if not is_being_deleted(old):
                yield self.output.delete(change)
            return
        state_of = _node_state if object_kind == "Node" else desired_state
        if state_of(old) != state_of(raw):
            new = _node_without_pressure(raw) if object_kind == "Node" else without_status(raw)
            yield from self.output.update(change, new)
        elif object_kind == "Node":
            self.output.dropped(
                change, "heartbeat", "a heartbeat, or a status that no replay reads"
            )
        elif object_kind != "PodDisruptionBudget":
            self.output.dropped(change, "status-only", "a change of status that no replay reads")
        if object_kind == "PodDisruptionBudget":
            yield from self._budget_status(change, old)

    def _budget_status(self, change: Transition, old: Raw) -> Iterator[Record]:
        status = part(change.new, "status")
        if not status or status == part(old, "status"):
            return
        carried = self.output.object(change, change.new)
        if carried is not None:
            budget = carried.pod_disruption_budget
            yield self.output.observed(change, budget_status=BudgetStatus(status=budget.status))

    def _has_simulated_owner(self, raw: Raw) -> bool:
        return self.facts.objects[uid(raw)].owner_uid in self.facts.controllers

    def _dependent(self, change: Transition) -> Iterator[Record]:
        """Yield the records of a dependent; only those of the first list are inputs."""
        facts = self.facts.objects[uid(change.new)]
        if change.old is not None:
            what = "changed by its controller, which a replay does itself"
            self.output.dropped(change, "controller-update", what)
        elif facts.is_observed:
            owner = self.facts.owner_of(facts)
            yield self.output.observed(change, created=Created(owner=owner, ordinal=facts.ordinal))
        else:
            yield from self.output.create(change, change.new)

    def _claim(self, change: Transition) -> Iterator[Record]:
        """Yield the records of a claim for devices.

        Those of the first list are inputs as they are; later, only what users and drivers do:
        claims are made for pods, allocated and reserved by controllers that a replay has.
        """
        raw, old = change.new, change.old
        if old is None and change.initial:
            yield from self.output.create(change, raw)
        elif (controller(raw) or {}).get("kind") == "Pod":
            what = "made for a pod, which a replay does itself"
            self.output.dropped(change, "controller-update", what)
        elif old is None:
            yield from self.output.create(change, without_status(raw))
        elif change.deleted or is_being_deleted(raw):
            if not is_being_deleted(old):
                yield self.output.delete(change)
        elif _claim_state(old) != _claim_state(raw):
            devices = part(raw, "status").get("devices")
            yield from self.output.update(change, {**raw, "status": {"devices": devices}})
        else:
            self.output.dropped(change, "status-only", "a change of status that no replay reads")

    def _pressure(self, change: Transition) -> Iterator[Record]:
        for type_ in _PRESSURES:
            before = condition(change.old or {}, type_).get("status", "False")
            after = condition(change.new, type_).get("status", "False")
            if after != before and not change.deleted:
                changed = ConditionChanged(type=type_, status=str(after))
                yield self.output.observed(change, condition_changed=changed)


def _claim_state(raw: Raw) -> tuple[object, ...]:
    """Return what users set of a claim, and what drivers report of its devices."""
    held_by = [name for name in finalizers(raw) if name != FINALIZER]
    return (*desired_state(raw), held_by, part(raw, "status").get("devices"))


def _node_state(raw: Raw) -> tuple[object, ...]:
    """Return the state of a node without its heartbeat and pressure."""
    metadata, spec, status = meta(raw), part(raw, "spec"), part(raw, "status")
    taints = [
        (taint.get("key"), taint.get("value"), taint.get("effect"))
        for taint in parts(spec, "taints")
        if str(taint.get("key")) not in _PRESSURE_TAINTS
    ]
    states = {
        str(condition.get("type")): condition.get("status")
        for condition in conditions(raw)
        if condition.get("type") not in _PRESSURES
    }
    own_fields = metadata.get("labels"), spec.get("unschedulable"), status.get("images")
    return (*own_fields, taints, states, status.get("capacity"), status.get("allocatable"))


def _node_without_pressure(raw: Raw) -> Raw:
    spec, status = dict(part(raw, "spec")), dict(part(raw, "status"))
    taints = [
        taint for taint in parts(spec, "taints") if str(taint.get("key")) not in _PRESSURE_TAINTS
    ]
    if "taints" in spec:
        spec["taints"] = taints
    status["conditions"] = [
        condition
        for condition in conditions(raw)
        if condition.get("type") not in _PRESSURES or condition.get("status") != "True"
    ]
    return {**raw, "spec": spec, "status": status}
