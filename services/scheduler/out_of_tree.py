"""Out-of-tree plugins: which are served beside the in-tree ones, and how they are made.

An installed distribution names its plugins in an entry point group; others are named MODULE:NAME
when the service starts. A name leads to a factory, which is called with the arguments that a
profile has for the plugin (an empty mapping without any) and returns the plugin. It is called twice
for a profile: when the configuration is checked, and for the session.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

from services.framework.plugin import Plugin
from services.framework.plugins.in_tree import IN_TREE, SERVED, Registry
from services.framework.profile import ProfileError
from services.framework.runtime.guard import guarded

ENTRY_POINT_GROUP = "reprieve.plugins"
PLUGINS_VARIABLE = "REPRIEVE_PLUGINS"
"""The environment variable that names plugins as MODULE:NAME, separated by spaces."""

PluginFactory = Callable[[Mapping[str, object]], Plugin]

_NO_ARGS: Mapping[str, object] = MappingProxyType({})


class PluginLoadError(Exception):
    """A plugin that cannot be loaded; the text names it."""


def registry_with(named: Iterable[str]) -> Registry:
    """Return the in-tree plugins that are served, the installed ones and those `named`.

    Raises PluginLoadError, also for a name that two plugins have.
    """
    registry: dict[str, Callable[..., Plugin]] = dict(SERVED)
    for name, factory in (*_installed(), *map(_named, named)):
        if name in registry or name in IN_TREE:
            raise PluginLoadError(f'plugin "{name}": another plugin has that name')
        registry[name] = _maker(name, factory)
    return MappingProxyType(registry)


@functools.cache
def _entry_points() -> Sequence[EntryPoint]:
    """Return the installed plugins' entry points; to find them takes milliseconds."""
    return sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name)


def _installed() -> Iterable[tuple[str, PluginFactory]]:
    for point in _entry_points():
        try:
            yield point.name, point.load()
        except Exception as error:
            text = f'plugin "{point.name}" ({point.value}): {type(error).__name__}: {error}'
            raise PluginLoadError(text) from error


def _named(text: str) -> tuple[str, PluginFactory]:
    """Load MODULE:NAME. The plugin's name is the object's attribute `name`, or NAME without one."""
    module, _, attribute = text.partition(":")
    if not module or not attribute:
        raise PluginLoadError(f'plugin "{text}": must be MODULE:NAME')
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise PluginLoadError(f'plugin "{text}": {type(error).__name__}: {error}') from error
    name = getattr(factory, "name", attribute)
    return (name if isinstance(name, str) else attribute), factory


def _maker(name: str, factory: PluginFactory) -> Callable[..., Plugin]:
    def make(args: Mapping[str, object] = _NO_ARGS) -> Plugin:
        """Make the plugin. Raises ProfileError if that fails."""
        try:
            plugin: Any = factory(args)
        except Exception as error:
            raise ProfileError(None, f'plugin "{name}": {error}') from error
        if not isinstance(plugin, Plugin) or getattr(plugin, "name", None) != name:
            text = f'plugin "{name}": its factory must return a plugin of that name'
            raise ProfileError(None, text)
        return guarded(plugin)

    return make
