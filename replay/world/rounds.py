"""Telling rounds to the scheduler, in parts, so that both sides work at once.

A long round goes out in several messages while the world still makes its events, and its pods come
back in several parts while the scheduler goes on with the next. Neither shows in a decision: events
arrive in order before the first pod is taken, and what an outcome causes belongs to the next round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from reprieve.scheduler.v1alpha1 import scheduler_pb2

EVENTS_PER_MESSAGE = 2000
PODS_PER_MESSAGE = 1024


class SchedulerBackend(Protocol):
    """Whoever schedules: a service behind a stream."""

    def tell(self, round_: scheduler_pb2.Round) -> None:
        """Tell a round, or go on with one."""

    def answer(self) -> scheduler_pb2.RoundOutcomes:
        """Return what was decided of the first round told whose answer has not been taken."""


class Observer(Protocol):
    """Whoever records a run; nothing that it does comes back into the run."""

    def round_told(self, round_: scheduler_pb2.Round) -> None:
        """Take a round as it was told to the scheduler."""

    def outcomes(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Take what the scheduler answered to a round."""


class Rounds:
    """One round after the other: `begin`, events as they come, `outcomes`."""

    def __init__(self, scheduler: SchedulerBackend, observer: Observer) -> None:
        self._scheduler = scheduler
        self._observer = observer
        self._next = scheduler_pb2.Round()
        self._told: list[scheduler_pb2.Round] = []
        self.count = 0
        self.last_events: Sequence[scheduler_pb2.Event] = ()

    def begin(
        self, now_ns: int, number: int, answers: Sequence[scheduler_pb2.Answer], *, tick: bool
    ) -> None:
        """Begin a round with the answers to the last one's outcomes; `tick` is its first event."""
        self._next = _part(now_ns, number)
        self._next.answers.extend(answers)
        if tick:
            self._next.events.add(at_ns=now_ns).tick.SetInParent()

    @property
    def has_something(self) -> bool:
        """Tell whether the round has anything to tell so far."""
        return bool(self._told or self._next.answers or self._next.events)

    def send(self, events: Sequence[scheduler_pb2.Event]) -> None:
        """Send events of the round ahead; more are to come."""
        self._next.events.extend(events)
        self._next.events_only = True
        self._tell(events)

    def outcomes(
        self, events: Sequence[scheduler_pb2.Event]
    ) -> Iterator[scheduler_pb2.RoundOutcomes]:
        """Send the round's last events and yield its outcomes, part by part."""
        self.count += 1
        self._next.events.extend(events)
        self._tell(events)
        while self._told:
            round_ = self._told.pop(0)
            outcomes = self._scheduler.answer()
            if outcomes.more:
                self._tell(())
            self._observer.outcomes(round_, outcomes)
            yield outcomes

    def _tell(self, events: Sequence[scheduler_pb2.Event]) -> None:
        round_, self._next = self._next, _part(self._next.at_ns, self._next.round)
        self._scheduler.tell(round_)
        self._observer.round_told(round_)
        self._told.append(round_)
        self.last_events = events or self.last_events


def _part(now_ns: int, number: int) -> scheduler_pb2.Round:
    return scheduler_pb2.Round(at_ns=now_ns, round=number, max_pods=PODS_PER_MESSAGE)
