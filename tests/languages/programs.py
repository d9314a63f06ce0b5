"""Programs in other languages: what they need, and running them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.commands import reprieve
from tests.e2e.replays import ROOT

NODE_TOOLS = ("node", "npm", "npx")
GO_TOOLS = ("go", "protoc", "protoc-gen-go", "protoc-gen-go-grpc")
CPP_TOOLS = ("g++", "protoc", "grpc_cpp_plugin", "pkg-config")
_QUIET = ("--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0")
_SECONDS = 900


def needs(*tools: str) -> None:
    """Skip where a tool is not installed; CI forbids skips."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


def run(
    command: Sequence[str], *, folder: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program that must end well."""
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def installed(folder: Path) -> None:
    """Install what a package.json asks for, as its lock file has it; skip where npm cannot."""
    try:
        run(["npm", "ci", *_QUIET], folder=folder)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm ci failed: {str(error)[-200:]}")


@contextlib.contextmanager
def serving(*command: str) -> Iterator[str]:
    """Start a service on a free port of its own choice and give its address."""
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"],
        env=os.environ | {"PROTOS": str(ROOT / "protos")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert " listening on " in line, line
        yield line.split()[-1]
    finally:
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert said == ""


def replay(folder: Path, trace: Path, run_name: str, *options: str) -> dict[str, Any]:
    """Replay a trace, which must end well, and return its summary."""
    plain = ("--run", run_name, "--no-report", "--spans", "off", "-q", "-o", "json")
    summary: dict[str, Any] = json.loads(
        reprieve(folder, "replay", str(trace), *plain, *options).stdout
    )
    return summary


def level_of(folder: Path, contract: str, address: str) -> int:
    """Return which level of a contract the service at an address reaches."""
    done = reprieve(folder, "conform", "--contract", contract, address, "-o", "json")
    level: int = json.loads(done.stdout)["level"]
    return level
