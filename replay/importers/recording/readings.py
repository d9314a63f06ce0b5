"""Recorded pods and other objects: what users did is input, what the cluster did is observed.

Creation, changes of labels and spec, and deletion by users are input. Binding, nomination,
statuses, preemption, eviction by a kubelet, clean-up, and the pods that a recorded ReplicaSet made
after the beginning are observations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from replay.importers.recording.history import Output, Step
from replay.importers.recording.survey import SERVED, TERMINAL, ObjectFacts, Survey, pod_life
from replay.kube.changes import (
    Raw,
    condition,
    conditions,
    deletion_asked,
    disruption,
    grace_s,
    kind,
    meta,
    node_name,
    nominated_node,
    part,
    parts,
    phase,
    uid,
    user_part,
    without_status,
)
from replay.kube.kinds import WORKLOADS
from reprieve.trace.v1beta1 import trace_pb2
from reprieve.trace.v1beta1.trace_pb2 import BudgetStatus, ConditionChanged, Made, Record
from services.kube.pod import SYSTEM_CLASSES

# A binding copies these from the node (v1.34); elsewhere they are nobody's wish.
_TOPOLOGY = frozenset({"topology.kubernetes.io/zone", "topology.kubernetes.io/region"})
_SYSTEM_CLASSES = frozenset(each.name for each in SYSTEM_CLASSES)
_COMPONENTS = ("system:kube-", "system:serviceaccount:kube-system:", "system:node:")
"""What users of the API are called that are parts of the cluster itself."""
_CAUSES = {"EvictionByEvictionAPI": "drain"}
_BY_THE_CLUSTER = frozenset(
    {
        "PreemptionByScheduler",
        "TerminationByKubelet",
        "DeletionByPodGC",
        "DeletionByTaintManager",
    }
)
# Their deletions follow from nodes and completions, not from a number of replicas.
_PLACED = frozenset({"DaemonSet", "Job"})
_LOW_ON = re.compile(r"The node was low on resource: ([a-z-]+)")
_SIGNALS = {
    "memory": "memory.available",
    "ephemeral-storage": "nodefs.available",
    "inodes": "nodefs.inodesFree",
    "pids": "pid.available",
}
# What a kubelet under pressure reports, and the taints that it brings: decided in a replay.
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_PRESSURE_TAINTS = frozenset(
    f"node.kubernetes.io/{name}-pressure" for name in ("memory", "disk", "pid")
)


@dataclass(slots=True, kw_only=True)
class PodReading:
    """Reads the steps of pods; `live` finds an object that is there by its UID."""

    facts: Survey
    output: Output
    scheduler_names: tuple[str, ...]
    live: Callable[[str], Raw | None]
    _active: dict[str, set[str]] = field(default_factory=dict)

    def read(self, step: Step) -> Iterator[trace_pb2.Record]:
        """Yield the records of one step."""
        facts = self.facts.objects[uid(step.new)]
        if step.old is None:
            yield from self._appeared(step, facts)
        else:
            yield from self._changed(step, step.old, facts)
        if step.deleted:
            removed = trace_pb2.Removed(cause=_removal(step.new))
            yield self.output.observed(step, removed=removed)
        self._count(step, facts)

    def _appeared(self, step: Step, facts: ObjectFacts) -> Iterator[trace_pb2.Record]:
        if facts.is_observed:
            made = trace_pb2.Made(owner=self.facts.owner_of(facts), ordinal=facts.ordinal)
            yield self.output.observed(step, made=made)
        elif phase(step.new) in TERMINAL:
            self.output.dropped(step, "ended-pod", "had ended before the recording began")
        elif self._is_ours(step.new) or node_name(step.new):
            yield from self._create(step, step.new, facts)
        if not step.initial:
            yield from self._observe(step, {}, facts)

    def _changed(self, step: Step, old: Raw, facts: ObjectFacts) -> Iterator[trace_pb2.Record]:
        written = self.output.numbering.sequence
        was_bound = bool(node_name(old))
        is_bound = bool(node_name(step.new))
        if not was_bound and is_bound and not self._is_ours(step.new) and not facts.is_observed:
            yield from self._create(step, step.new, facts)
        elif _wish_changed(old, step.new):
            yield from self.output.update(step, _wished(step.new))
        yield from self._observe(step, old, facts)
        if _deletion_changed(old, step.new) or (step.deleted and not deletion_asked(old)):
            yield from self._deletion(step, old, facts)
        if written == self.output.numbering.sequence and not step.deleted:
            self.output.dropped(step, "status-only", "a change of status that no replay reads")

    def _create(self, step: Step, raw: Raw, facts: ObjectFacts) -> Iterator[trace_pb2.Record]:
        # A new pod goes without the status that an API server gave it at once.
        carried = self.output.object(step, raw if step.initial else without_status(raw))
        if carried is None:
            return
        self._check_class(step, raw)
        life = pod_life(facts, self.facts.end_ns)
        yield from self.output.templates.pod_create(step.at_ns, carried.pod, life)

    def _check_class(self, step: Step, raw: Raw) -> None:
        name = part(raw, "spec").get("priorityClassName")
        if name and name not in self.facts.classes and name not in _SYSTEM_CLASSES:
            message = f"PriorityClass {name!r} is not recorded: its pods keep spec.priority"
            self.output.issues.add("missing-priority-class", step.where, message)

    def _observe(self, step: Step, old: Raw, facts: ObjectFacts) -> Iterator[trace_pb2.Record]:
        """Yield what the cluster did to the pod."""
        new, out = step.new, self.output
        node = node_name(new)
        nominated = nominated_node(new)
        if nominated != nominated_node(old):
            yield out.observed(step, nominated=trace_pb2.Nominated(node_name=nominated))
        before, after = condition(old, "PodScheduled"), condition(new, "PodScheduled")
        if after.get("status") == "False" and _words(before) != _words(after):
            message, reason = _words(after)
            failed = trace_pb2.FailedScheduling(message=message, reason=reason)
            yield out.observed(step, failed_scheduling=failed)
        if node and not node_name(old):
            waited_ns = step.at_ns - facts.created_ns
            yield out.observed(
                step, scheduled=trace_pb2.Scheduled(node_name=node, waited_ns=waited_ns)
            )
        if disruption(new) == "PreemptionByScheduler" and disruption(old) != disruption(new):
            yield out.observed(step, preempted=trace_pb2.Preempted(node_name=node))
        reached = phase(new)
        if reached != phase(old):
            if reached == "Running":
                yield out.observed(step, started=trace_pb2.Started(node_name=node))
            elif reached in TERMINAL:
                yield self._ended(step, node, reached)

    def _ended(self, step: Step, node: str, reached: str) -> trace_pb2.Record:
        status = part(step.new, "status")
        reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
        if reason == "Evicted":
            match = _LOW_ON.match(message)
            signal = _SIGNALS.get(match[1], "") if match else ""
            evicted = trace_pb2.Evicted(node_name=node, signal=signal, message=message)
            return self.output.observed(step, evicted=evicted)
        return self.output.observed(step, finished=trace_pb2.Finished(phase=reached, reason=reason))

    def _deletion(self, step: Step, old: Raw, facts: ObjectFacts) -> Iterator[trace_pb2.Record]:
        cause = self._cause(step, old, facts)
        if not cause or not (self._is_ours(old) or node_name(old)):
            return
        asked_s = grace_s(step.new)
        own_s = part(step.new, "spec").get("terminationGracePeriodSeconds", 30)
        bound = bool(node_name(step.new))
        yield self.output.delete(step, cause, asked_s if bound and asked_s != own_s else None)

    def _cause(self, step: Step, old: Raw, facts: ObjectFacts) -> str:
        """Return who asked for a deletion; "" for the cluster, which a replay is itself."""
        reason = disruption(step.new)
        if reason in _BY_THE_CLUSTER:
            return ""
        if phase(old) in TERMINAL:
            self.output.dropped(step, "clean-up", "the deletion of a pod that had ended")
            return ""
        if reason in _CAUSES:
            return _CAUSES[reason]
        is_owned = facts.owner_uid in self.facts.controllers
        if step.actor:
            return ("" if is_owned else "owner") if step.actor.startswith(_COMPONENTS) else "user"
        if is_owned:
            owner = self.live(facts.owner_uid)
            if owner is None or deletion_asked(owner):
                return ""
            if kind(owner) in _PLACED:
                return ""
            wanted = part(owner, "spec").get("replicas")
            active = len(self._active.get(facts.owner_uid, ()))
            if active > (wanted if isinstance(wanted, int) else 1):
                return ""
        return "user"

    def _count(self, step: Step, facts: ObjectFacts) -> None:
        """Keep count of the pods that each controller sees as active."""
        active = self._active.setdefault(facts.owner_uid, set())
        ended = step.deleted or deletion_asked(step.new) or phase(step.new) in TERMINAL
        if not ended:
            active.add(uid(step.new))
        else:
            active.discard(uid(step.new))
            if not active:
                del self._active[facts.owner_uid]

    def _is_ours(self, raw: Raw) -> bool:
        name = part(raw, "spec").get("schedulerName") or self.scheduler_names[0]
        return name in self.scheduler_names


def _words(scheduled: Raw) -> tuple[str, str]:
    return str(scheduled.get("message") or ""), str(scheduled.get("reason") or "")


def _deletion_changed(old: Raw, new: Raw) -> bool:
    """Tell whether a deletion was asked for, or asked for again with a shorter grace period.

    The kubelet's own last request has a grace period of 0.
    """
    if not deletion_asked(new):
        return False
    if not deletion_asked(old):
        return True
    return 0 < (grace_s(new) or 0) < (grace_s(old) or 0)


def _removal(last: Raw) -> str:
    status, reason = part(last, "status"), disruption(last)
    if reason == "PreemptionByScheduler":
        return "preempted"
    if status.get("reason") == "Evicted":
        return "evicted"
    if reason == "DeletionByPodGC":
        return "node-lost"
    if reason == "DeletionByTaintManager":
        return "taint"
    return "deleted"


def _wish_changed(old: Raw, new: Raw) -> bool:
    """Tell whether a user changed labels or spec; annotations do not matter to anybody here."""
    if part(old, "spec") != part(new, "spec"):
        before, after = dict(part(old, "spec")), dict(part(new, "spec"))
        before.pop("nodeName", None)
        after.pop("nodeName", None)
        if before != after:
            return True
    old_labels, new_labels = part(meta(old), "labels"), part(meta(new), "labels")
    return old_labels != new_labels and _own_labels(old_labels) != _own_labels(new_labels)


def _own_labels(labels: Raw) -> Raw:
    return {name: text for name, text in labels.items() if name not in _TOPOLOGY}


def _wished(raw: Raw) -> Raw:
    """Return the pod as a user's update: without what the cluster has put into it."""
    own, spec = dict(meta(raw)), dict(part(raw, "spec"))
    own["labels"] = _own_labels(part(own, "labels"))
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        own.pop(name, None)
    spec.pop("nodeName", None)
    return {"apiVersion": raw.get("apiVersion"), "kind": "Pod", "metadata": own, "spec": spec}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReading:
    """Reads the steps of objects that are no pods."""

    facts: Survey
    output: Output

    def read(self, step: Step) -> Iterator[Record]:
        """Yield the records of one step."""
        if kind(step.new) in SERVED and self._is_controllers(step.new):
            yield from self._controllers_own(step)
        elif step.old is None:
            yield from self._appeared(step)
        else:
            yield from self._changed(step, step.old)
        if kind(step.new) == "Node":
            yield from self._pressure(step)

    def _appeared(self, step: Step) -> Iterator[Record]:
        raw = step.new
        match kind(raw):
            case "Node":
                yield from self.output.create(step, _node_without_pressure(raw))
            case "PodDisruptionBudget":
                yield from self.output.create(step, without_status(raw))
                yield from self._budget_status(step, {})
            case name if name in WORKLOADS and not step.initial:
                yield from self.output.create(step, without_status(raw))
            case _:
                yield from self.output.create(step, raw)

    def _changed(self, step: Step, old: Raw) -> Iterator[Record]:
        raw, object_kind = step.new, kind(step.new)
        if step.deleted or (deletion_asked(raw) and not deletion_asked(old)):
            if not deletion_asked(old):
                yield self.output.delete(step)
            return
        wish = _node_wish if object_kind == "Node" else user_part
        if wish(old) != wish(raw):
            new = _node_without_pressure(raw) if object_kind == "Node" else without_status(raw)
            yield from self.output.update(step, new)
        elif object_kind == "Node":
            self.output.dropped(step, "heartbeat", "a heartbeat, or a status that no replay reads")
        elif object_kind != "PodDisruptionBudget":
            self.output.dropped(step, "status-only", "a change of status that no replay reads")
        if object_kind == "PodDisruptionBudget":
            yield from self._budget_status(step, old)

    def _budget_status(self, step: Step, old: Raw) -> Iterator[Record]:
        status = part(step.new, "status")
        if not status or status == part(old, "status"):
            return
        carried = self.output.object(step, step.new)
        if carried is not None:
            budget = carried.pod_disruption_budget
            yield self.output.observed(step, budget_status=BudgetStatus(status=budget.status))

    def _is_controllers(self, raw: Raw) -> bool:
        return self.facts.objects[uid(raw)].owner_uid in self.facts.controllers

    def _controllers_own(self, step: Step) -> Iterator[Record]:
        """Read what a recorded Deployment or CronJob owns: only the first list's are input."""
        facts = self.facts.objects[uid(step.new)]
        if step.old is not None:
            what = "changed by its controller, which a replay does itself"
            self.output.dropped(step, "controller-update", what)
        elif facts.is_observed:
            owner = self.facts.owner_of(facts)
            yield self.output.observed(step, made=Made(owner=owner, ordinal=facts.ordinal))
        else:
            yield from self.output.create(step, step.new)

    def _pressure(self, step: Step) -> Iterator[Record]:
        for type_ in _PRESSURES:
            before = condition(step.old or {}, type_).get("status", "False")
            after = condition(step.new, type_).get("status", "False")
            if after != before and not step.deleted:
                changed = ConditionChanged(type=type_, status=str(after))
                yield self.output.observed(step, condition_changed=changed)


def _node_wish(raw: Raw) -> tuple[object, ...]:
    """Return what matters of a node beside its heartbeat."""
    own, spec, status = meta(raw), part(raw, "spec"), part(raw, "status")
    taints = [
        (each.get("key"), each.get("value"), each.get("effect"))
        for each in parts(spec, "taints")
        if str(each.get("key")) not in _PRESSURE_TAINTS
    ]
    states = {
        str(each.get("type")): each.get("status")
        for each in conditions(raw)
        if each.get("type") not in _PRESSURES
    }
    amounts = status.get("capacity"), status.get("allocatable")
    return (
        own.get("labels"),
        spec.get("unschedulable"),
        taints,
        states,
        amounts,
        status.get("images"),
    )


def _node_without_pressure(raw: Raw) -> Raw:
    """Return the node without conditions and taints that its kubelet's pressure gave it."""
    spec, status = dict(part(raw, "spec")), dict(part(raw, "status"))
    taints = [
        each for each in parts(spec, "taints") if str(each.get("key")) not in _PRESSURE_TAINTS
    ]
    if "taints" in spec:
        spec["taints"] = taints
    status["conditions"] = [
        each
        for each in conditions(raw)
        if each.get("type") not in _PRESSURES or each.get("status") != "True"
    ]
    return {**raw, "spec": spec, "status": status}
