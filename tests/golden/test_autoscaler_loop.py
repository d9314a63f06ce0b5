"""The autoscaler's scans against what upstream's own code did, in a scripted cluster.

They are played through its service, which here is reached without a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import grpc
import pytest

from replay.conform.autoscaler.cluster import Json
from replay.conform.autoscaler.loop import Carry, difference, play
from replay.conform.autoscaler.session import SessionAutoscaler, time_ns
from replay.conform.vectors.vectors import RECORDED
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2_grpc
from services.autoscaler.servicer import AutoscalerServicer
from services.rpc.client import channel
from services.rpc.local import LocalServer
from tests.vectors import read_vectors

FURTHER = Path(__file__).parents[2].parent / "shared" / "golden"
"""Further vectors may be kept beside the project."""
VECTORS = [
    vector
    for path in (
        RECORDED / "autoscaler-v1.36.jsonl.gz",
        *sorted(FURTHER.glob("autoscaler-loop-heldout*.jsonl.gz")),
    )
    for vector in read_vectors(path)
]
MOVED = VECTORS[::7]
"""Scripts that are played with a checkpoint after every scan."""


class MovingAutoscaler(SessionAutoscaler):
    """One that goes on in a restored session after every scan."""

    def scan(self, at_ms: int, carry: Carry) -> Json:
        """Scan, and go on in another session."""
        report = super().scan(at_ms, carry)
        self.move()
        return report


class LazyAutoscaler(SessionAutoscaler):
    """One that leaves out the scans which may be left out."""

    left_out = 0

    def scan(self, at_ms: int, carry: Carry) -> Json:
        """Scan, or return the last report again."""
        if self._changes or time_ns(at_ms) >= self._answer.next_scan_time_ns:
            self.last_report = super().scan(at_ms, carry)
        else:
            self.left_out += 1
        return self.last_report


@pytest.fixture(scope="module", name="service")
def service_fixture() -> Iterator[grpc.Channel]:
    """Yield a channel to a service of this process."""
    with asyncio.Runner() as runner:
        server = LocalServer(runner.get_loop())
        autoscaler_service_pb2_grpc.add_AutoscalerServiceServicer_to_server(
            AutoscalerServicer(), cast("grpc.aio.Server", server)
        )
        opened = channel(server.address)
        yield opened
        opened.close()
        server.close()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_scans_decide_what_upstream_decides(service: grpc.Channel, vector: Json) -> None:
    """Every scan's report and calls, in the order of names that the recording has."""
    autoscaler = SessionAutoscaler(service, vector["config"])
    assert difference(vector, autoscaler, by_name=True) == ""
    autoscaler.close()


@pytest.mark.parametrize("vector", MOVED, ids=lambda vector: vector["id"])
def test_a_restored_session_goes_on_the_same(service: grpc.Channel, vector: Json) -> None:
    """With a checkpoint after every scan, deletions, hints, timers and backoffs go on."""
    autoscaler = MovingAutoscaler(service, vector["config"])
    assert difference(vector, autoscaler, by_name=True) == ""
    autoscaler.close()


def test_scans_that_are_left_out_decide_nothing(service: grpc.Channel) -> None:
    """All scripts come to what upstream's did, though many of their scans were never sent."""
    left_out = scans = 0
    for vector in VECTORS:
        autoscaler = LazyAutoscaler(service, vector["config"])
        assert difference(vector, autoscaler, by_name=True) == ""
        autoscaler.close()
        left_out += autoscaler.left_out
        scans += vector["config"]["scans"]
    assert left_out > scans // 4, f"{left_out:,} of {scans:,} scans were left out"


def test_a_difference_names_its_scan(service: grpc.Channel) -> None:
    """A wrong target, a missing call, and a scan that may differ."""
    template = {"status": {"capacity": {"cpu": "2", "memory": "4Gi", "pods": "9"}}}
    group = {"name": "g", "min": 0, "max": 2, "initial": 1, "template": template}
    script: Json = {
        "config": {"scan_interval_ms": 10_000, "scans": 2, "groups": [group]},
        "script": [{"at_ms": 0, "op": "node_add", "group": "g", "name": "g-0"}],
    }

    def autoscaler() -> SessionAutoscaler:
        return SessionAutoscaler(service, script["config"])

    reports = list(play(script, autoscaler()))

    def compared(*, by_name: bool = True, **changes: object) -> str:
        expected = [reports[0], {**reports[1], **changes}]
        vector = {**script, "expected": expected}
        if not by_name:
            vector |= {"ties_from_scan": 1, "alternatives": [reports[1]]}
        return difference(vector, autoscaler(), by_name=by_name)

    assert compared() == ""
    wrong = compared(targets={"g": 2})
    assert wrong == 'scan 1 at 20000 ms: targets {"g":1}, expected {"g":2}'
    assert "calls" in compared(calls=[{"at_ms": 20_000, "call": "evict", "pod": "a/b"}])
    assert compared(by_name=False, targets={"g": 2}) == ""
    assert compared(by_name=False) == ""
