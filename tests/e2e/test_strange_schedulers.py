"""A foreign scheduler that goes wrong: what it did, where and what to do, exit code 3, and a run.

The run's folder has what was decided before, and every command can read it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from replay.cli.errors import LOOP
from reprieve.scheduler.v1beta1.scheduler_service_pb2 import RunRoundRequest, RunRoundResponse
from tests.e2e.commands import SERVICE, reprieve
from tests.e2e.strange_services import (
    NODE,
    Fault,
    StrangeScheduler,
    StrangeService,
    crash,
    foreign_session,
    garbage,
    late,
    listening,
    of_mebibytes,
    silent,
    strange_scheduler,
    strange_service,
    unknown_node,
    wrong_sequence,
)

MINUTE_NS = 60_000_000_000
TIMEOUTS = ("--timeout", "response=1s", "--timeout", "call=1s")
IN_SECOND = "(request 3 at 1m0s"

FAULTS: dict[str, tuple[Fault, list[str]]] = {
    "silent": (silent, ["did not respond in 1 s", "--timeout response=DURATION waits for longer"]),
    "late": (late, ["did not respond in 1 s", "the service still answers other calls"]),
    "crash": (
        crash,
        ["answers UNAVAILABLE", "it did not come back within 0.5 s", "nothing listens"],
    ),
    "garbage": (
        garbage,
        [
            "returned an invalid response to StreamingRunRound",
            "this client cannot decode its 3 bytes as",
            "RunRoundResponse",
            "compile the service with the files of `reprieve protos`",
        ],
    ),
    "3 MiB": (of_mebibytes(3), ["it has 3,145,", "may have at most 2,097,152; send it in parts"]),
    "5 MiB": (of_mebibytes(5), ["it has 5,242,", "may have at most 2,097,152; send it in parts"]),
    "foreign session": (
        foreign_session,
        ["answers NOT_FOUND: session s1 is unknown here", "it was lost 4 times at the same moment"],
    ),
    "wrong sequence": (wrong_sequence, ["sequence: is 10, but the request's is 3"]),
}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Write a node and pods that come a minute after each other."""
    node = {"metadata": {"name": NODE}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}}
    records: list[dict[str, Any]] = [{"header": {"formatVersion": 1}}, {"create": {"node": node}}]
    for minute, name in enumerate(("first", "second", "third")):
        containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
        pod = {"metadata": {"name": name, "namespace": "shop"}, "spec": {"containers": containers}}
        records.append({"atNs": str(minute * MINUTE_NS), "podCreate": {"pod": pod}})
    path = tmp_path / "cluster.jsonl"
    lines = [{**record, "sequence": number} for number, record in enumerate(records, 1)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def replayed(trace: Path, address: str, *options: str) -> str:
    """Return what a replay with the scheduler says when it ends with exit code 3."""
    arguments = (str(trace), "--scheduler", address, "--no-eviction", "--run", "run", *options)
    return reprieve(trace.parent, "replay", *arguments, code=SERVICE).stderr


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_at_a_request_is_reported_with_its_place(
    trace: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Request, virtual time and pod; the first pod stays decided in a run that can be read."""
    monkeypatch.setattr("replay.recovery.WAIT_MIN_S", 0.5)
    fault, texts = FAULTS[name]
    with strange_scheduler(fault, at=3) as address:
        output = " ".join(replayed(trace, address, *TIMEOUTS).split())
    for text in (f"Error: the scheduler at {address}", IN_SECOND, *texts):
        assert text in output
    shown = reprieve(trace.parent, "get", "pods", "run", "-A", "-o", "json").stdout
    nodes = {
        pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in json.loads(shown)["items"]
    }
    assert nodes == {"first": NODE, "second": None}
    for command in (("report", "run"), ("query", "run", "select count(*) from decisions")):
        reprieve(trace.parent, *command)


def test_a_refused_decision_lets_the_run_end_and_is_named_then(trace: Path) -> None:
    """The pods after the one that was bound to an unknown node are bound; the exit code is 3."""
    with strange_scheduler(unknown_node, at=3) as address:
        output = " ".join(replayed(trace, address, *TIMEOUTS).split())
    assert "refused for its mistakes: 1 unknown node; the run is complete" in output
    shown = reprieve(trace.parent, "get", "pods", "run", "-A", "-o", "json").stdout
    nodes = {
        pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in json.loads(shown)["items"]
    }
    assert nodes == {"first": NODE, "second": None, "third": NODE}


class LateScheduler(StrangeScheduler):
    """Finds no room, and wants to look again an hour after the start."""

    def answer(self, data: bytes) -> tuple[int, Message]:
        """Return the outcomes of a round."""
        number, response = super().answer(data)
        assert isinstance(response, RunRoundResponse)
        outcomes = response.rounds[0]
        for outcome in outcomes.outcomes:
            outcome.unschedulable.SetInParent()
        if RunRoundRequest.FromString(data).round.time_ns < 60 * MINUTE_NS:
            outcomes.next_wakeup_time_ns = 60 * MINUTE_NS
        return number, response


def unknown_status(
    _service: StrangeService, _response: Message, context: grpc.ServicerContext
) -> bytes:
    """Fail as libraries do where a method is missing or raises."""
    context.abort(grpc.StatusCode.UNKNOWN, "Illegal arity of reply generator")
    raise AssertionError("abort raises")


def test_a_stream_that_a_library_does_not_serve_properly_is_explained(trace: Path) -> None:
    """Ruby's answers UNKNOWN where a method is left out."""
    with strange_scheduler(unknown_status, at=1) as address:
        output = " ".join(replayed(trace, address, *TIMEOUTS).split())
    assert f"the scheduler at {address} answers its stream with UNKNOWN: Illegal arity" in output
    assert "has to be answered with UNIMPLEMENTED" in output


class StubbornScheduler(StrangeScheduler):
    """Finds no room, and tries the same pod again at once, for ever."""

    _refused: bytes = b""

    def answer(self, data: bytes) -> tuple[int, Message]:
        """Return a refusal, and that there is more."""
        number, response = super().answer(data)
        assert isinstance(response, RunRoundResponse)
        outcomes = response.rounds[0]
        for outcome in outcomes.outcomes:
            outcome.unschedulable.SetInParent()
            self._refused = outcome.SerializeToString()
        if not outcomes.outcomes and self._refused:
            outcomes.outcomes.add().MergeFromString(self._refused)
            outcomes.outcomes[0].pop.cycle = self._cycles = self._cycles + 1
        outcomes.more = bool(outcomes.outcomes)
        return number, response


def test_a_round_that_never_ends_is_an_endless_loop(trace: Path) -> None:
    """A scheduler that tries a pod again and again at one instant ends the run with 5."""
    with strange_service(StubbornScheduler, garbage, at=0) as address:
        options = ("--scheduler", address, "--no-eviction", "--run", "run", "--no-audit")
        output = reprieve(trace.parent, "replay", str(trace), *options, code=LOOP).stderr
    assert "the scheduler has refused pod shop/first more than 1,000 times in it" in output


def test_a_tick_that_a_run_ends_before_is_a_note(trace: Path) -> None:
    """It names the time to play on to, and there the tick is given."""
    with strange_service(LateScheduler, garbage, at=0) as address:
        options = ("--scheduler", address, "--no-eviction", "--run", "run", "--force")
        output = " ".join(reprieve(trace.parent, "replay", str(trace), *options).stdout.split())
        assert (
            "the scheduler requested a tick 1h0m0s after the start of the trace, and the replay "
            "ended at 2m0s: pods that were tried"
        ) in output
        assert "--until 1h0m0s plays on" in output
        arguments = ("replay", str(trace), *options, "--until", "1h0m0s")
        output = " ".join(reprieve(trace.parent, *arguments).stdout.split())
        assert "requested a tick" not in output
    rounds = reprieve(trace.parent, "export", "run", "--rounds").stdout
    assert json.loads(rounds.splitlines()[-1])["round"]["events"][-1] == {
        "timeNs": str(60 * MINUTE_NS),
        "tick": {},
    }


@pytest.mark.parametrize("fault", [silent, crash, garbage])
def test_a_fault_in_the_first_exchange_ends_the_replay(
    trace: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the wait for a service that a long run has lost."""
    monkeypatch.setattr("replay.recovery.WAIT_MIN_S", 0.5)
    with strange_scheduler(fault, at=1) as address:
        output = " ".join(replayed(trace, address, *TIMEOUTS).split())
    assert f"Error: the scheduler at {address}" in output
    assert "(request 1 at 0s" in output


@pytest.mark.parametrize(
    ("says", "texts"),
    [
        (b"SSH-2.0-OpenSSH_9.9\r\n", ["opened no session", "does not speak gRPC without TLS"]),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ["opened no session", "does not speak gRPC"]),
        (b"", ["did not respond in 1 s", "--timeout call=DURATION waits for longer"]),
    ],
    ids=["ssh", "http/1.1", "silent"],
)
def test_what_listens_and_is_not_http_2_is_reported(
    trace: Path, says: bytes, texts: list[str]
) -> None:
    """Before a run's folder is made."""
    with listening(says) as address:
        output = " ".join(replayed(trace, address, *TIMEOUTS).split())
    for text in (f"Error: the scheduler at {address}", *texts):
        assert text in output
    assert not (trace.parent / "run").exists()


def test_an_address_where_nothing_listens_is_reported(trace: Path) -> None:
    """With what to do."""
    output = " ".join(replayed(trace, "127.0.0.1:1").split())
    assert "nothing listens there: start the service, or correct the address" in output
