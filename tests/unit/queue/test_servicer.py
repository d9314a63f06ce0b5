"""The queue's edge without a network: what is read, in which order, and what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from google.protobuf.message import Message

from reprieve.kube.v1alpha1 import affinity_pb2, meta_pb2, pod_pb2
from reprieve.queue.v1alpha1 import queue_pb2
from reprieve.queue.v1alpha1 import queue_service_pb2 as pb
from reprieve.session.v1alpha1 import session_pb2
from services.queue import codec
from services.queue.batch import Clock
from services.queue.core.entry import PopId
from services.queue.core.pod import AssignedPod
from services.queue.core.scheduling_queue import QueueConfig
from services.queue.operations import read_named
from services.queue.saved import QueueSession, session_from_plain, session_to_plain
from services.queue.servicer import HEADS_MAX, SchedulingQueueServicer
from services.rpc.errors import FieldError, LimitError, StaleError, TimeGoesBackwardsError
from tests.unit.queue.builders import make_queue, make_queued_pod, pop, seconds

POP, META = session_pb2.PopId, meta_pb2.ObjectMeta
SELECTOR, TERM = meta_pb2.LabelSelector, affinity_pb2.PodAffinityTerm
NODE_ADD = queue_pb2.ClusterEvent(label="NodeAdd")


class Harness:
    """A servicer with one session; a request that fails does not count."""

    def __init__(self, *, live: bool = False, wall_clock_ns: Callable[[], int] = int) -> None:
        self.servicer = SchedulingQueueServicer(wall_clock_ns=wall_clock_ns)
        opening = self.servicer.Open(pb.OpenRequest(session="s", live=live), None)  # type: ignore[arg-type] # no handler reads its context
        asyncio.run(opening)
        self.sequence = 0

    def send(self, *operations: queue_pb2.Operation, heads: int = 0) -> pb.StreamResponse:
        """Answer a batch."""
        stamp = session_pb2.Stamp(session="s", epoch=1, sequence=self.sequence + 1)
        answer = self.servicer.batch(
            pb.StreamRequest(stamp=stamp, operations=operations, heads=heads)
        )
        self.sequence += 1
        return answer

    def dump(self) -> queue_pb2.QueueState:
        """Return the whole state."""
        stamp = session_pb2.Stamp(session="s", epoch=1)
        dumping = self.servicer.Dump(pb.DumpRequest(stamp=stamp), None)  # type: ignore[arg-type] # no handler reads its context
        return asyncio.run(dumping).state


def make_pod_message(
    name: str = "p",
    *,
    priority: int = 0,
    nominated: str = "",
    terms: tuple[affinity_pb2.PodAffinityTerm, ...] = (),
) -> pod_pb2.Pod:
    """Return a pod of the namespace ns with UID uid-NAME."""
    made = pod_pb2.Pod(metadata=META(uid=f"uid-{name}", namespace="ns", name=name))
    made.spec.priority = priority
    made.status.nominated_node_name = nominated
    required = "required_during_scheduling_ignored_during_execution"
    if terms:
        getattr(made.spec.affinity.pod_affinity, required).extend(terms)
    return made


def add(
    name: str, *, priority: int = 0, sort_key: bytes = b"", at_ns: int = 0
) -> queue_pb2.Operation:
    """Return the operation that adds a pod."""
    message = queue_pb2.Add(pod=make_pod_message(name, priority=priority), sort_key=sort_key)
    return queue_pb2.Operation(at_ns=at_ns, add=message)


def head_names(answer: pb.StreamResponse) -> list[str]:
    """Return the names of the heads that are shown."""
    return [head.pod.name for head in answer.heads]


def test_heads_go_by_priority_then_by_arrival() -> None:
    """Without a sort key the default order holds; no more heads than asked for are shown."""
    harness = Harness()
    answer = harness.send(add("a"), add("b", priority=5), add("c"), heads=2)
    assert head_names(answer) == ["b", "a"]


def test_sort_keys_are_compared_bytewise() -> None:
    """The smaller key comes first, a prefix before what it begins."""
    harness = Harness()
    keys = {"last": b"\xff", "second": b"\x01\x00", "first": b"\x01", "third": b"\x01\x02"}
    answer = harness.send(*(add(name, sort_key=key) for name, key in keys.items()), heads=9)
    assert head_names(answer) == ["first", "second", "third", "last"]


def test_too_many_heads_are_refused_before_anything_is_done() -> None:
    """The limit is told."""
    harness = Harness()
    with pytest.raises(LimitError, match=str(HEADS_MAX)):
        harness.send(add("a"), heads=HEADS_MAX + 1)
    assert not harness.dump().entries


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
        update = queue_pb2.Update(old=make_pod_message("p"), pod=new)
        harness.send(queue_pb2.Operation(update=update))
        (entry,) = harness.dump().entries
        assert queue_pb2.SubQueue.Name(entry.sub_queue) == f"SUB_QUEUE_{stands}"


def test_a_pods_failure_may_bring_its_newer_version() -> None:
    """It replaces the popped one, and its nomination counts."""
    harness = Harness()
    newer = make_pod_message("p", nominated="n")
    failed = queue_pb2.AddUnschedulable(
        pop=POP(uid="uid-p", cycle=1), pod=newer, unschedulable_plugins=["NodeResourcesFit"]
    )
    harness.send(
        add("p"),
        queue_pb2.Operation(pop=queue_pb2.Pop()),
        queue_pb2.Operation(add_unschedulable=failed),
    )
    state = harness.dump()
    assert state.entries[0].unschedulable_plugins == ["NodeResourcesFit"]
    assert [nomination.node_name for nomination in state.nominations] == ["n"]


def test_a_failures_cycle_is_the_pops_unless_another_is_given() -> None:
    """A move in cycle 2 is late for the pop of cycle 1, and early for a failure in cycle 3."""
    for cycle, stands in ((0, "BACKOFF"), (3, "UNSCHEDULABLE")):
        harness = Harness()
        pops = [queue_pb2.Operation(pop=queue_pb2.Pop())] * 2
        move = queue_pb2.Operation(move=queue_pb2.Move(event=NODE_ADD))
        failed = queue_pb2.AddUnschedulable(pop=POP(uid="uid-a", cycle=1), cycle=cycle)
        harness.send(add("a"), add("b"), *pops, move, queue_pb2.Operation(add_unschedulable=failed))
        (entry, in_flight) = harness.dump().entries
        assert queue_pb2.SubQueue.Name(entry.sub_queue) == f"SUB_QUEUE_{stands}"
        assert (in_flight.pod.name, in_flight.cycle) == ("b", 2)


@pytest.mark.parametrize(
    ("move", "left"),
    [
        (queue_pb2.Move(), []),
        (queue_pb2.Move(priority_at_most=1), ["p2"]),
        (queue_pb2.Move(all_but_uid="uid-p0"), ["p0"]),
        (queue_pb2.Move(priority_at_most=0, all_but_uid="uid-p0"), ["p0", "p1", "p2"]),
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
    assert [each.pod.name for each in harness.dump().entries if each.sub_queue == parked] == left


def test_the_last_number_of_another_operation_is_refused() -> None:
    """A retry must be of the same kind, or it would get an answer that is not its own."""
    harness = Harness()
    harness.send(add("a"))
    stamp = session_pb2.Stamp(session="s", epoch=1, sequence=1)
    with pytest.raises(StaleError, match="another operation"):
        harness.servicer.apply("pop", pb.PopRequest(stamp=stamp), pb.PopResponse)


def test_a_live_sessions_time_stands_while_the_wall_clock_is_set_back() -> None:
    """It takes the last operation's time until the clock has caught up."""
    times = iter([seconds(100), seconds(40), seconds(101)])
    harness = Harness(live=True, wall_clock_ns=lambda: next(times))
    seen = []
    for name in "abc":
        harness.send(add(name))
        seen.append(harness.dump().at_ns)
    assert seen == [seconds(100), seconds(100), seconds(101)]


def test_a_clock_refuses_what_goes_back_or_is_no_time() -> None:
    """Each operation is compared with the one before it."""
    clock = Clock(5, arrival_ns=None)
    assert [clock.read(5), clock.read(9)] == [5, 9]
    with pytest.raises(TimeGoesBackwardsError):
        clock.read(8)
    with pytest.raises(TimeGoesBackwardsError):
        Clock(0, arrival_ns=None).read(-1)
    with pytest.raises(FieldError):
        clock.read(2**63 - 1)


def test_affinity_terms_default_to_the_pods_own_namespace() -> None:
    """A term without a selector matches no pod, one with an empty selector every pod."""
    terms = (
        TERM(label_selector=SELECTOR(match_labels={"app": "web"})),
        TERM(label_selector=SELECTOR(), namespaces=["other"]),
        TERM(),
    )
    read = codec.queued_pod(make_pod_message(terms=terms), field="pod")
    assert [term.namespaces for term in read.affinity_terms] == [("ns",), ("other",)]
    assert read.awaits(AssignedPod(namespace="ns", labels={"app": "web"}))
    assert not read.awaits(AssignedPod(namespace="ns", labels={}))
    assert read.awaits(AssignedPod(namespace="other", labels={}))


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
    """What is required is named; what needs nothing is read."""
    if not field:
        read_named(name, message)
        return
    with pytest.raises(FieldError) as error:
        read_named(name, message)
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
    session = QueueSession(config=QueueConfig(), queue=queue, live=True)
    again = session_from_plain(session_to_plain(session))
    assert (again.config, again.live) == (session.config, True)
    assert again.queue.snapshot() == queue.snapshot()
