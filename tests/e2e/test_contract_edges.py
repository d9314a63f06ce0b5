"""Edges of the contract: a round that is being run, the largest answers, retries, first values."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from replay.backends.processes import EmbeddedServices
from reprieve.eviction.v1beta1 import eviction_pb2 as ev
from reprieve.eviction.v1beta1 import eviction_service_pb2 as eviction
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as rpc
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import SECOND_NS
from services.rpc.parts import MESSAGE_BYTES_MAX, chunks, merged
from tests.e2e.eviction_client import Client
from tests.e2e.test_extenders import extender
from tests.e2e.test_scheduler_service import (
    Caller,
    add_node,
    add_pod,
    error_info,
    evaluated,
    field_of,
    pod,
)
from tests.extenders import Json, webhook

pytestmark = pytest.mark.e2e
FILTERS = "filterVerb: filter, nodeCacheCapable: true"
LONG = "-of-a-very-long-name" * 12
BATCH_SIZES = (1, 256)


@pytest.fixture
def address(services: EmbeddedServices) -> str:
    """Return where the scheduler listens."""
    return services.addresses["scheduler"]


@contextmanager
def held_round(address: str) -> Iterator[tuple[Caller, threading.Event, Any]]:
    """Run a round that binds a pod on "a" once the event is set; yield its outcomes to come."""
    go = threading.Event()

    def held(args: Json) -> Json:
        go.wait(20)
        return {"NodeNames": args["NodeNames"]}

    with webhook(filter=held) as hook, ThreadPoolExecutor(2) as pool:
        caller = Caller(address, kube_scheduler_configuration=extender(hook.url, FILTERS))
        try:
            round_ = pool.submit(caller.tell, 1, add_node("a", "4"), add_pod(pod("p", "1")))
            while not hook.calls:
                time.sleep(0.01)
            yield caller, go, round_
        finally:
            go.set()
            caller.channel.close()


def test_a_session_whose_round_is_being_run_is_read_when_it_has_ended(address: str) -> None:
    """What it holds meanwhile is neither the state before the round nor that after it."""
    with held_round(address) as (caller, go, round_), ThreadPoolExecutor(2) as pool:
        state, judged = pool.submit(caller.state), pool.submit(evaluated, caller, "uid-p")
        time.sleep(0.1)
        assert not any(future.done() for future in (round_, state, judged))
        go.set()
        assert [outcome.bind.node_name for outcome in round_.result()] == ["a"]
        assert [assumed.node_name for assumed in state.result().assumed] == ["a"]
        assert judged.result()


def delete(caller: Caller) -> None:
    """Forget a session."""
    request = session_pb2.DeleteSessionRequest(session_id=caller.stamp.session_id)
    caller.stub.DeleteSession(request, timeout=20)


def test_a_session_is_deleted_once_its_round_has_ended(address: str) -> None:
    """The round is answered as if nothing had happened; the session has gone then."""
    with held_round(address) as (caller, go, round_), ThreadPoolExecutor(1) as pool:
        deletion = pool.submit(delete, caller)
        time.sleep(0.1)
        assert not deletion.done()
        go.set()
        assert [outcome.bind.node_name for outcome in round_.result()] == ["a"]
        deletion.result()
        with pytest.raises(grpc.RpcError) as caught:
            caller.state()
        assert error_info(caught.value).reason == "SESSION_EXPIRED"


def orphaned(*told: list[scheduler_pb2.Event]) -> Iterator[Caller]:
    """Yield a session for each of `told`, which it was sent; their queue has died then."""
    with EmbeddedServices(eviction=False) as own:
        callers = [Caller(own.addresses["scheduler"]) for _ in told]
        for caller, events in zip(callers, told, strict=True):
            if events:
                caller.tell(0, *events)
        os.kill(own.processes["queue"].pid, signal.SIGKILL)
        time.sleep(0.1)  # until the scheduler has noticed: from then on it cannot send any more
        for caller in callers:
            yield caller
            caller.channel.close()


def test_a_session_whose_queue_has_died_is_deleted() -> None:
    """The queue has forgotten its own with that, whatever was still to be sent to it."""
    comes = add_pod(pod("p", "1"))
    for caller in orphaned([], [comes], [add_node("n", "2"), comes]):
        delete(caller)
        with pytest.raises(grpc.RpcError) as caught:
            caller.state()
        assert error_info(caught.value).reason == "SESSION_EXPIRED"


def test_a_round_and_a_read_whose_queue_has_died_are_unavailable() -> None:
    """It is no fault of the scheduler's own."""
    comes = add_pod(pod("p", "1"))
    for caller in orphaned([], [add_node("n", "2"), comes]):
        with pytest.raises(grpc.RpcError) as caught:
            caller.state() if caller.sequence else caller.tell(0, comes)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert error_info(caught.value).reason == "UNAVAILABLE"


def decided(caller: Caller, events: Sequence[scheduler_pb2.Event]) -> list[rpc.RunRoundResponse]:
    """Send events in messages that are small enough, and take every answer to them."""
    answers = []
    rounds = [scheduler_pb2.Round(events=chunk, events_only=True) for chunk in chunks(events)]
    rounds.append(scheduler_pb2.Round())
    while rounds:
        caller.sequence += 1
        answer = caller.stub.RunRound(caller.request(rounds.pop(0)), timeout=30)
        assert answer.ByteSize() <= MESSAGE_BYTES_MAX
        if answer.rounds[0].more:
            assert answer.rounds[0].outcomes
            rounds.append(scheduler_pb2.Round())
        answers.append(answer)
    return answers


def outcomes_of(answers: Sequence[rpc.RunRoundResponse]) -> list[scheduler_pb2.Outcome]:
    """Return what was decided, without times on the wall clock."""
    outcomes = []
    for answer in answers:
        for outcome in answer.rounds[0].outcomes:
            outcome.ClearField("phases")
            outcomes.append(outcome)
    return outcomes


def test_many_victims_of_long_names_come_in_several_answers(address: str) -> None:
    """None is too large; whatever the batch, all are decided, and in the same way."""
    nodes, victims = 60, 20
    events = [add_node(f"n{number:02d}", str(victims)) for number in range(nodes)]
    for number in range(nodes * victims):
        low = pod(f"low-{number}{LONG * 4}", "1", node_name=f"n{number // victims:02d}")
        events.append(add_pod(low))
    events += [add_pod(pod(f"high-{n}", str(victims), priority=9)) for n in range(nodes)]
    runs = []
    for batch_size in BATCH_SIZES:
        caller = Caller(address, batch_size=batch_size)
        answers = decided(caller, events)
        assert sum(answer.ByteSize() for answer in answers) > MESSAGE_BYTES_MAX
        runs.append(outcomes_of(answers))
        delete(caller)
        caller.channel.close()
    taken = [outcome.unschedulable.preemption for outcome in runs[0]]
    assert {len(preemption.victims) for preemption in taken} == {victims}
    assert len({preemption.node_name for preemption in taken}) == nodes
    assert runs[0] == runs[1]


def test_long_answers_of_extenders_come_in_several_answers(address: str) -> None:
    """What an extender said of a pod is part of its outcome."""
    pods = 30

    def only_a(_args: Json) -> Json:
        return {"NodeNames": ["a"], "FailedNodes": {"b": "x" * 100_000}}

    runs = []
    events = [add_node("a", "99"), add_node("b", "99")]
    events += [add_pod(pod(f"p{number}", "1")) for number in range(pods)]
    with webhook(filter=only_a) as hook:
        text = extender(hook.url, FILTERS)
        for batch_size in BATCH_SIZES:
            caller = Caller(address, batch_size=batch_size, kube_scheduler_configuration=text)
            answers = decided(caller, events)
            assert sum(answer.ByteSize() for answer in answers) > MESSAGE_BYTES_MAX
            runs.append(outcomes_of(answers))
            delete(caller)
            caller.channel.close()
    assert [outcome.bind.node_name for outcome in runs[0]] == ["a"] * pods
    assert runs[0] == runs[1]


def windowed(node: str, pods: int) -> rpc.RunRoundRequest:
    """Return a round with a node and a pod, and a window in which a pod comes each second."""
    request = rpc.RunRoundRequest()
    request.round.events.extend([add_node(node, "99"), add_pod(pod("p0", "1m"))])
    for number in range(1, pods):
        foreseen = request.window.add()
        confirmed = foreseen.confirmations.add(time_ns=(number - 1) * SECOND_NS)
        confirmed.patch.pod.uid = f"uid-p{number - 1}"
        confirmed.patch.confirms_binding.SetInParent()
        foreseen.round.time_ns = number * SECOND_NS
        comes = add_pod(pod(f"p{number}", "1m"))
        comes.time_ns = foreseen.round.time_ns
        foreseen.round.events.append(comes)
    return request


def numbered(caller: Caller, request: rpc.RunRoundRequest) -> rpc.RunRoundRequest:
    """Return the request as the session's next one."""
    caller.sequence += 1
    request.stamp.CopyFrom(caller.stamp)
    request.stamp.sequence = caller.sequence
    return request


def bound_in(answers: Sequence[rpc.RunRoundResponse]) -> list[str]:
    """Return the pods that were bound, in order; all rounds but the last one go on."""
    rounds = [round_ for answer in answers for round_ in answer.rounds]
    assert [round_.window_continues for round_ in rounds] == [True] * (len(rounds) - 1) + [False]
    outcomes = [outcome for round_ in rounds for outcome in round_.outcomes]
    assert all(outcome.HasField("bind") for outcome in outcomes)
    return [outcome.pop.uid for outcome in outcomes]


@pytest.fixture
def caller(address: str) -> Iterator[Caller]:
    """Open a session under v1.34's rules."""
    made = Caller(address)
    yield made
    delete(made)
    made.channel.close()


def test_a_window_with_large_outcomes_is_streamed_in_small_answers(caller: Caller) -> None:
    """It is run to its end, and no answer is too large."""
    pods = 36
    request = numbered(caller, windowed("n" * 80_000, pods))
    answers = list(caller.stub.StreamingRunRound(iter([request]), timeout=20))
    sizes = [answer.ByteSize() for answer in answers]
    assert sum(sizes) > MESSAGE_BYTES_MAX >= max(sizes)
    assert bound_in(answers) == [f"uid-p{number}" for number in range(pods)]


def test_a_window_with_large_outcomes_ends_early_in_one_answer(caller: Caller) -> None:
    """Those rounds of it that were not taken are sent in their time."""
    pods = 36
    request = windowed("n" * 80_000, pods)
    bound: list[str] = []
    while True:
        answer = caller.stub.RunRound(numbered(caller, request), timeout=20)
        assert answer.ByteSize() <= MESSAGE_BYTES_MAX
        bound += bound_in([answer])
        rest = request.window[len(answer.rounds) - 1 :]
        if not rest:
            break
        last = answer.rounds[-1].outcomes[0]
        first = scheduler_pb2.Round(time_ns=rest[0].round.time_ns, events=rest[0].round.events)
        first.answers.add(pop=last.pop, time_ns=rest[0].confirmations[0].time_ns)
        request = rpc.RunRoundRequest(round=first, window=rest[1:])
        patch = rest[0].confirmations[0]
        patch.patch.node_name = last.bind.node_name
        request.round.events.insert(0, patch)
    assert caller.sequence > 1
    assert bound == [f"uid-p{number}" for number in range(pods)]


@pytest.mark.parametrize("method", ["RunRound", "StreamingRunRound"])
def test_a_window_that_is_sent_again_gets_the_same_answers(caller: Caller, method: str) -> None:
    """Though the scheduler has filled in nodes meanwhile; nothing is done."""
    pods = 40
    request = numbered(caller, windowed("n", pods))

    def send() -> list[rpc.RunRoundResponse]:
        if method == "RunRound":
            return [caller.stub.RunRound(request, timeout=10)]
        return list(caller.stub.StreamingRunRound(iter([request]), timeout=10))

    first = send()
    assert len(bound_in(first)) == pods
    assert send() == first
    assert len(caller.state().assumed) == 1


def test_a_batch_has_at_most_as_many_heads_as_a_queue_shows(address: str) -> None:
    """More are refused by the field, which no round would get an answer with."""
    with pytest.raises(grpc.RpcError) as caught:
        Caller(address, batch_size=4097)
    assert field_of(caught.value) == "config.batch_size"
    caller = Caller(address, batch_size=4096)
    (outcome,) = caller.tell(0, add_node("n", "2"), add_pod(pod("p", "1")))
    assert outcome.bind.node_name == "n"
    delete(caller)
    caller.channel.close()


def test_a_pod_that_needs_no_scheduling_does_not_count_towards_max_pods(caller: Caller) -> None:
    """A terminating pod is passed over: an answer with `more` has an outcome all the same."""
    going = scheduler_pb2.Event()
    going.patch.pod.uid, going.patch.deletion_time_ns = "uid-going", 1
    pods = [pod("going", "1", priority=9), pod("a", "1", priority=1), pod("b", "1")]
    round_ = scheduler_pb2.Round(max_pods=1)
    round_.events.extend([add_node("n", "4"), *map(add_pod, pods), going])
    for uid, more in (("uid-a", True), ("uid-b", False)):
        caller.sequence += 1
        (outcomes,) = caller.stub.RunRound(caller.request(round_), timeout=10).rounds
        assert [outcome.pop.uid for outcome in outcomes.outcomes] == [uid]
        assert outcomes.more is more
        round_ = scheduler_pb2.Round(max_pods=1)


def test_a_new_pod_to_evaluate_needs_a_uid(caller: Caller) -> None:
    """Verdicts are of a pod, and it is named by that."""
    brought = pod("p", "1")
    brought.metadata.uid = ""
    request = rpc.EvaluatePodRequest(stamp=caller.stamp, new_pod=brought)
    with pytest.raises(grpc.RpcError) as caught:
        list(caller.stub.EvaluatePod(request, timeout=10))
    assert field_of(caught.value) == "new_pod.metadata.uid"


def test_an_event_lies_between_the_last_round_and_its_own(caller: Caller) -> None:
    """After its round it is a mistake; before the last one, time goes back: since when is said."""
    caller.tell(5)
    late, early = (add_pod(pod("p", "1")) for _ in range(2))
    late.time_ns, early.time_ns = 9 * SECOND_NS, 4 * SECOND_NS
    caller.sequence += 1
    for event in (late, early):
        request = caller.request(scheduler_pb2.Round(time_ns=8 * SECOND_NS, events=[event]))
        with pytest.raises(grpc.RpcError) as caught:
            caller.stub.RunRound(request, timeout=10)
        if event is late:
            assert field_of(caught.value) == "round.events[0].time_ns"
            assert error_info(caught.value).reason == "BAD_FIELD"
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    info = error_info(caught.value)
    assert (info.reason, dict(info.metadata)) == (
        "TIME_GOES_BACKWARDS",
        {"earliest_time_ns": str(5 * SECOND_NS)},
    )


def test_an_answer_is_to_a_pop_whose_cycle_counts_from_1(caller: Caller) -> None:
    """Without a cycle it would be taken for an answer to a pop that has gone."""
    caller.sequence = 1
    answer = scheduler_pb2.Answer(pop=session_pb2.PopId(uid="u", cycle=0))
    with pytest.raises(grpc.RpcError) as caught:
        caller.stub.RunRound(caller.request(scheduler_pb2.Round(answers=[answer])), timeout=10)
    assert field_of(caught.value) == "round.answers[0].pop.cycle"


def test_a_session_before_its_first_round_has_time_0(caller: Caller) -> None:
    """In its state and in its checkpoint."""
    assert caller.state().time_ns == 0
    request = session_pb2.CheckpointSessionRequest(stamp=caller.stamp)
    first, *_ = caller.stub.CheckpointSession(request, timeout=10)
    assert first.info.time_ns == 0


def test_many_nominations_of_a_node_come_in_parts(caller: Caller) -> None:
    """The node stands there several times, in the mirror as in the queue; none is lost."""
    uids = [f"u-{number:04d}-{LONG * 4}" for number in range(1600)]
    events = []
    for uid in uids:
        waiting = pod("p", "1")
        waiting.metadata.uid = waiting.metadata.name = uid
        waiting.status.nominated_node_name = "n"
        events.append(add_pod(waiting))
    for part in chunks(events):
        caller.sequence += 1
        round_ = scheduler_pb2.Round(events=part, events_only=True)
        caller.stub.RunRound(caller.request(round_), timeout=20)
    parts = list(caller.stub.GetState(session_pb2.GetStateRequest(stamp=caller.stamp), timeout=20))
    assert max(part.ByteSize() for part in parts) <= MESSAGE_BYTES_MAX
    state = merged(parts, rpc.GetStateResponse()).state
    for nominations in (state.nominations, state.queue.nominations):
        assert {nomination.node_name for nomination in nominations} == {"n"}
        assert [ref.uid for nomination in nominations for ref in nomination.pods] == uids


@pytest.fixture
def kubelets(services: EmbeddedServices) -> Iterator[Client]:
    """Open a session of the eviction service."""
    with grpc.insecure_channel(services.addresses["eviction"]) as channel:
        client = Client(channel)
        yield client
        client.close()


def test_a_step_before_the_epoch_is_refused(kubelets: Client) -> None:
    """Virtual time begins at 0."""
    step = eviction.Step(node_name="n", time_ns=-1, summary_failed=True)
    with pytest.raises(grpc.RpcError) as caught:
        kubelets.step(step)
    assert field_of(caught.value) == "operations[0].step.time_ns"


def test_a_node_that_was_never_stepped_has_no_time(kubelets: Client) -> None:
    """Whether its thresholds were set or not; the first step may be at 0."""
    kubelets.configure("n", ev.EvictionConfig(hard={"memory.available": "1Gi"}))
    (state,) = kubelets.state()
    assert state.node_name == "n"
    assert not state.HasField("time_ns")
    kubelets.step(eviction.Step(node_name="n", time_ns=0, summary_failed=True))
    (state,) = kubelets.state()
    assert (state.HasField("time_ns"), state.time_ns) == (True, 0)
