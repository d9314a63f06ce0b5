"""A session whose decisions block: where a message ends, and what a cancelled one leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2
from services.kube.node import Node
from services.kube.pod import Pod
from services.rpc.errors import FieldError, LimitError
from services.rpc.kube.messages import node_to_message, pod_to_message
from services.rpc.limits import Limits
from services.scheduler import session as deciding
from services.scheduler.batch import Batch, QueueReply
from services.scheduler.core.cycle.extenders import ExtenderTerms, FilterAnswer
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import Head, PopId
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.session import SchedulerSession
from tests.builders import make_node, make_pod
from tests.scheduler_rounds import told

pytestmark = pytest.mark.usefixtures("looks_ahead")
PODS = 5


class FirstOnly:
    """An extender that lets the first node pass, once `go` is set."""

    terms = ExtenderTerms(name="first", filters=True)

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked = threading.Event()

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterAnswer:  # noqa: ARG002 - all alike
        """Wait, and keep the first."""
        self.asked.set()
        self.go.wait(10)
        return FilterAnswer(passed=(nodes[0].name,))

    def unserved(self, *_: object) -> Any:
        """Fail: no other call is served."""
        raise AssertionError("is not served")

    prioritize = process_preemption = bind = unserved


class Fifo:
    """A queue that gives pods out in the order in which they came."""

    traceparent = ""
    foreseeable_heads = False

    def __init__(self) -> None:
        self.uids: list[str] = []
        self.wakeup_ns: int | None = None
        self.exchanges = 0

    async def post(
        self, operations: Sequence[queue_pb2.Operation], *, more_follow: bool = False
    ) -> None:
        """Apply everything."""
        del more_follow
        self._apply(operations)

    async def commit(self, batch: Batch, heads_max: int) -> QueueReply:
        """Apply everything and show the next pods."""
        self.exchanges += 1
        self._apply(batch.operations)
        return QueueReply(self.heads(heads_max, 1), batch.entries, self.wakeup_ns, exchange_ns=1)

    def heads(self, heads_max: int, cycle: int) -> list[Head]:
        """Return the next pods, the first of which has that cycle."""
        uids = enumerate(self.uids[:heads_max], cycle)
        return [Head(PopId(uid, number), 1, 0, 0) for number, uid in uids]

    def _apply(self, operations: Sequence[queue_pb2.Operation]) -> None:
        for operation in operations:
            match operation.WhichOneof("operation"):
                case "add":
                    self.uids.append(operation.add.pod.metadata.uid)
                case "commit_pop":
                    self.uids.remove(operation.commit_pop.pop.uid)
                case "commit_unschedulable":
                    del self.uids[: len(operation.commit_unschedulable.uids)]
                case "delete_pod" if operation.delete_pod.uid in self.uids:
                    self.uids.remove(operation.delete_pod.uid)


def session_of(extender: FirstOnly) -> SchedulerSession:
    """Return a session with that extender."""
    rules = QUEUE_TRAITS["v1.34"]
    options = SchedulerOptions(rules=RULES["v1.34"], queue=rules, extenders=(extender,))
    queue: Any = Fifo()
    return SchedulerSession(options, queue, scheduler_pb2.SchedulerConfig())


def first_round() -> scheduler_pb2.Round:
    """Return a round that brings two nodes and all pods."""
    round_ = scheduler_pb2.Round(time_ns=1)
    for name in "ab":
        node = node_to_message(make_node(name).capacity(cpu="9", memory="9Gi").obj())
        round_.events.add(time_ns=1).add.node.CopyFrom(node)
    for index in range(PODS):
        pod = pod_to_message(make_pod(f"p{index}").req(cpu="1").obj())
        round_.events.add(time_ns=1).add.pod.CopyFrom(pod)
    return round_


def bound(outcomes: scheduler_pb2.RoundOutcomes) -> list[tuple[str, str]]:
    """Return pods' UIDs with their nodes."""
    return [(outcome.pop.uid, outcome.bind.node_name) for outcome in outcomes.outcomes]


@pytest.mark.parametrize("seconds", [0.0, 20.0])
def test_slow_extenders_end_a_message_and_change_no_decision(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One decision a message at least, in the same order."""
    monkeypatch.setattr(deciding, "DECIDING_S_MAX", seconds)
    extender = FirstOnly()
    extender.go.set()
    session = session_of(extender)

    async def all_messages() -> list[scheduler_pb2.RoundOutcomes]:
        answers = [await told(session, first_round())]
        while answers[-1].more:
            answers.append(await told(session, scheduler_pb2.Round(time_ns=1)))
        return answers

    answers = asyncio.run(all_messages())
    assert [pair for answer in answers for pair in bound(answer)] == [
        (f"uid-default-p{index}", "a") for index in range(PODS)
    ]
    assert len(answers) == (PODS if seconds == 0 else 1)


def test_a_round_that_is_cancelled_breaks_its_session_once_the_decision_is_made() -> None:
    """Nothing runs on behind it, and nothing continues from half a round."""
    extender = FirstOnly()
    session = session_of(extender)

    async def cancelled() -> None:
        task = asyncio.create_task(told(session, first_round()))
        await asyncio.to_thread(extender.asked.wait)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        extender.go.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert session.broken == "CancelledError"


@pytest.mark.parametrize(
    ("batch_size", "wakeup_ns", "exchanges"), [(256, None, 1), (PODS, None, 2), (256, 7, 2)]
)
def test_look_ahead_saves_the_exchange_whose_answer_is_empty(
    batch_size: int, wakeup_ns: int | None, exchanges: int, *, looks_ahead: bool
) -> None:
    """Not where the queue may have more to show, or waits for something."""
    options = SchedulerOptions(rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"])
    queue = Fifo()
    queue.wakeup_ns = wakeup_ns
    asked: Any = queue
    config = scheduler_pb2.SchedulerConfig(batch_size=batch_size)
    session = SchedulerSession(options, asked, config)
    outcomes = asyncio.run(told(session, first_round()))
    uids = [f"uid-default-p{index}" for index in range(PODS)]
    assert sorted(uid for uid, _ in bound(outcomes)) == uids
    assert queue.exchanges == (exchanges if looks_ahead else 2)
    assert (queue.uids, outcomes.more) == ([], False)
    assert outcomes.HasField("next_wakeup_time_ns") == (wakeup_ns is not None)
    assert outcomes.next_wakeup_time_ns == (wakeup_ns or 0)


def session_with(queue: Fifo, batch_size: int) -> SchedulerSession:
    """Return a session of a queue that promises its next heads while no pod waits."""
    queue.foreseeable_heads = True
    asked: Any = queue
    options = SchedulerOptions(rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"])
    return SchedulerSession(options, asked, scheduler_pb2.SchedulerConfig(batch_size=batch_size))


async def in_parts(
    session: SchedulerSession, *rounds: scheduler_pb2.Round
) -> list[scheduler_pb2.RoundOutcomes]:
    """Return the outcomes of rounds at 1 ns, and of further ones until no pod is left."""
    outcomes = [await told(session, round_) for round_ in rounds]
    while outcomes[-1].more:
        outcomes.append(await told(session, scheduler_pb2.Round(time_ns=1, max_pods=2)))
    return outcomes


def test_pods_that_are_added_together_need_one_exchange_while_all_are_bound(
    *, looks_ahead: bool
) -> None:
    """However they are sent, and in QueueSort's order; it asks what would follow a refusal."""
    whole = first_round()
    whole.events[-1].add.pod.spec.priority = 7
    part = scheduler_pb2.Round(time_ns=1, events_only=True, events=whole.events[:4])
    last = scheduler_pb2.Round(time_ns=1, max_pods=2, events=whole.events[4:])
    for rounds in ([whole], [part, last]):
        queue = Fifo()
        outcomes = asyncio.run(in_parts(session_with(queue, 2), *rounds))
        numbers = (4, 0, 1, 2, 3) if looks_ahead else range(PODS)  # this queue knows no priorities
        assert [uid for message in outcomes for uid, _ in bound(message)] == [
            f"uid-default-p{index}" for index in numbers
        ]
        assert queue.uids == []
        assert queue.exchanges == 1 or not looks_ahead


def test_a_refusal_among_pods_that_were_added_together_is_an_exchange(*, looks_ahead: bool) -> None:
    """With a queue that does not say what follows: only it knows when the refused pod is moved."""
    round_ = first_round()
    del round_.events[:2]
    node = node_to_message(make_node("n").capacity(cpu="3", memory="9Gi").obj())
    round_.events.add(time_ns=1).add.node.CopyFrom(node)
    queue = Fifo()
    outcomes = asyncio.run(in_parts(session_with(queue, 1), round_))
    tried = [outcome for message in outcomes for outcome in message.outcomes]
    assert [outcome.HasField("bind") for outcome in tried] == [True, True, True, False, False]
    assert (queue.uids, queue.exchanges) == ([], 3 if looks_ahead else PODS + 1)


def test_a_pod_that_is_deleted_before_its_turn_is_not_among_the_next() -> None:
    """Though it was added in an earlier part of the round."""
    whole = first_round()
    part = scheduler_pb2.Round(time_ns=1, events_only=True, events=whole.events[:5])
    last = scheduler_pb2.Round(time_ns=1, events=whole.events[5:])
    last.events.add(time_ns=1).remove.CopyFrom(
        ObjectReference(kind="Pod", namespace="default", name="p1", uid="uid-default-p1")
    )
    outcomes = asyncio.run(in_parts(session_with(Fifo(), 2), part, last))
    assert [uid for message in outcomes for uid, _ in bound(message)] == [
        f"uid-default-p{index}" for index in (0, 2, 3, 4)
    ]


def test_a_round_of_a_window_tries_no_more_pods_than_it_allows() -> None:
    """As the same round does by itself; the rest of its pods is tried in the next one."""
    queue: Any = Fifo()
    options = SchedulerOptions(rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"])
    session = SchedulerSession(options, queue, scheduler_pb2.SchedulerConfig())
    first, later = first_round(), scheduler_service_pb2.Foreseen()
    later.round.time_ns, later.round.max_pods = 2, 1
    later.round.events.extend(first.events[3:5])
    for event in later.round.events:
        event.time_ns = 2
    del first.events[3:]
    patch = later.confirmations.add(time_ns=1).patch
    patch.pod.uid = "uid-default-p0"
    patch.confirms_binding.SetInParent()

    async def both() -> list[scheduler_pb2.RoundOutcomes]:
        return [outcomes async for outcomes in session.run(first, [later])]

    before, after = asyncio.run(both())
    assert [uid for uid, _ in bound(before)] == ["uid-default-p0"]
    assert before.window_continues
    assert [uid for uid, _ in bound(after)] == ["uid-default-p1"]
    assert after.more


class Halting(Fifo):
    """A queue that accepts only the first of several returned pods, once."""

    def __init__(self) -> None:
        super().__init__()
        self.given_back: list[tuple[int, list[str], list[list[str]]]] = []

    async def commit(self, batch: Batch, heads_max: int) -> QueueReply:
        """Apply operations until that one, and show what is next with the cycles that follow."""
        applied, pods = len(batch.operations), 0
        for place, operation in enumerate(batch.operations):
            if not operation.HasField("commit_unschedulable"):
                continue
            run = operation.commit_unschedulable
            names = [list(failure.unschedulable_plugins) for failure in run.failures]
            halts = not self.given_back and len(run.uids) > 1
            self.given_back.append((run.first_cycle, list(run.uids), names))
            if halts:
                applied, pods = place, 1
                del self.uids[:1]
                break
            del self.uids[: len(run.uids)]
        self._apply(batch.operations[:applied])
        accepted = batch.accepted(applied, pods)
        heads = self.heads(heads_max, 1 + bool(self.given_back))
        return QueueReply(heads, accepted, exchange_ns=1)


def test_refusals_that_the_queue_did_not_accept_are_decided_again() -> None:
    """Each pod is reported once, in its order, with the cycle under which the queue took it."""
    options = SchedulerOptions(rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"])
    queue = Halting()
    asked: Any = queue
    session = SchedulerSession(options, asked, scheduler_pb2.SchedulerConfig())
    round_ = first_round()
    del round_.events[:2]
    small = node_to_message(make_node("small").capacity(cpu="0", memory="9Gi").obj())
    round_.events.insert(0, scheduler_pb2.Event(time_ns=1))
    round_.events[0].add.node.CopyFrom(small)
    outcomes = asyncio.run(told(session, round_))
    committed = [outcome.refusals for outcome in outcomes.outcomes]
    uids = [uid for run in committed for uid in run.uids]
    assert [(run.first_cycle, len(run.uids)) for run in committed] == [(1, 1), (2, PODS - 1)]
    assert uids == [event.add.pod.metadata.uid for event in round_.events[1:]]
    assert [len(run.verdicts) for run in committed] == [1, 1]
    fit = [["NodeResourcesFit"]]
    assert queue.given_back == [(1, uids, fit), (2, uids[1:], fit)]
    assert not session.scheduler.unanswered()


def test_the_names_of_resources_in_a_session_are_limited() -> None:
    """Each takes a column over all nodes; a round that is refused leaves none behind."""
    options = SchedulerOptions(rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"])
    queue: Any = Fifo()
    session = SchedulerSession(
        options, queue, scheduler_pb2.SchedulerConfig(), limits=Limits(session_resources=20)
    )

    def bringing(at_ns: int, names: range) -> scheduler_pb2.Round:
        amounts: Mapping[str, Any] = {"cpu": "1"} | {f"example.com/r{i}": 1 for i in names}
        round_ = scheduler_pb2.Round(time_ns=at_ns)
        node = node_to_message(make_node(f"n{at_ns}").capacity(amounts).obj())
        round_.events.add(time_ns=at_ns).add.node.CopyFrom(node)
        return round_

    async def test() -> None:
        # What is wrong stands in the window, which is read after the round.
        late = [scheduler_service_pb2.Foreseen(round=scheduler_pb2.Round(events_only=True))]
        with pytest.raises(FieldError, match="window"):
            _ = [it async for it in session.run(bringing(1, range(100, 110)), late)]
        await told(session, bringing(1, range(10)))
        with pytest.raises(LimitError, match="session_resources=20"):
            await told(session, bringing(2, range(10, 30)))
        await told(session, bringing(3, range(15)))
        pods = bringing(4, range(15))
        amounts = dict.fromkeys((f"example.com/p{i}" for i in range(9)), 1)
        pod = pod_to_message(make_pod("p").req(amounts).obj())
        pods.events.add(time_ns=4).add.pod.CopyFrom(pod)
        with pytest.raises(LimitError):
            await told(session, pods)

    asyncio.run(test())
