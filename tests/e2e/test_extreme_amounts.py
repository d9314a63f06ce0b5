"""Amounts at and beyond 64 bits: they saturate, and no service or replay fails over one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.backends.processes import EmbeddedServices
from replay.conform.vectors.eviction import EvictionSession, pod_message
from replay.results.tables.query import RunTables
from reprieve.eviction.v1beta1 import eviction_pb2 as ev
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from services.kube.quantity import AMOUNT_MAX, INT64_MAX
from services.kube.time import SECOND_NS
from services.rpc.client import channel
from services.rpc.kube import json_codec
from tests.e2e.replays import run, trace

pytestmark = pytest.mark.e2e

EXTREME = ("9223372036854775807", "9E", "1e400", "1e18", "9223372036854775.807", "1e-400", "7Ei")
amounts = st.sampled_from((*EXTREME, "1", "500m", "0"))
optional_bytes = st.sampled_from((0, INT64_MAX, 2**62, None, INT64_MAX))


def resources(*names: str) -> st.SearchStrategy[dict[str, str]]:
    """Draw quantities of some of the resources."""
    return st.dictionaries(st.sampled_from(names), amounts)


@st.composite
def objects(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw nodes, pods that are bound to them or wait, and what pods use."""
    names = ("cpu", "memory", "ephemeral-storage", "example.com/gpu", "pods")
    found: list[dict[str, Any]] = []
    for node in range(draw(st.integers(1, 3))):
        has = draw(resources(*names)) | {"pods": draw(st.sampled_from(("110", "9E")))}
        status = {"capacity": has, "allocatable": has}
        found.append({"kind": "Node", "metadata": {"name": f"n{node}"}, "status": status})
    for pod in range(draw(st.integers(1, 8))):
        containers = [
            {
                "name": f"c{number}",
                "image": "i",
                "resources": {"requests": draw(resources(*names[:4]))},
            }
            for number in range(draw(st.integers(1, 3)))
        ]
        spec: dict[str, Any] = {"containers": containers, "priority": draw(st.integers(0, 2))}
        spec["overhead"] = draw(resources("cpu", "memory"))
        if draw(st.booleans()):
            spec["nodeName"] = "n0"
        growth = draw(st.sampled_from(("", "9E", "1e300+9E/1s", "+1Ei/10s")))
        uses = {"reprieve/usage-memory": growth, "reprieve/usage-ephemeral-storage": growth}
        meta = {"name": f"p{pod}", "namespace": "d", "annotations": uses if growth else {}}
        found.append({"kind": "Pod", "metadata": meta, "spec": spec})
    return found


@settings(max_examples=6)
@given(objects=objects())
def test_a_replay_of_extreme_amounts_ends_and_counts_nothing_below_zero(
    here: EmbeddedServices, tmp_path_factory: pytest.TempPathFactory, objects: list[dict[str, Any]]
) -> None:
    """Nodes, requests, overheads, usage; tables and the summary add all of it up."""
    folder = tmp_path_factory.mktemp("runs")
    for obj in objects:
        obj["apiVersion"] = "v1"
    (folder / "a.json").write_text("".join(map(json.dumps, objects)))
    finished = run(here, trace([folder / "a.json"]), folder / "run")
    assert not list(negative(finished.run.summary()))
    with RunTables(finished.run) as tables:
        select = "SELECT min(requested), min(allocatable), max(allocatable) FROM node_usage"
        [(requested, least, most)] = tables.select(select).rows()
        assert requested >= 0
        assert 0 <= least <= most <= AMOUNT_MAX


def negative(value: Any) -> Iterator[Any]:
    """Yield the numbers below 0 in JSON."""
    match value:
        case dict():
            for item in value.values():
                yield from negative(item)
        case list():
            for element in value:
                yield from negative(element)
        case int() | float() if value < 0:
            yield value


@settings(max_examples=30)
@given(data=st.data())
def test_a_step_with_extreme_statistics_is_answered(
    here: EmbeddedServices, data: st.DataObject
) -> None:
    """Each figure alone fits 64 bits, their sums do not; no answer is negative."""
    thresholds = st.sampled_from(("9E", "10%", "1e400"))
    config = ev.EvictionConfig(
        hard={signal: data.draw(thresholds) for signal in ("memory.available", "nodefs.available")},
        minimum_reclaim={"memory.available": data.draw(st.sampled_from(("inf%", "9E", "1e37%")))},
        local_storage_isolation=data.draw(st.booleans()),
        kernel_memcg_notification=data.draw(st.booleans()),
    )
    session = EvictionSession(channel(here.addresses["eviction"]), config)
    requested = data.draw(
        st.lists(resources("memory", "ephemeral-storage"), min_size=1, max_size=4)
    )
    for at_s in range(1, 3):
        step = pb.Step(node_name="n", time_ns=at_s * 60 * SECOND_NS)
        drawn = drawn_statistics(data, requested)
        step.observations.CopyFrom(drawn)
        for number, amounts in enumerate(requested):
            step.pods.append(pod_message({"name": f"p{number}"}))
            for index in range(2):
                container = step.pods[-1].spec.containers.add(name=f"c{index}")
                container.resources.requests.update(amounts)
                container.resources.limits.update(amounts)
        result = session.apply(pb.Operation(step=step))
        if result.HasField("need_reclaim"):
            resume = pb.Resume(node_name="n", observations=drawn_statistics(data, requested))
            result = session.apply(pb.Operation(resume=resume))
        assert not list(negative(json_codec.to_json(result)))


def drawn_statistics(data: st.DataObject, pods: Sequence[object]) -> ev.Observations:
    """Draw what a node and its pods use."""

    def figures(*names: str) -> dict[str, int]:
        drawn = {name: data.draw(optional_bytes) for name in names}
        return {name: value for name, value in drawn.items() if value is not None}

    disk = ("available_bytes", "capacity_bytes", "inodes_free", "inodes")
    used = ("memory_working_set_bytes", "used_bytes", "inodes_used", "logs_used_bytes")
    found = ev.Observations(
        memory=ev.MemoryStats(**figures("available_bytes", "working_set_bytes")),
        node_fs=ev.FsStats(**figures(*disk)),
        processes=ev.ProcessStats(max_pid=INT64_MAX, **figures("running")),
    )
    for number in range(len(pods)):
        own = figures("memory_working_set_bytes", "ephemeral_used_bytes", "processes")
        stats = found.pods.add(**own)
        stats.pod.uid = pod_message({"name": f"p{number}"}).metadata.uid
        for index in range(2):
            stats.containers.add(name=f"c{index}", **figures(*used))
    return found
