"""One scheduler session: rounds in, outcomes out, the queue behind it.

A round's answers and events become queue steps; then heads are decided in batches, and each batch
is committed in one exchange. The queue says how far it went along; what was decided beyond that is
taken back and decided anew. A batch's size therefore changes speed and never a decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter_ns

from reprieve.kube.v1alpha1 import object_pb2, object_ref_pb2, pod_pb2
from reprieve.queue.v1alpha1 import queue_pb2
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from services.rpc.errors import FieldError, TimeGoesBackwardsError
from services.scheduler import cluster_events
from services.scheduler.cluster_events import (
    PatchPod,
    PutBudget,
    PutNode,
    PutOther,
    PutPod,
    Remove,
    Tick,
    Timed,
    Unread,
)
from services.scheduler.codec import MAY_WAIT, STAGES, StepEncoder, head_from_message, put_outcome
from services.scheduler.core.decisions import Binding, Decision, Skipped, Stage
from services.scheduler.core.events_labels import ClusterEvent
from services.scheduler.core.events_operations import Move
from services.scheduler.core.options import Options
from services.scheduler.core.queue_steps import Flush, Head, PopId, QueueStep
from services.scheduler.core.registry import SERVED, Registry
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.deciding import Deciding
from services.scheduler.extenders.answers import Answers
from services.scheduler.extenders.connect import Connected
from services.scheduler.extenders.sources import Sources
from services.scheduler.queue_client import QueueSession

SECOND_NS = 1_000_000_000
LEFTOVER_NS = 30 * SECOND_NS
BATCH_SIZE = 256
YIELD_EVERY = 64
"""Decisions after which health checks may answer."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A decision, its first operation's place in the batch, and what it took on the wall.

    `answers` are those of extenders.
    """

    decision: Decision
    begin: int
    wall_ns: int
    answers: Sequence[scheduler_pb2.ExtenderAnswer]


@dataclass(frozen=True, slots=True)
class Edge:
    """When the last round was, what the queue showed last, and the pods' uids by name.

    That is its heads, and when it wanted a tick.
    """

    at_ns: int
    heads: Sequence[queue_pb2.Head]
    uids: dict[tuple[str, str], str]
    wakeup_ns: int


class SchedulerSession:
    """A scheduler core, the messages of its pods and of other objects, and its queue's session.

    `config` is what the session was opened with, defaults filled in. `registry` makes the plugins,
    and `sources` has what `extenders` are sent. `answers` has what they answer.
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
        self.messages: dict[str, pod_pb2.Pod] = {}
        self._sources = sources if options.extenders else None
        if self._sources is not None:
            self._sources.pods = self.messages
        self.others: dict[tuple[str, str, str], object_pb2.Object] = {}
        self._decoder = cluster_events.Decoder()
        self._uids: dict[tuple[str, str], str] = {}
        self._encoder = StepEncoder(
            self.messages,
            self.core.sort_key,
            self.core.namespace_labels,
            self.core.reads_objects if options.queue.has_hints else _never,
        )
        self._counts_moves = not options.queue.has_hints
        self._batch_size = config.batch_size or BATCH_SIZE
        self._at_ns = -(2**63)
        self._batch: list[_Taken] = []
        self._heads: Sequence[queue_pb2.Head] = ()
        self._wakeup_ns = 0
        self.broken = ""

    async def run_round(self, round_: scheduler_pb2.Round) -> scheduler_pb2.RoundOutcomes:
        """Take a round. Raises a refusal before anything is changed.

        What fails after that leaves scheduler and queue apart: `broken` says so from then on.
        """
        changes = self._decode(round_)
        if self._sources is not None:
            self._sources.take(round_)
        self.answers.know(round_.recorded, anew=round_.at_ns != self._at_ns)
        self._at_ns = round_.at_ns
        outcomes = scheduler_pb2.RoundOutcomes()
        try:
            operations = list(self._take_answers(round_))
            for timed in changes:
                operations += self._take_change(timed)
            await self._schedule(round_, operations, outcomes)
        except BaseException as error:
            self.broken = str(error) or type(error).__name__
            raise
        return outcomes

    # What a checkpoint keeps beside the core

    @property
    def edge(self) -> Edge:
        """Return what the session itself remembers between rounds."""
        return Edge(self._at_ns, tuple(self._heads), dict(self._uids), self._wakeup_ns)

    @property
    def decoder(self) -> cluster_events.Decoder:
        """Return what reads the session's objects, so that equal specs are one value."""
        return self._decoder

    def keep(self, message: object_pb2.Object) -> None:
        """Keep the message of an object that the core keeps by its value."""
        self.others[_other_key(message)] = message

    def resume(self, messages: Iterable[pod_pb2.Pod], edge: Edge) -> None:
        """Go on where another session stood whose core this one's core has recalled."""
        self.messages.update((message.metadata.uid, message) for message in messages)
        self._at_ns, self._heads, self._uids = edge.at_ns, edge.heads, edge.uids
        self._wakeup_ns = edge.wakeup_ns

    # Events

    def _decode(self, round_: scheduler_pb2.Round) -> list[Timed]:
        if round_.at_ns < 0:
            raise FieldError("round.at_ns", f"{round_.at_ns} ns lies before the Unix epoch")
        if round_.window_end_ns > round_.at_ns:
            raise FieldError("round.window_end_ns", "windows are not served yet: leave it 0")
        last_ns = self._check_answers(round_)
        changes: list[Timed] = []
        for index, event in enumerate(round_.events):
            field = f"round.events[{index}]"
            last_ns = _in_turn(f"{field}.at_ns", event.at_ns, last_ns, round_.at_ns)
            changes.append(Timed(event.at_ns, self._decoder.decode(event, field)))
        return changes

    def _check_answers(self, round_: scheduler_pb2.Round) -> int:
        """Return the time from which events may come, that of the last answer that tells one.

        Raises a refusal for a malformed answer; one of an unknown pop may be a retried one.
        """
        last_ns = self._at_ns
        for index, answer in enumerate(round_.answers):
            field = f"round.answers[{index}]"
            if answer.HasField("at_ns"):
                last_ns = _in_turn(f"{field}.at_ns", answer.at_ns, last_ns, round_.at_ns)
            if not answer.pop.uid:
                raise FieldError(f"{field}.pop.uid", "is required")
            if answer.refused not in STAGES:
                raise FieldError(f"{field}.refused", "is no stage known here")
            if STAGES[answer.refused] is not Stage.DELETE_VICTIM:
                continue
            deletions = self._deletions(PopId(answer.pop.uid, answer.pop.cycle))
            if deletions is not None and answer.victim.uid not in deletions:
                raise FieldError(
                    f"{field}.victim.uid",
                    f"{answer.victim.uid!r} is none of the pods whose deletion was asked for",
                )
        return last_ns

    def _take_answers(self, round_: scheduler_pb2.Round) -> Iterator[queue_pb2.Operation]:
        for answer in round_.answers:
            pop = PopId(answer.pop.uid, answer.pop.cycle)
            stage = STAGES[answer.refused]
            for step in self.core.answer(pop, stage):
                at_ns = answer.at_ns if answer.HasField("at_ns") else round_.at_ns
                yield self._encoder.operation(step, at_ns)

    def _deletions(self, pop: PopId) -> list[str] | None:
        """Return the uids whose deletion a pop's decision asks for, None for an unknown pop."""
        for decision in self.core.unanswered():
            if decision.head.pop == pop:
                nomination = decision.nomination
                return [pod.uid for pod in nomination.deletions] if nomination else []
        return None

    def _take_change(self, timed: Timed) -> list[queue_pb2.Operation]:
        steps: Sequence[QueueStep] = ()
        old: pod_pb2.Pod | None = None
        match timed.change:
            case PutPod(pod=pod, message=message):
                old = self.messages.get(pod.uid)
                self.messages[pod.uid] = message
                self._uids[pod.namespace, pod.name] = pod.uid
                steps = self.core.put_pod(pod)
            case PatchPod():
                old, steps = self._patch(timed.change)
            case PutNode(node=node):
                steps = self.core.put_node(node)
            case PutBudget(budget=budget):
                steps = self.core.put_budget(budget)
            case PutOther(value=value, message=other):
                steps = self.core.put_object(value)
                self.keep(other)
            case Remove(ref=ref):
                steps = self._remove(ref)
            case Tick():
                steps = _flushes(timed.at_ns)
            case Unread():
                pass
        told = (step for step in steps if self._is_told(step))
        return [self._encoder.operation(step, timed.at_ns, old) for step in told]

    def _is_told(self, step: QueueStep) -> bool:
        """Tell whether a step may change the queue; a move does not where it is not heard.

        The older modes count moves.
        """
        return not isinstance(step, Move) or self._counts_moves or self.core.is_heard()

    def _patch(self, change: PatchPod) -> tuple[pod_pb2.Pod | None, Sequence[QueueStep]]:
        """Apply a patch; one of an unknown pod is passed over, as a late watch event is."""
        uid = change.patch.pod.uid
        pod, message = self.core.pods.get(uid), self.messages.get(uid)
        if pod is None or message is None:
            return None, ()
        old: pod_pb2.Pod | None = None
        if not pod.node_name:
            old = pod_pb2.Pod()
            old.CopyFrom(message)
        cluster_events.apply_patch(message, change.patch)
        return old, self.core.put_pod(change.applied_to(pod))

    def _remove(self, ref: object_ref_pb2.ObjectRef) -> Sequence[QueueStep]:
        match ref.kind:
            case "Pod":
                uid = ref.uid or self._uids.get((ref.namespace, ref.name), "")
                steps = self.core.remove_pod(uid)
                self.messages.pop(uid, None)
                if self._uids.get((ref.namespace, ref.name)) == uid:
                    del self._uids[ref.namespace, ref.name]
                return steps
            case "Node":
                return self.core.remove_node(ref.name)
            case "PodDisruptionBudget":
                return self.core.remove_budget(ref.namespace, ref.name)
            case _:
                self.others.pop((ref.kind, ref.namespace, ref.name), None)
                return self.core.remove_object(ref.kind, ref.namespace, ref.name)

    # Scheduling

    async def _schedule(
        self,
        round_: scheduler_pb2.Round,
        operations: list[queue_pb2.Operation],
        outcomes: scheduler_pb2.RoundOutcomes,
    ) -> None:
        if round_.events_only:
            await self.queue.post(operations)
            self._heads = ()
            return
        left = most = round_.max_pods or 2**31
        self.deciding.begin()
        while left > 0:
            if self._is_foregone():
                await self.queue.post(operations)
                self._heads = ()
                self._settle(len(operations), round_, outcomes)
                break
            if operations or not self._heads:
                left -= await self._exchange(operations, round_, outcomes)
            if not self._heads or (left < most and self.deciding.is_due):
                break
            count = min(self._batch_size, left)
            operations = await self._decide(self._heads[:count], round_.at_ns)
        outcomes.more = bool(self._heads)
        if not outcomes.more:
            outcomes.may_wait = MAY_WAIT[self.core.may_wait()]

    def _is_foregone(self) -> bool:
        """Tell whether the queue's answer to what was decided is known: it is empty then.

        That is so where it showed all that it had, waits for nothing, and every pod of it is bound.
        """
        shown = len(self._heads)
        return (
            0 < shown < self._batch_size
            and shown == len(self._batch)
            and not self._wakeup_ns
            and all(isinstance(taken.decision.verdict, Binding) for taken in self._batch)
        )

    async def _exchange(
        self,
        operations: list[queue_pb2.Operation],
        round_: scheduler_pb2.Round,
        outcomes: scheduler_pb2.RoundOutcomes,
    ) -> int:
        """Commit what was decided, look at the next heads, and count what the queue accepted."""
        began = perf_counter_ns()
        reply = await self.queue.exchange(operations, self._batch_size)
        taken_ns = perf_counter_ns() - began
        outcomes.phases.add(name="queueExchange", wall_ns=taken_ns, pods=len(self._batch))
        outcomes.queue_exchanges += 1
        outcomes.next_wakeup_ns = reply.next_wakeup_ns
        self._heads, self._wakeup_ns = reply.heads, reply.next_wakeup_ns
        return self._settle(reply.applied, round_, outcomes)

    async def _decide(
        self, heads: Sequence[queue_pb2.Head], now_ns: int
    ) -> list[queue_pb2.Operation]:
        """Decide heads in order and return what the queue is told, with `_batch` beside it."""
        operations: list[queue_pb2.Operation] = []
        self._batch = []
        for message in heads:
            began = perf_counter_ns()
            decision, answers = await self._decision(head_from_message(message), now_ns)
            begin = len(operations)
            operations += [self._encoder.operation(step, now_ns) for step in decision.steps]
            taken_ns = perf_counter_ns() - began
            self._batch.append(_Taken(decision, begin, taken_ns, answers))
            if self.deciding.is_due:
                break
            if len(self._batch) % YIELD_EVERY == 0:
                await asyncio.sleep(0)
        return operations

    async def _decision(
        self, head: Head, now_ns: int
    ) -> tuple[Decision, Sequence[scheduler_pb2.ExtenderAnswer]]:
        if not self.deciding.blocks:
            return self.core.decide(head, now_ns), ()
        return await self.deciding.run(lambda: self._asked(head, now_ns))

    def _asked(
        self, head: Head, now_ns: int
    ) -> tuple[Decision, Sequence[scheduler_pb2.ExtenderAnswer]]:
        """Return a decision with what extenders answered for it."""
        self.answers.begin(head.pop.uid, head.attempts)
        return self.core.decide(head, now_ns), self.answers.taken()

    def _settle(
        self, applied: int, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes
    ) -> int:
        """Keep the decisions whose pop the queue accepted, take the others back; count the kept."""
        kept = [taken for taken in self._batch if taken.begin < applied]
        self.core.undo([taken.decision for taken in self._batch[len(kept) :]])
        for taken in kept:
            if not isinstance(taken.decision.verdict, Skipped):
                told = outcomes.outcomes.add()
                put_outcome(taken.decision, round_.at_ns, taken.wall_ns, told)
                told.extender_answers.extend(taken.answers)
        self._batch = []
        return len(kept)


def _in_turn(field: str, at_ns: int, last_ns: int, round_ns: int) -> int:
    """Return `at_ns`. Raises TimeGoesBackwardsError where it is not between the two others."""
    if not last_ns <= at_ns <= round_ns:
        raise TimeGoesBackwardsError(
            f"{field}: {at_ns} ns lies before what was told before it or after the round's "
            f"{round_ns} ns"
        )
    return at_ns


def _never(_event: ClusterEvent) -> bool:
    return False


def _other_key(message: object_pb2.Object) -> tuple[str, str, str]:
    content = getattr(message, message.WhichOneof("object") or "")
    return (content.DESCRIPTOR.name, content.metadata.namespace, content.metadata.name)


def _flushes(at_ns: int) -> Sequence[QueueStep]:
    """Return what is due at a tick; upstream's queue flushes leftovers every 30 s."""
    backoff, leftover = Flush(leftover=False), Flush(leftover=True)
    return (backoff, leftover) if at_ns % LEFTOVER_NS == 0 else (backoff,)
