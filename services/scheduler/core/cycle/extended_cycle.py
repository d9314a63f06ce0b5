"""A scheduling cycle with extenders.

Extenders are called with the nodes that pass the filters, in the snapshot's order, and their
refusals join the diagnosis. Where several nodes are left, their scores are added to the totals.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, schedulePod, findNodesThatFitPod,
evaluateNominatedNode, prioritizeNodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from services.framework.columns.columns import Bools, Int64s
from services.framework.columns.kernels import NO_GROUP, OVERRIDDEN, Int8s
from services.framework.preemption.preemptor import ExtenderError
from services.framework.runtime.cached_attempt import CachedAttempt, overridden_by, still_tried
from services.framework.runtime.diagnosis import Diagnosis, StatusCount, refused_by_filters
from services.framework.runtime.equivalence_class import EQUAL_SCORE, EquivalenceClass
from services.framework.runtime.framework import Framework
from services.framework.status import Code, Status
from services.kube.node import Node
from services.kube.pod import Pod
from services.scheduler.core.cycle.cycle import (
    Cycle,
    CycleError,
    FitError,
    PhaseTimer,
    ScheduleResult,
    filter_error,
    score_error,
)
from services.scheduler.core.cycle.extenders import EXTENDER_PLUGIN, Extenders, FilteredNodes
from services.scheduler.core.cycle.host_choice import HostChoice, SampledChoice

ABSENT = Status(code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
"""The status of a node that was not evaluated: unresolvable, without a reason."""
PHASE = "Extenders"
"""The name of the phase that extenders take."""


@dataclass(frozen=True, slots=True)
class _TotalsWithExtenders:
    """The totals of an equivalence class with what extenders add, int64[nodes]."""

    equivalence: EquivalenceClass
    added: Int64s

    def normalized_totals(self, refuser: Int8s) -> Int64s:
        return self.equivalence.normalized_totals(refuser) + self.added


class ExtendedCycle(Cycle):
    """Schedules pods of one profile, with extenders beside its plugins."""

    def __init__(
        self,
        framework: Framework,
        choice: HostChoice,
        extenders: Extenders,
        *,
        nominated_first: bool = True,
        stopwatch: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(framework, choice, nominated_first=nominated_first, stopwatch=stopwatch)
        self.extenders = extenders

    def _nominated_node(
        self, pod: Pod, equivalence: EquivalenceClass, timer: PhaseTimer
    ) -> ScheduleResult | dict[int, Status]:
        """Try the nominated node; an extender's failure leaves it to the other nodes' turn."""
        found = super()._nominated_node(pod, equivalence, timer)
        if not isinstance(found, ScheduleResult):
            return found
        passed = self.extenders.filter(pod, [self._snapshot.node(found.row)])
        timer.record(PHASE)
        if isinstance(passed, ExtenderError):
            self.extenders.warn(passed)
            return {}
        return found if passed.nodes else self._by_row(passed.statuses)

    def _all_nodes(
        self,
        pod: Pod,
        attempt: int,
        cached: CachedAttempt,
        tried: dict[int, Status],
        timer: PhaseTimer,
    ) -> ScheduleResult | FitError | CycleError:
        if self.framework.weights and not self.extenders.filter_or_score(pod):
            return super()._all_nodes(pod, attempt, cached, tried, timer)
        equivalence, overridden = cached.equivalence, cached.overridden
        fitting = overridden_by(equivalence.refuser, overridden)
        timer.record("Filter")
        message = filter_error(equivalence, fitting, overridden)
        if message:
            return CycleError(message=message, phases_ns=timer.phases_ns)
        sample, looked_at = self._sampled(fitting, tried)
        nodes = self._nodes(sample)
        passed = self.extenders.filter(pod, nodes)
        timer.record(PHASE)
        if isinstance(passed, ExtenderError):
            return CycleError(message=passed.message, phases_ns=timer.phases_ns)
        if not passed.nodes:
            diagnosis = self._diagnosis(pod, cached, sample, tried, passed, looked_at)
            return FitError(diagnosis=diagnosis, phases_ns=timer.phases_ns)
        left = self._left(sample, passed.nodes)
        message = score_error(equivalence, left)
        if message:
            return CycleError(message=message, phases_ns=timer.phases_ns)
        evaluated = (looked_at or self._evaluated(equivalence, tried)) - _silent(nodes, passed)
        return self._chosen(pod, attempt, equivalence, left, passed.nodes, evaluated, timer)

    def _chosen(
        self,
        pod: Pod,
        attempt: int,
        equivalence: EquivalenceClass,
        left: Int8s,
        nodes: Sequence[Node],
        evaluated: int,
        timer: PhaseTimer,
    ) -> ScheduleResult:
        added = self._added(pod, nodes, left)
        inner = self._choice.inner if isinstance(self._choice, SampledChoice) else self._choice
        chosen = inner.choose(
            _TotalsWithExtenders(equivalence, added), left, self._snapshot, pod.uid, attempt
        )
        if chosen.feasible > 1:
            timer.record("Score")
        return ScheduleResult(
            node_name=self._snapshot.name(chosen.row),
            row=chosen.row,
            evaluated=evaluated,
            feasible=chosen.feasible,
            tied=chosen.tied,
            total=chosen.total if chosen.feasible > 1 else None,
            phases_ns=timer.phases_ns,
        )

    def _sampled(self, refuser: Int8s, tried: Mapping[int, Status]) -> tuple[Int8s, int]:
        """Return `refuser` without the rows that sampling leaves out; 0 where it leaves none."""
        if not isinstance(self._choice, SampledChoice):
            return refuser, 0
        return self._choice.sample(refuser, self._snapshot, tuple(tried))

    def _nodes(self, refuser: Int8s) -> tuple[Node, ...]:
        listed = self._snapshot.rows_in_order()
        return tuple(self._snapshot.node(row) for row in listed[refuser[listed] == 0].tolist())

    def _left(self, refuser: Int8s, nodes: Sequence[Node]) -> Int8s:
        """Return `refuser` with OVERRIDDEN where a feasible row is not one of `nodes`."""
        left = np.where(refuser == 0, np.int8(OVERRIDDEN), refuser)
        left[self._rows(nodes)] = 0
        return left

    def _added(self, pod: Pod, nodes: Sequence[Node], left: Int8s) -> Int64s:
        """Return what extenders add to the rows, int64[nodes]; a single node is not scored.

        Where no plugin scores, nodes are worth 0, not the 1 that they are without extenders.
        """
        added: Int64s = np.zeros(len(left), dtype=np.int64)
        if len(nodes) < 2:
            return added
        if not self.framework.weights:
            added -= EQUAL_SCORE
        scores = self.extenders.scores(pod, nodes)
        for node, row in zip(nodes, self._rows(nodes), strict=True):
            added[row] += scores.get(node.name, 0)
        return added

    def _rows(self, nodes: Sequence[Node]) -> list[int]:
        rows = [self._snapshot.row(node.name) for node in nodes]
        return [row for row in rows if row is not None]

    def _by_row(self, statuses: Mapping[str, Status]) -> dict[int, Status]:
        rows = ((self._snapshot.row(name), status) for name, status in statuses.items())
        return {row: status for row, status in rows if row is not None}

    def _diagnosis(
        self,
        pod: Pod,
        cached: CachedAttempt,
        sample: Int8s,
        tried: dict[int, Status],
        passed: FilteredNodes,
        looked_at: int,
    ) -> Diagnosis:
        """Return why no node is left; `sample` is 0 for the nodes that were sent to extenders."""
        equivalence, overridden = cached.equivalence, cached.nominated_refusals(pod)
        if looked_at:
            overridden = {row: each for row, each in overridden.items() if sample[row] > 0}
        overridden |= still_tried(tried, sample)
        hidden = np.where(sample == 0, np.int8(OVERRIDDEN), sample)
        refuser = overridden_by(hidden, overridden)
        count = self._snapshot.node_count
        by_filters = refused_by_filters(equivalence, refuser, overridden, count)
        by_row = self._by_row(passed.statuses)
        return with_extenders(
            by_filters,
            by_row=by_row,
            unknown_nodes=[
                status
                for name, status in passed.statuses.items()
                if self._snapshot.row(name) is None
            ],
            any_sent=bool(np.any(sample == 0)),
            silent=equivalence.pre_filter.excluded
            if equivalence.pre_filter.node_names is not None
            else ABSENT,
            alive=self._snapshot.columns.alive,
        )


def _silent(sent: Sequence[Node], passed: FilteredNodes) -> int:
    """Return how many nodes were dropped without a status, which upstream does not count."""
    answered = {node.name for node in passed.nodes} | passed.statuses.keys()
    return sum(node.name not in answered for node in sent)


def with_extenders(
    diagnosis: Diagnosis,
    *,
    by_row: Mapping[int, Status],
    unknown_nodes: Sequence[Status],
    any_sent: bool,
    silent: Status,
    alive: Bools,
) -> Diagnosis:
    """Return `diagnosis` with the statuses that extenders gave, by row.

    An extender's status of a node replaces a filter's. It may drop a node without a status, which
    counts as a node that was never evaluated, and it may name nodes that are not in the snapshot,
    whose reasons are counted as well.
    Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, findNodesThatFitPod,
    findNodesThatPassExtenders; pkg/scheduler/framework/types.go, NodeToStatus, FitError.Error.

    unknown_nodes: the statuses of names that are not in the snapshot. any_sent: whether any node
    was sent to extenders, of which none is left; a nominated node sent alone does not count.
    silent: the status of nodes without one. alive: bool[nodes].
    """
    group_of = diagnosis.group_of.copy()
    statuses = [group.status for group in diagnosis.groups]
    places: dict[Status, int] = {}

    def place(status: Status) -> int:
        if status not in places:
            places[status] = len(statuses)
            statuses.append(status)
        return places[status]

    for row, status in by_row.items():
        group_of[row] = place(status)
    left = alive & (group_of == NO_GROUP)
    if left.any():
        group_of[left] = place(silent)
    counts = np.bincount(group_of[group_of != NO_GROUP], minlength=len(statuses)).tolist()
    groups = [StatusCount(status, n) for status, n in zip(statuses, counts, strict=True)]
    plugins = {*diagnosis.unschedulable_plugins} - {EXTENDER_PLUGIN} | (
        {EXTENDER_PLUGIN} if any_sent else set()
    )
    return replace(
        diagnosis,
        groups=(*groups, *(StatusCount(status, 1) for status in unknown_nodes)),
        group_of=group_of,
        unschedulable_plugins=tuple(sorted(plugins)),
        key=None,
        _codes=None,
    )
