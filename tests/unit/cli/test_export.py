"""`reprieve export`: a run over simulated time, and its rounds as a scheduler received them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from google.protobuf import json_format

from replay.cli.commands import export
from replay.cli.errors import REFUSED, ExitError
from replay.results.run.directory import RunDirectory
from reprieve.scheduler.v1beta1.scheduler_service_pb2 import CreateSessionRequest, RunRoundRequest
from tests.unit.results.small_run import small_run


@pytest.fixture
def run(tmp_path: Path) -> str:
    """Return the path of a run whose six rounds are at 0, 8, 10, 11, 12 and 20 s."""
    return str(small_run(tmp_path / "run").path)


def _export(*arguments: str) -> str:
    result = CliRunner().invoke(export.command, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def _refused(*arguments: str) -> str:
    result = CliRunner().invoke(export.command, arguments)
    if result.exception is None or isinstance(result.exception, SystemExit):
        assert result.exit_code == REFUSED
        return result.output.splitlines()[-1].removeprefix("Error: ")
    assert isinstance(result.exception, ExitError)
    assert result.exception.code == REFUSED
    return str(result.exception)


def _requests(*arguments: str) -> list[RunRoundRequest]:
    text = _export(*arguments)
    return [json_format.Parse(line, RunRoundRequest()) for line in text.splitlines()]


def _numbers(*arguments: str) -> list[int]:
    return [request.stamp.sequence for request in _requests(*arguments)]


def test_an_export_is_json_and_compressed_where_its_name_says_so(run: str, tmp_path: Path) -> None:
    """Both hold the same."""
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    _export(run, "-o", str(plain))
    _export(run, "--format", "chrome-trace", "-o", str(packed))
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert len(json.loads(plain.read_bytes())["traceEvents"]) > 5


def test_an_export_that_cannot_be_written_is_refused(run: str, tmp_path: Path) -> None:
    """And nothing is left of it."""
    assert "missing" in _refused(run, "-o", str(tmp_path / "missing" / "t"))


def test_every_round_is_a_request_in_proto3_json(run: str, tmp_path: Path) -> None:
    """A line each, numbered from 1, to standard output or a file."""
    requests = _requests(run, "--rounds")
    assert [request.round for request in requests] == list(RunDirectory.open(Path(run)).rounds())
    assert [request.stamp.sequence for request in requests] == [1, 2, 3, 4, 5, 6]
    _export(run, "--rounds", "-o", str(tmp_path / "rounds.jsonl"))
    assert (tmp_path / "rounds.jsonl").read_text("utf-8") == _export(run, "--rounds")


def test_requests_name_the_session_to_which_they_are_sent(run: str) -> None:
    """A run does not have the identifier of its own session; without one it is a placeholder."""
    placeholder, named = (
        _export(run, "--rounds", *more).splitlines()[0] for more in ((), ("--session-id", "a1"))
    )
    assert json.loads(placeholder)["stamp"]["sessionId"] == "SESSION_ID"
    assert named == placeholder.replace("SESSION_ID", "a1")


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--request", "2"], [2]),
        (["--request", "2-3"], [2, 3]),
        (["--request", "5-"], [5, 6]),
        (["--at", "8s"], [2]),
        (["--at", "9s"], [2]),
        (["--pod", "low"], [1, 2, 3]),
        (["--pod", "default/late"], [5]),
        (["--pod", "uid-high"], [2, 3, 4, 6]),
        (["--pod", "high", "--at", "10s"], [3]),
        (["--pod", "high", "--request", "4-"], [4, 6]),
        (["--at", "10s", "--with-earlier"], [1, 2, 3]),
        (["--pod", "late", "--with-earlier"], [1, 2, 3, 4, 5]),
    ],
)
def test_rounds_are_selected_by_number_moment_and_pod(
    run: str, options: list[str], numbers: list[int]
) -> None:
    """A pod's are those that name it, and those of the moments of its decisions."""
    assert _numbers(run, "--rounds", *options) == numbers


def test_the_session_is_created_as_the_run_did(run: str) -> None:
    """With its seed and rules."""
    created = json_format.Parse(_export(run, "--create-session"), CreateSessionRequest())
    assert (created.config.rules, created.config.seed) == ("v1.34", 7)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "name the file to write: -o FILE"),
        (["--request", "2"], "--request has no effect without --rounds"),
        (["--create-session", "--pod", "low"], "--pod has no effect without --rounds"),
        (["--rounds", "--create-session"], "--rounds and --create-session cannot be combined"),
        (["--rounds", "--format", "chrome-trace"], "--format has no effect on requests"),
        (["--rounds", "--pod", "lo"], "the run has no pod lo; did you mean default/low?"),
        (["--rounds", "--at", "1h"], "the run ends at 20s"),
        (["--rounds", "--request", "0"], "'0' is not a request's number; the first one is 1"),
        (["--rounds", "--request", "3-2"], "'3-2' ends before it begins"),
        (["--rounds", "--request", "x"], "'x' is not a number or a range; write 17, 3-17 or 3-"),
        (["--rounds", "--request", "7"], "has no such request; it has 6 requests"),
        (["--rounds", "--request", "6", "--pod", "low"], "has no such request; it has 6 requests"),
    ],
)
def test_an_option_without_effect_and_a_selection_without_requests_are_refused(
    run: str, options: list[str], sentence: str
) -> None:
    """With a sentence."""
    assert sentence in _refused(run, *options)


def test_a_refused_selection_leaves_the_file_as_it_was(run: str, tmp_path: Path) -> None:
    """It is replaced only by a whole one."""
    path = tmp_path / "rounds.jsonl"
    path.write_text("before")
    _refused(run, "--rounds", "--request", "7", "-o", str(path))
    assert path.read_text() == "before"
