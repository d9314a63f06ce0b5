"""Upstream's recorded scripts through the real service, by unary RPCs and by the stream."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from reprieve.queue.v1alpha1 import queue_pb2
from services.queue.core.mode import V1_16, V1_20, QueueMode
from tests.e2e.queue_clients import StreamClient, UnaryClient, running_queue
from tests.e2e.queue_messages import NS_PER_MS, Json, ScriptedQueue
from tests.golden.test_queue_vectors import difference_of, load

pytestmark = pytest.mark.e2e
MODES = pytest.mark.parametrize("mode", [V1_20, V1_16], ids=lambda mode: mode.name)


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    """Yield a channel to a service that lives as long as this module's tests."""
    with running_queue() as (_process, opened):
        yield opened


@MODES
def test_unary_operations_give_upstreams_results_and_states(
    channel: grpc.Channel, mode: QueueMode
) -> None:
    """Result and Dump after each operation of each script are upstream's."""
    differences = []
    for vector in load(mode):
        client = UnaryClient(channel, config_message(mode, vector["config"]))
        differences += difference(mode, vector, client)
    assert not differences, f"{len(differences)}:\n" + "\n".join(differences[:5])


@MODES
def test_the_stream_gives_upstreams_results_and_states(
    channel: grpc.Channel, mode: QueueMode
) -> None:
    """So they are in the stream, where the heads announce each pop."""
    differences = []
    for vector in load(mode):
        client = StreamClient(channel, config_message(mode, vector["config"]))
        differences += difference(mode, vector, client)
        client.close()
    assert not differences, f"{len(differences)}:\n" + "\n".join(differences[:5])


def difference(mode: QueueMode, vector: Json, client: UnaryClient) -> list[str]:
    """Run a script in a session of its own; return where it first differs, if anywhere."""
    run = ScriptedQueue(client, by_name=mode is V1_16)
    text = difference_of(mode, vector, run.apply, run.state)
    return [text] if text else []


def config_message(mode: QueueMode, settings: Json) -> queue_pb2.QueueConfig:
    """Return a script's rules."""
    return queue_pb2.QueueConfig(
        mode=mode.name,
        initial_backoff_ns=settings["initial_backoff_ms"] * NS_PER_MS,
        max_backoff_ns=settings["max_backoff_ms"] * NS_PER_MS,
    )
