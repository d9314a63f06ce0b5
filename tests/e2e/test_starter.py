"""Services as forks of one process: who their parent is, how they end, what a failure says."""

from __future__ import annotations

import os
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
    """The starter goes on and starts others."""
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
    """Instead of waiting for a service without end."""
    starter = Starter()
    starter.wait()
    with pytest.raises(BackendError, match="no service can be started"):
        ServiceProcess(starter, "queue")
