"""All verdicts about one equivalence class of pods: what refuses each row, and the rows' scores.

Pods with one spec and one spec.nodeName are equivalent, if they also have the same keys for the
plugins whose keys follow from more (`Plugin.keys_follow_pod`). The class merges its plugins'
columns into `refuser` and `codes` and, where nodes are left to score, into totals. When pods come
and go it merges the changed rows again; when a node changes, or what a plugin reads of the whole
cluster, it merges all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from services.framework.columns import kernels
from services.framework.columns.columns import Int64s
from services.framework.columns.kernels import OVERRIDDEN, Int8s
from services.framework.plugin import (
    Bounds,
    ClusterFilterPlugin,
    Normalization,
    PodColumnsPlugin,
    Scope,
)
from services.framework.runtime.active_plugins import (
    ConfiguredPlugins,
    active_filters,
    active_scores,
)
from services.framework.runtime.cached_columns import CachedColumns, FilterColumn, ScoreColumn
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
            changed |= kernels.refuse(rows, column.codes, number, *before, refuser, codes)
            before = refuser, codes
        return changed


class _Rewritten:
    """Reports whether columns were recomputed in rows that no log names, since the last call."""

    __slots__ = ("_columns", "_counts")

    def __init__(self, columns: Sequence[FilterColumn | ScoreColumn]) -> None:
        self._columns = [each for each in columns if each.plugin.scope is Scope.CLUSTER]
        self._counts = [0] * len(self._columns)

    def seen(self) -> bool:
        if not self._columns:
            return False
        for column in self._columns:
            column.sync()
        before, self._counts = self._counts, [each.rewritten for each in self._columns]
        return self._counts != before


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
        scores = tuple(column.scores for column in self._columns)
        kernels.weigh(rows, scores, self._weights, before, totals)


class EquivalenceClass:
    """Verdicts about one equivalence class; valid right after `sync`.

    refuser: int8[nodes]; 0 fits, a number is the place (from 1) of the first refusing filter.
    codes: int64[nodes], that filter's code. `version` grows whenever any of these may have changed,
    and `epoch` whenever that may be so in rows that no log names. `normalized_totals` returns the
    scores of those that fit.
    """

    def __init__(
        self, pod: Pod, plugins: ConfiguredPlugins, cache: CachedColumns, snapshot: Snapshot
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
        self._filters_rewritten = _Rewritten([column for _, column in self._pod_filters])
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
        self._scores_rewritten = _Rewritten([column for _, column in pod_scores])
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

    def filter_failure(self, refuser: Int8s) -> Status | None:
        """Return the error of the first row on which a filter failed, None where none did."""
        for number, column in self._failing:
            rows = np.flatnonzero(refuser == number)
            for code in dict.fromkeys(column.codes[rows].tolist()):
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
                column.data, self._snapshot, rows, column.scores[rows]
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
            self._filters_rewritten.seen()
            self.version += 1
            self._refuse_by_node()
            self._refuse_by_pods(snapshot.columns.rows)
        elif snapshot.pod_log.end == self._pods_seen:
            return
        else:
            changed = snapshot.pod_log.since(self._pods_seen)
            if self._filters_rewritten.seen() or changed is None:
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
            self._scores_rewritten.seen()
            self._allocate_totals(columns.capacity)
            totals = self._node_totals
            self._scored_by_node.merge(columns.rows, totals, totals)
            self._scored_by_pods.merge(columns.rows, totals, self._totals)
            self._merge_scaled()
        elif snapshot.pod_log.end == self._pods_scored:
            return
        else:
            changed = snapshot.pod_log.since(self._pods_scored)
            if self._scores_rewritten.seen() or changed is None:
                changed = columns.rows
            self._scored_by_pods.merge(changed, self._node_totals, self._totals)
            if self._scaled_by_pods:
                self._merge_scaled()
        self._nodes_scored = snapshot.node_log.end
        self._pods_scored = snapshot.pod_log.end

    def _merge_scaled(self) -> None:
        for index, scaled in enumerate(self._scaled):
            scaled.sync()
            self._raw[index] = scaled.scores
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
