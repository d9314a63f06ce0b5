"""Telling rounds to the scheduler, in parts, so that both sides work at once.

A long round goes out in several messages while the world still makes its events, and its pods come
back in several parts while the scheduler goes on with the next. Neither shows in a decision: events
arrive in order before the first pod is taken, and what an outcome causes belongs to the next round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from replay.world.answers import Known, check_outcomes
from replay.world.api.cluster import Urgency
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1.scheduler_service_pb2 import Foreseen

EVENTS_PER_MESSAGE = 2000
PODS_PER_MESSAGE = 1024

_MAY_WAIT = {
    scheduler_pb2.MAY_WAIT_STATUS: Urgency.STATUS,
    scheduler_pb2.MAY_WAIT_ALL: Urgency.CHANGE,
}


class SchedulerBackend(Protocol):
    """Whoever schedules: a service behind a stream."""

    @property
    def takes_windows(self) -> bool:
        """Tell whether rounds may be told ahead."""

    def tell(self, round_: scheduler_pb2.Round, window: Sequence[Foreseen] = ()) -> None:
        """Tell a round, or go on with one, and the rounds that will follow it."""

    def answer(self) -> scheduler_pb2.RoundOutcomes:
        """Return what was decided of the first round told whose answer has not been taken."""


class Observer(Protocol):
    """Whoever records a run; nothing that it does comes back into the run."""

    def round_told(self, round_: scheduler_pb2.Round) -> None:
        """Take a round as it was told to the scheduler."""

    def outcomes(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Take what the scheduler answered to a round."""


class Rounds:
    """One round after the other: `begin`, events as they come, `outcomes`.

    `known` is what the scheduler has been sent, which its answers are checked by.

    With `one_by_one` a round takes one pod at most, and pods that are left ask for a round again.

    What the scheduler said may wait does so until there is more to tell. It keeps its order and its
    times, so that only fewer messages show that it has waited. `messages` counts those;
    `left` is how many rounds of the last one's window the scheduler did not run.
    """

    def __init__(
        self,
        scheduler: SchedulerBackend,
        observer: Observer,
        known: Known,
        *,
        one_by_one: bool = False,
    ) -> None:
        self._scheduler = scheduler
        self._observer = observer
        self._known = known
        self._one_by_one = one_by_one
        self._most = 1 if one_by_one else PODS_PER_MESSAGE
        self._next = scheduler_pb2.Round(max_pods=self._most)
        self._held: Urgency | None = None
        self._has_more = False
        self._told: list[scheduler_pb2.Round] = []
        self._answers: list[scheduler_pb2.Answer] = []
        self._ahead: deque[Foreseen] = deque()
        self._may_wait: Urgency | None = None
        self._cannot_wait = False
        self.left = 0
        self.count = 0
        self.messages = 0
        self.last_events: Sequence[scheduler_pb2.Event] = ()

    def begin(self, now_ns: int, number: int, *, tick: bool) -> None:
        """Begin a round, or go on with what waits; `tick` is the first event of its moment."""
        self._next.at_ns, self._next.round = now_ns, number
        if tick:
            self._next.events.add(at_ns=now_ns).tick.SetInParent()
            self._cannot_wait = True

    def answer(self, now_ns: int, answers: Sequence[scheduler_pb2.Answer]) -> None:
        """Take what became of outcomes; the round after theirs tells it."""
        for answer in answers:
            answer.at_ns = now_ns
        self._answers += answers

    def answer_late(self, now_ns: int, answers: Sequence[scheduler_pb2.Answer]) -> None:
        """Take what became of outcomes of a round before; the next round tells it.

        Answers stand before events there, and so none is later than the first event that waits.
        """
        at_ns = min([now_ns, *(event.at_ns for event in self._next.events[:1])])
        for answer in answers:
            answer.at_ns = at_ns
        self._next.answers.extend(answers)
        self._cannot_wait |= any(answer.refused for answer in answers)

    def must_be_told(self, urgency: Urgency | None) -> bool:
        """Tell whether a round whose other events are of that `urgency` must be told now."""
        if self._held is not None:
            urgency = max(self._held, urgency or self._held)
        if (
            self._has_more
            or self._told
            or self._cannot_wait
            or len(self._next.events) >= EVENTS_PER_MESSAGE
        ):
            return True
        if self._may_wait is None:
            return urgency is not None or self._has_something
        return urgency is not None and urgency > self._may_wait

    def wait(self, events: Sequence[scheduler_pb2.Event]) -> None:
        """Let events of the round wait."""
        self._next.events.extend(events)

    def hold(self, events: Sequence[scheduler_pb2.Event], urgency: Urgency | None) -> None:
        """Keep events, however urgent, while the scheduler cannot be told of them."""
        self._next.events.extend(events)
        if urgency is not None:
            self._held = max(self._held or urgency, urgency)

    def send(self, events: Sequence[scheduler_pb2.Event]) -> None:
        """Send events of the round ahead; more are to come."""
        self._next.events.extend(events)
        self._next.events_only = True
        self._tell(events)

    @property
    def is_ahead(self) -> bool:
        """Tell whether the scheduler has been told more than the round that comes next."""
        return bool(self._ahead)

    @property
    def may_look_ahead(self) -> bool:
        """Tell whether the next round may be told with those that will follow it.

        No pod waited after the last one, which leaves those that have come since.
        """
        return (
            self._scheduler.takes_windows
            and self._may_wait is Urgency.CHANGE
            and not (self._ahead or self._told or self._one_by_one)
        )

    def outcomes(
        self,
        events: Sequence[scheduler_pb2.Event],
        window: Sequence[Foreseen] = (),
        *,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Iterator[scheduler_pb2.RoundOutcomes]:
        """Send the round's last events and yield its outcomes, part by part.

        `window` are the rounds that will follow. One that was told so is not sent again. While the
        scheduler works on a window the world has time for something else, `meanwhile`.
        """
        self.count += 1
        self._next.events.extend(events)
        self._tell(events, window)
        if window:
            meanwhile()
        while self._told:
            round_ = self._told.pop(0)
            outcomes = self._scheduler.answer()
            is_followed = bool(self._ahead)
            check_outcomes(outcomes, round_.at_ns, self._known, is_followed=is_followed)
            if not outcomes.goes_on:
                self.left = len(self._ahead)
                self._ahead.clear()
            self._has_more = outcomes.more and self._one_by_one
            if outcomes.more and not self._one_by_one:
                self._tell(())
            self._may_wait = _MAY_WAIT.get(outcomes.may_wait)
            self._observer.outcomes(round_, outcomes)
            yield outcomes
        self._next.answers.extend(self._answers)
        self._cannot_wait |= any(answer.refused for answer in self._answers)
        self._answers = []

    def finish(self) -> None:
        """Tell what still waits, of which nothing comes any more."""
        if self._has_something:
            self.send(())
            self._observer.outcomes(self._told.pop(), self._scheduler.answer())

    @property
    def _has_something(self) -> bool:
        return bool(self._next.answers or self._next.events)

    def _tell(self, events: Sequence[scheduler_pb2.Event], window: Sequence[Foreseen] = ()) -> None:
        round_ = self._next
        self._next = scheduler_pb2.Round(
            at_ns=round_.at_ns, round=round_.round, max_pods=self._most
        )
        self._cannot_wait, self._held, self._has_more = False, None, False
        if self._ahead:
            _check(self._ahead.popleft(), round_)
        else:
            self.messages += 1
            self._ahead.extend(window)
            self._scheduler.tell(round_, window)
        self._observer.round_told(round_)
        self._told.append(round_)
        self.last_events = events or self.last_events


def _check(foreseen: Foreseen, round_: scheduler_pb2.Round) -> None:
    """Hold that a round came as it was foreseen; the scheduler has decided it already."""
    told, was_told = len(round_.events), len(foreseen.confirmations) + len(foreseen.round.events)
    if (round_.at_ns, told) != (foreseen.round.at_ns, was_told):
        raise AssertionError(
            f"the round at {round_.at_ns} ns with {told} events is not the one that was foreseen, "
            f"at {foreseen.round.at_ns} ns with {was_told}"
        )
