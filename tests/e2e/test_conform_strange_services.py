"""The checks of services that hang, or that answer what no message may be: reported, and soon."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest

from replay.cli.errors import DIFFERS
from replay.conform.contract.checks import CHECK_TIMEOUTS, FAILED
from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from services.rpc.parts import MESSAGE_BYTES_MAX
from tests.e2e.commands import SERVICE, reprieve

Answer = Callable[[grpc.ServicerContext], bytes]


class StrangeQueue(grpc.GenericRpcHandler):
    """A queue that opens and deletes sessions; `answer` makes the bytes of its other responses."""

    def __init__(self, answer: Answer, deletes: Answer) -> None:
        self._sessions = 0
        self._answers: dict[str, Answer] = {
            "CreateSession": self._create,
            "DeleteSession": deletes,
            "Apply": answer,
        }

    def _create(self, _context: grpc.ServicerContext) -> bytes:
        self._sessions += 1
        return pb.Session(session_id=f"s{self._sessions}").SerializeToString()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a method, None for one that is not served."""
        answer = self._answers.get(handler_call_details.method.rpartition("/")[2])
        if answer is None:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda _request, context: answer(context))


@contextmanager
def queue(answer: Answer, deletes: Answer = lambda _context: b"") -> Iterator[str]:
    """Serve one, and yield its address."""
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((StrangeQueue(answer, deletes),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def hangs(context: grpc.ServicerContext) -> bytes:
    """Answer only after the caller has gone."""
    gone = Event()
    if context.add_callback(gone.set):
        gone.wait()
    return b""


def failures(folder: Path, address: str, *options: str) -> list[str]:
    """Return why the checks of level 1 to 3 failed, in order."""
    arguments = ("conform", "--contract", "queue", address, "-o", "json", *options)
    checks = json.loads(reprieve(folder, *arguments, code=DIFFERS).stdout)["checks"]
    return [check["why"] for check in checks if check["result"] == FAILED]


def test_every_call_without_an_answer_halves_the_wait_of_later_ones(tmp_path: Path) -> None:
    """So that the sum is bounded: twice the longest timeout, and 0.1 s a check."""
    with queue(hangs) as address:
        failed = failures(tmp_path, address, "--timeout", "response=800ms")
    waits = [
        re.search(r"Apply did not respond in ([\d.]+) s; --timeout response", why) for why in failed
    ]
    assert [float(wait[1]) for wait in waits if wait][:5] == [0.8, 0.4, 0.2, 0.1, 0.1]
    # On a busy machine a call that is answered may take 0.1 s, too.
    assert all(" did not respond in " in why for why in failed)
    timeouts = (CHECK_TIMEOUTS.response, CHECK_TIMEOUTS.call, CHECK_TIMEOUTS.checkpoint)
    assert 2 * max(timeouts) + 0.1 * len(failed) < 60


def test_a_service_that_answers_no_call_is_reported_at_once(tmp_path: Path) -> None:
    """With the timeout of the first call, and exit code 3."""
    with queue(hangs, deletes=hangs) as address:
        arguments = ("conform", "--contract", "queue", address, "--timeout", "call=300ms")
        output = reprieve(tmp_path, *arguments, code=SERVICE).stderr
    assert f"the queue at {address}: DeleteSession did not respond in 0.3 s" in output


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"\xff\xff\xff", "this client cannot decode its 3 bytes as reprieve.queue"),
        (b"\x00" * (MESSAGE_BYTES_MAX + 1), "it has 2,097,153 bytes, but a message may have"),
        (b"\x00" * (5 << 20), "it has 5,242,880 bytes, but a message may have at most 2,097,152"),
    ],
    ids=["garbage", "2 MiB", "5 MiB"],
)
def test_what_is_not_a_message_of_the_contract_fails_its_check(
    tmp_path: Path, answer: bytes, text: str
) -> None:
    """By what it is, and not as a status that the service has returned."""
    with queue(lambda _context: answer) as address:
        failed = failures(tmp_path, address)
    assert failed
    for why in failed:
        assert f"the queue at {address} returned an invalid response to Apply: {text}" in why
