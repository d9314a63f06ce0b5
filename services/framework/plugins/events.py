"""The events that the in-tree plugins register for, with their queueing hints.

Source: kubernetes v1.34 pkg/scheduler/framework/plugins, each plugin's EventsToRegister, with
queueing hints on and the feature gates at their defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.framework.cluster_event import QueueingHintFn, Registration, event_of
from services.framework.hints import HintProfiles
from services.framework.plugins.default_preemption import events as default_preemption
from services.framework.plugins.inter_pod_affinity import events as inter_pod_affinity
from services.framework.plugins.node_affinity import events as node_affinity
from services.framework.plugins.node_name import events as node_name
from services.framework.plugins.node_ports import events as node_ports
from services.framework.plugins.node_resources import events as node_resources
from services.framework.plugins.node_unschedulable import events as node_unschedulable
from services.framework.plugins.node_volume_limits import events as node_volume_limits
from services.framework.plugins.pod_topology_spread import events as pod_topology_spread
from services.framework.plugins.scheduling_gates import events as scheduling_gates
from services.framework.plugins.taint_toleration import events as taint_toleration
from services.framework.plugins.volume_binding import events as volume_binding
from services.framework.plugins.volume_restrictions import events as volume_restrictions
from services.framework.plugins.volume_zone import events as volume_zone

_PLUGINS = (
    scheduling_gates,
    node_unschedulable,
    node_name,
    taint_toleration,
    node_affinity,
    node_ports,
    node_resources,
    volume_restrictions,
    node_volume_limits,
    volume_binding,
    volume_zone,
    pod_topology_spread,
    inter_pod_affinity,
    default_preemption,
)


def registrations(profiles: HintProfiles) -> tuple[Registration, ...]:
    """Return the registrations of all plugins, with the arguments of `profiles`."""
    return tuple(
        registration
        for plugin in _PLUGINS
        for registration in plugin.EVENTS.registrations(profiles)
    )


IN_TREE: tuple[Registration, ...] = registrations({})
"""The registrations with upstream's default arguments."""

REGISTERED: Mapping[str, tuple[str, ...]] = {
    plugin.EVENTS.plugin: tuple(row.event.label for row in plugin.EVENTS.rows)
    for plugin in _PLUGINS
}
"""The labels of each plugin's events."""

COUNT_PODS_OF_NAMESPACE: frozenset[str] = frozenset(
    plugin.EVENTS.plugin for plugin in _PLUGINS if plugin.EVENTS.counts_pods_of_namespace
)
"""The plugins whose refused pods any assigned pod of their namespace may help."""

_NODE_ADD = event_of("NodeAdd")
WITHOUT_HINTS: tuple[Registration, ...] = tuple(
    [Registration(plugin=each.plugin, event=each.event) for each in IN_TREE]
    + [
        Registration(plugin=each.plugin, event=event_of(label))
        for each in IN_TREE
        if each.event == _NODE_ADD
        for label in ("NodeLabelChange", "NodeTaintChange")
    ]
)
"""The registrations without queueing hints: plugins with NodeAdd have label and taint changes, too.

Upstream then checks each pod against a node before the node's event moves it (preCheckForNode), so
that a pod may have been skipped when the node was added. Our scheduler does not make that check
(ARCHITECTURE.md, "Where we differ").
Source: kubernetes#109437, and the notes beside each plugin's EventsToRegister.
"""


def hint_of(
    plugin: str, label: str, registered: Iterable[Registration] = IN_TREE
) -> QueueingHintFn | None:
    """Return the hint that a plugin registered for an event; None without one."""
    event = event_of(label)
    for each in registered:
        if each.plugin == plugin and (each.event.covers(event) or event.covers(each.event)):
            return each.hint
    return None
