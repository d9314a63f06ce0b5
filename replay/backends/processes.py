"""The services as child processes on loopback ports, for a replay without addresses.

They are forks of one child, which runs with `-P`, so that a user's folder named `services` cannot
shadow ours. Each has a pipe as standard input and ends when it is closed, however the replay ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from types import TracebackType
from typing import IO

from replay.backends.duplex import TESTED_VERSIONS
from replay.backends.extenders import named_extenders
from replay.errors import BackendError, ServiceLostError
from services.starter import ENDED_BY

_EXPERIMENTS = "-event_engine_client,-event_engine_listener"
_ENVIRONMENT = {
    # The replay is their only caller, and they end with it.
    "REPRIEVE_LIMITS": "session_objects=0 session_resources=0 caller_bytes=0",
    "REPRIEVE_SESSION_IDLE": "0",
}
"""Environment variables of the services, unless the user has set them."""

START_S = 120.0
STOP_S = 10.0
RESTART_S = 1.0
STARTS_MAX = 3
"""How often services are started where one of them is killed meanwhile."""
_READ_BYTES = 1 << 16
_LISTENING = re.compile(r"reprieve \w+ listening on (\S+)")
_COMPILED = re.compile(r"reprieve scheduler compiled (\d+) of (\d+) kernels")
Compiling = Callable[[int, int], None]
"""Receives how many of all kernels were compiled, after each one; only after an install."""


class Starter:
    """The process that services are forked from (services/starter.py); it ends with the last."""

    def __init__(self) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        self._socket, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            environment = {**_ENVIRONMENT, **library_environment(), **os.environ}
            environment.pop("REPRIEVE_ACCESS", None)  # It is for services at addresses.
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own module
                    [sys.executable, "-P", "-m", "services.starter", str(number)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._log,
                    pass_fds=[number],
                    process_group=0,  # Ctrl-C is the replay's, which ends its services itself
                    env=environment,
                )
            except OSError as error:
                raise BackendError(f"the services cannot be started: {error}") from error

    def start(self, arguments: Sequence[str], streams: Sequence[int], then: str) -> int:
        """Start a service with these standard streams and return its process number.

        The starter imports the modules of the service `then` while this one runs. Raises
        BackendError; a ServiceLostError if the starter was killed.
        """
        message = json.dumps([then, *arguments]).encode()
        try:
            socket.send_fds(self._socket, [message], list(streams))
            answer = self._socket.recv(32)
        except OSError:
            answer = b""
        if not answer:
            raise self._why_it_ended(f"the {arguments[0]} service did not start: ")
        return int(answer)

    def _why_it_ended(self, consequence: str) -> BackendError:
        what = "the process that starts services ended"
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            what, code = "the process that starts services does not respond", 0
        by = f" by {signal.Signals(-code).name}" if code < 0 else ""
        line = _last_line(self._log)
        kind = ServiceLostError if by else BackendError
        return kind(f"{consequence}{what}{by}{': ' if line else ''}{line}")

    def close(self) -> None:
        """Stop accepting services to start; running ones are not stopped."""
        self._socket.close()

    def wait(self) -> None:
        """Wait for the process to end, which it does after the last service; kill a frozen one."""
        self.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class ServiceProcess:
    """One service as a child; `address` is where it listens, `pid` its process number."""

    def __init__(self, starter: Starter, name: str, *arguments: str, then: str = "") -> None:
        self.name = name
        self.address = ""
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        stdin, self._stdin = os.pipe()
        stdout, theirs = os.pipe()
        # Without a buffer, for _is_readable does not see lines that were read ahead.
        self._stdout = os.fdopen(stdout, "rb", buffering=0)
        try:
            command = [name, "--listen", "127.0.0.1:0", "--child", *arguments]
            self.pid = starter.start(command, (stdin, theirs, self._log.fileno()), then)
        except BackendError:
            os.close(self._stdin)
            self._stdout.close()
            raise
        finally:
            os.close(stdin)
            os.close(theirs)

    def wait_listening(self, compiling: Compiling = lambda _done, _all: None) -> str:
        """Return the address once the child listens.

        Raises BackendError if it never does; a ServiceLostError if it was killed.
        """
        while True:
            is_late = not self._is_readable(START_S)
            line = "" if is_late else self._stdout.readline().decode()
            compiled = _COMPILED.match(line)
            if compiled is None:
                break
            compiling(int(compiled[1]), int(compiled[2]))
        match = _LISTENING.match(line)
        if match is None:
            self.stop()
            when = f" within {START_S:g} s" if is_late else ""
            line = self.last_line()
            # The starter writes how a service ended; without a line it was killed, too.
            was_killed = not is_late and (not line or line.startswith(ENDED_BY))
            raise (ServiceLostError if was_killed else BackendError)(
                f"the {self.name} service did not start{when}: {line or 'it wrote no error'}"
            )
        self.address = match[1]
        return self.address

    def peak_memory_bytes(self) -> int:
        """Return the child's largest resident memory so far; 0 on a system without /proc."""
        peak = re.search(r"VmHWM:\s+(\d+) kB", self._proc("status"))
        return int(peak[1]) * 1024 if peak else 0

    def cpu_s(self) -> float:
        """Return the child's CPU time so far, seconds; 0 on a system without /proc."""
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0

    def _proc(self, name: str) -> str:
        """Return a file of the child in /proc, "" if it cannot be read."""
        try:
            with open(f"/proc/{self.pid}/{name}", encoding="ascii") as file:  # noqa: PTH123 - /proc
                return file.read()
        except OSError:
            return ""

    def stop(self, patience_s: float = STOP_S) -> None:
        """Request the child's end and wait; kill it after `patience_s` seconds without output."""
        if self._stdout.closed:
            return
        os.close(self._stdin)
        while self._is_readable(patience_s):
            if not self._stdout.read(_READ_BYTES):
                break
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._stdout.close()

    def last_line(self) -> str:
        """Return the last line that the child wrote to standard error, "" if none."""
        return _last_line(self._log)

    def _is_readable(self, seconds: float) -> bool:
        """Wait until the child has written to standard output, or has closed it."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            return bool(selector.select(seconds))


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


class EmbeddedServices:
    """The services that a replay starts: queue and scheduler, eviction, or both; the autoscaler.

    They are child processes, or with `in_process` run in this one; `addresses` are theirs by name.
    With `warms_up` the scheduler compiles or loads its kernels before it listens, otherwise when it
    first has much work for them; `compiling` is called meanwhile. The scheduler calls the extenders
    that `configurations`, texts of KubeSchedulerConfigurations, list.
    """

    def __init__(
        self,
        *,
        scheduler: bool = True,
        eviction: bool = True,
        autoscaler: bool = False,
        in_process: bool = False,
        warms_up: bool = False,
        compiling: Compiling = lambda _done, _all: None,
        configurations: Sequence[str] = (),
    ) -> None:
        self.processes: dict[str, ServiceProcess] = {}
        self.addresses: dict[str, str] = {}
        self._wanted = (scheduler, eviction)
        self._autoscaler = autoscaler
        self._in_process = in_process
        self._warms_up = warms_up
        self._compiling = compiling
        self._extenders = named_extenders(configurations)
        self._local = contextlib.ExitStack()
        self._starter: Starter | None = None

    def __enter__(self) -> EmbeddedServices:
        scheduler, eviction = self._wanted
        if self._in_process:
            self.addresses = self._served_here(scheduler=scheduler, eviction=eviction)
            return self
        for retries in reversed(range(STARTS_MAX)):
            try:
                self._start(scheduler=scheduler, eviction=eviction)
                break
            except ServiceLostError:
                if not retries:
                    raise
        return self

    def _start(self, *, scheduler: bool, eviction: bool) -> None:
        self.processes.clear()
        try:
            starter = self._starter = Starter()
            if eviction:
                self.processes["eviction"] = ServiceProcess(starter, "eviction")
            if self._autoscaler:
                self.processes["autoscaler"] = ServiceProcess(starter, "autoscaler")
            if scheduler:
                self.processes["queue"] = ServiceProcess(starter, "queue", then="scheduler")
                queue = self.processes["queue"].wait_listening()
                kernels = "--warm-up" if self._warms_up else "--no-warm-up"
                self.processes["scheduler"] = ServiceProcess(
                    starter, "scheduler", "--queue", queue, kernels, *self._extenders.arguments
                )
            for name, process in self.processes.items():
                self.addresses[name] = process.address or process.wait_listening(self._compiling)
            starter.close()
        except BaseException:
            self._stop(RESTART_S)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the services; a BackendError gets the last line of each one's log as a note."""
        if isinstance(error, BackendError):
            for name, process in self.processes.items():
                line = process.last_line()
                if line:
                    error.add_note(f"last error line of the {name} service: {line}")
        self._stop()

    def _served_here(self, *, scheduler: bool, eviction: bool) -> dict[str, str]:
        from services.in_process import in_process  # noqa: PLC0415 - the services, when needed
        from services.rpc.errors import UnavailableError  # noqa: PLC0415

        try:
            return self._local.enter_context(
                in_process(
                    scheduler=scheduler,
                    eviction=eviction,
                    autoscaler=self._autoscaler,
                    warms_up=self._warms_up,
                    compiling=self._compiling,
                    extenders=self._extenders.urls,
                    extender_files=self._extenders.files,
                )
            )
        except UnavailableError as error:
            raise BackendError(f"the services did not start: {error}") from error

    def restart(self) -> None:
        """Stop the remaining services and start all of them again, at other addresses.

        Raises BackendError.
        """
        self._stop(RESTART_S)
        self.__enter__()

    def _stop(self, patience_s: float = STOP_S) -> None:
        """Stop in the order in which they depend on each other."""
        self._local.close()
        for name in ("scheduler", "queue", "eviction", "autoscaler"):
            if name in self.processes:
                self.processes[name].stop(patience_s)
        if self._starter is not None:
            self._starter.wait()


@cache
def library_environment() -> dict[str, str]:
    """Return the settings of gRPC and numpy for a replay and its services, as variables."""
    quiet = {
        "GRPC_VERBOSITY": "NONE",  # Errors are raised.
        "OPENBLAS_NUM_THREADS": "1",  # Its threads spin for 0.1 s of CPU, and have no work.
    }
    return quiet | (
        {"GRPC_EXPERIMENTS": _EXPERIMENTS} if version("grpcio").startswith(TESTED_VERSIONS) else {}
    )


def prepare() -> None:
    """Set them for this process, before numpy is imported and before gRPC's first call."""
    for name, value in library_environment().items():
        os.environ.setdefault(name, value)
