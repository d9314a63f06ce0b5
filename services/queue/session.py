"""A session of the queue, and how a batch of operations is checked and applied.

All operations of a batch are checked before the first one is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from reprieve.queue.v1beta1 import queue_pb2, queue_service_pb2
from services.queue.config_codec import config_from_message
from services.queue.core.results import NotNext
from services.queue.core.rules.versions import QueueConfig
from services.queue.core.scheduling_queue import SchedulingQueue
from services.queue.metrics import QueueMetrics
from services.queue.operations import CheckedOperation, read_operation, result_message
from services.queue.reader import QueueReader
from services.rpc.errors import FieldError, TimeGoesBackwardsError
from services.rpc.parts import PART_BYTES
from services.rpc.session import Session, check_time_ns


@dataclass(slots=True, kw_only=True)
class QueueSession:
    """A session's state: its configuration as requested and in force, its queue and reader.

    In a live session operations need no time, and pops may have leases. `revision` counts
    changes, for WatchPending.
    """

    requested: queue_pb2.QueueConfig
    config: QueueConfig
    queue: SchedulingQueue
    reader: QueueReader
    live: bool = False
    revision: int = 0

    @classmethod
    def start(
        cls, requested: queue_pb2.QueueConfig, *, live: bool, metrics: QueueMetrics
    ) -> QueueSession:
        """Return a session with an empty queue. Raises FieldError for a refused configuration."""
        config = timed_config(requested, live=live, metrics=metrics)
        named = queue_pb2.QueueConfig()
        named.CopyFrom(requested)
        named.rules = config.version  # a later version of Reprieve may have another default
        return cls(
            requested=named,
            config=config,
            queue=SchedulingQueue(config),
            reader=QueueReader(config),
            live=live,
        )


def timed_config(
    requested: queue_pb2.QueueConfig, *, live: bool, metrics: QueueMetrics
) -> QueueConfig:
    """Return the configuration in force, whose hints `metrics` times. Raises FieldError."""
    config = config_from_message(requested, live=live)
    return replace(config, registrations=metrics.timed(config.registrations))


class RequestClock:
    """The times of one request's operations, which never go back.

    In a live session, an operation without a time gets the arrival time of its request, or the time
    of the last operation if the wall clock has been set back since.
    """

    __slots__ = ("_arrival_ns", "_last_ns")

    def __init__(self, last_ns: int, *, arrival_ns: int | None) -> None:
        self._last_ns = last_ns
        self._arrival_ns = arrival_ns

    def read(self, message: queue_pb2.Operation) -> int:
        """Return an operation's time in ns.

        Raises TimeGoesBackwardsError for a time before the last operation's; FieldError for a time
        above TIME_NS_MAX, and for a missing time in a session that is not live.
        """
        at_ns = message.time_ns
        if not at_ns and not message.HasField("time_ns"):
            if self._arrival_ns is None:
                raise FieldError("time_ns", "is required: only a live session has a clock")
            at_ns = max(self._last_ns, self._arrival_ns)
        if at_ns < self._last_ns:
            raise TimeGoesBackwardsError(
                f"time_ns: {at_ns} ns lies before the last operation at {self._last_ns} ns",
                earliest_time_ns=self._last_ns,
            )
        self._last_ns = check_time_ns("time_ns", at_ns)
        return at_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedBatch:
    """A batch's outcome: `count` operations were applied, the last of them at `at_ns`."""

    count: int
    at_ns: int
    results: list[queue_pb2.OperationResult]


def read_batch(
    operations: Iterable[queue_pb2.Operation], clock: RequestClock, reader: QueueReader
) -> list[CheckedOperation]:
    """Return the checked operations. Raises FieldError with a field operations[INDEX]..."""
    steps: list[CheckedOperation] = []
    try:
        for message in operations:
            at_ns = clock.read(message)
            kind, argument = read_operation(message, reader)
            steps.append((kind, argument, at_ns))
    except FieldError as error:
        raise FieldError(f"operations[{len(steps)}].{error.field}", error.problem) from None
    except TimeGoesBackwardsError as error:
        raise TimeGoesBackwardsError(
            f"operations[{len(steps)}].{error}", **error.metadata
        ) from None
    return steps


def apply_batch(
    queue: SchedulingQueue, steps: Sequence[CheckedOperation], *, at_ns: int
) -> AppliedBatch:
    """Apply the operations in order, up to a commit of a pod that is not next.

    `at_ns` is the time of the last operation before this batch. Results are the outcomes other than
    APPLIED, and popped pods; once they exceed PART_BYTES, no further operation is applied.
    """
    size = 0
    results: list[queue_pb2.OperationResult] = []
    for index, (kind, argument, step_ns) in enumerate(steps):
        outcome = kind.apply(queue, argument, step_ns)
        if type(outcome) not in kind.unreported:
            results.append(result_message(outcome, index))
            size += results[-1].ByteSize()
            if type(outcome) is NotNext:
                begun_ns = step_ns if outcome.committed else at_ns
                return AppliedBatch(count=index, at_ns=begun_ns, results=results)
        at_ns = step_ns
        if size > PART_BYTES:
            return AppliedBatch(count=index + 1, at_ns=at_ns, results=results)
    return AppliedBatch(count=len(steps), at_ns=at_ns, results=results)


def owners_of(request: queue_service_pb2.ApplyRequest) -> list[str]:
    """Return the owners that `request` pops for."""
    return [owner for operation in request.operations if (owner := _owner(operation))]


def _owner(operation: queue_pb2.Operation) -> str:
    match operation.WhichOneof("operation"):
        case "pop":
            return operation.pop.owner
        case "commit_pop":
            return operation.commit_pop.owner
    return ""


def release_owner(session: Session[QueueSession], owner: str, clock: RequestClock) -> None:
    """Undo the pops of an owner of a live session that has disconnected."""
    at_ns = clock.read(queue_pb2.Operation(release_owner=owner))
    session.content.queue.release_owner(owner, now_ns=at_ns)
    session.at_ns = at_ns
    session.content.revision += 1


def expire_leases(session: Session[QueueSession], at_ns: int) -> None:
    """Undo the pops whose lease has expired by `at_ns`."""
    if session.content.config.lease_ns:
        session.content.queue.expire_leases(now_ns=at_ns)
        session.at_ns = at_ns
