"""All verdicts about one shape of pod: who refuses each row, and what the others are worth.

Pods of one spec (and one spec.nodeName) are one shape. The shape merges its plugins' columns into
`refuser` and `totals`; when pods come and go, it merges the rows concerned again; when a node
changes, all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.kube.pod import Pod
from services.scheduler.core import kernels, twins
from services.scheduler.core.cached_columns import CachedColumns, FilterColumn, ScoreColumn
from services.scheduler.core.columns import Int64s
from services.scheduler.core.kernels import Int8s
from services.scheduler.core.plugin import AnyFilter, AnyScore, Normalization, Scope
from services.scheduler.core.prefilter import PreFilterOutcome, pre_filter_outcome
from services.scheduler.core.snapshot import Snapshot

NO_NODE = -1
EXCLUDED = -2
"""Negative refusers: the row is no node; PreFilter left it out."""

EQUAL_SCORE = 1
"""What every node is worth where no score plugin is configured.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, prioritizeNodes; v1.16 EqualPriorityMap.
"""


@dataclass(frozen=True, slots=True)
class WeightedScore:
    """A score plugin and its weight in the profile."""

    plugin: AnyScore
    weight: int


class _Refusers:
    """Filters that follow from the same scope, merged into a column of refusers."""

    __slots__ = ("_filters",)

    def __init__(self, filters: Sequence[tuple[int, FilterColumn]]) -> None:
        self._filters = filters

    def merge(self, rows: Int64s, before: Int8s, refuser: Int8s) -> None:
        """Write the refusers of `rows`, where nobody refused them `before`."""
        if not self._filters:
            refuser[rows] = before[rows]
        for number, column in self._filters:
            column.sync()
            kernels.refuse(rows, column.codes, number, before, refuser)
            before = refuser


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


class Shape:
    """Verdicts about one shape; right after `sync`.

    refuser: int8[nodes]; 0 fits, a number is the place (from 1) of the first refusing filter.
    `normalized_totals` gives what those that fit are worth.
    """

    def __init__(
        self,
        pod: Pod,
        filters: Sequence[AnyFilter],
        scores: Sequence[WeightedScore],
        cache: CachedColumns,
        snapshot: Snapshot,
    ) -> None:
        self._snapshot = snapshot
        keys = [(plugin, plugin.filter_key(pod, snapshot)) for plugin in filters]
        self.skipped_filters = tuple(plugin.name for plugin, key in keys if key is None)
        self.filters: tuple[tuple[int, FilterColumn], ...] = tuple(
            (number, cache.filter(plugin, key, pod))
            for number, (plugin, key) in enumerate(keys, 1)
            if key is not None
        )
        self.pre_filter: PreFilterOutcome = pre_filter_outcome(
            [(column.plugin.name, column.pre) for _, column in self.filters]
        )
        score_keys = [(each, each.plugin.score_key(pod, snapshot)) for each in scores]
        self.skipped_scores = tuple(each.plugin.name for each, key in score_keys if key is None)
        self.scores: tuple[tuple[int, ScoreColumn], ...] = tuple(
            (each.weight, cache.score(each.plugin, key, pod))
            for each, key in score_keys
            if key is not None
        )
        self._split()
        self._base = self._full_marks if scores else EQUAL_SCORE
        self._nodes_seen = self._pods_seen = -1
        self._allocate(0)

    def _split(self) -> None:
        plain = [each for each in self.scores if _is_plain(each[1])]
        scaled = [each for each in self.scores if not _is_plain(each[1])]
        self._pod_filters = [e for e in self.filters if e[1].plugin.scope is Scope.PODS]
        node_filters = [e for e in self.filters if e[1].plugin.scope is Scope.NODE]
        self._refused_by_node = _Refusers(node_filters)
        self._refused_by_pods = _Refusers(self._pod_filters)
        node_scores = [e for e in plain if e[1].plugin.scope is Scope.NODE]
        pod_scores = [e for e in plain if e[1].plugin.scope is Scope.PODS]
        self._scored_by_node = _Scores(node_scores)
        self._scored_by_pods = _Scores(pod_scores)
        self._scaled = [column for _, column in scaled]
        self._scaled_by_pods = any(e[1].plugin.scope is Scope.PODS for e in scaled)
        self._weights = np.array([weight for weight, _ in scaled], dtype=np.int64)
        reverse = [each[1].plugin.normalization is Normalization.REVERSE for each in scaled]
        self._reverse = np.array(reverse, dtype=np.int64)
        self._full_marks = twins.NODE_SCORE_MAX * int(self._weights @ self._reverse)

    @property
    def pod_filters(self) -> Sequence[tuple[int, FilterColumn]]:
        """Return the filters whose verdict the pods on a node may change."""
        return self._pod_filters

    @property
    def fit_only(self) -> bool:
        """Tell whether NodeResourcesFit is the one filter that leaving pods can satisfy."""
        return [column.plugin.name for _, column in self._pod_filters] == ["NodeResourcesFit"]

    def fit_alone(self, rows: Int64s) -> FilterColumn | None:
        """Return the column of NodeResourcesFit where no other filter can refuse any of `rows`.

        None where one can, whatever pods may leave or come.
        """
        if not self.fit_only or self._node_refuser[rows].any():
            return None
        return self._pod_filters[0][1]

    def normalized_totals(self, refuser: Int8s) -> Int64s:
        """Return the weighted totals, int64[nodes], normalised over the rows that `refuser` spares.

        A score in reverse counts as its 100, which `_totals` hold, less what it is taken down by.
        """
        if not self._varies:
            return self._totals
        rows = self._snapshot.columns.rows
        return kernels.normalize(
            rows, refuser, self._raw, self._weights, self._reverse, self._totals
        )

    def sync(self) -> None:
        """Bring everything up to date."""
        snapshot = self._snapshot
        if snapshot.node_log.end != self._nodes_seen:
            self._merge_nodes()
            self._merge_pods(snapshot.columns.rows)
            self._merge_scaled()
        elif snapshot.pod_log.end == self._pods_seen:
            return
        else:
            changed = snapshot.pod_log.since(self._pods_seen)
            self._merge_pods(snapshot.columns.rows if changed is None else changed)
            if self._scaled_by_pods:
                self._merge_scaled()
        self._nodes_seen = snapshot.node_log.end
        self._pods_seen = snapshot.pod_log.end

    def _merge_nodes(self) -> None:
        columns = self._snapshot.columns
        self._allocate(columns.capacity)
        self._node_refuser[~columns.alive] = NO_NODE
        self._exclude()
        refuser, totals = self._node_refuser, self._node_totals
        self._refused_by_node.merge(columns.rows, refuser, refuser)
        self._scored_by_node.merge(columns.rows, totals, totals)

    def _merge_pods(self, rows: Int64s) -> None:
        self._refused_by_pods.merge(rows, self._node_refuser, self.refuser)
        self._scored_by_pods.merge(rows, self._node_totals, self._totals)

    def _merge_scaled(self) -> None:
        for index, scaled in enumerate(self._scaled):
            scaled.sync()
            self._raw[index] = scaled.scores
        self._varies = bool(self._raw.any())

    def _exclude(self) -> None:
        names = self.pre_filter.node_names
        if names is None:
            return
        rows = [row for row in map(self._snapshot.row, sorted(names)) if row is not None]
        left_out = self._snapshot.columns.alive.copy()
        left_out[rows] = False
        self._node_refuser[left_out] = EXCLUDED

    def _allocate(self, capacity: int) -> None:
        self._varies = False
        self.refuser: Int8s = np.full(capacity, NO_NODE, dtype=np.int8)
        self._node_refuser: Int8s = np.zeros(capacity, dtype=np.int8)
        self._totals: Int64s = np.zeros(capacity, dtype=np.int64)
        self._node_totals: Int64s = np.full(capacity, self._base, dtype=np.int64)
        self._raw: Int64s = np.zeros((len(self._scaled), capacity), dtype=np.int64)


def _is_plain(column: ScoreColumn) -> bool:
    return column.plugin.normalization is Normalization.NONE
