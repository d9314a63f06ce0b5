"""The batch dry run: a preemption on all nodes of a snapshot at once, by compiled kernels.

It decides where resources and filters with bounds (pod affinity, topology spread) decide alone. A
failed cycle is tried one node after the other where a PreFilter refused the pod, where another
filter that pods on a node can change is active (such as NodePorts), where a node's filter refuses
with UNSCHEDULABLE, and where a candidate would need no victim. Extenders switch it off, too.

What is kept: each node's pods, sorted by importance, so that victims are a row's tail; budgets by
groups of pods that share namespace and labels; and the results by row for each pod equivalence
class (`CachedDryRuns`), of which only changed rows are tried again.

A batch holds the criteria of each candidate and not its victims: those are found for the picked
node alone. With minCandidateNodes only some of the nodes are tried. Upstream starts at a random
one; here the tie-break of the attempt chooses it. Which candidates upstream finds first, when it
tries several nodes in parallel, is chance; here it is those in order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from services.framework.columns import kernels
from services.framework.columns.columns import Bools, Int64s, LogReader
from services.framework.preemption import batch_kernels
from services.framework.preemption.budgets import BudgetCover
from services.framework.preemption.candidates import NO_VICTIMS_FOUND, VICTIMS, VIOLATIONS, TieBreak
from services.framework.preemption.rules import PreemptionRules
from services.framework.snapshot.node_pods import NodePods
from services.framework.snapshot.pod_classes import ClassWeights
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Status
from services.kube.pod import Pod
from services.kube.value import value

_NO_ROWS: Int64s = np.zeros(0, dtype=np.int64)
_NO_BOUNDS: Int64s = np.zeros((1, 0), dtype=np.int64)
_NO_CRITERIA: Int64s = np.zeros((0, 5), dtype=np.int64)


class Bound(NamedTuple):
    """The number of pods of certain classes that a filter admits at most, or requires at least.

    `weights` are what a pod of each class counts (`snapshot.class_counts.weights`), `code` is the
    filter's code where the bound is broken. `asks_for`: at least so many are required.
    """

    weights: ClassWeights
    code: int
    asks_for: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds that a filter puts on the number of pods of certain classes, by row.

    room: int64[rows, bounds], how many more each bound admits beside the pending pod, which fits
    where none is below 0; of one that `asks_for` pods, how many fewer. counted: bool[rows, bounds],
    whether a row's pods count. `bounds` are in the order in which the filter checks them: it
    returns the code of the first one broken.
    """

    room: Int64s
    counted: Bools
    bounds: Sequence[Bound]


class Filter(Protocol):
    """A filter that may refuse rows."""

    def status(self, code: int) -> Status:
        """Return the status of a code other than 0."""


class WantedAmounts(Protocol):
    """The requests of a pod: int64 amounts, and the columns of these resources."""

    @property
    def columns(self) -> Int64s:
        """Return the columns."""

    @property
    def amounts(self) -> Int64s:
        """Return the amounts."""


class TriedPod(Protocol):
    """A pod that fits nowhere, with the verdicts about its equivalence class."""

    @property
    def dry_runs(self) -> CachedDryRuns:
        """Return the results that equivalent pods share."""

    @property
    def fit(self) -> Filter:
        """Return the filter of resources, where `bounded` returns the others."""

    @property
    def wanted(self) -> WantedAmounts:
        """Return the requests that the filter of resources checks."""

    @property
    def counted(self) -> Mapping[int, Sequence[Pod]]:
        """Return the nominated pods to reserve room for, by row."""

    @property
    def dry_runs_version(self) -> Hashable:
        """Return a version that differs if dry runs may differ in rows that no log names."""

    @property
    def pods_rows(self) -> Sequence[int]:
        """Return the rows that the pod sees in another way than others of its class do."""

    def bounded(self, rows: Int64s) -> Sequence[tuple[Filter, Bounds]] | None:
        """Return the filters after that of resources that may refuse `rows`, all by bounds.

        None where some filter does it otherwise or comes before, whatever pods may leave or come.
        """


_FEW = 16


class CachedDryRuns:
    """The results of a BatchDryRun by row, for pods of one equivalence class.

    codes: int64[nodes], as in `batch_kernels`, NOT_TRIED where no deletion can help. counted: the
    number of rows by code, None where it must be counted; `key` is the same for the rows that were
    tried. criteria: int64[nodes, 5] of the candidates that are `judged` (bool[nodes]) for the
    budgets as of `budget_changes`. bounding: the filter and its code for each bound that may be
    broken.
    """

    __slots__ = (
        "bounding",
        "budget_changes",
        "codes",
        "counted",
        "criteria",
        "judged",
        "key",
        "reader",
    )

    def __init__(self, snapshot: Snapshot) -> None:
        self.reader = LogReader(snapshot.row_log)
        self.budget_changes = -1
        self.bounding: Sequence[tuple[Filter, int]] = ()
        self.begin(0)

    def begin(self, capacity: int) -> None:
        """Begin with no row tried."""
        self.codes: Int64s = np.full(capacity, batch_kernels.NOT_TRIED, dtype=np.int64)
        self.criteria: Int64s = np.zeros((capacity, 5), dtype=np.int64)
        self.judged: Bools = np.zeros(capacity, dtype=np.bool_)
        self.counted: dict[int, int] | None = None
        self.key: Hashable = None

    def put(self, rows: Int64s, codes: Int64s) -> None:
        """Put the codes of `rows`, some maybe twice; their criteria must be computed again."""
        if self.counted is not None and len(rows) <= _FEW:
            for row, code in zip(rows.tolist(), codes.tolist(), strict=True):
                self._put(self.counted, row, code)
        else:
            self.counted, self.codes[rows] = None, codes
        self.judged[rows] = False

    def _put(self, counted: dict[int, int], row: int, code: int) -> None:
        before = int(self.codes[row])
        if before == code:
            return
        self.codes[row] = code
        self.key = None
        for changed, sign in ((before, -1), (code, 1)):
            counted[changed] = counted.get(changed, 0) + sign
            if not counted[changed]:
                del counted[changed]

    def answers(self) -> dict[int, int]:
        """Return each code with its number of rows, and update `key`."""
        counted = self.counted
        if counted is None:
            table = np.empty((len(self.codes), 2), dtype=np.int64)
            counted = dict(table[: kernels.count_codes(self.codes, table)].tolist())
            self.counted, self.key = counted, None
        if self.key is None:
            self.key = tuple(
                sorted(item for item in counted.items() if item[0] != batch_kernels.NOT_TRIED)
            )
        return counted


class _AllBounds(NamedTuple):
    """The bounds of all filters: int64[rows, bounds] and int64[classes, bounds].

    As `spares` and `weights` in `batch_kernels`.
    """

    room: Int64s
    weights: Int64s


class _EmptiedRows(NamedTuple):
    """Rows without the pods below the pending one; the arrays are as in `batch_kernels`."""

    rows: Int64s
    resources: Int64s
    weights: Int64s
    first: Int64s
    room: Int64s
    spares: Int64s
    codes: Int64s


_NO_ROWS_EMPTIED = _EmptiedRows(*[_NO_ROWS] * 7)


class BatchDryRun:
    """Dry-runs preemptions on all nodes of a snapshot; keeps the pods' columns between runs."""

    def __init__(self, snapshot: Snapshot, rules: PreemptionRules) -> None:
        self._snapshot = snapshot
        self._rules = rules
        self._node_pods = NodePods(snapshot)
        self._cover = BudgetCover(snapshot, self._node_pods, rules.budgets)

    def run(
        self, pod: Pod, verdicts: TriedPod, resolvable: Callable[[Int64s], Bools], now_ns: int
    ) -> BatchDryRunResult | None:
        """Judge a preemption on each node; None where more than resources and bounds decides.

        `verdicts` is the pod's. `resolvable` returns on which of some rows deleting pods may help,
        bool[rows]: where a filter refused with UNSCHEDULABLE. `now_ns` stands for a missing start.
        """
        runs = verdicts.dry_runs
        try:
            done = self._follow(pod, verdicts, resolvable, now_ns)
        except Exception:
            runs.reader.forget()
            raise
        if not done:
            runs.reader.forget()
            return None
        rows, criteria = _NO_ROWS, _NO_CRITERIA
        if batch_kernels.CANDIDATE in runs.answers():
            listed = self._snapshot.rows_in_order()
            rows = listed[runs.codes[listed] == batch_kernels.CANDIDATE]
            criteria = runs.criteria[rows]
        return BatchDryRunResult(
            rows=rows,
            criteria=criteria,
            counted=runs.answers(),
            status=partial(_status, verdicts.fit, runs.bounding),
            name=self._snapshot.name,
            key=runs.key,
        )

    def _follow(
        self, pod: Pod, verdicts: TriedPod, resolvable: Callable[[Int64s], Bools], now_ns: int
    ) -> bool:
        """Try the stale rows; False where `run` returns None."""
        runs, columns = verdicts.dry_runs, self._snapshot.columns
        rows = runs.reader.changed(verdicts.dry_runs_version, verdicts.pods_rows)
        if rows is None:
            runs.begin(columns.capacity)
            rows = columns.rows
        may_help = resolvable(rows)
        emptied = self._emptied(pod, verdicts, rows[may_help])
        if emptied is None:
            return False
        runs.put(emptied.rows, emptied.codes)
        if len(emptied.rows) < len(rows):
            others = rows[~may_help]
            codes = np.empty(len(others), dtype=np.int64)
            codes.fill(batch_kernels.NOT_TRIED)
            runs.put(others, codes)
        return batch_kernels.CANDIDATE not in runs.answers() or self._judge(pod, verdicts, now_ns)

    def _judge(self, pod: Pod, verdicts: TriedPod, now_ns: int) -> bool:
        """Find the victims on the candidates; False where a candidate has none but needs some."""
        runs, changes = verdicts.dry_runs, self._snapshot.budget_changes
        if runs.budget_changes != changes:
            runs.budget_changes = changes
            runs.judged[:] = False
        self._cover.sync()
        rows = np.flatnonzero((runs.codes == batch_kernels.CANDIDATE) & ~runs.judged)
        if not len(rows):
            return True
        emptied = self._emptied(pod, verdicts, rows)
        assert emptied is not None, "these rows were tried before"
        runs.criteria[rows], runs.judged[rows] = found = self._judged(emptied, now_ns)
        return not self._rules.needs_victims or bool(found[0][:, VICTIMS].all())

    def _emptied(self, pod: Pod, verdicts: TriedPod, rows: Int64s) -> _EmptiedRows | None:
        """Remove the pods of lower priority from `rows`; None if more than bounds decides."""
        bounded = verdicts.bounded(rows)
        if bounded is None or not len(rows):
            return None if bounded is None else _NO_ROWS_EMPTIED
        bounds = self._bounds(verdicts, rows, bounded)
        self._node_pods.sync()
        node_pods, columns = self._node_pods, self._snapshot.columns
        requests: WantedAmounts = verdicts.wanted
        room = self._held(verdicts, requests, rows)
        first = np.empty(len(rows), dtype=np.int64)
        codes = np.empty(len(rows), dtype=np.int64)
        batch_kernels.make_room(
            *(rows, -pod.priority, self._rules.needs_victims, requests.columns, requests.amounts),
            *(columns.allocatable, columns.requested, columns.pod_count, columns.pods_max),
            *(node_pods.count, node_pods.table, node_pods.amounts, bounds.weights),
            *(first, room, bounds.room, codes),
        )
        return _EmptiedRows(rows, requests.columns, bounds.weights, first, room, bounds.room, codes)

    def _bounds(
        self, verdicts: TriedPod, rows: Int64s, bounded: Sequence[tuple[Filter, Bounds]]
    ) -> _AllBounds:
        """Return the bounds side by side, with the nominated pods that count on their nodes.

        Bounds that require pods are repeated without the nominated ones, which may never arrive.
        """
        if not bounded:
            return _AllBounds(np.zeros((len(rows), 0), dtype=np.int64), _NO_BOUNDS)
        broken_by = [(column, bound.code) for column, bounds in bounded for bound in bounds.bounds]
        counted_by = [bound.weights for _, bounds in bounded for bound in bounds.bounds]
        requires = np.array([bound.asks_for for _, bounds in bounded for bound in bounds.bounds])
        again = [bound for bound, more in zip(broken_by, requires, strict=True) if more]
        verdicts.dry_runs.bounding = (*broken_by, *again)
        signs = np.where(requires, -1, 1)
        room = np.hstack([bounds.room for _, bounds in bounded])
        counted = np.hstack([bounds.counted for _, bounds in bounded])
        alone = room[:, requires]
        pod_classes = self._snapshot.pod_classes
        for place, row in enumerate(rows.tolist()) if verdicts.counted else ():
            for nominated in verdicts.counted.get(row, ()):
                taken = [weights.of(pod_classes.class_of(nominated)) for weights in counted_by]
                room[place] -= np.where(counted[place], taken * signs, 0)
        for weights in counted_by:
            weights.sync()
        number = len(pod_classes.classes)
        table = np.stack([weights.weights[:number] for weights in counted_by], axis=1) * signs
        if verdicts.counted and requires.any():
            room = np.hstack([room, alone])
            counted = np.hstack([counted, counted[:, requires]])
            table = np.hstack([table, table[:, requires]])
        free = np.where(room < 0, -batch_kernels.UNBOUNDED, batch_kernels.UNBOUNDED)
        spares = np.ascontiguousarray(np.where(counted, room, free))
        return _AllBounds(spares, np.ascontiguousarray(table))

    def _judged(self, emptied: _EmptiedRows, now_ns: int) -> tuple[Int64s, Bools]:
        """Return the criteria of rows whose pods of lower priority were removed, and `lasts`."""
        node_pods, cover, rules = self._node_pods, self._cover, self._rules
        rows, first = emptied.rows, emptied.first
        pods = (node_pods.count, node_pods.table)
        order = np.empty((len(rows), node_pods.table.shape[1]), dtype=np.int64)
        violates, victims = np.zeros((2, *order.shape), dtype=np.bool_)
        batch_kernels.put_in_order(rows, now_ns, *pods, first, order)
        if len(cover.allowed):
            budgets = (cover.allowed, cover.offsets, cover.covering)
            uses_up = rules.budgets.uses_up
            batch_kernels.mark_violating(rows, uses_up, *pods, first, order, *budgets, violates)
        batch_kernels.bring_back(
            *(rows, emptied.resources, *pods, node_pods.amounts, emptied.weights, first, order),
            *(violates, emptied.room, emptied.spares, victims),
        )
        criteria = np.zeros((len(rows), 5), dtype=np.int64)
        lasts = np.empty(len(rows), dtype=np.bool_)
        batch_kernels.judge(
            *(rows, now_ns, rules.sorts_victims, *pods, first, order, violates, victims),
            *(criteria, lasts),
        )
        return criteria, lasts

    def _held(self, verdicts: TriedPod, requests: WantedAmounts, rows: Int64s) -> Int64s:
        """Return the amounts reserved for nominated pods, as `room` below 0 in `batch_kernels`."""
        room = np.zeros((len(rows), len(requests.columns) + 1), dtype=np.int64)
        for place, row in enumerate(rows.tolist()) if verdicts.counted else ():
            for nominated in verdicts.counted.get(row, ()):
                room[place, 0] -= 1
                room[place, 1:] -= self._snapshot.load(nominated.spec).amounts[requests.columns]
        return room


def _status(fit: Filter, bounding: Sequence[tuple[Filter, int]], code: int) -> Status:
    if code == batch_kernels.NOTHING_BELOW:
        return NO_VICTIMS_FOUND
    if code <= batch_kernels.FIRST_BOUND:
        column, answer = bounding[batch_kernels.FIRST_BOUND - code]
        return column.status(answer)
    return fit.status(code)


@value(kw_only=True)
class BatchDryRunResult:
    """The results of the dry runs.

    rows: int64[candidates] in the nodes' order, which `name` turns into their names.
    criteria: int64[candidates, 5], as `pick_one_node` reads them. `counted` has the number of
    rows for each code of `batch_kernels`; `status` turns a code into a refusal. Results of one
    equivalence class have the same message where their `key` is the same.
    """

    rows: Int64s
    criteria: Int64s
    counted: Mapping[int, int]
    status: Callable[[int], Status]
    name: Callable[[int], str]
    key: Hashable

    @property
    def refusals(self) -> Sequence[tuple[Status, int]]:
        """Return the other nodes' refusals with the number of nodes."""
        return [
            (self.status(code), count)
            for code, count in self.counted.items()
            if code not in {batch_kernels.CANDIDATE, batch_kernels.NOT_TRIED}
        ]

    def names(self, places: Int64s) -> tuple[str, ...]:
        """Return the names of the candidates at these places."""
        return tuple(self.name(row) for row in self.rows[places].tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSampling:
    """The number of candidates to find: `percentage` (0 to 100) of the nodes, at least `absolute`.

    One of them at least must spare all budgets; without any such, all nodes are tried.
    Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go,
    GetOffsetAndNumCandidates, calculateNumCandidates.
    """

    percentage: int = 10
    absolute: int = 100

    def enough(self, nodes: int) -> int:
        """Return how many candidates are enough for that number of nodes."""
        return min(max(nodes * self.percentage // 100, self.absolute), nodes)

    def first(self, nodes: Sequence[str], tie_break: TieBreak) -> int:
        """Return the place of the node to begin with."""
        return nodes.index(tie_break(nodes)) if nodes else 0

    def narrowed(
        self, batch: BatchDryRunResult, nodes: Sequence[str], tie_break: TieBreak
    ) -> BatchDryRunResult:
        """Return the part of the results that a search through `nodes` finds."""
        begin, enough = self.first(nodes, tie_break), self.enough(len(nodes))
        place = {name: number for number, name in enumerate(nodes)}
        names = batch.names(np.arange(len(batch.rows)))
        turns = np.array([(place[name] - begin) % len(nodes) for name in names], dtype=np.int64)
        order = np.argsort(turns)
        non_violating = batch.criteria[order, VIOLATIONS] == 0
        tried = max(enough, int(non_violating.argmax()) + 1) if non_violating.any() else len(order)
        order, non_violating = order[:tried], non_violating[:tried]
        kept = np.concatenate([order[non_violating][:enough], order[~non_violating][:enough]])
        return replace(batch, rows=batch.rows[kept], criteria=batch.criteria[kept])
