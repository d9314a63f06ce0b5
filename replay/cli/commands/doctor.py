"""`reprieve doctor`: what works on this machine, what is missing, and how to get it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import click
from rich.markup import escape

from replay.cli.console import TerminalConsole
from replay.cli.errors import FAILED, ExitError
from replay.cli.parameters import DATA, echo_data, output_option
from replay.results.summary.table import plain_table
from services.rpc.version import package_version

OK, MISSING, FAULT = "ok", "missing", "fault"
_GIB = 1 << 30
_FREE_MIN, _MEMORY_MIN = 1 * _GIB, 2 * _GIB
_REPLAY_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """The result of one check: OK, MISSING (something optional) or FAULT, and what to do."""

    what: str
    state: str
    found: str
    advice: str = ""


@click.command(name="doctor")
@output_option("table", "json", "yaml", meaning="For people or for programs.")
def command(*, output: str) -> None:
    """Check what works on this machine: it replays a bundled trace, and compiles the kernels.

    A fault keeps replays from working; something missing is needed for one feature only. The
    kernels are compiled once after an install, so that the first replay does not wait for them.

    Exit code 0 without a fault, 1 with one.

    \b
    Examples:
      reprieve doctor
      reprieve doctor -o json
    """
    findings = [*_findings()]
    if output in DATA:
        echo_data([asdict(finding) for finding in findings], output)
    else:
        table = plain_table("CHECK", "STATE", "FOUND")
        for finding in findings:
            advice = f"; {finding.advice}" if finding.advice else ""
            table.add_row(escape(finding.what), finding.state, escape(finding.found + advice))
        TerminalConsole().print(table)
    faults = [finding.what for finding in findings if finding.state == FAULT]
    if faults:
        raise ExitError(FAILED, f"replays do not work here: {', '.join(faults)}")


def _findings() -> Iterator[DoctorCheck]:
    yield _python()
    yield _machine()
    yield _free_space()
    yield from _replay()
    yield _plugins()
    yield _containers()
    yield _dask()
    yield _cluster()
    yield _collector(os.environ)


def _python() -> DoctorCheck:
    interpreter = (
        f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    )
    return DoctorCheck(what="reprieve", state=OK, found=f"{package_version()} on {interpreter}")


def _machine() -> DoctorCheck:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    hardware = (
        f"{os.cpu_count()} processors, {memory / _GIB:.1f} GiB of memory, {platform.platform()}"
    )
    advice = "" if memory >= _MEMORY_MIN else "a replay of a million pods takes 0.8 GiB"
    return DoctorCheck(what="machine", state=OK, found=hardware, advice=advice)


def _free_space() -> DoctorCheck:
    """Check the free space on the disk of the current folder, where runs are written."""
    free = shutil.disk_usage(Path.cwd()).free
    free_space = f"{free / _GIB:.1f} GiB free in {Path.cwd()}"
    if not os.access(Path.cwd(), os.W_OK):
        advice = "the folder is read-only: pass --run FOLDER elsewhere"
        return DoctorCheck(what="disk", state=MISSING, found=free_space, advice=advice)
    advice = "" if free >= _FREE_MIN else "runs of large traces take some GiB"
    return DoctorCheck(
        what="disk", state=OK if free >= _FREE_MIN else MISSING, found=free_space, advice=advice
    )


def _replay() -> Iterator[DoctorCheck]:
    """Compile or load the kernels, and replay a bundled trace with new services."""
    program = (
        "from services.scheduler.core.session.warm_up import warm_up; "
        "compiled = []; warm_up(lambda done, count: compiled.append(done)); print(len(compiled))"
    )
    yield _run(
        "kernels",
        [sys.executable, "-P", "-c", program],
        lambda said: f"compiled {said.strip()} now" if said.strip() != "0" else "compiled before",
        "NUMBA_CACHE_DIR names a folder that can be written",
    )
    with tempfile.TemporaryDirectory() as folder:
        yield _run(
            "replay",
            [sys.executable, "-P", "-m", "replay.cli", "demo", "--run", f"{folder}/run"],
            lambda _: "a bundled trace, with services on loopback ports and a report",
            "run `reprieve demo` for all of its output",
        )


def _run(what: str, command: list[str], found: Callable[[str], str], advice: str) -> DoctorCheck:
    began = time.monotonic()
    try:
        done = subprocess.run(  # noqa: S603 - our own modules
            command, capture_output=True, text=True, timeout=_REPLAY_S, check=False
        )
    except subprocess.TimeoutExpired:
        found_text = f"did not end within {_REPLAY_S} s"
        return DoctorCheck(what=what, state=FAULT, found=found_text, advice=advice)
    took = f"{time.monotonic() - began:.1f} s"
    if done.returncode:
        last = (done.stderr.strip() or "it wrote no error").splitlines()[-1]
        return DoctorCheck(what=what, state=FAULT, found=last, advice=advice)
    return DoctorCheck(what=what, state=OK, found=f"{found(done.stdout).strip()}, {took}")


def _plugins() -> DoctorCheck:
    """Load the installed out-of-tree plugins as a scheduler does."""
    program = (
        "from services.framework.plugins.in_tree import SERVED; "
        "from services.scheduler.out_of_tree import registry_with; "
        "print(*sorted(set(registry_with(())) - set(SERVED)), sep=', ')"
    )
    return _run(
        "plugins",
        [sys.executable, "-P", "-c", program],
        lambda said: said.strip() or "no out-of-tree plugins",
        "uninstall the plugin, or mend it: no scheduler starts with it",
    )


def _containers() -> DoctorCheck:
    """Check the container engine that `make up` would use."""
    what, advice = "containers", "for `docker compose up` only: install Docker, and start it"
    if shutil.which("docker") is None:
        return DoctorCheck(what=what, state=MISSING, found="no docker", advice=advice)
    asked = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603 - docker
    except subprocess.TimeoutExpired:
        return DoctorCheck(what=what, state=MISSING, found="docker does not respond", advice=advice)
    if done.returncode:
        return DoctorCheck(what=what, state=MISSING, found="no engine responds", advice=advice)
    return DoctorCheck(what=what, state=OK, found=f"Docker {done.stdout.strip()}")


def _dask() -> DoctorCheck:
    if importlib.util.find_spec("distributed") is None:
        advice = "for sweeps on several machines only: pip install 'reprieve[sweep]'"
        return DoctorCheck(what="dask", state=MISSING, found="not installed", advice=advice)
    return DoctorCheck(what="dask", state=OK, found="sweeps can run on several machines")


def _cluster() -> DoctorCheck:
    """Look for a configured cluster that could be recorded, without connecting to it."""
    from replay.errors import KubeconfigError  # noqa: PLC0415 - loaded when needed
    from replay.record import kubeconfig  # noqa: PLC0415 - loaded when needed

    try:
        access = kubeconfig.load(None, "")
    except KubeconfigError as error:
        advice = "for `reprieve record` only: --kubeconfig FILE"
        return DoctorCheck(what="cluster", state=MISSING, found=str(error), advice=advice)
    return DoctorCheck(what="cluster", state=OK, found=f"{access.server}, not tried")


def _collector(environment: Mapping[str, str]) -> DoctorCheck:
    """Check whether the collector named in the environment accepts connections."""
    from services.telemetry.collector import Signal, TelemetryError, collector_of  # noqa: PLC0415 - loaded when needed

    what = "collector"
    try:
        collector = collector_of(Signal.TRACES, environment)
    except TelemetryError as error:
        return DoctorCheck(what=what, state=FAULT, found=str(error))
    if collector is None:
        text = "OTEL_EXPORTER_OTLP_ENDPOINT is not set: spans are written to files"
        return DoctorCheck(what=what, state=OK, found=text)
    parts = urlsplit(
        collector.endpoint if "//" in collector.endpoint else f"//{collector.endpoint}"
    )
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 4317), timeout=5):
            return DoctorCheck(
                what=what, state=OK, found=f"{collector.endpoint} accepts connections"
            )
    except OSError as error:
        advice = "start it, or unset OTEL_EXPORTER_OTLP_ENDPOINT: a replay that loses spans fails"
        text = f"{collector.endpoint}: {error.strerror or error}"
        return DoctorCheck(what=what, state=FAULT, found=text, advice=advice)
