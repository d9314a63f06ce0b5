"""plugins: a profile's plugins by extension point, merged with the defaults.

Source: kubernetes v1.34 pkg/scheduler/apis/config/v1/default_plugins.go, mergePluginSet;
pkg/scheduler/apis/config/validation/validation.go, validatePluginSetForInvalidPlugins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from services.config.strict import ConfigError, Fields
from services.scheduler.core.profile import ALL, PluginSet, PluginSetting, Point

API_VERSION = "kubescheduler.config.k8s.io/v1"
GONE = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})
"""Plugins that this version of the configuration refuses by name."""


def plugin_sets(
    plugins: Fields | None, defaults: tuple[PluginSetting, ...], known: Collection[str]
) -> tuple[tuple[PluginSetting, ...], Mapping[Point, PluginSet]]:
    """Return the plugins of all points, merged, and what is said of single points.

    `known` are the names that may be enabled. Raises ConfigError.
    """
    if plugins is None:
        return defaults, {}
    everywhere = _plugin_set(plugins, "multiPoint", known)
    merged = defaults if everywhere is None else _merged(defaults, everywhere)
    at: dict[Point, PluginSet] = {}
    for point in Point:
        said = _plugin_set(plugins, point.value, known)
        if said is not None:
            at[point] = said
    plugins.end()
    return merged, at


def _merged(defaults: tuple[PluginSetting, ...], custom: PluginSet) -> tuple[PluginSetting, ...]:
    """Put custom settings in the place of defaults of the same name, and the others behind."""
    latest = {setting.name: index for index, setting in enumerate(custom.enabled)}
    kept = [
        setting
        for setting in defaults
        if ALL not in custom.disabled and setting.name not in custom.disabled
    ]
    replaced = {latest[setting.name] for setting in kept if setting.name in latest}
    return (
        *(
            custom.enabled[latest[setting.name]] if setting.name in latest else setting
            for setting in kept
        ),
        *(each for index, each in enumerate(custom.enabled) if index not in replaced),
    )


def _plugin_set(plugins: Fields, name: str, known: Collection[str]) -> PluginSet | None:
    fields = plugins.fields(name)
    if fields is None:
        return None
    found = PluginSet(enabled=tuple(_enabled(fields, known)), disabled=tuple(_disabled(fields)))
    fields.end()
    return found


def _enabled(fields: Fields, known: Collection[str]) -> Iterator[PluginSetting]:
    for each in fields.each("enabled"):
        name = each.text("name") or ""
        weight = each.integer("weight") or 1
        each.end()
        if name in GONE:
            text = (
                f'"{name}" was invalid in version "{API_VERSION}" '
                f'(KubeSchedulerConfiguration is version "{API_VERSION}")'
            )
            raise ConfigError(each.path, text)
        if name not in known:
            raise ConfigError(each.at("name"), f'plugin "{name}" does not exist')
        yield PluginSetting(name=name, weight=weight)


def _disabled(fields: Fields) -> Iterator[str]:
    for each in fields.each("disabled"):
        name = each.text("name") or ""
        each.integer("weight")
        each.end()
        yield name
