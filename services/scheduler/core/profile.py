"""A profile: which plugins, in which order, with which weights.

Source: kubernetes v1.34 pkg/scheduler/apis/config/v1/default_plugins.go, getDefaultPlugins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from services.kube.pod import DEFAULT_SCHEDULER


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSetting:
    """A plugin of a profile; `weight` multiplies its normalised scores.

    With `scores` off it takes part at every point but Score, as a configuration's
    `score: {disabled: ...}` has it.
    """

    name: str
    weight: int = 1
    scores: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The plugins of one scheduler name, in the order in which they run at each point."""

    plugins: tuple[PluginSetting, ...]
    scheduler_name: str = DEFAULT_SCHEDULER


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
"""v1.34's defaults; a plugin that `registry` does not know is passed over."""

UNSCORED_PROFILE = replace(
    DEFAULT_PROFILE,
    plugins=tuple(replace(each, scores=False) for each in DEFAULT_PROFILE.plugins),
)
"""The same where no priorities are configured: every node that fits is worth as much.

Source: kubernetes v1.16 pkg/scheduler/core/generic_scheduler.go, PrioritizeNodes without
priorityConfigs, as the documents describe it.
"""
