"""The queue's heads without an exchange, where they follow from what the queue was sent.

Two things follow. A batch that tries all pods that can be popped leaves none, and while none can be
popped, the next heads are the pods that are added, in QueueSort's order, each with attempt 1 and
the next scheduling cycle. Of those that are added together, more than a batch may have, each batch
leaves the others. Where other pods wait, for an event or a timer, the queue has said with its last
answer when its next flush moves one (AfterAttempts); a queue that does not say it is asked as soon
as a pod waits. Everything else is asked for: an update may open a gate, a move may wake a pod, a
flush may end a backoff, an error begins one.

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
    all poppable pods, unless the queue returned as many as were requested. `formed` are all
    poppable pods, in order, where they follow from what was added. `added` are the pods that a part
    of a round has added since, and when. `wakeup_ns` is when another pod may become poppable, None
    if no pod waits. `cycle` is that of the last pop. `after` follows once all heads have been
    tried, at `after_ns`, None if it is unknown. `bound` are the UIDs of pods that were popped and
    bound, until their deletion: none of them is in a sub-queue.
    """

    shown: int | None = 0
    formed: Sequence[Head] = ()
    added: Sequence[tuple[str, int]] = ()
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
            formed=self._formed,
            added=tuple(self._added.items()),
            wakeup_ns=self._wakeup_ns,
            cycle=self._cycle,
            after=self._after,
            after_ns=self._after_ns,
            bound=tuple(self._bound),
        )

    @known.setter
    def known(self, known: KnownQueue) -> None:
        self._shown, self._formed, self._added = known.shown, known.formed, dict(known.added)
        self._wakeup_ns, self._cycle = known.wakeup_ns, known.cycle
        self._after, self._after_ns = known.after, known.after_ns
        self._together = False
        self._bound = dict.fromkeys(known.bound)

    async def commit(self, batch: Batch, heads_max: int) -> QueueReply:
        """Commit a batch as the queue's session does, without an exchange if that is possible."""
        asked_ns = None if batch.entries else await self._foresee_refusals(batch, heads_max)
        reply = self._tried(batch, heads_max) if batch.entries else self._came(batch)
        if reply is None:
            reply = await self._queue.commit(batch, heads_max)
            self._after_ns = batch.at_ns
            self._formed, self._together = (), False
        else:
            self._formed = self._formed[len(batch.entries) :]
            self._together |= len(self._formed) > heads_max
            reply = reply._replace(heads=self._formed[:heads_max], exchange_ns=asked_ns)
            await self._post(batch.operations)
        self._added = {}
        if reply.accepted:
            self._cycle = reply.accepted[-1].decision.head.pop.cycle
            for entry in reply.accepted:
                if isinstance(entry.decision.verdict, Binding):
                    self._bound[entry.decision.head.pop.uid] = None
        self._shown, self._wakeup_ns, self._after = len(reply.heads), reply.wakeup_ns, reply.after
        return reply

    async def post(self, batch: Batch, heads_max: int) -> int | None:
        """Send a part of a round; what it leaves is known if it adds pods while none can be popped.

        `heads_max` is that of the commit that follows. Return the wall time of an exchange, ns, if
        there was one.
        """
        asked_ns = await self._foresee_refusals(batch, heads_max)
        if not (self._take_added(batch.operations) and self._is_empty(batch.at_ns)):
            self._shown = self._wakeup_ns = self._after = None
            self._formed, self._added = (), {}
        self._together |= bool(self._added)
        await self._post(batch.operations)
        return asked_ns

    async def _post(self, operations: Sequence[queue_pb2.Operation]) -> None:
        """Send operations; of pods that were added together, more follow until all are bound."""
        self._together = self._together and bool(self._added or self._formed or self._bound)
        await self._queue.post(operations, more_follow=self._together)

    async def _foresee_refusals(self, batch: Batch, heads_max: int) -> int | None:
        """Ask, before more pods come together than a batch may have, what follows a refusal.

        After they have been sent, only an answer that shows all of them could say it. Return the
        wall time of the exchange, ns, if there was one.
        """
        if len(batch.operations) < heads_max or self._added or not self._is_empty(batch.at_ns):
            return None
        if sum(operation.HasField("add") for operation in batch.operations) < heads_max:
            return None
        if self._after and self._after_ns == batch.at_ns:
            return None
        reply = await self._queue.commit(batch.before(), heads_max)
        self._shown, self._wakeup_ns, self._after = len(reply.heads), reply.wakeup_ns, reply.after
        self._after_ns = batch.at_ns
        return reply.exchange_ns

    def _is_empty(self, at_ns: int) -> bool:
        """Return whether no pod can be popped at a time but those that are added next."""
        if self._wakeup_ns is not None and (self._after is None or self._wakeup_ns < at_ns):
            return False
        return self._shown == 0 and self._queue.foreseeable_heads

    def _tried(self, batch: Batch, heads_max: int) -> QueueReply | None:
        """Return the reply to attempts where it follows: which pods are left that can be popped."""
        kinds = {operation.WhichOneof("operation") for operation in batch.operations}
        if batch.resolved or not (self._formed or self._shown == len(batch.entries) < heads_max):
            return None
        if not (kinds <= _OF_PLAIN_ATTEMPTS and all(map(_is_plain, batch.entries))):
            return None
        after, any_refused = self._after, "commit_unschedulable" in kinds
        if after is None:  # The queue does not say it: nothing waits if nothing did.
            is_known = self._wakeup_ns is None and not any_refused
            return QueueReply((), accepted=batch.entries) if is_known else None
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
        return QueueReply((), accepted=batch.entries, wakeup_ns=wakeup_ns, after=after)

    def _came(self, batch: Batch) -> QueueReply | None:
        """Return the reply to a round's operations where it follows: no other pod can be popped.

        The heads are in `_formed` then.
        """
        is_known, added = self._take_added(batch.operations), self._added
        if not (is_known and self._is_empty(batch.at_ns)):
            return None
        # A pod in flight waits for its pop to be done: it was deleted and has come again.
        in_flight = {decision.head.pop.uid for decision in self._core.unanswered()}
        in_flight.update(pop.uid for pop, _ in self._core.assumed())
        if not added.keys().isdisjoint(in_flight):
            return None
        pods = self._core.pods
        order = sorted(added.items(), key=lambda pod: (-pods[pod[0]].priority, pod[1]))
        self._formed = [
            Head(PopId(uid, cycle), 1, at_ns, at_ns)
            for cycle, (uid, at_ns) in enumerate(order, self._cycle + 1)
        ]
        return QueueReply((), (), self._wakeup_ns, after=self._after)

    def _take_added(self, operations: Sequence[queue_pb2.Operation]) -> bool:
        """Add pods that are added and stay to `_added`; return whether no other can be moved."""
        added = self._added
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
        return is_known


def _is_plain(entry: BatchEntry) -> bool:
    """Return whether an attempt leaves its pod bound or unschedulable, without a timer."""
    step = entry.decision.steps[0]
    if isinstance(step, CommitUnschedulable):
        return bool(step.why.plugins) and not (step.why.pending_plugins or step.why.is_error)
    return isinstance(entry.decision.verdict, Binding)
