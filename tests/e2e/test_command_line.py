"""The command line as people and other programs use it: typing errors, pipes, completion."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from replay.cli.commands import doctor
from replay.cli.main import EXIT_CODES
from tests.e2e.commands import REFUSED, command, environment, reprieve
from tests.e2e.replays import ROOT

BROKEN_PIPE = 141


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["repaly", "x"], "No such command 'repaly'. Did you mean replay?"),
        (["serve", "que"], "No such command 'que'. Did you mean queue?"),
        (["frobnicate"], "No such command 'frobnicate'."),
    ],
)
def test_a_mistyped_command_suggests_the_right_one(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    """Where one is close."""
    done = reprieve(tmp_path, *arguments, code=REFUSED)
    assert done.stderr.splitlines()[-1] == f"Error: {sentence}"


def test_the_exit_codes_are_wrapped_as_the_rest_of_the_help(tmp_path: Path) -> None:
    """At 60 columns no line is wider, and the last one is there."""
    shown = reprieve(tmp_path, "--help", COLUMNS="60").stdout
    assert max(map(len, shown.splitlines())) <= 60
    assert set(EXIT_CODES) <= {line[2:].partition("  ")[0] for line in shown.splitlines()}


@pytest.mark.e2e
def test_a_reader_that_ends_is_no_failed_check(tmp_path: Path) -> None:
    """Exit code 141, as of a program that SIGPIPE ends, and no word on standard error."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed:
        done = subprocess.run(
            command("models", "-o", "json"),
            cwd=tmp_path,
            env=environment(),
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, b"")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(tmp_path: Path, shell: str) -> None:
    """A script that asks `reprieve` itself."""
    assert "_REPRIEVE_COMPLETE" in reprieve(tmp_path, "completion", shell).stdout


@pytest.mark.e2e
def test_commands_and_options_are_completed(tmp_path: Path) -> None:
    """As bash requests them."""
    for words, wanted in (("reprieve exp", "export"), ("reprieve replay --no-ev", "--no-eviction")):
        asked = {"_REPRIEVE_COMPLETE": "bash_complete", "COMP_WORDS": words}
        asked["COMP_CWORD"] = str(len(words.split()) - 1)
        done = subprocess.run(
            command(), cwd=tmp_path, env=environment(**asked), capture_output=True, check=True
        )
        assert f"plain,{wanted}" in done.stdout.decode().splitlines()


def compiled_but(name: str, folder: Path) -> Path:
    """Make a cache of the kernels that are compiled here, without the one of this name."""
    import numba.core.caching  # noqa: PLC0415 - takes 0.4 s

    for compiled in (ROOT / "services").rglob("*.nb?"):
        if f".{name}-" not in compiled.name:
            source = str(compiled.parents[1] / "kernels.py")
            locator: Any = numba.core.caching.UserProvidedCacheLocator
            place = folder / locator.get_suitable_cache_subpath(source)
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy2(compiled, place)
    return folder


@pytest.mark.e2e
def test_the_first_replay_after_an_install_reports_that_kernels_are_compiled(
    tmp_path: Path,
) -> None:
    """Once; the second one loads them."""
    kernels = compiled_but("fit", tmp_path / "kernels")
    trace = tmp_path / "trace.ktr"
    size = ("--nodes", "40", "--pods", "600", "--service-time", "30s", "--leaky", "0")
    reprieve(tmp_path, "generate", *size, "-o", str(trace))
    errors = []
    for number in range(2):
        done = subprocess.run(
            command("replay", str(trace), "--run", f"run-{number}", "--no-report"),
            cwd=tmp_path,
            env=environment(NUMBA_CACHE_DIR=str(kernels)),
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        errors.append([line for line in done.stderr.decode().splitlines() if "kernels" in line])
    assert errors == [["compiling kernels, once after an install; this takes some 20 s"], []]


@pytest.mark.e2e
def test_the_doctor_replays_a_trace_and_names_what_is_missing(tmp_path: Path) -> None:
    """A fault is exit code 1; something optional is not."""
    printed = json.loads(reprieve(tmp_path, "doctor", "-o", "json", KUBECONFIG="nowhere").stdout)
    states = {check["what"]: check["state"] for check in printed}
    assert {states[name] for name in ("reprieve", "kernels", "replay", "plugins")} == {"ok"}
    assert states["cluster"] == "missing"
    assert all(check["advice"] for check in printed if check["state"] != "ok")


def test_the_doctor_finds_a_collector_that_does_not_respond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its address, with what to do."""
    monkeypatch.setattr(doctor, "_replay", lambda: iter(()))
    done = reprieve(tmp_path, "doctor", code=1, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    assert "http://127.0.0.1:1: Connection refused; start it" in done.stdout.replace("\n", " ")
    assert done.stderr == "Error: replays do not work here: collector\n"


def test_names_are_not_broken_on_a_terminal_of_60_columns(tmp_path: Path) -> None:
    """Columns stand closer there; no line is wider."""
    trace = ROOT / "examples" / "traces" / "nginx-preemption.jsonl"
    shown = reprieve(
        tmp_path, "replay", str(trace), "--run", "run", "-o", "wide", COLUMNS="60"
    ).stdout
    assert "RunPostFilterPlugins" in shown
    assert max(map(len, shown.splitlines())) <= 60
