"""One scheduler session: rounds in, outcomes out, the queue behind it.

A round's answers and events change the core and become operations for the queue. The queue returns
its heads; they are decided in batches, and each batch is committed in one exchange that returns the
next heads. Decisions that the queue does not accept are undone and made again, so that a batch's
size changes speed and never a decision. Look-ahead (`services/scheduler/ahead`) saves exchanges.

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
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2
from services.framework.plugins.in_tree import SERVED, Registry
from services.rpc.errors import FieldError, shown_to_callers
from services.rpc.limits import UNLIMITED, Limits
from services.rpc.parts import PART_BYTES
from services.scheduler.ahead.heads import ForeseenHeads, KnownQueue
from services.scheduler.ahead.windows import read_window
from services.scheduler.batch import Batch
from services.scheduler.core.decisions import Decision
from services.scheduler.core.queueing.steps import Head
from services.scheduler.core.session.options import SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.extenders.answers import SessionExtenders
from services.scheduler.intake import Intake, RoundInput
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.outcomes import MAY_WAIT, outcome_bytes, pod_ref, put_outcomes
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
    """A session's state between rounds: the last round's time, the queue's heads, pod UIDs.

    `uids` are by (namespace, name), `queue` is what is known of the queue.
    """

    at_ns: int
    heads: Sequence[Head]
    uids: Sequence[tuple[tuple[str, str], str]]
    queue: KnownQueue


class SchedulerSession:
    """A scheduler core, the input of its rounds (`intake`), and its queue's session.

    `config` is what the session was opened with, defaults filled in. `registry` makes the plugins.
    `at_ns` is the time of the last round, `under_way` the request that is being carried out.
    `metrics` counts what is decided. `limits` bound what its rounds bring.
    """

    def __init__(
        self,
        options: SchedulerOptions,
        queue: QueueClientSession,
        config: scheduler_pb2.SchedulerConfig,
        *,
        registry: Registry = SERVED,
        extenders: SessionExtenders | None = None,
        metrics: SchedulerMetrics | None = None,
        limits: Limits = UNLIMITED,
    ) -> None:
        self.config = config
        self.extenders = extenders or SessionExtenders()
        self.scheduler = Scheduler(options, registry=registry, stopwatch=perf_counter_ns)
        self.runner = DecisionRunner(blocks=bool(options.extenders))
        self.queue = queue
        # The queue, which is asked only where its answer does not follow from the last one.
        self._foreseen_queue = ForeseenHeads(queue, self.scheduler)
        self._traits = options.queue
        self._metrics = metrics
        self.intake = Intake(self.scheduler, queue=options.queue, limits=limits)
        self.extenders.objects.pods = self.intake.messages
        self._batch_size = config.batch_size or BATCH_SIZE
        self.at_ns = -(2**63)
        self._heads: Sequence[Head] = ()
        self.broken = ""
        self.under_way: UnderWay[scheduler_service_pb2.RunRoundResponse] | None = None

    @property
    def object_count(self) -> int:
        """The number of pods, nodes and other objects of the session."""
        return (
            len(self.intake.messages) + len(self.intake.others) + self.scheduler.snapshot.row_count
        )

    async def run(
        self,
        round_: scheduler_pb2.Round,
        window: Sequence[scheduler_service_pb2.Foreseen] = (),
        has_room: Callable[[], bool] = lambda: True,
    ) -> AsyncIterator[scheduler_pb2.RoundOutcomes]:
        """Run a round, and those of its window while each goes as foreseen and there is room.

        `has_room` is called before each further round. Yields each round's outcomes. Raises a
        refusal before anything is changed. What fails after that leaves scheduler and queue apart:
        `broken` says so from then on.
        """
        if window and self.extenders.connected:
            raise FieldError("window", "is not supported with extenders")
        brought = self.intake.read_round(round_, self.at_ns)
        foreseen = read_window(self.intake, window, brought.at_ns)
        self.extenders.keep_input(round_)
        outcomes = await self._carry_out(brought)
        for later in foreseen:
            if not (has_room() and later.follows(outcomes)):
                break
            outcomes.window_continues = True
            yield outcomes
            outcomes = await self._carry_out(later.after(outcomes))
        yield outcomes

    async def _carry_out(self, brought: RoundInput) -> scheduler_pb2.RoundOutcomes:
        """Apply what a round brings, and schedule."""
        self.at_ns = brought.at_ns
        try:
            batch = self.intake.take_round(brought)
            if brought.pods_max:
                return await self._schedule(batch, brought.pods_max)
            outcomes = scheduler_pb2.RoundOutcomes()
            exchange_ns = await self._foreseen_queue.post(batch, self._batch_size)
            _note_exchange(outcomes, exchange_ns)
            self._heads = ()
            return outcomes
        except BaseException as error:
            self.broken = shown_to_callers(error)
            raise

    async def _schedule(self, batch: Batch, pods_max: int) -> scheduler_pb2.RoundOutcomes:
        """Commit what a round brings, then decide heads in batches until the answer is complete."""
        outcomes = scheduler_pb2.RoundOutcomes()
        self.runner.begin()
        # The heads of the last answer are still next unless the queue has been sent operations
        # since: those of this round, which are in the batch, or those of a part with events only,
        # after which `_carry_out` has dropped the heads. Nobody else changes this queue session.
        await self._resolve(batch)
        tried = 0
        if batch.operations or batch.resolved or not self._heads:
            tried += await self._commit(batch, outcomes)
        # What a decision lets go on from Permit cannot be undone with it: one pod is decided in an
        # exchange then, which the queue always accepts, since its heads are those of its answer.
        batch_size = 1 if self.scheduler.has_permits else self._batch_size
        while self._heads and tried < pods_max:
            heads = self._heads[: min(batch_size, pods_max - tried)]
            tried += await self._commit(await self._decide(heads), outcomes)
            if tried and (outcomes.awaits_effects or self._must_answer(outcomes)):
                break
        for waiting in self.scheduler.take_expected():
            expectation = outcomes.expectations.add(node_name=waiting.node_name)
            expectation.pod.CopyFrom(pod_ref(waiting.pod))
        outcomes.more = bool(self._heads)
        if not outcomes.more:
            outcomes.awaits_effects = False
            outcomes.may_wait = MAY_WAIT[self.scheduler.may_wait()]
        return outcomes

    def _must_answer(self, outcomes: scheduler_pb2.RoundOutcomes) -> bool:
        """Return whether the time or the size of an answer is reached."""
        return self.runner.is_due or outcomes.ByteSize() > _ANSWER_BYTES

    async def _decide(self, heads: Sequence[Head]) -> Batch:
        """Decide heads in order, up to one whose effects the next one must see."""
        batch, size = Batch(self.intake.encoder, self.at_ns), 0
        for head in heads:
            began = perf_counter_ns()
            # `run` asks it, too; without extenders there are no responses to record, and a direct
            # call saves the coroutine and the closure of each decision.
            if self.runner.blocks:
                decision, answers = await self.runner.run(
                    partial(self._decide_with_answers, head, self.at_ns)
                )
            else:
                decision, answers = self.scheduler.decide(head, self.at_ns), ()
            batch.add(decision, self.at_ns, perf_counter_ns() - began, answers)
            size += outcome_bytes(decision, answers)
            if self.scheduler.ends_round(decision):
                batch.awaited = decision
                break
            if self.runner.is_due or size > _ANSWER_BYTES:
                break
            if len(batch.entries) % YIELD_EVERY == 0:
                await asyncio.sleep(0)
        await self._resolve(batch)
        return batch

    async def _resolve(self, batch: Batch) -> None:
        """Add what becomes of the pods that wait at Permit no longer."""
        if not self.scheduler.has_permits:
            return
        for decision in await self.runner.run(partial(self.scheduler.resolve, self.at_ns)):
            batch.add_resolved(decision, self.at_ns)

    def _decide_with_answers(
        self, head: Head, now_ns: int
    ) -> tuple[Decision, Sequence[scheduler_pb2.ExtenderAnswer]]:
        answers = self.extenders.answers
        answers.begin(head.pop.uid, head.attempts)
        return self.scheduler.decide(head, now_ns), answers.recorded()

    async def _commit(self, batch: Batch, outcomes: scheduler_pb2.RoundOutcomes) -> int:
        """Commit a batch, write its outcomes, and return the number of pods that were tried."""
        reply = await self._foreseen_queue.commit(batch, self._batch_size)
        self._heads = reply.heads
        self._check_heads()
        accepted, taken_back = reply.accepted, batch.entries[len(reply.accepted) :]
        self.scheduler.undo([entry.decision for entry in taken_back])
        _note_exchange(outcomes, reply.exchange_ns, len(batch.entries))
        outcomes.ClearField("next_wakeup_time_ns")
        wakeups_ns = (reply.wakeup_ns, self.scheduler.waiting.next_deadline_ns)
        due_ns = [wakeup_ns for wakeup_ns in wakeups_ns if wakeup_ns is not None]
        if due_ns:
            outcomes.next_wakeup_time_ns = min(due_ns)
        outcomes.awaits_effects = bool(accepted) and accepted[-1].decision is batch.awaited
        if self._metrics is not None:
            for entry in (*accepted, *batch.resolved):
                self._metrics.absorb(entry.decision, entry.wall_ns, entry.at_ns)
        return put_outcomes((*accepted, *batch.resolved), outcomes)

    def _check_heads(self) -> None:
        """Raise UnavailableError for a head that is not a pod of the session."""
        if self._traits.returns_deleted_pods:
            return
        for index, head in enumerate(self._heads):
            if head.pop.uid not in self.scheduler.pods:
                raise self.queue.answers_wrongly(
                    f"heads[{index}].pop.uid: {head.pop.uid!r}: no pod has this uid"
                )

    # What a checkpoint keeps beside the core

    @property
    def state(self) -> SessionState:
        """Return the session's own state between rounds."""
        heads, uids = tuple(self._heads), tuple(self.intake.uids.items())
        return SessionState(self.at_ns, heads, uids, self._foreseen_queue.known)

    def resume(self, messages: Iterable[pod_pb2.Pod], state: SessionState) -> None:
        """Restore another session's own state; the core is restored already."""
        self.intake.messages.update((message.metadata.uid, message) for message in messages)
        self.intake.uids.update(state.uids)
        self.at_ns, self._heads = state.at_ns, state.heads
        self._foreseen_queue.known = state.queue


def _note_exchange(
    outcomes: scheduler_pb2.RoundOutcomes, exchange_ns: int | None, pods: int = 0
) -> None:
    """Add an exchange with the queue to outcomes, if there was one."""
    if exchange_ns is not None:
        outcomes.phases.add(name="queueExchange", wall_duration_ns=exchange_ns, pods=pods)
        outcomes.queue_exchanges += 1


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
