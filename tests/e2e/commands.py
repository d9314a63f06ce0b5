"""Running `reprieve`: within this process, or in one of its own where a test is about processes.

Within this process its services are here, too: starting them takes 0.7 s of CPU, which hundreds of
tests would pay. Decisions and files are the same (test_in_process.py).
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from replay.backends.processes import EmbeddedServices
from replay.cli.main import main
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
    return [sys.executable, "-P", "-m", "replay.cli.main", *arguments]


def reprieve(
    folder: Path, *arguments: str, code: int = 0, reports: bool = False, **more: str
) -> Done:
    """Run a command in `folder`, within this process; its exit code is `code`.

    A replay writes tables and report only with `reports`: they are half of a small one's CPU, and
    commands that need tables make them.
    """
    returned = 0
    out, err = io.BytesIO(), io.BytesIO()
    with (
        contextlib.chdir(folder),
        mock.patch("replay.sessions.EmbeddedServices", _here),
        mock.patch("replay.compare.run.EmbeddedServices", _here),
        contextlib.nullcontext() if reports else mock.patch("replay.cli.commands.replay._report"),
        mock.patch.dict(os.environ, environment(**more), clear=True),
        mock.patch.object(sys, "argv", ["reprieve", *arguments]),
        contextlib.redirect_stdout(io.TextIOWrapper(out, "utf-8", write_through=True)),
        contextlib.redirect_stderr(io.TextIOWrapper(err, "utf-8", write_through=True)),
    ):
        try:
            main()
        except SystemExit as ending:
            returned = int(ending.code or 0)
        shown, said = out.getvalue().decode(), err.getvalue().decode()
    return _checked(Done(list(arguments), returned, shown, said), code)


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


def _checked(done: Done, code: int) -> Done:
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done
