"""All verdicts about a profile's pods: what is kept by class and row, and what makes it stale.

**A class** is the pods with one spec and one spec.nodeName that also have equal keys for those
plugins whose keys follow from more (`Plugin.keys_follow_pod`), unless these skip the spec; it ends
where a device class changes. An attempt gets its pod's class from `Verdicts.pre_filtered`, which
runs PreFilter for a new class, and brings it up to date by `ClassVerdicts.sync`. PreScore runs at
the first attempt of the class for which several nodes are feasible. Either runs only for plugins of
which no kept class has a column with the pod's key. **A row** is a node. By row is kept, each from
the one before:

- `PluginColumn` (`plugin_columns.py`): the verdict of one plugin, shared by the pods for which it
  returns the same key. The plugin declares what its verdict depends on (`Scope`). From that alone
  the column knows which rows are stale: those whose node changed; those whose node or pods changed;
  or, where pods anywhere count, all of them, but only if the plugin's version differs. A plugin may
  leave keeping to the class (`Plugin.keeps_rows`): its column then computes what the class merges;
- `NodeRefusers`, `NodeTotals`, `Scaled` (`merged_columns.py`): what is merged of columns with
  Scope.NODE, and the scores that are normalized; shared by the classes that have these columns,
  which are most;
- `FilterVerdicts`: which plugin refuses the class on a row and with which code, and the row's
  total score (`Totals`), merged from all of these: 17 bytes a row. The totals are normalized; as
  long as the highest raw score of a plugin is the same, a row's total stands, whichever rows fit;
- `ClassVerdicts`: the rows on which nominated pods make a difference: they count beside the pods
  that are there, so that the pod must fit with them and without them;
- `CachedDryRuns`: whether deleting pods would help on a row; and the latest refusals with their
  texts, which follow from how many rows have which status.

**Stale** rows are read from the snapshot's logs (`ChangeLog`): each part remembers up to where it
has read, and reads what changed since. Which log that is, and what makes all rows stale:

- What follows from nodes alone reads `node_log`, all else `pod_log`, which names changed nodes,
  too; a column with `Scope.CLUSTER` asks its plugin for a version after any entry.
- What is merged reads every row where a source of it was computed anew (`StaleRows`).
- `ClassVerdicts` and `CachedDryRuns` read `row_log`, which names changed lists of pods and changed
  nominations, too; and every row where `dry_runs_version` differs. What victims are judged by
  follows from the disruption budgets as well, as of `Snapshot.budget_changes`, and from the time
  where a victim has no start time, which counts as now.
- The last refusal of a class stands while `Snapshot.changes` is equal.
- Results of PreFilter are never stale: another key makes another column, and another class. So a
  key must hold all that `pre_filter` reads of the pod, the catalog and the time, and for a plugin
  with `follows_from_class` also what `post_filter` reads of them.

`changes` counts what may have changed in a part. Where rows have changed that no log names,
`all_stale` is counted up, and whatever follows reads every row.

**The cost** of an attempt is the rows that changed since the last attempt of its class, and the
rows to which its own pod is nominated; the next attempt evaluates those again, too. All rows are
read for the highest total alone, and for the highest raw scores, by vector instructions: 0.1 ns
each, and 0.3 more to hash those that tie (`kernels.choose`). So no tree of totals is kept, which
would take more time for its changed rows than it saves, and memory of each class. With an
out-of-tree plugin, or a filter that may fail, results of attempts are not kept: each attempt
evaluates all rows that have nominated pods, and a preemption tries all its rows again. The plugins'
columns stay. So that a cluster of 50,000 nodes may have 500 kinds of pods, what a class keeps of a
row is small, and the number of classes follows from the bytes that all of them take.

Where no node is left, a FitError (`failed_cycle.py`) has the class's verdicts with their diagnosis,
as PostFilter reads them. A single node is evaluated over the kept verdicts (`node_dry_run.py`).

PreFilter lets a pod continue with all nodes, with some, or not at all. PreFilter and PreScore may
skip a plugin. Where a profile disables one of them for a plugin whose Filter or Score reads what it
prepares, that Filter or Score fails, as upstream's does; other plugins prepare it when needed.

Source: kubernetes v1.34 pkg/scheduler/framework/runtime/framework.go, RunPreFilterPlugins,
RunFilterPlugins, RunFilterPluginsWithNominatedPods, RunPreScorePlugins, RunScorePlugins.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from services.framework.columns import kernels
from services.framework.columns.columns import Int64s, LogReader
from services.framework.columns.kernels import NO_GROUP, OVERRIDDEN, Int8s, Int32s
from services.framework.plugin import ClusterFilterPlugin, Normalization, Normalized
from services.framework.preemption.batch_dry_run import Bounds, CachedDryRuns, WantedAmounts
from services.framework.runtime.diagnosis import (
    Diagnosis,
    StatusCount,
    Unschedulable,
    plugins_named,
)
from services.framework.runtime.guard import PluginFailed
from services.framework.runtime.merged_columns import (
    EXCLUDED,
    NO_NODE,
    FilterMerge,
    MergedColumns,
    ScoreMerge,
    StaleRows,
    by_scope,
    kept_columns,
)
from services.framework.runtime.node_dry_run import DryRunFilters, NodeDryRun
from services.framework.runtime.plugin_columns import (
    ActiveFilters,
    ActiveScores,
    FilterColumn,
    PluginColumns,
    ScoreColumn,
)
from services.framework.runtime.profile_plugins import (
    ConfiguredPlugins,
    PluginsBySpec,
    PluginsOfSpec,
)
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.pod import Pod

EQUAL_SCORE = 1
"""What every node is worth where no score plugin is configured.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, prioritizeNodes; v1.16 EqualPriorityMap.
"""

_FAILED = object()
"""The key of a score plugin that failed; PreScore raises again if the attempt runs it."""

_BYTES_MAX = 640 * 1024 * 1024
_BYTES_A_ROW = 17
"""What a class keeps of a row: its refuser, code and total."""
_CLASSES_MIN = 64


class Verdicts:
    """The classes of one profile's pods: the latest `classes_max`, fewer on large clusters.

    Each of `checks` raises what a guarded plugin failed with while there was no cycle to end.
    """

    def __init__(
        self,
        plugins: ConfiguredPlugins,
        by_spec: PluginsBySpec,
        snapshot: Snapshot,
        *,
        has_out_of_tree: bool,
        checks: Sequence[Callable[[], None]],
    ) -> None:
        self._plugins = plugins
        self._by_spec = by_spec
        self._snapshot = snapshot
        self._has_out_of_tree = has_out_of_tree
        self._checks = checks
        self._columns = PluginColumns(snapshot)
        self._merged = MergedColumns(snapshot)
        self._classes: dict[Hashable, ClassVerdicts] = {}
        self.classes_max = 4096

    def pre_filtered(self, pod: Pod) -> tuple[ClassVerdicts, bool]:
        """Return the state of the pod's class, before `sync`, and whether PreFilter ran now."""
        plugins = self._by_spec[pod.spec]  # before the checks: a guarded plugin may fail in it
        for check in self._checks:
            check()
        key = self._key(pod, plugins)
        verdicts = self._classes.pop(key, None)
        if verdicts is not None:
            self._classes[key] = verdicts  # now the latest: the oldest is dropped first
            return verdicts, False
        self._make_room()
        active = self._columns.active_filters(pod, self._plugins)
        filters = FilterVerdicts(active, self._merged, self._snapshot)
        forgets = self._has_out_of_tree or filters.can_fail
        self._classes[key] = verdicts = ClassVerdicts(
            filters, self._pre_scored, self._snapshot, forgets=forgets
        )
        return verdicts, True

    def _pre_scored(self, pod: Pod) -> Totals:
        scores = self._columns.active_scores(pod, self._plugins)
        base = None if self._plugins.scores else EQUAL_SCORE
        return Totals(scores, self._merged, self._snapshot, base)

    def synced(self, pod: Pod) -> ClassVerdicts:
        """Return the state of the pod's class, up to date for an attempt of `pod`."""
        verdicts, _ = self.pre_filtered(pod)
        if verdicts.filters.pre_filter.refusal is None:
            verdicts.sync(pod)
        return verdicts

    def _key(self, pod: Pod, plugins: PluginsOfSpec) -> Hashable:
        """Return the key of the pod's class: the inputs of its verdicts beside pods and nodes."""
        snapshot = self._snapshot
        device_classes = snapshot.catalog.devices.class_version
        keys = [filter_key(pod, snapshot) for filter_key in plugins.filter_keys]
        for score_key in plugins.score_keys:
            try:
                keys.append(score_key(pod, snapshot))
            except PluginFailed:
                keys.append(_FAILED)
        if keys.count(None) != len(keys):
            return (pod.spec, pod.node_name, device_classes, *keys)
        if device_classes or pod.node_name:
            return (pod.spec, pod.node_name, device_classes)
        return pod.spec

    def _make_room(self) -> None:
        a_class = _BYTES_A_ROW * self._snapshot.columns.capacity
        by_bytes = max(_CLASSES_MIN, _BYTES_MAX // a_class)
        while len(self._classes) >= min(by_bytes, self.classes_max):
            del self._classes[next(iter(self._classes))]


class FilterVerdicts:
    """The filters' verdicts about one equivalence class; valid right after `sync`.

    refuser: int8[nodes]; 0 fits, a number is the place (from 1) of the first refusing filter.
    codes: int64[nodes], that filter's code. `changes` grows whenever any of these may have changed,
    and `all_stale` whenever that may be so in rows that no log names.
    """

    def __init__(self, active: ActiveFilters, merged: MergedColumns, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.pre_filter = active.pre_filter
        self.pre_filter_ran = active.prepared
        self.skipped_filters = active.skipped
        self.columns = dict(active.columns)
        node_filters, self.pod_filters = by_scope(active.columns)
        self.dry_run_filters = DryRunFilters(self.columns.values())
        self._failing = [
            (number, column) for number, column in active.columns if column.plugin.can_fail
        ]
        self._by_node = merged.node_refusers(node_filters, self.pre_filter.node_names)
        self._refused_by_pods = FilterMerge(self.pod_filters)
        pod_columns = [column for _, column in self.pod_filters]
        self._stale = StaleRows(
            snapshot.pod_log, [self._by_node, *kept_columns(pod_columns)], snapshot
        )
        self._first_by_pods = min((number for number, _ in self.pod_filters), default=OVERRIDDEN)
        self._bounding: list[tuple[FilterColumn, ClusterFilterPlugin[Any]]] = [
            (column, column.plugin)
            for column in pod_columns[1:]
            if isinstance(column.plugin, ClusterFilterPlugin)
        ]
        self._is_bounded = len(pod_columns) == len(self._bounding) + 1 and (
            pod_columns[0].plugin.is_resource_fit
        )
        self.all_stale = self.changes = 0
        self._nodes_read_to = -1
        self._allocate()

    @property
    def can_fail(self) -> bool:
        """Return whether one of the class's filters may fail."""
        return bool(self._failing)

    def status(self, row: int) -> Status:
        """Return the status of a refused row."""
        return self.columns[int(self.refuser[row])].status(int(self.codes[row]))

    def is_refused_before_pods(self, row: int) -> bool:
        """Return whether a row's refuser comes before all filters that pods on it may change."""
        return bool(0 < self.refuser[row] < self._first_by_pods)

    def bounded(self, rows: Int64s) -> Sequence[tuple[FilterColumn, Bounds]] | None:
        """Return the filters after that of resources that may refuse `rows`, all by bounds.

        None where some filter does it otherwise or comes before, whatever pods may leave or come.
        """
        if not self._is_bounded or np.count_nonzero(self._by_node.refuser[rows]):
            return None
        bounded: list[tuple[FilterColumn, Bounds]] = []
        for column, plugin in self._bounding:
            bounds = plugin.bounds(column.pre.data, self._snapshot, rows)
            if bounds is None:
                return None
            bounded.append((column, bounds))
        return bounded

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
        key = (self._snapshot.node_count, *map(tuple, sorted(counted)), *overridden.values())
        return self._diagnosed(groups, group_of, pending_plugins=plugins_named(pending), key=key)

    def refused_by_pre_filter(self, refusal: Status) -> Diagnosis:
        """Return why no node takes the pod: PreFilter refused it on all of them."""
        group_of = np.where(self._snapshot.columns.alive, 0, NO_GROUP).astype(np.int32)
        groups = [StatusCount(refusal, self._snapshot.node_count)]
        return self._diagnosed(groups, group_of, pre_filter=refusal)

    def _diagnosed(
        self,
        groups: Sequence[StatusCount],
        group_of: Int32s,
        *,
        pending_plugins: tuple[str, ...] = (),
        pre_filter: Status | None = None,
        key: Hashable = None,
    ) -> Diagnosis:
        """Return a diagnosis with the plugins that refused nodes, or named the nodes to evaluate.

        Source: kubernetes v1.34 pkg/scheduler/framework/types.go, Diagnosis.AddPluginStatus.
        """
        refusing = {group.status.plugin for group in groups if group.status.code.is_rejected}
        return Diagnosis(
            node_count=self._snapshot.node_count,
            groups=tuple(groups),
            group_of=group_of,
            unschedulable_plugins=tuple(sorted((refusing | {*self.pre_filter.plugins}) - {""})),
            pending_plugins=pending_plugins,
            pre_filter=pre_filter,
            key=key,
        )

    def filter_failure(self, refuser: Int8s) -> Status | None:
        """Return the error of the first row on which a filter failed, None where none did."""
        for number, column in self._failing:
            rows = np.flatnonzero(refuser == number)
            for code in dict.fromkeys(self.codes[rows].tolist()):
                status = column.status(code)
                if status.code is Code.ERROR:
                    return status
        return None

    def sync(self) -> None:
        """Bring the refusers up to date; after a plugin's failure, once more."""
        if self._stale.is_none:
            return
        rows = self._stale.read()
        if rows is None:
            self.all_stale += 1
            self._allocate()
            rows = self._snapshot.columns.rows
        nodes_end = self._snapshot.node_log.end
        self.changes += nodes_end != self._nodes_read_to
        by_node = (self._by_node.refuser, self._by_node.codes)
        self.changes += self._refused_by_pods.merge(rows, by_node, self.refuser, self.codes)
        self._nodes_read_to = nodes_end
        self._stale.done()

    def _allocate(self) -> None:
        capacity = self._snapshot.columns.capacity
        self.refuser: Int8s = np.full(capacity, NO_NODE, dtype=np.int8)
        self.codes: Int64s = np.zeros(capacity, dtype=np.int64)
        self.changes += 1


class Totals:
    """The weighted scores of one class, added up by row and normalized over the rows that fit.

    The totals are normalized by `_highest`, the highest raw score of each plugin. A stale row is
    normalized by it when it is added up; the others change only when a highest raw score differs
    among the rows that fit, by the difference. A score in reverse counts as its full 100, less what
    it is taken down by.

    `skipped` are the plugins that returned Skip in PreScore. `base` is every node's score where no
    plugin scores.
    """

    def __init__(
        self, scores: ActiveScores, merged: MergedColumns, snapshot: Snapshot, base: int | None
    ) -> None:
        self._snapshot = snapshot
        self.skipped = scores.skipped
        self._unprepared = scores.failure
        self.scores = scores.columns
        plain: list[tuple[int, ScoreColumn]] = []
        scaled: list[tuple[int, ScoreColumn]] = []
        self._by_plugins: list[tuple[int, ScoreColumn]] = []
        for weight, column in scores.columns:
            match column.plugin.normalization:
                case Normalization.NONE:
                    plain.append((weight, column))
                case Normalization.OWN:
                    self._by_plugins.append((weight, column))
                case Normalization.HIGHEST | Normalization.REVERSE:
                    scaled.append((weight, column))
        by_node, by_pods = by_scope(plain)
        self._scaled = merged.scaled(scaled)
        self._by_node = merged.node_totals(
            by_node, self._scaled.full_marks if base is None else base
        )
        self._highest: Int64s = np.zeros(len(scaled), dtype=np.int64)
        self._scored_by_pods = ScoreMerge(by_pods, self._scaled, self._highest)
        kept = kept_columns([column for _, column in by_pods])
        merged_before = (self._by_node, self._scaled)
        self._stale = StaleRows(snapshot.pod_log, [*merged_before, *kept], snapshot)
        self._totals: Int64s = np.zeros(0, dtype=np.int64)

    def synced_failure(self) -> str:
        """Bring the scores up to date; return the failure, "" without one."""
        if self._unprepared:
            return self._unprepared
        self._sync()
        for _, column in self.scores:
            if column.failure:
                self._stale.forget()
                name = column.plugin.name
                return f'running Score plugins: plugin "{name}" failed with: {column.failure}'
        return ""

    def normalized_totals(self, refuser: Int8s) -> Int64s:
        """Return the totals, int64[nodes], normalized over the rows that `refuser` spares."""
        self._sync()
        scaled, used = self._scaled, len(self._snapshot.columns.rows)
        if scaled.varies:
            kernels.normalize(
                used, refuser, scaled.raw, scaled.weights, self._highest, self._totals
            )
        return self._with_plugins_own(refuser) if self._by_plugins else self._totals

    def by_plugin(self, rows: Int64s) -> Iterator[tuple[str, int, Normalized]]:
        """Yield each plugin's name, weight and scores of `rows`, which are all that fit, ascending.

        The sum of their weighted scores is what `normalized_totals` has of these rows.
        """
        number = len(rows)
        for weight, column in self.scores:
            raw, kind = column.at(rows)[rows], column.plugin.normalization
            scores = Normalized(raw, raw)
            if kind is Normalization.OWN:
                scores = column.plugin.normalize(column.data, self._snapshot, rows, raw)
            elif kind is not Normalization.NONE:
                is_reverse = kind is Normalization.REVERSE
                scaled = np.full(number, kernels.NODE_SCORE_MAX * is_reverse, dtype=np.int64)
                fits, highest = np.zeros(number, dtype=np.int8), np.zeros(1, dtype=np.int64)
                one = np.array([-1 if is_reverse else 1], dtype=np.int64)
                kernels.normalize(number, fits, raw[None, :], one, highest, scaled)
                scores = Normalized(raw, scaled)
            yield column.plugin.name, weight, scores

    def _with_plugins_own(self, refuser: Int8s) -> Int64s:
        rows = np.flatnonzero(refuser[: len(self._snapshot.columns.rows)] == 0)
        summed = self._totals.copy()
        for weight, column in self._by_plugins:
            column.sync()
            scores = column.plugin.normalize(
                column.data, self._snapshot, rows, column.values[rows]
            ).scores
            summed[rows] += weight * scores
        return summed

    def _sync(self) -> None:
        """Add up the stale rows; after a plugin's failure, once more."""
        if self._stale.is_none:
            return
        rows = self._stale.read()
        if rows is None:
            self._totals = np.zeros(self._snapshot.columns.capacity, dtype=np.int64)
            rows = self._snapshot.columns.rows
        self._scored_by_pods.merge(rows, self._by_node.totals, self._totals)
        self._stale.done()


_REFUSALS_MAX = 16


class ClassVerdicts:
    """All verdicts about one class, with the pods nominated to each row: what its attempts share.

    Valid for a pod after its `sync`.

    refuser: the class's, with OVERRIDDEN in the rows of `overridden`: the statuses of rows whose
    refusal differs from the class's, because nominated pods are counted there. counted: the
    nominated pods to reserve room for, by row. pods_rows: those that this pod sees in another way
    than others do, being nominated there. tried: the refusal of the pod's nominated node, by row,
    where that was tried before all others.
    """

    __slots__ = (
        "_diagnosed",
        "_diagnosis",
        "_forgets",
        "_last_refusal",
        "_overrides",
        "_pod",
        "_pre_scored",
        "_reader",
        "_refusals",
        "_totals",
        "_untried",
        "counted",
        "dry_runs",
        "filters",
        "overridden",
        "pods_rows",
        "refuser",
        "snapshot",
        "tried",
    )

    def __init__(
        self,
        filters: FilterVerdicts,
        pre_scored: Callable[[Pod], Totals],
        snapshot: Snapshot,
        *,
        forgets: bool,
    ) -> None:
        """Begin with nothing tried; with `forgets`, every attempt begins so.

        `pre_scored` runs PreScore for a pod of the class.
        """
        self.filters = filters
        self._pre_scored = pre_scored
        self._totals: Totals | None = None
        self.refuser = filters.refuser
        self.overridden: dict[int, Status] = {}
        self.counted: dict[int, Sequence[Pod]] = {}
        self.tried: dict[int, Status] = {}
        self.dry_runs = CachedDryRuns(snapshot)
        self.pods_rows: Sequence[int] = ()
        self.snapshot = snapshot
        self._forgets = forgets
        self._reader = LogReader(snapshot.row_log)
        self._untried: dict[int, None] = {}
        self._diagnosis: Diagnosis | None = None
        self._diagnosed = (-1, -1)
        self._overrides = 0
        self._refusals: dict[Hashable, Unschedulable] = {}
        self._last_refusal: tuple[Hashable, Unschedulable] | None = None

    @property
    def dry_runs_version(self) -> Hashable:
        """Return a version that differs if dry runs may differ in rows that no log names.

        That is so where the class changed in such rows; and where an object of the catalog did,
        since what nominated pods and victims count for in a filter follows from their namespaces,
        workloads and volumes, while the class has those of its own pods only.
        """
        catalog = self.snapshot.catalog
        return (
            object() if self._forgets else self.filters.all_stale,
            catalog.namespace_epoch,
            catalog.workload_epoch,
            catalog.storage_epoch,
        )

    @property
    def wanted(self) -> WantedAmounts:
        """Return the pod's requests; the class's first filter that reads pods is of resources."""
        wanted: WantedAmounts = self.fit.pre.data
        return wanted

    @property
    def fit(self) -> FilterColumn:
        """Return the filter of resources, of such a class."""
        return self.filters.pod_filters[0][1]

    def bounded(self, rows: Int64s) -> Sequence[tuple[FilterColumn, Bounds]] | None:
        """Return the class's bounds; see `FilterVerdicts.bounded`."""
        return self.filters.bounded(rows)

    def sync(self, pod: Pod) -> None:
        """Bring the verdicts up to date for an attempt of `pod`, which is of the class."""
        self.filters.sync()
        self._pod = pod
        self.tried = {}
        self.pods_rows = self._rows_of(pod)
        rows = self._reader.changed(self.dry_runs_version, self.pods_rows)
        try:
            self._count_nominated(rows)
        except Exception:
            self._reader.forget()
            raise
        self.refuser = _overridden_by(self.filters.refuser, self.overridden)

    def try_nominated_node(self) -> int | None:
        """Try the pod's nominated node alone: return its row where the pod fits, else None.

        PreFilter's choice of nodes is disregarded. A refusal is kept as `tried`; after a failure
        of a filter, the node has its turn among the others.
        Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, evaluateNominatedNode.
        """
        name = self._pod.nominated_node_name
        row = self.snapshot.row(name) if name else None
        if row is None:
            return None
        refusal = NodeDryRun(self._pod, row, self.filters.dry_run_filters, self.snapshot).refusal()
        if refusal is None:
            return row
        if refusal.code.is_rejected:
            self.tried = {row: refusal}
        return None

    def totals(self) -> Totals:
        """Return the class's scores, before they are up to date; the first time, run PreScore.

        Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, schedulePod: prioritizeNodes runs
        only where several nodes are feasible, so that no failure of PreScore ends another cycle.
        """
        if self._totals is None:
            self._totals = self._pre_scored(self._pod)
        return self._totals

    @property
    def filter_failure(self) -> Status | None:
        """Return the error of a filter, None without one; an earlier refusal of a node hides it."""
        if not self.overridden and not self.filters.can_fail:
            return None
        errors = (status for status in self.overridden.values() if status.code is Code.ERROR)
        return next(errors, None) or self.filters.filter_failure(self.refuser)

    @property
    def evaluated(self) -> int:
        """Return how many nodes were evaluated, PreFilter's exclusions left out."""
        refuser = self.filters.refuser
        if self.filters.pre_filter.node_names is None:
            return self.snapshot.node_count
        return int(np.count_nonzero(refuser >= 0)) + len(self._still_tried(refuser))

    def refusals(self) -> dict[int, Status]:
        """Return the status of each row that refuses the pod."""
        overrides, filters = self.overrides(), self.filters
        refusals: dict[int, Status] = {}
        for row in np.flatnonzero(self.snapshot.columns.alive & (self.refuser != 0)).tolist():
            refuser = self.refuser[row]
            if row in overrides:
                refusals[row] = overrides[row]
            elif refuser == EXCLUDED:
                refusals[row] = filters.pre_filter.excluded
            else:
                refusals[row] = filters.status(row)
        return refusals

    def overrides(self, sample: Int8s | None = None) -> dict[int, Status]:
        """Return the statuses of all rows that differ from the class's, `tried` among them.

        `overridden` leaves out rows that refuse the pod without nominated pods, too, until their
        reasons are needed, which is here. sample: int8[nodes], negative where a row was left out,
        whose status is left out, too.
        """
        self._try_others()
        overridden = self.overridden
        if sample is not None:
            overridden = {row: status for row, status in overridden.items() if sample[row] > 0}
        if not self.tried:
            return overridden
        return overridden | self._still_tried(self.filters.refuser if sample is None else sample)

    def diagnosis(self) -> Diagnosis:
        """Return why no node takes the pod."""
        filters = self.filters
        refusal = filters.pre_filter.refusal
        if refusal is not None:
            return filters.refused_by_pre_filter(refusal)
        overridden = self.overrides()
        changes = (filters.changes, self._overrides)
        if self._diagnosis is None or changes != self._diagnosed or self.tried:
            refuser = _overridden_by(filters.refuser, overridden)
            self._diagnosis = filters.diagnosis(refuser, overridden)
            self._diagnosed = (-1, -1) if self.tried else changes
        return self._diagnosis

    def sample_diagnosis(self, sample: Int8s, *, is_sample: bool) -> Diagnosis:
        """Return why the filters let no node pass but those of `sample`, whose refuser is 0.

        Those have no status here. is_sample: whether sampling has left out nodes, which are not
        diagnosed then.
        """
        overridden = self.overrides(sample if is_sample else None)
        hidden = np.where(sample == 0, np.int8(OVERRIDDEN), sample)
        return self.filters.diagnosis(_overridden_by(hidden, overridden), overridden)

    def refusal_if_unchanged(self) -> Unschedulable | None:
        """Return the last refusal of the class if nothing at all has changed since."""
        if self._last_refusal is None:
            return None
        changes, verdict = self._last_refusal
        return verdict if changes == self.snapshot.changes else None

    def reuse_refusal(self, key: Hashable) -> Unschedulable | None:
        """Return the refusal of the class that had the same `key`; None has no refusal."""
        verdict = None if key is None else self._refusals.get(key)
        if verdict is not None:
            self._last_refusal = (self.snapshot.changes, verdict)
        return verdict

    def keep_refusal(self, key: Hashable, verdict: Unschedulable) -> None:
        """Keep a refusal without a nomination, which may be used again where `key` is the same.

        That is everything that its message follows from; None where that cannot be said.
        """
        self._last_refusal = (self.snapshot.changes, verdict)
        if key is not None:
            if len(self._refusals) >= _REFUSALS_MAX:
                self._refusals.clear()
            self._refusals[key] = verdict

    def _still_tried(self, refuser: Int8s) -> dict[int, Status]:
        """Return the refusals of `tried` that remain after filtering: of rows that passed then.

        refuser: int8[nodes] of that evaluation, negative where a row was left out.
        """
        return {row: status for row, status in self.tried.items() if refuser[row] <= 0}

    def _rows_of(self, pod: Pod) -> Sequence[int]:
        node = self.snapshot.nominations.node_of(pod.uid)
        if not node and not pod.nominated_node_name:
            return ()
        rows = [self.snapshot.row(name) for name in (node, pod.nominated_node_name)]
        return [row for row in rows if row is not None]

    def _count_nominated(self, changed: Int64s | None) -> None:
        nominations = self.snapshot.nominations
        rows: Iterable[int]
        if changed is None:
            self._overrides += 1
            for kept in (self.overridden, self.counted, self._untried):
                kept.clear()
            nominated = [self.snapshot.row(name) for name in nominations.node_names()]
            rows = [row for row in nominated if row is not None]
        elif not len(changed) or not (self.counted or len(nominations)):
            return
        else:
            rows = dict.fromkeys(changed.tolist())
        for row in rows:
            if self.counted.pop(row, None) is not None:
                self._untried.pop(row, None)
                self._overrides += self.overridden.pop(row, None) is not None
            if nominations.any_on(self.snapshot.name(row)):
                self._count(row)

    def _count(self, row: int) -> None:
        snapshot = self.snapshot
        counted = snapshot.nominations.counted(snapshot.name(row), self._pod)
        if not counted or not snapshot.columns.alive[row]:
            return
        self.counted[row] = counted
        refuser = self.filters.refuser[row]
        if refuser == 0:
            self._try(row)
        elif refuser > 0 and not self.filters.is_refused_before_pods(row):
            self._untried[row] = None

    def _try_others(self) -> None:
        for row in self._untried:
            self._try(row)
        self._untried.clear()

    def _try(self, row: int) -> None:
        filters = self.filters
        refusal = NodeDryRun(self._pod, row, filters.dry_run_filters, self.snapshot).refusal()
        if refusal is not None and (filters.refuser[row] == 0 or refusal != filters.status(row)):
            self.overridden[row] = refusal
            self._overrides += 1


def _overridden_by(refuser: Int8s, overridden: Iterable[int]) -> Int8s:
    """Return `refuser` with OVERRIDDEN in the rows that have another status."""
    if not overridden:
        return refuser
    changed = refuser.copy()
    for row in overridden:
        changed[row] = OVERRIDDEN
    return changed
