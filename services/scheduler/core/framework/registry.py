"""The plugins that can be served, by name, and the check that a profile's plugins work together.

A registry maps a name to what makes the plugin: it is called with the plugin's arguments where the
profile has some, and without arguments where it has none. A profile may name in-tree plugins that
are not in the registry; these are ignored.

Source: kubernetes v1.34 pkg/scheduler/framework/runtime/framework.go, NewFramework.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from services.scheduler.core.framework.profile import (
    DEFAULT_PROFILE,
    ExtensionPoint,
    Profile,
    ProfileError,
    expand_plugins,
)
from services.scheduler.core.plugin_api.plugin import (
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
from services.scheduler.core.plugins.args import DefaultPreemptionArgs
from services.scheduler.core.plugins.default_preemption import DefaultPreemption
from services.scheduler.core.plugins.dynamic_resources import DynamicResources
from services.scheduler.core.plugins.image_locality import ImageLocality
from services.scheduler.core.plugins.inter_pod_affinity.plugin import InterPodAffinity
from services.scheduler.core.plugins.node_affinity import NodeAffinity
from services.scheduler.core.plugins.node_fields import (
    DefaultBinder,
    NodeName,
    NodePorts,
    NodeUnschedulable,
    PrioritySort,
    SchedulingGates,
)
from services.scheduler.core.plugins.node_resources import (
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
)
from services.scheduler.core.plugins.node_volume_limits import NodeVolumeLimits
from services.scheduler.core.plugins.pod_topology_spread.plugin import PodTopologySpread
from services.scheduler.core.plugins.taint_toleration import TaintToleration
from services.scheduler.core.plugins.volume_binding import VolumeBinding
from services.scheduler.core.plugins.volume_restrictions import VolumeRestrictions
from services.scheduler.core.plugins.volume_zone import VolumeZone
from services.scheduler.core.preemption import rules
from services.scheduler.core.preemption.batch_dry_run import CandidateSampling
from services.scheduler.core.preemption.preemptor import Preemptor

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
