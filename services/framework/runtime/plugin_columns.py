"""The verdicts of one plugin by row, for the pods that have one key of it.

The plugin declares what its verdict depends on (`Scope`). From that alone a column knows which of
its rows are stale.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any

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
"""The plugin's version of a column in which every row is stale."""


class Scratch:
    """A buffer for a plugin's results that are not kept; its columns use it in turn."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values = _NOTHING

    def of(self, capacity: int) -> Int64s:
        """Return int64[capacity] with undefined values."""
        if len(self._values) != capacity:
            self._values = np.zeros(capacity, dtype=np.int64)
        return self._values


class PluginColumn(ABC):
    """A plugin's values by row, int64[nodes]; valid right after `sync`.

    The plugin's scope says what makes a row stale. With Scope.NODE that is a change of the node,
    with Scope.PODS one of the pods on it, too. All rows are stale where the log no longer reaches
    back, where the capacity grew, and where the plugin's version differs (a score's epoch). With
    Scope.CLUSTER any row may be stale after any change, but only where the plugin's version
    differs, and then all are, which `all_stale` counts.

    A column with `scratch` keeps nothing: the class that holds it merges each value once.
    """

    __slots__ = (
        "__weakref__",
        "_log",
        "_read_to",
        "_scratch",
        "_snapshot",
        "_version",
        "_whole",
        "all_stale",
        "values",
    )

    def __init__(self, scope: Scope, snapshot: Snapshot, scratch: Scratch | None) -> None:
        self.values = _NOTHING
        self.all_stale = 0
        self._snapshot = snapshot
        self._log = snapshot.node_log if scope is Scope.NODE else snapshot.pod_log
        self._read_to = -1
        self._scratch = scratch
        self._version: Hashable = _STALE
        self._whole = scope is Scope.CLUSTER

    @property
    def is_kept(self) -> bool:
        """Return whether the values are kept, and brought up to date by `sync`."""
        return self._scratch is None

    def at(self, rows: Int64s) -> Int64s:
        """Return int64[nodes] with current values in `rows`, until the plugin is called again."""
        if self._scratch is None:
            self.sync()
            return self.values
        values = self._scratch.of(self._snapshot.columns.capacity)
        self._compute(rows, values)
        return values

    def sync(self) -> None:
        """Compute the stale rows of a kept column."""
        columns = self._snapshot.columns
        fits = len(self.values) == columns.capacity
        if fits and self._read_to == self._log.end:
            return
        version = self._version_now()
        is_same = fits and version == self._version
        if is_same and self._whole:
            self._read_to = self._log.end
            return
        rows = self._log.since(self._read_to) if is_same else None
        if rows is None:
            rows = columns.rows
            self.values = np.zeros(columns.capacity, dtype=np.int64)
            self.all_stale += 1
        self._version = _STALE  # until all is computed: the plugin may fail on the way
        if self._compute(rows, self.values):
            self._read_to, self._version = self._log.end, version

    @abstractmethod
    def _version_now(self) -> Hashable:
        """Return a version that differs whenever all rows are stale."""

    @abstractmethod
    def _compute(self, rows: Int64s, values: Int64s) -> bool:
        """Write the values of `rows`; False where the plugin failed, and its failure is kept."""


class FilterColumn(PluginColumn):
    """The codes of one filter: 0 fits."""

    __slots__ = ("_cluster_plugin", "_statuses", "plugin", "pre")

    def __init__(
        self, plugin: AnyFilter, pod: Pod, snapshot: Snapshot, scratch: Scratch | None
    ) -> None:
        super().__init__(plugin.scope, snapshot, scratch)
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

    def _compute(self, rows: Int64s, values: Int64s) -> bool:
        self.plugin.filter(self.pre.data, self._snapshot, rows, values)
        return True


class ScoreColumn(PluginColumn):
    """The raw scores of one plugin.

    `failure` is how the plugin failed when it last ran, "" where it did not.
    """

    __slots__ = ("_cluster_plugin", "data", "failure", "plugin")

    def __init__(
        self, plugin: AnyScore, pod: Pod, snapshot: Snapshot, scratch: Scratch | None
    ) -> None:
        super().__init__(plugin.scope, snapshot, scratch)
        self.plugin = plugin
        self.data: Any = plugin.pre_score(pod, snapshot)
        self.failure = ""
        self._cluster_plugin = plugin if isinstance(plugin, ClusterScorePlugin) else None

    def _version_now(self) -> Hashable:
        plugin = self._cluster_plugin
        if plugin is not None:
            return plugin.score_version(self.data, self._snapshot)
        return self.plugin.score_epoch(self._snapshot)

    def _compute(self, rows: Int64s, values: Int64s) -> bool:
        try:
            self.plugin.score(self.data, self._snapshot, rows, values)
        except ScoreError as error:
            self.failure = str(error) or type(error).__name__
            return False
        self.failure = ""
        return True
