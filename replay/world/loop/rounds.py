"""Sends rounds to the scheduler and receives their outcomes.

A long round is sent in several messages while the world still makes its events, and its outcomes
arrive in several parts while the scheduler works on the next one. Neither changes a decision: all
events arrive in order before the first pod is taken, and the effects of an outcome belong to the
next round.

`LookAhead` (replay/world/ahead), where it is used, is the scheduler that it sends to, and says
which rounds need not be sent (`RoundStream.send_through`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from replay.world.api.pod_record import PodRecord
from replay.world.response_checks import SentObjects, check_outcomes
from reprieve.scheduler.v1beta1 import scheduler_pb2

EVENTS_PER_MESSAGE = 2000
PODS_PER_MESSAGE = 1024


class SchedulerBackend(Protocol):
    """A service that schedules."""

    def send_round(self, round_: scheduler_pb2.Round) -> None:
        """Send a round or a further part of one."""

    def receive_outcomes(self) -> scheduler_pb2.RoundOutcomes:
        """Return the outcomes of the first round sent whose outcomes were not returned yet."""


class MessageSaver(SchedulerBackend, Protocol):
    """A scheduler that is sent fewer messages than there are rounds."""

    def watch(
        self, event: scheduler_pb2.Event, pod: PodRecord | None, ends_nomination: bool
    ) -> None:
        """Note an event that is to be sent; see `Cluster.watch`."""

    def may_wait(self) -> bool:
        """Return whether everything that is not sent yet may be sent with a later round."""

    def restarted(self) -> None:
        """Note that another scheduler has all objects, and nothing has been sent to it since."""


class Observer(Protocol):
    """A recorder of a run, which has no effect on the run."""

    def round_sent(self, round_: scheduler_pb2.Round) -> None:
        """Record a round as it was sent to the scheduler."""

    def outcomes(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Record the outcomes of a round."""


InvalidOutcomes = Mapping[tuple[str, int], Sequence[tuple[str, str]]]
"""Outcomes by pop (UID and cycle): the rules that each breaks, as causes with messages."""


class PlacementAudit(Protocol):
    """Checks the scheduler's decisions; the result is recorded and changes none of them."""

    def judge(
        self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes
    ) -> InvalidOutcomes:
        """Return the invalid ones among a message's outcomes."""


class RestartedScheduler(NamedTuple):
    """A scheduler that has been sent all objects: the names that it takes pods of, its audit."""

    names: frozenset[str]
    audit: PlacementAudit | None


class RoundStream:
    """Sends one round after the other: `begin`, `send_part` as often as needed, `outcomes`.

    `sent` are the objects that the scheduler has been sent, by which its outcomes are checked. With
    `one_by_one` a round takes one pod at most, and pods that are left request another round.

    `awaits_effects`: the last outcomes ended their round although pods are left, which see the
    outcomes' effects in the next one. `found_invalid` receives the outcomes that `audit` finds
    invalid, before they are yielded. `has_refusals`: an answer that was not sent yet refuses an
    outcome. `messages` counts rounds and parts.
    """

    _at_ns: int
    _number: int
    _pods_left: bool
    _answers: list[scheduler_pb2.Answer]
    _unanswered: deque[scheduler_pb2.Round]
    awaits_effects: bool
    has_refusals: bool
    count: int
    messages: int

    def __init__(
        self,
        scheduler: SchedulerBackend,
        observer: Observer,
        sent: SentObjects,
        *,
        one_by_one: bool = False,
        audit: PlacementAudit | None = None,
        found_invalid: Callable[[InvalidOutcomes], None] = lambda _invalid: None,
    ) -> None:
        self.scheduler = scheduler
        self.may_wait: Callable[[], bool] = lambda: False
        self.scheduler_restarted: Callable[[], None] = lambda: None
        self._observer = observer
        self._sent = sent
        self._audit = audit
        self._found_invalid = found_invalid
        self._one_by_one = one_by_one
        self._max_pods = 1 if one_by_one else PODS_PER_MESSAGE
        self._at_ns = 0
        self._number = 0
        self._pods_left = False
        self._answers = []
        self._unanswered = deque()
        self.awaits_effects = False
        self.has_refusals = False
        self.count = 0
        self.messages = 0
        self.last_events: Sequence[scheduler_pb2.Event] = ()

    def send_through(self, scheduler: MessageSaver) -> None:
        """Send to a scheduler that stands before the one given first."""
        self.scheduler, self.may_wait = scheduler, scheduler.may_wait
        self.scheduler_restarted = scheduler.restarted

    def begin(self, now_ns: int, number: int) -> None:
        """Begin round `number` of an instant."""
        self._at_ns, self._number = now_ns, number

    def add_answers(self, at_ns: int, answers: Sequence[scheduler_pb2.Answer]) -> None:
        """Add answers to outcomes, of a time at most that of the next round's first event."""
        for answer in answers:
            answer.time_ns = at_ns
        self._answers += answers
        self.has_refusals |= any(answer.refused for answer in answers)

    @property
    def is_answered(self) -> bool:
        """Return whether every message has its outcomes."""
        return not self._unanswered

    def must_send(self, events: Sequence[scheduler_pb2.Event]) -> bool:
        """Return whether the round must be sent now; `events` are those that were not sent yet."""
        if self._pods_left or self._unanswered:
            return True
        return bool(events or self._answers) and not self.may_wait()

    def send_part(self, events: Sequence[scheduler_pb2.Event]) -> None:
        """Send a part of the round's events now; more follow."""
        self._send(self._round(events, events_only=True))

    def outcomes(
        self, events: Sequence[scheduler_pb2.Event]
    ) -> Iterator[scheduler_pb2.RoundOutcomes]:
        """Send the round's last events and yield its outcomes, part by part.

        Raises ContractError.
        """
        self.count += 1
        self._send(self._round(events))
        while self._unanswered:
            round_ = self._unanswered.popleft()
            outcomes = self.scheduler.receive_outcomes()
            check_outcomes(outcomes, round_.time_ns, self._sent)
            self.awaits_effects = outcomes.awaits_effects
            self._pods_left = outcomes.more and (self._one_by_one or self.awaits_effects)
            if outcomes.more and not self._pods_left:
                # The scheduler decides the next part while the world carries out this one, whose
                # answers and effects are not sent before the round's last part is answered.
                self._send(self._message())
            self._observer.outcomes(round_, outcomes)
            if self._audit is not None:
                self._found_invalid(self._audit.judge(round_, outcomes))
            yield outcomes

    def restarted(self, audit: PlacementAudit | None) -> None:
        """Note that another scheduler has all objects, and has tried no pod yet."""
        self._pods_left = True
        self._audit = audit
        self.scheduler_restarted()

    def finish(self, events: Sequence[scheduler_pb2.Event]) -> None:
        """Send the events and answers not sent yet at the end of the run."""
        if events or self._answers:
            self.send_part(events)
            self._observer.outcomes(self._unanswered.popleft(), self.scheduler.receive_outcomes())

    def _round(
        self, events: Sequence[scheduler_pb2.Event], *, events_only: bool = False
    ) -> scheduler_pb2.Round:
        message = self._message()
        message.answers.extend(self._answers)
        message.events.extend(events)
        message.events_only = events_only
        self._answers, self.has_refusals = [], False
        self.last_events = events or self.last_events
        return message

    def _message(self) -> scheduler_pb2.Round:
        return scheduler_pb2.Round(
            time_ns=self._at_ns, number=self._number, max_pods=self._max_pods
        )

    def _send(self, round_: scheduler_pb2.Round) -> None:
        self.messages += 1
        self.scheduler.send_round(round_)
        self._observer.round_sent(round_)
        self._unanswered.append(round_)
