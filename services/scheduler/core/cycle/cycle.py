"""One pod's scheduling cycle: a node is chosen, then plugins reserve, permit and bind.

Filters count nominated pods of equal or higher priority: on a node that has some, the pod must fit
with them and without them. A pod that is nominated itself is tried on its node first, even where
PreFilter excludes that node, and takes it without scoring if it fits. If it does not fit, the
node's own refusal stays in the diagnosis.

A refusal by Reserve or Permit makes the assumed pod unschedulable and names the plugin whose events
may move it. PreBind is part of the binding cycle: its refusal names no plugin, and the assumed pod
counts as deleted. Any other status than a refusal is an error; so is WAIT, which is not supported.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, schedulePod, findNodesThatFitPod,
evaluateNominatedNode, schedulingCycle, bindingCycle, handleBindingCycleError and
handleSchedulingFailure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from services.framework.columns.kernels import Int8s
from services.framework.preemption.preemptor import ExtenderError
from services.framework.runtime.cached_attempt import (
    CachedAttempt,
    NodeDryRun,
    overridden_by,
    still_tried,
)
from services.framework.runtime.diagnosis import (
    Diagnosis,
    Refused,
    fit_error_text,
    reason_counts,
    refused_by_pre_filter,
    refused_when_assumed,
)
from services.framework.runtime.equivalence_class import EquivalenceClass
from services.framework.runtime.framework import Framework
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import SUCCESS, Code, Status
from services.kube.pod import Pod
from services.scheduler.core.cycle.extenders import Extenders
from services.scheduler.core.cycle.host_choice import HostChoice
from services.scheduler.core.decisions import NOT_MEASURED, Failed


class ScheduleResult(NamedTuple):
    """A node to take.

    `feasible` of `evaluated` nodes fitted, and `tied` of them had the best `total`, which is None
    where the pod was not scored. `phases_ns` holds what the stopwatch measured, by extension point:
    those that ran. PreFilter runs for the first pod of an equivalence class, and Filter and Score
    update the columns of the class.
    """

    node_name: str
    row: int
    evaluated: int
    feasible: int
    tied: int = 1
    total: int | None = None
    phases_ns: Mapping[str, int] = NOT_MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class FitError:
    """No node fits; preemption may be tried."""

    diagnosis: Diagnosis
    phases_ns: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoNodesAvailable:
    """The snapshot has no node at all; nothing can be preempted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleError:
    """A plugin failed, which ends the cycle; `message` names it, as upstream does."""

    message: str
    phases_ns: Mapping[str, int] = field(default_factory=dict)


class StartedCycle(NamedTuple):
    """A cycle after PreFilter."""

    cached: CachedAttempt
    timer: PhaseTimer


CycleResult = ScheduleResult | FitError | NoNodesAvailable | CycleError


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

    def begin(self, pod: Pod) -> StartedCycle | None:
        """Run PreFilter, unless an equivalent pod did before; None where there is no node."""
        if self._snapshot.node_count == 0:
            return None
        timer = PhaseTimer(self._stopwatch)
        cached, ran = self.framework.pre_filtered(pod)
        if ran or cached.equivalence.pre_filter.refusal is not None:
            timer.record("PreFilter")
        return StartedCycle(cached, timer)

    def schedule_pod(self, pod: Pod, attempt: int) -> CycleResult:
        """Return a node for `pod`, or why no node fits; `attempt` keys the tie-break."""
        started = self.begin(pod)
        return NoNodesAvailable() if started is None else self.complete(pod, attempt, started)

    def complete(
        self, pod: Pod, attempt: int, started: StartedCycle
    ) -> ScheduleResult | FitError | CycleError:
        """Do the same with what `begin` returned."""
        cached, timer = started
        refusal = cached.equivalence.pre_filter.refusal
        if refusal is not None:
            message = _pre_filter_error(refusal)
            if message:
                return CycleError(message=message, phases_ns=timer.phases_ns)
            alive = self._snapshot.columns.alive
            diagnosis = refused_by_pre_filter(cached.equivalence.pre_filter, alive)
            return FitError(diagnosis=diagnosis, phases_ns=timer.phases_ns)
        cached.sync(pod)
        tried = self._nominated_node(pod, cached.equivalence, timer)
        if isinstance(tried, ScheduleResult):
            return tried
        return self._all_nodes(pod, attempt, cached, tried, timer)

    def _nominated_node(
        self, pod: Pod, equivalence: EquivalenceClass, timer: PhaseTimer
    ) -> ScheduleResult | dict[int, Status]:
        """Return the nominated node if the pod fits there, else its refusal by row.

        A filter's failure there is ignored.
        """
        tried = (
            try_nominated_node(self._snapshot, pod, equivalence) if self.nominated_first else None
        )
        if tried is None:
            return {}
        row, refusal = tried
        if refusal is not None:
            return {row: refusal} if refusal.code.is_rejected else {}
        timer.record("Filter")
        return ScheduleResult(
            node_name=pod.nominated_node_name,
            row=row,
            evaluated=1,
            feasible=1,
            phases_ns=timer.phases_ns,
        )

    def _all_nodes(
        self,
        pod: Pod,
        attempt: int,
        cached: CachedAttempt,
        tried: dict[int, Status],
        timer: PhaseTimer,
    ) -> ScheduleResult | FitError | CycleError:
        equivalence, overridden = cached.equivalence, cached.overridden
        refuser = overridden_by(equivalence.refuser, overridden)
        timer.record("Filter")
        message = filter_error(equivalence, refuser, overridden) or score_error(
            equivalence, refuser
        )
        if message:
            return CycleError(message=message, phases_ns=timer.phases_ns)
        chosen = self._choice.choose(
            equivalence, refuser, self._snapshot, pod.uid, attempt, tried=tuple(tried)
        )
        if chosen.feasible > 1 and self.framework.weights:
            timer.record("Score")
        if chosen.row < 0:
            diagnosis = cached.diagnosis(pod, tried)
            return FitError(diagnosis=diagnosis, phases_ns=timer.phases_ns)
        return ScheduleResult(
            node_name=self._snapshot.name(chosen.row),
            row=chosen.row,
            evaluated=chosen.looked_at or self._evaluated(equivalence, tried),
            feasible=chosen.feasible,
            tied=chosen.tied,
            total=chosen.total if chosen.feasible > 1 else None,
            phases_ns=timer.phases_ns,
        )

    def _evaluated(self, equivalence: EquivalenceClass, tried: Mapping[int, Status]) -> int:
        if equivalence.pre_filter.node_names is None:
            return self._snapshot.node_count
        return int(np.count_nonzero(equivalence.refuser >= 0)) + len(
            still_tried(tried, equivalence.refuser)
        )


def try_nominated_node(
    snapshot: Snapshot, pod: Pod, equivalence: EquivalenceClass
) -> tuple[int, Status | None] | None:
    """Return the row of the pod's nominated node and how its filters refuse the pod, if they do.

    None without a nominated node in the snapshot. PreFilter's choice of nodes is disregarded.
    Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, evaluateNominatedNode.
    """
    row = snapshot.row(pod.nominated_node_name) if pod.nominated_node_name else None
    return None if row is None else (row, NodeDryRun(pod, row, equivalence, snapshot).refusal())


def _pre_filter_error(refusal: Status | None) -> str:
    if refusal is None or refusal.code is not Code.ERROR:
        return ""
    return f'running PreFilter plugin "{refusal.plugin}": {refusal.message}'


def filter_error(
    equivalence: EquivalenceClass, refuser: Int8s, overridden: Mapping[int, Status]
) -> str:
    """Return how a filter failed, "" where none did; a node refused before it hides that."""
    if not overridden and not equivalence.can_fail:
        return ""
    statuses = [status for status in overridden.values() if status.code is Code.ERROR]
    failure = statuses[0] if statuses else equivalence.filter_failure(refuser)
    return filter_error_text(failure) if failure else ""


def filter_error_text(failure: Status) -> str:
    """Return the message of a cycle that a filter's failure ends."""
    return f'running "{failure.plugin}" filter plugin: {failure.message}'


def score_error(equivalence: EquivalenceClass, refuser: Int8s) -> str:
    """Return how scoring fails, "" where it does not or where one node at most is to be scored."""
    return equivalence.score_failure if len(refuser) - np.count_nonzero(refuser) > 1 else ""


class PhaseTimer:
    """Times phases by a stopwatch; measures nothing without one."""

    __slots__ = ("_last", "_stopwatch", "phases_ns")

    def __init__(self, stopwatch: Callable[[], int] | None) -> None:
        self._stopwatch = stopwatch
        self._last = stopwatch() if stopwatch is not None else 0
        self.phases_ns: dict[str, int] = {}

    def record(self, phase: str) -> None:
        """Record the time since the last record as that of `phase`."""
        if self._stopwatch is None:
            return
        now = self._stopwatch()
        self.phases_ns[phase] = now - self._last
        self._last = now


@dataclass(frozen=True, slots=True, kw_only=True)
class NotBound:
    """The assumed pod is not bound; `in_binding` is set where PreBind or Bind refused it."""

    verdict: Refused | Failed
    in_binding: bool


def reserve_and_bind(
    framework: Framework, pod: Pod, suggested: ScheduleResult, extenders: Extenders
) -> NotBound | None:
    """Run Reserve, Permit, PreBind and Bind for an assumed pod; None where it is to be bound.

    An extender that binds comes before the plugins that do.

    Where it may not, everything is unreserved when this returns.
    """
    status = framework.reserve(pod, suggested.row)
    if status is not None:
        return NotBound(verdict=_in_scheduling(status), in_binding=False)
    status = framework.permit(pod, suggested.row)
    if status is not None:
        framework.unreserve(pod, suggested.row)
        return NotBound(verdict=_in_scheduling(status), in_binding=False)
    status = framework.pre_bind(pod, suggested.node_name)
    if status is None:
        by_extender = extenders.bind(pod, suggested.node_name)
        if isinstance(by_extender, ExtenderError):
            framework.unreserve(pod, suggested.row)
            return NotBound(verdict=Failed(message=by_extender.message), in_binding=True)
        bound = SUCCESS if by_extender else framework.bind(pod, suggested.node_name)
        status = None if bound.code is Code.SUCCESS else bound
    if status is not None:
        framework.unreserve(pod, suggested.row)
        return NotBound(verdict=_in_binding(status), in_binding=True)
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
    message = "waiting at Permit is not served" if waits else status.message
    return Failed(message=f"running plugin {status.plugin!r}: {message}")
