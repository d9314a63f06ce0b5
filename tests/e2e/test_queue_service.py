"""The queue service as a real process: refusals, retries, batches, checkpoints, its end."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from replay.conform.vectors.queue import (
    DEADLINE_S,
    StreamQueueSession,
    UnaryQueueSession,
    operation,
)
from replay.conform.vectors.queue_scripts import pod_message
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import SECOND_NS
from services.queue.config_codec import DEFAULT_VERSION
from services.rpc.parts import MESSAGE_BYTES_MAX, merged
from tests.e2e.queue_clients import running_queue

pytestmark = pytest.mark.e2e
FULL_NAME = "reprieve.queue.v1beta1.QueueService"
S = SECOND_NS
SPAN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OLDER = queue_pb2.QueueConfig(rules="v1.20")
INVALID = grpc.StatusCode.INVALID_ARGUMENT
Op = queue_pb2.Operation
POP_NEXT = Op(time_ns=0, pop=queue_pb2.Pop())
POP, REF, META = session_pb2.PopId, meta_pb2.ObjectReference, meta_pb2.ObjectMeta
NODE_ADD = queue_pb2.ClusterEvent(label="NodeAdd")
NO_EVENT = queue_pb2.ClusterEvent(label="NodAdd")


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
    return operation("done", pop, at_ns)


def failed(pop: session_pb2.PopId, at_ns: int = 0) -> Op:
    """Return the operation that gives a pop back."""
    return operation("add_unschedulable", queue_pb2.AddUnschedulable(pop=pop), at_ns)


def name_of(head: queue_pb2.Head) -> str:
    """Return the name of a pod that is next, or was popped."""
    return head.pop.uid.removeprefix("uid-default/")


def ref(head: queue_pb2.Head) -> meta_pb2.ObjectReference:
    """Return what names the pod of a head."""
    return REF(uid=head.pop.uid, namespace="default", name=name_of(head))


NAMELESS = queue_pb2.Add(pod=pod_pb2.Pod(metadata=META(name="p")))
BAD_SELECTOR = queue_pb2.Add(pod=pod("p", affinity=[{"match_labels": {"a": "b"}}]))
REQUIRED = "required_during_scheduling_ignored_during_execution"
getattr(BAD_SELECTOR.pod.spec.affinity.pod_affinity, REQUIRED)[
    0
].label_selector.match_expressions.add(key="a", operator="Like")
HINT = queue_pb2.HintRegistration
REFUSALS = {
    "operation": Op(time_ns=5),
    "add.pod.metadata.uid": operation("add", NAMELESS, 5),
    "add.pod.metadata.name": operation(
        "add", queue_pb2.Add(pod=pod_pb2.Pod(metadata=META(uid="u"))), 5
    ),
    "add.gates": operation("add", queue_pb2.Add(pod=pod("p"), gates=["g"]), 5),
    "add.pod.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
    ".labelSelector.matchExpressions[0].operator": operation("add", BAD_SELECTOR, 5),
    "update.old_pod.metadata": operation(
        "update", queue_pb2.Update(old_pod=pod("a"), pod=pod("b")), 5
    ),
    "assigned_pod_update.label": operation(
        "assigned_pod_update", queue_pb2.AssignedPodUpdate(pod=pod("p"), label="NodAdd"), 5
    ),
    "delete_pod.name": operation("delete_pod", REF(uid="u"), 5),
    "commit_pop.pop": operation("commit_pop", queue_pb2.CommitPop(), 5),
    "done.cycle": operation("done", POP(uid="u"), 5),
    "add_unschedulable.pod.metadata.uid": operation(
        "add_unschedulable",
        queue_pb2.AddUnschedulable(pop=POP(uid="u", cycle=1), pod=pod("other")),
        5,
    ),
    "add_unschedulable.cycle": operation(
        "add_unschedulable", queue_pb2.AddUnschedulable(pop=POP(uid="u", cycle=1), cycle=-1), 5
    ),
    "move.all_but.uid": operation(
        "move", queue_pb2.Move(event=NODE_ADD, all_but=REF(namespace="default", name="p")), 5
    ),
    "move.event.label": operation("move", queue_pb2.Move(event=NO_EVENT), 5),
    "nominate.pod.uid": operation("nominate", queue_pb2.Nominate(pod=REF(), node_name="n"), 5),
    "delete_nomination.uid": operation("delete_nomination", REF(), 5),
    "time_ns": add("p", at_ns=2**62 + 1),
}


def refusal(call: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    """Return a refusal's code and the field that its details name, or its text."""
    bad = error_details_pb2.BadRequest()
    status = status_of(call)
    assert isinstance(call, grpc.Call)
    for detail in status.details:
        if detail.Unpack(bad):
            return call.code(), bad.field_violations[0].field
    return call.code(), status.message


def reason(call: grpc.RpcError) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    """Return a refusal's code, its reason and what is said of it for programs."""
    info = error_details_pb2.ErrorInfo()
    (_,) = (detail for detail in status_of(call).details if detail.Unpack(info))
    assert isinstance(call, grpc.Call)
    assert info.domain == "reprieve.internal"
    return call.code(), info.reason, dict(info.metadata)


def status_of(call: grpc.RpcError) -> status_pb2.Status:
    """Return the status that a refusal carries."""
    assert isinstance(call, grpc.Call)
    status = rpc_status.from_call(call)
    assert status is not None
    return status


@pytest.mark.parametrize("kind", [UnaryQueueSession, StreamQueueSession])
@pytest.mark.parametrize("field", REFUSALS)
def test_a_bad_field_is_named_and_refuses_its_whole_batch(
    channel: grpc.Channel, field: str, kind: type[UnaryQueueSession]
) -> None:
    """By the operation's place and the path within it; nothing has changed."""
    client = kind(channel, OLDER)
    with pytest.raises(grpc.RpcError) as error:
        client.send([add("first", at_ns=5), REFUSALS[field], add("last", at_ns=5)])
    assert refusal(error.value) == (INVALID, f"operations[1].{field}")
    assert reason(error.value) == (INVALID, "BAD_FIELD", {})
    assert client.state() == queue_pb2.QueueState()
    if kind is UnaryQueueSession:  # the stream has ended
        assert client.send([add("first", at_ns=5)]).sequence == 1


def test_time_does_not_go_back(channel: grpc.Channel) -> None:
    """Neither in a batch nor between requests; the refused request changes nothing."""
    client = UnaryQueueSession(channel)
    client.apply("add", queue_pb2.Add(pod=pod("a")), 5)
    with pytest.raises(grpc.RpcError) as error:
        client.apply("add", queue_pb2.Add(pod=pod("b")), 4)
    code, text = refusal(error.value)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert text == "operations[0].time_ns: 4 ns lies before the last operation at 5 ns"
    assert reason(error.value)[1:] == ("TIME_GOES_BACKWARDS", {"earliest_time_ns": "5"})
    with pytest.raises(grpc.RpcError) as error:
        StreamQueueSession(channel).send([add("a", at_ns=2), add("b", at_ns=1)])
    assert refusal(error.value)[1].startswith("operations[1].time_ns: 1 ns")
    assert client.state().time_ns == 5


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"rules": "v9"}, "config.rules"),
        ({"initial_backoff_duration_ns": 0}, "config.initial_backoff_duration_ns"),
        ({"initial_backoff_duration_ns": -1}, "config.initial_backoff_duration_ns"),
        ({"max_backoff_duration_ns": -1}, "config.max_backoff_duration_ns"),
        ({"rules": "v1.20", "max_backoff_duration_ns": 0}, "config.max_backoff_duration_ns"),
        ({"max_unschedulable_duration_ns": 0}, "config.max_unschedulable_duration_ns"),
        ({"rules": "v1.20", "queueing_hints": True}, "config.queueing_hints"),
        ({"lease_duration_ns": 1}, "config.lease_duration_ns"),
        ({"lease_duration_ns": 0}, "config.lease_duration_ns"),
        ({"hints": [HINT(plugin="P", event="NodAdd")]}, "config.hints[0].event"),
        ({"hints": [HINT(plugin="P", event="NodeAdd", hint=True)]}, "config.hints[0].hint"),
    ],
)
def test_rules_that_are_not_served_are_refused(
    channel: grpc.Channel, config: dict[str, object], field: str
) -> None:
    """Each by its field."""
    with pytest.raises(grpc.RpcError) as error:
        UnaryQueueSession(channel, queue_pb2.QueueConfig(**config))  # type: ignore[arg-type] # as given
    assert refusal(error.value) == (INVALID, field)


@pytest.mark.parametrize(("rules", "leftover_s"), [("v1.34", 300), ("v1.20", 60), ("v1.16", 60)])
def test_rules_are_answered_with_their_defaults(
    channel: grpc.Channel, rules: str, leftover_s: int
) -> None:
    """What a session leaves out is filled in, as the rules have it."""
    config = UnaryQueueSession(channel, queue_pb2.QueueConfig(rules=rules)).opened.config
    later = True if rules == "v1.34" else None
    assert config == queue_pb2.QueueConfig(
        rules=rules,
        initial_backoff_duration_ns=S,
        max_backoff_duration_ns=10 * S,
        max_unschedulable_duration_ns=leftover_s * S,
        pop_from_backoff_q=later,
        queueing_hints=later,
    )


def test_without_rules_the_default_ones_are_in_force(channel: grpc.Channel) -> None:
    """The answer names them."""
    assert UnaryQueueSession(channel).opened.config.rules == DEFAULT_VERSION


def test_older_rules_have_no_activate(channel: grpc.Channel) -> None:
    """It belongs to later ones; the answer names the operation."""
    activate = queue_pb2.Activate(pods=[REF(uid="u")])
    with pytest.raises(grpc.RpcError) as error:
        UnaryQueueSession(channel, OLDER).apply("activate", activate, 0)
    assert refusal(error.value) == (INVALID, "operations[0].activate.pods")


def test_rules_with_backoffs_by_name_serve_no_pods_that_passed(channel: grpc.Channel) -> None:
    """A pod that has gone leaves its backoff to the next one of its name: counts are too little."""
    client = UnaryQueueSession(channel, queue_pb2.QueueConfig(rules="v1.16"))
    assert not client.opened.passes_through
    with pytest.raises(grpc.RpcError) as error:
        client.apply("pass_through", queue_pb2.PassThrough(first_cycle=1, pods=1), 0)
    assert reason(error.value) == (grpc.StatusCode.UNIMPLEMENTED, "NOT_SERVED", {})
    assert client.state() == queue_pb2.QueueState()


@pytest.mark.parametrize("kind", [UnaryQueueSession, StreamQueueSession])
def test_a_repeated_request_gets_the_last_answer(
    channel: grpc.Channel, kind: type[UnaryQueueSession]
) -> None:
    """The same number does nothing, whatever span it is sent in."""
    client = kind(channel)
    client.send([add("a"), add("b")])
    request = pb.ApplyRequest(stamp=client.stamp(), operations=[POP_NEXT], heads=1)
    first = client.exchange(request)
    assert first.results[0].popped.pop == POP(uid="uid-default/a", cycle=1)
    for traceparent in ("", SPAN):
        request.stamp.traceparent = traceparent
        assert client.exchange(request) == first
    assert client.state().cycle == 1


@pytest.mark.parametrize("kind", [UnaryQueueSession, StreamQueueSession])
@pytest.mark.parametrize(
    "other",
    [
        pb.ApplyRequest(operations=[operation("flush_backoff", Empty(), 0)]),
        pb.ApplyRequest(operations=[add("b", at_ns=0)]),
        pb.ApplyRequest(operations=[add("a", at_ns=0)], heads=1),
        pb.ApplyRequest(),
    ],
)
def test_the_last_number_with_another_request_is_refused(
    channel: grpc.Channel, kind: type[UnaryQueueSession], other: pb.ApplyRequest
) -> None:
    """It is no retry; nothing has changed, and the refusal says which number comes next."""
    client = kind(channel)
    client.send([add("a")])
    request = pb.ApplyRequest()
    request.CopyFrom(other)
    request.stamp.session_id, request.stamp.sequence = client.session, 1
    with pytest.raises(grpc.RpcError) as error:
        client.exchange(request)
    aborted = grpc.StatusCode.ABORTED
    assert reason(error.value) == (aborted, "SEQUENCE_REUSED", {"expected_sequence": "2"})
    assert [entry.pod.name for entry in client.state().entries] == ["a"]


@pytest.mark.parametrize("kind", [UnaryQueueSession, StreamQueueSession])
@pytest.mark.parametrize("sequence", [0, 1, 4])
def test_a_number_out_of_order_is_refused(
    channel: grpc.Channel, kind: type[UnaryQueueSession], sequence: int
) -> None:
    """Neither the last one nor the next; the refusal says which that is."""
    client = kind(channel)
    client.send([add("a")])
    client.send([add("b")])
    stamp = session_pb2.Stamp(session_id=client.session, sequence=sequence)
    with pytest.raises(grpc.RpcError) as error:
        client.exchange(pb.ApplyRequest(stamp=stamp))
    aborted = grpc.StatusCode.ABORTED
    assert reason(error.value) == (aborted, "SEQUENCE_MISMATCH", {"expected_sequence": "3"})


def test_a_number_is_required_outside_live_sessions(channel: grpc.Channel) -> None:
    """A request without one would not be safe to repeat."""
    client = UnaryQueueSession(channel)
    with pytest.raises(grpc.RpcError) as error:
        client.exchange(pb.ApplyRequest(stamp=client.reading()))
    assert refusal(error.value) == (INVALID, "stamp.sequence")


@pytest.mark.parametrize("method", ["Apply", "GetState", "WatchPending", "CheckpointSession"])
@pytest.mark.parametrize("deleted", [True, False])
def test_a_session_that_is_not_there_has_expired(
    channel: grpc.Channel, method: str, *, deleted: bool
) -> None:
    """Whether it was deleted or never was; deleting it again is accepted."""
    client = StreamQueueSession(channel)
    if deleted:
        forget = session_pb2.DeleteSessionRequest(session_id=client.session)
        for _ in range(2):
            client.stub.DeleteSession(forget, timeout=DEADLINE_S)
    else:
        client.session = "never"
    calls: dict[str, Callable[[], object]] = {
        "Apply": lambda: client.send([]),
        "GetState": client.state,
        "WatchPending": lambda: next(watch(client)),
        "CheckpointSession": lambda: saved_chunks(client),
    }
    with pytest.raises(grpc.RpcError) as error:
        calls[method]()
    how = {"reason": "deleted" if deleted else "unknown"}
    assert reason(error.value) == (grpc.StatusCode.NOT_FOUND, "SESSION_EXPIRED", how)
    if method == "Apply":
        with pytest.raises(grpc.RpcError) as error:
            UnaryQueueSession.exchange(client, pb.ApplyRequest(stamp=client.stamp()))
        assert reason(error.value)[1] == "SESSION_EXPIRED"


def watch(client: UnaryQueueSession, **more: int) -> Iterator[pb.WatchPendingResponse]:
    """Return the views of a session."""
    request = pb.WatchPendingRequest(stamp=client.reading(), **more)
    views: Iterator[pb.WatchPendingResponse] = client.stub.WatchPending(request, timeout=DEADLINE_S)
    return views


def saved_chunks(client: UnaryQueueSession) -> list[session_pb2.CheckpointChunk]:
    """Return a session's checkpoint."""
    request = session_pb2.CheckpointSessionRequest(stamp=client.reading())
    return list(client.stub.CheckpointSession(request, timeout=DEADLINE_S))


@pytest.mark.parametrize(
    ("operations", "heads"), [([add("a")], 4097), ([add(str(number)) for number in range(4097)], 0)]
)
def test_a_batch_above_a_limit_is_refused(
    channel: grpc.Channel, operations: list[Op], heads: int
) -> None:
    """Nothing of it is done."""
    client = UnaryQueueSession(channel)
    with pytest.raises(grpc.RpcError) as error:
        client.send(operations, heads=heads)
    limit = {"limit": "heads" if heads else "operations"}
    assert reason(error.value) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT", limit)
    assert client.state() == queue_pb2.QueueState()


def test_a_large_state_comes_in_parts_that_merge_to_the_whole(channel: grpc.Channel) -> None:
    """None is larger than what every gRPC library takes."""
    client = UnaryQueueSession(channel)
    names = [f"{number:05}-{'x' * 40}" for number in range(20_000)]
    for start in range(0, len(names), 4000):
        client.send([add(name, at_ns=start) for name in names[start : start + 4000]])
    client.send([operation("nominate", queue_pb2.Nominate(pod=REF(uid="u"), node_name="n"), S)])
    client.send([operation("close", Empty(), S)])
    request = session_pb2.GetStateRequest(stamp=client.reading())
    parts = list(client.stub.GetState(request, timeout=DEADLINE_S))
    assert len(parts) > 1
    assert max(part.ByteSize() for part in parts) <= MESSAGE_BYTES_MAX
    whole = merged(parts, pb.GetStateResponse()).state
    assert [entry.pod.name for entry in whole.entries] == names
    assert [entry.queued_time_ns for entry in whole.entries[::4000]] == list(range(0, 20_000, 4000))
    assert [node.node_name for node in whole.nominations] == ["n"]
    assert (whole.closed, whole.time_ns) == (True, S)


def test_many_nominations_of_one_node_come_in_parts(channel: grpc.Channel) -> None:
    """The node stands there several times; its pods keep their order."""
    client = UnaryQueueSession(channel)
    uids = [f"{number:05}-{'x' * 120}" for number in range(18_000)]
    for start in range(0, len(uids), 4000):
        client.send(
            operation("nominate", queue_pb2.Nominate(pod=REF(uid=uid), node_name="n"), 0)
            for uid in uids[start : start + 4000]
        )
    request = session_pb2.GetStateRequest(stamp=client.reading())
    parts = list(client.stub.GetState(request, timeout=DEADLINE_S))
    assert max(part.ByteSize() for part in parts) <= MESSAGE_BYTES_MAX
    nominations = merged(parts, pb.GetStateResponse()).state.nominations
    assert {nomination.node_name for nomination in nominations} == {"n"}
    assert [ref.uid for nomination in nominations for ref in nomination.pods] == uids


def test_a_commit_of_another_pod_cuts_the_batch(channel: grpc.Channel) -> None:
    """What stands before it is applied, what follows is not, and the new heads are shown."""
    client = StreamQueueSession(channel)
    answer = client.send([add("low", 1), add("high", 9)], heads=5)
    high, low = (head.pop for head in answer.heads)
    urgent = add("urgent", 99, at_ns=S)
    after = commit(low, 9 * S)
    answer = client.send([commit(high), done(high), urgent, after, failed(low, 9 * S)], heads=5)
    assert answer.applied == 3
    assert [(result.index, result.code) for result in answer.results] == [
        (3, queue_pb2.OUTCOME_CODE_NOT_NEXT)
    ]
    assert [name_of(head) for head in answer.heads] == ["urgent", "low"]
    assert client.state().time_ns == S
    assert client.send([add("late", at_ns=2 * S)]).applied == 1


def test_outcomes_are_answered_as_codes(channel: grpc.Channel) -> None:
    """Plainly applied operations are left out; pops and what upstream refuses are listed."""
    client = StreamQueueSession(channel, OLDER)
    unknown = session_pb2.PopId(uid="uid-default/a", cycle=7)
    pop = operation("pop", queue_pb2.Pop(), 0)
    close = operation("close", Empty(), 0)
    answer = client.send([pop, add("a"), pop, add("a"), failed(unknown), done(unknown)])
    assert [(result.index, result.code) for result in answer.results] == [
        (0, queue_pb2.OUTCOME_CODE_WOULD_BLOCK),
        (2, queue_pb2.OUTCOME_CODE_APPLIED),
        (4, queue_pb2.OUTCOME_CODE_UNKNOWN_POP),
        (5, queue_pb2.OUTCOME_CODE_UNKNOWN_POP),
    ]
    popped = answer.results[1].popped.pop
    answer = client.send([failed(popped), close, pop, pop])
    present, _, closed = answer.results
    assert present.code == queue_pb2.OUTCOME_CODE_ALREADY_PRESENT
    assert present.text == "pod: default/a is already present in the active queue"
    assert closed.code == queue_pb2.OUTCOME_CODE_CLOSED
    assert closed.text == "scheduling queue is closed"


def test_a_wakeup_is_the_first_useful_tick(channel: grpc.Channel) -> None:
    """A backoff that ends at 1.5 s is flushed at 2 s; then nothing waits."""
    client = StreamQueueSession(channel)
    head = client.send([add("a")], heads=1).heads[0].pop
    move = operation("move", queue_pb2.Move(event=NODE_ADD), 0)
    answer = client.send([commit(head), move, failed(head, S // 2)])
    assert answer.next_wakeup_time_ns == 2 * S
    answer = client.send([operation("flush_backoff", Empty(), 2 * S)], heads=1)
    assert not answer.HasField("next_wakeup_time_ns")
    assert answer.heads[0].attempts == 2


@dataclass
class Scheduler:
    """A scheduler whose outcomes are a function of (pod, cycle); it takes up to `batch` heads.

    Its outcomes disturb what it has not committed yet: new pods, moves, deletions.
    """

    client: StreamQueueSession
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
            name = f"{name_of(head)}-{head.attempts}"
            again.append(add(name, draw.randrange(-3, 4), at_ns))
        if kind == 5:
            nominated = queue_pb2.Nominate(pod=ref(head), node_name="n")
            again.append(operation("nominate", nominated, at_ns))
        if kind == 6:
            changed = pod(name_of(head), 5, labels={"v": str(head.attempts)})
            update = queue_pb2.Update(old_pod=pod(name_of(head)), pod=changed)
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
        scheduler = Scheduler(StreamQueueSession(channel), batch)
        for tick in range(1, 31):
            at_ns = tick * S
            arrivals = [add(f"p{tick}-{n}", draw.randrange(-3, 4), at_ns) for n in range(3)]
            flush = operation("flush_backoff", Empty(), at_ns)
            first = scheduler.client.send([flush, *arrivals], heads=batch)
            scheduler.run(at_ns, list(first.heads))
        assert scheduler.cuts or batch == 1
        runs.append((scheduler.log, scheduler.client.state()))
    assert len(runs[0][0]) > 90
    assert runs[0] == runs[1] == runs[2]


def test_a_restored_session_continues_as_the_saved_one(channel: grpc.Channel) -> None:
    """Pops in flight, backoffs, affinity terms and nominations live on, in a session of its own."""
    saved = UnaryQueueSession(channel, queue_pb2.QueueConfig(rules="v1.16"))
    for number in range(6):
        plain = {"affinity": [{"match_labels": {"app": "web"}}]} if number % 2 else {}
        saved.apply("add", queue_pb2.Add(pod=pod(f"p{number}", number, **plain)), number)
    pops = [saved.apply("pop", queue_pb2.Pop(), 10).popped for _ in range(4)]
    for head in pops[:2]:
        failure = queue_pb2.Failure(unschedulable_plugins=["Fit"])
        give_back = queue_pb2.AddUnschedulable(pop=head.pop, failure=failure)
        saved.apply("add_unschedulable", give_back, 11)
    saved.apply("nominate", queue_pb2.Nominate(pod=ref(pops[0]), node_name="n"), 12)
    chunks = saved_chunks(saved)
    before = saved.state()

    def finish(client: UnaryQueueSession) -> queue_pb2.QueueState:
        assigned = queue_pb2.AssignedPodAdd(pod=pod("web", labels={"app": "web"}, node="n"))
        client.apply("assigned_pod_add", assigned, 13)
        client.apply("done", pops[2].pop, 14)
        client.apply("add_unschedulable", queue_pb2.AddUnschedulable(pop=pops[3].pop), 15)
        client.apply("flush_backoff", Empty(), 2 * S)
        return client.state()

    finished = finish(saved)
    with running_queue() as (_process, elsewhere):
        for place in (channel, channel, elsewhere):
            restored = UnaryQueueSession(place)
            answer = restored.stub.RestoreSession(iter(chunks), timeout=DEADLINE_S)
            assert answer.session_id not in {saved.session, restored.session}
            assert answer.config == saved.opened.config
            restored.session = answer.session_id
            assert restored.state() == before
            assert finish(restored) == finished
    assert saved.state() == finished


def test_another_services_checkpoint_is_refused(channel: grpc.Channel) -> None:
    """It would not be understood."""
    client = UnaryQueueSession(channel)
    chunk = session_pb2.CheckpointChunk(
        info=session_pb2.CheckpointInfo(service=session_pb2.SERVICE_KIND_EVICTION, version="1")
    )
    with pytest.raises(grpc.RpcError) as error:
        client.stub.RestoreSession(iter([chunk]), timeout=DEADLINE_S)
    failed_precondition = grpc.StatusCode.FAILED_PRECONDITION
    assert reason(error.value) == (failed_precondition, "FOREIGN_CHECKPOINT", {})


@pytest.mark.parametrize(("rules", "sub_queues"), [("v1.34", 6), ("v1.20", 4)])
def test_a_watch_shows_each_change(channel: grpc.Channel, rules: str, sub_queues: int) -> None:
    """The first view comes at once, the next when something has changed; a deletion ends it."""
    client = UnaryQueueSession(channel, queue_pb2.QueueConfig(rules=rules))
    views = watch(client, heads=1, period_duration_ns=5_000_000)
    assert [sub_queue.count for sub_queue in next(views).sub_queues] == [0] * sub_queues
    client.apply("add", queue_pb2.Add(pod=pod("a")), 0)
    client.apply("add", queue_pb2.Add(pod=pod("b")), 0)
    while (view := next(views)).sub_queues[0].count < 2:
        pass
    assert [head.pod.name for head in view.sub_queues[0].heads] == ["a"]
    client.apply("pop", queue_pb2.Pop(), 0)
    in_flight = next(views).sub_queues[-1]
    assert (in_flight.sub_queue, in_flight.count) == (queue_pb2.SUB_QUEUE_IN_FLIGHT, 1)
    client.close()
    with pytest.raises(grpc.RpcError) as error:
        next(views)
    assert reason(error.value)[1] == "SESSION_EXPIRED"


def test_a_watch_of_too_many_heads_or_without_a_pause_is_refused(channel: grpc.Channel) -> None:
    """It would take too much of the service."""
    client = UnaryQueueSession(channel)
    with pytest.raises(grpc.RpcError) as error:
        next(watch(client, heads=4096))
    assert reason(error.value)[:2] == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT")
    with pytest.raises(grpc.RpcError) as error:
        next(watch(client, period_duration_ns=0))
    assert refusal(error.value) == (INVALID, "period_duration_ns")


def test_a_watch_of_pods_with_many_gates_shows_fewer_of_them(channel: grpc.Channel) -> None:
    """A view stays small enough; it counts them all."""
    client = UnaryQueueSession(channel)
    gates = [f"example.com/{number:04}-{'x' * 40}" for number in range(100)]
    for _ in range(2):
        client.send(
            operation("add", queue_pb2.Add(pod=pod(f"p{number}"), gates=gates), 0)
            for number in range(client.sequence * 250, (client.sequence + 1) * 250)
        )
    view = next(watch(client, heads=600))
    assert view.ByteSize() <= MESSAGE_BYTES_MAX
    (gated,) = (sub_queue for sub_queue in view.sub_queues if sub_queue.count)
    assert gated.count == 500
    assert 100 <= len(gated.heads) < 500


def test_a_live_session_is_stamped_on_arrival(channel: grpc.Channel) -> None:
    """Without a time an operation happens now; other sessions require one, which may be 0."""
    live, replayed = UnaryQueueSession(channel, live=True), UnaryQueueSession(channel)
    undated = queue_pb2.Operation(add=queue_pb2.Add(pod=pod("a")))
    live.send([undated])
    with pytest.raises(grpc.RpcError) as error:
        replayed.send([undated])
    assert refusal(error.value) == (INVALID, "operations[0].time_ns")
    replayed.apply("add", queue_pb2.Add(pod=pod("a")), 0)
    assert live.state().entries[0].queued_time_ns > 1_700_000_000 * S
    assert replayed.state().entries[0].queued_time_ns == 0


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
    client = UnaryQueueSession(channel, queue_pb2.QueueConfig(rules="v1.34"), live=True)
    stamp = client.reading()
    client.send([add("a"), add("b"), add("c")])
    requests: SimpleQueue[pb.ApplyRequest | None] = SimpleQueue()
    answers = client.stub.StreamingApply(iter(requests.get, None), timeout=DEADLINE_S)
    pops = [Op(pop=queue_pb2.Pop(owner="one")) for _ in range(2)]
    requests.put(pb.ApplyRequest(stamp=stamp, operations=pops))
    assert popped_by(next(answers)) == ["a", "b"]
    pop = Op(pop=queue_pb2.Pop(owner="two"))
    other = pb.ApplyRequest(stamp=stamp, operations=[pop])
    assert popped_by(client.exchange(other)) == ["c"]
    answers.cancel()
    took: list[str] = []
    for _ in range(200):  # until the service has seen that the stream is gone
        took += popped_by(client.exchange(other))
        if len(took) == 2:
            break
        time.sleep(0.01)
    assert took == ["a", "b"]
    holders = {entry.pod.name: entry.owner for entry in client.state().entries}
    assert holders == {"a": "two", "b": "two", "c": "two"}


def test_a_returned_pop_is_not_answered_again(channel: grpc.Channel) -> None:
    """Its number ends with the stream: a client that sends it again would hold another's pod."""
    client = UnaryQueueSession(channel, live=True)
    client.send([add("a")])
    pop = Op(pop=queue_pb2.Pop(owner="one"))
    request = pb.ApplyRequest(stamp=client.stamp(), operations=[pop])
    requests: SimpleQueue[pb.ApplyRequest | None] = SimpleQueue()
    requests.put(request)
    answers = client.stub.StreamingApply(iter(requests.get, None), timeout=DEADLINE_S)
    assert popped_by(next(answers)) == ["a"]
    answers.cancel()
    deadline = time.monotonic() + DEADLINE_S
    while client.state().entries[0].sub_queue != queue_pb2.SUB_QUEUE_ACTIVE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(grpc.RpcError) as error:
        client.exchange(request)
    aborted = grpc.StatusCode.ABORTED
    assert reason(error.value) == (aborted, "SEQUENCE_MISMATCH", {"expected_sequence": "3"})
    request.stamp.sequence += 1
    assert popped_by(client.exchange(request)) == ["a"]


def popped_by(answer: pb.ApplyResponse) -> list[str]:
    """Return the pods that a batch popped."""
    return [name_of(result.popped) for result in answer.results if result.HasField("popped")]
