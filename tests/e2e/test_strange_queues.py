"""A foreign queue that goes wrong: the error names it and what came, and the run can be read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from replay.bundled import bundled
from reprieve.queue.v1beta1 import queue_pb2
from services.rpc.errors import RefusalError
from services.scheduler.queue_client import QueueLink
from tests.e2e.commands import SERVICE, reprieve
from tests.e2e.strange_services import (
    Fault,
    StrangeQueue,
    StrangeService,
    WorkingQueue,
    crash,
    foreign_session,
    garbage,
    late,
    listening,
    of_mebibytes,
    silent,
    strange_service,
    wrong_sequence,
)
from tests.e2e.test_wrong_answers import scheduler_of

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


# Through a whole replay

TRACE = bundled("examples") / "traces" / "nginx-preemption.jsonl"


def unknown_head(_service: StrangeService, response: Any, _: grpc.ServicerContext) -> bytes:
    """Return a pod that the queue was never sent."""
    head = response.heads.add(attempts=1)
    head.pop.uid, head.pop.cycle = "nobody", 9
    return bytes(response.SerializeToString())


def applies_more(_service: StrangeService, response: Any, _: grpc.ServicerContext) -> bytes:
    """Claim more operations than were sent."""
    response.applied += 1
    return bytes(response.SerializeToString())


def fails(_service: StrangeService, _response: Any, context: grpc.ServicerContext) -> bytes:
    """Fail, as an exception in a handler does."""
    context.abort(grpc.StatusCode.INTERNAL, "a null pointer")
    raise AssertionError("abort raises")


def many_heads(_service: StrangeService, response: Any, _: grpc.ServicerContext) -> bytes:
    """Return the first head more often than heads were requested."""
    response.heads.extend([response.heads[0]] * 5000)
    return bytes(response.SerializeToString())


_SILENT = "does not respond: no response in 1 s (--timeout queue); it still answers other calls"
OF_A_REPLAY: dict[str, tuple[Fault, list[str]]] = {
    **FAULTS,
    "silent": (silent, [_SILENT]),
    "late": (late, [_SILENT]),
    "crash": (crash, ["answers UNAVAILABLE", "nothing listens there"]),
    "unknown head": (unknown_head, ["heads[1].pop.uid: 'nobody': no pod has this uid"]),
    "more applied": (applies_more, ["answers wrongly: applied: "]),
    "an error": (fails, ["answers INTERNAL: a null pointer"]),
    "many heads": (many_heads, ["answers wrongly: heads: holds 5001"]),
}


def replayed(folder: Path, queue: str, reconnect: str = "0s") -> str:
    """Return what a replay says, which ends with 3, of our scheduler with a queue."""
    with scheduler_of(queue, "--timeout", "queue=1s", "--timeout", "unreachable=1s") as scheduler:
        arguments = ["--scheduler", scheduler, "--no-eviction", "--run", "run"]
        arguments += ["--reconnect", reconnect, "--in-process"]
        done = reprieve(folder, "replay", str(TRACE), *arguments, code=SERVICE)
    return " ".join(done.stderr.split())


@pytest.mark.parametrize("name", OF_A_REPLAY)
def test_a_fault_of_the_queue_ends_a_replay_that_names_it(tmp_path: Path, name: str) -> None:
    """With the request and its time; what was decided before is in the run."""
    fault, texts = OF_A_REPLAY[name]
    with strange_service(WorkingQueue, fault, at=2) as address:
        output = replayed(tmp_path, address)
    for text in (
        f"the scheduling queue at {address}",
        *texts,
        "(request 2 at 2019-10-24T08:00:08Z",
    ):
        assert text in output
    for command in (("get", "pods", "run", "-A"), ("report", "run")):
        reprieve(tmp_path, *command)


def test_a_queue_that_never_responds_to_a_request_is_not_waited_for_again(tmp_path: Path) -> None:
    """Another session would bring it to the same request."""
    with strange_service(WorkingQueue, silent, at=2) as address:
        output = replayed(tmp_path, address, reconnect="1m")
    assert _SILENT in output
    assert "waiting for it" not in output


def test_a_queue_that_is_not_http_2_is_named_before_a_run_is_made(tmp_path: Path) -> None:
    """As for the other services."""
    with listening(b"SSH-2.0-OpenSSH_9.9\r\n") as address:
        output = replayed(tmp_path, address)
    assert f"the scheduling queue at {address}" in output
    assert not (tmp_path / "run").exists()
