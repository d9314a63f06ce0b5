"""Upstream's recorded scripts through servicer and service, by unary RPCs and by the stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import grpc
import pytest

from replay.backends.processes import EmbeddedServices
from replay.conform.vectors.queue import StreamQueueSession, UnaryQueueSession, operation
from replay.conform.vectors.queue_scripts import (
    Argument,
    Json,
    ScriptedQueue,
    config_message,
    difference_of,
)
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.session.v1beta1 import session_pb2
from services.queue.core.rules.versions import V1_16, V1_20, V1_34, QueueVersion
from services.rpc.client import channel as channel_to
from tests.e2e.queue_clients import running_queue
from tests.golden.test_queue_vectors import load

pytestmark = pytest.mark.e2e
READS = {"tick", "pending", "nominated_for"}
UNARY_SHARE = CONNECTED_SHARE = 8
MODES = pytest.mark.parametrize("mode", [V1_34, V1_20, V1_16], ids=lambda mode: mode.name)


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    """Yield a channel to a service that lives as long as this module's tests."""
    with running_queue() as (_process, opened):
        yield opened


@pytest.fixture(scope="module")
def local(here: EmbeddedServices) -> Iterator[grpc.Channel]:
    """Yield a channel to the same servicer within this process."""
    with closing(channel_to(here.addresses["queue"])) as opened:
        yield opened


@MODES
def test_unary_operations_give_upstreams_results_and_states(
    local: grpc.Channel, channel: grpc.Channel, mode: QueueVersion
) -> None:
    """Result and GetState after each operation are upstream's, in a share of the scripts.

    Within this process; of these a share is sent over a connection, too.
    """
    scripts = list(load(mode))
    differences = [unary_difference(local, mode, vector) for vector in scripts[::UNARY_SHARE]]
    connected = scripts[:: UNARY_SHARE * CONNECTED_SHARE]
    differences += [unary_difference(channel, mode, vector) for vector in connected]
    assert not any(differences), "\n".join(filter(None, differences))


@MODES
def test_a_script_in_one_batch_gives_upstreams_results_and_last_state(
    local: grpc.Channel, channel: grpc.Channel, mode: QueueVersion
) -> None:
    """The stream ends in the same core: each result of each script, and the state it leaves.

    Within this process; a share of the scripts is sent over a connection, too.
    """
    scripts = list(load(mode))
    differences = [batch_difference(local, mode, vector) for vector in scripts]
    connected = scripts[::CONNECTED_SHARE]
    differences += [batch_difference(channel, mode, vector) for vector in connected]
    assert not any(differences), "\n".join(filter(None, differences))


@MODES
def test_heads_announce_each_pop(channel: grpc.Channel, mode: QueueVersion) -> None:
    """With batches of one operation each pop is the head that was shown before."""
    for vector in list(load(mode))[:: 2 * UNARY_SHARE]:
        client = StreamQueueSession(channel, config_message(mode.name, vector["config"]))
        run = ScriptedQueue(client, mode.name)
        assert not difference_of(mode.name, vector, run.apply, lambda: None)
        client.close()


@MODES
def test_a_script_continues_from_a_checkpoint_as_it_would_have(
    local: grpc.Channel, mode: QueueVersion
) -> None:
    """Every script, by CheckpointSession and RestoreSession, each at another step."""
    differences = [
        batch_difference(local, mode, vector, restored_at=1 + number * 7 % 31)
        for number, vector in enumerate(load(mode))
    ]
    assert not any(differences), "\n".join(filter(None, differences))


def unary_difference(channel: grpc.Channel, mode: QueueVersion, vector: Json) -> str:
    """Send a script one operation a call; return where it differs."""
    client = UnaryQueueSession(channel, config_message(mode.name, vector["config"]))
    run = ScriptedQueue(client, mode.name)
    return difference_of(mode.name, vector, run.apply, run.state)


def batch_difference(
    channel: grpc.Channel, mode: QueueVersion, vector: Json, *, restored_at: int | None = None
) -> str:
    """Send a script as one batch, its pops foretold as recorded; return where it differs.

    With `restored_at` it is sent in two, and the session is saved and restored between them.
    """
    changes: list[tuple[Json, Json]] = []
    client = StreamQueueSession(channel, config_message(mode.name, vector["config"]))
    foretold = Foretold()
    run = ScriptedQueue(foretold, mode.name)
    for op, expected in zip(vector["script"], vector["expected"], strict=True):
        if op["op"] not in READS:
            foretold.answer = run.promised(expected.get("result", {}))
            run.apply(op)
        if len(foretold.operations) > len(changes):  # some ask for pods that no longer exist
            changes.append((op, expected))
    seen: dict[int, dict[str, Any]] = {}
    parts = [foretold.operations]
    if restored_at is not None:
        parts = [foretold.operations[:restored_at], foretold.operations[restored_at:]]
    for sent, operations in enumerate(parts):
        if sent:
            restore(client)
        answer = client.send(operations)
        assert answer.applied == len(operations)
        before = len(parts[0]) * sent
        seen |= {before + result.index: run.seen_result(result) for result in answer.results}
    indexes = iter(range(len(changes)))
    last = ScriptedQueue(client, mode.name).state()
    client.close()
    states = iter([None] * (len(changes) - 1) + [last])
    script = {"id": vector["id"], "script": [op for op, _ in changes]}
    script["expected"] = [expected for _, expected in changes]
    return difference_of(
        mode.name, script, lambda _op: seen.get(next(indexes), {}), states.__next__
    )


def restore(client: StreamQueueSession) -> None:
    """Save a client's session, and go on with a new one that was made of what was saved."""
    request = session_pb2.CheckpointSessionRequest(stamp=client.reading())
    chunks = list(client.stub.CheckpointSession(request, timeout=20))
    forget = session_pb2.DeleteSessionRequest(session_id=client.session)
    client.stub.DeleteSession(forget, timeout=20)
    client.session = client.stub.RestoreSession(iter(chunks), timeout=20).session_id
    client.sequence = 0


class Foretold:
    """A client that only collects the operations, and answers what it is given."""

    def __init__(self) -> None:
        self.operations: list[queue_pb2.Operation] = []
        self.answer = queue_pb2.OperationResult()

    def apply(self, name: str, argument: Argument, at_ns: int) -> queue_pb2.OperationResult:
        """Collect the operation."""
        self.operations.append(operation(name, argument, at_ns))
        return self.answer

    def state(self) -> queue_pb2.QueueState:
        """Refuse: nothing has been done yet."""
        raise NotImplementedError
