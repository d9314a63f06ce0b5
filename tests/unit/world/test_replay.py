"""The loop: instants, rounds, ends, against a scripted scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import pytest

from replay.world.ahead.look_ahead import LookAhead
from replay.world.loop import replay as loop
from replay.world.loop.replay import Limits, LoopError, Replay, ReplayEnd
from replay.world.models import Models
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import (
    S,
    bind,
    create,
    create_pod,
    delete,
    make_node,
    make_pod,
    unschedulable,
)

Script = Callable[[scheduler_pb2.Round], scheduler_pb2.RoundOutcomes]


class FakeScheduler:
    """Answers each message by a script and keeps what it was sent."""

    takes_windows = False

    def __init__(self, script: Script) -> None:
        self._script = script
        self._told: deque[scheduler_pb2.Round] = deque()
        self.rounds: list[scheduler_pb2.Round] = []

    def send_round(self, round_: scheduler_pb2.Round, window: object = ()) -> None:  # noqa: ARG002
        """Take a message."""
        self.rounds.append(round_)
        self._told.append(round_)

    def receive_outcomes(self) -> scheduler_pb2.RoundOutcomes:
        """Answer the first message that waits."""
        round_ = self._told.popleft()
        outcomes = self._script(round_)
        for outcome in outcomes.outcomes:
            outcome.time_ns = round_.time_ns
        return outcomes


class Silent:
    """Observes nothing."""

    def round_sent(self, round_: scheduler_pb2.Round) -> None:
        """Ignore it."""

    def outcomes(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Ignore it."""


def at(at_ns: int, record: trace_pb2.Record) -> trace_pb2.Record:
    """Return the record with its time."""
    record.time_ns = at_ns
    return record


def header(*, window_end_ns: int = 0) -> trace_pb2.Record:
    """Return a header's record at 0."""
    return trace_pb2.Record(header=trace_pb2.Header(window_end_time_ns=window_end_ns))


def play(
    script: Script,
    records: Iterable[trace_pb2.Record],
    *,
    until_ns: int | None = None,
    looks_ahead: bool = False,
) -> tuple[FakeScheduler, Replay, ReplayEnd]:
    """Play records and return the scheduler, the replay, and why it ended."""
    scheduler = FakeScheduler(script)
    models = Models(pod_gc_ns=0)
    replay = Replay(scheduler, None, models=models, sink=lambda _entry: None, observer=Silent())
    if looks_ahead:
        replay.send_through(LookAhead(replay, scheduler))
    end = replay.run(iter(records), Limits(until_ns=until_ns))
    return scheduler, replay, end


def idle(_: scheduler_pb2.Round) -> scheduler_pb2.RoundOutcomes:
    """Decide nothing."""
    return scheduler_pb2.RoundOutcomes()


def added(round_: scheduler_pb2.Round) -> list[str]:
    """Return the UIDs of pods without a node that a round adds."""
    return [
        event.add.pod.metadata.uid
        for event in round_.events
        if event.add.HasField("pod") and not event.add.pod.spec.node_name
    ]


def bind_all(round_: scheduler_pb2.Round) -> scheduler_pb2.RoundOutcomes:
    """Bind each new pod to "n"."""
    return scheduler_pb2.RoundOutcomes(outcomes=[bind(uid, "n") for uid in added(round_)])


def test_an_instant_is_sent_in_rounds_until_no_event_remains() -> None:
    """The binding's event, and what the kubelet does with it, belong to rounds of their own."""
    scheduler, replay, end = play(bind_all, [create(make_node()), create_pod(make_pod())])
    assert [(round_.time_ns, round_.number, len(round_.events)) for round_ in scheduler.rounds] == [
        (0, 0, 2),
        (0, 1, 2),
    ]
    assert [event.WhichOneof("event") for event in scheduler.rounds[1].events] == ["patch", "patch"]
    assert (end, replay.rounds, replay.instants) == (ReplayEnd.FINISHED, 2, 1)


def test_answers_come_before_the_events_that_they_cause() -> None:
    """In the order of the outcomes, refused ones with the reason."""

    def script(round_: scheduler_pb2.Round) -> scheduler_pb2.RoundOutcomes:
        outcomes = bind_all(round_)
        if outcomes.outcomes:
            outcomes.outcomes.append(bind("uid-p", "n", cycle=2))
        return outcomes

    scheduler, _, _ = play(script, [create(make_node()), create_pod(make_pod())])
    answers = scheduler.rounds[1].answers
    assert [(answer.pop.cycle, answer.HasField("refused")) for answer in answers] == [
        (1, False),
        (2, True),
    ]
    assert answers[1].refused == scheduler_pb2.REFUSAL_STAGE_BIND
    assert len(scheduler.rounds[1].events) == 2
    assert all(not round_.answers for round_ in scheduler.rounds if round_.number != 1)


def test_records_of_one_time_are_one_round_and_later_ones_later_instants() -> None:
    """In the trace's order."""
    records = [
        create(make_node()),
        at(5, create_pod(make_pod("a"))),
        at(5, create_pod(make_pod("b"))),
        at(9, delete("Pod", "a")),
    ]
    scheduler, _, _ = play(idle, records)
    assert [(round_.time_ns, len(round_.events)) for round_ in scheduler.rounds] == [
        (0, 1),
        (5, 2),
        (9, 1),
    ]


def test_a_long_round_is_split_and_only_its_last_message_takes_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Answers stand in the first."""
    monkeypatch.setattr(loop, "EVENTS_PER_MESSAGE", 2)
    records = [create(make_node()), *(create_pod(make_pod(f"p{index}")) for index in range(4))]
    scheduler, replay, _ = play(bind_all, records)
    first = [round_ for round_ in scheduler.rounds if round_.number == 0]
    assert [len(round_.events) for round_ in first] == [2, 2, 1]
    assert [round_.events_only for round_ in first] == [True, True, False]
    second = [round_ for round_ in scheduler.rounds if round_.number == 1]
    assert [len(round_.answers) for round_ in second] == [4, *[0] * (len(second) - 1)]
    assert (replay.rounds, replay.cluster.pending) == (2, {})


def test_a_scheduler_with_more_outcomes_is_called_again() -> None:
    """The parts of a round are answered together in the next."""
    pods = ["uid-a", "uid-b", "uid-c"]

    def script(round_: scheduler_pb2.Round) -> scheduler_pb2.RoundOutcomes:
        if round_.number or not pods:
            return scheduler_pb2.RoundOutcomes()
        outcome = bind(pods.pop(0), "n")
        return scheduler_pb2.RoundOutcomes(outcomes=[outcome], more=bool(pods))

    records = [create(make_node()), *(create_pod(make_pod(name)) for name in "abc")]
    scheduler, replay, _ = play(script, records)
    parts = [round_ for round_ in scheduler.rounds if round_.number == 0]
    assert [len(part.events) for part in parts] == [4, 0, 0]
    assert [answer.pop.uid for answer in scheduler.rounds[3].answers] == ["uid-a", "uid-b", "uid-c"]
    assert replay.rounds == 2


def test_a_later_part_of_a_round_may_name_a_pod_that_an_earlier_one_took_away() -> None:
    """The scheduler is sent its removal in the next round; until then it knows the pod."""
    left = [unschedulable(f"uid-{name}", node="n", victims=["uid-v"]) for name in "ab"]

    def script(round_: scheduler_pb2.Round) -> scheduler_pb2.RoundOutcomes:
        if round_.number or not left:
            return scheduler_pb2.RoundOutcomes()
        outcome = left.pop(0)
        return scheduler_pb2.RoundOutcomes(outcomes=[outcome], more=bool(left))

    victim = create_pod(make_pod("v", node="n", grace_s=0))
    pods = [create_pod(make_pod(name)) for name in "ab"]
    scheduler, replay, _ = play(script, [create(make_node()), victim, *pods])
    answered = [round_ for round_ in scheduler.rounds if round_.answers]
    assert [answer.HasField("refused") for answer in answered[0].answers] == [False, False]
    assert "uid-v" not in replay.cluster.pods


def test_rounds_that_never_end_stop_the_run_and_name_the_pods() -> None:
    """A scheduler that writes another status each time keeps the instant going."""
    count = iter(range(10_000))

    def script(_: scheduler_pb2.Round) -> scheduler_pb2.RoundOutcomes:
        return scheduler_pb2.RoundOutcomes(outcomes=[unschedulable("uid-p", str(next(count)))])

    with pytest.raises(LoopError, match=r"1000 rounds at 0 ns.*default/p"):
        play(script, [create_pod(make_pod())])


def tick_script(every_s: int, *, tries: bool = True) -> Script:
    """Return a script that finds no room, and requests a tick each `every_s` seconds."""

    def script(round_: scheduler_pb2.Round) -> scheduler_pb2.RoundOutcomes:
        due = round_.time_ns // (every_s * S) * every_s * S + every_s * S
        ticked = any(event.HasField("tick") for event in round_.events)
        uids = added(round_) or (["uid-p"] if ticked else [])
        outcomes = [unschedulable(uid) for uid in uids] if tries else []
        return scheduler_pb2.RoundOutcomes(outcomes=outcomes, next_wakeup_time_ns=due)

    return script


def ticks(scheduler: FakeScheduler) -> list[int]:
    """Return the seconds at which a tick was sent."""
    return [
        event.time_ns // S
        for round_ in scheduler.rounds
        for event in round_.events
        if event.HasField("tick")
    ]


def test_a_replay_ends_once_each_pending_pod_was_tried_on_the_final_snapshot() -> None:
    """Ticks alone do not keep it going."""
    scheduler, _, end = play(tick_script(30), [create(make_node()), create_pod(make_pod())])
    assert (ticks(scheduler), end) == ([], ReplayEnd.FINISHED)


def test_a_pod_is_tried_again_after_the_snapshot_has_changed() -> None:
    """The first tick after the node went tries it, and then nothing is left."""
    records = [create(make_node()), create_pod(make_pod()), at(45 * S, delete("Node", "n"))]
    scheduler, replay, end = play(tick_script(30), records)
    assert (ticks(scheduler), end) == ([30, 60], ReplayEnd.FINISHED)
    assert replay.cluster.all_tried()


def test_a_pod_that_no_tick_ever_tries_does_not_keep_a_replay_going() -> None:
    """Ten minutes without a change are enough."""
    records = [create(make_node()), create_pod(make_pod())]
    scheduler, replay, end = play(tick_script(30, tries=False), records)
    assert (end, ticks(scheduler)[-1]) == (ReplayEnd.FINISHED, 600)
    assert list(replay.cluster.pending) == ["uid-p"]


def test_a_pod_that_waits_for_no_tick_does_not_keep_a_replay_going() -> None:
    """Nothing is to come at all."""
    scheduler, _, end = play(idle, [create(make_node()), create_pod(make_pod())])
    assert (len(scheduler.rounds), end) == (1, ReplayEnd.FINISHED)


def test_what_is_planned_for_a_pod_that_has_gone_does_not_keep_a_replay_going() -> None:
    """A week of work that will never be done."""
    records = [
        create(make_node()),
        create_pod(make_pod("long", node="n"), service_duration_ns=604_800 * S),
        create_pod(make_pod()),
        at(S, delete("Pod", "long", grace_s=0)),
    ]
    scheduler, replay, end = play(tick_script(30), records)
    assert (end, replay.now_ns, ticks(scheduler)) == (ReplayEnd.FINISHED, 30 * S, [30])


def test_the_tick_that_a_replay_ends_before_is_named() -> None:
    """It is that of the last answer; where no pod is pending, it would bring nothing."""
    records = [create(make_node()), create_pod(make_pod())]
    _, replay, end = play(tick_script(30), records)
    assert (end, replay.now_ns, replay.ungiven_tick_ns) == (ReplayEnd.FINISHED, 0, 30 * S)
    _, replay, _ = play(tick_script(30), [*records, at(S, delete("Pod", "p", grace_s=0))])
    assert replay.ungiven_tick_ns is None


def test_retries_that_cannot_succeed_are_skipped_up_to_the_next_action() -> None:
    """A pod of three days: after ten minutes of retries the replay jumps to its end."""
    days = 3 * 86_400
    records = [
        create(make_node()),
        create_pod(make_pod("long", node="n", ready=True), service_duration_ns=days * S),
        create_pod(make_pod()),
    ]
    scheduler, replay, end = play(tick_script(30), records)
    tried = ticks(scheduler)
    assert (end, tried[:20], tried[20:]) == (ReplayEnd.FINISHED, list(range(30, 630, 30)), [days])
    assert ("retries", loop.RETRIES_SKIPPED) in replay.journal.notes


def test_retries_continue_to_a_limit_and_to_the_next_record() -> None:
    """Only where nothing but what is planned is left are they left out."""
    records = [
        create(make_node()),
        create_pod(make_pod("long", node="n", ready=True), service_duration_ns=86_400 * S),
        create_pod(make_pod()),
    ]
    scheduler, replay, _ = play(tick_script(30), records, until_ns=900 * S)
    assert ticks(scheduler) == list(range(30, 930, 30))
    scheduler, replay, _ = play(tick_script(30), [*records, at(900 * S, create(make_node("m")))])
    assert ticks(scheduler)[:30] == list(range(30, 930, 30))
    assert ("retries", loop.RETRIES_SKIPPED) in replay.journal.notes


def test_until_ends_a_replay_before_the_first_moment_after_it() -> None:
    """What is due at that very time still happens, ticks too."""
    records = [
        create_pod(make_pod()),
        at(60 * S, create(make_node())),
        at(61 * S, delete("Node", "n")),
    ]
    scheduler, replay, end = play(tick_script(30), records, until_ns=60 * S)
    assert (end, replay.now_ns) == (ReplayEnd.UNTIL, 60 * S)
    assert list(replay.cluster.nodes) == ["n"]
    assert ticks(scheduler) == [30, 60]


def test_with_a_limit_ticks_continue_to_it() -> None:
    """A pod that waits is tried as often as it would have been."""
    records = [header(window_end_ns=100 * S), create_pod(make_pod())]
    scheduler, _, end = play(tick_script(30), records)
    assert (ticks(scheduler), end) == ([30, 60, 90], ReplayEnd.WINDOW)
    scheduler, _, end = play(tick_script(30), records, until_ns=60 * S)
    assert (ticks(scheduler), end) == ([30, 60], ReplayEnd.UNTIL)
    scheduler, _, end = play(tick_script(30), records, until_ns=200 * S)
    assert end is ReplayEnd.WINDOW


def test_a_replay_without_further_actions_does_not_wait_for_its_limit() -> None:
    """The replay has settled."""
    _, _, end = play(bind_all, [create(make_node())], until_ns=100 * S)
    assert end is ReplayEnd.FINISHED


def test_every_tick_comes_first_in_its_round() -> None:
    """Before what happens at the same moment."""
    records = [create_pod(make_pod()), at(30 * S, create(make_node()))]
    scheduler, _, _ = play(tick_script(30), records)
    kinds = [event.WhichOneof("event") for event in scheduler.rounds[2].events]
    assert (scheduler.rounds[2].time_ns, kinds) == (30 * S, ["tick", "add"])
