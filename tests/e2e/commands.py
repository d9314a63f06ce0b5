"""Running `reprieve`: within this process, or in one of its own where a test is about processes.

Within this process its services are here, too, and so are the replays of a comparison or a sweep.
Starting services takes 0.7 s of CPU, and a replay 0.8 s, which hundreds of tests would pay.
Decisions and files are the same (test_in_process.py).
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any
from unittest import mock

from replay.backends.processes import EmbeddedServices
from replay.cli.main import main
from replay.whatif.replay_processes import ReplayProcesses
from tests.e2e.replays import ROOT

REFUSED, SERVICE, SPANS_LOST, LOOP, INTERRUPTED = 2, 3, 4, 5, 130
Done = subprocess.CompletedProcess[str]


def environment(**more: str) -> dict[str, str]:
    """Return the tests' environment without OpenTelemetry's variables, with `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    path = os.pathsep.join([str(ROOT), str(ROOT / "gen")])
    return kept | {"PYTHONPATH": path, "COLUMNS": "120"} | more


def command(*arguments: str) -> list[str]:
    """Return the command line of `reprieve`, which never takes modules from the user's folder."""
    return [sys.executable, "-P", "-m", "replay.cli", *arguments]


def reprieve(
    folder: Path,
    *arguments: str,
    code: int | None = 0,
    reports: bool = False,
    children: bool = False,
    **more: str,
) -> Done:
    """Run a command in `folder`, within this process; its exit code is `code`, None for any.

    A replay writes tables and report only with `reports`: they are half of a small one's CPU, and
    commands that need tables make them. Replays of a comparison or a sweep, and the services that
    play vectors, are processes only with `children`.
    """
    playing = EmbeddedServices if children else _here
    replays = ReplayProcesses if children else _ReplaysHere
    pool = ThreadPoolExecutor if children else _InTurn
    out, err = io.BytesIO(), io.BytesIO()
    texts = _text(out), _text(err)
    with (
        contextlib.chdir(folder),
        mock.patch("replay.sessions.EmbeddedServices", _here),
        mock.patch("replay.compare.run.EmbeddedServices", _here),
        mock.patch("replay.conform.vectors.run.EmbeddedServices", playing),
        mock.patch("replay.whatif.sweep.ReplayProcesses", replays),
        mock.patch("replay.cli.searching.ReplayProcesses", replays),
        mock.patch("replay.cli.commands.compare.ReplayProcesses", replays),
        mock.patch("replay.whatif.sweep.ThreadPoolExecutor", pool),
        contextlib.nullcontext() if reports else mock.patch("replay.cli.commands.replay._report"),
        mock.patch.dict(os.environ, environment(**more), clear=True),
    ):
        returned = _run(arguments, *texts)
    shown, said = out.getvalue().decode(), err.getvalue().decode()
    return _checked(Done(list(arguments), returned, shown, said), code)


def _text(stream: IO[bytes]) -> io.TextIOWrapper:
    return io.TextIOWrapper(stream, "utf-8", write_through=True)


def _run(arguments: Sequence[str], out: io.TextIOWrapper, err: io.TextIOWrapper) -> int:
    """Return the exit code of a command."""
    with (
        mock.patch.object(sys, "argv", ["reprieve", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ending:
            return int(ending.code or 0)
    return 0


class _ReplaysHere(ReplayProcesses):
    def run(self, arguments: Sequence[str], log: Path) -> int:
        with log.open("wb") as file:
            return _run(["replay", *arguments], _text(io.BytesIO()), _text(file))


class _InTurn(Executor):
    """Calls at once, in this thread: only the main thread can replay, for it handles signals."""

    def __init__(self, max_workers: int) -> None:
        del max_workers

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Future[Any]()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _here(**options: Any) -> EmbeddedServices:
    return EmbeddedServices(**options | {"in_process": True})


def reprieve_process(folder: Path, *arguments: str, code: int = 0, **more: str) -> Done:
    """Run a command in `folder`, in a process of its own; its exit code is `code`."""
    done = subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return _checked(done, code)


def _checked(done: Done, code: int | None) -> Done:
    assert code in {None, done.returncode}, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done
