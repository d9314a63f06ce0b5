"""The queue's servicer without a network: decoding, order of operations, stored responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from google.protobuf.message import Message

from replay.conform.vectors.queue import operation
from reprieve.kube.v1beta1 import affinity_pb2, meta_pb2, node_pb2, object_pb2, pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from reprieve.session.v1beta1 import session_pb2
from services.framework.cluster_event import event_of
from services.queue import codec
from services.queue.checkpoint import session_from_plain, session_to_json
from services.queue.config_codec import config_from_message
from services.queue.core.queued_pod import AssignedPod, PopId
from services.queue.core.rules.versions import QueueConfig
from services.queue.metrics import QueueMetrics
from services.queue.operations import read_operation
from services.queue.reader import QueueReader
from services.queue.servicer import HEADS_MAX, OPERATIONS_MAX, QueueServicer
from services.queue.session import QueueSession, RequestClock
from services.rpc.checkpoints import read_checkpoint, write_checkpoint
from services.rpc.errors import FieldError, LimitError, SequenceReusedError, TimeGoesBackwardsError
from services.rpc.parts import merged
from tests.builders import make_pod
from tests.scrapes import samples
from tests.unit.queue.builders import make_queue, make_queued_pod, pop, seconds

POP, META = session_pb2.PopId, meta_pb2.ObjectMeta
SELECTOR, TERM = meta_pb2.LabelSelector, affinity_pb2.PodAffinityTerm
OLD_READER = QueueReader(QueueConfig(version="v1.20"))
HINT_SECONDS = "scheduler_queueing_hint_execution_duration_seconds"
NODE_ADD = queue_pb2.ClusterEvent(label="NodeAdd")
FIT = queue_pb2.Failure(unschedulable_plugins=["NodeResourcesFit"])
CONTEXT: Any = None
"""No handler reads its context."""


class Harness:
    """A servicer with one session; a request that fails does not count."""

    def __init__(
        self,
        *,
        live: bool = False,
        rules: str = "v1.20",
        lease_ns: int | None = None,
        wall_clock_ns: Callable[[], int] = int,
    ) -> None:
        self.servicer = QueueServicer(wall_clock_ns=wall_clock_ns)
        config = queue_pb2.QueueConfig(rules=rules, lease_duration_ns=lease_ns)
        request = pb.CreateSessionRequest(live=live, config=config)
        self.opened = asyncio.run(self.servicer.CreateSession(request, CONTEXT))
        self.sequence = 0
        self.live = live

    def stamp(self, sequence: int | None = None) -> session_pb2.Stamp:
        """Return a stamp of the session, of a read where it has no number."""
        return session_pb2.Stamp(session_id=self.opened.session_id, sequence=sequence)

    def send(self, *operations: queue_pb2.Operation, heads: int = 0) -> pb.ApplyResponse:
        """Answer a batch; a live session's operations have no time, others have 0 without one."""
        stamp = self.stamp(self.sequence + 1)
        request = pb.ApplyRequest(stamp=stamp, operations=operations, heads=heads)
        for message in request.operations:
            if self.live:
                message.ClearField("time_ns")
            elif not message.HasField("time_ns"):
                message.time_ns = 0
        answer = self.servicer.apply(request)
        self.sequence += 1
        return answer

    def state(self) -> queue_pb2.QueueState:
        """Return the whole state."""
        request = session_pb2.GetStateRequest(stamp=self.stamp())

        async def parts() -> list[pb.GetStateResponse]:
            return [part async for part in self.servicer.GetState(request, CONTEXT)]

        return merged(asyncio.run(parts()), pb.GetStateResponse()).state

    def saved(self) -> tuple[session_pb2.CheckpointInfo, Any]:
        """Return the info and the state of a checkpoint."""
        request = session_pb2.CheckpointSessionRequest(stamp=self.stamp())
        chunks = self.servicer.CheckpointSession(request, CONTEXT)
        read = asyncio.run(read_checkpoint("queue", chunks))
        return read.info, read.state


def read(name: str, argument: Message | str, reader: QueueReader) -> Any:
    """Return what is read of the operation `name` of the contract."""
    return read_operation(operation(name, argument, 0), reader)


def make_pod_message(
    name: str = "p",
    *,
    priority: int = 0,
    nominated: str = "",
    terms: tuple[affinity_pb2.PodAffinityTerm, ...] = (),
) -> pod_pb2.Pod:
    """Return a pod of the namespace ns with UID uid-NAME."""
    builder = make_pod(name, "ns").uid(f"uid-{name}").priority(priority).nominated(nominated)
    made = builder.message()
    required = "required_during_scheduling_ignored_during_execution"
    if terms:
        getattr(made.spec.affinity.pod_affinity, required).extend(terms)
    return made


def add(
    name: str, *, priority: int = 0, sort_key: bytes = b"", at_ns: int = 0
) -> queue_pb2.Operation:
    """Return the operation that adds a pod."""
    message = queue_pb2.Add(pod=make_pod_message(name, priority=priority), sort_key=sort_key)
    return queue_pb2.Operation(time_ns=at_ns, add=message)


def head_names(answer: pb.ApplyResponse) -> list[str]:
    """Return the names of the heads that are shown."""
    return [head.pop.uid.removeprefix("uid-") for head in answer.heads]


def test_heads_go_by_priority_then_by_arrival() -> None:
    """Without a sort key the default order holds; at most the requested heads are returned."""
    harness = Harness()
    answer = harness.send(add("a"), add("b", priority=5), add("c"), heads=2)
    assert head_names(answer) == ["b", "a"]


def test_sort_keys_are_compared_bytewise() -> None:
    """The smaller key comes first; a prefix comes before longer keys."""
    harness = Harness()
    keys = {"last": b"\xff", "second": b"\x01\x00", "first": b"\x01", "third": b"\x01\x02"}
    answer = harness.send(*(add(name, sort_key=key) for name, key in keys.items()), heads=9)
    assert head_names(answer) == ["first", "second", "third", "last"]


@pytest.mark.parametrize(
    ("adds", "heads", "limit"),
    [(1, HEADS_MAX + 1, "heads: 4097"), (OPERATIONS_MAX + 1, 0, "operations: 4097")],
)
def test_a_batch_above_a_limit_is_refused_before_anything_is_done(
    adds: int, heads: int, limit: str
) -> None:
    """The refusal names the limit."""
    harness = Harness()
    operations = [add(str(number)) for number in range(adds)]
    with pytest.raises(LimitError, match=limit) as error:
        harness.send(*operations, heads=heads)
    assert error.value.reason == "LIMIT"
    assert not harness.state().entries
    most = operations[:OPERATIONS_MAX]
    assert harness.send(*most, heads=HEADS_MAX).applied == len(most)


def test_an_update_of_status_alone_leaves_an_unschedulable_pod() -> None:
    """Digests are compared of the two versions that an update brings."""
    for changed, stands in ((False, "UNSCHEDULABLE"), (True, "ACTIVE")):
        harness = Harness()
        failed = queue_pb2.AddUnschedulable(pop=POP(uid="uid-p", cycle=1))
        harness.send(
            add("p"),
            queue_pb2.Operation(pop=queue_pb2.Pop()),
            queue_pb2.Operation(add_unschedulable=failed),
        )
        new = make_pod_message("p", nominated="n", priority=3 if changed else 0)
        new.metadata.resource_version, new.metadata.generation = "7", 2
        update = queue_pb2.Update(old_pod=make_pod_message("p"), pod=new)
        harness.send(queue_pb2.Operation(update=update))
        (entry,) = harness.state().entries
        assert queue_pb2.SubQueue.Name(entry.sub_queue) == f"SUB_QUEUE_{stands}"


def test_a_pods_failure_may_bring_its_newer_version() -> None:
    """It replaces the popped one, and its nomination counts."""
    harness = Harness()
    newer = make_pod_message("p", nominated="n")
    failed = queue_pb2.AddUnschedulable(pop=POP(uid="uid-p", cycle=1), pod=newer, failure=FIT)
    harness.send(
        add("p"),
        queue_pb2.Operation(pop=queue_pb2.Pop()),
        queue_pb2.Operation(add_unschedulable=failed),
    )
    state = harness.state()
    assert state.entries[0].unschedulable_plugins == ["NodeResourcesFit"]
    assert [nomination.node_name for nomination in state.nominations] == ["n"]


def test_a_nomination_to_no_node_is_in_the_state() -> None:
    """v1.34 only; the client sees it as upstream's nominatedPods[""]."""
    harness = Harness(rules="v1.34")
    nominate = queue_pb2.Nominate(
        pod=meta_pb2.ObjectReference(uid="uid-p", namespace="ns", name="p")
    )
    harness.send(add("p"), queue_pb2.Operation(nominate=nominate))
    (nomination,) = harness.state().nominations
    assert (nomination.node_name, [pod.name for pod in nomination.pods]) == ("", ["p"])


def failing(*names: str, cycle: int = 1) -> queue_pb2.Operation:
    """Return the operation that pops pods and gives them back, the first by one plugin more."""
    message = queue_pb2.CommitUnschedulable(first_cycle=cycle)
    message.failures.add(unschedulable_plugins=["NodeResourcesFit", "NodeAffinity"])
    message.failures.add(unschedulable_plugins=["NodeResourcesFit"])
    message.uids.extend(f"uid-{name}" for name in names)
    message.failure_indexes.extend(min(place, 1) for place in range(len(names)))
    return queue_pb2.Operation(time_ns=seconds(1), commit_unschedulable=message)


def test_pods_that_fail_one_after_the_other_are_one_operation() -> None:
    """Each has its own reason, attempt and time, and no result is listed."""
    harness = Harness(rules="v1.34")
    answer = harness.send(add("a"), add("b"), add("c"), failing("a", "b"), heads=3)
    assert (answer.applied, list(answer.results)) == (4, [])
    assert [(head.pop.uid, head.pop.cycle) for head in answer.heads] == [("uid-c", 3)]
    rows = [
        (entry.pod.name, entry.attempts, entry.queued_time_ns, list(entry.unschedulable_plugins))
        for entry in harness.state().entries
        if entry.sub_queue == queue_pb2.SUB_QUEUE_UNSCHEDULABLE
    ]
    assert rows == [
        ("a", 1, seconds(1), ["NodeAffinity", "NodeResourcesFit"]),
        ("b", 1, seconds(1), ["NodeResourcesFit"]),
    ]


@pytest.mark.parametrize("rules", ["v1.34", "v1.20"])
def test_a_move_keeps_the_time_of_the_failure_and_a_watch_shows_when_the_backoff_expires(
    rules: str,
) -> None:
    """The watch and the whole state show the same entry."""
    harness = Harness(rules=rules)
    harness.send(add("a"), failing("a"))
    harness.send(operation("move", queue_pb2.Move(event=NODE_ADD), seconds(1.5)))
    (entry,) = harness.state().entries
    assert entry.sub_queue == queue_pb2.SUB_QUEUE_BACKOFF
    assert (entry.queued_time_ns, entry.backoff_end_time_ns) == (seconds(1), seconds(2))

    async def watched() -> pb.WatchPendingResponse:
        request = pb.WatchPendingRequest(stamp=harness.stamp())
        return await anext(harness.servicer.WatchPending(request, CONTEXT))

    views = asyncio.run(watched()).sub_queues
    assert [list(view.heads) for view in views if view.count] == [[entry]]


def test_a_pod_that_is_not_next_ends_the_operation_with_the_number_applied() -> None:
    """Earlier pods stay applied, at their time; nothing after it is applied."""
    harness = Harness(rules="v1.34")
    answer = harness.send(
        add("a"), add("b"), failing("a", "c", "b"), add("d", at_ns=seconds(1)), heads=3
    )
    (refused,) = answer.results
    assert answer.applied == refused.index == 2
    assert refused.code == queue_pb2.OUTCOME_CODE_NOT_NEXT
    assert refused.pods == 1
    assert head_names(answer) == ["b"]
    assert harness.state().time_ns == seconds(1)
    answer = harness.send(failing("b", cycle=7))
    assert (answer.applied, answer.results[0].pods) == (0, 0)
    assert [head.pop.cycle for head in harness.send(heads=1).heads] == [2]


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("uids", {"uids": ["uid-a", ""]}),
        ("first_cycle", {"first_cycle": 0}),
        ("failure_indexes", {"failure_indexes": [0]}),
        ("failure_indexes", {"failure_indexes": [0, 2]}),
    ],
)
def test_pods_without_a_reason_or_a_cycle_are_refused(
    field: str, change: dict[str, object]
) -> None:
    """Nothing of the batch is applied."""
    harness = Harness(rules="v1.34")
    wrong = failing("a", "b")
    for name, value in change.items():
        wrong.commit_unschedulable.ClearField(name)  # type: ignore[arg-type] # a field's name
        wrong.commit_unschedulable.MergeFrom(queue_pb2.CommitUnschedulable(**{name: value}))  # type: ignore[arg-type] # as given
    with pytest.raises(FieldError) as error:
        harness.send(add("a"), add("b"), wrong)
    assert error.value.field == f"operations[2].commit_unschedulable.{field}"
    assert not harness.state().entries


def test_a_failures_cycle_is_the_pops_unless_another_is_given() -> None:
    """A move in cycle 2 is late for the pop of cycle 1, and early for a failure in cycle 3."""
    for cycle, stands in ((None, "BACKOFF"), (3, "UNSCHEDULABLE")):
        harness = Harness()
        pops = [queue_pb2.Operation(pop=queue_pb2.Pop())] * 2
        move = queue_pb2.Operation(move=queue_pb2.Move(event=NODE_ADD))
        failed = queue_pb2.AddUnschedulable(pop=POP(uid="uid-a", cycle=1), cycle=cycle)
        harness.send(add("a"), add("b"), *pops, move, queue_pb2.Operation(add_unschedulable=failed))
        (entry, in_flight) = harness.state().entries
        assert queue_pb2.SubQueue.Name(entry.sub_queue) == f"SUB_QUEUE_{stands}"
        assert (in_flight.pod.name, in_flight.cycle) == ("b", 2)


P0 = meta_pb2.ObjectReference(uid="uid-p0")


@pytest.mark.parametrize(
    ("move", "left"),
    [
        (queue_pb2.Move(), []),
        (queue_pb2.Move(priority_at_most=1), ["p2"]),
        (queue_pb2.Move(all_but=P0), ["p0"]),
        (queue_pb2.Move(priority_at_most=0, all_but=P0), ["p0", "p1", "p2"]),
    ],
)
def test_a_move_may_spare_some(move: queue_pb2.Move, left: list[str]) -> None:
    """Pods of a higher priority, or one pod; a priority of 0 is not an absent one."""
    harness = Harness()
    harness.send(*(add(f"p{priority}", priority=priority) for priority in range(3)))
    for head in harness.send(heads=3).heads:
        failed = queue_pb2.AddUnschedulable(pop=head.pop)
        harness.send(
            queue_pb2.Operation(commit_pop=queue_pb2.CommitPop(pop=head.pop)),
            queue_pb2.Operation(add_unschedulable=failed),
        )
    move.event.label = "NodeAdd"
    harness.send(queue_pb2.Operation(move=move))
    parked = queue_pb2.SUB_QUEUE_UNSCHEDULABLE
    assert [
        entry.pod.name for entry in harness.state().entries if entry.sub_queue == parked
    ] == left


def test_the_last_number_with_another_request_is_refused() -> None:
    """It would get another request's response; the error has the expected number."""
    harness = Harness()
    first = harness.send(add("a"), heads=1)
    stamp = harness.stamp(1)
    for other in (
        pb.ApplyRequest(stamp=stamp, operations=[add("b")], heads=1),
        pb.ApplyRequest(stamp=stamp, operations=[add("a")], heads=2),
        pb.ApplyRequest(stamp=stamp),
    ):
        with pytest.raises(SequenceReusedError) as error:
            harness.servicer.apply(other)
        assert error.value.metadata == {"expected_sequence": "2"}
    again = pb.ApplyRequest(stamp=stamp, operations=[add("a")], heads=1)
    assert harness.servicer.apply(again) == first
    assert [entry.pod.name for entry in harness.state().entries] == ["a"]


UNKNOWN_LABELS = ("NodAdd", "Nodes", "AssignedPodsUpdate", "foos.exampleAdd")


@pytest.mark.parametrize("label", UNKNOWN_LABELS)
def test_an_unknown_event_label_is_refused_with_its_path(label: str) -> None:
    """In a move, in a change of an assigned pod and in a registration; nothing is done."""
    harness = Harness(rules="v1.34")
    move = queue_pb2.Move(event=queue_pb2.ClusterEvent(label=label))
    changed = queue_pb2.AssignedPodUpdate(pod=make_pod_message(), label=label)
    for wrong, field in (
        (operation("move", move, 0), "move.event.label"),
        (operation("assigned_pod_update", changed, 0), "assigned_pod_update.label"),
    ):
        with pytest.raises(FieldError, match=f'"{label}" is not a cluster event') as error:
            harness.send(add("a"), wrong)
        assert error.value.field == f"operations[1].{field}"
    assert not harness.state().entries
    config = queue_pb2.QueueConfig()
    config.hints.add(plugin="P", event="NodeAdd")
    config.hints.add(plugin="P", event=label)
    with pytest.raises(FieldError, match=f'"{label}" is not a cluster event') as error:
        config_from_message(config)
    assert error.value.field == "config.hints[1].event"


@pytest.mark.parametrize("registered", ["foos.v1.example.comAdd", "foos.v1.example.com"])
def test_an_event_of_a_resource_that_a_user_has_defined_moves_its_plugins_pods(
    registered: str,
) -> None:
    """It is not one of upstream's resources, but has a version and a group."""
    config = queue_pb2.QueueConfig()
    config.hints.add(plugin="Foos", event=registered)
    session = QueueSession.start(config, live=False, metrics=QueueMetrics())
    failure = queue_pb2.Failure(unschedulable_plugins=["Foos"])
    failed = queue_pb2.AddUnschedulable(pop=POP(uid="uid-p", cycle=1), failure=failure)
    moves = [
        queue_pb2.Move(event=queue_pb2.ClusterEvent(label=f"{name}.v1.example.comAdd"))
        for name in ("bars", "foos")
    ]
    answers = []
    for name, argument in (
        ("add", queue_pb2.Add(pod=make_pod_message())),
        ("pop", queue_pb2.Pop()),
        ("add_unschedulable", failed),
        ("move", moves[0]),
        ("move", moves[1]),
    ):
        kind, value = read(name, argument, session.reader)
        answers.append(kind.apply(session.queue, value, 0))
    assert answers[-2:] == [0, 1]


def test_a_live_sessions_time_does_not_go_back_with_the_wall_clock() -> None:
    """It takes the last operation's time until the clock has caught up."""
    times = iter([seconds(100), seconds(40), seconds(101)])
    harness = Harness(live=True, wall_clock_ns=lambda: next(times))
    seen = []
    for name in "abc":
        harness.send(add(name))
        seen.append(harness.state().time_ns)
    assert seen == [seconds(100), seconds(100), seconds(101)]


def test_a_clock_refuses_earlier_and_invalid_times() -> None:
    """Each operation is compared with the one before it."""
    clock = RequestClock(5, arrival_ns=None)
    assert [clock.read(queue_pb2.Operation(time_ns=at_ns)) for at_ns in (5, 9)] == [5, 9]
    with pytest.raises(TimeGoesBackwardsError):
        clock.read(queue_pb2.Operation(time_ns=8))
    with pytest.raises(TimeGoesBackwardsError):
        RequestClock(0, arrival_ns=None).read(queue_pb2.Operation(time_ns=-1))
    with pytest.raises(FieldError):
        clock.read(queue_pb2.Operation(time_ns=2**63 - 1))
    with pytest.raises(FieldError, match="time_ns: is required"):
        RequestClock(0, arrival_ns=None).read(queue_pb2.Operation())


def test_affinity_terms_default_to_the_pods_own_namespace() -> None:
    """A term without a selector matches no pod, one with an empty selector every pod."""
    terms = (
        TERM(label_selector=SELECTOR(match_labels={"app": "web"})),
        TERM(label_selector=SELECTOR(), namespaces=["other"]),
        TERM(),
    )
    read = codec.queued_pod(make_pod_message(terms=terms), field="pod")
    assert [term.namespaces for term in read.affinity_terms] == [("ns",), ("other",)]
    assert read.has_term_matching(AssignedPod(namespace="ns", labels={"app": "web"}))
    assert not read.has_term_matching(AssignedPod(namespace="ns", labels={}))
    assert read.has_term_matching(AssignedPod(namespace="other", labels={}))


@pytest.mark.parametrize(
    ("name", "message", "field"),
    [
        ("add", queue_pb2.Add(), "add.pod.metadata.uid"),
        ("pop", queue_pb2.Pop(), ""),
        ("assigned_pod_add", queue_pb2.AssignedPodAdd(), "assigned_pod_add.pod.metadata.uid"),
        ("nominate", queue_pb2.Nominate(node_name="n"), "nominate.pod.uid"),
    ],
)
def test_a_refusals_path_begins_with_the_operation(name: str, message: Message, field: str) -> None:
    """A missing required field is named; operations without fields are accepted."""
    if not field:
        read(name, message, OLD_READER)
        return
    with pytest.raises(FieldError) as error:
        read(name, message, OLD_READER)
    assert error.value.field == field


def test_a_saved_session_is_the_same_when_it_is_read_again() -> None:
    """Everything but the digests, which only an update's own versions need."""
    term = codec.queued_pod(
        make_pod_message(terms=(TERM(label_selector=SELECTOR(match_labels={"a": "b"})),)),
        field="pod",
    ).affinity_terms
    pods = [
        make_queued_pod(name, nominated="n", sort_key=b"\xff\x00", affinity=term)._replace(
            digest=b""
        )
        for name in "abc"
    ]
    queue = make_queue(*pods)
    pop(queue, seconds(1))
    queue.add_unschedulable(PopId("uid-a", 1), now_ns=seconds(2))
    pop(queue, seconds(3))
    metrics = QueueMetrics()
    session = QueueSession.start(queue_pb2.QueueConfig(rules="v1.20"), live=True, metrics=metrics)
    session.queue = queue
    again = session_from_plain(orjson.loads(session_to_json(session)), metrics)
    assert (again.config, again.live) == (session.config, True)
    assert again.queue.snapshot() == queue.snapshot()


def test_metrics_have_upstreams_names_and_labels() -> None:
    """Pending pods, incoming pods by event, finished pods, and hints."""
    harness = Harness(rules="v1.34")
    harness.send(add("a"), add("b"), queue_pb2.Operation(pop=queue_pb2.Pop()))
    failed = queue_pb2.AddUnschedulable(pop=POP(uid="uid-a", cycle=1), failure=FIT)
    node = node_pb2.Node(metadata=META(name="n"))
    node.status.allocatable.update({"cpu": "1", "pods": "1"})
    event = queue_pb2.ClusterEvent(
        label="NodeAdd", new_object=object_pb2.KubernetesObject(node=node)
    )
    harness.send(
        queue_pb2.Operation(add_unschedulable=failed),
        queue_pb2.Operation(move=queue_pb2.Move(event=event)),
        queue_pb2.Operation(pop=queue_pb2.Pop()),
        queue_pb2.Operation(done=POP(uid="uid-b", cycle=2)),
    )
    found = samples(harness.servicer.collect)
    for series, value in {
        'scheduler_pending_pods{queue="backoff"}': 1,
        'scheduler_pending_pods{queue="gated"}': 0,
        'scheduler_queue_incoming_pods_total{event="UnschedulablePodAdd",queue="active"}': 2,
        'scheduler_queue_incoming_pods_total{event="NodeAdd",queue="backoff"}': 1,
        'scheduler_pod_scheduling_attempts_bucket{le="1"}': 1,
        "scheduler_pod_scheduling_attempts_count": 1,
        f'{HINT_SECONDS}_count{{event="NodeAdd",hint="Queue",plugin="NodeResourcesFit"}}': 1,
    }.items():
        assert found[series] == value, series


def test_a_silent_owner_loses_its_pops_to_another_owner() -> None:
    """Two schedulers share a live session; their stamps have no number."""
    wall = [seconds(1)]
    harness = Harness(live=True, rules="v1.34", lease_ns=seconds(10), wall_clock_ns=lambda: wall[0])
    harness.send(add("a"))
    pop_of = {
        owner: queue_pb2.Operation(pop=queue_pb2.Pop(owner=owner)) for owner in ("one", "two")
    }
    stamp = harness.stamp()
    (first,) = harness.servicer.apply(
        pb.ApplyRequest(stamp=stamp, operations=[pop_of["one"]])
    ).results
    assert first.popped.pop == POP(uid="uid-a", cycle=1)
    request = pb.ApplyRequest(stamp=stamp, operations=[pop_of["two"]])
    (none,) = harness.servicer.apply(request).results
    assert none.code == queue_pb2.OUTCOME_CODE_WOULD_BLOCK
    wall[0] = seconds(11)
    (second,) = harness.servicer.apply(request).results
    assert second.popped.pop == POP(uid="uid-a", cycle=2)
    done = queue_pb2.Operation(done=first.popped.pop)
    (late,) = harness.servicer.apply(pb.ApplyRequest(stamp=stamp, operations=[done])).results
    assert late.code == queue_pb2.OUTCOME_CODE_UNKNOWN_POP
    (held,) = harness.state().entries
    assert (held.owner, held.lease_end_time_ns) == ("two", seconds(21))


def test_gates_activation_and_leases_are_read_and_refused_by_name() -> None:
    """Required fields, and what a mode does not know."""
    later = QueueReader(QueueConfig(version="v1.34"))
    named = meta_pb2.ObjectReference(uid="u", name="p")
    for name, message, reader, field in (
        ("activate", queue_pb2.Activate(pods=[named]), OLD_READER, "activate.pods"),
        (
            "activate",
            queue_pb2.Activate(pods=[named, meta_pb2.ObjectReference(uid="u")]),
            later,
            "activate.pods[1].name",
        ),
        ("set_gates", queue_pb2.SetGates(pod=named, gates=["g"]), OLD_READER, "set_gates.gates"),
        ("renew_leases", "", later, "renew_leases"),
        ("release_owner", "", later, "release_owner"),
    ):
        with pytest.raises(FieldError) as error:
            read(name, message, reader)
        assert error.value.field == field


def test_registrations_are_checked_by_name() -> None:
    """Without hints none is called; a hint that the queue does not have is refused."""
    asked = queue_pb2.QueueConfig(rules="v1.34")
    asked.hints.add(plugin="NodeResourcesFit", event="NodeAdd", hint=True)
    (registration,) = config_from_message(asked).registrations
    assert registration.hint is not None
    asked.queueing_hints = False
    (registration,) = config_from_message(asked).registrations
    assert registration.hint is None
    theirs = queue_pb2.QueueConfig(rules="v1.34")
    theirs.hints.add(plugin="Theirs", event="NodeAdd")
    (registration,) = config_from_message(theirs).registrations
    assert registration.hint is None
    for wrong, field in (
        (queue_pb2.HintRegistration(plugin="P", event="Nothing"), "config.hints[0].event"),
        (
            queue_pb2.HintRegistration(plugin="Theirs", event="NodeAdd", hint=True),
            "config.hints[0].hint",
        ),
    ):
        with pytest.raises(FieldError) as error:
            config_from_message(queue_pb2.QueueConfig(rules="v1.34", hints=[wrong]))
        assert error.value.field == field


def test_profiles_are_checked_by_name() -> None:
    """Their constraints have no selector, and each profile is named once."""
    constraint = affinity_pb2.TopologySpreadConstraint(
        max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule"
    )
    selecting = affinity_pb2.TopologySpreadConstraint()
    selecting.CopyFrom(constraint)
    selecting.label_selector.SetInParent()
    profile = queue_pb2.HintProfile
    named = profile(scheduler_name="a", default_constraints=[constraint])
    first, spread = "config.profiles[0]", "default_constraints[0]"
    for profiles, field in (
        ([named, named], "config.profiles[1].scheduler_name"),
        (
            [profile(scheduler_name="a", default_constraints=[selecting])],
            f"{first}.{spread}.label_selector",
        ),
    ):
        with pytest.raises(FieldError) as error:
            config_from_message(queue_pb2.QueueConfig(profiles=profiles))
        assert error.value.field == field
    with pytest.raises(FieldError, match="no such setting"):
        config_from_message(queue_pb2.QueueConfig(rules="v1.20", profiles=[named]))


def test_what_default_constraints_counted_outlives_an_update_and_a_checkpoint() -> None:
    """While the pod's labels are the same; the older modes refuse it."""
    plain = make_pod_message()
    plain.metadata.labels["app"] = "web"
    constraint = affinity_pb2.TopologySpreadConstraint(
        max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule"
    )
    config = queue_pb2.QueueConfig(rules="v1.34")
    config.profiles.add(scheduler_name="default-scheduler", default_constraints=[constraint])
    session = QueueSession.start(config, live=False, metrics=QueueMetrics())
    failed = queue_pb2.AddUnschedulable(pop=POP(uid=plain.metadata.uid, cycle=1))
    failed.failure.unschedulable_plugins.append("PodTopologySpread")
    failed.failure.default_spread_selector.match_labels["app"] = "web"
    changed = pod_pb2.Pod()
    changed.CopyFrom(plain)
    changed.status.phase = "Pending"
    for name, message in (
        ("add", queue_pb2.Add(pod=plain)),
        ("pop", queue_pb2.Pop()),
        ("add_unschedulable", failed),
        ("update", queue_pb2.Update(old_pod=plain, pod=changed)),
    ):
        kind, argument = read(name, message, session.reader)
        kind.apply(session.queue, argument, 0)
        session = session_from_plain(orjson.loads(session_to_json(session)), QueueMetrics())
    for app, moved in (("db", 0), ("web", 1)):
        other = make_pod_message(name="other")
        other.metadata.labels["app"] = app
        other.spec.node_name = "n"
        kind, argument = read(
            "assigned_pod_add", queue_pb2.AssignedPodAdd(pod=other), session.reader
        )
        assert kind.apply(session.queue, argument, 1) == moved
    with pytest.raises(FieldError) as error:
        read("add_unschedulable", failed, OLD_READER)
    assert error.value.field == "add_unschedulable.failure.default_spread_selector"


def test_a_wildcard_that_names_a_pod_moves_that_pod_only() -> None:
    """Objects of other events are read only where a hint looks at them."""
    harness = Harness(rules="v1.34")
    harness.send(add("a"), add("b"))
    for cycle, uid in enumerate(("uid-a", "uid-b"), 1):
        failed = queue_pb2.AddUnschedulable(pop=POP(uid=uid, cycle=cycle), failure=FIT)
        harness.send(
            queue_pb2.Operation(pop=queue_pb2.Pop()), queue_pb2.Operation(add_unschedulable=failed)
        )
    named = object_pb2.KubernetesObject(pod=make_pod_message("b"))
    event = queue_pb2.ClusterEvent(label="ForceActivate", new_object=named)
    harness.send(queue_pb2.Operation(move=queue_pb2.Move(event=event)))
    where = {entry.pod.name: entry.sub_queue for entry in harness.state().entries}
    assert where == {"a": queue_pb2.SUB_QUEUE_UNSCHEDULABLE, "b": queue_pb2.SUB_QUEUE_BACKOFF}


def test_a_state_that_cannot_be_read_is_refused_with_the_path_in_it() -> None:
    """And the session has not changed."""
    harness = Harness(rules="v1.34")
    harness.send(add("a"))
    before = harness.state()
    info, plain = harness.saved()
    plain["state"]["active"][0]["attempts"] = "many"
    chunks = list(write_checkpoint(info, orjson.dumps(plain)))

    async def requests() -> AsyncIterator[session_pb2.CheckpointChunk]:
        for chunk in chunks:
            yield chunk

    with pytest.raises(FieldError) as error:
        asyncio.run(harness.servicer.RestoreSession(requests(), CONTEXT))
    assert error.value.field == "data"
    assert "is not a state of the queue: active[0].attempts: must be a whole number" in str(
        error.value
    )
    assert harness.state() == before


@pytest.mark.parametrize("since", [-1, 2])
def test_a_hint_state_that_contradicts_itself_is_refused(since: int) -> None:
    """A checkpoint may come from anyone: it is checked."""
    harness = Harness(rules="v1.34")
    move = queue_pb2.Operation(move=queue_pb2.Move(event=NODE_ADD))
    harness.send(add("a"), queue_pb2.Operation(pop=queue_pb2.Pop()), move)
    _, plain = harness.saved()
    assert plain["state"]["hint_state"]["pods"] == [["uid-a", 0]]
    plain["state"]["hint_state"]["pods"] = [["uid-a", since]]
    with pytest.raises(ValueError, match="not since a recorded event"):
        session_from_plain(plain, QueueMetrics())


def test_without_hints_node_add_registers_for_node_label_changes_too() -> None:
    """Upstream's plugins register more events then, and no hint is called."""
    hinted = config_from_message(queue_pb2.QueueConfig(rules="v1.34")).registrations
    plain = config_from_message(queue_pb2.QueueConfig(rules="v1.34", queueing_hints=False))
    change = event_of("NodeLabelChange")
    for registered, wanted in ((hinted, False), (plain.registrations, True)):
        fits = [
            registration for registration in registered if registration.plugin == "NodeResourcesFit"
        ]
        assert any(registration.event.covers(change) for registration in fits) is wanted
        assert any(registration.hint for registration in fits) is not wanted
