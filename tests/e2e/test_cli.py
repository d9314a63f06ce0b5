"""The command line as people use it: exit codes, outputs, signals."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import grpc
import pytest
import yaml

from replay.backends.processes import EmbeddedServices
from replay.trace.validate import NO_DEVICES
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as scheduler_rpc
from tests.e2e.commands import (
    INTERRUPTED,
    LOOP,
    REFUSED,
    SERVICE,
    SPANS_LOST,
    command,
    environment,
    reprieve,
    reprieve_process,
)
from tests.e2e.replays import DEMOS, trace

NGINX = str(DEMOS / "nginx-preemption.jsonl")
NODE = """\
apiVersion: v1
kind: Node
metadata: {name: 'n'}
status: {capacity: {cpu: "4", memory: 4Gi, pods: "110"}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, resources: {requests: {cpu: "1"}}}]
  resourceClaims: [{name: gpu}]
"""


@pytest.fixture
def addresses(services: EmbeddedServices) -> list[str]:
    """Return the options that name the running services."""
    scheduler, eviction = (services.addresses[name] for name in ("scheduler", "eviction"))
    return ["--scheduler", scheduler, "--eviction", eviction]


@pytest.fixture
def nginx(tmp_path: Path, addresses: list[str]) -> Path:
    """Return the run of the nginx scenario."""
    reprieve(tmp_path, "replay", NGINX, "--run", "r", "--spans", "off", "-q", *addresses)
    return tmp_path / "r"


@pytest.mark.parametrize("verb", ["convert", "generate"])
def test_an_ending_that_no_trace_has_is_refused(tmp_path: Path, verb: str) -> None:
    """Exit 2, and nothing is written."""
    source = [NGINX] if verb == "convert" else []
    done = reprieve(tmp_path, verb, *source, "-o", "x.json", code=REFUSED)
    assert "has no suffix of a trace; write .ktr" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_trace_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """Exit 2 names the file."""
    done = reprieve(tmp_path, "convert", NGINX, "-o", "missing/x.ktr", code=REFUSED)
    assert "missing" in done.stderr


@pytest.mark.parametrize("option", ["--kubelet-config", "--scheduler-config"])
def test_a_configuration_that_is_not_text_is_refused(tmp_path: Path, option: str) -> None:
    """Exit 2 names the file."""
    (tmp_path / "config").write_bytes(b"\xff\xfe\x00")
    done = reprieve(tmp_path, "replay", NGINX, option, "config", code=REFUSED)
    assert "config: is not UTF-8" in done.stderr


@pytest.mark.parametrize("verb", ["replay", "validate"])
def test_a_trace_that_cannot_be_read_leaves_nothing_behind(tmp_path: Path, verb: str) -> None:
    """Exit 2 before a service is started or a run folder made."""
    (tmp_path / "x").write_text("nothing that is known\n")
    done = reprieve(tmp_path, verb, "x", code=REFUSED)
    assert "x: is of no known format" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_service_that_is_not_there_ends_with_3(tmp_path: Path) -> None:
    """The message names the address, and no run folder is left."""
    arguments = ["--scheduler", "127.0.0.1:1", "--no-eviction", "-q"]
    done = reprieve(tmp_path, "replay", NGINX, *arguments, code=SERVICE)
    assert "127.0.0.1:1" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_configuration_that_a_service_refuses_ends_with_2_and_keeps_the_former_run(
    tmp_path: Path, addresses: list[str], nginx: Path
) -> None:
    """--force removes it only once a new one begins; the message names what is wrong."""
    (tmp_path / "kubelet.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "evictionHard: {memory.available: lots}\n"
    )
    before = {path.name: path.read_bytes() for path in nginx.iterdir()}
    arguments = ["--run", str(nginx), "--force", "--kubelet-config", "kubelet.yaml", "-q"]
    done = reprieve(tmp_path, "replay", NGINX, *arguments, *addresses, code=REFUSED)
    assert "evictionHard" in done.stderr
    assert {path.name: path.read_bytes() for path in nginx.iterdir()} == before


def test_spans_that_are_lost_end_with_4(tmp_path: Path, addresses: list[str]) -> None:
    """The summary is shown all the same."""
    done = reprieve(
        tmp_path,
        *("replay", NGINX, "-o", "json", *addresses),
        code=SPANS_LOST,
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1",
        OTEL_EXPORTER_OTLP_TIMEOUT="1",
    )
    assert json.loads(done.stdout)["spans"]["delivered"] == 0
    assert "spans did not reach" in done.stderr


class Restless(scheduler_service_pb2_grpc.SchedulerServiceServicer):
    """A scheduler that refuses the first pod again and again, on a `node` and in other words."""

    def __init__(self, node: str = "") -> None:
        self.node = node

    def CreateSession(  # noqa: N802 - gRPC's name
        self, request: scheduler_rpc.CreateSessionRequest, context: grpc.ServicerContext
    ) -> scheduler_rpc.Session:
        """Start a session."""
        del request, context
        return scheduler_rpc.Session(session_id="s")

    def StreamingRunRound(  # noqa: N802 - gRPC's name
        self,
        request_iterator: Iterator[scheduler_rpc.RunRoundRequest],
        context: grpc.ServicerContext,
    ) -> Iterator[scheduler_rpc.RunRoundResponse]:
        """Answer each round with a verdict about the same pod."""
        del context
        uids: list[str] = []
        for cycle, request in enumerate(request_iterator, 1):
            round_, answer = request.round, scheduler_pb2.RoundOutcomes()
            uids += [
                event.add.pod.metadata.uid for event in round_.events if event.add.HasField("pod")
            ]
            for uid in uids[:1]:
                outcome = answer.outcomes.add(time_ns=round_.time_ns, attempts=cycle)
                outcome.pop.uid, outcome.pop.cycle = uid, cycle
                outcome.unschedulable.message = f"no, for the {cycle}th time"
                if self.node:
                    outcome.unschedulable.nominated_node_name = self.node
                else:
                    outcome.unschedulable.ends_nomination.SetInParent()
            sequence = request.stamp.sequence
            yield scheduler_rpc.RunRoundResponse(rounds=[answer], sequence=sequence)


class Silent(Restless):
    """A scheduler that answers no round; `asked` is set by the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self._ended = Event(), Event()

    def StreamingRunRound(  # noqa: N802 - gRPC's name
        self,
        request_iterator: Iterator[scheduler_rpc.RunRoundRequest],
        context: grpc.ServicerContext,
    ) -> Iterator[scheduler_rpc.RunRoundResponse]:
        """Wait until the caller goes."""
        context.add_callback(self._ended.set)
        next(request_iterator)
        self.asked.set()
        self._ended.wait()
        yield from ()


@contextlib.contextmanager
def served(restless: Restless) -> Iterator[list[str]]:
    """Serve a scheduler and yield the options that name it."""
    server = grpc.server(ThreadPoolExecutor(4))
    scheduler_service_pb2_grpc.add_SchedulerServiceServicer_to_server(restless, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield ["--scheduler", f"127.0.0.1:{port}", "--no-eviction", "-q", "--spans", "off"]
    finally:
        server.stop(0).wait()


def test_a_scheduler_that_goes_round_ends_with_5(tmp_path: Path) -> None:
    """A replacement service is distinguished from one that cannot be reached."""
    with served(Restless()) as arguments:  # type: ignore[abstract] # gRPC refuses the others
        done = reprieve(tmp_path, "replay", NGINX, *arguments, code=LOOP)
    assert "1000 rounds" in done.stderr


def test_a_scheduler_that_breaks_the_contract_ends_with_3(tmp_path: Path) -> None:
    """The message names the field, and what is wrong with it."""
    with served(Restless("nowhere")) as arguments:  # type: ignore[abstract] # as above
        done = reprieve(tmp_path, "replay", NGINX, *arguments, code=SERVICE)
    field = "outcomes[0].unschedulable.nominated_node_name"
    assert f"{field}: 'nowhere': no node has this name" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_an_interrupted_replay_says_so_and_can_be_read(
    tmp_path: Path, long_trace: Path, number: signal.Signals, code: int
) -> None:
    """As Ctrl-C, a stopped unit or a closed terminal ends it: with one line."""
    ended, errors = _stopped_replay(tmp_path, long_trace, number)
    assert ended == code, errors
    assert errors == b"Error: ended by %b; r has what was written until then\n" % (
        number.name.encode()
    )
    assert json.loads((tmp_path / "r" / "manifest.json").read_text())["finished"] is False
    assert number.name in json.loads((tmp_path / "r" / "run.lock").read_text())["broke_off"]
    shown = reprieve(tmp_path, "get", "nodes", "r")
    assert "NAME" in shown.stdout


def test_a_second_signal_ends_a_replay_at_once(tmp_path: Path, long_trace: Path) -> None:
    """Whatever the first one is still waiting for."""
    # In the order of their numbers, in which Python takes signals that have come together.
    ended, _ = _stopped_replay(tmp_path, long_trace, signal.SIGINT, signal.SIGTERM)
    assert ended in {-signal.SIGTERM, 130}, "130: the first signal was faster"


def test_a_replay_whose_scheduler_is_silent_ends_by_a_signal(tmp_path: Path) -> None:
    """Not only when the response is overdue, after two minutes."""
    silent = Silent()  # type: ignore[abstract] # gRPC refuses the others
    with (
        served(silent) as arguments,
        subprocess.Popen(
            command("replay", NGINX, "--run", "r", *arguments),
            cwd=tmp_path,
            env=environment(),
            stderr=subprocess.PIPE,
        ) as process,
    ):
        assert silent.asked.wait(30)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 143, errors
    assert errors == b"Error: ended by SIGTERM; r has what was written until then\n"


def test_a_query_that_is_stopped_says_so(nginx: Path) -> None:
    """Although DuckDB looks for no signal meanwhile, or raises an error of its own."""
    sql = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
    with subprocess.Popen(
        command("query", str(nginx), sql),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        maps = Path(f"/proc/{process.pid}/maps")
        while "duckdb" not in maps.read_text():
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(1)  # The query takes hours, and has begun by then as a rule.
        process.send_signal(signal.SIGTERM)
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, errors) == (143, b"Error: ended by SIGTERM\n")


def test_a_comparison_that_is_stopped_stops_its_replay(tmp_path: Path, long_trace: Path) -> None:
    """Its replay unwinds as one of its own does, and no process is left."""
    arguments = command("compare", str(long_trace), "--run", "c", "--b", "--seed 1")
    ended, errors = _stopped(tmp_path, arguments, tmp_path / "c" / "a", signal.SIGTERM)
    assert ended == 143, errors
    lock = json.loads((tmp_path / "c" / "a" / "run.lock").read_text())
    assert "SIGTERM" in lock["broke_off"]
    assert "SIGTERM" in (tmp_path / "c" / "a.log").read_text()
    with pytest.raises(ProcessLookupError):
        os.kill(lock["pid"], 0)


def test_a_sweep_that_is_stopped_stops_its_replays(tmp_path: Path, long_trace: Path) -> None:
    """Those that wait for a worker do not begin."""
    arguments = command(
        "sweep", str(long_trace), "--over", "seed=1..3", "-o", "s", "--workers", "1", "-q"
    )
    ended, errors = _stopped(tmp_path, arguments, tmp_path / "s" / "cells", signal.SIGTERM)
    assert ended == 143, errors
    (log,) = (tmp_path / "s" / "cells").glob("*/replay.log")
    assert "SIGTERM" in log.read_text()


def _stopped_replay(folder: Path, trace: Path, *numbers: signal.Signals) -> tuple[int, bytes]:
    """Return exit code and standard error of a replay that gets signals in its midst."""
    arguments = command("replay", str(trace), "--run", "r", "--spans", "off", "-q")
    return _stopped(folder, arguments, folder / "r", *numbers)


def _stopped(
    folder: Path, arguments: list[str], run: Path, *numbers: signal.Signals
) -> tuple[int, bytes]:
    with subprocess.Popen(
        arguments,
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if any(path.stat().st_size for path in run.rglob("history.rounds.zst")):
                break
            time.sleep(0.05)
        for number in numbers:
            os.killpg(process.pid, number)
            time.sleep(0.02)
        try:
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    return process.returncode, errors


def test_until_counts_from_the_traces_first_record(tmp_path: Path, addresses: list[str]) -> None:
    """The scenario's times are those of a calendar; pods come at 8 s and 20 s."""
    start_ns = json.loads(Path(NGINX).read_text().splitlines()[0])["atNs"]
    arguments = ["--until", "9s", "-o", "json", "-q", "--spans", "off", *addresses]
    shown = json.loads(reprieve(tmp_path, "replay", NGINX, *arguments).stdout)
    assert shown["end"] == "the time of --until is reached"
    assert shown["end_ns"] == int(start_ns) + 8_000_000_000


def test_a_replay_names_what_it_does_not_simulate(tmp_path: Path, addresses: list[str]) -> None:
    """As validate does, and with the count."""
    (tmp_path / "x.yaml").write_text(f"{NODE}---\n{POD}")
    arguments = ["x.yaml", "-o", "json", "-q", *addresses]
    notes = json.loads(reprieve(tmp_path, "replay", *arguments).stdout)["notes"]
    text = NO_DEVICES
    assert {"kind": "not-simulated", "text": text, "count": 1} in notes
    warnings = json.loads(reprieve(tmp_path, "validate", "x.yaml", "-o", "json").stdout)["warnings"]
    assert warnings == {text: 1}


@pytest.mark.parametrize("spans", ["off", "1%"])
@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_a_summary_in_a_pipe_has_no_colours(
    tmp_path: Path, addresses: list[str], output: str, spans: str
) -> None:
    """And says which spans were kept."""
    arguments = ["-o", output, "--spans", spans, *addresses]
    shown = reprieve(tmp_path, "replay", NGINX, *arguments).stdout
    assert "\x1b" not in shown
    match output:
        case "json":
            assert json.loads(shown)["spans"]["choice"] == spans
        case "yaml":
            assert str(yaml.safe_load(shown)["spans"]["choice"]).lower() in {spans, "false"}
        case _:
            assert "spans" in shown


def test_a_report_comes_in_every_form(tmp_path: Path) -> None:
    """JSON and YAML say the same; wide lines are whole."""
    outputs = ("table", "wide", "json", "yaml")
    shown = {
        output: reprieve(tmp_path, "validate", NGINX, "-o", output).stdout for output in outputs
    }
    assert json.loads(shown["json"]) == yaml.safe_load(shown["yaml"])
    assert shown["wide"].split() == shown["table"].split()
    assert len(shown["wide"].splitlines()) <= len(shown["table"].splitlines())


@pytest.mark.parametrize("name", ["queue", "scheduler", "eviction"])
def test_a_service_is_served_alone_until_sigterm(tmp_path: Path, name: str) -> None:
    """Its first line tells where it listens."""
    queue = ["--queue", "127.0.0.1:1"] if name == "scheduler" else []
    arguments = command("serve", name, "--listen", "127.0.0.1:0", *queue)
    with subprocess.Popen(
        arguments, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert re.match(rf"reprieve {name} listening on 127\.0\.0\.1:\d+", line)
    assert process.returncode == 0


def test_a_trace_is_converted_there_and_back(tmp_path: Path) -> None:
    """The two forms are twins, and a former file is replaced."""
    (tmp_path / "b.jsonl").write_text("former")
    reprieve(tmp_path, "convert", NGINX, "-o", "a.ktr")
    reprieve(tmp_path, "convert", "a.ktr", "-o", "b.jsonl")
    reprieve(tmp_path, "convert", "b.jsonl", "-o", "c.ktr")
    assert trace([tmp_path / "b.jsonl"]) == trace([Path(NGINX)])
    assert (tmp_path / "c.ktr").read_bytes() == (tmp_path / "a.ktr").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ktr", "b.jsonl", "c.ktr"]


def test_a_users_folder_named_services_does_not_shadow_ours(tmp_path: Path) -> None:
    """All services are started as children, from the folder that has it."""
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "__init__.py").write_text("raise SystemExit('shadowed')\n")
    shown = reprieve_process(tmp_path, "replay", NGINX, "-o", "json", "--spans", "off").stdout
    assert json.loads(shown)["end"]


def test_one_service_may_be_elsewhere(tmp_path: Path, addresses: list[str]) -> None:
    """The other is a child, and the decisions are the same."""
    for name, chosen in (("a", addresses[:2]), ("b", addresses[2:])):
        reprieve(tmp_path, "replay", NGINX, "--run", name, "--spans", "off", "-q", *chosen)
    logs = [(tmp_path / name / "decisions.jsonl").read_bytes() for name in "ab"]
    assert logs[0]
    assert logs[0] == logs[1]


def test_get_shows_a_run_in_its_forms(tmp_path: Path, nginx: Path) -> None:
    """Tables as kubectl's, and objects."""
    del nginx
    table = reprieve(tmp_path, "get", "pods", "r").stdout
    assert table.split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    wide = reprieve(tmp_path, "get", "pods", "r", "-o", "wide", "-A").stdout
    assert {"NAMESPACE", "NODE"} <= set(wide.split())
    watched = reprieve(tmp_path, "get", "pods", "r", "-w").stdout
    assert len(watched.splitlines()) > len(table.splitlines())
    early = reprieve(tmp_path, "get", "pods", "r", "--at", "0s").stdout
    assert early != table
    as_json = json.loads(reprieve(tmp_path, "get", "nodes", "r", "-o", "json").stdout)
    as_yaml = yaml.safe_load(reprieve(tmp_path, "get", "nodes", "r", "-o", "yaml").stdout)
    assert as_json == as_yaml
    empty = reprieve(tmp_path, "get", "pods", "r", "-n", "nobody")
    assert empty.stderr == "No resources found in nobody namespace.\n"


def test_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    """Exit 2."""
    assert "not a run directory" in reprieve(tmp_path, "get", "pods", ".", code=REFUSED).stderr
