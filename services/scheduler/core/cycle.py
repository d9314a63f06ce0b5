"""One pod's scheduling cycle up to the choice of a node.

Filters count nominated pods of equal or higher priority: on a node that has some, the pod must
fit with them and without them. A pod that is nominated itself is tried on its node first, even
where PreFilter leaves that node out, and takes it without scoring if it fits. If it does not, the
node's own refusal stays in the diagnosis.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, schedulePod, findNodesThatFitPod and
evaluateNominatedNode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from services.kube.pod import Pod
from services.scheduler.core.decisions import NOT_MEASURED
from services.scheduler.core.diagnosis import Diagnosis, refused_by_pre_filter
from services.scheduler.core.framework import Framework
from services.scheduler.core.host_choice import HostChoice
from services.scheduler.core.kernels import Int8s
from services.scheduler.core.node_dry_run import NodeDryRun
from services.scheduler.core.outlook import Outlook, overridden_by, still_tried
from services.scheduler.core.shape import Shape
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Code, Status


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
