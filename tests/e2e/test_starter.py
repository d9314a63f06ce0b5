"""Services as forks of one process: who their parent is, how they end, what a failure says."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices, ServiceProcess, Starter
from replay.errors import BackendError

pytestmark = pytest.mark.e2e


def parent(pid: int) -> int:
    """Return the number of a process' parent."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[1])


def test_services_are_processes_of_one_parent_and_end_with_the_replay() -> None:
    """None is this process, and none is left."""
    with EmbeddedServices() as services:
        pids = {process.pid for process in services.processes.values()}
        (starter,) = {parent(pid) for pid in pids}
        assert len(pids) == 3
        assert parent(starter) == os.getpid()
    assert not [pid for pid in (*pids, starter) if Path(f"/proc/{pid}").exists()]


def test_a_service_that_does_not_start_is_reported_with_its_last_line() -> None:
    """The starter continues and starts others."""
    starter = Starter()
    try:
        with pytest.raises(BackendError, match="nowhere service did not start: ModuleNotFound"):
            ServiceProcess(starter, "nowhere").wait_listening()
        queue = ServiceProcess(starter, "queue")
        assert queue.wait_listening()
        queue.stop()
    finally:
        starter.wait()


def test_a_starter_that_has_ended_is_reported() -> None:
    """Instead of waiting for a service without end; the message names the service."""
    starter = Starter()
    starter.wait()
    with pytest.raises(BackendError, match="queue service did not start: the process that starts"):
        ServiceProcess(starter, "queue")


@pytest.mark.parametrize("name", ["queue", "eviction"])
def test_a_service_that_is_killed_at_its_start_is_reported_with_the_signal(name: str) -> None:
    """As out of memory; a service beside it is not blamed, and continues."""
    starter = Starter()
    try:
        other = ServiceProcess(starter, "queue")
        process = ServiceProcess(starter, name)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(BackendError, match=f"the {name} service .* ended by SIGKILL, as the"):
            process.wait_listening()
        assert other.wait_listening()
        other.stop()
        assert not other.last_line()
    finally:
        starter.wait()


def test_a_service_that_is_refused_is_reported_with_its_error() -> None:
    """Its exit code adds nothing to it."""
    starter = Starter()
    try:
        process = ServiceProcess(starter, "queue", "--metrics", "nowhere")
        with pytest.raises(BackendError, match="queue service did not start: Error: --metrics"):
            process.wait_listening()
    finally:
        starter.wait()


def test_a_service_that_crashes_later_has_the_signal_as_its_last_line() -> None:
    """A replay that fails for it shows the line."""
    with EmbeddedServices(eviction=False) as services:
        queue = services.processes["queue"]
        os.kill(queue.pid, signal.SIGSEGV)
        deadline = time.monotonic() + 10
        while not queue.last_line() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert queue.last_line() == "it was ended by SIGSEGV"


def test_the_services_of_a_replay_ignore_the_access_file_of_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is for services that the replay connects to by address."""
    monkeypatch.setenv("REPRIEVE_ACCESS", "/nowhere/access.yaml")
    with EmbeddedServices(scheduler=False) as services:
        assert services.addresses["eviction"]
