"""The queue's heads without an exchange, where they follow from what the queue was sent.

Two things follow. A batch that tries all pods that can be popped leaves none, and while none can be
popped, the next heads are the pods that are added, in QueueSort's order, each with attempt 1 and
the next scheduling cycle. Where other pods wait, for an event or a timer, the queue has said with
its last answer when its next flush moves one (AfterAttempts); a queue that does not say it is asked
as soon as a pod waits. Everything else is asked for: an update may open a gate, a move may wake a
pod, a flush may end a backoff, an error begins one.

What the queue is sent names each pop with its cycle, so that a queue with other heads ends the
session with an error and never leads to another decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reprieve.queue.v1beta1 import queue_pb2
from services.scheduler.batch import AfterAttempts, Batch, BatchEntry, Queue, QueueReply
from services.scheduler.core.decisions import Binding
from services.scheduler.core.queueing.steps import CommitUnschedulable, Head, PopId
from services.scheduler.core.session.scheduler import Scheduler

_OF_PLAIN_ATTEMPTS = frozenset(
    {"commit_pop", "commit_unschedulable", "nominate", "delete_nomination"}
)
"""The operations of attempts that bind pods or leave them unschedulable."""


@dataclass(frozen=True, slots=True)
class KnownQueue:
    """What a session knows of its queue.

    `shown` is the number of heads that the queue has, None if only the queue can tell. These are
    all poppable pods, unless the queue returned as many as were requested. `wakeup_ns` is when
    another pod may become poppable, None if no pod waits. `cycle` is that of the last pop. `after`
    follows once all heads have been tried, at `after_ns`, None if it is unknown. `bound` are the
    UIDs of pods that were popped and bound, until their deletion: none of them is in a sub-queue.
    """

    shown: int | None = 0
    wakeup_ns: int | None = None
    cycle: int = 0
    after: AfterAttempts | None = None
    after_ns: int = 0
    bound: Sequence[str] = ()


class ForeseenHeads:
    """A queue's session that derives the next heads from the last reply where it can."""

    def __init__(self, queue: Queue, core: Scheduler) -> None:
        self._queue = queue
        self._core = core
        self.known = KnownQueue()

    @property
    def known(self) -> KnownQueue:
        """What is known of the queue, to be restored in another session."""
        return KnownQueue(
            shown=self._shown,
            wakeup_ns=self._wakeup_ns,
            cycle=self._cycle,
            after=self._after,
            after_ns=self._after_ns,
            bound=tuple(self._bound),
        )

    @known.setter
    def known(self, known: KnownQueue) -> None:
        self._shown, self._wakeup_ns, self._cycle = known.shown, known.wakeup_ns, known.cycle
        self._after, self._after_ns = known.after, known.after_ns
        self._bound = dict.fromkeys(known.bound)

    async def commit(self, batch: Batch, heads_max: int) -> QueueReply:
        """Commit a batch as the queue's session does, without an exchange if that is possible."""
        reply = self._tried(batch, heads_max) if batch.entries else self._added(batch, heads_max)
        if reply is None:
            reply = await self._queue.commit(batch, heads_max)
            self._after_ns = batch.at_ns
        else:
            await self._queue.post(batch.operations)
        if reply.accepted:
            self._cycle = reply.accepted[-1].decision.head.pop.cycle
            for entry in reply.accepted:
                if isinstance(entry.decision.verdict, Binding):
                    self._bound[entry.decision.head.pop.uid] = None
        self._shown, self._wakeup_ns, self._after = len(reply.heads), reply.wakeup_ns, reply.after
        return reply

    async def post(self, operations: Sequence[queue_pb2.Operation]) -> None:
        """Send a part of a round: what it leaves in the queue is not known."""
        self._pods_added(operations)
        await self._queue.post(operations)
        self._shown = self._wakeup_ns = self._after = None

    def _tried(self, batch: Batch, heads_max: int) -> QueueReply | None:
        """Return the reply to attempts where it follows: no pod is left that can be popped."""
        kinds = {operation.WhichOneof("operation") for operation in batch.operations}
        if batch.resolved or not (self._shown == len(batch.entries) < heads_max):
            return None
        if not (kinds <= _OF_PLAIN_ATTEMPTS and all(map(_is_plain, batch.entries))):
            return None
        after, any_refused = self._after, "commit_unschedulable" in kinds
        if after is None:  # The queue does not say it: nothing waits if nothing did.
            empties = self._wakeup_ns is None and not any_refused
            return QueueReply(heads=(), accepted=batch.entries) if empties else None
        wakeup_ns = after.wakeup_ns
        if any_refused:
            # A refusal at a later time than the queue was asked for ends later, so that it decides
            # nothing where another pod's end comes first.
            if batch.at_ns != self._after_ns and wakeup_ns != after.refused_wakeup_ns:
                return None
            wakeup_ns = after.refused_wakeup_ns
            after = AfterAttempts(wakeup_ns, wakeup_ns)
        if wakeup_ns is not None and wakeup_ns < batch.at_ns:
            return None
        return QueueReply(heads=(), accepted=batch.entries, wakeup_ns=wakeup_ns, after=after)

    def _added(self, batch: Batch, heads_max: int) -> QueueReply | None:
        """Return the reply to a round's operations where it follows: no other pod can be popped."""
        added = self._pods_added(batch.operations)
        if added is None or self._shown != 0 or not self._queue.foreseeable_heads:
            return None
        if self._wakeup_ns is not None and (self._after is None or self._wakeup_ns < batch.at_ns):
            return None
        # A pod in flight waits for its pop to be done: it was deleted and has come again.
        in_flight = {decision.head.pop.uid for decision in self._core.unanswered()}
        in_flight.update(pop.uid for pop, _ in self._core.assumed())
        if len(added) >= heads_max or not added.keys().isdisjoint(in_flight):
            return None
        pods = self._core.pods
        order = sorted(added.items(), key=lambda pod: (-pods[pod[0]].priority, pod[1]))
        heads = [
            Head(PopId(uid, cycle), 1, at_ns, at_ns)
            for cycle, (uid, at_ns) in enumerate(order, self._cycle + 1)
        ]
        return QueueReply(heads, (), self._wakeup_ns, after=self._after)

    def _pods_added(self, operations: Sequence[queue_pb2.Operation]) -> dict[str, int] | None:
        """Return the times at which pods are added that stay; None if another pod may be moved."""
        added: dict[str, int] = {}
        is_known, some_wait = True, self._wakeup_ns is not None
        for operation in operations:
            match operation.WhichOneof("operation"):
                # A gated pod is no head, and only the queue compares sort keys.
                case "add" if not (operation.add.gates or operation.add.sort_key):
                    added[operation.add.pod.metadata.uid] = operation.time_ns
                case "delete_pod":
                    uid = operation.delete_pod.uid
                    # The next wakeup may be that of the pod which is deleted.
                    if added.pop(uid, None) is None and uid not in self._bound and some_wait:
                        is_known = False
                    self._bound.pop(uid, None)
                case "add_unschedulable":
                    self._bound.pop(operation.add_unschedulable.pop.uid, None)
                    is_known = False
                case "update":
                    self._bound.pop(operation.update.pod.metadata.uid, None)
                    is_known = False
                case "done":
                    pass
                case _:
                    is_known = False
        return added if is_known else None


def _is_plain(entry: BatchEntry) -> bool:
    """Return whether an attempt leaves its pod bound or unschedulable, without a timer."""
    step = entry.decision.steps[0]
    if isinstance(step, CommitUnschedulable):
        return bool(step.why.plugins) and not (step.why.pending_plugins or step.why.is_error)
    return isinstance(entry.decision.verdict, Binding)
