"""A long trace takes no more of the services than a short one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zstandard

from replay.backends.processes import EmbeddedServices
from replay.backends.services import SchedulerService
from replay.world.loop.replay import Limits, Replay
from replay.world.models import Models
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import S, create, create_pod, make_node, make_pod

PODS_A_SECOND = 8
FEW_S, MANY_S = 20, 80


class Unobserved:
    """Observes nothing."""

    def round_sent(self, round_: scheduler_pb2.Round) -> None:
        """Ignore it."""

    def outcomes(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Ignore it."""


def bursts(seconds: int) -> Iterator[trace_pb2.Record]:
    """Yield a trace of pods that come every second and run for two; some find no room at first."""
    yield trace_pb2.Record(header=trace_pb2.Header())
    for number in range(4):
        yield create(make_node(f"n{number}"))
    for number in range(PODS_A_SECOND * seconds):
        pod = make_pod(f"p{number}", priority=None)
        record = create_pod(pod, service_duration_ns=2 * S)
        record.time_ns = number // PODS_A_SECOND * S
        yield record


def saved_bytes(here: EmbeddedServices, seconds: int, threshold: int) -> int:
    """Return how large the scheduler's and its queue's state is after so many seconds."""
    address = here.addresses["scheduler"]
    scheduler = SchedulerService(address, scheduler_pb2.SchedulerConfig())
    try:
        replay = Replay(
            scheduler,
            None,
            models=Models(ended_pods_max=threshold),
            sink=lambda _decision: None,
            observer=Unobserved(),
        )
        replay.run(bursts(seconds), Limits(until_ns=seconds * S))
        saved = b"".join(chunk.data for chunk in scheduler.checkpoint())
    finally:
        scheduler.close()
    return len(zstandard.ZstdDecompressor().decompressobj().decompress(saved))


@pytest.mark.e2e
def test_scheduler_and_queue_keep_nothing_of_collected_pods(here: EmbeddedServices) -> None:
    """Four times the pods, and the same state; without the collection it grows."""
    few, many = (saved_bytes(here, seconds, 10) for seconds in (FEW_S, MANY_S))
    assert many < 1.1 * few
    kept = saved_bytes(here, MANY_S, 0)
    assert kept > 2 * many
