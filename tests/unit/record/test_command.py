"""`reprieve record` as its users meet it: options, reports, refusals."""

from __future__ import annotations

import errno
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from replay.cli.commands import record as record_command
from replay.cli.commands.record import line
from replay.cli.errors import INTERRUPTED, REFUSED, SERVICE, UNWRITABLE, ExitError
from replay.importers.registry import open_trace
from replay.record import session
from replay.record.coverage import EFFECTS
from replay.record.recorder import RecordingProgress
from replay.record.session import RecordingRequest, RecordingResult
from replay.record.watcher import WatcherStatus
from tests.api_server import ApiServerDouble, Listing, Script
from tests.unit.importers.builders import kinds, make_object, make_pod
from tests.unit.record.recording import SECONDS_MAX, cluster, event

PASSWORD = "nobody-may-see-this"  # noqa: S105 - that is what the tests look for


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServerDouble]:
    """Yield a server of one node, one pod that was there, and one that comes."""
    node = make_object("Node", "acme-node", 1, status={"allocatable": {"cpu": "4"}})
    pods = Script(
        lists=[Listing(items=[make_pod("acme-old", 2)], version=5)],
        watches=[[event("ADDED", make_pod("acme-new", 6))]],
    )
    scripts = cluster(
        Node=Script(lists=[Listing(items=[node], version=5)]),
        Pod=pods,
        Job=Script(refusal=(403, "Forbidden", 'User "acme" cannot list jobs')),
    )
    with ApiServerDouble(scripts) as double:

        def until_all_is_told(
            request: RecordingRequest, keep_going: Callable[[RecordingProgress], bool]
        ) -> RecordingResult:
            before, began = double.lines, time.monotonic()

            def goes_on(state: RecordingProgress) -> bool:
                assert time.monotonic() - began < SECONDS_MAX, state
                lines = before + sum(status.lines for status in state.statuses.values())
                listed = bool(state.statuses) and state.listed == len(state.statuses)
                done = listed and double.is_told(lines)
                return keep_going(state) and not done

            return record_live(request, goes_on)

        record_live = session.record_live
        monkeypatch.setattr(session, "record_live", until_all_is_told)
        yield double


@pytest.fixture(autouse=True)
def period(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the recording often, so that no test waits."""
    monkeypatch.setattr(record_command, "_PERIOD_S", 0.01)


def kubeconfig(folder: Path, url: str) -> str:
    """Write a kubeconfig for a server and return its path."""
    raw: dict[str, Any] = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(raw))
    return str(path)


def record(folder: Path, url: str, *options: str) -> Result:
    """Run the command."""
    given = ["--kubeconfig", kubeconfig(folder, url), "-o", str(folder / "t.ktr"), *options]
    return CliRunner().invoke(record_command.command, given, catch_exceptions=True)


def problem(result: Result) -> ExitError:
    """Return the error that ended a command."""
    assert isinstance(result.exception, ExitError), result.output
    return result.exception


def test_a_recording_ends_in_a_trace_and_a_report(tmp_path: Path, server: ApiServerDouble) -> None:
    """The report says what was recorded, what was not, and that nobody is evicted without usage."""
    result = record(tmp_path, server.url)
    assert result.exit_code == 0, result.output
    assert f"of {server.url} (v1.34.1)" in result.stderr
    assert "pods: 1 listed, 1 event" in result.stderr
    assert "usage     not recorded (neither kubelets nor metrics.k8s.io" in result.stderr
    assert "no kubelet evicts a pod in a replay" in result.stderr
    note = f"note      jobs are not recorded; {EFFECTS['Job']}: /apis/batch/v1/jobs: 403 Forbidden"
    assert note in result.stderr
    assert kinds(open_trace([tmp_path / "t.ktr"])).count("pod_create") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kubeconfig", "t.ktr"]


def test_a_recording_ends_when_its_time_is_over(tmp_path: Path) -> None:
    """With a whole trace of what there was, even of an empty cluster."""
    with ApiServerDouble(cluster()) as server:
        result = record(tmp_path, server.url, "--for", "1s")
    assert result.exit_code == 0, result.output
    assert kinds(open_trace([tmp_path / "t.ktr"]))[-1] == "marker"


def test_in_a_pipe_there_is_no_progress(tmp_path: Path, server: ApiServerDouble) -> None:
    """Nothing but the report, on standard error."""
    result = record(tmp_path, server.url)
    assert result.stdout == ""
    assert "Ctrl-C" not in result.stderr


def test_frames_are_kept_where_somebody_wants_them(tmp_path: Path, server: ApiServerDouble) -> None:
    """And are a recording that can be read again, with the same outcome."""
    frames = tmp_path / "frames"
    assert record(tmp_path, server.url, "--frames", str(frames)).exit_code == 0
    again = ["--from", str(frames), "-o", str(tmp_path / "again.ktr")]
    assert CliRunner().invoke(record_command.command, again).exit_code == 0
    assert (tmp_path / "again.ktr").read_bytes() == (tmp_path / "t.ktr").read_bytes()


@pytest.mark.parametrize("options", [("--redact",), ("--redact-key", "k")])
def test_a_redacted_recording_holds_no_name(
    tmp_path: Path, server: ApiServerDouble, options: tuple[str, ...]
) -> None:
    """Neither in the trace nor in the frames; the terminal still says what was refused."""
    frames = tmp_path / "frames"
    result = record(tmp_path, server.url, "--frames", str(frames), *options)
    assert 'User "acme" cannot list' in result.stderr
    assert b"acme" not in (frames / "recording.json").read_bytes()
    records = list(open_trace([tmp_path / "t.ktr"]))
    assert kinds(records).count("pod_create") == 2
    assert "acme" not in str(records)
    assert server.url not in str(records)


def test_one_key_gives_the_same_hashes_each_time(tmp_path: Path, server: ApiServerDouble) -> None:
    """And a random one others."""

    def node(*options: str) -> str:
        record(tmp_path, server.url, *options)
        created = [record.create for record in open_trace([tmp_path / "t.ktr"])]
        return next(entry.node.metadata.name for entry in created if entry.HasField("node"))

    assert node("--redact-key", "k") == node("--redact-key", "k") != node("--redact")


def test_a_server_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    """One error, with what to look at."""
    with ApiServerDouble({}) as gone:
        url = gone.url
    refusal = problem(record(tmp_path, url))
    assert refusal.code == SERVICE
    assert "Check --context" in str(refusal)
    assert [path.name for path in tmp_path.iterdir()] == ["kubeconfig"]


def test_an_unknown_client_receives_instructions(tmp_path: Path, server: ApiServerDouble) -> None:
    """Before a folder is made."""
    server.bearer = "another"
    refusal = problem(record(tmp_path, server.url))
    assert refusal.code == SERVICE
    assert "renew the kubeconfig's credentials" in str(refusal)
    assert [path.name for path in tmp_path.iterdir()] == ["kubeconfig"]


def test_where_all_is_forbidden_nothing_is_left(tmp_path: Path) -> None:
    """And the cluster role is pointed at."""
    no = Script(refusal=(403, "Forbidden", "no"))
    with ApiServerDouble(dict.fromkeys(cluster(), no)) as server:
        refusal = problem(record(tmp_path, server.url))
    assert "docs/record.md" in str(refusal)
    assert [path.name for path in tmp_path.iterdir()] == ["kubeconfig"]


def test_a_context_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With those that are."""
    refusal = problem(record(tmp_path, "http://127.0.0.1:1", "--context", "prod"))
    assert refusal.code == REFUSED
    assert "has no context 'prod'; it has: c" in str(refusal)


def test_an_output_without_a_folder_is_refused_before_anything_is_recorded(
    tmp_path: Path, server: ApiServerDouble
) -> None:
    """An hour of recording is not lost to a typing error."""
    refusal = problem(record(tmp_path, server.url, "-o", str(tmp_path / "no" / "t.ktr")))
    assert "does not exist; create it" in str(refusal)
    assert server.seen == []


@pytest.mark.parametrize("usage", ["all", "prometheus=here", "http://x"])
def test_an_unknown_source_of_usage_is_refused(tmp_path: Path, usage: str) -> None:
    """With those that are."""
    result = record(tmp_path, "http://127.0.0.1:1", "--usage", usage)
    assert result.exit_code == 2
    assert "auto|kubelet|metrics|prometheus=URL|off" in result.output


def test_usage_is_sampled_every_second_at_most(tmp_path: Path, server: ApiServerDouble) -> None:
    """More often would load kubelets and tell nothing new."""
    refusal = problem(record(tmp_path, server.url, "--usage-every", "100ms"))
    assert refusal.code == REFUSED
    assert "give 1s or more" in str(refusal)
    assert server.seen == []


def test_a_trace_that_cannot_be_made_leaves_the_frames_and_says_how_to_continue(
    tmp_path: Path, server: ApiServerDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C, or a file that cannot be written."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(record_command, "write_trace", interrupted)
    refusal = problem(record(tmp_path, server.url))
    assert refusal.code == INTERRUPTED
    assert f"reprieve record --from {tmp_path / 't.ktr.frames'} -o" in str(refusal)
    assert (tmp_path / "t.ktr.frames" / "pods.watch.jsonl.zst").exists()


@pytest.mark.parametrize("piece", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
@pytest.mark.parametrize("path", ["/version", "/api/v1/nodes"])
def test_a_recording_ends_in_time_although_the_server_never_answers(
    tmp_path: Path, path: str, piece: bytes
) -> None:
    """Also before the first answer; then nothing is left, and the server is asked once."""

    def stall(file: BufferedIOBase, stopping: Event) -> None:
        file.write(piece)
        stopping.wait()

    with ApiServerDouble(cluster()) as server:
        server.hostile[path] = stall
        options = ("--for", "200ms", "--end-timeout", "300ms", "--usage", "off")
        result = record(tmp_path, server.url, *options)
    if path == "/version":
        assert problem(result).code == SERVICE
        assert "the recording has ended before the API server answered" in str(problem(result))
        assert server.requests[path] == 1
        assert [path.name for path in tmp_path.iterdir()] == ["kubeconfig"]
    else:
        assert problem(result).code == SERVICE
        assert "missing: never listed completely: nodes (" in str(problem(result))
        assert "nodes were not listed completely: the recording ended before" in result.stderr


def test_retry_after_at_the_start_is_honoured(tmp_path: Path, server: ApiServerDouble) -> None:
    """429 with Retry-After is repeated, as client-go does."""
    answers = [b"HTTP/1.1 429 Too Many\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"]

    def once(file: BufferedIOBase, _: Event) -> None:
        file.write(answers.pop())
        del server.hostile["/version"]

    server.hostile["/version"] = once
    assert record(tmp_path, server.url, "--usage", "off").exit_code == 0
    assert server.requests["/version"] == 2


def test_a_bound_is_an_option(tmp_path: Path) -> None:
    """And the note of what it leaves out names it."""
    pods = Script(lists=[Listing(items=[make_pod("p", 2)], version=5)])
    with ApiServerDouble(cluster(Pod=pods)) as server:
        result = record(tmp_path, server.url, "--for", "300ms", "--max-response-bytes", "200")
    assert result.exit_code == 0, result.output
    note = f"pods are not recorded; {EFFECTS['Pod']}: /api/v1/pods: the answer has more than 200"
    assert f"{note} bytes, the bound of --max-response-bytes; raise it with" in result.stderr


@pytest.mark.parametrize("size", ["0", "-1Mi", "much"])
def test_a_bound_that_is_not_a_size_is_refused(tmp_path: Path, size: str) -> None:
    """With an example."""
    result = record(tmp_path, "http://127.0.0.1:1", "--max-list-bytes", size)
    assert result.exit_code == 2
    assert "write 256Mi" in result.output


def test_no_password_of_a_url_is_shown(tmp_path: Path, server: ApiServerDouble) -> None:
    """Neither that of the cluster's address, which is recorded, nor that of a Prometheus."""
    url = server.url.replace("http://", f"http://u:{PASSWORD}@")
    frames = tmp_path / "frames"
    result = record(tmp_path, url, "--usage", "off", "--frames", str(frames))
    assert result.exit_code == 0, result.output
    assert PASSWORD not in result.output
    assert PASSWORD not in (frames / "recording.json").read_text()
    assert PASSWORD not in str(list(open_trace([tmp_path / "t.ktr"])))
    assert f"Basic {b64encode(f'u:{PASSWORD}'.encode()).decode()}" in server.seen
    for where in (
        f"http://u:{PASSWORD}@127.0.0.1:1",
        f"ftp://u:{PASSWORD}@x",
        f"http://u:{PASSWORD}@[",
    ):
        refusal = record(tmp_path, server.url, "--usage", f"prometheus={where}")
        assert refusal.exit_code
        assert PASSWORD not in f"{refusal.output} {refusal.exception}"


def test_a_disk_that_is_full_has_its_own_exit_code_and_one_line(
    tmp_path: Path, server: ApiServerDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frames are kept, and the message says what to do."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "t.ktr")

    monkeypatch.setattr("replay.trace.writer.write", full)
    refusal = problem(record(tmp_path, server.url))
    assert refusal.code == UNWRITABLE
    assert "t.ktr: No space left on device; the recording is in" in str(refusal)
    assert "\n" not in str(refusal)
    assert (tmp_path / "t.ktr.frames" / "pods.watch.jsonl.zst").exists()


def test_the_line_shows_time_kinds_objects_events_and_what_goes_wrong() -> None:
    """A problem that is tried again stands at its end, each once."""
    state = RecordingProgress(
        statuses={
            "pods": WatcherStatus(
                is_listed=True, objects=1500, events=3, problem="/api/v1/pods: away"
            ),
            "jobs": WatcherStatus(refused="403"),
            "nodes": WatcherStatus(problem="/api/v1/pods: away"),
        },
        samples=2,
        usage_problem="",
    )
    assert line(75.2, state) == (
        "1m15s recorded · 2 of 3 kinds listed · 1,500 objects · 3 events · 2 samples of usage · "
        "/api/v1/pods: away · Ctrl-C ends"
    )
