"""A failed cycle as the preemptor reads it, and the batch dry run of all its nodes at once.

SnapshotFailedCycle implements `preemption.outcome.FailedCycle` over a diagnosis and the snapshot
that the pod was tried on. BatchDryRun judges a preemption on every node in compiled code where
resources and bounds alone decide. Its results are kept with the CachedAttempt of the pod's
equivalence class, and only the rows that an attempt evaluates again are dry-run again. Where a
filter reads pods in another way, or refuses a node on which deleting pods might help, there is no
batch, and the preemptor tries one node after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from services.kube.pod import Pod
from services.kube.workloads import PodDisruptionBudget
from services.scheduler.core.columns.columns import Bools, Int64s
from services.scheduler.core.framework.cached_attempt import CachedAttempt, NodeDryRun
from services.scheduler.core.framework.cached_columns import FilterColumn
from services.scheduler.core.framework.diagnosis import Diagnosis
from services.scheduler.core.framework.framework import Framework
from services.scheduler.core.plugin_api.plugin import Bounds
from services.scheduler.core.plugins.node_resources import WantedResources
from services.scheduler.core.preemption import reprieve
from services.scheduler.core.preemption.batch_dry_run import BatchDryRunResult
from services.scheduler.core.preemption.budgets import BudgetCover
from services.scheduler.core.preemption.rules import PreemptionRules
from services.scheduler.core.preemption.victims import NO_VICTIMS_FOUND, DryRun
from services.scheduler.core.snapshot.node_pods import NodePods
from services.scheduler.core.snapshot.snapshot import Snapshot
from services.scheduler.core.status import Code, Status


class SnapshotFailedCycle:
    """The cycle of one pod under one framework, whose snapshot must not change meanwhile.

    Without a `batch_dry_run`, nodes are tried one by one. `cached` is the pod's cached attempt,
    looked up where it is None.
    """

    def __init__(
        self,
        pod: Pod,
        framework: Framework,
        diagnosis: Diagnosis,
        batch_dry_run: BatchDryRun | None = None,
        cached: CachedAttempt | None = None,
    ) -> None:
        self._snapshot = framework.snapshot
        self._pod = pod
        self._diagnosis = diagnosis
        self._batch_dry_run = batch_dry_run
        self._cached = framework.cached_attempt(pod) if cached is None else cached
        self._batch: BatchDryRunResult | None = None
        self._batch_done = False

    def prepared(self, plugin: str) -> bool:
        """Return whether a plugin's PreFilter ran, or an earlier one had refused the pod before."""
        return plugin in self._cached.equivalence.pre_filter_ran

    def node_count(self) -> int:
        """Return how many nodes the snapshot has."""
        return self._snapshot.node_count

    def has_node(self, node: str) -> bool:
        """Return whether the snapshot has the node."""
        return self._snapshot.row(node) is not None

    def code(self, node: str) -> Code:
        """Return how the filters refused the pod on `node`."""
        row = self._snapshot.row(node)
        if row is None:
            return Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return self._diagnosis.status(row).code

    def potential_nodes(self) -> Sequence[str]:
        """Return the nodes refused with UNSCHEDULABLE, in the snapshot's order."""
        return [self._snapshot.name(row) for row in self._potential_rows().tolist()]

    def batch_dry_run(self, now_ns: int) -> BatchDryRunResult | None:
        """Dry-run all potential nodes at once, None where they have to be tried one by one."""
        if self._batch_dry_run is not None and not self._batch_done:
            self._batch_done = True
            self._batch = self._batch_dry_run.batch_dry_run(
                self._pod, self._cached, self._diagnosis, now_ns
            )
        return self._batch

    def pods_on(self, node: str) -> Sequence[Pod]:
        """Return the node's assigned and assumed pods; none for an unknown node."""
        row = self._snapshot.row(node)
        return () if row is None else self._snapshot.pods_on(row)

    def nominated_on(self, node: str) -> Sequence[Pod]:
        """Return the pods nominated to the node, in the order of their nomination."""
        return self._snapshot.nominations.on(node)

    def budgets(self) -> Sequence[PodDisruptionBudget]:
        """Return every disruption budget, with its status as last received."""
        return tuple(self._snapshot.budgets.values())

    def dry_run(self, node: str) -> DryRun:
        """Begin a dry run of the pod on `node`."""
        row = self._snapshot.row(node)
        assert row is not None, f"{node} is not in the snapshot"
        if self._diagnosis.pre_filter is not None:  # so that no filter has run
            self._cached.equivalence.sync()
        return NodeDryRun(self._pod, row, self._cached.equivalence, self._snapshot)

    def _potential_rows(self) -> Int64s:
        listed = self._snapshot.rows_in_order()
        return listed[self._diagnosis.refused_with(Code.UNSCHEDULABLE, listed)]


_NO_ROWS: Int64s = np.zeros(0, dtype=np.int64)
_NO_BOUNDS: Int64s = np.zeros((1, 0), dtype=np.int64)
_NO_CRITERIA: Int64s = np.zeros((0, 5), dtype=np.int64)


class _Together(NamedTuple):
    """The bounds of all filters: int64[rows, bounds] and int64[classes, bounds].

    As `spares` and `weights` in `reprieve`.
    """

    room: Int64s
    weights: Int64s


class _Opened(NamedTuple):
    """Rows without the pods below the pending one; the arrays are as in `reprieve`."""

    rows: Int64s
    resources: Int64s
    weights: Int64s
    first: Int64s
    room: Int64s
    spares: Int64s
    codes: Int64s


_NOTHING_OPENED = _Opened(*[_NO_ROWS] * 7)


class BatchDryRun:
    """Dry-runs preemptions on all nodes of a snapshot; keeps the pods' columns between runs."""

    def __init__(self, snapshot: Snapshot, rules: PreemptionRules) -> None:
        self._snapshot = snapshot
        self._rules = rules
        self._node_pods = NodePods(snapshot)
        self._cover = BudgetCover(snapshot, self._node_pods, rules.budgets)

    def batch_dry_run(
        self, pod: Pod, cached: CachedAttempt, diagnosis: Diagnosis, now_ns: int
    ) -> BatchDryRunResult | None:
        """Judge a preemption on each node; None where more than resources and bounds decides.

        `cached` is the pod's, `diagnosis` that of its failed cycle. `now_ns` stands for a start
        that is missing.
        """
        runs = cached.dry_runs
        try:
            done = self._follow(pod, cached, diagnosis, now_ns)
        except Exception:
            runs.reader.forget()
            raise
        if not done:
            runs.reader.forget()
            return None
        rows, criteria = _NO_ROWS, _NO_CRITERIA
        if reprieve.CANDIDATE in runs.answers():
            listed = self._snapshot.rows_in_order()
            rows = listed[runs.codes[listed] == reprieve.CANDIDATE]
            criteria = runs.criteria[rows]
        return BatchDryRunResult(
            rows=rows,
            criteria=criteria,
            counted=runs.answers(),
            status=partial(_status, cached.equivalence.pod_filters[0][1], runs.bounding),
            name=self._snapshot.name,
            key=runs.key,
        )

    def _follow(self, pod: Pod, cached: CachedAttempt, diagnosis: Diagnosis, now_ns: int) -> bool:
        """Try the rows that must be evaluated again; False where `run` returns None."""
        if diagnosis.pre_filter is not None:
            return False
        runs, columns = cached.dry_runs, self._snapshot.columns
        rows = runs.reader.changed(cached.mark, cached.own_rows)
        if rows is None:
            runs.begin(columns.capacity)
            rows = columns.rows
        curable = diagnosis.refused_with(Code.UNSCHEDULABLE, rows)
        opened = self._open(pod, cached, rows[curable])
        if opened is None:
            return False
        runs.put(opened.rows, opened.codes)
        if len(opened.rows) < len(rows):
            others = rows[~curable]
            codes = np.empty(len(others), dtype=np.int64)
            codes.fill(reprieve.NOT_TRIED)
            runs.put(others, codes)
        return reprieve.CANDIDATE not in runs.answers() or self._judge(pod, cached, now_ns)

    def _judge(self, pod: Pod, cached: CachedAttempt, now_ns: int) -> bool:
        """Find the victims on the candidates; False where a candidate has none but needs some."""
        runs, epoch = cached.dry_runs, self._snapshot.budget_epoch
        if runs.budget_epoch != epoch:
            runs.budget_epoch = epoch
            runs.judged[:] = False
        self._cover.sync()
        rows = np.flatnonzero((runs.codes == reprieve.CANDIDATE) & ~runs.judged)
        if not len(rows):
            return True
        opened = self._open(pod, cached, rows)
        assert opened is not None, "these rows were tried before"
        runs.criteria[rows], runs.judged[rows] = found = self._judged(opened, now_ns)
        return not self._rules.needs_victims or bool(found[0][:, reprieve.VICTIMS].all())

    def _open(self, pod: Pod, cached: CachedAttempt, rows: Int64s) -> _Opened | None:
        """Take the pods of lower priority off `rows`; None where more than bounds decides."""
        bounded = cached.equivalence.bounded(rows)
        if bounded is None or not len(rows):
            return None if bounded is None else _NOTHING_OPENED
        bounds = self._bounds(cached, rows, bounded)
        self._node_pods.sync()
        node_pods, columns = self._node_pods, self._snapshot.columns
        wanted: WantedResources = cached.equivalence.pod_filters[0][1].pre.data
        room = self._held(cached, wanted, rows)
        first = np.empty(len(rows), dtype=np.int64)
        codes = np.empty(len(rows), dtype=np.int64)
        reprieve.make_room(
            *(rows, -pod.priority, self._rules.needs_victims, wanted.columns, wanted.amounts),
            *(columns.allocatable, columns.requested, columns.pod_count, columns.pods_max),
            *(node_pods.count, node_pods.table, node_pods.amounts, bounds.weights),
            *(first, room, bounds.room, codes),
        )
        return _Opened(rows, wanted.columns, bounds.weights, first, room, bounds.room, codes)

    def _bounds(
        self, cached: CachedAttempt, rows: Int64s, bounded: Sequence[tuple[FilterColumn, Bounds]]
    ) -> _Together:
        """Return the bounds side by side, with the nominated pods that count on their nodes.

        Bounds that require pods are repeated without the nominated ones, which may never arrive.
        """
        if not bounded:
            return _Together(np.zeros((len(rows), 0), dtype=np.int64), _NO_BOUNDS)
        broken_by = [(column, each.code) for column, bounds in bounded for each in bounds.each]
        counted_by = [each.weights for _, bounds in bounded for each in bounds.each]
        requires = np.array([each.asks_for for _, bounds in bounded for each in bounds.each])
        again = [each for each, more in zip(broken_by, requires, strict=True) if more]
        cached.dry_runs.bounding = (*broken_by, *again)
        signs = np.where(requires, -1, 1)
        room = np.hstack([each.room for _, each in bounded])
        counted = np.hstack([each.counted for _, each in bounded])
        alone = room[:, requires]
        pod_classes = self._snapshot.pod_classes
        for place, row in enumerate(rows.tolist()) if cached.counted else ():
            for each in cached.counted.get(row, ()):
                taken = [weights.of(pod_classes.class_of(each)) for weights in counted_by]
                room[place] -= np.where(counted[place], taken * signs, 0)
        for weights in counted_by:
            weights.sync()
        number = len(pod_classes.classes)
        table = np.stack([weights.weights[:number] for weights in counted_by], axis=1) * signs
        if cached.counted and requires.any():
            room = np.hstack([room, alone])
            counted = np.hstack([counted, counted[:, requires]])
            table = np.hstack([table, table[:, requires]])
        free = np.where(room < 0, -reprieve.UNBOUNDED, reprieve.UNBOUNDED)
        spares = np.ascontiguousarray(np.where(counted, room, free))
        return _Together(spares, np.ascontiguousarray(table))

    def _judged(self, opened: _Opened, now_ns: int) -> tuple[Int64s, Bools]:
        """Return the criteria of rows whose pods of lower priority were taken off, and `lasts`."""
        node_pods, cover, rules = self._node_pods, self._cover, self._rules
        rows, first = opened.rows, opened.first
        pods = (node_pods.count, node_pods.table)
        order = np.empty((len(rows), node_pods.table.shape[1]), dtype=np.int64)
        violates, victims = np.zeros((2, *order.shape), dtype=np.bool_)
        reprieve.put_in_order(rows, now_ns, *pods, first, order)
        if len(cover.allowed):
            budgets = (cover.allowed, cover.offsets, cover.covering)
            uses_up = rules.budgets.uses_up
            reprieve.mark_violating(rows, uses_up, *pods, first, order, *budgets, violates)
        reprieve.bring_back(
            *(rows, opened.resources, *pods, node_pods.amounts, opened.weights, first, order),
            *(violates, opened.room, opened.spares, victims),
        )
        criteria = np.zeros((len(rows), 5), dtype=np.int64)
        lasts = np.empty(len(rows), dtype=np.bool_)
        reprieve.judge(
            *(rows, now_ns, rules.sorts_victims, *pods, first, order, violates, victims),
            *(criteria, lasts),
        )
        return criteria, lasts

    def _held(self, cached: CachedAttempt, wanted: WantedResources, rows: Int64s) -> Int64s:
        """Return what has to be left to nominated pods, as `room` in `reprieve` below 0."""
        room = np.zeros((len(rows), len(wanted.columns) + 1), dtype=np.int64)
        for place, row in enumerate(rows.tolist()) if cached.counted else ():
            for each in cached.counted.get(row, ()):
                room[place, 0] -= 1
                room[place, 1:] -= self._snapshot.load(each.spec).amounts[wanted.columns]
        return room


def _status(fit: FilterColumn, bounding: Sequence[tuple[FilterColumn, int]], code: int) -> Status:
    if code == reprieve.NOTHING_BELOW:
        return NO_VICTIMS_FOUND
    if code <= reprieve.FIRST_BOUND:
        column, answer = bounding[reprieve.FIRST_BOUND - code]
        return column.status(answer)
    return fit.status(code)
