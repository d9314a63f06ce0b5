"""What is not sent to the queue, or asked of it, and no decision is another one for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from replay.backends.processes import EmbeddedServices
from replay.kube.kinds import to_object
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import EventLabel, Move
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.queue_client import QueueLink
from services.scheduler.session import SchedulerSession
from tests.e2e.random_world import RandomWorld, forget_times
from tests.scheduler_rounds import ask_for_everything, told

pytestmark = pytest.mark.e2e
Json = dict[str, Any]


@pytest.mark.parametrize("seed", range(20, 28))
def test_a_queue_that_gets_everything_shows_the_same_heads(
    here: EmbeddedServices, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Pods with and without spread and anti-affinity wait while others come to nodes."""
    asked: list[bool] = []
    heard: list[bool] = []
    reads, hears = Scheduler.reads_objects, Scheduler.may_move_pods

    def noted(scheduler: Scheduler, event: EventLabel) -> bool:
        asked.append(reads(scheduler, event))
        return True

    def sent(scheduler: Scheduler, move: Move) -> bool:
        heard.append(hears(scheduler, move))
        return True

    address = here.addresses["queue"]
    spared = asyncio.run(_decided(address, seed))
    monkeypatch.setattr(Scheduler, "reads_objects", noted)
    monkeypatch.setattr(Scheduler, "may_move_pods", sent)
    assert asyncio.run(_decided(address, seed)) == spared
    assert set(asked) == set(heard) == {True, False}


@pytest.mark.parametrize("seed", range(40, 48))
def test_look_ahead_changes_no_decision(
    here: EmbeddedServices, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Of gated pods, of several priorities, beside pods that wait; with fewer exchanges."""
    address = here.addresses["queue"]
    ahead = asyncio.run(_outcomes(address, seed))
    ask_for_everything(monkeypatch)
    asking = asyncio.run(_outcomes(address, seed))
    assert _exchanges(ahead) < _exchanges(asking)
    assert [*map(_plain, ahead)] == [*map(_plain, asking)]


def test_pods_that_arrive_alone_need_no_queue_request(here: EmbeddedServices) -> None:
    """But the first that finds no node; everything sent to the queue by then is in its state.

    The queue says in the answer to that one when its pod is next due, so that those which come
    after it need no request either.
    """
    node = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    answers = asyncio.run(_alone(here.addresses["queue"], node))
    assert [answer.queue_exchanges for answer in answers] == [0, 0, 0, 0, 1, 0]
    due_ns = [answer.next_wakeup_time_ns for answer in answers]
    assert due_ns == [0, 0, 0, 0, 330 * 10**9, 330 * 10**9]
    assert [len(answer.outcomes) for answer in answers[:5]] == [0, 1, 1, 1, 1]


async def _alone(address: str, amounts: dict[str, str]) -> list[scheduler_pb2.RoundOutcomes]:
    link = QueueLink(address)
    queue = await link.open(queue_pb2.QueueConfig(rules="v1.34"))
    options = SchedulerOptions(rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"])
    session = SchedulerSession(options, queue, scheduler_pb2.SchedulerConfig())
    rounds = [_round(0, "Node", {"name": "n"}, status={"allocatable": amounts})]
    for number, cpu in enumerate(("1", "1", "1", "4", "1"), 1):
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        meta = {"namespace": "d", "name": f"p{number}", "uid": f"p{number}"}
        rounds.append(_round(number, "Pod", meta, spec={"containers": [container]}))
    answers = [await told(session, round_) for round_ in rounds]
    state = await queue.state()
    assert {entry.pod.uid for entry in state.entries} == {f"p{number}" for number in range(1, 6)}
    await queue.close()
    await link.close()
    return answers


def _round(second: int, kind: str, meta: Json, **rest: Json) -> scheduler_pb2.Round:
    at_ns = second * 1_000_000_000
    message = to_object({"apiVersion": "v1", "kind": kind, "metadata": meta, **rest})
    event = scheduler_pb2.Event(time_ns=at_ns, add=message)
    return scheduler_pb2.Round(time_ns=at_ns, events=[event])


async def _decided(address: str, seed: int) -> list[scheduler_pb2.RoundOutcomes]:
    return [*map(_plain, await _outcomes(address, seed))]


async def _outcomes(address: str, seed: int) -> list[scheduler_pb2.RoundOutcomes]:
    link = QueueLink(address)
    queue = await link.open(queue_pb2.QueueConfig(rules="v1.34"))
    assert queue.foreseeable_heads
    options = SchedulerOptions(
        rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"], queue_has_in_tree_hints=True
    )
    config = scheduler_pb2.SchedulerConfig(seed=seed)
    session = SchedulerSession(options, queue, config)
    world, answers = RandomWorld(seed), []
    for round_ in world.rounds(120):
        outcomes = await told(session, round_)
        world.decided(outcomes)
        answers.append(outcomes)
    await queue.close()
    await link.close()
    return answers


def _exchanges(outcomes: Iterable[scheduler_pb2.RoundOutcomes]) -> int:
    return sum(of_round.queue_exchanges for of_round in outcomes)


def _plain(outcomes: scheduler_pb2.RoundOutcomes) -> scheduler_pb2.RoundOutcomes:
    """Return outcomes without their wall times, and without what they took to make."""
    forget_times(outcomes)
    outcomes.queue_exchanges = 0
    return outcomes
