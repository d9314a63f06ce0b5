"""The kubelet's metrics of eviction, and their labels."""

from __future__ import annotations

import asyncio
from typing import Any

from reprieve.eviction.v1beta1 import eviction_pb2 as ev
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.session.v1beta1 import session_pb2
from services.eviction.servicer import EvictionServicer
from services.kube.time import SECOND_NS
from tests.builders import make_pod
from tests.scrapes import samples

GI = 1 << 30
S = SECOND_NS
NO_CONTEXT: Any = None


def metrics(config: ev.EvictionConfig, *operations: pb.Operation) -> dict[str, float]:
    """Carry out a batch and return the samples of a new process that are not 0, by series."""
    servicer = EvictionServicer()
    request = pb.CreateSessionRequest(config=config)
    opened = asyncio.run(servicer.CreateSession(request, NO_CONTEXT))
    stamp = session_pb2.Stamp(session_id=opened.session_id, sequence=1)
    servicer.apply(pb.ApplyRequest(stamp=stamp, operations=operations))
    return {series: value for series, value in samples(servicer.collect).items() if value}


def step(
    at_s: int, *pods: pod_pb2.Pod, available_gi: int = 9, disk_gi: int = 99, storage_gi: int = 0
) -> pb.Operation:
    """Return a step over pods whose statistics are 3 s old."""
    operation = pb.Operation()
    operation.step.node_name, operation.step.time_ns = "n", at_s * S
    operation.step.pods.extend(pods)
    seen = operation.step.observations
    seen.memory.available_bytes, seen.memory.working_set_bytes = available_gi * GI, GI
    seen.memory.time_ns = seen.node_fs.time_ns = (at_s - 3) * S
    seen.node_fs.available_bytes, seen.node_fs.capacity_bytes = disk_gi * GI, 100 * GI
    for pod in pods:
        usage = seen.pods.add(ephemeral_used_bytes=storage_gi * GI)
        usage.pod.uid = pod.metadata.uid
    return operation


def resume(disk_gi: int) -> pb.Operation:
    """Return the step going on after a collection."""
    operation = pb.Operation()
    operation.resume.node_name = "n"
    seen = operation.resume.observations.node_fs
    seen.available_bytes, seen.capacity_bytes = disk_gi * GI, 100 * GI
    return operation


def pod(name: str, storage_limit: str = "") -> pod_pb2.Pod:
    """Return a pod, with a limit on its ephemeral storage where one is given."""
    limits = {"ephemeral-storage": storage_limit} if storage_limit else None
    return make_pod(name).uid(name).container("c", limits=limits).message()


MEMORY = ev.EvictionConfig(hard={"memory.available": "1Gi"})
DISK = ev.EvictionConfig(hard={"nodefs.available": "10Gi"})
AGE = 'kubelet_eviction_stats_age_seconds_{}{{eviction_signal="{}"{}}}'


def test_an_eviction_counts_under_its_signal_with_the_age_of_its_statistics() -> None:
    """In the step's own time."""
    counters = metrics(MEMORY, step(10, pod("a"), pod("b"), available_gi=0), step(20, pod("a")))
    assert counters['kubelet_evictions{eviction_signal="memory.available"}'] == 1
    assert counters[AGE.format("sum", "memory.available", "")] == 3
    assert AGE.format("bucket", "memory.available", ',le="2.5"') not in counters
    assert counters[AGE.format("bucket", "memory.available", ',le="5"')] == 1


def test_a_limit_on_local_storage_counts_under_its_own_name() -> None:
    """And has no age of statistics: no threshold forced it."""
    counters = metrics(MEMORY, step(10, pod("a", "1Gi"), storage_gi=2))
    assert counters == {'kubelet_evictions{eviction_signal="ephemeralpodfs.limit"}': 1}


def test_a_collection_that_frees_enough_counts_nothing() -> None:
    """One that does not counts the eviction, once."""
    low = step(10, pod("a"), disk_gi=5)
    assert metrics(DISK, low, resume(50)) == {}
    counters = metrics(DISK, low, resume(6))
    assert counters['kubelet_evictions{eviction_signal="nodefs.available"}'] == 1
    assert counters[AGE.format("count", "nodefs.available", "")] == 1


def test_a_threshold_that_finds_no_pods_has_no_age() -> None:
    """There is no ranking."""
    assert metrics(MEMORY, step(10, available_gi=0)) == {}
