"""A run that broke off is resumed; a run whose services are lost goes on, or says why it cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import msgpack
import pytest
import zstandard

from replay.backends.processes import EmbeddedServices
from replay.errors import ServiceLostError
from replay.generate.workload import SECOND_NS, GenerateOptions, generate
from replay.results.run.directory import RunDirectory
from replay.runner import ReplaySettings, run_replay
from services.telemetry.span import Sampling
from tests.e2e.commands import command, environment, reprieve

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
OPTIONS = ("-q", "--spans", "10%", "--no-eviction")


def _settings(run: Path, **more: object) -> ReplaySettings:
    return ReplaySettings(
        version="test",
        run_path=run,
        sampling=Sampling(1.0),
        checkpoint_every_ns=50_000_000,
        **more,  # type: ignore[arg-type] # fields of the settings
    )


def _broken_off(folder: Path) -> Path:
    """Kill a replay after its first checkpoint and return its run."""
    run = folder / "run"
    reprieve(folder, "generate", "-o", "trace.ktr", *TRACE)
    options = ["--run", "run", "--checkpoint-every", "50ms", *OPTIONS]
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
        content = zstandard.ZstdDecompressor().decompress((run / "resume.zst").read_bytes())
    except (OSError, zstandard.ZstdError):
        return False
    return bool(msgpack.unpackb(content)["world"])


@pytest.mark.e2e
def test_a_run_passes_the_loss_of_each_service(tmp_path: Path) -> None:
    """All are killed once, each at another moment; log, tables' source and figures are the same."""
    calm = run_replay(_settings(tmp_path / "calm"), lambda: generate(WORKLOAD), lambda *_: None)
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
        patch.setattr("replay.runner.EmbeddedServices", Seen)
        disturbed = run_replay(
            _settings(tmp_path / "run"), lambda: generate(WORKLOAD), progress, notices.append
        )
    assert not left
    assert "the run goes on" in notices
    mine, theirs = ((tmp_path / each / "decisions.jsonl").read_bytes() for each in RUNS)
    assert mine == theirs
    assert list(disturbed.run.rounds()) == list(calm.run.rounds())
    assert disturbed.summary.to_mapping()["decided"] == calm.summary.to_mapping()["decided"]
    assert not (tmp_path / "run" / "resume.zst").exists()


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
    reprieve(elsewhere, "resume", "../run")
    reprieve(tmp_path, "replay", "trace.ktr", "--run", "calm", *OPTIONS)
    log = (run / "decisions.jsonl").read_bytes()
    assert log == (tmp_path / "calm" / "decisions.jsonl").read_bytes()
    assert RunDirectory.open(run).manifest().finished
    sql = "select * from decisions"
    for question in (("query", sql), ("get", "pods")):
        shown = [reprieve(tmp_path, question[0], *_args(question, each)).stdout for each in RUNS]
        assert shown[0] == shown[1]
    done = reprieve(tmp_path, "resume", "run", code=2)
    assert "has no resume.zst" in done.stderr


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
    content = msgpack.unpackb(zstandard.ZstdDecompressor().decompress(whole))
    content["command"]["argv"] += ["--seed", "99"]
    changed = zstandard.ZstdCompressor().compress(msgpack.packb(content))
    (run / "resume.zst").write_bytes(changed)
    assert "its seed has changed" in reprieve(tmp_path, "resume", "run", code=2).stderr
    assert (run / "decisions.jsonl").read_bytes() == before
