"""All verdicts about an equivalence class of pods: what is kept by row, and what makes it stale.

Pods with one spec and one spec.nodeName are equivalent, if they also have the same keys for the
plugins whose keys follow from more (`Plugin.keys_follow_pod`). For each class is kept:

- **what refuses each row, and its totals** (`EquivalenceClass`), merged from its plugins' columns
  (`plugin_columns.py`, where the words position, version and epoch are explained). When pods come
  and go, the rows that the log names are merged again; when a node changes, or a plugin's column in
  rows that no log names, all rows are;
- **what nominated pods change** (`CachedAttempt`): they count beside the pods on a row, so that a
  row may refuse the class for their sake;
- **whether deleting pods would help** on each row (`CachedDryRuns`), and the latest refusals with
  their texts. Both follow from the row, from what the filters read of the whole cluster
  (`EquivalenceClass.epoch`) and from objects by name.

So an attempt evaluates the rows that changed since the last attempt of its class, and the rows to
which its own pod is nominated; the next attempt evaluates those again, too. With an out-of-tree
plugin, or a filter that may fail, results of attempts are not kept: each attempt evaluates all rows
that have nominated pods, and a preemption tries all its rows again. The plugins' columns stay.

A single node is evaluated by NodeDryRun over the kept verdicts. It runs only the filters that pods
can change, in plain Python, since calling a kernel for one node costs more than it computes.

Source: kubernetes v1.34 framework/runtime/framework.go, RunFilterPluginsWithNominatedPods.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from services.framework.columns import kernels
from services.framework.columns.columns import Bools, Int64s, LogReader
from services.framework.columns.kernels import OVERRIDDEN, Int8s, Int32s
from services.framework.plugin import (
    Bounds,
    ClusterFilterPlugin,
    Normalization,
    PodColumnsPlugin,
    Scope,
    Trial,
)
from services.framework.preemption.batch_kernels import NOT_TRIED
from services.framework.runtime.active_plugins import (
    ConfiguredPlugins,
    active_filters,
    active_scores,
)
from services.framework.runtime.diagnosis import (
    Diagnosis,
    Refused,
    StatusCount,
    plugins_named,
    rejecting_plugins,
)
from services.framework.runtime.plugin_columns import FilterColumn, PluginColumns, ScoreColumn
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.pod import Pod

NO_NODE = -1
EXCLUDED = -2
"""Negative refusers: the row is not a node; PreFilter excluded it."""

EQUAL_SCORE = 1
"""What every node is worth where no score plugin is configured.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, prioritizeNodes; v1.16 EqualPriorityMap.
"""


class _Refusers:
    """Filters that follow from the same scope, merged into a column of refusers and their codes."""

    __slots__ = ("_filters",)

    def __init__(self, filters: Sequence[tuple[int, FilterColumn]]) -> None:
        self._filters = filters

    def merge(
        self, rows: Int64s, before: tuple[Int8s, Int64s], refuser: Int8s, codes: Int64s
    ) -> bool:
        """Write the refusers of `rows`, for those that no filter refused `before`.

        Return False where none of them changed.
        """
        if not self._filters:
            refuser[rows], codes[rows] = before[0][rows], before[1][rows]
            return True
        changed = False
        for number, column in self._filters:
            column.sync()
            changed |= kernels.refuse(rows, column.values, number, *before, refuser, codes)
            before = refuser, codes
        return changed


class _Epochs:
    """Reports whether columns have changed in rows that no log names, since the last call."""

    __slots__ = ("_columns", "_epochs")

    def __init__(self, columns: Sequence[FilterColumn | ScoreColumn]) -> None:
        self._columns = [each for each in columns if each.plugin.scope is Scope.CLUSTER]
        self._epochs = [0] * len(self._columns)

    def grew(self) -> bool:
        if not self._columns:
            return False
        for column in self._columns:
            column.sync()
        before, self._epochs = self._epochs, [column.epoch for column in self._columns]
        return self._epochs != before


class _Scores:
    """Scores that follow from the same scope, added up in a column of totals."""

    __slots__ = ("_columns", "_weights")

    def __init__(self, scores: Sequence[tuple[int, ScoreColumn]]) -> None:
        self._columns = [column for _, column in scores]
        self._weights = np.array([weight for weight, _ in scores], dtype=np.int64)

    def merge(self, rows: Int64s, before: Int64s, totals: Int64s) -> None:
        """Write the totals of `rows`: what they were `before`, and the weighted scores."""
        if not self._columns:
            totals[rows] = before[rows]
            return
        for column in self._columns:
            column.sync()
        scores = tuple(column.values for column in self._columns)
        kernels.weigh(rows, scores, self._weights, before, totals)


class EquivalenceClass:
    """Verdicts about one equivalence class; valid right after `sync`.

    refuser: int8[nodes]; 0 fits, a number is the place (from 1) of the first refusing filter.
    codes: int64[nodes], that filter's code. `version` grows whenever any of these may have changed,
    and `epoch` whenever that may be so in rows that no log names. `normalized_totals` returns the
    scores of those that fit.
    """

    def __init__(
        self, pod: Pod, plugins: ConfiguredPlugins, cache: PluginColumns, snapshot: Snapshot
    ) -> None:
        self._snapshot = snapshot
        filters = active_filters(pod, plugins, cache, snapshot)
        self.pre_filter = filters.pre_filter
        self.pre_filter_ran = filters.prepared
        self.skipped_filters = filters.skipped
        self.filters = filters.columns
        self.columns = dict(filters.columns)
        self._failing = tuple(each for each in self.filters if each[1].plugin.can_fail)
        scores = active_scores(pod, plugins, cache, snapshot)
        self.skipped_scores = scores.skipped
        self._unprepared = scores.failure
        self.scores = scores.columns
        self._split()
        self._base = self._full_marks if plugins.scores else EQUAL_SCORE
        self.epoch = self.version = 0
        self._nodes_seen = self._pods_seen = -1
        self._nodes_scored = self._pods_scored = -1
        self._allocate_refusers(0)
        self._allocate_totals(0)

    def _split(self) -> None:
        self._pod_filters = [e for e in self.filters if e[1].plugin.scope is not Scope.NODE]
        node_filters = [e for e in self.filters if e[1].plugin.scope is Scope.NODE]
        self._refused_by_node = _Refusers(node_filters)
        self._refused_by_pods = _Refusers(self._pod_filters)
        self._filter_epochs = _Epochs([column for _, column in self._pod_filters])
        columns = [column for _, column in self._pod_filters]
        self.trials = tuple(
            (each, each.plugin if isinstance(each.plugin, ClusterFilterPlugin) else None)
            for each in self.columns.values()
        )
        plugins = [each.plugin for each in self.columns.values()]
        self.counters = [each for each in plugins if isinstance(each, PodColumnsPlugin)]
        self._first_by_pods = min((number for number, _ in self._pod_filters), default=OVERRIDDEN)
        self._bounding: list[tuple[FilterColumn, ClusterFilterPlugin[Any]]] = [
            (each, each.plugin)
            for each in columns[1:]
            if isinstance(each.plugin, ClusterFilterPlugin)
        ]
        self._is_bounded = len(columns) == len(self._bounding) + 1 and (
            columns[0].plugin.is_resource_fit
        )
        kinds = [(each, each[1].plugin.normalization) for each in self.scores]
        plain = [each for each, kind in kinds if kind is Normalization.NONE]
        self._own = [each for each, kind in kinds if kind is Normalization.OWN]
        closed = {Normalization.HIGHEST, Normalization.REVERSE}
        scaled = [each for each, kind in kinds if kind in closed]
        node_scores = [e for e in plain if e[1].plugin.scope is Scope.NODE]
        pod_scores = [e for e in plain if e[1].plugin.scope is not Scope.NODE]
        self._scored_by_node = _Scores(node_scores)
        self._scored_by_pods = _Scores(pod_scores)
        self._score_epochs = _Epochs([column for _, column in pod_scores])
        self._scaled = [column for _, column in scaled]
        self._scaled_by_pods = any(e[1].plugin.scope is not Scope.NODE for e in scaled)
        self._weights = np.array([weight for weight, _ in scaled], dtype=np.int64)
        reverse = [each[1].plugin.normalization is Normalization.REVERSE for each in scaled]
        self._reverse = np.array(reverse, dtype=np.int64)
        self._full_marks = kernels.NODE_SCORE_MAX * int(self._weights @ self._reverse)

    @property
    def pod_filters(self) -> Sequence[tuple[int, FilterColumn]]:
        """Return the filters whose verdict the pods on a node may change."""
        return self._pod_filters

    def status(self, row: int) -> Status:
        """Return the status of a refused row."""
        return self.columns[int(self.refuser[row])].status(int(self.codes[row]))

    def is_refused_before_pods(self, row: int) -> bool:
        """Return whether a row's refuser comes before all filters that pods on it may change."""
        return bool(0 < self.refuser[row] < self._first_by_pods)

    @property
    def can_fail(self) -> bool:
        """Return whether a filter at work may fail."""
        return bool(self._failing)

    @property
    def score_failure(self) -> str:
        """Return how scoring fails, "" where it does not."""
        if self._unprepared:
            return self._unprepared
        self._sync_totals()
        for _, column in self.scores:
            if column.failure:
                name = column.plugin.name
                return f'running Score plugins: plugin "{name}" failed with: {column.failure}'
        return ""

    def bounded(self, rows: Int64s) -> Sequence[tuple[FilterColumn, Bounds]] | None:
        """Return the filters after that of resources that may refuse `rows`, all by bounds.

        None where some filter does it otherwise or comes before, whatever pods may leave or come.
        """
        if not self._is_bounded or np.count_nonzero(self._node_refusers[0][rows]):
            return None
        found: list[tuple[FilterColumn, Bounds]] = []
        for column, plugin in self._bounding:
            bounds = plugin.bounds(column.pre.data, self._snapshot, rows)
            if bounds is None:
                return None
            found.append((column, bounds))
        return found

    def diagnosis(self, refuser: Int8s, overridden: Mapping[int, Status]) -> Diagnosis:
        """Return why no node takes the pod.

        refuser: int8[nodes] as in the class, OVERRIDDEN where `overridden` holds a row's status,
        which differs from the columns' because nominated pods were counted there.
        """
        group_of: Int32s = np.empty(len(refuser), dtype=np.int32)
        table = np.empty((len(refuser), 3), dtype=np.int64)
        counted = table[: kernels.group(refuser, self.codes, group_of, table)].tolist()
        groups: list[StatusCount] = []
        for count, number, code in counted:
            status = self.columns[number].status(code) if number > 0 else self.pre_filter.excluded
            groups.append(StatusCount(status, count))
        for row, status in overridden.items():
            group_of[row] = len(groups)
            groups.append(StatusCount(status, 1))
        pending = (group.status for group in groups if group.status.code is Code.PENDING)
        node_count = self._snapshot.node_count
        return Diagnosis(
            node_count=node_count,
            groups=tuple(groups),
            group_of=group_of,
            unschedulable_plugins=rejecting_plugins(groups, self.pre_filter),
            pending_plugins=plugins_named(pending),
            key=(node_count, *map(tuple, sorted(counted)), *overridden.values()),
        )

    def filter_failure(self, refuser: Int8s) -> Status | None:
        """Return the error of the first row on which a filter failed, None where none did."""
        for number, column in self._failing:
            rows = np.flatnonzero(refuser == number)
            for code in dict.fromkeys(column.values[rows].tolist()):
                status = column.status(code)
                if status.code is Code.ERROR:
                    return status
        return None

    def normalized_totals(self, refuser: Int8s) -> Int64s:
        """Return the weighted totals, int64[nodes], normalised over the rows that `refuser` spares.

        A score in reverse counts as its 100, which `_totals` hold, less what it is taken down by.
        """
        self._sync_totals()
        totals = self._totals
        if self._varies:
            rows = self._snapshot.columns.rows
            totals = kernels.normalize(
                rows, refuser, self._raw, self._weights, self._reverse, totals
            )
        return self._with_own(refuser, totals) if self._own else totals

    def _with_own(self, refuser: Int8s, totals: Int64s) -> Int64s:
        rows = np.flatnonzero(refuser[: len(self._snapshot.columns.rows)] == 0)
        found = totals.copy()
        for weight, column in self._own:
            column.sync()
            scores = column.plugin.normalize(
                column.data, self._snapshot, rows, column.values[rows]
            ).scores
            found[rows] += weight * scores
        return found

    def sync(self) -> None:
        """Bring the refusers up to date; after a plugin's failure, next time from the beginning."""
        try:
            self._sync_refusers()
        except Exception:
            self._nodes_seen = -1
            raise

    def _sync_refusers(self) -> None:
        snapshot = self._snapshot
        if snapshot.node_log.end != self._nodes_seen:
            self.epoch += 1
            self._filter_epochs.grew()
            self.version += 1
            self._refuse_by_node()
            self._refuse_by_pods(snapshot.columns.rows)
        elif snapshot.pod_log.end == self._pods_seen:
            return
        else:
            changed = snapshot.pod_log.since(self._pods_seen)
            if self._filter_epochs.grew() or changed is None:
                self.epoch += 1
                changed = snapshot.columns.rows
            self._refuse_by_pods(changed)
        self._nodes_seen = snapshot.node_log.end
        self._pods_seen = snapshot.pod_log.end

    def _refuse_by_node(self) -> None:
        columns = self._snapshot.columns
        self._allocate_refusers(columns.capacity)
        refuser, codes = self._node_refusers
        refuser[~columns.alive] = NO_NODE
        names = self.pre_filter.node_names
        if names is not None:
            rows = [row for row in map(self._snapshot.row, sorted(names)) if row is not None]
            left_out = columns.alive.copy()
            left_out[rows] = False
            refuser[left_out] = EXCLUDED
        self._refused_by_node.merge(columns.rows, self._node_refusers, refuser, codes)

    def _refuse_by_pods(self, rows: Int64s) -> None:
        node_refusers = self._node_refusers
        self.version += self._refused_by_pods.merge(rows, node_refusers, self.refuser, self.codes)

    def _sync_totals(self) -> None:
        try:
            self._add_up()
        except Exception:
            self._nodes_scored = -1
            raise

    def _add_up(self) -> None:
        snapshot = self._snapshot
        columns = snapshot.columns
        if snapshot.node_log.end != self._nodes_scored:
            self._score_epochs.grew()
            self._allocate_totals(columns.capacity)
            totals = self._node_totals
            self._scored_by_node.merge(columns.rows, totals, totals)
            self._scored_by_pods.merge(columns.rows, totals, self._totals)
            self._merge_scaled()
        elif snapshot.pod_log.end == self._pods_scored:
            return
        else:
            changed = snapshot.pod_log.since(self._pods_scored)
            if self._score_epochs.grew() or changed is None:
                changed = columns.rows
            self._scored_by_pods.merge(changed, self._node_totals, self._totals)
            if self._scaled_by_pods:
                self._merge_scaled()
        self._nodes_scored = snapshot.node_log.end
        self._pods_scored = snapshot.pod_log.end

    def _merge_scaled(self) -> None:
        for index, scaled in enumerate(self._scaled):
            scaled.sync()
            self._raw[index] = scaled.values
        self._varies = bool(self._raw.any())

    def _allocate_refusers(self, capacity: int) -> None:
        self.refuser: Int8s = np.full(capacity, NO_NODE, dtype=np.int8)
        self.codes: Int64s = np.zeros(capacity, dtype=np.int64)
        self._node_refusers = (np.zeros_like(self.refuser), np.zeros_like(self.codes))

    def _allocate_totals(self, capacity: int) -> None:
        self._varies = False
        self._totals: Int64s = np.zeros(capacity, dtype=np.int64)
        self._node_totals: Int64s = np.full(capacity, self._base, dtype=np.int64)
        self._raw: Int64s = np.zeros((len(self._scaled), capacity), dtype=np.int64)


_FEW = 16


class CachedDryRuns:
    """The results of a BatchDryRun by row, for pods of one equivalence class.

    codes: int64[nodes], as in `batch_kernels`, NOT_TRIED where no deletion can help. counted: the
    number of rows by code, None where it must be counted; `key` is the same for the rows that were
    tried. criteria: int64[nodes, 5] of the candidates that are `judged` (bool[nodes]) for the
    budgets of `budget_epoch`. bounding: the filter and its code for each bound that may be broken.
    """

    __slots__ = (
        "bounding",
        "budget_epoch",
        "codes",
        "counted",
        "criteria",
        "judged",
        "key",
        "reader",
    )

    def __init__(self, snapshot: Snapshot) -> None:
        self.reader = LogReader(snapshot.row_log)
        self.budget_epoch = -1
        self.bounding: Sequence[tuple[FilterColumn, int]] = ()
        self.begin(0)

    def begin(self, capacity: int) -> None:
        """Begin with no row tried."""
        self.codes: Int64s = np.full(capacity, NOT_TRIED, dtype=np.int64)
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
            self.key = tuple(sorted(each for each in counted.items() if each[0] != NOT_TRIED))
        return counted


class CachedAttempt:
    """An equivalence class with the pods nominated to each row; valid for a pod after its `sync`.

    overridden: the statuses of rows whose refusal differs from the equivalence class, because
    nominated pods are counted there. counted: the nominated pods that have to be left room for, by
    row. own_rows: those that this pod sees in another way than others do, being nominated there.
    refusals: the latest refusals by what their message follows from; `refused` is the last of all,
    with the snapshot's version.
    """

    __slots__ = (
        "_changes",
        "_diagnosed",
        "_diagnosis",
        "_forgets",
        "_reader",
        "_snapshot",
        "_untried",
        "counted",
        "dry_runs",
        "equivalence",
        "overridden",
        "own_rows",
        "refusals",
        "refused",
    )

    def __init__(
        self, equivalence: EquivalenceClass, snapshot: Snapshot, *, has_out_of_tree: bool
    ) -> None:
        self.equivalence = equivalence
        self.overridden: dict[int, Status] = {}
        self.counted: dict[int, Sequence[Pod]] = {}
        self.dry_runs = CachedDryRuns(snapshot)
        self.own_rows: Sequence[int] = ()
        self.refusals: dict[Hashable, Refused] = {}
        self.refused: tuple[Hashable, Refused] | None = None
        self._snapshot = snapshot
        self._forgets = has_out_of_tree or equivalence.can_fail
        self._reader = LogReader(snapshot.row_log)
        self._untried: dict[int, None] = {}
        self._diagnosis: Diagnosis | None = None
        self._diagnosed = (-1, -1)
        self._changes = 0

    @property
    def epoch(self) -> Hashable:
        """Return what differs whenever rows may have changed that no log names."""
        catalog = self._snapshot.catalog
        return (
            object() if self._forgets else self.equivalence.epoch,
            catalog.namespace_epoch,
            catalog.workload_epoch,
            catalog.storage_epoch,
        )

    def sync(self, pod: Pod) -> None:
        """Bring the verdicts up to date for an attempt of `pod`, which is of the equivalence."""
        self.equivalence.sync()
        self.own_rows = self._own_rows(pod)
        rows = self._reader.changed(self.epoch, self.own_rows)
        try:
            self._count_nominated(pod, rows)
        except Exception:
            self._reader.forget()
            raise

    def nominated_refusals(self, pod: Pod) -> dict[int, Status]:
        """Return `overridden` with the rows that refuse the pod without nominated pods, too.

        `overridden` leaves them out until their reasons are needed.
        """
        self._try_others(pod)
        return dict(self.overridden)

    def diagnosis(self, pod: Pod, tried: Mapping[int, Status]) -> Diagnosis:
        """Return why no node takes the pod; `tried` has its nominated node's refusal."""
        equivalence, overridden = self.equivalence, self.overridden
        self._try_others(pod)
        if tried:
            overridden = overridden | still_tried(tried, equivalence.refuser)
        version = (equivalence.version, self._changes)
        if self._diagnosis is None or version != self._diagnosed or tried:
            refuser = overridden_by(equivalence.refuser, overridden)
            self._diagnosis = equivalence.diagnosis(refuser, overridden)
            self._diagnosed = (-1, -1) if tried else version
        return self._diagnosis

    def _own_rows(self, pod: Pod) -> Sequence[int]:
        node = self._snapshot.nominations.node_of(pod.uid)
        if not node and not pod.nominated_node_name:
            return ()
        rows = [self._snapshot.row(name) for name in (node, pod.nominated_node_name)]
        return [row for row in rows if row is not None]

    def _count_nominated(self, pod: Pod, changed: Int64s | None) -> None:
        nominations = self._snapshot.nominations
        rows: Iterable[int]
        if changed is None:
            self._changes += 1
            for kept in (self.overridden, self.counted, self._untried):
                kept.clear()
            found = [self._snapshot.row(name) for name in nominations.node_names()]
            rows = [row for row in found if row is not None]
        elif not len(changed) or not (self.counted or len(nominations)):
            return
        else:
            rows = dict.fromkeys(changed.tolist())
        for row in rows:
            if self.counted.pop(row, None) is not None:
                self._untried.pop(row, None)
                self._changes += self.overridden.pop(row, None) is not None
            if nominations.any_on(self._snapshot.name(row)):
                self._count(row, pod)

    def _count(self, row: int, pod: Pod) -> None:
        snapshot = self._snapshot
        counted = snapshot.nominations.counted(snapshot.name(row), pod)
        if not counted or not snapshot.columns.alive[row]:
            return
        self.counted[row] = counted
        refuser = self.equivalence.refuser[row]
        if refuser == 0:
            self._try(row, pod)
        elif refuser > 0 and not self.equivalence.is_refused_before_pods(row):
            self._untried[row] = None

    def _try_others(self, pod: Pod) -> None:
        for row in self._untried:
            self._try(row, pod)
        self._untried.clear()

    def _try(self, row: int, pod: Pod) -> None:
        equivalence = self.equivalence
        refusal = NodeDryRun(pod, row, equivalence, self._snapshot).refusal()
        if refusal is not None and (
            equivalence.refuser[row] == 0 or refusal != equivalence.status(row)
        ):
            self.overridden[row] = refusal
            self._changes += 1


def still_tried(tried: Mapping[int, Status], refuser: Int8s) -> dict[int, Status]:
    """Return what of `tried` still holds after all nodes were filtered: rows that passed then.

    refuser: int8[nodes] of that evaluation, negative where a row was left out.
    """
    return {row: status for row, status in tried.items() if refuser[row] <= 0}


def overridden_by(refuser: Int8s, overridden: Mapping[int, Status]) -> Int8s:
    """Return `refuser` with OVERRIDDEN in the rows that have another status."""
    if not overridden:
        return refuser
    changed = refuser.copy()
    for row in overridden:
        changed[row] = OVERRIDDEN
    return changed


class NodeDryRun:
    """A DryRun of the row of a live node, for a pod whose equivalence class is up to date."""

    __slots__ = ("_checks", "_counters", "_nominated", "_pods", "_trials", "_view")

    def __init__(
        self, pod: Pod, row: int, equivalence: EquivalenceClass, snapshot: Snapshot
    ) -> None:
        self._checks = _checks(equivalence, row, snapshot)
        self._trials = [trial for _, _, trial in self._checks if trial is not None]
        self._counters = equivalence.counters
        self._view = NodeView.of(snapshot, row)
        self._pods = list(snapshot.pods_on(row))
        self._nominated = snapshot.nominations.counted(snapshot.name(row), pod)

    def pods(self) -> Sequence[Pod]:
        """Return the node's current pods; see DryRun."""
        return self._pods

    def remove(self, pod: Pod) -> None:
        """Take `pod` off the node; see DryRun."""
        for index, held in enumerate(self._pods):
            if held.uid == pod.uid:
                self._pods[index] = self._pods[-1]
                self._pods.pop()
                self._take_off(held)
                return
        raise AssertionError(f"{pod.key} is not on the node")

    def add(self, pod: Pod) -> None:
        """Put `pod` on the node; see DryRun."""
        self._pods.append(pod)
        self._put_on(pod)

    def refusal(self) -> Status | None:
        """Run the filters; see DryRun."""
        if self._nominated:
            for pod in self._nominated:
                self._put_on(pod)
            refused = self._filtered()
            for pod in self._nominated:
                self._take_off(pod)
            if refused is not None:
                return refused
        return self._filtered()

    def _filtered(self) -> Status | None:
        for column, cached_code, trial in self._checks:
            code = cached_code
            if trial is not None:
                code = trial.code()
            elif not cached_code:
                code = column.plugin.filter_node(column.pre.data, self._view)
            if code:
                return column.status(code)
        return None

    def _put_on(self, pod: Pod) -> None:
        self._view.add(pod)
        for counter in self._counters:
            counter.came_to_view(pod, self._view)
        for trial in self._trials:
            trial.add(pod)

    def _take_off(self, pod: Pod) -> None:
        self._view.remove(pod)
        for counter in self._counters:
            counter.went_from_view(pod, self._view)
        for trial in self._trials:
            trial.remove(pod)


_Check = tuple[FilterColumn, int, Trial | None]


def _checks(equivalence: EquivalenceClass, row: int, snapshot: Snapshot) -> list[_Check]:
    """Return the filters that may refuse the row, with the code of those that pods cannot change.

    The code is 0 for the others, of which some have a trial of the row; a refusal that pods cannot
    change is the last.
    """
    checks: list[_Check] = []
    for column, plugin in equivalence.trials:
        if plugin is not None:
            checks.append((column, 0, plugin.trial(column.pre.data, snapshot, row)))
        elif column.plugin.scope is Scope.PODS:
            checks.append((column, 0, None))
        elif code := int(column.values[row]):
            checks.append((column, code, None))
            break
    return checks
