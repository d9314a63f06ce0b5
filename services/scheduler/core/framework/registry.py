"""The plugins that are served, by name.

A profile may name others; those are passed over until they are built. What makes a plugin is
called with its arguments where the profile has some, and without any where it has none.

Whether a profile's plugins can work together, told before any session begins.

Source: kubernetes v1.34 pkg/scheduler/framework/runtime/framework.go, NewFramework.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from services.scheduler.core.framework.profile import (
    DEFAULT_PROFILE,
    Point,
    Profile,
    ProfileError,
    expanded,
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
from services.scheduler.core.preemption.preemptor import Preemptor
from services.scheduler.core.preemption.survey import CandidateSampling

Registry = Mapping[str, Callable[..., Plugin]]

_CLASSES: Mapping[Point, type[Plugin]] = MappingProxyType(
    {
        Point.PRE_ENQUEUE: PreEnqueuePlugin,
        Point.QUEUE_SORT: QueueSortPlugin,
        Point.PRE_FILTER: FilterPlugin,
        Point.FILTER: FilterPlugin,
        Point.POST_FILTER: PostFilterPlugin,
        Point.PRE_SCORE: ScorePlugin,
        Point.SCORE: ScorePlugin,
        Point.RESERVE: ReservePlugin,
        Point.PERMIT: PermitPlugin,
        Point.PRE_BIND: PreBindPlugin,
        Point.BIND: BindPlugin,
        Point.POST_BIND: PostBindPlugin,
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
"""The names of v1.34's own plugins, all of which are on by default."""


def made(profile: Profile, registry: Registry) -> dict[str, Plugin]:
    """Return a profile's plugins by name, made with their arguments, in its order."""
    listed = (*profile.plugins, *(each for said in profile.at.values() for each in said.enabled))
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


def takes_part(plugin: Plugin, point: Point) -> bool:
    """Tell whether a plugin has an extension point."""
    if not isinstance(plugin, _CLASSES[point]):
        return False
    if point is Point.PRE_FILTER and isinstance(plugin, FilterPlugin):
        return plugin.has_pre_filter
    if point is Point.PRE_SCORE and isinstance(plugin, ScorePlugin):
        return plugin.has_pre_score
    return True


def check_profile(profile: Profile, registry: Registry) -> None:
    """Raise ProfileError for a profile that no framework can be made of."""
    plugins = made(profile, with_preemption(registry, Preemptor(rules=rules.V1_34)))
    found = expanded(profile, lambda name, at: name in plugins and takes_part(plugins[name], at))
    sorts = len(found.names[Point.QUEUE_SORT])
    if sorts != 1:
        text = (
            "only one queue sort plugin required for profile with scheduler name "
            f'"{profile.scheduler_name}", but got {sorts}'
        )
        raise ProfileError(Point.QUEUE_SORT, text)
    if not found.names[Point.BIND]:
        text = (
            "at least one bind plugin is needed for profile with scheduler name "
            f'"{profile.scheduler_name}"'
        )
        raise ProfileError(Point.BIND, text)
