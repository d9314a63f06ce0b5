"""Schedulers that place pods where they do not fit: what a replay makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.backends.services import SchedulerService
from reprieve.trace.v1beta1 import trace_pb2
from tests import builders
from tests.e2e.replays import run
from tests.unit.world.builders import S, create, create_pod

pytestmark = pytest.mark.e2e

NO_FIT = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}
"""
"""A scheduler of ours that does not look at resources."""


def pods_that_come_alone(count: int) -> list[trace_pb2.Record]:
    """Return a node of 4 CPUs and pods of 3, one every 10 s, each of which runs for 35 s."""
    records = [create(builders.make_node("n").capacity(cpu="4").message())]
    for number in range(count):
        pod = builders.make_pod(f"p{number}").uid(f"uid-{number}").req(cpu="3").message()
        records.append(create_pod(pod, service_duration_ns=35 * S))
        records[-1].time_ns = (1 + number) * 10 * S
    for sequence, record in enumerate(records, 1):
        record.sequence = sequence
    return records


def test_a_window_that_a_kubelet_refutes_leads_to_the_run_without_windows(
    here: EmbeddedServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds that were sent ahead said that the pods run: the run goes back."""
    records = pods_that_come_alone(12)
    whole = run(here, records, tmp_path / "windows", configuration=NO_FIT)
    monkeypatch.setattr(SchedulerService, "takes_windows", False)
    plain = run(here, records, tmp_path / "plain", configuration=NO_FIT)
    ended = [
        (entry.observed.object.name, entry.observed.finished.reason)
        for entry in plain.run.decisions()
        if entry.observed.HasField("finished")
    ]
    assert ended[:4] == [("p1", "OutOfcpu"), ("p2", "OutOfcpu"), ("p3", "OutOfcpu"), ("p0", "")]
    assert list(whole.run.decisions()) == list(plain.run.decisions())
