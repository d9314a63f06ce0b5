"""A batch of operations: all of it is checked before the first is applied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reprieve.queue.v1beta1 import queue_pb2, queue_service_pb2
from services.queue.checkpoint import QueueSession
from services.queue.config_codec import TIME_NS_MAX
from services.queue.core.results import NotNext
from services.queue.core.scheduling_queue import SchedulingQueue
from services.queue.operations import Step, read_operation, result_message
from services.queue.reader import QueueReader
from services.rpc.errors import FieldError, TimeGoesBackwardsError
from services.rpc.parts import PART_BYTES
from services.rpc.sessions import Session


class Clock:
    """The times of one request's operations, which never go back.

    In a live session 0 stands for the request's arrival, or for the last operation's time where
    the wall clock has gone back since.
    """

    __slots__ = ("_arrival_ns", "_last_ns")

    def __init__(self, last_ns: int, *, arrival_ns: int | None) -> None:
        self._last_ns = last_ns
        self._arrival_ns = arrival_ns

    def read(self, at_ns: int) -> int:
        """Return an operation's time; `at_ns` is the request's.

        Raises TimeGoesBackwardsError before the last operation, FieldError for no time at all.
        """
        if at_ns == 0 and self._arrival_ns is not None:
            at_ns = max(self._last_ns, self._arrival_ns)
        if at_ns < self._last_ns:
            raise TimeGoesBackwardsError(
                f"at_ns: {at_ns} ns lies before the last operation at {self._last_ns} ns",
                earliest_ns=self._last_ns,
            )
        if at_ns > TIME_NS_MAX:
            raise FieldError("at_ns", f"{at_ns} ns is later than any time: use at most 2^62 ns")
        self._last_ns = at_ns
        return at_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of a batch: `count` operations were applied, the last of them at `at_ns`."""

    count: int
    at_ns: int
    results: list[queue_pb2.OperationResult]


def read_batch(
    operations: Iterable[queue_pb2.Operation], clock: Clock, reader: QueueReader
) -> list[Step]:
    """Return the checked operations; a refusal names the operation by its place."""
    steps: list[Step] = []
    try:
        for message in operations:
            at_ns = clock.read(message.at_ns)
            kind, argument = read_operation(message, reader)
            steps.append((kind, argument, at_ns))
    except FieldError as error:
        raise FieldError(f"operations[{len(steps)}].{error.field}", error.problem) from None
    except TimeGoesBackwardsError as error:
        raise TimeGoesBackwardsError(
            f"operations[{len(steps)}].{error}", **error.metadata
        ) from None
    return steps


def apply_batch(queue: SchedulingQueue, steps: Sequence[Step], *, at_ns: int) -> Applied:
    """Apply the operations in order, until one commits a pod that is not next.

    `at_ns` is the time of the last operation before them. The results are the outcomes that are not
    plainly applied, and what Pop has popped; where they come to PART_BYTES, the rest is left.
    """
    size = 0
    results: list[queue_pb2.OperationResult] = []
    for index, (kind, argument, step_ns) in enumerate(steps):
        outcome = kind.apply(queue, argument, step_ns)
        if type(outcome) not in kind.untold:
            results.append(result_message(outcome, index))
            size += results[-1].ByteSize()
            if type(outcome) is NotNext:
                begun_ns = step_ns if outcome.committed else at_ns
                return Applied(count=index, at_ns=begun_ns, results=results)
        at_ns = step_ns
        if size > PART_BYTES:
            return Applied(count=index + 1, at_ns=at_ns, results=results)
    return Applied(count=len(steps), at_ns=at_ns, results=results)


def owners_of(request: queue_service_pb2.ApplyRequest) -> list[str]:
    """Return the owners that pop in `request`."""
    return [owner for each in request.operations if (owner := _owner(each))]


def _owner(operation: queue_pb2.Operation) -> str:
    match operation.WhichOneof("operation"):
        case "pop":
            return operation.pop.owner
        case "commit_pop":
            return operation.commit_pop.owner
    return ""


def give_back(session: Session[QueueSession], owners: Iterable[str], clock: Clock) -> None:
    """Give the pops of owners that have gone back to a live session's queue."""
    at_ns = clock.read(0)
    for owner in owners:
        session.core.queue.release_owner(owner, now_ns=at_ns)
    session.at_ns = at_ns
    session.core.revision += 1


def expire_leases(session: Session[QueueSession], at_ns: int) -> None:
    """Give back the pops whose owners have not been heard of in time."""
    if session.core.config.lease_ns:
        session.core.queue.expire_leases(now_ns=at_ns)
        session.at_ns = at_ns
