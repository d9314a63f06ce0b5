"""One pod's scheduling cycle: a node is chosen, and plugins reserve and permit it.

Filters count nominated pods of equal or higher priority: on a node that has some, the pod must
fit with them and without them. A pod that is nominated itself is tried on its node first, even
where PreFilter leaves that node out, and takes it without scoring if it fits. If it does not, the
node's own refusal stays in the diagnosis.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, schedulePod, findNodesThatFitPod and
evaluateNominatedNode.

What plugins say of a pod that is assumed: Reserve, Permit and PreBind, and what a no means.

A refusal by Reserve or Permit makes the pod unschedulable, with the plugin to wait for. PreBind is
part of the binding cycle: its refusal names no plugin to wait for, and the pod that had been
assumed counts as deleted. Anything else than a refusal is an error; so is a wish to wait, which
is not served yet.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, schedulingCycle, bindingCycle,
handleBindingCycleError, handleSchedulingFailure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from services.kube.pod import Pod
from services.scheduler.core.columns.kernels import Int8s
from services.scheduler.core.cycle.extenders import Extenders
from services.scheduler.core.cycle.host_choice import HostChoice
from services.scheduler.core.decisions import NOT_MEASURED, Failed, Refused
from services.scheduler.core.framework.cached_attempt import (
    NodeDryRun,
    Outlook,
    overridden_by,
    still_tried,
)
from services.scheduler.core.framework.diagnosis import (
    Diagnosis,
    fit_error_text,
    reason_counts,
    refused_by_pre_filter,
    refused_when_assumed,
)
from services.scheduler.core.framework.equivalence_class import Shape
from services.scheduler.core.framework.framework import Framework
from services.scheduler.core.preemption.preemptor import ExtenderError
from services.scheduler.core.snapshot.snapshot import Snapshot
from services.scheduler.core.status import SUCCESS, Code, Status


class Suggested(NamedTuple):
    """A node to take.

    `feasible` of `evaluated` nodes fitted, and `tied` of them had the best `total`, which is
    None where the pod was not scored. `phases_ns` holds what the stopwatch measured, by
    extension point: those that ran. PreFilter runs for the first pod of a shape, and Filter and
    Score bring the shape's columns up to date.
    """

    node_name: str
    row: int
    evaluated: int
    feasible: int
    tied: int = 1
    total: int | None = None
    phases_ns: Mapping[str, int] = NOT_MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class Unschedulable:
    """No node fits; preemption may be tried."""

    diagnosis: Diagnosis
    phases_ns: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoNodes:
    """The snapshot has no node at all; nothing can be preempted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errored:
    """A plugin failed, which ends the cycle; `message` names it, as upstream does."""

    message: str
    phases_ns: Mapping[str, int] = field(default_factory=dict)


class Begun(NamedTuple):
    """A cycle after PreFilter."""

    outlook: Outlook
    laps: Laps


CycleResult = Suggested | Unschedulable | NoNodes | Errored


class Cycle:
    """Schedules pods of one profile, without changing the snapshot.

    `nominated_first` tries a pod's nominated node alone before all others, which v1.16 did not.
    `stopwatch` returns ns of any clock; without one nothing is measured.
    """

    def __init__(
        self,
        framework: Framework,
        choice: HostChoice,
        *,
        nominated_first: bool = True,
        stopwatch: Callable[[], int] | None = None,
    ) -> None:
        self.framework = framework
        self.nominated_first = nominated_first
        self._choice = choice
        self._snapshot = framework.snapshot
        self._stopwatch = stopwatch

    def begin(self, pod: Pod) -> Begun | None:
        """Run PreFilter, unless an earlier pod of the shape has; None where there is no node."""
        if self._snapshot.node_count == 0:
            return None
        laps = Laps(self._stopwatch)
        outlook, ran = self.framework.pre_filtered(pod)
        if ran or outlook.shape.pre_filter.refusal is not None:
            laps.take("PreFilter")
        return Begun(outlook, laps)

    def schedule_pod(self, pod: Pod, attempt: int) -> CycleResult:
        """Return a node for `pod`, or why there is none; `attempt` keys the tie-break."""
        begun = self.begin(pod)
        return NoNodes() if begun is None else self.complete(pod, attempt, begun)

    def complete(self, pod: Pod, attempt: int, begun: Begun) -> Suggested | Unschedulable | Errored:
        """Do the same with what `begin` returned."""
        outlook, laps = begun
        refusal = outlook.shape.pre_filter.refusal
        if refusal is not None:
            message = _pre_filter_error(refusal)
            if message:
                return Errored(message=message, phases_ns=laps.phases_ns)
            alive = self._snapshot.columns.alive
            diagnosis = refused_by_pre_filter(outlook.shape.pre_filter, alive)
            return Unschedulable(diagnosis=diagnosis, phases_ns=laps.phases_ns)
        outlook.sync(pod)
        tried = self._nominated_node(pod, outlook.shape, laps)
        if isinstance(tried, Suggested):
            return tried
        return self._all_nodes(pod, attempt, outlook, tried, laps)

    def _nominated_node(self, pod: Pod, shape: Shape, laps: Laps) -> Suggested | dict[int, Status]:
        """Return the nominated node if the pod fits there, else what is left to say of it, by row.

        A filter's failure there is passed over.
        """
        tried = try_nominated_node(self._snapshot, pod, shape) if self.nominated_first else None
        if tried is None:
            return {}
        row, refusal = tried
        if refusal is not None:
            return {row: refusal} if refusal.code.is_rejected else {}
        laps.take("Filter")
        return Suggested(
            node_name=pod.nominated_node_name,
            row=row,
            evaluated=1,
            feasible=1,
            phases_ns=laps.phases_ns,
        )

    def _all_nodes(
        self, pod: Pod, attempt: int, outlook: Outlook, tried: dict[int, Status], laps: Laps
    ) -> Suggested | Unschedulable | Errored:
        shape, overridden = outlook.shape, outlook.overridden
        refuser = overridden_by(shape.refuser, overridden)
        laps.take("Filter")
        message = filter_error(shape, refuser, overridden) or score_error(shape, refuser)
        if message:
            return Errored(message=message, phases_ns=laps.phases_ns)
        chosen = self._choice.choose(
            shape, refuser, self._snapshot, pod.uid, attempt, tried=tuple(tried)
        )
        if chosen.feasible > 1 and self.framework.weights:
            laps.take("Score")
        if chosen.row < 0:
            diagnosis = outlook.diagnosis(pod, tried)
            return Unschedulable(diagnosis=diagnosis, phases_ns=laps.phases_ns)
        return Suggested(
            node_name=self._snapshot.name(chosen.row),
            row=chosen.row,
            evaluated=chosen.looked_at or self._evaluated(shape, tried),
            feasible=chosen.feasible,
            tied=chosen.tied,
            total=chosen.total if chosen.feasible > 1 else None,
            phases_ns=laps.phases_ns,
        )

    def _evaluated(self, shape: Shape, tried: Mapping[int, Status]) -> int:
        if shape.pre_filter.node_names is None:
            return self._snapshot.node_count
        return int(np.count_nonzero(shape.refuser >= 0)) + len(still_tried(tried, shape.refuser))


def try_nominated_node(
    snapshot: Snapshot, pod: Pod, shape: Shape
) -> tuple[int, Status | None] | None:
    """Return the row of the pod's nominated node and how its filters refuse the pod, if they do.

    None without a nominated node in the snapshot. PreFilter's choice of nodes is disregarded.
    Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, evaluateNominatedNode.
    """
    row = snapshot.row(pod.nominated_node_name) if pod.nominated_node_name else None
    return None if row is None else (row, NodeDryRun(pod, row, shape, snapshot).refusal())


def _pre_filter_error(refusal: Status | None) -> str:
    if refusal is None or refusal.code is not Code.ERROR:
        return ""
    return f'running PreFilter plugin "{refusal.plugin}": {refusal.message}'


def filter_error(shape: Shape, refuser: Int8s, overridden: Mapping[int, Status]) -> str:
    """Return how a filter failed, "" where none did; a node refused before it hides that."""
    if not overridden and not shape.can_fail:
        return ""
    statuses = [status for status in overridden.values() if status.code is Code.ERROR]
    failure = statuses[0] if statuses else shape.filter_failure(refuser)
    return filter_error_text(failure) if failure else ""


def filter_error_text(failure: Status) -> str:
    """Return the message of a cycle that a filter's failure ends."""
    return f'running "{failure.plugin}" filter plugin: {failure.message}'


def score_error(shape: Shape, refuser: Int8s) -> str:
    """Return how scoring fails, "" where it does not or where one node at most is to be scored."""
    return shape.score_failure if len(refuser) - np.count_nonzero(refuser) > 1 else ""


class Laps:
    """Times phases by a stopwatch; measures nothing without one."""

    __slots__ = ("_last", "_stopwatch", "phases_ns")

    def __init__(self, stopwatch: Callable[[], int] | None) -> None:
        self._stopwatch = stopwatch
        self._last = stopwatch() if stopwatch is not None else 0
        self.phases_ns: dict[str, int] = {}

    def take(self, phase: str) -> None:
        """Put down the time since the last lap for `phase`."""
        if self._stopwatch is None:
            return
        now = self._stopwatch()
        self.phases_ns[phase] = now - self._last
        self._last = now


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedDown:
    """The pod is not bound after all; `in_binding` tells that PreBind or Bind said so."""

    verdict: Refused | Failed
    in_binding: bool


def why_not_bound(
    framework: Framework, pod: Pod, suggested: Suggested, extenders: Extenders
) -> TurnedDown | None:
    """Run Reserve, Permit, PreBind and Bind for an assumed pod; None where it is to be bound.

    An extender that binds comes before the plugins that do.

    Where it may not, everything is unreserved when this returns.
    """
    status = framework.reserve(pod, suggested.row)
    if status is not None:
        return TurnedDown(verdict=_in_scheduling(status), in_binding=False)
    status = framework.permit(pod, suggested.row)
    if status is not None:
        framework.unreserve(pod, suggested.row)
        return TurnedDown(verdict=_in_scheduling(status), in_binding=False)
    status = framework.pre_bind(pod, suggested.node_name)
    if status is None:
        by_extender = extenders.bind(pod, suggested.node_name)
        if isinstance(by_extender, ExtenderError):
            framework.unreserve(pod, suggested.row)
            return TurnedDown(verdict=Failed(message=by_extender.message), in_binding=True)
        bound = SUCCESS if by_extender else framework.bind(pod, suggested.node_name)
        status = None if bound.code is Code.SUCCESS else bound
    if status is not None:
        framework.unreserve(pod, suggested.row)
        return TurnedDown(verdict=_in_binding(status), in_binding=True)
    return None


def _in_scheduling(status: Status) -> Refused | Failed:
    if not status.code.is_rejected:
        return _failed(status)
    diagnosis = refused_when_assumed(status)
    reasons = reason_counts(diagnosis)
    return Refused(
        message=fit_error_text(diagnosis, reasons=reasons),
        plugins=diagnosis.unschedulable_plugins,
        pending_plugins=diagnosis.pending_plugins,
        nominated_node_name="",
        reasons=reasons,
    )


def _in_binding(status: Status) -> Refused | Failed:
    if not status.code.is_rejected:
        return _failed(status)
    reasons = tuple((reason, 1) for reason in status.reasons)
    return Refused(message=status.message, nominated_node_name="", reasons=reasons)


def _failed(status: Status) -> Failed:
    if status.code is Code.SKIP:
        return Failed(message="no Bind plugin took the pod")
    waits = status.code is Code.WAIT
    said = "waiting at Permit is not served" if waits else status.message
    return Failed(message=f"running plugin {status.plugin!r}: {said}")
