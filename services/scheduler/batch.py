"""A batch for the queue: the operations of one exchange, and the decisions that they commit.

Consecutive refusals change nothing but their pods' place in the queue: they share one operation,
which holds each reason once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.scheduler.core.decisions import Decision
from services.scheduler.core.queueing.steps import CommitUnschedulable, Head, WhyFailed
from services.scheduler.step_encoder import StepEncoder, put_why

Place = tuple[int, int]
"""Where in a batch a decision begins: the place of its operation, and of its pod within that."""


class BatchEntry(NamedTuple):
    """A decision that was made at `at_ns`, and its place in the batch.

    `wall_ns` is what its whole cycle took, `answers` are the extenders'.
    """

    decision: Decision
    at_ns: int
    begin: Place
    wall_ns: int
    answers: Sequence[scheduler_pb2.ExtenderAnswer]


class AfterAttempts(NamedTuple):
    """The next wakeups, ns, once all of a reply's heads have been tried; None for none.

    wakeup_ns: where all were bound. refused_wakeup_ns: where plugins refused at least one.
    Source: AfterAttempts of queue_service.proto.
    """

    wakeup_ns: int | None
    refused_wakeup_ns: int | None


class QueueReply(NamedTuple):
    """The queue's reply to a batch.

    `heads` are the pods that are next, in order, and `wakeup_ns` is when another one may be.
    `accepted` are the batch's entries up to the first decision that the queue did not accept.
    `exchange_ns` is the wall time of the exchange; None if the reply followed without one.
    `after` is the queue's state after attempts of the heads, None if it is unknown.
    """

    heads: Sequence[Head]
    accepted: Sequence[BatchEntry]
    wakeup_ns: int | None = None
    exchange_ns: int | None = None
    after: AfterAttempts | None = None


class Batch:
    """Operations for the queue, in order: the changes of a round, or commits of `entries`.

    `at_ns` is the time of the round. `awaited` is the decision whose effects the next attempt must
    see, if there is one. `resolved` are decisions about pods that waited at Permit, whose pops were
    committed before.
    """

    def __init__(
        self, encoder: StepEncoder, at_ns: int, operations: Iterable[queue_pb2.Operation] = ()
    ) -> None:
        self.at_ns = at_ns
        self.operations = [*operations]
        self._encoder = encoder
        self.entries: list[BatchEntry] = []
        self.resolved: list[BatchEntry] = []
        self.awaited: Decision | None = None
        self._run: queue_pb2.CommitUnschedulable | None = None
        self._reasons: dict[WhyFailed, int] = {}

    def before(self) -> Batch:
        """Return a batch of the same time that changes nothing."""
        return Batch(self._encoder, self.at_ns)

    def add(
        self,
        decision: Decision,
        at_ns: int,
        wall_ns: int = 0,
        answers: Sequence[scheduler_pb2.ExtenderAnswer] = (),
    ) -> None:
        """Append a decision that was made at `at_ns`."""
        steps = decision.steps
        first = steps[0]
        if type(first) is CommitUnschedulable:
            begin, steps = self._add_unschedulable(first, at_ns), steps[1:]
        else:
            begin = (len(self.operations), 0)
        for step in steps:
            self.operations.append(self._encoder.operation(step, at_ns))
            self._run = None
        self.entries.append(BatchEntry(decision, at_ns, begin, wall_ns, answers))

    def add_resolved(self, decision: Decision, at_ns: int) -> None:
        """Append what became of a pod that waited at Permit."""
        begin = (len(self.operations), 0)
        self.operations += [self._encoder.operation(step, at_ns) for step in decision.steps]
        self._run = None
        self.resolved.append(BatchEntry(decision, at_ns, begin, 0, ()))

    def _add_unschedulable(self, step: CommitUnschedulable, at_ns: int) -> Place:
        run = self._run
        if run is None:
            operation = queue_pb2.Operation(time_ns=at_ns)
            self.operations.append(operation)
            run = self._run = operation.commit_unschedulable
            run.first_cycle = step.pop.cycle
            self._reasons.clear()
        reason = self._reasons.get(step.why)
        if reason is None:
            reason = self._reasons[step.why] = len(self._reasons)
            put_why(step.why, run.failures.add())
        run.uids.append(step.pop.uid)
        run.failure_indexes.append(reason)
        return (len(self.operations) - 1, len(run.uids) - 1)

    def accepted(self, operations: int, pods: int) -> Sequence[BatchEntry]:
        """Return the entries that a queue accepts.

        It applied the first `operations`, and of the next one the first `pods`.
        """
        return [entry for entry in self.entries if entry.begin < (operations, pods)]


class Queue(Protocol):
    """A queue's session as rounds use it.

    `foreseeable_heads` says whether it promises its next heads while no pod waits.
    """

    foreseeable_heads: bool

    async def commit(self, batch: Batch, heads_max: int) -> QueueReply:
        """Apply a batch, and return which entries were accepted, and up to `heads_max` heads.

        Raises UnavailableError.
        """

    async def post(
        self, operations: Sequence[queue_pb2.Operation], *, more_follow: bool = False
    ) -> None:
        """Apply operations of which none may be refused. Raises UnavailableError, also later.

        more_follow: others for the same pods follow, so that they had better wait for these.
        """
