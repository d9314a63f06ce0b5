"""A short run of the torture by sequences, and what it has found, each as a test of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from replay.conform.contract.scheduler.small_cluster import gone, node, pod, round_at
from reprieve.eviction.v1beta1 import eviction_pb2, eviction_service_pb2
from reprieve.queue.v1beta1 import queue_service_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import SECOND_NS
from services.rpc.client import channel as channel_to
from tests.torture.messages import served_here
from tests.torture.stateful import EPISODE, PLAYS, Client, Refused, changed_state, play


@pytest.mark.parametrize("service", list(PLAYS))
def test_no_sequence_of_requests_breaks_or_fills_a_service(service: str) -> None:
    """Sessions that are used, saved, restored and ended in any order."""
    codes = play([service], range(150), seed=30)
    assert codes.total() > 100 * EPISODE
    assert codes["OK"] > codes.total() // 3
    assert codes["INVALID_ARGUMENT"] > EPISODE


@pytest.mark.long
@pytest.mark.parametrize("seed", range(31, 34))
def test_no_sequence_of_many_does(seed: int) -> None:
    """Fifty thousand requests of each seed."""
    play(list(PLAYS), range(50_000 // EPISODE), seed=seed)


@contextmanager
def client_of(service: str) -> Iterator[tuple[Client, Callable[[], int]]]:
    """Yield a client of a service, and what counts all sessions."""
    with served_here() as (addresses, sessions):
        channel = channel_to(addresses[service])
        yield Client(channel, service, Counter()), sessions
        channel.close()


class Rounds:
    """A scheduler's session that is sent rounds."""

    def __init__(self, client: Client) -> None:
        self._client = client
        [opened] = client.call("CreateSession", scheduler_service_pb2.CreateSessionRequest())
        self.name: str = opened.session_id
        self._sequence = 0

    def send(self, round_: scheduler_pb2.Round) -> list[Any]:
        """Return the outcomes of a round. Raises Refused."""
        request = scheduler_service_pb2.RunRoundRequest(round=round_)
        request.stamp.session_id, request.stamp.sequence = self.name, self._sequence + 1
        [answer] = self._client.call("RunRound", request)
        self._sequence += 1
        return [outcome for outcomes in answer.rounds for outcome in outcomes.outcomes]


def saved(client: Client, name: str) -> list[Any]:
    """Return a session's checkpoint."""
    stamp = session_pb2.Stamp(session_id=name)
    return client.call("CheckpointSession", session_pb2.CheckpointSessionRequest(stamp=stamp))


def patch(name: str, **changes: Any) -> scheduler_pb2.Event:
    """Return the event that changes a pod."""
    return scheduler_pb2.Event(patch=scheduler_pb2.PodPatch(pod=gone(name).remove, **changes))


@pytest.mark.parametrize("ends", ["goes", "fails"])
def test_a_pod_that_comes_again_after_its_end_is_bound_again(ends: str) -> None:
    """With the same uid, while the queue has not received its first end."""
    with client_of("scheduler") as (client, _):
        rounds = Rounds(client)
        [bound] = rounds.send(round_at(0, node("n", 4), pod("a", 1)))
        for second in range(1, 6):
            changes = [patch("a", node_name="n")]
            if ends == "fails":
                failed = patch("a")
                failed.patch.status.phase = "Failed"
                changes.append(failed)
            round_ = round_at(second, *changes, gone("a"), pod("a", 1))
            round_.answers.add(pop=bound.pop)
            [bound] = rounds.send(round_)
            assert bound.bind.node_name == "n"
        round_ = round_at(10, node("m", 4), pod("b", 1))
        round_.answers.add(pop=bound.pop)
        assert [outcome.pop.uid for outcome in rounds.send(round_)] == ["uid-b"]
        assert saved(client, rounds.name)


def test_an_answer_without_a_time_is_of_its_round_and_not_before_an_event() -> None:
    """Its queue would have to go back in time, which broke the session."""
    with client_of("scheduler") as (client, _):
        rounds = Rounds(client)
        [bound] = rounds.send(round_at(0, node("n", 4), pod("a", 1)))
        round_ = round_at(20, pod("b", 1))
        round_.answers.add(pop=bound.pop)
        round_.events[0].time_ns = 10 * SECOND_NS
        with pytest.raises(Refused, match=r"TIME_GOES|round\.events\[0\]\.time_ns"):
            rounds.send(round_)
        round_.answers[0].time_ns = 5 * SECOND_NS
        assert [outcome.pop.uid for outcome in rounds.send(round_)] == ["uid-b"]


def test_a_saved_threshold_that_no_kubelet_takes_is_refused_and_leaves_no_session() -> None:
    """In the session's configuration."""
    config = eviction_pb2.EvictionConfig(hard={"memory.available": "100Mi"})
    with client_of("eviction") as (client, sessions):
        request = eviction_service_pb2.CreateSessionRequest(config=config)
        name = client.call("CreateSession", request)[0].session_id

        def change(state: Any) -> None:
            state["config"]["hard"]["memory.available"] = "default"

        chunks = changed_state(saved(client, name), change)
        with pytest.raises(Refused, match="INVALID_ARGUMENT"):
            client.call("RestoreSession", *chunks)
        assert sessions() == 1


def test_a_saved_time_beyond_64_bits_is_refused() -> None:
    """In a pod that waits in the queue."""
    with client_of("queue") as (client, sessions):
        opened = client.call("CreateSession", queue_service_pb2.CreateSessionRequest())[0]
        request = queue_service_pb2.ApplyRequest()
        request.stamp.session_id, request.stamp.sequence = opened.session_id, 1
        request.operations.add(time_ns=1).add.pod.CopyFrom(pod("a", 1).add.pod)
        client.call("Apply", request)

        def change(state: Any) -> None:
            _replace_values(state, "timestamp_ns", -(2**63))

        chunks = changed_state(saved(client, opened.session_id), change)
        with pytest.raises(Refused, match="INVALID_ARGUMENT"):
            client.call("RestoreSession", *chunks)
        assert sessions() == 1


def _replace_values(plain: Any, name: str, value: object) -> None:
    """Set every field of a name within loaded JSON."""
    inner = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ()
    for item in inner:
        _replace_values(item, name, value)
    if isinstance(plain, dict) and name in plain:
        plain[name] = value


def test_a_saved_snapshot_takes_no_memory_for_rows_that_it_only_claims() -> None:
    """A hundred bytes would fill the machine's memory."""
    with client_of("scheduler") as (client, sessions):
        rounds = Rounds(client)
        rounds.send(round_at(0, node("n", 4)))
        before = sessions()

        def change(state: Any) -> None:
            state["state"]["snapshot"]["layout"]["capacity"] = 2**40

        chunks = changed_state(saved(client, rounds.name), change)
        with pytest.raises(Refused, match="not those of a snapshot"):
            client.call("RestoreSession", *chunks)
        assert sessions() == before


def test_a_creation_that_is_given_up_leaves_no_session_at_the_queue() -> None:
    """Its caller goes away while the scheduler waits for something."""
    from services.scheduler import servicer  # noqa: PLC0415 - next to its use

    class Opened:
        is_closed = False

        async def close(self) -> None:
            self.is_closed = True

    async def given_up(queue: Any) -> None:
        async with servicer._closed_unless_done(queue):
            await asyncio.Event().wait()

    async def test() -> Opened:
        queue = Opened()
        creation = asyncio.ensure_future(given_up(queue))
        await asyncio.sleep(0)
        creation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creation
        return queue

    assert asyncio.run(test()).is_closed
