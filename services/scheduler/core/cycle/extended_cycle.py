"""A scheduling cycle in which extenders have their say.

They are asked for the nodes that the filters let pass, in the snapshot's order, and what they
refuse joins the diagnosis. Where several nodes are left, their scores join the totals.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, schedulePod, findNodesThatFitPod,
evaluateNominatedNode, prioritizeNodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from services.kube.node import Node
from services.kube.pod import Pod
from services.scheduler.core.columns.columns import Bools, Int64s
from services.scheduler.core.columns.kernels import NO_GROUP, OVERRIDDEN, Int8s
from services.scheduler.core.cycle.cycle import (
    Cycle,
    Errored,
    Laps,
    Suggested,
    Unschedulable,
    filter_error,
    score_error,
)
from services.scheduler.core.cycle.extenders import PLUGIN, Extenders, Passed
from services.scheduler.core.cycle.host_choice import HostChoice, SampledChoice
from services.scheduler.core.framework.cached_attempt import Outlook, overridden_by, still_tried
from services.scheduler.core.framework.diagnosis import Diagnosis, Refusals, refused_by_filters
from services.scheduler.core.framework.equivalence_class import EQUAL_SCORE, Shape
from services.scheduler.core.framework.framework import Framework
from services.scheduler.core.preemption.preemptor import ExtenderError
from services.scheduler.core.status import Code, Status

ABSENT = Status(code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
"""What a node counts as that nothing was said of: no deletion cures it, and there is no reason."""
PHASE = "Extenders"
"""What the time that extenders take stands under."""


@dataclass(frozen=True, slots=True)
class _Raised:
    """A shape's totals with what extenders add, int64[nodes]."""

    shape: Shape
    added: Int64s

    def normalized_totals(self, refuser: Int8s) -> Int64s:
        return self.shape.normalized_totals(refuser) + self.added


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

    def _nominated_node(self, pod: Pod, shape: Shape, laps: Laps) -> Suggested | dict[int, Status]:
        """Try the nominated node; an extender's failure leaves it to the other nodes' turn."""
        found = super()._nominated_node(pod, shape, laps)
        if not isinstance(found, Suggested):
            return found
        passed = self.extenders.passed(pod, [self._snapshot.node(found.row)])
        laps.take(PHASE)
        if isinstance(passed, ExtenderError):
            self.extenders.note(passed)
            return {}
        return found if passed.nodes else self._by_row(passed.statuses)

    def _all_nodes(
        self, pod: Pod, attempt: int, outlook: Outlook, tried: dict[int, Status], laps: Laps
    ) -> Suggested | Unschedulable | Errored:
        if self.framework.weights and not self.extenders.judge(pod):
            return super()._all_nodes(pod, attempt, outlook, tried, laps)
        shape, overridden = outlook.shape, outlook.overridden
        fitting = overridden_by(shape.refuser, overridden)
        laps.take("Filter")
        message = filter_error(shape, fitting, overridden)
        if message:
            return Errored(message=message, phases_ns=laps.phases_ns)
        sample, looked_at = self._sampled(fitting, tried)
        nodes = self._nodes(sample)
        passed = self.extenders.passed(pod, nodes)
        laps.take(PHASE)
        if isinstance(passed, ExtenderError):
            return Errored(message=passed.message, phases_ns=laps.phases_ns)
        if not passed.nodes:
            diagnosis = self._diagnosis(pod, outlook, sample, tried, passed, looked_at)
            return Unschedulable(diagnosis=diagnosis, phases_ns=laps.phases_ns)
        left = self._left(sample, passed.nodes)
        message = score_error(shape, left)
        if message:
            return Errored(message=message, phases_ns=laps.phases_ns)
        evaluated = (looked_at or self._evaluated(shape, tried)) - _silent(nodes, passed)
        return self._chosen(pod, attempt, shape, left, passed.nodes, evaluated, laps)

    def _chosen(
        self,
        pod: Pod,
        attempt: int,
        shape: Shape,
        left: Int8s,
        nodes: Sequence[Node],
        evaluated: int,
        laps: Laps,
    ) -> Suggested:
        added = self._added(pod, nodes, left)
        inner = self._choice.inner if isinstance(self._choice, SampledChoice) else self._choice
        chosen = inner.choose(_Raised(shape, added), left, self._snapshot, pod.uid, attempt)
        if chosen.feasible > 1:
            laps.take("Score")
        return Suggested(
            node_name=self._snapshot.name(chosen.row),
            row=chosen.row,
            evaluated=evaluated,
            feasible=chosen.feasible,
            tied=chosen.tied,
            total=chosen.total if chosen.feasible > 1 else None,
            phases_ns=laps.phases_ns,
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
        """Return `refuser` with OVERRIDDEN where it spares a row that is none of `nodes`."""
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
        outlook: Outlook,
        sample: Int8s,
        tried: dict[int, Status],
        passed: Passed,
        looked_at: int,
    ) -> Diagnosis:
        """Return why no node is left; `sample` spares those that the extenders were asked about."""
        shape, overridden = outlook.shape, outlook.nominated_refusals(pod)
        if looked_at:
            overridden = {row: each for row, each in overridden.items() if sample[row] > 0}
        overridden |= still_tried(tried, sample)
        hidden = np.where(sample == 0, np.int8(OVERRIDDEN), sample)
        refuser = overridden_by(hidden, overridden)
        count = self._snapshot.node_count
        by_filters = refused_by_filters(shape, refuser, overridden, count)
        known = self._by_row(passed.statuses)
        return with_extenders(
            by_filters,
            said=known,
            strangers=[
                status
                for name, status in passed.statuses.items()
                if self._snapshot.row(name) is None
            ],
            asked=bool(np.any(sample == 0)),
            silent=shape.pre_filter.excluded if shape.pre_filter.node_names is not None else ABSENT,
            alive=self._snapshot.columns.alive,
        )


def _silent(asked: Sequence[Node], passed: Passed) -> int:
    """Return how many nodes were dropped without a word, which upstream does not count."""
    told = {node.name for node in passed.nodes} | passed.statuses.keys()
    return sum(node.name not in told for node in asked)


def with_extenders(
    diagnosis: Diagnosis,
    *,
    said: Mapping[int, Status],
    strangers: Sequence[Status],
    asked: bool,
    silent: Status,
    alive: Bools,
) -> Diagnosis:
    """Return `diagnosis` with the statuses that extenders gave, by row.

    What an extender says of a node replaces what a filter said of it. It may drop a node without a
    word, which counts as one that was never looked at, and it may name nodes that nobody knows,
    whose reasons are counted all the same.
    Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, findNodesThatFitPod,
    findNodesThatPassExtenders; pkg/scheduler/framework/types.go, NodeToStatus, FitError.Error.

    strangers: those of names that are no nodes. asked: whether there was any node to ask about,
    of which none is left; a nominated node that was asked about alone does not count. silent: the
    status of nodes without one. alive: bool[nodes].
    """
    group_of = diagnosis.group_of.copy()
    statuses = [group.status for group in diagnosis.groups]
    places: dict[Status, int] = {}

    def place(status: Status) -> int:
        if status not in places:
            places[status] = len(statuses)
            statuses.append(status)
        return places[status]

    for row, status in said.items():
        group_of[row] = place(status)
    left = alive & (group_of == NO_GROUP)
    if left.any():
        group_of[left] = place(silent)
    counts = np.bincount(group_of[group_of != NO_GROUP], minlength=len(statuses)).tolist()
    groups = [Refusals(status, n) for status, n in zip(statuses, counts, strict=True)]
    plugins = {*diagnosis.unschedulable_plugins} - {PLUGIN} | ({PLUGIN} if asked else set())
    return replace(
        diagnosis,
        groups=(*groups, *(Refusals(status, 1) for status in strangers)),
        group_of=group_of,
        unschedulable_plugins=tuple(sorted(plugins)),
        key=None,
        _codes=None,
    )
