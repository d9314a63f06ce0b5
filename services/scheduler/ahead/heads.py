"""The queue's heads without an exchange, where they follow from what the queue was sent.

Two things follow. A batch that binds every pod that waits leaves nothing, unless a timer of the
queue is running. And while nothing waits, the next heads are the pods that are added, in
QueueSort's order, each with attempt 1 and the next scheduling cycle. Everything else is asked for:
an update may open a gate, a move may wake a pod, a flush may end a backoff.

What the queue is sent names each pop with its cycle, so that a queue with other heads ends the
session with an error and never leads to another decision.
"""

from __future__ import annotations

from collections.abc import Sequence

from reprieve.queue.v1beta1 import queue_pb2
from services.scheduler.batch import Batch, Queue, QueueReply
from services.scheduler.core.queueing.steps import Head, PopId
from services.scheduler.core.session.scheduler import Scheduler


class ForeseenHeads:
    """A queue's session that derives the next heads from the last reply where it can.

    `shown` is the number of heads that the queue has, None if only the queue can tell. These are
    all poppable pods, unless the queue returned as many as were requested. `wakeup_ns` is when
    another pod may become poppable, None if no pod waits. `cycle` is that of the last pop.
    """

    def __init__(self, queue: Queue, core: Scheduler) -> None:
        self._queue = queue
        self._core = core
        self.shown: int | None = 0
        self.wakeup_ns: int | None = None
        self.cycle = 0

    @property
    def is_empty(self) -> bool:
        """Return whether no pod waits in the queue."""
        return self.shown == 0 and self.wakeup_ns is None

    async def commit(self, batch: Batch, heads_max: int) -> QueueReply:
        """Commit a batch as the queue's session does, without an exchange if that is possible."""
        reply = self._foreseen(batch, heads_max)
        if reply is None:
            reply = await self._queue.commit(batch, heads_max)
        else:
            await self._queue.post(batch.operations)
        if reply.accepted:
            self.cycle = reply.accepted[-1].decision.head.pop.cycle
        self.shown, self.wakeup_ns = len(reply.heads), reply.wakeup_ns
        return reply

    async def post(self, operations: Sequence[queue_pb2.Operation]) -> None:
        """Send a part of a round: what it leaves in the queue is not known."""
        await self._queue.post(operations)
        self.shown = self.wakeup_ns = None

    def _foreseen(self, batch: Batch, heads_max: int) -> QueueReply | None:
        """Return the reply to a batch where it follows."""
        if self.wakeup_ns is not None:
            return None
        if batch.entries:
            is_plain = batch.all_bound and not batch.resolved
            empties = self.shown == len(batch.entries) < heads_max and is_plain
            return QueueReply(heads=(), accepted=batch.entries) if empties else None
        if self.shown != 0 or not self._queue.foreseeable_heads:
            return None
        return self._after_adding(batch.operations, heads_max)

    def _after_adding(
        self, operations: Sequence[queue_pb2.Operation], heads_max: int
    ) -> QueueReply | None:
        """Return the reply to a round's operations while no pod waits, where it follows."""
        added: dict[str, int] = {}
        for operation in operations:
            match operation.WhichOneof("operation"):
                # A gated pod is no head, and only the queue compares sort keys.
                case "add" if not (operation.add.gates or operation.add.sort_key):
                    added[operation.add.pod.metadata.uid] = operation.time_ns
                case "delete_pod":
                    added.pop(operation.delete_pod.uid, None)
                case "done":
                    pass
                case _:
                    return None
        # A pod in flight waits for its pop to be done: it was deleted and has come again.
        in_flight = {decision.head.pop.uid for decision in self._core.unanswered()}
        in_flight.update(pop.uid for pop, _ in self._core.assumed())
        if len(added) >= heads_max or not added.keys().isdisjoint(in_flight):
            return None
        pods = self._core.pods
        order = sorted(added.items(), key=lambda pod: (-pods[pod[0]].priority, pod[1]))
        return QueueReply(
            heads=[
                Head(PopId(uid, cycle), 1, at_ns, at_ns)
                for cycle, (uid, at_ns) in enumerate(order, self.cycle + 1)
            ],
            accepted=(),
        )
