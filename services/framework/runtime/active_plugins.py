"""Which of a profile's filters and scores are active for a pod.

PreFilter lets a pod continue with all nodes, with some, or not at all. PreFilter and PreScore may
skip a plugin. Where a profile disables one of them for a plugin whose Filter or Score reads what it
prepares, that Filter or Score fails, as upstream's does; other plugins prepare it when they need
it.

Source: kubernetes v1.34 pkg/scheduler/framework/runtime/framework.go, RunPreFilterPlugins,
RunFilterPlugins, RunPreScorePlugins, RunScorePlugins.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from services.framework.columns.columns import Int64s
from services.framework.plugin import (
    AnyFilter,
    AnyScore,
    FilterPlugin,
    PreFiltered,
    Scope,
    ScorePlugin,
)
from services.framework.runtime.plugin_columns import FilterColumn, PluginColumns, ScoreColumn
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.pod import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class PreFilterOutcome:
    """What PreFilter leaves: a `refusal` of the whole pod, or the only `node_names` to evaluate.

    Without either, all nodes are evaluated. `plugins` are those that named the nodes.
    """

    refusal: Status | None = None
    node_names: frozenset[str] | None = None
    plugins: tuple[str, ...] = ()

    @property
    def excluded(self) -> Status:
        """Return the status of the nodes that are not evaluated, under the first plugin's name."""
        reason = f"node(s) didn't satisfy plugin(s) {_listed(self.plugins)}"
        first = self.plugins[0] if self.plugins else ""
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code, plugin=first, reasons=(reason,))


def pre_filter_outcome(answers: Iterable[tuple[str, PreFiltered[Any]]]) -> PreFilterOutcome:
    """Merge the plugins' PreFilter results, in their order.

    An unresolvable refusal ends PreFilter; after one that preemption may resolve, the other plugins
    still run. Disjoint sets of node names refuse the pod.
    """
    refusal: Status | None = None
    names: frozenset[str] | None = None
    plugins: list[str] = []
    for plugin, answer in answers:
        if answer.refusal is not None:
            refusal = answer.refusal
            if refusal.code is not Code.UNSCHEDULABLE:
                return PreFilterOutcome(refusal=refusal)
            continue
        if answer.node_names is not None:
            plugins.append(plugin)
            names = answer.node_names if names is None else names & answer.node_names
        if names is not None and not names:
            return PreFilterOutcome(refusal=_disagreement(plugins), plugins=tuple(sorted(plugins)))
    return PreFilterOutcome(refusal=refusal, node_names=names, plugins=tuple(sorted(plugins)))


def _disagreement(plugins: list[str]) -> Status:
    if len(plugins) == 1:
        reason = f"node(s) didn't satisfy plugin {plugins[0]}"
    else:
        reason = f"node(s) didn't satisfy plugin(s) {_listed(sorted(plugins))} simultaneously"
    return Status(code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons=(reason,))


def _listed(names: Iterable[str]) -> str:
    return f"[{' '.join(names)}]"


@dataclass(frozen=True, slots=True)
class WeightedScore:
    """A score plugin and its weight in the profile."""

    plugin: AnyScore
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredPlugins:
    """A profile's plugins at the four points that verdicts come from, in order."""

    pre_filters: tuple[AnyFilter, ...]
    filters: tuple[AnyFilter, ...]
    pre_scores: tuple[AnyScore, ...]
    scores: tuple[WeightedScore, ...]


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


def active_filters(
    pod: Pod, plugins: ConfiguredPlugins, cache: PluginColumns, snapshot: Snapshot
) -> ActiveFilters:
    """Run PreFilter for `pod`, and return the filters that are left to run."""
    columns: dict[str, FilterColumn | None] = {}

    def results() -> Iterator[tuple[str, PreFiltered[Any]]]:
        for plugin in plugins.pre_filters:
            key = plugin.filter_key(pod, snapshot)
            column = None if key is None else cache.filter(plugin, key, pod)
            columns[plugin.name] = column
            if column is not None:
                yield plugin.name, column.pre

    outcome = pre_filter_outcome(results())
    active: list[tuple[int, FilterColumn]] = []
    if outcome.refusal is None or len(columns) == len(plugins.pre_filters):
        for number, plugin in enumerate(plugins.filters, 1):
            column = _filter_column(plugin, pod, columns, cache, snapshot)
            if column is not None:
                active.append((number, column))
    return ActiveFilters(
        pre_filter=outcome,
        prepared=tuple(columns),
        skipped=tuple(name for name, column in columns.items() if column is None),
        columns=tuple(active),
    )


def _filter_column(
    plugin: AnyFilter,
    pod: Pod,
    prepared: dict[str, FilterColumn | None],
    cache: PluginColumns,
    snapshot: Snapshot,
) -> FilterColumn | None:
    if plugin.name in prepared:
        return prepared[plugin.name]
    if plugin.needs_pre_filter:
        return cache.filter(UnpreparedFilter(plugin.name), "unprepared", pod)
    key = plugin.filter_key(pod, snapshot)
    return None if key is None else cache.filter(plugin, key, pod)


def active_scores(
    pod: Pod, plugins: ConfiguredPlugins, cache: PluginColumns, snapshot: Snapshot
) -> ActiveScores:
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
    return ActiveScores(
        skipped=tuple(name for name, key in prepared.items() if key is None),
        columns=tuple(columns),
        failure=failure,
    )


class UnpreparedFilter(FilterPlugin[None]):
    """Fails on every node, because the profile disables the PreFilter that prepares its data."""

    name = ""
    scope = Scope.NODE
    can_fail = True

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]  # each replaces another plugin

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return one key: the failure is the same for every pod."""
        return ""

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[None]:  # noqa: ARG002 - unused
        """Prepare no data: the failure needs none."""
        return PreFiltered(data=None)

    def filter_node(self, data: None, view: NodeView) -> int:  # noqa: ARG002 - every node
        """Return the code of the failure, on every node."""
        return 1

    def filter(self, data: None, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:  # noqa: ARG002 - every row
        """Write the code of the failure into all rows."""
        codes[rows] = 1

    def filter_status(self, data: None, code: int) -> Status:  # noqa: ARG002 - one status only
        """Return the error of a Filter whose state is missing in upstream's CycleState."""
        reason = f'error reading "PreFilter{self.name}" from cycleState: not found'
        return Status(code=Code.ERROR, plugin=self.name, reasons=(reason,))


class NothingToScore(ScorePlugin[None]):
    """Scores 0 where PreScore would have returned Skip."""

    name = ""
    scope = Scope.NODE

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]  # each replaces another plugin

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return one key: the score is the same for every pod."""
        return ""

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> None:
        """Prepare no data: the score needs none."""

    def score(self, data: None, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:  # noqa: ARG002 - every row
        """Write 0."""
        scores[rows] = 0
