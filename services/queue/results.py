"""What the core answered, as the contract's OperationResult."""

from __future__ import annotations

from collections.abc import Mapping

from reprieve.queue.v1alpha1 import queue_pb2
from services.queue.codec import head_message
from services.queue.core.entry import Popped
from services.queue.core.outcome import AlreadyPresent, Closed, NotInFlight, NotNext, WouldBlock
from services.queue.operations import Outcome

_NO_TEXT: Mapping[type, queue_pb2.OutcomeCode.ValueType] = {
    WouldBlock: queue_pb2.OUTCOME_CODE_WOULD_BLOCK,
    NotInFlight: queue_pb2.OUTCOME_CODE_UNKNOWN_POP,
}


def result_message(outcome: Outcome) -> queue_pb2.OperationResult:
    """Return how an operation ended; whatever has no code of its own was plainly applied."""
    match outcome:
        case Popped():
            code = queue_pb2.OUTCOME_CODE_APPLIED
            return queue_pb2.OperationResult(code=code, popped=head_message(outcome))
        case NotNext():
            code = queue_pb2.OUTCOME_CODE_NOT_NEXT
            return queue_pb2.OperationResult(code=code, pods=outcome.committed)
        case Closed():
            code = queue_pb2.OUTCOME_CODE_CLOSED
            return queue_pb2.OperationResult(code=code, text=outcome.text)
        case AlreadyPresent():
            code = queue_pb2.OUTCOME_CODE_ALREADY_PRESENT
            return queue_pb2.OperationResult(code=code, text=outcome.text)
    code = _NO_TEXT.get(type(outcome), queue_pb2.OUTCOME_CODE_APPLIED)
    return queue_pb2.OperationResult(code=code)
