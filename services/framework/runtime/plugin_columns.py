"""What each plugin says about pods of one key, on every row: kept, and computed again where stale.

A column belongs to (plugin, key): every pod for which the plugin returns the same key shares it.
The plugin's scope says what makes a row stale. With Scope.NODE that is a change of the node, with
Scope.PODS one of the pods on it, too: the snapshot's logs name such rows, and only they are
computed again; all rows are where the log no longer reaches back, where the capacity grew, and
where the version of the plugin differs (a score's epoch). With Scope.CLUSTER any row may be stale
after any change, but only where the plugin's version differs, and then all are.

Three words, here and in `verdicts.py`: a *position* in a log says up to which change something has
followed; a *version* differs whenever anything may differ; an *epoch* grows whenever rows may have
changed that no log names, so that a reader of the log must read every row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from services.framework.columns.columns import Int64s
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
_STALE = object()
"""The version of a column of which every row has to be computed."""


class PluginColumn(ABC):
    """A plugin's values by row, int64[nodes]; valid right after `sync`."""

    __slots__ = (
        "__weakref__",
        "_log",
        "_position",
        "_snapshot",
        "_version",
        "_whole",
        "epoch",
        "values",
    )

    def __init__(self, scope: Scope, snapshot: Snapshot) -> None:
        self.values = _NOTHING
        self.epoch = 0
        self._snapshot = snapshot
        self._log = snapshot.node_log if scope is Scope.NODE else snapshot.pod_log
        self._position = -1
        self._version: Hashable = _STALE
        self._whole = scope is Scope.CLUSTER

    def sync(self) -> None:
        """Compute what is stale."""
        columns = self._snapshot.columns
        fits = len(self.values) == columns.capacity
        if fits and self._position == self._log.end:
            return
        version = self._version_now()
        is_same = fits and version == self._version
        if is_same and self._whole:
            self._position = self._log.end
            return
        rows = self._log.since(self._position) if is_same else None
        if rows is None:
            rows = columns.rows
            self.values = np.zeros(columns.capacity, dtype=np.int64)
            self.epoch += self._whole
        self._version = _STALE  # until all is computed: the plugin may fail on the way
        if self._compute(rows):
            self._position, self._version = self._log.end, version

    @abstractmethod
    def _version_now(self) -> Hashable:
        """Return what differs whenever all rows are stale."""

    @abstractmethod
    def _compute(self, rows: Int64s) -> bool:
        """Write the values of `rows`; False where the plugin failed, and its failure is kept."""


class FilterColumn(PluginColumn):
    """The codes of one filter: 0 fits."""

    __slots__ = ("_cluster_plugin", "_statuses", "plugin", "pre")

    def __init__(self, plugin: AnyFilter, pod: Pod, snapshot: Snapshot) -> None:
        super().__init__(plugin.scope, snapshot)
        self.plugin = plugin
        self.pre = plugin.pre_filter(pod, snapshot)
        self._cluster_plugin = plugin if isinstance(plugin, ClusterFilterPlugin) else None
        self._statuses: dict[int, Status] = {}

    def status(self, code: int) -> Status:
        """Return the status of a code other than 0."""
        status = self._statuses.get(code)
        if status is None:
            status = self._statuses[code] = self.plugin.filter_status(self.pre.data, code)
        return status

    def _version_now(self) -> Hashable:
        plugin = self._cluster_plugin
        return None if plugin is None else plugin.filter_version(self.pre.data, self._snapshot)

    def _compute(self, rows: Int64s) -> bool:
        self.plugin.filter(self.pre.data, self._snapshot, rows, self.values)
        return True


class ScoreColumn(PluginColumn):
    """The raw scores of one plugin.

    `failure` is how the plugin failed when it last ran, "" where it did not.
    """

    __slots__ = ("_cluster_plugin", "data", "failure", "plugin")

    def __init__(self, plugin: AnyScore, pod: Pod, snapshot: Snapshot) -> None:
        super().__init__(plugin.scope, snapshot)
        self.plugin = plugin
        self.data: Any = plugin.pre_score(pod, snapshot)
        self.failure = ""
        self._cluster_plugin = plugin if isinstance(plugin, ClusterScorePlugin) else None

    def _version_now(self) -> Hashable:
        plugin = self._cluster_plugin
        if plugin is not None:
            return plugin.score_version(self.data, self._snapshot)
        return self.plugin.score_epoch(self._snapshot)

    def _compute(self, rows: Int64s) -> bool:
        try:
            self.plugin.score(self.data, self._snapshot, rows, self.values)
        except ScoreError as error:
            self.failure = str(error) or type(error).__name__
            return False
        self.failure = ""
        return True


class PluginColumns:
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
