"""One scheduler session: rounds in, outcomes out, the queue behind it.

A round's answers and events become queue steps; then heads are decided in batches, and each batch
is committed in one exchange. The queue says how far it went along; what was decided beyond that is
taken back and decided anew. A batch's size therefore changes speed and never a decision.

Work on a session's core that may block: extenders are asked in the midst of a decision.

It runs in a thread, so that health checks and other sessions are answered meanwhile, and one piece
of it at a time, since a core is no place for two.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic, perf_counter_ns
from typing import TypeVar

from reprieve.kube.v1beta1 import pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2
from services.rpc.errors import FieldError, UnavailableError
from services.rpc.parts import PART_BYTES
from services.scheduler.batch import Batch
from services.scheduler.cluster_events import PatchPod
from services.scheduler.codec import MAY_WAIT, head_from_message
from services.scheduler.core.decisions import Decision
from services.scheduler.core.framework.registry import SERVED, Registry
from services.scheduler.core.queueing.steps import Head, PopId
from services.scheduler.core.session.options import Options
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.extenders.answers import Answers
from services.scheduler.extenders.connect import Connected
from services.scheduler.extenders.grpc_extender import Sources
from services.scheduler.intake import Ahead, Intake, confirms_binding
from services.scheduler.queue_client import QueueSession

BATCH_SIZE = 256
BATCH_SIZE_MAX = 4096
"""Heads that a queue shows at most."""
YIELD_EVERY = 64
"""Decisions after which health checks may answer."""
_ANSWER_BYTES = PART_BYTES // 2
"""What outcomes may come to before the next batch, and a batch's before its end."""


@dataclass(frozen=True, slots=True)
class Edge:
    """When the last round was, what the queue showed last, and the pods' uids by name.

    That is its heads, and when it wanted a tick. `cycle` is that of its last pop, and `is_empty`
    tells that no pod waited in it after that.
    """

    at_ns: int
    heads: Sequence[Head]
    uids: Sequence[tuple[tuple[str, str], str]]
    wakeup_ns: int | None
    cycle: int
    is_empty: bool


class SchedulerSession:
    """A scheduler core, what it is told (`intake`), and its queue's session.

    `config` is what the session was opened with, defaults filled in. `registry` makes the plugins,
    and `sources` has what `extenders` are sent. `answers` has what they answer. `at_ns` is the time
    of the last round.
    """

    def __init__(
        self,
        options: Options,
        queue: QueueSession,
        config: scheduler_pb2.SchedulerConfig,
        *,
        registry: Registry = SERVED,
        extenders: tuple[Connected, ...] = (),
        sources: Sources | None = None,
        answers: Answers | None = None,
    ) -> None:
        self.config = config
        self.extenders = extenders
        self.answers = answers or Answers()
        self.core = Scheduler(options, registry=registry, stopwatch=perf_counter_ns)
        self.deciding = Deciding(blocks=bool(options.extenders))
        self.queue = queue
        self._has_hints = options.queue.has_hints
        self.intake = Intake(self.core, has_hints=self._has_hints)
        self._sources = sources if options.extenders else None
        if self._sources is not None:
            self._sources.pods = self.intake.messages
        self._batch_size = config.batch_size or BATCH_SIZE
        self.at_ns = -(2**63)
        self._batch = Batch(self.intake.encoder, self.at_ns)
        self._heads: Sequence[Head] = ()
        self._wakeup_ns: int | None = None
        self._cycle = 0
        self._is_empty = True
        self.broken = ""

    async def run(
        self,
        round_: scheduler_pb2.Round,
        window: Sequence[scheduler_service_pb2.Foreseen],
        has_room: Callable[[], bool] = lambda: True,
    ) -> AsyncIterator[scheduler_pb2.RoundOutcomes]:
        """Take a round, and those of its window for as long as all goes as was foreseen.

        And for as long as the answer `has_room`.

        Yields each one's outcomes. Raises a refusal before anything is changed. What fails after
        that leaves scheduler and queue apart: `broken` says so from then on.
        """
        if window and self.extenders:
            raise FieldError("window", "is not served where extenders are asked")
        changes = self.intake.read(round_, self.at_ns)
        ahead = self.intake.read_window(window, round_.at_ns)
        outcomes = await self._run(round_, lambda: self.intake.take(round_, changes))
        for coming in ahead:
            if not (has_room() and _is_as_foreseen(outcomes, coming.confirmed)):
                break
            outcomes.goes_on = True
            self.broken = "the caller did not wait for the rest of its window"
            yield outcomes
            self.broken = ""
            outcomes = await self._run(coming.round_, partial(self._confirm, outcomes, coming))
        yield outcomes

    def _confirm(
        self, before: scheduler_pb2.RoundOutcomes, coming: Ahead
    ) -> list[queue_pb2.Operation]:
        """Take what the world says of the round before, then the round's changes."""
        operations = self.intake.confirm(coming.before_ns, before.outcomes, coming.confirmed)
        return operations + self.intake.take(coming.round_, coming.changes)

    async def _run(
        self, round_: scheduler_pb2.Round, take: Callable[[], list[queue_pb2.Operation]]
    ) -> scheduler_pb2.RoundOutcomes:
        """Let the core take what the round tells, and schedule."""
        if self._sources is not None:
            self._sources.take(round_)
        self.answers.know(round_.recorded, anew=round_.at_ns != self.at_ns)
        self.at_ns = round_.at_ns
        outcomes = scheduler_pb2.RoundOutcomes()
        try:
            await self._schedule(round_, take(), outcomes)
        except BaseException as error:
            self.broken = str(error) or type(error).__name__
            raise
        return outcomes

    # What a checkpoint keeps beside the core

    @property
    def edge(self) -> Edge:
        """Return what the session itself remembers between rounds."""
        heads, uids = tuple(self._heads), tuple(self.intake.uids.items())
        return Edge(self.at_ns, heads, uids, self._wakeup_ns, self._cycle, self._is_empty)

    def resume(self, messages: Iterable[pod_pb2.Pod], edge: Edge) -> None:
        """Go on where another session stood whose core this one's core has recalled."""
        self.intake.messages.update((message.metadata.uid, message) for message in messages)
        self.intake.uids.update(edge.uids)
        self.at_ns, self._heads = edge.at_ns, edge.heads
        self._wakeup_ns = edge.wakeup_ns
        self._cycle, self._is_empty = edge.cycle, edge.is_empty

    # Scheduling

    async def _schedule(
        self,
        round_: scheduler_pb2.Round,
        operations: list[queue_pb2.Operation],
        outcomes: scheduler_pb2.RoundOutcomes,
    ) -> None:
        if round_.events_only:
            await self.queue.post(operations)
            self._heads, self._is_empty = (), False
            return
        left = most = round_.max_pods or 2**31
        self.deciding.begin()
        while left > 0:
            if self._is_foregone():
                await self.queue.post(operations)
                self._heads, self._is_empty = (), True
                self._settle(outcomes)
                break
            if operations or not self._heads:
                foreseen = self._foreseen(operations)
                if foreseen is not None:
                    await self.queue.post(operations)
                    self._heads, self._is_empty = foreseen, not foreseen
                else:
                    left -= await self._exchange(operations, outcomes)
            if not self._heads or (left < most and self._must_answer(outcomes)):
                break
            count = min(self._batch_size, left)
            await self._decide(self._heads[:count], round_.at_ns)
            operations = self._batch.operations
        outcomes.more = bool(self._heads)
        if not outcomes.more:
            outcomes.may_wait = MAY_WAIT[self.core.may_wait()]

    def _must_answer(self, outcomes: scheduler_pb2.RoundOutcomes) -> bool:
        """Tell whether deciding took long, or the answer has become large."""
        return self.deciding.is_due or outcomes.ByteSize() > _ANSWER_BYTES

    def _is_foregone(self) -> bool:
        """Tell whether the queue's answer to what was decided is known: it is empty then.

        That is so where it showed all that it had, waits for nothing, and every pod of it is bound.
        """
        shown = len(self._heads)
        return (
            0 < shown < self._batch_size
            and shown == len(self._batch)
            and self._wakeup_ns is None
            and self._batch.all_bound
        )

    def _foreseen(self, operations: Sequence[queue_pb2.Operation]) -> list[Head] | None:
        """Return the heads that the queue would show, None where only the queue can tell.

        While no pod waits in it they are the pods that are added; pods in flight and gated pods are
        not among them.
        """
        if self._batch or not self._is_empty or not self.queue.foreseeable_heads:
            return None
        added: dict[str, int] = {}
        for operation in operations:
            match operation.WhichOneof("operation"):
                case "add" if not (operation.add.gates or operation.add.sort_key):
                    added[operation.add.pod.metadata.uid] = operation.at_ns
                case "delete_pod":
                    added.pop(operation.delete_pod.uid, None)
                case "done":
                    pass
                case _:
                    return None
        if len(added) >= self._batch_size or not added.keys().isdisjoint(self._in_flight()):
            return None
        pods = self.core.pods
        order = sorted(added.items(), key=lambda each: (-pods[each[0]].priority, each[1]))
        return [
            Head(PopId(uid, cycle), 1, at_ns, at_ns)
            for cycle, (uid, at_ns) in enumerate(order, self._cycle + 1)
        ]

    def _in_flight(self) -> Iterable[str]:
        return (decision.head.pop.uid for decision in self.core.unanswered())

    async def _exchange(
        self,
        operations: list[queue_pb2.Operation],
        outcomes: scheduler_pb2.RoundOutcomes,
    ) -> int:
        """Commit what was decided, look at the next heads, and count the pods that were tried."""
        began = perf_counter_ns()
        reply = await self.queue.exchange(operations, self._batch_size)
        taken_ns = perf_counter_ns() - began
        outcomes.phases.add(name="queueExchange", wall_ns=taken_ns, pods=len(self._batch))
        outcomes.queue_exchanges += 1
        self._heads = [*map(head_from_message, reply.heads)]
        self._check_heads()
        self._wakeup_ns = reply.next_wakeup_ns if reply.HasField("next_wakeup_ns") else None
        outcomes.ClearField("next_wakeup_ns")
        if self._wakeup_ns is not None:
            outcomes.next_wakeup_ns = self._wakeup_ns
        self._is_empty = not reply.heads and self._wakeup_ns is None
        self.core.undo(self._batch.take_back(reply))
        return self._settle(outcomes)

    def _check_heads(self) -> None:
        """Refuse to go on with a head that is no pod of the session.

        The older queues can show a pod that has gone since it failed.
        """
        for index, head in enumerate(self._heads):
            if self._has_hints and head.pop.uid not in self.core.pods:
                raise UnavailableError(
                    f"the scheduling queue answers wrongly: heads[{index}].pop.uid: "
                    f"{head.pop.uid!r}: no pod has this uid"
                )

    async def _decide(self, heads: Sequence[Head], now_ns: int) -> None:
        """Decide heads in order, in a batch of their own."""
        self._batch = batch = Batch(self.intake.encoder, now_ns)
        for head in heads:
            began = perf_counter_ns()
            if self.deciding.blocks:
                decision, answers = await self.deciding.run(partial(self._asked, head, now_ns))
            else:
                decision, answers = self.core.decide(head, now_ns), ()
            batch.add(decision, perf_counter_ns() - began, answers)
            if self.deciding.is_due or batch.size > _ANSWER_BYTES:
                break
            if len(batch) % YIELD_EVERY == 0:
                await asyncio.sleep(0)

    def _asked(
        self, head: Head, now_ns: int
    ) -> tuple[Decision, Sequence[scheduler_pb2.ExtenderAnswer]]:
        """Return a decision with what extenders answered for it."""
        self.answers.begin(head.pop.uid, head.attempts)
        return self.core.decide(head, now_ns), self.answers.taken()

    def _settle(self, outcomes: scheduler_pb2.RoundOutcomes) -> int:
        """Answer the decisions that the batch still has, and count the pods that were tried."""
        batch = self._batch
        told = batch.put_outcomes(outcomes)
        if len(batch):
            self._cycle = batch.last_cycle
        self._batch = Batch(self.intake.encoder, self.at_ns)
        return told


def _is_as_foreseen(outcomes: scheduler_pb2.RoundOutcomes, confirmed: Iterable[PatchPod]) -> bool:
    """Tell whether a round went as its confirmations say: all are bound, and nobody waits."""
    if outcomes.more or outcomes.may_wait != scheduler_pb2.MAY_WAIT_ALL:
        return False
    if not all(outcome.HasField("bind") for outcome in outcomes.outcomes):
        return False
    bound = [each.patch.pod.uid for each in confirmed if confirms_binding(each.patch)]
    return bound == [outcome.pop.uid for outcome in outcomes.outcomes]


_T = TypeVar("_T")

DECIDING_S_MAX = 20.0
"""How long a round's decisions may take before those that there are get answered."""


class Deciding:
    """A session's turn at its core; where nothing `blocks`, work is done at once."""

    def __init__(self, *, blocks: bool) -> None:
        self.blocks = blocks
        self._turn = asyncio.Lock()
        self._due = 0.0

    def begin(self) -> None:
        """Begin a round."""
        self._due = monotonic() + DECIDING_S_MAX

    @property
    def is_due(self) -> bool:
        """Tell whether a round has taken long enough to be answered in part."""
        return monotonic() > self._due

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do `work` and return what it returns.

        Whoever waits may be cancelled; the work is not, and the turn ends with it.
        """
        if not self.blocks:
            return work()
        async with self._turn:
            task = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                await asyncio.wait([task])
                raise
