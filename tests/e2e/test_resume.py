"""A run that broke off is resumed; a run whose services are lost goes on, or says why it cannot."""

from __future__ import annotations

import heapq
import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from replay.backends.processes import EmbeddedServices, ServiceProcess
from replay.backends.services import EvictionService, SchedulerService
from replay.errors import BackendError, RunError, ServiceLostError
from replay.generate.workload import GenerateOptions, generate
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace
from replay.recovery import Checkpointer
from replay.results.run.directory import RunDirectory
from replay.results.run.lock import is_held
from replay.results.run.resume_point import ResumePoint
from replay.runner import Progress, run_replay
from replay.settings import ReplaySettings
from replay.world.loop.replay import Replay
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from services.telemetry.span import Sampling
from tests.busy_cluster import everything_under_way
from tests.e2e.commands import command, environment, reprieve, reprieve_process
from tests.e2e.test_budgets import bursts
from tests.e2e.test_resizes import at
from tests.e2e.test_resizes import pod as resizable
from tests.torture.kill_traces import kind_of, replay_of, with_devices
from tests.torture.kills import Elsewhere, children
from tests.torture.same_run import differences, recorded_differences
from tests.unit.world.builders import create, create_pod, make_node, update

WORKLOAD = GenerateOptions(
    seed=11,
    nodes=4,
    pods=60,
    deployments=2,
    budgets=4,
    window_ns=60 * SECOND_NS,
    service_ns=20 * SECOND_NS,
    leaky_percent=20,
)
TRACE = ("--nodes", "40", "--pods", "600", "--service-time", "30s", "--leaky", "0")
HOUR_NS = 3600 * SECOND_NS
DEFAULTS = eviction_pb2.EvictionConfig(use_defaults=True)
OPTIONS = ("-q", "--spans", "10%", "--no-eviction")


def _settings(run: Path, **more: object) -> ReplaySettings:
    return ReplaySettings(
        version="test",
        run_path=run,
        sampling=Sampling(1.0),
        checkpoint_every_ns=50_000_000,
        **more,  # type: ignore[arg-type] # fields of the settings
    )


def _broken_off(folder: Path, *more: str) -> Path:
    """Kill a replay after its first checkpoint and return its run."""
    run = folder / "run"
    reprieve(folder, "generate", "-o", "trace.ktr", *TRACE)
    options = ["--run", "run", "--checkpoint-every", "50ms", *OPTIONS, *more]
    process = subprocess.Popen(
        command("replay", "trace.ktr", *options), cwd=folder, env=environment()
    )
    deadline = time.monotonic() + 60
    while not _has_checkpoint(run) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return run


def _has_checkpoint(run: Path) -> bool:
    try:
        return bool(ResumePoint.read(run).world)
    except RunError:
        return False


@pytest.mark.e2e
def test_a_run_passes_the_loss_of_each_service(tmp_path: Path) -> None:
    """All are killed once, each at another moment; log, tables' source and figures are the same."""
    calm = run_replay(_settings(tmp_path / "calm"), lambda: generate(WORKLOAD), lambda *_: None)
    settings = _settings(tmp_path / "run", in_process=False)
    notices: list[str] = []
    left = ["queue", "scheduler", "eviction"]
    started: list[EmbeddedServices] = []

    class Seen(EmbeddedServices):
        def __enter__(self) -> EmbeddedServices:
            started.append(self)
            return super().__enter__()

    def progress(now_ns: int, *_: object) -> None:
        if left and now_ns > (4 - len(left)) * 15 * SECOND_NS:
            os.kill(started[0].processes[left.pop()].pid, signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("replay.sessions.EmbeddedServices", Seen)
        disturbed = run_replay(settings, lambda: generate(WORKLOAD), progress, notices.append)
    assert not left
    assert "the run goes on" in notices
    mine, theirs = ((tmp_path / run / "decisions.jsonl").read_bytes() for run in RUNS)
    assert mine == theirs
    assert list(disturbed.run.rounds()) == list(calm.run.rounds())
    mapping, undisturbed = (run.summary.to_mapping() for run in (disturbed, calm))
    assert mapping["decided"] == undisturbed["decided"]
    assert mapping["workloads"] == undisturbed["workloads"]
    assert not (tmp_path / "run" / "resume.zst").exists()


@pytest.mark.e2e
@pytest.mark.parametrize("seed", [1, 5, 6], ids=kind_of)
def test_a_world_of_every_kind_is_saved_and_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A service is lost three times, each time shortly after a checkpoint."""
    monkeypatch.setattr("replay.recovery.SHARE", 0)
    with replay_of(seed, tmp_path) as arguments:
        path = arguments[: max(1, sum(argument.endswith(".csv") for argument in arguments))]
        options = ImportOptions(openb_timed=len(path) == 2)

        def records() -> Iterator[trace_pb2.Record]:
            return iter(open_trace(path, options=options))

        def replayed(name: str, progress: Progress, **more: object) -> bytes:
            settings = ReplaySettings(
                version="test",
                run_path=tmp_path / name,
                sampling=Sampling(0.1),
                in_process=True,
                model_values=("service-time=40s",),
                until_ns=600 * SECOND_NS,
                **more,  # type: ignore[arg-type] # fields of the settings
            )
            finished = run_replay(settings, records, progress)
            verdicts[name] = finished.summary.workloads
            return (tmp_path / name / "decisions.jsonl").read_bytes()

        verdicts: dict[str, object] = {}
        calls = itertools.count()
        lost_at = {3, 9, 15}

        def lost(*_: object) -> None:
            if next(calls) in lost_at:
                raise ServiceLostError("the scheduler is lost")

        calm = replayed("calm", lambda *_: None)
        assert replayed("run", lost, checkpoint_every_ns=10_000_000) == calm
    assert next(calls) > max(lost_at)
    assert verdicts["run"] == verdicts["calm"]


@pytest.mark.e2e
def test_preemptions_and_resizes_that_are_under_way_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service is lost after several checkpoints that have some of both, among them gates."""
    monkeypatch.setattr("replay.recovery.SHARE", 0)
    seen: list[tuple[int, int]] = []
    save = Checkpointer.save

    def looked(checkpointer: Checkpointer, now_ns: int, replay: Replay, *more: Any) -> None:
        under_way = replay._outcomes.preemptions._under_way
        waiting = sum(pod.allocated is not None for pod in replay.cluster.pods.values())
        seen.append((len(under_way), waiting))
        save(checkpointer, now_ns, replay, *more)

    def records() -> Iterator[trace_pb2.Record]:
        """Yield a workload with a node whose pods are resized: one is deferred, one infeasible."""
        resizes = [
            create(make_node("own", "4Gi")),
            create_pod(resizable("p", "1Gi", node="own")),
            create_pod(resizable("q", "2Gi", node="own")),
            at(15, update(resizable("p", "3Gi"))),
            at(40, update(resizable("q", "500Gi"))),
            at(70, update(resizable("q", "1Gi"))),
        ]
        return heapq.merge(bursts(3), resizes, key=attrgetter("time_ns"))

    calls = itertools.count()

    def lost(*_: object) -> None:
        if next(calls) in {3, 9, 15, 40, 80}:
            raise ServiceLostError("the scheduler is lost")

    def replayed(name: str, progress: Progress, **more: object) -> bytes:
        settings = ReplaySettings(
            version="test",
            run_path=tmp_path / name,
            sampling=Sampling(0.0),
            in_process=True,
            model_values=("preemption-delay=20s", "budget-delay=3s"),
            **more,  # type: ignore[arg-type] # fields of the settings
        )
        run_replay(settings, records, progress)
        return (tmp_path / name / "decisions.jsonl").read_bytes()

    monkeypatch.setattr(Checkpointer, "save", looked)
    calm = replayed("calm", lambda *_: None, checkpoint_every_ns=HOUR_NS)
    seen.clear()
    assert replayed("run", lost, checkpoint_every_ns=0) == calm
    assert next(calls) > 80
    assert sum(preemptions > 0 for preemptions, _ in seen) > 10
    assert sum(resizes > 0 for _, resizes in seen) > 10


@pytest.mark.e2e
def test_everything_that_is_under_way_goes_on_in_a_new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rollouts, blocked drains, silent nodes, finalizers, restarts, refused pods, delays.

    A checkpoint is taken after every instant; the run is resumed from some, spread over its length.
    """
    chance = Random(1)  # noqa: S311 - a test's choices
    arguments = [*everything_under_way(chance, tmp_path), "--until", "3m"]
    count, resumed = _checkpointed(tmp_path, monkeypatch, arguments, range(20, 1000, 100))
    assert count > 150
    for copy in resumed:
        reprieve_process(tmp_path, "resume", copy.name, PYTHONHASHSEED="7")
        assert recorded_differences(copy, tmp_path / "run") == [], copy.name
    assert differences(resumed[1], tmp_path / "run") == []


@pytest.mark.e2e
def test_claims_for_devices_go_on_in_a_new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Allocated, reserved, shared, waiting for a device; also while bindings are under way."""
    chance = Random(1)  # noqa: S311 - a test's choices
    arguments = [*with_devices(chance, tmp_path), "--model", "bind-cost=2s", "--until", "2m"]
    count, resumed = _checkpointed(tmp_path, monkeypatch, arguments, range(10, 1000, 25))
    assert count > 60
    for copy in resumed:
        reprieve_process(tmp_path, "resume", copy.name, PYTHONHASHSEED="7")
        assert recorded_differences(copy, tmp_path / "run") == [], copy.name


def _checkpointed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], copied: range
) -> tuple[int, Sequence[Path]]:
    """Replay into `run`, without a report; return the number of checkpoints, and copies of the run.

    copied: the checkpoints at which it is copied.
    """
    copies: list[Path] = []
    count = itertools.count()
    save = Checkpointer.save

    def kept(checkpointer: Checkpointer, *state: Any) -> None:
        save(checkpointer, *state)
        if (number := next(count)) in copied:
            copies.append(folder / f"at-{number:03}")
            shutil.copytree(folder / "run", copies[-1])

    monkeypatch.setattr("replay.recovery.SHARE", 0)
    monkeypatch.setattr(Checkpointer, "save", kept)
    options = ("--checkpoint-every", "0s", "--in-process", "--no-report", "-q", "--run", "run")
    reprieve(folder, "replay", *arguments, *options)
    return next(count), copies


@pytest.mark.e2e
def test_a_service_that_does_not_come_back_ends_the_run_with_its_name(tmp_path: Path) -> None:
    """With --reconnect 0s at once."""
    with EmbeddedServices() as services:

        def progress(now_ns: int, *_: object) -> None:
            if now_ns > 20 * SECOND_NS:
                os.kill(services.processes["scheduler"].pid, signal.SIGKILL)

        settings = _settings(
            tmp_path / "run",
            scheduler_address=services.addresses["scheduler"],
            eviction_address=services.addresses["eviction"],
            reconnect_ns=0,
        )
        with pytest.raises(ServiceLostError, match="the scheduler at 127"):
            run_replay(settings, lambda: generate(WORKLOAD), progress)
    assert (tmp_path / "run" / "resume.zst").exists()


@pytest.mark.e2e
def test_a_killed_replay_is_resumed_and_everything_is_as_if_it_was_not(tmp_path: Path) -> None:
    """Decision log, tables but for wall times, and what get and explain show."""
    run = _broken_off(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    reprieve(elsewhere, "resume", "../run", "--assert", "bound > 0", "--junit", "junit.xml")
    assert "bound &gt; 0" in (elsewhere / "junit.xml").read_text("utf-8")
    reprieve(tmp_path, "replay", "trace.ktr", "--run", "calm", *OPTIONS)
    log = (run / "decisions.jsonl").read_bytes()
    assert log == (tmp_path / "calm" / "decisions.jsonl").read_bytes()
    assert RunDirectory.open(run).manifest().finished
    sql = "select * from decisions"
    for question in (("query", sql), ("get", "pods")):
        shown = [reprieve(tmp_path, question[0], *_args(question, run)).stdout for run in RUNS]
        assert shown[0] == shown[1]
    done = reprieve(tmp_path, "resume", "run")
    assert "has its end; there is nothing to resume" in done.stderr


@pytest.mark.e2e
def test_a_resumed_replay_waits_for_services_at_addresses(tmp_path: Path) -> None:
    """They were lost with it, and come back after it."""
    services = Elsewhere()
    with services:
        options = ("--scheduler", services.addresses["scheduler"], "--no-report")
        run = _broken_off(tmp_path, *options)
    with (tmp_path / "errors").open("wb") as errors:
        resumed = subprocess.Popen(
            command("resume", "run"), cwd=tmp_path, env=environment(), stderr=errors
        )
    while b"waiting for it" not in (tmp_path / "errors").read_bytes():
        assert resumed.poll() is None
        time.sleep(0.05)
    with services:
        assert resumed.wait(60) == 0
    assert RunDirectory.open(run).manifest().finished


RUNS = ("run", "calm")


def _args(question: tuple[str, str], run: str) -> tuple[str, ...]:
    return (run, question[1]) if question[0] == "query" else (question[1], run)


@pytest.mark.e2e
def test_a_run_is_not_resumed_with_another_trace_or_from_a_damaged_checkpoint(
    tmp_path: Path,
) -> None:
    """The refusal names what has changed; nothing in the run is changed."""
    run = _broken_off(tmp_path)
    before = (run / "decisions.jsonl").read_bytes()
    whole = (run / "resume.zst").read_bytes()
    (run / "resume.zst").write_bytes(whole[: len(whole) // 2])
    assert "is damaged" in reprieve(tmp_path, "resume", "run", code=2).stderr
    (run / "resume.zst").write_bytes(whole)
    point = ResumePoint.read(run)
    argv = (*point.command.argv, "--seed", "99")
    changed = replace(point, command=replace(point.command, argv=argv))
    (run / "resume.zst").write_bytes(changed.encoded())
    assert "its seed has changed" in reprieve(tmp_path, "resume", "run", code=2).stderr
    assert (run / "decisions.jsonl").read_bytes() == before


@pytest.mark.e2e
def test_services_that_are_killed_at_their_start_are_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As out of memory; one that refuses to start is not."""
    wait_listening, left = ServiceProcess.wait_listening, ["queue", "scheduler"]

    def killed(process: ServiceProcess, *arguments: Any) -> str:
        if process.name in left:
            left.remove(process.name)
            os.kill(process.pid, signal.SIGKILL)
        return wait_listening(process, *arguments)

    monkeypatch.setattr(ServiceProcess, "wait_listening", killed)
    with EmbeddedServices(eviction=False) as services:
        assert set(services.addresses) == {"queue", "scheduler"}
    assert not left


@pytest.mark.e2e
def test_sigterm_to_the_replay_and_all_services_is_the_signal_and_no_lost_service(
    tmp_path: Path, long_trace: Path
) -> None:
    """As when a container or a unit of systemd ends: the services go first."""
    (tmp_path / "trace.ktr").symlink_to(long_trace)
    process, _ = _begun(tmp_path, "replay", "trace.ktr", "--run", "run", "--spans", "off", "-q")
    services = [pid for child in children(process.pid) for pid in (*children(child), child)]
    assert len(services) == 4
    for pid in (*services, process.pid):
        os.kill(pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert "SIGTERM" in str(RunDirectory.open(tmp_path / "run").state())


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("arguments", "runs"),
    [
        (("compare", "trace.ktr", "--run", "out", "--b", "--seed 1"), "out/a"),
        (
            ("sweep", "trace.ktr", "--over", "seed=1..2", "-o", "out", "-q", "--workers", "1"),
            "out/cells",
        ),
    ],
    ids=["compare", "sweep"],
)
def test_a_command_that_is_killed_leaves_no_replay(
    tmp_path: Path, long_trace: Path, arguments: tuple[str, ...], runs: str
) -> None:
    """Its replays notice it by their standard input, and end as by SIGTERM."""
    (tmp_path / "trace.ktr").symlink_to(long_trace)
    process, (lock, *_) = _begun(tmp_path, *arguments, runs=runs)
    replays = children(process.pid)
    assert replays
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while is_held(lock.parent) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_held(lock.parent)
    assert "SIGTERM" in str(RunDirectory.open(lock.parent).state())


@pytest.mark.e2e
def test_sigterm_deletes_the_sessions_at_services_elsewhere(
    tmp_path: Path, long_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be kept until they expire otherwise; these services have one at a time."""
    monkeypatch.setenv("REPRIEVE_LIMITS", "caller_sessions=1")
    (tmp_path / "trace.ktr").symlink_to(long_trace)
    with EmbeddedServices() as services:
        scheduler, eviction = (services.addresses[name] for name in ("scheduler", "eviction"))
        options = ("--run", "run", "--spans", "off", "-q")
        addresses = ("--scheduler", scheduler, "--eviction", eviction)
        process, _ = _begun(tmp_path, "replay", "trace.ktr", *options, *addresses)
        with pytest.raises(BackendError, match="RESOURCE_EXHAUSTED"):
            EvictionService(eviction, DEFAULTS)
        with pytest.raises(BackendError, match="RESOURCE_EXHAUSTED"):
            SchedulerService(scheduler, scheduler_pb2.SchedulerConfig())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        EvictionService(eviction, DEFAULTS).close()
        SchedulerService(scheduler, scheduler_pb2.SchedulerConfig()).close()


@pytest.mark.e2e
def test_a_run_that_was_killed_right_after_its_end_gets_its_report_and_its_checks(
    tmp_path: Path,
) -> None:
    """What is left of its last moments is removed; to resume it again changes nothing."""
    reprieve(tmp_path, "generate", "-o", "trace.ktr", "--pods", "30", "--nodes", "5")
    files = ("--junit", "junit.xml", "--summary=summary.md")
    options = ("--run", "run", "-q", "--assert", "bound == 0", *files)
    reprieve(tmp_path, "replay", "trace.ktr", *options, code=1, reports=True)
    run = tmp_path / "run"
    results = [tmp_path / "junit.xml", tmp_path / "summary.md"]
    written = [result.read_text("utf-8") for result in results]
    whole = {path.name: path.read_bytes() for path in run.iterdir()}
    (run / "report.html").unlink()
    for name in ("resume.zst", "report.html.draft", "run.lock"):
        (run / name).write_bytes(b"left")
    (run / ".tables-x").mkdir()
    for path in results:
        path.unlink()
    for _ in range(2):
        done = reprieve(tmp_path, "resume", "run", code=1)
        assert "has its end; there is nothing to resume" in done.stderr
        assert "bound" in done.stderr
        assert [result.read_text("utf-8") for result in results] == written
        assert {path.name: path.read_bytes() for path in run.iterdir()} == whole
    more = ("--assert", "bound == 30", "--junit", "other.xml")
    assert "bound == 0" in reprieve(tmp_path, "resume", "run", *more, code=1).stderr
    assert (tmp_path / "other.xml").read_text("utf-8").count("<testcase") == 2


@pytest.mark.e2e
def test_a_run_that_was_killed_at_its_start_is_refused_and_its_folder_used_again(
    tmp_path: Path,
) -> None:
    """Before its manifest was written; one without a checkpoint's file names the way on, too."""
    reprieve(tmp_path, "generate", "-o", "trace.ktr", "--pods", "30", "--nodes", "5")
    run = tmp_path / "run"
    run.mkdir()
    for name in ("run.lock", "resume.zst", "manifest.json.0123456789abcdef.draft"):
        (run / name).write_text("{}")
        output = reprieve(tmp_path, "resume", "run", code=2).stderr
        assert "its replay was killed before it began; replay the trace again" in output
    reprieve(tmp_path, "replay", "trace.ktr", "--run", "run", "-q", "--no-report")
    directory = RunDirectory.open(run)
    directory.write_manifest(replace(directory.manifest(), finished=False, files={}))
    output = reprieve(tmp_path, "resume", "run", code=2).stderr
    assert "has no resume.zst; replay its trace again, with --force" in output


@pytest.mark.e2e
def test_a_state_that_cannot_be_saved_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It continues without checkpoints, and reports it once."""

    def unsaved(*_: object) -> bytes:
        raise TypeError("the state of a replay has what cannot be saved: a lock")

    monkeypatch.setattr("replay.recovery.dump", unsaved)
    notices: list[str] = []
    settings = _settings(tmp_path / "run", in_process=True)
    run_replay(settings, lambda: generate(WORKLOAD), lambda *_: None, notices.append)
    (notice,) = notices
    assert notice.startswith("no checkpoint can be taken from here on")


def _begun(
    folder: Path, *arguments: str, runs: str = "run"
) -> tuple[subprocess.Popen[str], list[Path]]:
    """Start a command and wait until its first replay has written rounds; return their files."""
    process = subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [
            path for path in (folder / runs).rglob("history.rounds.zst") if path.stat().st_size
        ]
        if found:
            return process, found
        time.sleep(0.05)
    process.kill()
    raise AssertionError("no replay has begun")


@pytest.mark.e2e
def test_a_folder_whose_trace_broke_is_used_again_and_one_that_can_be_resumed_is_not(
    tmp_path: Path,
) -> None:
    """The trace breaks after the 500 records that are read first: another trace needs no --force.

    What the broken one decided by then can be read meanwhile. A killed run is kept.
    """
    generate = ("generate", "-o", "whole.jsonl", "--nodes", "40", "--pods", "400", "--seed", "3")
    reprieve(tmp_path, *generate)
    lines = (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) > 530
    (tmp_path / "broken.jsonl").write_text("".join([*lines[:520], "{\n", *lines[520:]]))
    tail = ("--run", "run", "--spans", "off", "--no-report", "--no-eviction")
    refused = reprieve(tmp_path, "replay", "broken.jsonl", *tail, code=2)
    assert "broken.jsonl" in refused.stderr
    assert "the run broke off" in reprieve(tmp_path, "get", "pods", "run").stderr
    reprieve(tmp_path, "replay", "whole.jsonl", *tail)
    again = reprieve(tmp_path, "replay", "whole.jsonl", *tail, code=2)
    assert "run is a former run; --force replaces it" in again.stderr
    killed = tmp_path / "killed"
    killed.mkdir()
    interrupted = _broken_off(killed)
    kept = (interrupted / "resume.zst").read_bytes()
    done = reprieve(killed, "replay", str(tmp_path / "whole.jsonl"), *tail, code=2)
    assert "is a former run; --force replaces it" in done.stderr
    assert (interrupted / "resume.zst").read_bytes() == kept


@pytest.mark.e2e
def test_what_names_code_or_credentials_is_not_taken_from_a_run(
    tmp_path: Path, long_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user sets it again."""
    monkeypatch.setenv("REPRIEVE_PLUGINS", "")
    (tmp_path / "trace.ktr").symlink_to(long_trace)
    process, _ = _begun(tmp_path, "replay", "trace.ktr", "--run", "run", "--spans", "off", "-q")
    process.kill()
    process.wait()
    monkeypatch.delenv("REPRIEVE_PLUGINS")
    refused = reprieve(tmp_path, "resume", "run", code=2)
    assert "run: REPRIEVE_PLUGINS was set when the run began, and is not taken" in refused.stderr
