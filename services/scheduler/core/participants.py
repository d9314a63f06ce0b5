"""Which of a profile's filters and scores have something to say about a pod.

PreFilter and PreScore may leave a plugin out (Skip). Where a profile switches them off for a
plugin that reads what they prepare, its Filter or Score fails, as upstream's does; the others
prepare it when they need it.

Source: kubernetes v1.34 pkg/scheduler/framework/runtime/framework.go, RunPreFilterPlugins,
RunFilterPlugins, RunPreScorePlugins, RunScorePlugins.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from services.kube.pod import Pod
from services.scheduler.core.cached_columns import CachedColumns, FilterColumn, ScoreColumn
from services.scheduler.core.columns import Int64s
from services.scheduler.core.node_view import NodeView
from services.scheduler.core.plugin import (
    AnyFilter,
    AnyScore,
    FilterPlugin,
    PreFiltered,
    Scope,
    ScorePlugin,
)
from services.scheduler.core.prefilter import PreFilterOutcome, pre_filter_outcome
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Code, Status


@dataclass(frozen=True, slots=True)
class WeightedScore:
    """A score plugin and its weight in the profile."""

    plugin: AnyScore
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictPlugins:
    """A profile's plugins at the four points that verdicts come from, in order."""

    pre_filters: tuple[AnyFilter, ...]
    filters: tuple[AnyFilter, ...]
    pre_scores: tuple[AnyScore, ...]
    scores: tuple[WeightedScore, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FiltersAtWork:
    """Columns with the place (from 1) of each filter.

    `skipped` said Skip in PreFilter; `prepared` are those whose PreFilter ran, those among them.
    """

    pre_filter: PreFilterOutcome
    prepared: tuple[str, ...]
    skipped: tuple[str, ...]
    columns: tuple[tuple[int, FilterColumn], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoresAtWork:
    """Columns with their weights; `skipped` said Skip in PreScore.

    `failure` is how scoring fails, "" where it does not.
    """

    skipped: tuple[str, ...]
    columns: tuple[tuple[int, ScoreColumn], ...]
    failure: str


def filters_at_work(
    pod: Pod, plugins: VerdictPlugins, cache: CachedColumns, snapshot: Snapshot
) -> FiltersAtWork:
    """Run PreFilter for `pod`, and return the filters that are left to ask."""
    columns: dict[str, FilterColumn | None] = {}

    def answers() -> Iterator[tuple[str, PreFiltered[Any]]]:
        for plugin in plugins.pre_filters:
            key = plugin.filter_key(pod, snapshot)
            column = None if key is None else cache.filter(plugin, key, pod)
            columns[plugin.name] = column
            if column is not None:
                yield plugin.name, column.pre

    outcome = pre_filter_outcome(answers())
    asked: list[tuple[int, FilterColumn]] = []
    if outcome.refusal is None or len(columns) == len(plugins.pre_filters):
        for number, plugin in enumerate(plugins.filters, 1):
            column = _filter_column(plugin, pod, columns, cache, snapshot)
            if column is not None:
                asked.append((number, column))
    return FiltersAtWork(
        pre_filter=outcome,
        prepared=tuple(columns),
        skipped=tuple(name for name, column in columns.items() if column is None),
        columns=tuple(asked),
    )


def _filter_column(
    plugin: AnyFilter,
    pod: Pod,
    prepared: dict[str, FilterColumn | None],
    cache: CachedColumns,
    snapshot: Snapshot,
) -> FilterColumn | None:
    if plugin.name in prepared:
        return prepared[plugin.name]
    if plugin.needs_pre_filter:
        return cache.filter(UnpreparedFilter(plugin.name), "unprepared", pod)
    key = plugin.filter_key(pod, snapshot)
    return None if key is None else cache.filter(plugin, key, pod)


def scores_at_work(
    pod: Pod, plugins: VerdictPlugins, cache: CachedColumns, snapshot: Snapshot
) -> ScoresAtWork:
    """Run PreScore for `pod`, and return the scores that are left to add."""
    prepared = {plugin.name: plugin.score_key(pod, snapshot) for plugin in plugins.pre_scores}
    columns: list[tuple[int, ScoreColumn]] = []
    failure = ""
    for each in plugins.scores:
        plugin, name = each.plugin, each.plugin.name
        key = prepared[name] if name in prepared else plugin.score_key(pod, snapshot)
        if name not in prepared and plugin.needs_pre_score:
            failure = failure or (
                f'running Score plugins: plugin "{name}" failed with: '
                f'failed to read "PreScore{name}" from cycleState: not found'
            )
        elif key is not None:
            columns.append((each.weight, cache.score(plugin, key, pod)))
        elif name not in prepared and plugin.has_pre_score:
            nothing = NothingToScore(name)
            columns.append((each.weight, cache.score(nothing, "nothing", pod)))
    return ScoresAtWork(
        skipped=tuple(name for name, key in prepared.items() if key is None),
        columns=tuple(columns),
        failure=failure,
    )


class UnpreparedFilter(FilterPlugin[None]):
    """Fails on every node, for want of what PreFilter should have prepared."""

    name = ""
    scope = Scope.NODE
    can_fail = True

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]  # each stands in for another plugin

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return that every pod is alike."""
        return ""

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[None]:  # noqa: ARG002 - unused
        """Return nothing."""
        return PreFiltered(data=None)

    def filter_node(self, data: None, view: NodeView) -> int:  # noqa: ARG002 - every node
        """Fail."""
        return 1

    def filter(self, data: None, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:  # noqa: ARG002 - every row
        """Fail on all rows."""
        codes[rows] = 1

    def filter_status(self, data: None, code: int) -> Status:  # noqa: ARG002 - one status only
        """Return the failure."""
        reason = f'error reading "PreFilter{self.name}" from cycleState: not found'
        return Status(code=Code.ERROR, plugin=self.name, reasons=(reason,))


class NothingToScore(ScorePlugin[None]):
    """Scores 0, where PreScore would have said Skip."""

    name = ""
    scope = Scope.NODE

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]  # each stands in for another plugin

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return that every pod is alike."""
        return ""

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> None:
        """Prepare nothing."""

    def score(self, data: None, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:  # noqa: ARG002 - every row
        """Write 0."""
        scores[rows] = 0
