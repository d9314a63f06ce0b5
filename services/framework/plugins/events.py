"""The events that the in-tree plugins register for, with their queueing hints, by version.

Source: kubernetes v1.34 and v1.36 pkg/scheduler/framework/plugins, each plugin's EventsToRegister,
with queueing hints on and the feature gates at their defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

from services.framework import plugins
from services.framework.cluster_event import (
    ClaimUsers,
    ClusterEvent,
    ObjectEvent,
    QueueingHintFn,
    Registration,
    UsersOf,
    event_of,
)
from services.framework.hints import HintProfiles, PluginEvents

_NAMES: Mapping[str, tuple[str, ...]] = {"v1.34": ("EVENTS",), "v1.36": ("EVENTS_V1_36", "EVENTS")}
"""The constants in which a room has its events, by version; the first one that it has counts."""


def _rooms(version: str) -> Iterator[PluginEvents]:
    """Yield the events of every plugin's room beside this module, by the rooms' names.

    The folder is the list: a room registers its plugin by having a module `events`. A plugin that
    only v1.36 has, or whose events v1.36 changed, has EVENTS_V1_36.
    """
    for room in iter_modules(plugins.__path__, f"{plugins.__name__}."):
        if room.ispkg and find_spec(f"{room.name}.events"):
            module = import_module(f"{room.name}.events")
            name = next((name for name in _NAMES[version] if hasattr(module, name)), None)
            if name is not None:
                yield getattr(module, name)


_EVENTS: Mapping[str, tuple[PluginEvents, ...]] = {
    version: tuple(_rooms(version)) for version in _NAMES
}


def registrations(profiles: HintProfiles, version: str = "v1.34") -> tuple[Registration, ...]:
    """Return the registrations of all plugins of a version, with the arguments of `profiles`."""
    return tuple(
        registration
        for events in _EVENTS[version]
        for registration in events.registrations(profiles)
    )


IN_TREE: tuple[Registration, ...] = registrations({})
"""The registrations of v1.34 with upstream's default arguments."""

COUNT_PODS_OF_NAMESPACE: frozenset[str] = frozenset(
    events.plugin
    for plugin_events in _EVENTS.values()
    for events in plugin_events
    if events.counts_pods_of_namespace
)
"""The plugins whose refused pods any assigned pod of their namespace may help."""

_NODE_ADD = event_of("NodeAdd")


@lru_cache
def _reached(version: str, label: str) -> tuple[ClusterEvent, tuple[UsersOf | None, ...]]:
    """Return an event, and `users_of` of each in-tree registration that it reaches."""
    event = event_of(label)
    rows = (row for row in registrations({}, version) if row.event.covers(event))
    return event, tuple(row.users_of for row in rows)


def claim_users(
    version: str, label: str, old: object | None, new: object | None
) -> ClaimUsers | None:
    """Return the only pods that the in-tree hints may queue on an event; None: any pods."""
    event, users_of = _reached(version, label)
    if len(users_of) != 1 or users_of[0] is None:
        return None
    return users_of[0](ObjectEvent(event=event, old=old, new=new))


def without_hints(version: str) -> tuple[Registration, ...]:
    """Return the registrations without queueing hints.

    Plugins with NodeAdd have label and taint changes, too: upstream then checks each pod against a
    node before the node's event moves it (preCheckForNode), so that a pod may have been skipped
    when the node was added. Our scheduler does not make that check (ARCHITECTURE.md, "Where we
    differ").
    Source: kubernetes#109437, and the notes beside each plugin's EventsToRegister.
    """
    rows = registrations({}, version)
    return tuple(
        [Registration(plugin=row.plugin, event=row.event) for row in rows]
        + [
            Registration(plugin=row.plugin, event=event_of(label))
            for row in rows
            if row.event == _NODE_ADD
            for label in ("NodeLabelChange", "NodeTaintChange")
        ]
    )


def hint_of(
    plugin: str, label: str, registered: Iterable[Registration] = IN_TREE
) -> QueueingHintFn | None:
    """Return the hint that a plugin registered for an event; None without one."""
    event = event_of(label)
    for row in registered:
        if row.plugin == plugin and (row.event.covers(event) or event.covers(row.event)):
            return row.hint
    return None


_LABELS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    version: {events.plugin: tuple(row.event.label for row in events.rows) for events in of_version}
    for version, of_version in _EVENTS.items()
}
"""The labels of each plugin's events, by version."""

_ANY_EVENT = ("any event",)
OLDER_EVENTS = (
    "NodeAdd",
    "NodeSpecUnschedulableChange",
    "NodeAllocatableChange",
    "NodeLabelChange",
    "NodeTaintChange",
    "NodeConditionChange",
    "AssignedPodAdd (of a pod that its affinity asks for)",
    "AssignedPodUpdate (of a pod that its affinity asks for)",
    "AssignedPodDelete",
    "ServiceAdd",
    "ServiceUpdate",
    "ServiceDelete",
    "PvAdd",
    "PvUpdate",
    "PvcAdd",
    "PvcUpdate",
    "StorageClassAdd",
    "CSINodeAdd",
    "CSINodeUpdate",
)
"""The events that move any unschedulable pod where plugins register for none: before v1.34."""


def moving_events(rules: str, plugins: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the events that can move a pod in a queue of `rules`, by the plugins that refused it.

    In queues before v1.34 they are the same for all plugins, here "". A plugin that registered for
    none waits for any, as upstream takes a plugin without EventsToRegister.
    """
    labels = _LABELS.get(rules)
    if labels is None:
        return {"": OLDER_EVENTS}
    return {plugin: labels.get(plugin, _ANY_EVENT) for plugin in plugins}
