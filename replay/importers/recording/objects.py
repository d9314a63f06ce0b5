"""Recorded objects other than pods: nodes, controllers, budgets, and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from replay.importers.kinds import WORKLOADS
from replay.importers.recording.change import (
    Raw,
    condition,
    conditions,
    deletion_asked,
    kind,
    meta,
    part,
    parts,
    uid,
    user_part,
    without_status,
)
from replay.importers.recording.history import Output, Step
from replay.importers.recording.survey import SERVED, Survey
from reprieve.kube.v1alpha1.object_ref_pb2 import ObjectRef
from reprieve.trace.v1alpha1.trace_pb2 import BudgetStatus, ConditionChanged, Made, Record

# What a kubelet under pressure reports, and the taints that it brings: decided in a replay.
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_PRESSURE_TAINTS = frozenset(
    f"node.kubernetes.io/{name}-pressure" for name in ("memory", "disk", "pid")
)


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
            owner_kind, namespace, name = self.facts.controllers[facts.owner_uid]
            owner = ObjectRef(kind=owner_kind, namespace=namespace, name=name, uid=facts.owner_uid)
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
