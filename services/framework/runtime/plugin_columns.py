"""The verdicts of one plugin by row, for the pods that have one key of it.

The plugin declares what its verdict depends on (`Scope`). From that alone a column knows which of
its rows are stale. `PluginColumns` has the columns of all keys, and runs PreFilter and PreScore to
find those of a pod.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from services.framework.columns.columns import Int64s
from services.framework.plugin import (
    AnyFilter,
    AnyScore,
    ClusterFilterPlugin,
    ClusterScorePlugin,
    PreFiltered,
    Scope,
    ScoreError,
)
from services.framework.runtime.diagnosis import PreFilterOutcome, pre_filter_outcome
from services.framework.runtime.profile_plugins import (
    ConfiguredPlugins,
    NothingToScore,
    UnpreparedFilter,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveFilters:
    """The columns of the filters that did not skip, with the place (from 1) of each filter.

    `prepared` are the plugins whose PreFilter ran, and `skipped` those of them that returned Skip.
    """

    pre_filter: PreFilterOutcome
    prepared: tuple[str, ...]
    skipped: tuple[str, ...]
    columns: tuple[tuple[int, FilterColumn], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveScores:
    """The columns of the scores with their weights; `skipped` returned Skip in PreScore.

    `failure` is how scoring fails, "" where it does not.
    """

    skipped: tuple[str, ...]
    columns: tuple[tuple[int, ScoreColumn], ...]
    failure: str


class PluginColumns:
    """The columns that equivalence classes share, by weak references."""

    __slots__ = ("_filters", "_scores", "_scratch", "_snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._filters: WeakValueDictionary[tuple[str, Hashable], FilterColumn] = (
            WeakValueDictionary()
        )
        self._scores: WeakValueDictionary[tuple[str, Hashable], ScoreColumn] = WeakValueDictionary()
        self._scratch: defaultdict[str, Scratch] = defaultdict(Scratch)

    def active_filters(self, pod: Pod, plugins: ConfiguredPlugins) -> ActiveFilters:
        """Run PreFilter for `pod`, and return the filters that are left to run."""
        columns: dict[str, FilterColumn | None] = {}

        def results() -> Iterator[tuple[str, PreFiltered[Any]]]:
            for plugin in plugins.pre_filters:
                key = plugin.filter_key(pod, self._snapshot)
                column = None if key is None else self.filter(plugin, key, pod)
                columns[plugin.name] = column
                if column is not None:
                    yield plugin.name, column.pre

        outcome = pre_filter_outcome(results())
        active: list[tuple[int, FilterColumn]] = []
        if outcome.refusal is None or len(columns) == len(plugins.pre_filters):
            for number, plugin in enumerate(plugins.filters, 1):
                column = self._filter_column(plugin, pod, columns)
                if column is not None:
                    active.append((number, column))
        return ActiveFilters(
            pre_filter=outcome,
            prepared=tuple(columns),
            skipped=tuple(name for name, column in columns.items() if column is None),
            columns=tuple(active),
        )

    def _filter_column(
        self, plugin: AnyFilter, pod: Pod, prepared: dict[str, FilterColumn | None]
    ) -> FilterColumn | None:
        if plugin.name in prepared:
            return prepared[plugin.name]
        if plugin.needs_pre_filter:
            unprepared = UnpreparedFilter(plugin.name, plugin.unprepared_text)
            return self.filter(unprepared, "unprepared", pod)
        key = plugin.filter_key(pod, self._snapshot)
        return None if key is None else self.filter(plugin, key, pod)

    def active_scores(self, pod: Pod, plugins: ConfiguredPlugins) -> ActiveScores:
        """Run PreScore for `pod`, and return the scores that are left to add."""
        prepared = {
            plugin.name: plugin.score_key(pod, self._snapshot) for plugin in plugins.pre_scores
        }
        columns: list[tuple[int, ScoreColumn]] = []
        failure = ""
        for weighted in plugins.scores:
            plugin, name = weighted.plugin, weighted.plugin.name
            key = prepared[name] if name in prepared else plugin.score_key(pod, self._snapshot)
            if name not in prepared and plugin.needs_pre_score:
                failure = failure or (
                    f'running Score plugins: plugin "{name}" failed with: '
                    f'failed to read "PreScore{name}" from cycleState: not found'
                )
            elif key is not None:
                columns.append((weighted.weight, self.score(plugin, key, pod)))
            elif name not in prepared:
                columns.append((weighted.weight, self.score(NothingToScore(name), "nothing", pod)))
        return ActiveScores(
            skipped=tuple(name for name, key in prepared.items() if key is None),
            columns=tuple(columns),
            failure=failure,
        )

    def filter(self, plugin: AnyFilter, key: Hashable, pod: Pod) -> FilterColumn:
        """Return the column of a filter for pods of that key."""
        column = self._filters.get((plugin.name, key))
        if column is None:
            column = FilterColumn(plugin, pod, self._snapshot, self._scratch_of(plugin))
            self._filters[plugin.name, key] = column
        return column

    def score(self, plugin: AnyScore, key: Hashable, pod: Pod) -> ScoreColumn:
        """Return the column of a score for pods of that key."""
        column = self._scores.get((plugin.name, key))
        if column is None:
            column = ScoreColumn(plugin, pod, self._snapshot, self._scratch_of(plugin))
            self._scores[plugin.name, key] = column
        return column

    def _scratch_of(self, plugin: AnyFilter | AnyScore) -> Scratch | None:
        keeps_rows = plugin.keeps_rows or plugin.scope is not Scope.PODS
        return None if keeps_rows else self._scratch[plugin.name]
