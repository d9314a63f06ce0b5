"""Columns of several plugins merged by row: the first refusal, and the sum of the scores.

What follows from nodes alone (Scope.NODE) is merged once for all classes that have the same
columns, which are most: `NodeRefusers` and `NodeTotals`, and `Scaled` for the scores that are
normalized. A class merges the rest on top of them (`FilterMerge`, `ScoreMerge`). Only stale rows
are merged again (`StaleRows`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from services.framework.columns import kernels
from services.framework.columns.columns import ChangeLog, Int64s
from services.framework.columns.kernels import Int8s
from services.framework.plugin import Normalization, Scope
from services.framework.runtime.plugin_columns import FilterColumn, ScoreColumn
from services.framework.snapshot.snapshot import Snapshot

NO_NODE = -1
EXCLUDED = -2
"""Negative refusers: the row is not a node; PreFilter excluded it."""

_C = TypeVar("_C", "FilterColumn", "ScoreColumn")
_Merged = TypeVar("_Merged", "NodeRefusers", "NodeTotals", "Scaled")


class MergedColumns:
    """The merged columns that classes share, by weak references."""

    __slots__ = ("_merged", "_snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._merged: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()

    def node_refusers(
        self, filters: Sequence[tuple[int, FilterColumn]], names: frozenset[str] | None
    ) -> NodeRefusers:
        """Return the merged refusals of filters of Scope.NODE."""
        key = (NodeRefusers, names, *filters)
        return self._shared(key, lambda: NodeRefusers(filters, names, self._snapshot))

    def node_totals(self, scores: Sequence[tuple[int, ScoreColumn]], base: int) -> NodeTotals:
        """Return `base` and the scores of Scope.NODE that need no normalizing, added up."""
        key = (NodeTotals, base, *scores)
        return self._shared(key, lambda: NodeTotals(scores, base, self._snapshot))

    def scaled(self, scores: Sequence[tuple[int, ScoreColumn]]) -> Scaled:
        """Return the scores that are normalized by their highest."""
        return self._shared((Scaled, *scores), lambda: Scaled(scores, self._snapshot))

    def _shared(self, key: Hashable, make: Callable[[], _Merged]) -> _Merged:
        merged: _Merged | None = self._merged.get(key)
        if merged is None:
            merged = self._merged[key] = make()
        return merged


class NodeRefusers:
    """The first refusing filter of each row, of those with Scope.NODE; shared between classes.

    refuser, codes: as in FilterVerdicts. names: the nodes that PreFilter lets be evaluated.
    """

    __slots__ = (
        "__weakref__",
        "_names",
        "_refusers",
        "_snapshot",
        "_stale",
        "all_stale",
        "codes",
        "refuser",
    )

    def __init__(
        self,
        filters: Sequence[tuple[int, FilterColumn]],
        names: frozenset[str] | None,
        snapshot: Snapshot,
    ) -> None:
        self._refusers = FilterMerge(filters)
        self._names = names
        self._snapshot = snapshot
        self._stale = StaleRows(snapshot.node_log, [column for _, column in filters], snapshot)
        self.all_stale = 0

    def sync(self) -> None:
        """Evaluate the rows whose node has changed."""
        if self._stale.is_none:
            return
        capacity, rows = self._snapshot.columns.capacity, self._stale.read()
        if rows is None:
            self.all_stale += 1
            self.refuser: Int8s = np.full(capacity, NO_NODE, dtype=np.int8)
            self.codes: Int64s = np.zeros(capacity, dtype=np.int64)
            rows = self._snapshot.columns.rows
        self.refuser[rows], self.codes[rows] = self._before_filters(rows), 0
        self._refusers.merge(rows, (self.refuser, self.codes), self.refuser, self.codes)
        self._stale.done()

    def _before_filters(self, rows: Int64s) -> Int8s:
        names, alive = self._names, self._snapshot.columns.alive[rows]
        refuser = np.where(alive, np.int8(0 if names is None else EXCLUDED), np.int8(NO_NODE))
        if names is not None:
            named = [self._snapshot.row(name) for name in names]
            refuser[np.isin(rows, [row for row in named if row is not None])] = 0
        return refuser


class NodeTotals:
    """The scores of rows by plugins with Scope.NODE, added up; shared between classes.

    totals: int64[nodes], `base` and the weighted scores.
    """

    __slots__ = (
        "__weakref__",
        "_base",
        "_before",
        "_columns",
        "_scores",
        "_snapshot",
        "_stale",
        "all_stale",
        "totals",
    )

    def __init__(
        self, scores: Sequence[tuple[int, ScoreColumn]], base: int, snapshot: Snapshot
    ) -> None:
        self._columns = [column for _, column in scores]
        self._scores = ScoreMerge(scores, Scaled((), snapshot), np.zeros(0, dtype=np.int64))
        self._base = base
        self._snapshot = snapshot
        self._stale = StaleRows(snapshot.node_log, self._columns, snapshot)
        self.all_stale = 0

    def sync(self) -> None:
        """Add up the rows whose node has changed; after a plugin's failure, once more."""
        if self._stale.is_none:
            return
        rows = self._stale.read()
        if rows is None:
            self.all_stale += 1
            capacity = self._snapshot.columns.capacity
            self._before: Int64s = np.full(capacity, self._base, dtype=np.int64)
            self.totals: Int64s = np.zeros(capacity, dtype=np.int64)
            rows = self._snapshot.columns.rows
        self._scores.merge(rows, self._before, self.totals)
        if not any(column.failure for column in self._columns):
            self._stale.done()


class Scaled:
    """The raw scores that are normalized by their highest; shared by the classes of equal ones.

    raw: int64[plugins, nodes]. weights: int64[plugins], negative for scores in reverse.
    full_marks: what the scores in reverse count for before anything is taken off. varies: whether
    any raw score is or was not 0.
    """

    __slots__ = (
        "__weakref__",
        "_columns",
        "_snapshot",
        "_stale",
        "all_stale",
        "full_marks",
        "raw",
        "varies",
        "weights",
    )

    def __init__(self, scores: Sequence[tuple[int, ScoreColumn]], snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._columns = [column for _, column in scores]
        signed = [
            -weight if column.plugin.normalization is Normalization.REVERSE else weight
            for weight, column in scores
        ]
        self.weights = np.array(signed, dtype=np.int64)
        log = snapshot.pod_log if by_scope(scores)[1] else snapshot.node_log
        self._stale = StaleRows(log, self._columns, snapshot)
        self.full_marks = -kernels.NODE_SCORE_MAX * int(self.weights[self.weights < 0].sum())
        self.raw: Int64s = np.zeros((len(scores), 0), dtype=np.int64)
        self.all_stale = 0
        self.varies = False

    def sync(self) -> None:
        """Gather the scores of rows that have changed; after a plugin's failure, once more."""
        if self._stale.is_none or not self._columns:
            return
        rows = self._stale.read()
        if rows is None:
            self.all_stale += 1
            shape = (len(self._columns), self._snapshot.columns.capacity)
            self.raw = np.zeros(shape, dtype=np.int64)
            self.varies = False
            rows = self._snapshot.columns.rows
        for index, column in enumerate(self._columns):
            scores = column.values[rows]
            self.raw[index, rows] = scores
            self.varies |= bool(scores.any())
        if not any(column.failure for column in self._columns):
            self._stale.done()


def by_scope(
    columns: Iterable[tuple[int, _C]],
) -> tuple[list[tuple[int, _C]], list[tuple[int, _C]]]:
    """Return the columns that follow from their node alone, and those that pods may change."""
    by_node: list[tuple[int, _C]] = []
    by_pods: list[tuple[int, _C]] = []
    for number, column in columns:
        (by_node if column.plugin.scope is Scope.NODE else by_pods).append((number, column))
    return by_node, by_pods


class FilterMerge:
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
            answers = column.at(rows)
            changed |= kernels.refuse(rows, answers, number, *before, refuser, codes)
            before = refuser, codes
        return changed


class ScoreMerge:
    """Scores that follow from the same scope, added up in a column of totals.

    Raw scores are normalised by the `highest` of each of their plugins, int64[plugins], which their
    owner keeps up to date.
    """

    __slots__ = ("_columns", "_highest", "_scaled", "_weights")

    def __init__(
        self, scores: Sequence[tuple[int, ScoreColumn]], scaled: Scaled, highest: Int64s
    ) -> None:
        self._columns = [column for _, column in scores]
        # Without scores, what was there before is one of weight 0: the kernel needs one.
        self._weights = np.array([weight for weight, _ in scores] or [0], dtype=np.int64)
        self._scaled = scaled
        self._highest = highest

    def merge(self, rows: Int64s, before: Int64s, totals: Int64s) -> None:
        """Write the totals of `rows`: the totals `before`, plus the weighted scores."""
        scores = tuple(column.at(rows) for column in self._columns) or (before,)
        scaled = self._scaled
        kernels.weigh(
            rows, scores, self._weights, scaled.raw, scaled.weights, self._highest, before, totals
        )


class _Source(Protocol):
    """A column to merge by row; `all_stale` grows when rows have changed that no log names."""

    all_stale: int

    def sync(self) -> None:
        """Bring it up to date."""


class StaleRows:
    """The rows to merge again: those that a log names, or all.

    All they are where a source was computed anew, where the log no longer reaches back, and where
    the rows have grown in number. Rows that were read are read once more unless they are `done`.
    """

    __slots__ = ("_done", "_log", "_read", "_snapshot", "_sources")

    def __init__(self, log: ChangeLog, sources: Sequence[_Source], snapshot: Snapshot) -> None:
        self._log = log
        self._sources = sources
        self._snapshot = snapshot
        self.forget()

    @property
    def is_none(self) -> bool:
        """Return whether nothing that the log names has changed."""
        return self._done[0] == self._log.end

    def read(self) -> Int64s | None:
        """Bring the sources up to date, and return the rows, some maybe twice; None means all."""
        for source in self._sources:
            source.sync()
        computed = [source.all_stale for source in self._sources]
        self._read = (self._log.end, self._snapshot.columns.capacity, computed)
        if self._read[1:] != self._done[1:]:
            return None
        return self._log.since(self._done[0])

    def done(self) -> None:
        """Note that the rows that were read last are merged."""
        self._done = self._read

    def forget(self) -> None:
        """Read all rows the next time."""
        self._read = self._done = (-1, 0, [])


def kept_columns(columns: Iterable[_C]) -> Sequence[_C]:
    """Return the columns that keep their rows, which `sync` brings up to date."""
    return [column for column in columns if column.is_kept]
