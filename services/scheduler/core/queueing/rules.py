"""What a queue's mode means for the scheduler, chosen once when a session opens."""

from __future__ import annotations

from dataclasses import dataclass, replace

from services.scheduler.core.queueing import changes, events
from services.scheduler.core.queueing.changes import ObjectEvents
from services.scheduler.core.queueing.events import EventHandlers


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


_V1_20 = QueueRules(
    mode="v1.20",
    handlers=events.V1_20,
    objects=changes.V1_20,
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
            handlers=events.V1_34,
            objects=changes.V1_34,
            renominates_from_status=False,
            moves_after_failed_binding=True,
            has_gates=True,
            has_activate=True,
            has_hints=True,
        ),
    )
}
