"""Profiles, and the registry of plugins that they name.

A profile names its plugins as a configuration does: for all points at once (multiPoint), and by
point, where a plugin may be added, moved, weighted or disabled. `expand_plugins` merges both into
the list of each point. A registry maps a name to what makes the plugin: it is called with the
plugin's arguments where the profile has some, and without arguments where it has none. A profile
may name in-tree plugins that are not in the registry; these are ignored.

Source: kubernetes v1.34 pkg/scheduler/apis/config/v1/default_plugins.go, getDefaultPlugins;
pkg/scheduler/framework/runtime/framework.go, NewFramework, expandMultiPointPlugins,
getScoreWeights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from services.framework.plugin import (
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from services.framework.plugins.args import DefaultPreemptionArgs
from services.framework.plugins.default_preemption import DefaultPreemption
from services.framework.plugins.dynamic_resources import DynamicResources
from services.framework.plugins.image_locality import ImageLocality
from services.framework.plugins.inter_pod_affinity.plugin import InterPodAffinity
from services.framework.plugins.node_affinity import NodeAffinity
from services.framework.plugins.node_fields import (
    DefaultBinder,
    NodeName,
    NodePorts,
    NodeUnschedulable,
    PrioritySort,
    SchedulingGates,
)
from services.framework.plugins.node_resources import (
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
)
from services.framework.plugins.node_volume_limits import NodeVolumeLimits
from services.framework.plugins.pod_topology_spread.plugin import PodTopologySpread
from services.framework.plugins.taint_toleration import TaintToleration
from services.framework.plugins.volume_binding import VolumeBinding
from services.framework.plugins.volume_restrictions import VolumeRestrictions
from services.framework.plugins.volume_zone import VolumeZone
from services.framework.preemption import rules
from services.framework.preemption.batch_result import CandidateSampling
from services.framework.preemption.preemptor import Preemptor
from services.kube.pod import DEFAULT_SCHEDULER

ALL = "*"
"""Disables every plugin that is not enabled at the same point."""

_TOTAL_SCORE_MAX = 2**63 - 1
_NODE_SCORE_MAX = 100


class ExtensionPoint(Enum):
    """An extension point, under its name in a configuration."""

    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    PRE_SCORE = "preScore"
    SCORE = "score"
    RESERVE = "reserve"
    PERMIT = "permit"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"


class ProfileError(ValueError):
    """Plugins that cannot work together; `point` is where, None for the profile as a whole."""

    def __init__(self, point: ExtensionPoint | None, text: str) -> None:
        super().__init__(text)
        self.point = point


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSetting:
    """A plugin of a profile; `weight` multiplies its normalised scores."""

    name: str
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSet:
    """A profile's setting of one point: plugins to run, and names (or ALL) to disable."""

    enabled: tuple[PluginSetting, ...] = ()
    disabled: tuple[str, ...] = ()


EMPTY_PLUGIN_SET = PluginSet()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The plugins of one scheduler name.

    plugins: those of all points, in the order in which they run. at: the settings of single
    points. args: the arguments of plugins that have some, by name.
    percentage_of_nodes_to_score: upstream's sampling, None where the profile leaves it to the
    configuration.
    """

    plugins: tuple[PluginSetting, ...]
    at: Mapping[ExtensionPoint, PluginSet] = field(default_factory=lambda: MappingProxyType({}))
    args: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    scheduler_name: str = DEFAULT_SCHEDULER
    percentage_of_nodes_to_score: int | None = None


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
    own = [name for name in listed if name not in everywhere]
    return (*overriding, *added, *own)


def _refuse_repeated(point: ExtensionPoint, names: list[str]) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ProfileError(point, f'plugin "{name}" is enabled twice')


def _weights(profile: Profile, implements: Implements) -> dict[str, int]:
    """Return the weight of every plugin that scores: the Score point's own goes first."""
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


def _listed(*settings: str | tuple[str, int]) -> tuple[PluginSetting, ...]:
    pairs = (each if isinstance(each, tuple) else (each, 1) for each in settings)
    return tuple(PluginSetting(name=name, weight=weight) for name, weight in pairs)


DEFAULT_PROFILE = Profile(
    plugins=_listed(
        "SchedulingGates",
        "PrioritySort",
        "NodeUnschedulable",
        "NodeName",
        ("TaintToleration", 3),
        ("NodeAffinity", 2),
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        ("PodTopologySpread", 2),
        ("InterPodAffinity", 2),
        "DynamicResources",
        "DefaultPreemption",
        "NodeResourcesBalancedAllocation",
        "ImageLocality",
        "DefaultBinder",
    )
)
"""v1.34's defaults; a plugin that is not in the registry is ignored."""

UNSCORED_PROFILE = replace(
    DEFAULT_PROFILE,
    plugins=tuple(each for each in DEFAULT_PROFILE.plugins if each.name != "DynamicResources"),
    at={ExtensionPoint.SCORE: PluginSet(disabled=(ALL,))},
)
"""v1.16 without priorities: every node that fits has the same score; without resource claims.

Source: kubernetes v1.16 pkg/scheduler/core/generic_scheduler.go, PrioritizeNodes without
priorityConfigs, as the documents describe it.
"""


Registry = Mapping[str, Callable[..., Plugin]]

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

SERVED: Registry = MappingProxyType(
    {
        SchedulingGates.name: SchedulingGates,
        PrioritySort.name: PrioritySort,
        NodeUnschedulable.name: NodeUnschedulable,
        NodeName.name: NodeName,
        TaintToleration.name: TaintToleration,
        NodeAffinity.name: NodeAffinity,
        NodePorts.name: NodePorts,
        NodeResourcesFit.name: NodeResourcesFit,
        VolumeRestrictions.name: VolumeRestrictions,
        NodeVolumeLimits.name: NodeVolumeLimits,
        VolumeBinding.name: VolumeBinding,
        VolumeZone.name: VolumeZone,
        PodTopologySpread.name: PodTopologySpread,
        InterPodAffinity.name: InterPodAffinity,
        DynamicResources.name: DynamicResources,
        NodeResourcesBalancedAllocation.name: NodeResourcesBalancedAllocation,
        ImageLocality.name: ImageLocality,
        DefaultBinder.name: DefaultBinder,
    }
)
"""What needs nothing of its session; `with_preemption` adds the plugin that does."""


_PREEMPTION = DefaultPreemptionArgs()

IN_TREE = frozenset(setting.name for setting in DEFAULT_PROFILE.plugins)
"""The names of v1.34's in-tree plugins, all of which are on by default."""


def make_plugins(profile: Profile, registry: Registry) -> dict[str, Plugin]:
    """Return a profile's plugins by name, made with their arguments, in its order."""
    listed = (
        *profile.plugins,
        *(each for plugin_set in profile.at.values() for each in plugin_set.enabled),
    )
    plugins: dict[str, Plugin] = {}
    for name in (setting.name for setting in listed):
        if name in registry and name not in plugins:
            args = profile.args.get(name)
            plugins[name] = registry[name]() if args is None else registry[name](args)
    return plugins


def with_preemption(
    registry: Registry, preemptor: Preemptor | None, *, samples: bool = False
) -> Registry:
    """Return `registry` with DefaultPreemption by `preemptor`, or without it where that is None.

    With `samples`, the plugin's arguments say how many candidates suffice; else all are tried.
    A plugin of that name which `registry` brings itself is kept.
    """
    name = DefaultPreemption.name
    if preemptor is None:
        return {each: make for each, make in registry.items() if each != name}

    def make(args: DefaultPreemptionArgs = _PREEMPTION) -> DefaultPreemption:
        sampling = CandidateSampling(
            percentage=args.min_candidate_nodes_percentage,
            absolute=args.min_candidate_nodes_absolute,
        )
        return DefaultPreemption(replace(preemptor, sampling=sampling) if samples else preemptor)

    return {name: make, **registry}


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
    """Raise ProfileError for a profile that no framework can be made of."""
    plugins = make_plugins(profile, with_preemption(registry, Preemptor(rules=rules.V1_34)))
    found = expand_plugins(
        profile, lambda name, at: name in plugins and implements(plugins[name], at)
    )
    sorts = len(found.names[ExtensionPoint.QUEUE_SORT])
    if sorts != 1:
        text = (
            "only one queue sort plugin required for profile with scheduler name "
            f'"{profile.scheduler_name}", but got {sorts}'
        )
        raise ProfileError(ExtensionPoint.QUEUE_SORT, text)
    if not found.names[ExtensionPoint.BIND]:
        text = (
            "at least one bind plugin is needed for profile with scheduler name "
            f'"{profile.scheduler_name}"'
        )
        raise ProfileError(ExtensionPoint.BIND, text)
