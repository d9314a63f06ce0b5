"""Events that cannot lead to a decision are sent with the next round that must be sent."""

from __future__ import annotations

import pytest

from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import (
    S,
    bind,
    create,
    create_pod,
    delete,
    make_budget,
    make_node,
    make_pod,
    unschedulable,
    update,
)
from tests.unit.world.test_replay import (
    FakeScheduler,
    Script,
    added,
    at,
    bind_all,
    idle,
    play,
    tick_script,
    ticks,
)

STATUS, ALL = scheduler_pb2.MAY_WAIT_STATUS, scheduler_pb2.MAY_WAIT_ALL


def play_patiently(
    script: Script, may_wait: scheduler_pb2.MayWait.ValueType, *records: trace_pb2.Record
) -> FakeScheduler:
    """Play records against a scheduler whose outcomes have that `may_wait`."""

    def answer(round_: scheduler_pb2.Round) -> scheduler_pb2.RoundOutcomes:
        outcomes = script(round_)
        outcomes.may_wait = may_wait
        return outcomes

    scheduler, _, _ = play(answer, records, looks_ahead=True)
    return scheduler


def sent_ns(scheduler: FakeScheduler) -> list[int]:
    """Return the times of the rounds that take pods, ns."""
    return [round_.time_ns for round_ in scheduler.rounds if not round_.events_only]


def test_a_binding_and_a_start_are_sent_with_the_next_pod_at_their_own_times() -> None:
    """In their order, and answers before them."""
    records = [create(make_node()), create_pod(make_pod("a")), at(9 * S, create_pod(make_pod("b")))]
    scheduler = play_patiently(bind_all, STATUS, *records)
    assert sent_ns(scheduler) == [0, 9 * S]
    second = scheduler.rounds[1]
    assert second.number == 0
    assert [answer.time_ns for answer in second.answers] == [0]
    times = [event.time_ns for event in second.events]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (0, 9 * S)
    assert [event.WhichOneof("event") for event in second.events][-1] == "add"


def test_events_that_wait_at_the_end_are_sent_without_a_round() -> None:
    """So that the history is whole."""
    scheduler = play_patiently(bind_all, ALL, create(make_node()), create_pod(make_pod()))
    assert [round_.events_only for round_ in scheduler.rounds] == [False, True]
    assert [event.HasField("patch") for event in scheduler.rounds[1].events] == [True, True]


@pytest.mark.parametrize(("may_wait", "rounds"), [(STATUS, [0, 5]), (ALL, [0])])
def test_the_deletion_of_a_node_waits_only_while_no_pod_is_pending(
    may_wait: scheduler_pb2.MayWait.ValueType, rounds: list[int]
) -> None:
    """Where a pod is pending, the node's pods may have been in its way."""
    records = [create(make_node()), create_pod(make_pod()), at(5, delete("Node", "n"))]
    assert sent_ns(play_patiently(bind_all, may_wait, *records)) == rounds


@pytest.mark.parametrize(
    "change",
    [create(make_budget("b")), update(make_budget("a")), delete("PodDisruptionBudget", "a")],
)
def test_a_change_of_a_budget_waits_although_a_pod_is_pending(change: trace_pb2.Record) -> None:
    """No plugin waits for one; an attempt that reads it receives it before."""
    records = [create(make_node()), create(make_budget("a")), create_pod(make_pod())]
    later = [at(5, change), at(9, create_pod(make_pod("late")))]
    scheduler = play_patiently(idle, STATUS, *records, *later)
    assert sent_ns(scheduler) == [0, 9]
    times = [event.time_ns for event in scheduler.rounds[1].events]
    assert (times, set(times)) == (sorted(times), {5, 9})


@pytest.mark.parametrize(("node", "rounds"), [("n", [0]), ("", [0, 5 * S])])
def test_the_deletion_of_a_pod_without_a_node_never_waits(node: str, rounds: list[int]) -> None:
    """That of a pod with a node does while no pod is pending."""
    gated = make_pod("p", node=node)
    gated.spec.scheduling_gates.add(name="gate")
    records = [create(make_node()), create_pod(gated), at(5 * S, delete("Pod", "p", grace_s=0))]
    assert sent_ns(play_patiently(idle, ALL, *records)) == rounds


@pytest.mark.parametrize("may_wait", [STATUS, ALL])
def test_the_end_of_a_nomination_waits_only_while_no_pod_is_pending(
    may_wait: scheduler_pb2.MayWait.ValueType,
) -> None:
    """Room that was reserved for the pod may be enough for another."""

    def script(round_: scheduler_pb2.Round) -> scheduler_pb2.RoundOutcomes:
        outcomes = [unschedulable(uid, node="n") for uid in added(round_) if uid == "uid-a"]
        outcomes += [unschedulable("uid-a", node="") for uid in added(round_) if uid == "uid-b"]
        return scheduler_pb2.RoundOutcomes(outcomes=outcomes)

    records = [create(make_node()), create_pod(make_pod("a")), at(5, create_pod(make_pod("b")))]
    ended = [5, 5] if may_wait == STATUS else [5]
    assert sent_ns(play_patiently(script, may_wait, *records)) == [0, *ended]


def test_a_refused_answer_does_not_wait() -> None:
    """The scheduler must take the pod back."""

    def script(round_: scheduler_pb2.Round) -> scheduler_pb2.RoundOutcomes:
        twice = [bind(uid, "n", cycle=cycle) for uid in added(round_) for cycle in (1, 2)]
        return scheduler_pb2.RoundOutcomes(outcomes=twice)

    scheduler = play_patiently(script, ALL, create(make_node()), create_pod(make_pod()))
    assert sent_ns(scheduler) == [0, 0]
    assert [bool(round_.answers) for round_ in scheduler.rounds[:2]] == [False, True]


def test_a_tick_does_not_wait() -> None:
    """The scheduler has requested it, and is sent it once."""
    records = [create_pod(make_pod()), at(45 * S, create_pod(make_pod("late")))]
    assert ticks(play_patiently(tick_script(30), STATUS, *records)).count(30) == 1
