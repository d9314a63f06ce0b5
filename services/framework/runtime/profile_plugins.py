"""Determines which plugins of a profile run at each extension point, and makes them.

`expand_plugins` merges what a profile names for all points and for single ones into the list of
each point. `make_plugins` calls what the registry has for each name. `PluginsBySpec` leaves out
those that skip a pod's spec. UnpreparedFilter and NothingToScore replace plugins whose PreFilter or
PreScore a profile disables.

Source: kubernetes v1.34 pkg/scheduler/framework/runtime/framework.go, NewFramework,
expandMultiPointPlugins, getScoreWeights.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from services.framework.columns.columns import Int64s
from services.framework.plugin import (
    AnyFilter,
    AnyScore,
    BindPlugin,
    ClaimsPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFiltered,
    QueueSortPlugin,
    ReservePlugin,
    Scope,
    ScorePlugin,
)
from services.framework.plugins.in_tree import Registry, with_preemption
from services.framework.preemption import rules
from services.framework.profile import ALL, EMPTY_PLUGIN_SET, ExtensionPoint, Profile, ProfileError
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.pod import Pod, PodSpec

_TOTAL_SCORE_MAX = 2**63 - 1
_NODE_SCORE_MAX = 100


@dataclass(frozen=True, slots=True)
class WeightedScore:
    """A score plugin and its weight in the profile."""

    plugin: AnyScore
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredPlugins:
    """A profile's plugins at the four extension points of verdicts, in order."""

    pre_filters: tuple[AnyFilter, ...]
    filters: tuple[AnyFilter, ...]
    pre_scores: tuple[AnyScore, ...]
    scores: tuple[WeightedScore, ...]


KeyFunction = Callable[[Pod, Snapshot], Hashable | None]


class PluginsOfSpec(NamedTuple):
    """The plugins that every cycle calls for a pod of one spec, in order.

    filter_keys, score_keys: those of the plugins whose keys follow from more than the spec.
    """

    filter_keys: tuple[KeyFunction, ...]
    score_keys: tuple[KeyFunction, ...]
    reserves: tuple[ReservePlugin, ...]
    pre_binds: tuple[PreBindPlugin, ...]
    claims: tuple[ClaimsPlugin, ...]


_SPECS_MAX = 4096


class PluginsBySpec(dict[PodSpec, PluginsOfSpec]):
    """What is left of a profile's plugins without those that skip a spec (`Plugin.skips`).

    Most pods have neither volumes nor claims, and most plugins have nothing else to do.
    """

    def __init__(
        self,
        configured: ConfiguredPlugins,
        *,
        reserves: Sequence[ReservePlugin],
        pre_binds: Sequence[PreBindPlugin],
    ) -> None:
        super().__init__()
        filters = {plugin.name: plugin for plugin in (*configured.pre_filters, *configured.filters)}
        weighted = [weighted.plugin for weighted in configured.scores]
        scores = {plugin.name: plugin for plugin in (*configured.pre_scores, *weighted)}
        self._filters = [plugin for plugin in filters.values() if plugin.keys_follow_pod]
        self._scores = [plugin for plugin in scores.values() if plugin.keys_follow_pod]
        self._reserves = reserves
        self._pre_binds = pre_binds

    def __missing__(self, spec: PodSpec) -> PluginsOfSpec:
        """Ask the plugins, once for each spec."""
        if len(self) >= _SPECS_MAX:
            self.clear()
        reserves = tuple(plugin for plugin in self._reserves if not plugin.skips(spec))
        self[spec] = plugins = PluginsOfSpec(
            filter_keys=tuple(
                plugin.filter_key for plugin in self._filters if not plugin.skips(spec)
            ),
            score_keys=tuple(plugin.score_key for plugin in self._scores if not plugin.skips(spec)),
            reserves=reserves,
            pre_binds=tuple(plugin for plugin in self._pre_binds if not plugin.skips(spec)),
            claims=tuple(plugin for plugin in reserves if isinstance(plugin, ClaimsPlugin)),
        )
        return plugins


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedPlugins:
    """The names of each point's plugins in order, and the weights of those that score."""

    names: Mapping[ExtensionPoint, tuple[str, ...]]
    weights: Mapping[str, int]


Implements = Callable[[str, ExtensionPoint], bool]


def expand_plugins(profile: Profile, implements: Implements) -> ExpandedPlugins:
    """Return each point's plugins; `implements` says whether a plugin takes part at a point.

    Those that the point lists and multiPoint too come first, then the others of multiPoint, then
    the others that the point lists. Raises ProfileError.
    """
    names = {point: _at(point, profile, implements) for point in ExtensionPoint}
    weights = _weights(profile, implements)
    return ExpandedPlugins(
        names=names, weights={name: weights[name] for name in names[ExtensionPoint.SCORE]}
    )


def _at(point: ExtensionPoint, profile: Profile, implements: Implements) -> tuple[str, ...]:
    plugin_set = profile.at.get(point, EMPTY_PLUGIN_SET)
    listed = [setting.name for setting in plugin_set.enabled]
    for name in listed:
        if not implements(name, point):
            raise ProfileError(point, f'plugin "{name}" has no {point.value} extension point')
    _refuse_repeated(point, listed)
    if ALL in plugin_set.disabled:
        return tuple(listed)
    everywhere = [
        setting.name
        for setting in profile.plugins
        if implements(setting.name, point) and setting.name not in plugin_set.disabled
    ]
    added = [name for name in everywhere if name not in listed]
    _refuse_repeated(point, added)
    overriding = [name for name in listed if name in everywhere]
    specific = [name for name in listed if name not in everywhere]
    return (*overriding, *added, *specific)


def _refuse_repeated(point: ExtensionPoint, names: list[str]) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ProfileError(point, f'plugin "{name}" is enabled twice')


def _weights(profile: Profile, implements: Implements) -> dict[str, int]:
    """Return each scoring plugin's weight; one set at the Score point overrides multiPoint's."""
    weights: dict[str, int] = {}
    total = 0
    for setting in (
        *profile.at.get(ExtensionPoint.SCORE, EMPTY_PLUGIN_SET).enabled,
        *profile.plugins,
    ):
        if setting.name in weights or not implements(setting.name, ExtensionPoint.SCORE):
            continue
        weights[setting.name] = setting.weight or 1
        total += weights[setting.name] * _NODE_SCORE_MAX
        if total > _TOTAL_SCORE_MAX:
            raise ProfileError(ExtensionPoint.SCORE, "total score of Score plugins could overflow")
    return weights


_CLASSES: Mapping[ExtensionPoint, type[Plugin]] = MappingProxyType(
    {
        ExtensionPoint.PRE_ENQUEUE: PreEnqueuePlugin,
        ExtensionPoint.QUEUE_SORT: QueueSortPlugin,
        ExtensionPoint.PRE_FILTER: FilterPlugin,
        ExtensionPoint.FILTER: FilterPlugin,
        ExtensionPoint.POST_FILTER: PostFilterPlugin,
        ExtensionPoint.PRE_SCORE: ScorePlugin,
        ExtensionPoint.SCORE: ScorePlugin,
        ExtensionPoint.RESERVE: ReservePlugin,
        ExtensionPoint.PERMIT: PermitPlugin,
        ExtensionPoint.PRE_BIND: PreBindPlugin,
        ExtensionPoint.BIND: BindPlugin,
        ExtensionPoint.POST_BIND: PostBindPlugin,
    }
)


def make_plugins(profile: Profile, registry: Registry) -> dict[str, Plugin]:
    """Return a profile's plugins by name, made with their arguments, in its order."""
    listed = (
        *profile.plugins,
        *(setting for plugin_set in profile.at.values() for setting in plugin_set.enabled),
    )
    plugins: dict[str, Plugin] = {}
    for name in (setting.name for setting in listed):
        if name in registry and name not in plugins:
            args = profile.args.get(name)
            plugins[name] = registry[name]() if args is None else registry[name](args)
    return plugins


def implements(plugin: Plugin, point: ExtensionPoint) -> bool:
    """Return whether a plugin has an extension point."""
    if not isinstance(plugin, _CLASSES[point]):
        return False
    if point is ExtensionPoint.PRE_FILTER and isinstance(plugin, FilterPlugin):
        return plugin.has_pre_filter
    if point is ExtensionPoint.PRE_SCORE and isinstance(plugin, ScorePlugin):
        return plugin.has_pre_score
    return True


def check_profile(profile: Profile, registry: Registry) -> None:
    """Raise ProfileError for a profile from which no framework can be made."""
    plugins = make_plugins(profile, with_preemption(registry, rules.V1_34))
    expanded = expand_plugins(
        profile, lambda name, at: name in plugins and implements(plugins[name], at)
    )
    sorts = len(expanded.names[ExtensionPoint.QUEUE_SORT])
    if sorts != 1:
        text = (
            "only one queue sort plugin required for profile with scheduler name "
            f'"{profile.scheduler_name}", but got {sorts}'
        )
        raise ProfileError(ExtensionPoint.QUEUE_SORT, text)
    if not expanded.names[ExtensionPoint.BIND]:
        text = (
            "at least one bind plugin is needed for profile with scheduler name "
            f'"{profile.scheduler_name}"'
        )
        raise ProfileError(ExtensionPoint.BIND, text)


class UnpreparedFilter(FilterPlugin[None]):
    """Fails on every node, because the profile disables the PreFilter that prepares its data."""

    name = ""
    scope = Scope.NODE
    can_fail = True

    def __init__(self, name: str, text: str) -> None:
        self.name = name  # type: ignore[misc]  # each replaces another plugin
        self._text = text

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
        return Status(code=Code.ERROR, plugin=self.name, reasons=(self._text,))


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
