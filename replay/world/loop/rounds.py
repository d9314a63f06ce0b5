"""Sends rounds to the scheduler, in parts, so that both sides work at the same time.

A long round is sent in several messages while the world still makes its events, and its outcomes
arrive in several parts while the scheduler works on the next one. Neither changes a decision: all
events arrive in order before the first pod is taken, and the effects of an outcome belong to the
next round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from replay.world.answers import SentObjects, check_outcomes
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
    """A service that schedules."""

    @property
    def takes_windows(self) -> bool:
        """Return whether rounds of later instants may be sent ahead."""

    def send_round(self, round_: scheduler_pb2.Round, window: Sequence[Foreseen] = ()) -> None:
        """Send a round or a further part of one, and the rounds that will follow it."""

    def receive_outcomes(self) -> scheduler_pb2.RoundOutcomes:
        """Return the outcomes of the first round sent whose outcomes were not returned yet."""


class Observer(Protocol):
    """A recorder of a run; nothing that it does has an effect on the run."""

    def round_sent(self, round_: scheduler_pb2.Round) -> None:
        """Record a round as it was sent to the scheduler."""

    def outcomes(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Record the outcomes of a round."""


class RoundStream:
    """One round after the other: `begin`, events as they are made, `outcomes`.

    `sent` are the objects that the scheduler has been sent, by which its outcomes are checked. With
    `one_by_one` a round takes one pod at most, and pods that are left request another round.

    Events that may wait, as the scheduler's last outcomes say, are sent with the next ones that may
    not. They keep their order and their times, so that only the number of `messages` differs.
    `awaits_effects`: the last outcomes ended their round although pods are left, which see the
    outcomes' effects in the next one. `left` is the number of rounds of the last message's window
    that the scheduler did not run.
    """

    _next: scheduler_pb2.Round
    _held: Urgency | None
    _has_more: bool
    _unanswered: list[scheduler_pb2.Round]
    _answers: list[scheduler_pb2.Answer]
    _ahead: deque[Foreseen]
    _may_wait: Urgency | None
    _cannot_wait: bool
    awaits_effects: bool
    left: int
    count: int
    messages: int

    def __init__(
        self,
        scheduler: SchedulerBackend,
        observer: Observer,
        sent: SentObjects,
        *,
        one_by_one: bool = False,
    ) -> None:
        self._scheduler = scheduler
        self._observer = observer
        self._sent = sent
        self._one_by_one = one_by_one
        self._max_pods = 1 if one_by_one else PODS_PER_MESSAGE
        self._next = scheduler_pb2.Round(max_pods=self._max_pods)
        self._held = None
        self._has_more = False
        self._unanswered = []
        self._answers = []
        self._ahead = deque()
        self._may_wait = None
        self._cannot_wait = False
        self.awaits_effects = False
        self.left = 0
        self.count = 0
        self.messages = 0
        self.last_events: Sequence[scheduler_pb2.Event] = ()

    def begin(self, now_ns: int, number: int, *, tick: bool) -> None:
        """Begin a round, which also has the events that wait; `tick` is its first new event."""
        self._next.at_ns, self._next.round = now_ns, number
        if tick:
            self._next.events.add(at_ns=now_ns).tick.SetInParent()
            self._cannot_wait = True

    def add_answers(self, now_ns: int, answers: Sequence[scheduler_pb2.Answer]) -> None:
        """Add the answers to this round's outcomes; the round after it sends them."""
        for answer in answers:
            answer.at_ns = now_ns
        self._answers += answers

    def add_late_answers(self, now_ns: int, answers: Sequence[scheduler_pb2.Answer]) -> None:
        """Add the answers to outcomes of an earlier round; the next round sends them.

        Answers precede events there, and so have at most the time of the first event that waits.
        """
        at_ns = min([now_ns, *(event.at_ns for event in self._next.events[:1])])
        for answer in answers:
            answer.at_ns = at_ns
        self._next.answers.extend(answers)
        self._cannot_wait |= any(answer.refused for answer in answers)

    def must_send(self, urgency: Urgency | None) -> bool:
        """Return whether a round whose further events have that `urgency` must be sent now."""
        if self._held is not None:
            urgency = max(self._held, urgency or self._held)
        if (
            self._has_more
            or self._unanswered
            or self._cannot_wait
            or len(self._next.events) >= EVENTS_PER_MESSAGE
        ):
            return True
        if self._may_wait is None:
            return urgency is not None or self._is_pending
        return urgency is not None and urgency > self._may_wait

    def defer(self, events: Sequence[scheduler_pb2.Event]) -> None:
        """Let events of the round wait for the next ones."""
        self._next.events.extend(events)

    def hold(self, events: Sequence[scheduler_pb2.Event], urgency: Urgency | None) -> None:
        """Let events wait, however urgent, until the scheduler's cycle ends."""
        self._next.events.extend(events)
        if urgency is not None:
            self._held = max(self._held or urgency, urgency)

    def send(self, events: Sequence[scheduler_pb2.Event]) -> None:
        """Send a part of the round's events now; more follow."""
        self._next.events.extend(events)
        self._next.events_only = True
        self._send(events)

    @property
    def is_ahead(self) -> bool:
        """Return whether the next round was already sent in a window."""
        return bool(self._ahead)

    @property
    def may_look_ahead(self) -> bool:
        """Return whether the next round may be sent with a window.

        No pod waited after the last round, so that only pods created since can.
        """
        return (
            self._scheduler.takes_windows
            and self._may_wait is Urgency.CHANGE
            and not (self._ahead or self._unanswered or self._one_by_one)
        )

    def outcomes(
        self,
        events: Sequence[scheduler_pb2.Event],
        window: Sequence[Foreseen] = (),
        *,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Iterator[scheduler_pb2.RoundOutcomes]:
        """Send the round's last events and yield its outcomes, part by part.

        `window` are the rounds that will follow; when their time comes, they are not sent again.
        `meanwhile` is called while the scheduler works on a window. Raises AnswerError.
        """
        self.count += 1
        self._next.events.extend(events)
        self._send(events, window)
        if window:
            meanwhile()
        while self._unanswered:
            round_ = self._unanswered.pop(0)
            outcomes = self._scheduler.receive_outcomes()
            is_followed = bool(self._ahead)
            check_outcomes(outcomes, round_.at_ns, self._sent, is_followed=is_followed)
            if not outcomes.goes_on:
                self.left = len(self._ahead)
                self._ahead.clear()
            self.awaits_effects = outcomes.awaits_effects
            self._has_more = outcomes.more and (self._one_by_one or self.awaits_effects)
            if outcomes.more and not self._has_more:
                self._send(())
            self._may_wait = _MAY_WAIT.get(outcomes.may_wait)
            self._observer.outcomes(round_, outcomes)
            yield outcomes
        self._next.answers.extend(self._answers)
        self._cannot_wait |= any(answer.refused for answer in self._answers)
        self._answers = []

    def finish(self) -> None:
        """Send the events that still wait, at the end of the run."""
        if self._is_pending:
            self.send(())
            self._observer.outcomes(self._unanswered.pop(), self._scheduler.receive_outcomes())

    @property
    def _is_pending(self) -> bool:
        return bool(self._next.answers or self._next.events)

    def _send(self, events: Sequence[scheduler_pb2.Event], window: Sequence[Foreseen] = ()) -> None:
        round_ = self._next
        self._next = scheduler_pb2.Round(
            at_ns=round_.at_ns, round=round_.round, max_pods=self._max_pods
        )
        self._cannot_wait, self._held, self._has_more = False, None, False
        if self._ahead:
            _check_foreseen(self._ahead.popleft(), round_)
        else:
            self.messages += 1
            self._ahead.extend(window)
            self._scheduler.send_round(round_, window)
        self._observer.round_sent(round_)
        self._unanswered.append(round_)
        self.last_events = events or self.last_events


def _check_foreseen(foreseen: Foreseen, round_: scheduler_pb2.Round) -> None:
    """Assert that a round is the one that was sent ahead; the scheduler has decided it already."""
    events, sent = len(round_.events), len(foreseen.confirmations) + len(foreseen.round.events)
    if (round_.at_ns, events) != (foreseen.round.at_ns, sent):
        raise AssertionError(
            f"the round at {round_.at_ns} ns with {events} events is not the one that was sent "
            f"ahead, at {foreseen.round.at_ns} ns with {sent} events"
        )
