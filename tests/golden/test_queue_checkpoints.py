"""A queue service that loses its state before every operation of every recorded script."""

from __future__ import annotations

from collections.abc import Awaitable
from itertools import islice
from typing import Any, TypeVar

import orjson
import pytest

from replay.conform.vectors.queue import operation
from replay.conform.vectors.queue_scripts import (
    Argument,
    ScriptedQueue,
    config_message,
    difference_of,
)
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from reprieve.session.v1beta1 import session_pb2
from services.queue.checkpoint import session_from_plain, session_to_json
from services.queue.core.rules.versions import V1_16, V1_20, V1_34, QueueVersion
from services.queue.metrics import QueueMetrics
from services.queue.servicer import QueueServicer
from tests.golden.test_queue_vectors import load

_Answer = TypeVar("_Answer")
SHARE = 3
"""One script of so many is played; all of them are a long test."""
CONTEXT: Any = None
"""No handler reads its context."""


@pytest.mark.parametrize("share", [SHARE, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", [V1_34, V1_20, V1_16], ids=lambda mode: mode.name)
def test_a_checkpoint_before_each_operation_changes_nothing(mode: QueueVersion, share: int) -> None:
    """What is saved, written as JSON and read again is the whole session."""
    differences = []
    for vector in islice(load(mode), 0, None, share):
        client = ForgetfulClient(config_message(mode.name, vector["config"]))
        run = ScriptedQueue(client, mode.name)
        differences.append(difference_of(mode.name, vector, run.apply, run.state))
    assert not any(differences), "\n".join(filter(None, differences))


class ForgetfulClient:
    """A session in this process that is saved and restored before each operation."""

    def __init__(self, config: queue_pb2.QueueConfig) -> None:
        self._servicer = QueueServicer()
        creating = self._servicer.CreateSession(pb.CreateSessionRequest(config=config), CONTEXT)
        self._stamp = session_pb2.Stamp(session_id=answered(creating).session_id)

    def apply(self, name: str, argument: Argument, at_ns: int) -> queue_pb2.OperationResult:
        """Forget, remember, and do the operation `name` of the contract."""
        session = self._servicer._sessions.get(self._stamp)
        written = session_to_json(session.content)
        session.content = session_from_plain(orjson.loads(written), QueueMetrics())
        self._stamp.sequence += 1
        operations = [operation(name, argument, at_ns)]
        answer = self._servicer.apply(pb.ApplyRequest(stamp=self._stamp, operations=operations))
        applied = queue_pb2.OperationResult(code=queue_pb2.OUTCOME_CODE_APPLIED)
        return next(iter(answer.results), applied)

    def state(self) -> queue_pb2.QueueState:
        """Return the whole state."""
        request = session_pb2.GetStateRequest(stamp=self._stamp)
        parts = self._servicer.GetState(request, CONTEXT)
        whole = pb.GetStateResponse()
        while True:
            try:
                whole.MergeFrom(answered(parts.__anext__()))
            except StopAsyncIteration:
                return whole.state


def answered(handling: Awaitable[_Answer]) -> _Answer:
    """Return what a handler that waits for nothing answers; an event loop each would cost more."""
    try:
        next(iter(handling.__await__()))
    except StopIteration as ended:
        answer: _Answer = ended.value
        return answer
    raise AssertionError("the handler waits for something")
