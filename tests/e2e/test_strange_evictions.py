"""A foreign eviction service that goes wrong: where, what to do, exit code 3, and a run to read.

Faults of decisions (a wrong node, a pod bound twice) are a scheduler's; an eviction service's is an
eviction of a pod that is not active on the node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from replay.bundled import bundled
from tests.e2e.commands import SERVICE, reprieve
from tests.e2e.strange_services import (
    Fault,
    StrangeEviction,
    StrangeService,
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

TRACE = bundled("examples") / "traces" / "eviction-loop.jsonl"
TIMEOUTS = ("--timeout", "response=1s", "--timeout", "call=1s")


def unknown_pod(_service: StrangeService, response: Any, _: grpc.ServicerContext) -> bytes:
    """Evict a pod that the node does not have."""
    for result in response.results:
        if result.HasField("step"):
            result.step.evictions.add().pod.uid = "nobody"
    return bytes(response.SerializeToString())


def no_results(_service: StrangeService, response: Any, _: grpc.ServicerContext) -> bytes:
    """Apply the operations and leave their results out."""
    del response.results[:]
    return bytes(response.SerializeToString())


FAULTS: dict[str, tuple[Fault, list[str]]] = {
    "silent": (silent, ["did not respond in 1 s", "--timeout response=DURATION waits for longer"]),
    "late": (late, ["did not respond in 1 s", "the service still answers other calls"]),
    "crash": (crash, ["answers UNAVAILABLE", "it did not come back within 0.5 s"]),
    "garbage": (
        garbage,
        [
            "returned an invalid response to StreamingApply",
            "this client cannot decode its 3 bytes as",
            "ApplyResponse",
        ],
    ),
    "3 MiB": (of_mebibytes(3), ["it has 3,14", "may have at most 2,097,152; send it in parts"]),
    "5 MiB": (of_mebibytes(5), ["it has 5,24", "may have at most 2,097,152; send it in parts"]),
    "foreign session": (
        foreign_session,
        ["answers NOT_FOUND: session s1 is unknown here", "it was lost 4 times at the same moment"],
    ),
    "wrong sequence": (wrong_sequence, ["sequence: is 10, but the request's is 3"]),
    "unknown pod": (unknown_pod, ["evictions[0].pod.uid: 'nobody' is not an active pod"]),
    "no results": (no_results, ["results: has 0 entries"]),
}


def replayed(folder: Path, address: str, *options: str) -> str:
    """Return what a replay with the eviction service says when it ends with exit code 3."""
    arguments = (str(TRACE), "--eviction", address, "--run", "run", *options)
    return " ".join(reprieve(folder, "replay", *arguments, code=SERVICE).stderr.split())


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_at_a_request_is_reported_with_its_place(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has what was decided before, and every command reads it."""
    monkeypatch.setattr("replay.recovery.WAIT_MIN_S", 0.5)
    fault, texts = FAULTS[name]
    with strange_service(StrangeEviction, fault, at=3) as address:
        output = replayed(tmp_path, address, *TIMEOUTS)
    for text in (f"the eviction service at {address}", *texts):
        assert text in output
    for command in (("get", "pods", "run", "-A"), ("report", "run")):
        reprieve(tmp_path, *command)


@pytest.mark.parametrize(
    ("says", "texts"),
    [
        (b"SSH-2.0-OpenSSH_9.9\r\n", ["opened no session", "does not speak gRPC without TLS"]),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ["opened no session", "does not speak gRPC"]),
    ],
    ids=["ssh", "http/1.1"],
)
def test_what_listens_and_is_not_http_2_is_reported(
    tmp_path: Path, says: bytes, texts: list[str]
) -> None:
    """Before a run's folder is made."""
    with listening(says) as address:
        output = replayed(tmp_path, address, *TIMEOUTS)
    for text in (f"Error: the eviction service at {address}", *texts):
        assert text in output
    assert not (tmp_path / "run").exists()
