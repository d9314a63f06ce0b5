"""Service processes: what they write before they listen."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from replay.backends import processes
from replay.backends.processes import ServiceProcess, Starter


class _AllAtOnce(Starter):
    """Starts no process; what a service would write comes at once."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines
        self.output = -1

    def start(self, arguments: Sequence[str], streams: Sequence[int], then: str) -> int:
        del arguments, then
        self.output = os.dup(streams[1])  # A service that runs holds it open.
        os.write(self.output, "".join(f"{line}\n" for line in self.lines).encode())
        return 1


def test_a_service_listens_although_its_last_lines_come_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine, a replay reads the last kernel's line together with the address."""
    monkeypatch.setattr(processes, "START_S", 1.0)
    monkeypatch.setattr(processes, "STOP_S", 0.0)
    monkeypatch.setattr(os, "kill", lambda _pid, _signal: None)
    starter = _AllAtOnce(
        "reprieve scheduler compiled 22 of 23 kernels",
        "reprieve scheduler compiled 23 of 23 kernels",
        "reprieve scheduler listening on 127.0.0.1:7",
    )
    compiled: list[tuple[int, int]] = []
    service = ServiceProcess(starter, "scheduler")
    assert service.wait_listening(lambda done, count: compiled.append((done, count))) == (
        "127.0.0.1:7"
    )
    assert compiled == [(22, 23), (23, 23)]
    os.close(starter.output)
    service.stop()
