"""The nodes that a cycle sends to its extenders: which are left, and what the extenders add.

Nodes are sent in the snapshot's order. An extender may refuse a node with a status, drop it without
one, and give reasons for nodes that the snapshot does not have.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, findNodesThatFitPod,
findNodesThatPassExtenders, prioritizeNodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from services.framework.columns.columns import Bools, Int64s
from services.framework.columns.kernels import NO_GROUP, OVERRIDDEN, Int8s
from services.framework.preemption.preemptor import ExtenderError
from services.framework.runtime.diagnosis import Diagnosis, StatusCount
from services.framework.runtime.verdicts import (
    EQUAL_SCORE,
    CachedAttempt,
    EquivalenceClass,
    overridden_by,
    still_tried,
)
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.node import Node
from services.kube.pod import Pod
from services.scheduler.core.cycle.extenders import EXTENDER_PLUGIN, Extenders, FilteredNodes

_ABSENT = Status(code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
"""The status of a node that was not evaluated: unresolvable, without a reason."""


@dataclass(frozen=True, slots=True)
class ScoredByExtenders:
    """The totals of an equivalence class with what extenders add, int64[nodes]."""

    equivalence: EquivalenceClass
    added: Int64s

    def normalized_totals(self, refuser: Int8s) -> Int64s:
        """Return the totals, int64[nodes], of the rows that `refuser` spares."""
        return self.equivalence.normalized_totals(refuser) + self.added


class SentNodes:
    """The nodes of one cycle that passed the filters; `filter` comes before all else.

    sample: int8[nodes], 0 for the nodes to send. left: the nodes that all extenders let pass.
    """

    def __init__(self, extenders: Extenders, snapshot: Snapshot, pod: Pod, sample: Int8s) -> None:
        self._extenders = extenders
        self._snapshot = snapshot
        self._pod = pod
        self._sample = sample
        listed = snapshot.rows_in_order()
        self._sent = [snapshot.node(row) for row in listed[sample[listed] == 0].tolist()]
        self._passed = FilteredNodes(nodes=(), statuses={})

    def filter(self) -> ExtenderError | None:
        """Call the extenders' Filter; return how one that may not fail did."""
        passed = self._extenders.filter(self._pod, self._sent)
        if isinstance(passed, ExtenderError):
            return passed
        self._passed = passed
        return None

    @property
    def left(self) -> Sequence[Node]:
        """Return the nodes that are left, in the order sent."""
        return self._passed.nodes

    def refuser(self) -> Int8s:
        """Return the sample with OVERRIDDEN where a node that was sent is not left."""
        refuser = np.where(self._sample == 0, np.int8(OVERRIDDEN), self._sample)
        refuser[self._rows()] = 0
        return refuser

    def unanswered(self) -> int:
        """Return how many nodes were dropped without a status, which upstream does not count."""
        answered = {node.name for node in self.left} | self._passed.statuses.keys()
        return sum(node.name not in answered for node in self._sent)

    def scored(
        self, equivalence: EquivalenceClass, *, any_plugin_scores: bool
    ) -> ScoredByExtenders:
        """Call the extenders' Prioritize for the nodes left; a single node is not scored.

        Where no plugin scores, nodes are worth 0, not the 1 that they are without extenders.
        """
        added: Int64s = np.zeros(len(self._sample), dtype=np.int64)
        if len(self.left) > 1:
            if not any_plugin_scores:
                added -= EQUAL_SCORE
            scores = self._extenders.scores(self._pod, self.left)
            for node, row in zip(self.left, self._rows(), strict=True):
                added[row] += scores.get(node.name, 0)
        return ScoredByExtenders(equivalence, added)

    def diagnosis(
        self, cached: CachedAttempt, tried: dict[int, Status], *, is_sample: bool
    ) -> Diagnosis:
        """Return why no node is left; tried: the nominated node's refusal, by row.

        is_sample: whether sampling has left out nodes, which are not diagnosed then.
        """
        sample, statuses = self._sample, self._passed.statuses
        equivalence, overridden = cached.equivalence, cached.nominated_refusals(self._pod)
        if is_sample:
            overridden = {row: each for row, each in overridden.items() if sample[row] > 0}
        overridden |= still_tried(tried, sample)
        hidden = np.where(sample == 0, np.int8(OVERRIDDEN), sample)
        by_filters = equivalence.diagnosis(overridden_by(hidden, overridden), overridden)
        names_nodes = equivalence.pre_filter.node_names is not None
        return with_extenders(
            by_filters,
            by_row=self._extenders.by_row(statuses),
            unknown_nodes=[
                status for name, status in statuses.items() if self._snapshot.row(name) is None
            ],
            any_sent=bool(self._sent),
            silent=equivalence.pre_filter.excluded if names_nodes else _ABSENT,
            alive=self._snapshot.columns.alive,
        )

    def _rows(self) -> list[int]:
        rows = [self._snapshot.row(node.name) for node in self.left]
        return [row for row in rows if row is not None]


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
