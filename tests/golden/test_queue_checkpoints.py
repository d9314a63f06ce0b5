"""A queue service that loses its state before every operation of every recorded script."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import orjson
import pytest
from google.protobuf.message import Message

from replay.conform.queue_scripts import ScriptedQueue, config_message, difference_of
from reprieve.kube.v1beta1 import meta_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from reprieve.session.v1beta1 import session_pb2
from services.queue.core.mode import V1_16, V1_20, V1_34, QueueMode
from services.queue.metrics import QueueMetrics
from services.queue.saved import session_from_plain, session_to_json
from services.queue.servicer import QueueServicer
from tests.golden.test_queue_vectors import load

_Answer = TypeVar("_Answer")


@pytest.mark.parametrize("mode", [V1_34, V1_20, V1_16], ids=lambda mode: mode.name)
def test_a_checkpoint_before_each_operation_goes_on_the_same(mode: QueueMode) -> None:
    """What is saved, written as JSON and read again is the whole session."""
    differences = []
    for vector in load(mode):
        client = ForgetfulClient(config_message(mode.name, vector["config"]))
        run = ScriptedQueue(client, mode.name)
        differences.append(difference_of(mode.name, vector, run.apply, run.state))
    assert not any(differences), "\n".join(filter(None, differences))


class ForgetfulClient:
    """A session in this process that is saved and restored before each operation."""

    def __init__(self, config: queue_pb2.QueueConfig) -> None:
        self._servicer = QueueServicer()
        request = pb.OpenRequest(session="s", config=config)
        answered(self._servicer.Open(request, None))  # type: ignore[arg-type] # no handler reads its context
        self._sequence = 0

    def apply(self, name: str, message: Message, at_ns: int) -> queue_pb2.OperationResult:
        """Forget, remember, and do the operation `name` of the contract."""
        session = self._servicer._sessions.get(session_pb2.Stamp(session="s", epoch=1))
        written = session_to_json(session.core)
        session.core = session_from_plain(orjson.loads(written), QueueMetrics())
        operation = queue_pb2.Operation(at_ns=at_ns)
        getattr(operation, name).CopyFrom(message)
        getattr(operation, name).SetInParent()
        self._sequence += 1
        stamp = session_pb2.Stamp(session="s", epoch=1, sequence=self._sequence)
        answer = self._servicer.batch(pb.StreamRequest(stamp=stamp, operations=[operation]))
        applied = queue_pb2.OperationResult(code=queue_pb2.OUTCOME_CODE_APPLIED)
        return next((each.result for each in answer.results), applied)

    def dump(self) -> queue_pb2.QueueState:
        """Return the whole state."""
        stamp = session_pb2.Stamp(session="s", epoch=1)
        dumping = self._servicer.Dump(pb.DumpRequest(stamp=stamp), None)  # type: ignore[arg-type] # no handler reads its context
        return answered(dumping).state

    def nominated(self, node_name: str) -> list[meta_pb2.ObjectReference]:
        """Return a node's nominations."""
        stamp = session_pb2.Stamp(session="s", epoch=1)
        request = pb.ListNominatedRequest(stamp=stamp, node_name=node_name)
        listing = self._servicer.ListNominated(request, None)  # type: ignore[arg-type] # no handler reads its context
        return list(answered(listing).pods)


def answered(handling: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Return what a handler that waits for nothing answers; an event loop each would cost more."""
    try:
        handling.send(None)
    except StopIteration as ended:
        answer: _Answer = ended.value
        return answer
    raise AssertionError("the handler waits for something")
