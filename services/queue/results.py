"""What the core answered, as the contract's OperationResult."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reprieve.queue.v1alpha1 import queue_pb2
from services.queue.codec import head_message
from services.queue.core.entry import Popped
from services.queue.core.outcome import AlreadyPresent, Closed, NotInFlight, NotNext, WouldBlock
from services.queue.operations import Outcome


def result_message(outcome: Outcome) -> queue_pb2.OperationResult:
    """Return how an operation ended; whatever has no row of its own was plainly applied."""
    write = _WRITERS.get(type(outcome))
    if write is None:
        return queue_pb2.OperationResult(code=queue_pb2.OUTCOME_CODE_APPLIED)
    return write(outcome)


def _popped(popped: Popped) -> queue_pb2.OperationResult:
    return queue_pb2.OperationResult(
        code=queue_pb2.OUTCOME_CODE_APPLIED, popped=head_message(popped)
    )


def _would_block(_outcome: WouldBlock) -> queue_pb2.OperationResult:
    return queue_pb2.OperationResult(code=queue_pb2.OUTCOME_CODE_WOULD_BLOCK)


def _closed(outcome: Closed) -> queue_pb2.OperationResult:
    return queue_pb2.OperationResult(code=queue_pb2.OUTCOME_CODE_CLOSED, text=outcome.text)


def _not_next(outcome: NotNext) -> queue_pb2.OperationResult:
    return queue_pb2.OperationResult(code=queue_pb2.OUTCOME_CODE_NOT_NEXT, pods=outcome.committed)


def _already_present(outcome: AlreadyPresent) -> queue_pb2.OperationResult:
    return queue_pb2.OperationResult(code=queue_pb2.OUTCOME_CODE_ALREADY_PRESENT, text=outcome.text)


def _not_in_flight(_outcome: NotInFlight) -> queue_pb2.OperationResult:
    return queue_pb2.OperationResult(code=queue_pb2.OUTCOME_CODE_UNKNOWN_POP)


_WRITERS: Mapping[type, Callable[[Any], queue_pb2.OperationResult]] = {
    Popped: _popped,
    WouldBlock: _would_block,
    Closed: _closed,
    NotNext: _not_next,
    AlreadyPresent: _already_present,
    NotInFlight: _not_in_flight,
}
