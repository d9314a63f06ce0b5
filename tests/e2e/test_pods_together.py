"""Pods that are added together: which are next follows, and the queue hears of them later."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from replay.backends.processes import EmbeddedServices
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.time import SECOND_NS
from services.rpc.kube.messages import node_to_message, pod_to_message
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.queue_client import QueueLink
from services.scheduler.session import SchedulerSession
from tests.builders import make_node, make_pod
from tests.e2e.random_world import forget_times
from tests.scheduler_rounds import ask_for_everything, told

pytestmark = pytest.mark.e2e
NODES, CPUS = 4, 12


class Bursts:
    """A world whose pods come in bursts, each sent in parts; a third of those bound end."""

    def __init__(self, seed: int, *, overflows: bool, gates: bool) -> None:
        self._random = Random(seed)  # noqa: S311 - a test's choices
        self._overflows = overflows
        self._gates = gates
        self._count = 0
        self._now_ns = 0
        self._events: list[scheduler_pb2.Event] = []
        self._answers: list[scheduler_pb2.Answer] = []
        self._bound: list[str] = []
        self._more = False

    def rounds(self) -> Iterator[scheduler_pb2.Round]:
        """Yield rounds; `decided` takes the outcomes of each before the next is made."""
        for number in range(NODES):
            node = make_node(f"n{number}").capacity(cpu=str(CPUS), pods="110").obj()
            self._event().add.node.CopyFrom(node_to_message(node))
        for _ in range(12):
            self._now_ns += self._random.choice((0, 1, 40)) * SECOND_NS
            self._end()
            yield from self._rounds()
            most = NODES * CPUS if self._overflows else NODES * CPUS - len(self._bound)
            for _ in range(self._random.randrange(min(most, 20) + 1)):
                self._come()
                if self._random.random() < 0.2:
                    yield self._round(events_only=True)
            yield from self._rounds()

    def _rounds(self) -> Iterator[scheduler_pb2.Round]:
        """Yield a round and its further messages."""
        yield self._round(max_pods=self._random.choice((0, 1, 3, 7)))
        while self._more:
            most = self._random.choice((0, 1, 3, 7))
            yield scheduler_pb2.Round(time_ns=self._now_ns, max_pods=most or 256)

    def decided(self, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Take what the scheduler decided; the next burst's round answers bindings."""
        self._more = outcomes.more
        for outcome in outcomes.outcomes:
            if outcome.HasField("bind"):
                self._answers.append(scheduler_pb2.Answer(pop=outcome.pop, time_ns=self._now_ns))
                event = self._event()
                event.patch.pod.CopyFrom(_ref(outcome.pop.uid))
                event.patch.node_name = outcome.bind.node_name
                self._bound.append(outcome.pop.uid)

    def _come(self) -> None:
        self._count += 1
        cpus = self._random.randrange(1, 5) if self._overflows else 1
        # Where only some have room, those of equal priority preempt nobody.
        priority = self._random.randrange(3) if self._gates or not self._overflows else 0
        pod = make_pod(f"p{self._count}").req(cpu=str(cpus)).priority(priority)
        if self._gates and self._random.random() < 0.05:
            pod = pod.gates("later")
        self._event().add.pod.CopyFrom(pod_to_message(pod.obj()))
        if self._random.random() < 0.1:
            gone = self._random.randrange(max(1, self._count - 10), self._count + 1)
            if f"uid-default-p{gone}" not in self._bound:
                self._event().remove.CopyFrom(_ref(f"uid-default-p{gone}"))

    def _end(self) -> None:
        ending = [uid for uid in self._bound if self._random.random() < 0.3]
        self._bound = [uid for uid in self._bound if uid not in ending]
        for uid in ending:
            self._event().remove.CopyFrom(_ref(uid))

    def _event(self) -> scheduler_pb2.Event:
        self._events.append(scheduler_pb2.Event(time_ns=self._now_ns))
        return self._events[-1]

    def _round(self, **fields: int | bool) -> scheduler_pb2.Round:
        round_ = scheduler_pb2.Round(time_ns=self._now_ns, events=self._events)
        round_.answers.extend(self._answers)
        for name, value in fields.items():
            if value:
                setattr(round_, name, value)
        self._events, self._answers = [], []
        return round_


def _ref(uid: str) -> ObjectReference:
    name = uid.removeprefix("uid-default-")
    return ObjectReference(kind="Pod", namespace="default", name=name, uid=uid)


@pytest.mark.parametrize(
    ("overflows", "gates", "share"),
    [(False, False, 0.15), (True, False, 0.7), (True, True, 1)],
    ids=["room for all", "not for all", "gated ones among them"],
)
@pytest.mark.parametrize("seed", range(8))
def test_pods_that_are_added_together_are_tried_as_the_queue_would_show_them(
    here: EmbeddedServices,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    share: float,
    *,
    overflows: bool,
    gates: bool,
) -> None:
    """Of several priorities, gated and deleted ones among them; and the queue ends as it would."""
    address = here.addresses["queue"]
    ahead, held = asyncio.run(_outcomes(address, seed, overflows=overflows, gates=gates))
    ask_for_everything(monkeypatch)
    asking, whole = asyncio.run(_outcomes(address, seed, overflows=overflows, gates=gates))
    exchanges = [sum(of_round.queue_exchanges for of_round in each) for each in (ahead, asking)]
    assert exchanges[1] > 30
    assert exchanges[0] < share * exchanges[1]
    for outcomes in (*ahead, *asking):
        forget_times(outcomes)
        outcomes.queue_exchanges = 0
    assert ahead == asking
    assert held == whole


async def _outcomes(
    address: str, seed: int, *, overflows: bool, gates: bool
) -> tuple[list[scheduler_pb2.RoundOutcomes], queue_pb2.QueueState]:
    link = QueueLink(address)
    queue = await link.open(queue_pb2.QueueConfig(rules="v1.34"))
    options = SchedulerOptions(
        rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"], queue_has_in_tree_hints=True
    )
    config = scheduler_pb2.SchedulerConfig(seed=seed, batch_size=1 + seed % 5)
    session = SchedulerSession(options, queue, config)
    world, answers = Bursts(seed, overflows=overflows, gates=gates), []
    for round_ in world.rounds():
        outcomes = await told(session, round_)
        world.decided(outcomes)
        answers.append(outcomes)
    state = await queue.state()
    await queue.close()
    await link.close()
    return answers, state
