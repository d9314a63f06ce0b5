"""Profiles: the plugins of one scheduler name, as a configuration has them.

A profile names its plugins for all extension points at once (multiPoint), and by point, where a
plugin may be added, moved, weighted or disabled.

Source: kubernetes v1.34 pkg/scheduler/apis/config/types.go, KubeSchedulerProfile, Plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from services.kube.pod import DEFAULT_SCHEDULER

ALL = "*"
"""Disables every plugin that is not enabled at the same point."""


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
