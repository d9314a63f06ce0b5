"""The in-tree plugins in upstream's order, and the profiles that name them.

A profile may name in-tree plugins that a registry lacks; these are ignored.

Source: kubernetes v1.34 pkg/scheduler/apis/config/v1/default_plugins.go, getDefaultPlugins;
pkg/scheduler/framework/plugins/registry.go, NewInTreeRegistry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from services.framework.plugin import Plugin
from services.framework.plugins.default_binder import DefaultBinder
from services.framework.plugins.default_preemption.arguments import DefaultPreemptionArgs
from services.framework.plugins.default_preemption.plugin import DefaultPreemption
from services.framework.plugins.dynamic_resources.plugin import (
    DynamicResources,
    ScoredDynamicResources,
)
from services.framework.plugins.image_locality import ImageLocality
from services.framework.plugins.inter_pod_affinity.plugin import (
    InterPodAffinity,
    InterPodAffinityKeepingSelectors,
)
from services.framework.plugins.node_affinity.plugin import NodeAffinity
from services.framework.plugins.node_declared_features.plugin import NodeDeclaredFeatures
from services.framework.plugins.node_name.plugin import NodeName
from services.framework.plugins.node_ports.plugin import NodePorts
from services.framework.plugins.node_resources.plugin import (
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
)
from services.framework.plugins.node_resources.served_by_devices import (
    NodeResourcesBalanceWithDevices,
    NodeResourcesFitWithDevices,
)
from services.framework.plugins.node_unschedulable.plugin import NodeUnschedulable
from services.framework.plugins.node_volume_limits.plugin import NodeVolumeLimits
from services.framework.plugins.pod_topology_spread.plugin import PodTopologySpread
from services.framework.plugins.priority_sort import PrioritySort
from services.framework.plugins.scheduling_gates.plugin import SchedulingGates
from services.framework.plugins.taint_toleration.plugin import (
    TaintToleration,
    UnnamedTaintToleration,
)
from services.framework.plugins.volume_binding.plugin import VolumeBinding
from services.framework.plugins.volume_restrictions.plugin import (
    VolumeRestrictions,
    VolumeRestrictionsByName,
)
from services.framework.plugins.volume_zone.plugin import VolumeZone
from services.framework.preemption.batch_dry_run import CandidateSampling
from services.framework.preemption.outcome import NarrowCandidates
from services.framework.preemption.rules import PreemptionRules
from services.framework.profile import ALL, ExtensionPoint, PluginSet, PluginSetting, Profile
from services.kube.devices import MatchDevice

Registry = Mapping[str, Callable[..., Plugin]]
"""What makes each plugin, by name: called with the profile's arguments where it has some."""

_WITH_WEIGHTS: tuple[tuple[type[Plugin], int], ...] = (
    (SchedulingGates, 1),
    (PrioritySort, 1),
    (NodeUnschedulable, 1),
    (NodeName, 1),
    (TaintToleration, 3),
    (NodeAffinity, 2),
    (NodePorts, 1),
    (NodeResourcesFit, 1),
    (VolumeRestrictions, 1),
    (NodeVolumeLimits, 1),
    (VolumeBinding, 1),
    (VolumeZone, 1),
    (PodTopologySpread, 2),
    (InterPodAffinity, 2),
    (DynamicResources, 1),
    (DefaultPreemption, 1),
    (NodeResourcesBalancedAllocation, 1),
    (ImageLocality, 1),
    (DefaultBinder, 1),
)
"""v1.34's plugins in the order in which they run, all of which are on by default."""

IN_TREE: Mapping[str, type[Plugin]] = MappingProxyType(
    {
        **{plugin.name: plugin for plugin, _ in _WITH_WEIGHTS},
        NodeDeclaredFeatures.name: NodeDeclaredFeatures,
    }
)
"""The plugins of all versions, by name."""

DEFAULT_PROFILE = Profile(
    plugins=tuple(
        PluginSetting(name=plugin.name, weight=weight) for plugin, weight in _WITH_WEIGHTS
    )
)
"""v1.34's defaults."""

V1_36_PROFILE = replace(
    DEFAULT_PROFILE,
    plugins=(
        *(
            replace(plugin, weight=2) if plugin.name == DynamicResources.name else plugin
            for plugin in DEFAULT_PROFILE.plugins
        ),
        PluginSetting(name=NodeDeclaredFeatures.name, weight=1),
    ),
)
"""v1.36's defaults; NodeDeclaredFeatures runs last.

Source: kubernetes v1.36 pkg/scheduler/apis/config/v1/default_plugins.go, getDefaultPlugins,
applyFeatureGates.
"""

UNSCORED_PROFILE = replace(
    DEFAULT_PROFILE,
    plugins=tuple(
        plugin for plugin in DEFAULT_PROFILE.plugins if plugin.name != DynamicResources.name
    ),
    at={ExtensionPoint.SCORE: PluginSet(disabled=(ALL,))},
)
"""v1.16 without priorities: every node that fits has the same score; without resource claims.

Source: kubernetes v1.16 pkg/scheduler/core/generic_scheduler.go, PrioritizeNodes without
priorityConfigs, as the documents describe it.
"""

SERVED: Registry = MappingProxyType(
    {plugin.name: plugin for plugin, _ in _WITH_WEIGHTS if plugin is not DefaultPreemption}
)
"""v1.34's plugins without session state; `with_preemption` adds DefaultPreemption."""

CHANGED_IN_V1_36: Registry = MappingProxyType(
    {
        plugin.name: plugin
        for plugin in (
            UnnamedTaintToleration,
            VolumeRestrictionsByName,
            InterPodAffinityKeepingSelectors,
            ScoredDynamicResources,
            NodeResourcesFitWithDevices,
            NodeResourcesBalanceWithDevices,
            NodeDeclaredFeatures,
        )
    }
)
"""The plugins of v1.36 that differ from v1.34's, or that v1.34 does not have."""

_PREEMPTION = DefaultPreemptionArgs()


def with_preemption(
    registry: Registry,
    rules: PreemptionRules | None,
    *,
    narrow: NarrowCandidates | None = None,
    samples: bool = False,
) -> Registry:
    """Return `registry` with DefaultPreemption by `rules`, or without it where these are None.

    With `samples`, the plugin's arguments say how many candidates suffice; else all are tried.
    A plugin of that name which `registry` brings itself is kept.
    """
    name = DefaultPreemption.name
    if rules is None:
        return {plugin: make for plugin, make in registry.items() if plugin != name}

    def make(args: DefaultPreemptionArgs = _PREEMPTION) -> DefaultPreemption:
        sampling = CandidateSampling(
            percentage=args.min_candidate_nodes_percentage,
            absolute=args.min_candidate_nodes_absolute,
        )
        return DefaultPreemption(rules=rules, sampling=sampling if samples else None, narrow=narrow)

    return {name: make, **registry}


_SELECTING = (DynamicResources, NodeResourcesFitWithDevices, NodeResourcesBalanceWithDevices)


def with_selectors(registry: Registry, matches: MatchDevice | None) -> Registry:
    """Return `registry` with the plugins that select devices by `matches`."""
    if matches is None:
        return registry
    made = {
        name: partial(make, matches=matches)
        for name, make in registry.items()
        if isinstance(make, type) and issubclass(make, _SELECTING)
    }
    return {**registry, **made}
