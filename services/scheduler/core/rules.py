"""What differs between versions, as strategies that are chosen once when a session opens.

`Rules` are the scheduler's own; `QueueRules` are what it must know of the queue's mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from services.scheduler.core import events_handlers, events_objects
from services.scheduler.core.events_handlers import EventHandlers
from services.scheduler.core.events_objects import ObjectEvents
from services.scheduler.core.host_choice import HostChoice, KeyedChoice, RoundRobinChoice
from services.scheduler.core.plugin import Plugin
from services.scheduler.core.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalanceChange,
)
from services.scheduler.core.preemption import rules as preemption_rules
from services.scheduler.core.preemption.rules import PreemptionRules
from services.scheduler.core.profile import DEFAULT_PROFILE, UNSCORED_PROFILE, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A version's preemption and its choice among the best nodes (made from the seed).

    nominated_first: a nominated pod is tried on its node alone before any other.
    profile: the one in force where no configuration names any.
    queue_mode: that of the queue where no configuration names any.
    plugins: what makes the plugins, by name, that differ from v1.34's.
    """

    name: str
    preemption: PreemptionRules
    nominated_first: bool
    host_choice: Callable[[int], HostChoice]
    profile: Profile
    queue_mode: str
    plugins: Mapping[str, Callable[..., Plugin]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """What a queue's mode means for the scheduler.

    handlers, objects: what it is told of pods and nodes, and of other objects.
    renominates_from_status: a pod given back loses the nomination in memory for its status' one.
    moves_after_failed_binding: a refused binding is followed by a move.
    has_gates, has_activate: the queue knows PreEnqueue gates and Activate.
    has_hints: the queue asks hints, which read the objects of an event.
    """

    mode: str
    handlers: EventHandlers
    objects: ObjectEvents
    renominates_from_status: bool
    moves_after_failed_binding: bool
    has_gates: bool
    has_activate: bool
    has_hints: bool


_V1_34 = Rules(
    name="v1.34",
    preemption=preemption_rules.V1_34,
    nominated_first=True,
    host_choice=KeyedChoice,
    profile=DEFAULT_PROFILE,
    queue_mode="v1.34",
)

RULES = {
    each.name: each
    for each in (
        _V1_34,
        replace(
            _V1_34,
            name="v1.36",
            plugins={NodeResourcesBalanceChange.name: NodeResourcesBalanceChange},
        ),
        Rules(
            name="v1.16",
            preemption=preemption_rules.V1_16,
            nominated_first=False,
            host_choice=lambda _seed: RoundRobinChoice(),
            profile=UNSCORED_PROFILE,
            queue_mode="v1.16",
        ),
    )
}

_V1_20 = QueueRules(
    mode="v1.20",
    handlers=events_handlers.V1_20,
    objects=events_objects.V1_20,
    renominates_from_status=True,
    moves_after_failed_binding=False,
    has_gates=False,
    has_activate=False,
    has_hints=False,
)

QUEUE_RULES = {
    each.mode: each
    for each in (
        _V1_20,
        replace(_V1_20, mode="v1.16"),
        QueueRules(
            mode="v1.34",
            handlers=events_handlers.V1_34,
            objects=events_objects.V1_34,
            renominates_from_status=False,
            moves_after_failed_binding=True,
            has_gates=True,
            has_activate=True,
            has_hints=True,
        ),
    )
}
