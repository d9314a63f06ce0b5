"""The verdicts of one plugin about one kind of pod, cached for all rows and kept up to date.

A column belongs to (plugin, key): every pod for which the plugin returns the same key shares it.
A column is exact. It recomputes the rows that the change log of its plugin's scope names, and all
rows where the log no longer reaches back, the capacity grew, or the plugin's epoch changed. With
Scope.CLUSTER it recomputes all rows, but only where the plugin's version differs.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from services.framework.columns.columns import ChangeLog, Int64s
from services.framework.plugin import (
    AnyFilter,
    AnyScore,
    ClusterFilterPlugin,
    ClusterScorePlugin,
    Scope,
    ScoreError,
)
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Status
from services.kube.pod import Pod

_NOTHING: Int64s = np.zeros(0, dtype=np.int64)


class FilterColumn:
    """Codes of one filter, int64[nodes] in `codes`, right after `sync`.

    `rewritten` counts how often rows were recomputed that no log names.
    """

    __slots__ = (
        "__weakref__",
        "_log",
        "_position",
        "_snapshot",
        "_statuses",
        "_version",
        "_whole",
        "codes",
        "plugin",
        "pre",
        "rewritten",
    )

    def __init__(self, plugin: AnyFilter, pod: Pod, snapshot: Snapshot) -> None:
        self.plugin = plugin
        self.pre = plugin.pre_filter(pod, snapshot)
        self.codes = _NOTHING
        self._snapshot = snapshot
        self._log = _log(plugin.scope, snapshot)
        self._position = -1
        self._statuses: dict[int, Status] = {}
        self._version: Hashable = None
        self._whole = plugin if isinstance(plugin, ClusterFilterPlugin) else None
        self.rewritten = 0

    def sync(self) -> None:
        """Recompute what changed."""
        capacity = self._snapshot.columns.capacity
        if self._position == self._log.end and len(self.codes) == capacity:
            return
        if self._whole is not None:
            self._sync_whole(self._whole, capacity)
            return
        rows = self._log.since(self._position) if len(self.codes) == capacity else None
        if rows is None:
            rows = self._snapshot.columns.rows
            self.codes = np.zeros(capacity, dtype=np.int64)
        self._position = -1
        self.plugin.filter(self.pre.data, self._snapshot, rows, self.codes)
        self._position = self._log.end

    def _sync_whole(self, plugin: ClusterFilterPlugin[Any], capacity: int) -> None:
        self._position = -1
        version = plugin.filter_version(self.pre.data, self._snapshot)
        if version != self._version or len(self.codes) != capacity:
            self._version = None
            self.codes = np.zeros(capacity, dtype=np.int64)
            plugin.filter(self.pre.data, self._snapshot, self._snapshot.columns.rows, self.codes)
            self._version = version
            self.rewritten += 1
        self._position = self._log.end

    def status(self, code: int) -> Status:
        """Return the status of a code other than 0."""
        status = self._statuses.get(code)
        if status is None:
            status = self._statuses[code] = self.plugin.filter_status(self.pre.data, code)
        return status


class ScoreColumn:
    """Raw scores of one plugin, int64[nodes] in `scores`, right after `sync`.

    `failure` is how the plugin failed when it last ran, "" where it did not; it runs again when a
    node or a pod has changed. `rewritten` counts how often rows were recomputed that
    no log names.
    """

    __slots__ = (
        "__weakref__",
        "_epoch",
        "_log",
        "_position",
        "_snapshot",
        "_version",
        "_whole",
        "data",
        "failure",
        "plugin",
        "rewritten",
        "scores",
    )

    def __init__(self, plugin: AnyScore, pod: Pod, snapshot: Snapshot) -> None:
        self.plugin = plugin
        self.scores = _NOTHING
        self.failure = ""
        self.data: Any = plugin.pre_score(pod, snapshot)
        self._snapshot = snapshot
        self._log = _log(plugin.scope, snapshot)
        self._position = -1
        self._epoch = plugin.score_epoch(snapshot)
        self._version: Hashable = None
        self._whole = plugin if isinstance(plugin, ClusterScorePlugin) else None
        self.rewritten = 0

    def sync(self) -> None:
        """Recompute what changed."""
        capacity = self._snapshot.columns.capacity
        if self._position == self._log.end and len(self.scores) == capacity:
            return
        if self._whole is not None:
            self._sync_whole(self._whole, capacity)
            return
        epoch = self.plugin.score_epoch(self._snapshot)
        whole = epoch != self._epoch or len(self.scores) != capacity
        rows = None if whole else self._log.since(self._position)
        if rows is None:
            rows = self._snapshot.columns.rows
            self.scores = np.zeros(capacity, dtype=np.int64)
        self._position, self._epoch = self._log.end, epoch
        self._score(rows)

    def _sync_whole(self, plugin: ClusterScorePlugin[Any], capacity: int) -> None:
        self._position = self._log.end
        version = plugin.score_version(self.data, self._snapshot)
        if version == self._version and len(self.scores) == capacity:
            return
        self._version = version
        self.scores = np.zeros(capacity, dtype=np.int64)
        self._score(self._snapshot.columns.rows)
        self.rewritten += 1

    def _score(self, rows: Int64s) -> None:
        try:
            self.plugin.score(self.data, self._snapshot, rows, self.scores)
            self.failure = ""
        except ScoreError as error:
            self.failure = str(error) or type(error).__name__
            self._position, self._version = -1, None


class CachedColumns:
    """The columns that some equivalence class holds, by weak references."""

    __slots__ = ("_filters", "_scores", "_snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._filters: WeakValueDictionary[tuple[str, Hashable], FilterColumn] = (
            WeakValueDictionary()
        )
        self._scores: WeakValueDictionary[tuple[str, Hashable], ScoreColumn] = WeakValueDictionary()

    def filter(self, plugin: AnyFilter, key: Hashable, pod: Pod) -> FilterColumn:
        """Return the column of a filter for pods of that key."""
        column = self._filters.get((plugin.name, key))
        if column is None:
            column = FilterColumn(plugin, pod, self._snapshot)
            self._filters[plugin.name, key] = column
        return column

    def score(self, plugin: AnyScore, key: Hashable, pod: Pod) -> ScoreColumn:
        """Return the column of a score for pods of that key."""
        column = self._scores.get((plugin.name, key))
        if column is None:
            column = ScoreColumn(plugin, pod, self._snapshot)
            self._scores[plugin.name, key] = column
        return column


def _log(scope: Scope, snapshot: Snapshot) -> ChangeLog:
    return snapshot.node_log if scope is Scope.NODE else snapshot.pod_log
