"""What nobody listens to is not told to the queue, and no decision is another one for it."""

from __future__ import annotations

import asyncio

import pytest

from replay.backends.processes import EmbeddedServices
from reprieve.queue.v1alpha1 import queue_pb2
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from services.scheduler.core.events_labels import ClusterEvent
from services.scheduler.core.options import Options
from services.scheduler.core.rules import QUEUE_RULES, RULES
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.queue_client import QueueLink
from services.scheduler.session import SchedulerSession
from tests.e2e.random_world import RandomWorld

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("seed", range(20, 28))
def test_a_queue_that_is_told_everything_shows_the_same_heads(
    services: EmbeddedServices, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Pods with and without spread and anti-affinity wait while others come to nodes."""
    asked: list[bool] = []
    heard: list[bool] = []
    reads, hears = Scheduler.reads_objects, Scheduler.is_heard

    def noted(scheduler: Scheduler, event: ClusterEvent) -> bool:
        asked.append(reads(scheduler, event))
        return True

    def told(scheduler: Scheduler, event: ClusterEvent) -> bool:
        heard.append(hears(scheduler, event))
        return True

    address = services.addresses["queue"]
    spared = asyncio.run(_decided(address, seed))
    monkeypatch.setattr(Scheduler, "reads_objects", noted)
    monkeypatch.setattr(Scheduler, "is_heard", told)
    assert asyncio.run(_decided(address, seed)) == spared
    assert set(asked) == set(heard) == {True, False}


async def _decided(address: str, seed: int) -> list[scheduler_pb2.RoundOutcomes]:
    link = QueueLink(address)
    queue = await link.open(queue_pb2.QueueConfig(mode="v1.34"))
    options = Options(rules=RULES["v1.34"], queue=QUEUE_RULES["v1.34"])
    session = SchedulerSession(options, queue, scheduler_pb2.SchedulerConfig(seed=seed))
    world, told = RandomWorld(seed), []
    for round_ in world.rounds(120):
        outcomes = await session.run_round(round_)
        world.decided(outcomes)
        del outcomes.phases[:]
        for outcome in outcomes.outcomes:
            del outcome.phases[:]
        told.append(outcomes)
    await queue.close()
    await link.close()
    return told
