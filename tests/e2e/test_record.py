"""Recording as a process: signals end it with a trace, kill -9 leaves what it received."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from secrets import token_hex
from threading import Event

import orjson
import pytest

from replay.backends.processes import EmbeddedServices
from replay.importers.registry import open_trace
from replay.record.frames import RecordingFolder
from replay.record.recorded_trace import trace_of
from tests.api_server import ApiServerDouble, Listing, Raw, Refusal, Script
from tests.e2e.commands import reprieve
from tests.e2e.replays import ROOT, bindings, run
from tests.unit.importers.builders import kinds, make_object, make_pod
from tests.unit.record.recording import cluster, event, fast, namespaced, readable, recorded, trace
from tests.unit.record.test_command import kubeconfig

pytestmark = pytest.mark.e2e
GI = 1 << 30
SUMMARY = "/api/v1/nodes/n/proxy/stats/summary"
SECONDS_MAX = 120.0


def node() -> Raw:
    """Return a node of 4 CPU and 8 GiB."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return make_object("Node", "n", 1, status=status)


def server(**others: Script) -> ApiServerDouble:
    """Return a server of one node to which a pod comes."""
    pods = Script(watches=[[event("ADDED", make_pod("p", 6))]])
    nodes = Script(lists=[Listing(items=[node()], version=5)])
    return ApiServerDouble(cluster(**{"Node": nodes, "Pod": pods, **others}))


@contextmanager
def recorder(folder: Path, url: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run `reprieve record` and wait until a pod's event is on the disk."""
    command = ["-m", "replay.cli", "record", "--kubeconfig", kubeconfig(folder, url)]
    process = subprocess.Popen(
        [sys.executable, *command, "-o", str(folder / "t.ktr"), *options],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        file, began = folder / "t.ktr.frames" / "pods.watch.jsonl.zst", time.monotonic()
        while not file.exists() or b"p" not in _names(file):
            assert process.poll() is None
            assert time.monotonic() - began < SECONDS_MAX
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.wait()


def _names(file: Path) -> bytes:
    if not file.stat().st_size:
        return b""
    created = [record.pod_create for record in open_trace([file]) if record.HasField("pod_create")]
    return b",".join(entry.pod.metadata.name.encode() for entry in created)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_a_recording_with_a_whole_trace(
    tmp_path: Path, number: int, code: int
) -> None:
    """And the folder of frames is gone."""
    with server() as double, recorder(tmp_path, double.url) as process:
        process.send_signal(number)
        _, said = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == code, said
    assert kinds(open_trace([tmp_path / "t.ktr"])).count("pod_create") == 1
    assert not (tmp_path / "t.ktr.frames").exists()
    assert "Traceback" not in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_recording_although_a_list_stalls(tmp_path: Path, number: int) -> None:
    """When the time for the end is over; its kind is named, and the frames are kept."""

    def stall(file: BufferedIOBase, stopping: Event) -> None:
        file.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
        stopping.wait()

    with server() as double:
        double.hostile["/apis/batch/v1/jobs"] = stall
        with recorder(tmp_path, double.url, "--end-timeout", "300ms") as process:
            process.send_signal(number)
            _, said = process.communicate(timeout=SECONDS_MAX)
            assert process.returncode == 3, said
    last = said.splitlines()[-1]
    assert "the end of the recording is missing: " in last
    assert "never listed completely: jobs" in last
    assert (tmp_path / "t.ktr.frames").exists()
    assert kinds(open_trace([tmp_path / "t.ktr"])).count("pod_create") == 1
    assert "Traceback" not in said


def test_a_full_disk_ends_a_recording_with_one_line_and_whole_frames(tmp_path: Path) -> None:
    """Exit code 6; the frames until then are a recording."""
    long = (make_pod(token_hex(500), 10 + number) for number in range(300))
    events: list[Raw | str] = [event("ADDED", pod) for pod in long]
    limit = "import resource, runpy, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); "
    limit += "runpy.run_module('replay.cli', run_name='__main__', alter_sys=True)"
    listed = [make_pod(f"p{number}", number + 1) for number in range(100)]
    folder = tmp_path / "t.jsonl.frames"
    path = folder / "pods.watch.jsonl.zst"
    lists: list[Listing | Refusal] = [Listing(items=listed, version=5)]
    with server(Pod=Script(lists=lists, watches=[events], listed_on_disk=path)) as double:
        options = ["record", "--kubeconfig", kubeconfig(tmp_path, double.url), "--usage", "off"]
        done = subprocess.run(
            [sys.executable, "-B", "-c", limit, *options, "-o", str(tmp_path / "t.jsonl")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    assert done.returncode == 6, done.stderr
    assert done.stderr.count("\n") == 1
    assert "File too large" in done.stderr
    assert "reprieve record --from" in done.stderr
    assert kinds(open_trace([folder])).count("pod_create") == 100
    assert "issue broken-off" in kinds(trace_of(RecordingFolder(folder)))


def test_a_killed_recorder_leaves_what_it_received(tmp_path: Path) -> None:
    """As a recording of watches, and for --from."""
    with server() as double, recorder(tmp_path, double.url) as process:
        process.kill()
        process.wait()
    folder = tmp_path / "t.ktr.frames"
    assert kinds(open_trace([folder])).count("pod_create") == 1
    records = list(trace_of(RecordingFolder(folder)))
    assert kinds(records).count("pod_create") == 1
    assert "issue broken-off" in kinds(records)


def test_what_was_recorded_is_replayed_to_the_end_with_its_evictions(
    services: EmbeddedServices, tmp_path: Path
) -> None:
    """Usage comes from the kubelet: 8 GiB less 8 are below the threshold of 100 MiB."""
    conditions = (("PodScheduled", "True", ""),)
    hog = make_pod("hog", 2, node="n", phase="Running", conditions=conditions)
    used = {
        "node": {"memory": {"workingSetBytes": 8 * GI}},
        "pods": [
            {
                "podRef": {"name": "hog", "namespace": "default"},
                "memory": {"workingSetBytes": 7 * GI},
            }
        ],
    }
    with server(Pod=Script(lists=[Listing(items=[hog], version=5)])) as double:
        double.answers[SUMMARY] = used
        records = trace(double, tmp_path / "f", usage="auto", samples=1, options=fast())
    # As if the cluster had been recorded for a minute.
    records[0].header.window_end_time_ns += 60 * 10**9
    finished = run(services, records, tmp_path / "run")
    assert [cause.name for cause in finished.summary.decided.evicted] == ["memory.available"]
    assert bindings(finished) == {}


def test_a_recording_without_nodes_is_replayed_with_nodes_from_a_manifest(tmp_path: Path) -> None:
    """As its note says; without them nothing is scheduled."""
    pods = Script(watches=[[event("ADDED", make_pod("p", 6, metadata={"namespace": "team-a"}))]])
    (tmp_path / "nodes.json").write_bytes(orjson.dumps(node()))
    with ApiServerDouble(namespaced("team-a", Pod=pods)) as double:
        double.readable = readable("team-a")
        outcome = recorded(double, tmp_path / "f", options=fast(namespaces=("team-a",)))
    assert "--nodes-from nodes.yaml" in "".join(outcome.notes)
    reprieve(tmp_path, "record", "--from", "f", "-o", "t.ktr")

    def bound(*options: str) -> int:
        done = reprieve(
            tmp_path, *["replay", "t.ktr", "-o", "json", "--force", "--run", "run"], *options
        )
        return int(orjson.loads(done.stdout)["decided"]["bound"])

    assert bound() == 0
    assert bound("--nodes-from", "nodes.json") == bound("--made-nodes", "1") == 1


def test_a_comparison_with_a_partial_recording_says_that_it_is_partial(tmp_path: Path) -> None:
    """Also without -o wide: a node that looks emptier than it was may explain what differs."""
    pods = Script(watches=[[event("ADDED", make_pod("p", 6, metadata={"namespace": "team-a"}))]])
    nodes = Script(lists=[Listing(items=[node()], version=5)])
    scripts = cluster(Node=nodes) | namespaced("team-a", Pod=pods)
    with ApiServerDouble(scripts) as double:
        double.readable = readable("team-a", beside=("/api/v1/nodes",))
        recorded(double, tmp_path / "f", options=fast(namespaces=("team-a",)))
    done = reprieve(tmp_path, "replay", "f", "--compare-recorded")
    assert (
        "note: partial-recording: only these namespaces are recorded: team-a; pods" in done.stdout
    )
