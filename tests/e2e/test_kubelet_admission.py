"""A pod that reaches a node under pressure past its taint: the kubelet decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from reprieve.trace.v1beta1 import trace_pb2
from tests.e2e.replays import run
from tests.e2e.test_pressure import S, container, records

pytestmark = pytest.mark.e2e


def bound(at_s: int, name: str) -> trace_pb2.Record:
    """Return the creation of a pod that names node "n1" itself, as a DaemonSet's once did."""
    record = trace_pb2.Record(time_ns=at_s * S)
    record.pod_create.pod.metadata.name = name
    record.pod_create.pod.spec.node_name = "n1"
    if name.startswith("burstable"):
        container(record.pod_create.pod.spec)
    else:
        record.pod_create.pod.spec.containers.add(name="c")
    return record


def test_memory_pressure_refuses_best_effort_pods_and_no_others(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Until the condition goes, in the kubelet's words."""
    told = [*records(), bound(100, "bare"), bound(101, "burstable"), bound(400, "after")]
    for sequence, record in enumerate(told, 1):
        record.sequence = sequence
    cluster = run(here, told, tmp_path / "run").replay.cluster
    found = {
        name: cluster.pods[cluster.pod_uids[f"default/{name}"]].message.status
        for name in ("bare", "burstable", "after")
    }
    phases = {name: status.phase for name, status in found.items()}
    assert phases == {"bare": "Failed", "burstable": "Running", "after": "Running"}
    refused = found["bare"]
    assert refused.reason == "Evicted"
    assert refused.message == "Pod was rejected: The node had condition: [MemoryPressure]. "
