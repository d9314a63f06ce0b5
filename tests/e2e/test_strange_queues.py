"""A foreign queue whose response cannot be read: the scheduler's error says what came, and soon."""

from __future__ import annotations

import asyncio

import pytest

from reprieve.queue.v1beta1 import queue_pb2
from services.rpc.errors import RefusalError
from services.scheduler.queue_client import QueueLink
from tests.e2e.strange_services import (
    Fault,
    StrangeQueue,
    foreign_session,
    garbage,
    of_mebibytes,
    strange_service,
    wrong_sequence,
)

LIMIT_S = 20.0
FAULTS: dict[str, tuple[Fault, list[str]]] = {
    "garbage": (
        garbage,
        [
            "returned an invalid response to StreamingApply",
            "this client cannot decode its 3 bytes as",
            "reprieve.queue.v1beta1.ApplyResponse",
        ],
    ),
    "3 MiB": (of_mebibytes(3), ["it has 3,14", "may have at most 2,097,152; send it in parts"]),
    "5 MiB": (of_mebibytes(5), ["it has 5,24", "may have at most 2,097,152; send it in parts"]),
    "foreign session": (foreign_session, ["answers NOT_FOUND: session s1 is unknown here"]),
    "wrong sequence": (wrong_sequence, ["answers wrongly: sequence"]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_queue_is_an_error_of_the_scheduler_that_names_it(name: str) -> None:
    """The caller of the scheduler receives the error as the reason of the refusal."""
    fault, texts = FAULTS[name]
    serving = strange_service(StrangeQueue, fault, at=1)
    with serving as address, pytest.raises(RefusalError) as caught:
        asyncio.run(_state(address))
    for text in (f"the scheduling queue at {address}", *texts):
        assert text in str(caught.value)


async def _state(address: str) -> None:
    link = QueueLink(address)
    session = await link.open(queue_pb2.QueueConfig())
    try:
        operation = queue_pb2.Operation(time_ns=0)
        operation.flush_backoff.SetInParent()
        await session.post([operation])
        await asyncio.wait_for(session.state(), LIMIT_S)
    finally:
        session.stream.cancel()
        await link.close()
