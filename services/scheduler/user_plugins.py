"""Plugins of users' own: where they are found, and what they are made of.

An installed distribution names them in the entry point group `reprieve.plugins`; others are named
at the service's start. What is found is a factory, which is called with the plugin's arguments of
a profile (an empty mapping where it has none) and returns the plugin.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from services.scheduler.core.plugin import Plugin
from services.scheduler.core.plugin_guard import guarded
from services.scheduler.core.profile import ProfileError
from services.scheduler.core.registry import IN_TREE, SERVED, Registry

GROUP = "reprieve.plugins"
Factory = Callable[[Mapping[str, object]], Plugin]

_NO_ARGS: Mapping[str, object] = MappingProxyType({})


VARIABLE = "REPRIEVE_PLUGINS"
"""The environment variable that names plugins as MODULE:NAME, parted by spaces."""


class PluginLoadError(Exception):
    """A plugin that cannot be loaded; the text names it."""


def registry_with(named: Iterable[str]) -> Registry:
    """Return the plugins that are served, the installed ones, and those `named` MODULE:NAME.

    Raises PluginLoadError, also where a name is taken.
    """
    found: dict[str, Callable[..., Plugin]] = dict(SERVED)
    for name, factory in (*_installed(), *map(_named, named)):
        if name in found or name in IN_TREE:
            raise PluginLoadError(f'plugin "{name}": there is another one of that name')
        found[name] = _maker(name, factory)
    return MappingProxyType(found)


def _installed() -> Iterable[tuple[str, Factory]]:
    for point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            yield point.name, point.load()
        except Exception as error:
            text = f'plugin "{point.name}" ({point.value}): {type(error).__name__}: {error}'
            raise PluginLoadError(text) from error


def _named(text: str) -> tuple[str, Factory]:
    """Load MODULE:NAME; a class's attribute `name` is the plugin's, else NAME is."""
    module, _, attribute = text.partition(":")
    if not module or not attribute:
        raise PluginLoadError(f'plugin "{text}": must be MODULE:NAME')
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise PluginLoadError(f'plugin "{text}": {type(error).__name__}: {error}') from error
    name = getattr(factory, "name", attribute)
    return (name if isinstance(name, str) else attribute), factory


def _maker(name: str, factory: Factory) -> Callable[..., Plugin]:
    def make(args: Mapping[str, object] = _NO_ARGS) -> Plugin:
        """Make the plugin. Raises ProfileError where that fails."""
        try:
            plugin: Any = factory(args)
        except Exception as error:
            raise ProfileError(None, f'plugin "{name}": {error}') from error
        if not isinstance(plugin, Plugin) or getattr(plugin, "name", None) != name:
            text = f'plugin "{name}": its factory returns no plugin of that name'
            raise ProfileError(None, text)
        return guarded(plugin)

    return make
