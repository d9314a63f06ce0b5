"""One scheduler session: rounds in, outcomes out, the queue behind it.

A round's answers and events become queue steps; then heads are decided in batches, and each batch
is committed in one exchange. The queue answers how much of it was applied; decisions beyond that
are undone and made again. A batch's size therefore changes speed and never a decision.

With extenders a decision may block, so it runs in a thread while health checks and other sessions
are served. A core runs one decision at a time.
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
from services.framework.plugins.in_tree import SERVED, Registry
from services.rpc.errors import FieldError, UnavailableError, shown_to_callers
from services.rpc.limits import UNLIMITED, Limits
from services.rpc.parts import PART_BYTES
from services.scheduler.batch import Batch
from services.scheduler.cluster_events import PatchPod
from services.scheduler.codec import MAY_WAIT, head_from_message
from services.scheduler.core.decisions import Decision
from services.scheduler.core.queueing.steps import Head, PopId
from services.scheduler.core.session.options import SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.extenders.answers import ExtenderAnswers
from services.scheduler.extenders.connect import ConnectedExtender
from services.scheduler.extenders.grpc_extender import ExtenderObjects
from services.scheduler.intake import Intake, WindowRound, confirms_binding
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.queue_client import QueueClientSession
from services.scheduler.under_way import UnderWay

BATCH_SIZE = 256
BATCH_SIZE_MAX = 4096
"""Heads that a queue shows at most."""
YIELD_EVERY = 64
"""Decisions after which the event loop runs, so that health checks are served."""
_ANSWER_BYTES = PART_BYTES // 2
"""The size that ends an answer before its next batch, and a batch before its end."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session's state between rounds: the last round's time, the queue's last answer, pod UIDs.

    `heads` and `wakeup_ns` are from the queue's last answer, `cycle` is that of its last pop, and
    `is_empty` is set where no pod waited in it after that. `uids` are by (namespace, name).
    """

    at_ns: int
    heads: Sequence[Head]
    uids: Sequence[tuple[tuple[str, str], str]]
    wakeup_ns: int | None
    cycle: int
    is_empty: bool


class SchedulerSession:
    """A scheduler core, the input of its rounds (`intake`), and its queue's session.

    `config` is what the session was opened with, defaults filled in. `registry` makes the plugins,
    `sources` holds the objects that `extenders` receive, `answers` their responses. `at_ns` is the
    time of the last round, `under_way` the request that is being carried out. `metrics` counts what
    is decided. `limits` bound what its rounds bring.
    """

    def __init__(
        self,
        options: SchedulerOptions,
        queue: QueueClientSession,
        config: scheduler_pb2.SchedulerConfig,
        *,
        registry: Registry = SERVED,
        extenders: tuple[ConnectedExtender, ...] = (),
        sources: ExtenderObjects | None = None,
        answers: ExtenderAnswers | None = None,
        metrics: SchedulerMetrics | None = None,
        limits: Limits = UNLIMITED,
    ) -> None:
        self.config = config
        self.extenders = extenders
        self.answers = answers or ExtenderAnswers()
        self.core = Scheduler(options, registry=registry, stopwatch=perf_counter_ns)
        self.runner = DecisionRunner(blocks=bool(options.extenders))
        self.queue = queue
        self._traits = options.queue
        self._metrics = metrics
        self.intake = Intake(self.core, queue=options.queue, limits=limits)
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
        self._is_part = False
        self.broken = ""
        self.under_way: UnderWay[scheduler_service_pb2.RunRoundResponse] | None = None

    @property
    def object_count(self) -> int:
        """The number of pods, nodes and other objects of the session."""
        return len(self.intake.messages) + len(self.intake.others) + self.core.snapshot.row_count

    async def run(
        self,
        round_: scheduler_pb2.Round,
        window: Sequence[scheduler_service_pb2.Foreseen],
        has_room: Callable[[], bool] = lambda: True,
    ) -> AsyncIterator[scheduler_pb2.RoundOutcomes]:
        """Run a round, and those of its window while each goes as foreseen and there is room.

        `has_room` is called before each further round. Yields each round's outcomes. Raises a
        refusal before anything is changed. What fails after that leaves scheduler and queue apart:
        `broken` says so from then on.
        """
        if window and self.extenders:
            raise FieldError("window", "is not supported with extenders")
        changes = self.intake.read(round_, self.at_ns)
        ahead = self.intake.read_window(window, round_.at_ns)
        outcomes = await self._run(round_, lambda: self.intake.take(round_, changes))
        for coming in ahead:
            if not (has_room() and _is_as_foreseen(outcomes, coming.confirmed)):
                break
            outcomes.goes_on = True
            yield outcomes
            outcomes = await self._run(coming.round_, partial(self._confirm, outcomes, coming))
        yield outcomes

    def _confirm(
        self, before: scheduler_pb2.RoundOutcomes, coming: WindowRound
    ) -> list[queue_pb2.Operation]:
        """Apply the confirmations of the round before, then the round's changes."""
        operations = self.intake.confirm(coming.before_ns, before.outcomes, coming.confirmed)
        return operations + self.intake.take(coming.round_, coming.changes)

    async def _run(
        self, round_: scheduler_pb2.Round, take: Callable[[], list[queue_pb2.Operation]]
    ) -> scheduler_pb2.RoundOutcomes:
        """Apply the round's input to the core, and schedule."""
        if self._sources is not None:
            self._sources.take(round_)
        self.answers.load(round_.recorded, replace=round_.at_ns != self.at_ns and not self._is_part)
        self.at_ns, self._is_part = round_.at_ns, round_.events_only
        outcomes = scheduler_pb2.RoundOutcomes()
        try:
            await self._schedule(round_, take(), outcomes)
        except BaseException as error:
            self.broken = shown_to_callers(error)
            raise
        return outcomes

    # What a checkpoint keeps beside the core

    @property
    def state(self) -> SessionState:
        """Return the session's own state between rounds."""
        heads, uids = tuple(self._heads), tuple(self.intake.uids.items())
        return SessionState(self.at_ns, heads, uids, self._wakeup_ns, self._cycle, self._is_empty)

    def resume(self, messages: Iterable[pod_pb2.Pod], state: SessionState) -> None:
        """Restore another session's own state; the core is restored already."""
        self.intake.messages.update((message.metadata.uid, message) for message in messages)
        self.intake.uids.update(state.uids)
        self.at_ns, self._heads = state.at_ns, state.heads
        self._wakeup_ns = state.wakeup_ns
        self._cycle, self._is_empty = state.cycle, state.is_empty

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
        self.runner.begin()
        while left > 0:
            if self._drains_queue():
                await self.queue.post(operations)
                self._heads, self._is_empty = (), True
                self._put_outcomes(outcomes)
                break
            if operations or not self._heads:
                foreseen = self._foreseen_heads(operations)
                if foreseen is not None:
                    await self.queue.post(operations)
                    self._heads, self._is_empty = foreseen, not foreseen
                else:
                    left -= await self._exchange(operations, outcomes)
            must_answer = outcomes.awaits_effects or self._must_answer(outcomes)
            if not self._heads or (left < most and must_answer):
                break
            count = min(self._batch_size, left)
            await self._decide(self._heads[:count], round_.at_ns)
            operations = self._batch.operations
        outcomes.more = bool(self._heads)
        if not outcomes.more:
            outcomes.awaits_effects = False
            outcomes.may_wait = MAY_WAIT[self.core.may_wait()]

    def _must_answer(self, outcomes: scheduler_pb2.RoundOutcomes) -> bool:
        """Return whether the time or the size of an answer is reached."""
        return self.runner.is_due or outcomes.ByteSize() > _ANSWER_BYTES

    def _drains_queue(self) -> bool:
        """Return whether the batch empties the queue, so that nothing waits for its answer.

        That is so where it showed all its pods, has no timer, and every pod of it is bound.
        """
        shown = len(self._heads)
        return (
            0 < shown < self._batch_size
            and shown == len(self._batch)
            and self._wakeup_ns is None
            and self._batch.all_bound
        )

    def _foreseen_heads(self, operations: Sequence[queue_pb2.Operation]) -> list[Head] | None:
        """Return the heads that the queue would show, None where only the queue knows them.

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
        self, operations: list[queue_pb2.Operation], outcomes: scheduler_pb2.RoundOutcomes
    ) -> int:
        """Commit the batch, get the next heads, and return the number of pods that were tried."""
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
        return self._put_outcomes(outcomes)

    def _check_heads(self) -> None:
        """Raise UnavailableError for a head that is not a pod of the session."""
        if self._traits.returns_deleted_pods:
            return
        for index, head in enumerate(self._heads):
            if head.pop.uid not in self.core.pods:
                raise UnavailableError(
                    f"the scheduling queue answers wrongly: heads[{index}].pop.uid: "
                    f"{head.pop.uid!r}: no pod has this uid"
                )

    async def _decide(self, heads: Sequence[Head], now_ns: int) -> None:
        """Decide heads in order, in a batch of their own, up to one whose effects others await."""
        self._batch = batch = Batch(self.intake.encoder, now_ns)
        for head in heads:
            began = perf_counter_ns()
            if self.runner.blocks:
                decision, answers = await self.runner.run(
                    partial(self._decide_with_answers, head, now_ns)
                )
            else:
                decision, answers = self.core.decide(head, now_ns), ()
            batch.add(decision, perf_counter_ns() - began, answers)
            if self.core.awaits_effects(decision):
                batch.awaited = decision
                break
            if self.runner.is_due or batch.size > _ANSWER_BYTES:
                break
            if len(batch) % YIELD_EVERY == 0:
                await asyncio.sleep(0)

    def _decide_with_answers(
        self, head: Head, now_ns: int
    ) -> tuple[Decision, Sequence[scheduler_pb2.ExtenderAnswer]]:
        self.answers.begin(head.pop.uid, head.attempts)
        return self.core.decide(head, now_ns), self.answers.recorded()

    def _put_outcomes(self, outcomes: scheduler_pb2.RoundOutcomes) -> int:
        """Write the outcomes of the batch, and return the number of pods that were tried."""
        batch = self._batch
        tried = batch.put_outcomes(outcomes)
        outcomes.awaits_effects = batch.awaits_effects
        if self._metrics is not None:
            for entry in batch:
                self._metrics.absorb(entry.decision, entry.wall_ns, self.at_ns)
        if len(batch):
            self._cycle = batch.last_cycle
        self._batch = Batch(self.intake.encoder, self.at_ns)
        return tried


def _is_as_foreseen(outcomes: scheduler_pb2.RoundOutcomes, confirmed: Iterable[PatchPod]) -> bool:
    """Return whether a round went as its confirmations say: all pods bound and none pending."""
    if outcomes.more or outcomes.may_wait != scheduler_pb2.MAY_WAIT_ALL:
        return False
    if not all(outcome.HasField("bind") for outcome in outcomes.outcomes):
        return False
    bound = [each.patch.pod.uid for each in confirmed if confirms_binding(each.patch)]
    return bound == [outcome.pop.uid for outcome in outcomes.outcomes]


_T = TypeVar("_T")

DECIDING_S_MAX = 20.0
"""How long a round's decisions may take before those that there are get answered."""


class DecisionRunner:
    """Runs work on a session's core, one piece at a time; in a thread where it `blocks`."""

    def __init__(self, *, blocks: bool) -> None:
        self.blocks = blocks
        self._turn = asyncio.Lock()
        self._due = 0.0

    def begin(self) -> None:
        """Begin a round."""
        self._due = monotonic() + DECIDING_S_MAX

    @property
    def is_due(self) -> bool:
        """Return whether a round has taken long enough to be answered in part."""
        return monotonic() > self._due

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do `work` and return what it returns.

        A waiting caller may be cancelled; the work is not, and the turn ends with it.
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
