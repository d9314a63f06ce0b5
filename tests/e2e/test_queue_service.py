"""The queue service as a real process: refusals, retries, batches, checkpoints, its end."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from replay.conform.queue import DEADLINE_S, StreamClient, UnaryClient, operation
from replay.conform.queue_scripts import pod_message
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from reprieve.session.v1beta1 import session_pb2
from services.queue.config_codec import DEFAULT_MODE
from tests.e2e.queue_clients import running_queue

pytestmark = pytest.mark.e2e
FULL_NAME = "reprieve.queue.v1beta1.QueueService"
S = 1_000_000_000
OLDER = queue_pb2.QueueConfig(mode="v1.20")
INVALID = grpc.StatusCode.INVALID_ARGUMENT
Op = queue_pb2.Operation
POP, REF, META = session_pb2.PopId, meta_pb2.ObjectReference, meta_pb2.ObjectMeta
NODE_ADD = queue_pb2.ClusterEvent(label="NodeAdd")


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    """Yield a channel to a service that lives as long as this module's tests."""
    with running_queue() as (_process, opened):
        yield opened


def pod(name: str, priority: int = 0, **more: object) -> pod_pb2.Pod:
    """Return a pod of the namespace default with UID uid-default/NAME."""
    return pod_message({"name": name, "priority": priority, **more})


def add(name: str, priority: int = 0, at_ns: int = 0) -> Op:
    """Return the operation that adds a pod."""
    return operation("add", queue_pb2.Add(pod=pod(name, priority)), at_ns)


def commit(pop: session_pb2.PopId, at_ns: int = 0) -> Op:
    """Return the operation that commits a pop."""
    return operation("commit_pop", queue_pb2.CommitPop(pop=pop), at_ns)


def done(pop: session_pb2.PopId, at_ns: int = 0) -> Op:
    """Return the operation that ends a pop."""
    return operation("done", queue_pb2.Done(pop=pop), at_ns)


def failed(pop: session_pb2.PopId, at_ns: int = 0) -> Op:
    """Return the operation that gives a pop back."""
    return operation("add_unschedulable", queue_pb2.AddUnschedulable(pop=pop), at_ns)


NAMELESS = queue_pb2.Add(pod=pod_pb2.Pod(metadata=META(name="p")))
BAD_SELECTOR = queue_pb2.Add(pod=pod("p", affinity=[{"match_labels": {"a": "b"}}]))
REQUIRED = "required_during_scheduling_ignored_during_execution"
getattr(BAD_SELECTOR.pod.spec.affinity.pod_affinity, REQUIRED)[
    0
].label_selector.match_expressions.add(key="a", operator="Like")
REFUSALS = {
    "add.pod.metadata.uid": operation("add", NAMELESS, 5),
    "add.pod.metadata.name": operation(
        "add", queue_pb2.Add(pod=pod_pb2.Pod(metadata=META(uid="u"))), 5
    ),
    "add.gates": operation("add", queue_pb2.Add(pod=pod("p"), gates=["g"]), 5),
    "add.pod.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
    ".labelSelector.matchExpressions[0].operator": operation("add", BAD_SELECTOR, 5),
    "update.old.metadata": operation("update", queue_pb2.Update(old=pod("a"), pod=pod("b")), 5),
    "delete.pod.name": operation("delete", queue_pb2.Delete(pod=REF(uid="u")), 5),
    "commit_pop.pop.uid": operation("commit_pop", queue_pb2.CommitPop(), 5),
    "done.pop.cycle": operation("done", queue_pb2.Done(pop=POP(uid="u")), 5),
    "add_unschedulable.pod.metadata.uid": operation(
        "add_unschedulable",
        queue_pb2.AddUnschedulable(pop=POP(uid="u", cycle=1), pod=pod("other")),
        5,
    ),
    "add_unschedulable.cycle": operation(
        "add_unschedulable", queue_pb2.AddUnschedulable(pop=POP(uid="u", cycle=1), cycle=-1), 5
    ),
    "move.event.label": operation("move", queue_pb2.Move(), 5),
    "nominate.pod.uid": operation("nominate", queue_pb2.Nominate(node_name="n"), 5),
    "delete_nomination.pod.uid": operation("delete_nomination", queue_pb2.DeleteNomination(), 5),
    "at_ns": add("p", at_ns=2**62 + 1),
}


def refusal(call: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    """Return a refusal's code and the field that its details name, or its text."""
    assert isinstance(call, grpc.Call)
    status = rpc_status.from_call(call)
    assert status is not None
    for detail in status.details:
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(bad):
            return call.code(), bad.field_violations[0].field
    return call.code(), status.message


@pytest.mark.parametrize("field", REFUSALS)
def test_a_bad_field_is_named_and_refuses_its_whole_batch(
    channel: grpc.Channel, field: str
) -> None:
    """Alone it is refused by its name, in a batch by its place as well; nothing has changed."""
    bad = REFUSALS[field]
    name = bad.WhichOneof("operation")
    assert name is not None
    unary = UnaryClient(channel, OLDER)
    with pytest.raises(grpc.RpcError) as alone:
        unary.apply(name, getattr(bad, name), bad.at_ns)
    assert refusal(alone.value) == (INVALID, field)
    stream = StreamClient(channel, OLDER)
    with pytest.raises(grpc.RpcError) as batched:
        stream.send([add("first", at_ns=5), bad, add("last", at_ns=5)])
    assert refusal(batched.value) == (INVALID, f"operations[1].{field}")
    for client in (unary, stream):
        assert client.dump() == queue_pb2.QueueState(move_request_cycle=-1)


def test_an_operation_without_a_kind_is_refused(channel: grpc.Channel) -> None:
    """The oneof is required."""
    with pytest.raises(grpc.RpcError) as error:
        StreamClient(channel).send([Op()])
    assert refusal(error.value) == (INVALID, "operations[0].operation")


def test_time_does_not_go_back(channel: grpc.Channel) -> None:
    """Neither in a batch nor between requests; the refused request changes nothing."""
    client = UnaryClient(channel)
    client.apply("add", queue_pb2.Add(pod=pod("a")), 5)
    with pytest.raises(grpc.RpcError) as error:
        client.apply("add", queue_pb2.Add(pod=pod("b")), 4)
    code, text = refusal(error.value)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert text == "at_ns: 4 ns lies before the last operation at 5 ns"
    with pytest.raises(grpc.RpcError) as error:
        StreamClient(channel).send([add("a", at_ns=2), add("b", at_ns=1)])
    assert refusal(error.value)[1].startswith("operations[1].at_ns: 1 ns")
    assert client.dump().at_ns == 5


@pytest.mark.parametrize(
    ("config", "code", "told"),
    [
        ({"mode": "v9"}, INVALID, "config.mode"),
        ({"initial_backoff_ns": -1}, INVALID, "config.initial_backoff_ns"),
        ({"mode": "v1.20", "queueing_hints": True}, INVALID, "config.queueing_hints"),
        ({"lease_ns": 1}, INVALID, "config.lease_ns"),
    ],
)
def test_rules_that_are_not_served_are_refused(
    channel: grpc.Channel, config: dict[str, object], code: grpc.StatusCode, told: str
) -> None:
    """An unknown mode is refused with those that are served."""
    message = queue_pb2.QueueConfig()
    for name, value in config.items():
        setattr(message, name, value)
    with pytest.raises(grpc.RpcError) as error:
        UnaryClient(channel, message)
    assert refusal(error.value)[0] is code
    assert told in refusal(error.value)[1]


@pytest.mark.parametrize(("mode", "leftover_s"), [("v1.34", 300), ("v1.20", 60), ("v1.16", 60)])
def test_rules_are_answered_with_their_defaults(
    channel: grpc.Channel, mode: str, leftover_s: int
) -> None:
    """What a session leaves out is filled in, by its mode."""
    config = UnaryClient(channel, queue_pb2.QueueConfig(mode=mode)).opened.config
    assert (config.mode, config.initial_backoff_ns, config.max_backoff_ns) == (mode, S, 10 * S)
    assert config.max_unschedulable_ns == leftover_s * S
    assert config.queueing_hints is config.pop_from_backoff_q is (mode == "v1.34")


def test_without_a_mode_the_default_one_is_in_force(channel: grpc.Channel) -> None:
    """The answer names it."""
    assert UnaryClient(channel).opened.config.mode == DEFAULT_MODE


def test_older_modes_have_no_activate(channel: grpc.Channel) -> None:
    """It belongs to a later mode; in a batch the answer names the operation."""
    activate = queue_pb2.Activate(pods=[REF(uid="u")])
    with pytest.raises(grpc.RpcError) as error:
        UnaryClient(channel, OLDER).apply("activate", activate, 0)
    assert refusal(error.value)[0] is INVALID
    with pytest.raises(grpc.RpcError) as error:
        StreamClient(channel, OLDER).send([operation("activate", activate, 0)])
    assert refusal(error.value)[1].startswith("operations[0].activate")


def test_a_repeated_request_gets_the_last_answer(channel: grpc.Channel) -> None:
    """The same number does nothing; another operation's number, or any other, is refused."""
    client = UnaryClient(channel)
    client.apply("add", queue_pb2.Add(pod=pod("a")), 0)
    client.apply("add", queue_pb2.Add(pod=pod("b")), 0)
    first = client.apply("pop", queue_pb2.Pop(), 0)
    client.sequence -= 1
    assert client.apply("pop", queue_pb2.Pop(), 0) == first
    assert client.dump().cycle == 1
    for wrong in (client.sequence - 1, client.sequence + 1):
        client.sequence = wrong
        with pytest.raises(grpc.RpcError) as error:
            client.apply("flush_backoff", queue_pb2.FlushBackoff(), 0)
        assert refusal(error.value)[0] is grpc.StatusCode.ABORTED


def test_other_sessions_and_epochs_are_refused(channel: grpc.Channel) -> None:
    """A session that is not there is NOT_FOUND, a stale epoch ABORTED."""
    client = UnaryClient(channel)
    client.epoch += 1
    with pytest.raises(grpc.RpcError) as error:
        client.dump()
    assert refusal(error.value)[0] is grpc.StatusCode.ABORTED
    for _ in range(2):
        client.stub.CloseSession(pb.CloseSessionRequest(session=client.session), timeout=DEADLINE_S)
    with pytest.raises(grpc.RpcError) as error:
        client.dump()
    assert refusal(error.value)[0] is grpc.StatusCode.NOT_FOUND


def test_a_commit_of_another_pod_cuts_the_batch(channel: grpc.Channel) -> None:
    """What stands before it is applied, what follows is not, and the new heads are shown."""
    client = StreamClient(channel)
    answer = client.send([add("low", 1), add("high", 9)], heads=5)
    high, low = (head.pop for head in answer.heads)
    urgent = add("urgent", 99, at_ns=S)
    after = commit(low, 9 * S)
    answer = client.send([commit(high), done(high), urgent, after, failed(low, 9 * S)], heads=5)
    assert answer.applied == 3
    assert [(each.index, each.result.code) for each in answer.results] == [
        (3, queue_pb2.OUTCOME_CODE_NOT_NEXT)
    ]
    assert [head.pod.name for head in answer.heads] == ["urgent", "low"]
    assert client.dump().at_ns == S
    assert client.send([add("late", at_ns=2 * S)]).applied == 1


def test_outcomes_are_told_as_codes(channel: grpc.Channel) -> None:
    """Plainly applied operations are not told, pops and what upstream refuses are."""
    client = StreamClient(channel, OLDER)
    unknown = session_pb2.PopId(uid="uid-default/a", cycle=7)
    pop = operation("pop", queue_pb2.Pop(), 0)
    close = operation("close", queue_pb2.CloseQueue(), 0)
    answer = client.send([pop, add("a"), pop, add("a"), failed(unknown), done(unknown)])
    assert [(each.index, each.result.code) for each in answer.results] == [
        (0, queue_pb2.OUTCOME_CODE_WOULD_BLOCK),
        (2, queue_pb2.OUTCOME_CODE_APPLIED),
        (4, queue_pb2.OUTCOME_CODE_UNKNOWN_POP),
        (5, queue_pb2.OUTCOME_CODE_UNKNOWN_POP),
    ]
    popped = answer.results[1].result.popped.pop
    answer = client.send([failed(popped), close, pop, pop])
    present, _, closed = (each.result for each in answer.results)
    assert present.code == queue_pb2.OUTCOME_CODE_ALREADY_PRESENT
    assert present.text == "pod: default/a is already present in the active queue"
    assert closed.code == queue_pb2.OUTCOME_CODE_CLOSED
    assert closed.text == "scheduling queue is closed"


def test_a_wakeup_is_the_first_useful_tick(channel: grpc.Channel) -> None:
    """A backoff that ends at 1.5 s is flushed at 2 s; then nothing waits."""
    client = StreamClient(channel)
    head = client.send([add("a")], heads=1).heads[0].pop
    move = operation("move", queue_pb2.Move(event=NODE_ADD), 0)
    answer = client.send([commit(head), move, failed(head, S // 2)])
    assert answer.next_wakeup_ns == 2 * S
    answer = client.send([operation("flush_backoff", queue_pb2.FlushBackoff(), 2 * S)], heads=1)
    assert (answer.next_wakeup_ns, answer.heads[0].attempts) == (0, 2)


@dataclass
class Scheduler:
    """A scheduler whose outcomes are a function of (pod, cycle); it takes up to `batch` heads.

    Its outcomes disturb what it has not committed yet: new pods, moves, deletions.
    """

    client: StreamClient
    batch: int
    log: list[tuple[str, int, int]] = field(default_factory=list)
    cuts: int = 0

    def run(self, at_ns: int, heads: list[queue_pb2.Head]) -> None:
        """Take pods until none can be popped."""
        while heads:
            operations: list[Op] = []
            ends: list[int] = []
            for head in heads:
                operations += [commit(head.pop, at_ns), *self.outcome(head, at_ns)]
                ends.append(len(operations))
            answer = self.client.send(operations, heads=self.batch)
            whole = [end for end in ends if end <= answer.applied]
            assert answer.applied in {0, *ends}
            assert whole, "the first head is always next"
            self.cuts += len(whole) < len(heads)
            self.log += [
                (head.pop.uid, head.pop.cycle, head.attempts) for head in heads[: len(whole)]
            ]
            heads = list(answer.heads)

    def outcome(self, head: queue_pb2.Head, at_ns: int) -> list[Op]:
        """Return what follows a pop."""
        draw = random.Random(f"{head.pop.uid} {head.attempts}")  # noqa: S311 - a test's choice
        kind = draw.randrange(8)
        if head.attempts > 3 or kind < 3:
            return [done(head.pop, at_ns)]
        again = [failed(head.pop, at_ns)]
        if kind == 3:
            again.append(operation("move", queue_pb2.Move(event=NODE_ADD), at_ns))
        if kind == 4:
            name = f"{head.pod.name}-{head.attempts}"
            again.append(add(name, draw.randrange(-3, 4), at_ns))
        if kind == 5:
            nominated = queue_pb2.Nominate(pod=head.pod, node_name="n")
            again.append(operation("nominate", nominated, at_ns))
        if kind == 6:
            changed = pod(head.pod.name, 5, labels={"v": str(head.attempts)})
            old = pod(head.pod.name)
            update = queue_pb2.Update(old=old, pod=changed)
            again.append(operation("update", update, at_ns))
        return again


@pytest.mark.parametrize("seed", range(6))
def test_batches_of_any_size_take_the_same_pods_in_the_same_cycles(
    channel: grpc.Channel, seed: int
) -> None:
    """K heads with commits and outcomes are K single pops, and leave the same state."""
    runs: list[tuple[list[tuple[str, int, int]], queue_pb2.QueueState]] = []
    for batch in (1, 3, 100):
        draw = random.Random(seed)  # noqa: S311 - a test's choice
        scheduler = Scheduler(StreamClient(channel), batch)
        for tick in range(1, 31):
            at_ns = tick * S
            arrivals = [add(f"p{tick}-{n}", draw.randrange(-3, 4), at_ns) for n in range(3)]
            flush = operation("flush_backoff", queue_pb2.FlushBackoff(), at_ns)
            first = scheduler.client.send([flush, *arrivals], heads=batch)
            scheduler.run(at_ns, list(first.heads))
        assert scheduler.cuts or batch == 1
        runs.append((scheduler.log, scheduler.client.dump()))
    assert len(runs[0][0]) > 90
    assert runs[0] == runs[1] == runs[2]


def test_a_restored_session_goes_on_as_the_saved_one(channel: grpc.Channel) -> None:
    """Pops in flight, backoffs, affinity terms and nominations live on, under a new epoch."""
    saved = UnaryClient(channel, queue_pb2.QueueConfig(mode="v1.16"))
    for number in range(6):
        plain = {"affinity": [{"match_labels": {"app": "web"}}]} if number % 2 else {}
        saved.apply("add", queue_pb2.Add(pod=pod(f"p{number}", number, **plain)), number)
    pops = [saved.apply("pop", queue_pb2.Pop(), 10).popped for _ in range(4)]
    for head in pops[:2]:
        give_back = queue_pb2.AddUnschedulable(pop=head.pop, unschedulable_plugins=["Fit"])
        saved.apply("add_unschedulable", give_back, 11)
    saved.apply("nominate", queue_pb2.Nominate(pod=pops[0].pod, node_name="n"), 12)
    chunks = list(saved.stub.Checkpoint(pb.CheckpointRequest(stamp=saved.reading()), timeout=9))
    before = saved.dump()

    def finish(client: UnaryClient) -> queue_pb2.QueueState:
        assigned = queue_pb2.AssignedPodAdd(pod=pod("web", labels={"app": "web"}, node="n"))
        client.apply("assigned_pod_add", assigned, 13)
        client.apply("done", queue_pb2.Done(pop=pops[2].pop), 14)
        client.apply("add_unschedulable", queue_pb2.AddUnschedulable(pop=pops[3].pop), 15)
        client.apply("flush_backoff", queue_pb2.FlushBackoff(), 2 * S)
        return client.dump()

    sequence, finished = saved.sequence, finish(saved)
    with running_queue() as (_process, elsewhere):
        for place in (channel, elsewhere):
            restored = UnaryClient(place)
            requests = iter([pb.RestoreRequest(chunk=each.chunk) for each in chunks])
            answer = restored.stub.Restore(requests, timeout=DEADLINE_S)
            assert (answer.session, answer.epoch) == (saved.session, 2)
            restored.session, restored.epoch = answer.session, answer.epoch
            restored.sequence = sequence
            assert restored.dump() == before
            assert finish(restored) == finished
    with pytest.raises(grpc.RpcError) as error:
        saved.dump()
    assert refusal(error.value)[0] is grpc.StatusCode.ABORTED


def test_another_services_checkpoint_is_refused(channel: grpc.Channel) -> None:
    """It would not be understood."""
    client = UnaryClient(channel)
    chunk = session_pb2.CheckpointChunk(
        info=session_pb2.CheckpointInfo(service="eviction", session="s")
    )
    with pytest.raises(grpc.RpcError) as error:
        client.stub.Restore(iter([pb.RestoreRequest(chunk=chunk)]), timeout=DEADLINE_S)
    assert refusal(error.value)[0] is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize(("mode", "sub_queues"), [("v1.34", 6), ("v1.20", 4)])
def test_a_watch_shows_each_change(channel: grpc.Channel, mode: str, sub_queues: int) -> None:
    """The first view comes at once, the next when something has changed."""
    client = UnaryClient(channel, queue_pb2.QueueConfig(mode=mode))
    request = pb.WatchPendingRequest(stamp=client.reading(), heads=1, period_ms=5)
    views = client.stub.WatchPending(request, timeout=DEADLINE_S)
    assert [each.count for each in next(views).sub_queues] == [0] * sub_queues
    client.apply("add", queue_pb2.Add(pod=pod("a")), 0)
    client.apply("add", queue_pb2.Add(pod=pod("b")), 0)
    while (view := next(views)).sub_queues[0].count < 2:
        pass
    assert [each.pod.name for each in view.sub_queues[0].heads] == ["a"]
    client.apply("pop", queue_pb2.Pop(), 0)
    in_flight = next(views).sub_queues[-1]
    assert (in_flight.sub_queue, in_flight.count) == (queue_pb2.SUB_QUEUE_IN_FLIGHT, 1)
    views.cancel()


def test_a_live_session_is_stamped_on_arrival(channel: grpc.Channel) -> None:
    """Without a time an operation happens now; other sessions take 0 for what it is."""
    live, replayed = UnaryClient(channel, live=True), UnaryClient(channel)
    for client in (live, replayed):
        client.apply("add", queue_pb2.Add(pod=pod("a")), 0)
    assert live.dump().entries[0].queued_ns > 1_700_000_000 * S
    assert replayed.dump().entries[0].queued_ns == 0


def test_sigterm_ends_the_service_in_order() -> None:
    """It answers health checks by name, and exits 0 on SIGTERM."""
    with running_queue() as (process, opened):
        health = health_pb2_grpc.HealthStub(opened)
        asked = health_pb2.HealthCheckRequest(service=FULL_NAME)
        serving = health_pb2.HealthCheckResponse.SERVING
        assert health.Check(asked, timeout=DEADLINE_S).status == serving
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0


def test_a_scheduler_whose_stream_ends_gives_its_pops_back_in_order(channel: grpc.Channel) -> None:
    """Another one that shares the live session pops them in their old order."""
    client = UnaryClient(channel, queue_pb2.QueueConfig(mode="v1.34"), live=True)
    stamp = client.reading()
    for name in ("a", "b", "c"):
        client.apply("add", queue_pb2.Add(pod=pod(name)), 0)
    requests: SimpleQueue[pb.StreamRequest | None] = SimpleQueue()
    answers = client.stub.Stream(iter(requests.get, None), timeout=DEADLINE_S)
    pops = [operation("pop", queue_pb2.Pop(owner="one"), 0) for _ in range(2)]
    requests.put(pb.StreamRequest(stamp=stamp, operations=pops))
    assert popped_by(next(answers)) == ["a", "b"]
    other = pb.PopRequest(stamp=stamp, pop=queue_pb2.Pop(owner="two"))
    assert client.stub.Pop(other, timeout=DEADLINE_S).result.popped.pod.name == "c"
    answers.cancel()
    took: list[str] = []
    for _ in range(200):  # until the service has seen that the stream is gone
        result = client.stub.Pop(other, timeout=DEADLINE_S).result
        if result.HasField("popped"):
            took.append(result.popped.pod.name)
        if len(took) == 2:
            break
        time.sleep(0.01)
    assert took == ["a", "b"]
    holders = {entry.pod.name: entry.owner for entry in client.dump().entries}
    assert holders == {"a": "two", "b": "two", "c": "two"}


def popped_by(answer: pb.StreamResponse) -> list[str]:
    """Return the pods that a batch popped."""
    return [each.result.popped.pod.name for each in answer.results]
