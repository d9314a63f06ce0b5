"""The events that explain names are those that the queue has."""

from __future__ import annotations

from services.framework.plugins.events import OLDER_EVENTS, moving_events
from services.scheduler.core.queueing.changes import V1_20


def test_a_plugins_events_are_those_that_it_registers() -> None:
    """In the order in which the plugin states them."""
    assert moving_events("v1.34", ["NodePorts"]) == {"NodePorts": ("PodDelete", "NodeAdd")}


def test_plugins_of_v1_36_have_events_of_their_own() -> None:
    """The others have v1.34's."""
    features = ("NodeAdd", "NodeDeclaredFeatureChange", "PodUpdate")
    plugins = ["NodePorts", "NodeDeclaredFeatures"]
    assert moving_events("v1.36", plugins) == {
        "NodePorts": ("PodDelete", "NodeAdd"),
        "NodeDeclaredFeatures": features,
    }
    assert moving_events("v1.34", plugins)["NodeDeclaredFeatures"] == ("any event",)


def test_older_queues_move_pods_on_every_object_event_that_they_know() -> None:
    """What the scheduler sends to a v1.20 queue of other objects is in the list."""
    assert {event.value for event in V1_20.values()} <= set(OLDER_EVENTS)


def test_a_plugin_that_registered_nothing_waits_for_any_event() -> None:
    """As upstream takes a plugin without EventsToRegister."""
    assert moving_events("v1.34", ["Own"]) == {"Own": ("any event",)}
