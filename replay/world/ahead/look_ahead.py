"""Look-ahead: sends fewer messages to the scheduler. No decision depends on it.

`LookAhead(replay, scheduler)` stands between a replay and its scheduler, once the replay sends
through it (`Replay.send_through`). The loop, the cluster and the controllers work without it, and
then send each round at its own time (tests/e2e/test_plain_loop.py compares the decision logs). It
does two things:

**Events wait** (docs/decisions/0005). After a round the scheduler says which events cannot lead to
a decision in its present state (`MayWait`). A round that holds nothing else is not sent; its events
keep their order and their times and are sent with the next round that must be.

**Rounds are sent ahead** (docs/decisions/0017). While no pod is pending, a message carries the
rounds of later instants, too: a window. This is conservative look-ahead, as in parallel
discrete-event simulation: a process may be sent what happens up to a time before which nothing can
change it, so that nothing is ever rolled back. windows.py has the closed list of steps that no
decision can change, and foresees them without carrying them out. A window assumes that every pod is
bound in the round in which it is created. The scheduler stops after the first round with another
result, and the rounds after that are sent again at their own times. When the time of a foreseen
round comes, the loop makes the same round and sends it as ever; it is held against the foreseen one
and goes no further, since its outcomes are under way.

Source: K. M. Chandy, J. Misra, Asynchronous distributed simulation via a sequence of parallel
computations, 1981.
"""

from __future__ import annotations

from collections import Counter, deque
from enum import IntEnum
from typing import Protocol

from replay.world.ahead.windows import Windows
from replay.world.api.pod_record import PodRecord
from replay.world.loop.replay import Replay
from replay.world.loop.rounds import EVENTS_PER_MESSAGE
from replay.world.response_checks import check_window_continues
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1.scheduler_service_pb2 import Foreseen, RunRoundRequest


class Urgency(IntEnum):
    """The urgency with which an event must be sent to the scheduler; greater is more urgent.

    STATUS: a binding, a change of a status that ends neither a pod nor a nomination, and any change
    of a disruption budget, which is read within an attempt only. CHANGE: any other event. NOW: a
    tick, a new pod, and a change of a pod without a node.
    """

    STATUS = 1
    CHANGE = 2
    NOW = 3


_MAY_WAIT = {
    scheduler_pb2.MAY_WAIT_STATUS: Urgency.STATUS,
    scheduler_pb2.MAY_WAIT_ALL: Urgency.CHANGE,
}


class WindowedScheduler(Protocol):
    """A scheduler service that may run rounds of later instants within one request."""

    @property
    def takes_windows(self) -> bool:
        """Return whether rounds of later instants may be sent ahead."""

    def send_round(
        self, round_: scheduler_pb2.Round, request: RunRoundRequest | None = None
    ) -> None:
        """Send a round or a further part of one, and the rounds that will follow it.

        These are in `request`, the rest of which is filled in.
        """

    def receive_outcomes(self) -> scheduler_pb2.RoundOutcomes:
        """Return the outcomes of the first round sent whose outcomes were not returned yet."""


class LookAhead:
    """The scheduler as the loop sees it; sends it fewer messages than the replay has rounds.

    `rounds_ahead` counts the rounds that needed no message of their own.
    """

    _may_wait: Urgency | None
    _urgency: Urgency | None
    _ahead: deque[Foreseen]
    rounds_ahead: int

    def __init__(
        self, replay: Replay, scheduler: WindowedScheduler, *, opens_windows: bool = True
    ) -> None:
        self._opens_windows = opens_windows and scheduler.takes_windows
        self._scheduler = scheduler
        self._replay = replay
        self._stream = replay.stream
        self._windows = Windows(replay)
        self._may_wait = None
        self._urgency = None
        self._ahead = deque()
        self.rounds_ahead = 0

    @property
    def is_open(self) -> bool:
        """Return whether a window is under way: the next round has been sent already."""
        return bool(self._ahead)

    @property
    def ended(self) -> Counter[str]:
        """Return the number of windows by the reason of their end."""
        return self._windows.ended

    # Events that may wait

    def may_wait(self) -> bool:
        """Return whether everything that is not sent yet may be sent with a later round."""
        return (
            self._may_wait is not None
            and (self._urgency is None or self._urgency <= self._may_wait)
            and not self._stream.has_refusals
            and len(self._replay.cluster.events) < EVENTS_PER_MESSAGE
        )

    def restarted(self) -> None:
        """Forget what the former scheduler has answered; see `MessageSaver.restarted`."""
        self._may_wait = self._urgency = None

    def watch(
        self, event: scheduler_pb2.Event, pod: PodRecord | None, ends_nomination: bool
    ) -> None:
        """Keep the urgency of the most urgent event that is not sent yet; see `Cluster.watch`."""
        if self._urgency is not Urgency.NOW:
            urgency = _urgency(event, pod, ends_nomination=ends_nomination)
            if self._urgency is None or urgency > self._urgency:
                self._urgency = urgency

    # The scheduler, as the loop sees it

    def send_round(self, round_: scheduler_pb2.Round) -> None:
        """Send a round, unless it was sent ahead; with it, the rounds that can be foreseen."""
        if round_.events:  # They were all; a message that continues a round has none.
            self._urgency = None
        if self._ahead:
            self.rounds_ahead += 1
            _check_foreseen(self._ahead.popleft(), round_)
            return
        request = RunRoundRequest()
        if self._is_foreseeable(round_):
            self._windows.foresee(round_.time_ns, request.window)
        self._ahead.extend(request.window)
        self._scheduler.send_round(round_, request)
        if self._ahead:
            self._windows.read_ahead()

    def receive_outcomes(self) -> scheduler_pb2.RoundOutcomes:
        """Return the outcomes of the first round whose outcomes were not returned yet.

        Raises ContractError.
        """
        outcomes = self._scheduler.receive_outcomes()
        check_window_continues(outcomes, is_followed=bool(self._ahead))
        if not outcomes.window_continues:
            self._windows.close(len(self._ahead))
            self._ahead.clear()
        # A round with pods left is continued, and only its last part says what may wait.
        self._may_wait = None if outcomes.more else _MAY_WAIT.get(outcomes.may_wait)
        return outcomes

    def _is_foreseeable(self, round_: scheduler_pb2.Round) -> bool:
        """Return whether rounds after this one may be sent with it.

        No pod waited after the last round, so that only pods created since can.
        """
        return (
            self._opens_windows
            and self._may_wait is Urgency.CHANGE
            and self._stream.is_answered
            and not round_.events_only
        )


def _urgency(
    event: scheduler_pb2.Event, pod: PodRecord | None, *, ends_nomination: bool
) -> Urgency:
    """Return how soon an event must be sent; the contract's MayWait states the rule."""
    if pod is None:
        if event.HasField("tick"):
            return Urgency.NOW
        return Urgency.STATUS if _is_of_budget(event) else Urgency.CHANGE
    if event.HasField("patch") and not event.patch.HasField("deletion_time_ns"):
        if not pod.node_name and pod.is_terminating:
            return Urgency.NOW
        return Urgency.CHANGE if ends_nomination or pod.is_terminal else Urgency.STATUS
    is_new = event.HasField("add")
    return Urgency.NOW if is_new or not pod.node_name else Urgency.CHANGE


def _is_of_budget(event: scheduler_pb2.Event) -> bool:
    """Return whether an event that is about no pod is about a disruption budget.

    Source: kubernetes v1.34 pkg/scheduler/eventhandlers.go, addAllEventHandlers (no handler of
    budgets); framework/preemption/preemption.go, findCandidates (which lists them).
    """
    match event.WhichOneof("event"):
        case "update":
            return event.update.HasField("pod_disruption_budget")
        case "add":
            return event.add.HasField("pod_disruption_budget")
        case "remove":
            return event.remove.kind == "PodDisruptionBudget"
    return False


def _check_foreseen(foreseen: Foreseen, round_: scheduler_pb2.Round) -> None:
    """Assert that a round is the one that was sent ahead; the scheduler has decided it already."""
    events, sent = len(round_.events), len(foreseen.confirmations) + len(foreseen.round.events)
    if (round_.time_ns, events) != (foreseen.round.time_ns, sent):
        raise AssertionError(
            f"the round at {round_.time_ns} ns with {events} events is not the one that was sent "
            f"ahead, at {foreseen.round.time_ns} ns with {sent} events"
        )
