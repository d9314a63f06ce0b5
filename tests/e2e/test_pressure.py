"""A node under memory pressure, from the first leak to the end of the condition."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.runner import FinishedReplay
from replay.world.loop.replay import ReplayEnd
from reprieve.kube.v1beta1 import object_pb2, pod_pb2, workloads_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from tests.builders import make_node
from tests.e2e.replays import bindings, run

S = SECOND_NS
MIB = 1 << 20
LEAK_S, SECOND_NODE_S = 63, 30
TAINT = "node.kubernetes.io/memory-pressure"


def node(name: str) -> object_pb2.KubernetesObject:
    """Return a node of 4 GiB."""
    made = make_node(name).capacity(cpu="4", memory="4Gi")
    return object_pb2.KubernetesObject(node=made.message())


def usage(id_: int, *segments: tuple[int, int]) -> trace_pb2.UsageProfile:
    """Return a profile of (offset in s, memory in MiB)."""
    made = trace_pb2.UsageProfile(id=id_)
    for offset_s, mib in segments:
        made.segments.add(offset_duration_ns=offset_s * S, memory_bytes=mib * MIB)
    return made


def container(pod: pod_pb2.PodSpec) -> None:
    """Give a pod a container that requests 1 GiB."""
    pod.containers.add(name="c").resources.requests.update({"cpu": "1", "memory": "1Gi"})


def leaky() -> workloads_pb2.ReplicaSet:
    """Return a ReplicaSet of one pod."""
    made = workloads_pb2.ReplicaSet()
    made.metadata.name, made.metadata.namespace, made.metadata.uid = "leaky", "default", "uid-leaky"
    made.spec.replicas = 1
    made.spec.template.metadata.labels["app"] = "leaky"
    container(made.spec.template.spec)
    return made


def records() -> list[trace_pb2.Record]:
    """Return the trace: a steady pod and one that leaks on "n1", and later an empty "n2"."""
    steady = trace_pb2.PodCreate(life=trace_pb2.PodLife(usage_id=2))
    steady.pod.metadata.name = "steady"
    steady.pod.spec.node_name = "n1"
    steady.pod.status.phase = "Running"
    container(steady.pod.spec)
    trace_records = [
        trace_pb2.Record(create=node("n1")),
        trace_pb2.Record(usage=usage(1, (0, 200), (LEAK_S, 3200))),
        trace_pb2.Record(usage=usage(2, (0, 800))),
        trace_pb2.Record(pod_create=steady),
    ]
    for ordinal, usage_id in enumerate((1, 2)):
        record = trace_pb2.Record()
        made = record.controller_pod
        made.owner.kind, made.owner.namespace, made.owner.name = "ReplicaSet", "default", "leaky"
        made.ordinal, made.name, made.life.usage_id = ordinal, f"leaky-{ordinal}", usage_id
        trace_records.append(record)
    trace_records.append(trace_pb2.Record(create=object_pb2.KubernetesObject(replica_set=leaky())))
    trace_records.append(trace_pb2.Record(time_ns=SECOND_NODE_S * S, create=node("n2")))
    for sequence, record in enumerate(trace_records, 1):
        record.sequence = sequence
    return trace_records


def log(finished: FinishedReplay) -> list[tuple[int, str, str]]:
    """Return the decision log as (seconds, what, object)."""
    return [
        (
            entry.time_ns // S,
            entry.observed.WhichOneof("observed") or "",
            entry.observed.object.name,
        )
        for entry in finished.run.decisions()
    ]


@pytest.mark.e2e
def test_a_leak_brings_pressure_an_eviction_elsewhere_a_new_pod_and_then_calm(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Condition and taint come with the first step that sees it and go 5 min after the last."""
    finished = run(here, records(), tmp_path / "run")
    assert log(finished) == [
        (0, "created", "leaky-0"),
        (0, "scheduled", "leaky-0"),
        (0, "started", "leaky-0"),
        (70, "condition_changed", "n1"),
        (70, "evicted", "leaky-0"),
        (71, "finished", "leaky-0"),
        (71, "created", "leaky-1"),
        (71, "scheduled", "leaky-1"),
        (71, "started", "leaky-1"),
        (372, "condition_changed", "n1"),
    ]
    assert {name: bound.node for name, bound in bindings(finished).items()} == {
        "leaky-0": "n1",
        "leaky-1": "n2",
    }
    cluster = finished.replay.cluster
    evicted = cluster.pods[cluster.pod_uids["default/leaky-0"]].message.status
    assert (evicted.phase, evicted.reason) == ("Failed", "Evicted")
    assert evicted.message == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 96Mi. "
        "Container c was using 3200Mi, request is 1Gi, has larger consumption of memory. "
    )
    target = next(
        condition for condition in evicted.conditions if condition.type == "DisruptionTarget"
    )
    assert (target.status, target.reason) == ("True", "TerminationByKubelet")
    assert finished.replay.timeline.is_idle
    assert finished.summary.end == ReplayEnd.FINISHED.value


@pytest.mark.e2e
def test_the_node_has_the_condition_and_its_taint_while_it_holds(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """A replay that stops in between shows both; one that continues shows neither."""
    stopped = [
        trace_pb2.Record(header=trace_pb2.Header(format_version=2, window_end_time_ns=200 * S)),
        *records(),
    ]
    for trace, shown in ((stopped, True), (records(), False)):
        finished = run(here, trace, tmp_path / f"shown-{shown}")
        node = finished.replay.cluster.nodes["n1"]
        assert [taint.key for taint in node.spec.taints] == ([TAINT] if shown else [])
        status = next(
            condition.status
            for condition in node.status.conditions
            if condition.type == "MemoryPressure"
        )
        assert status == ("True" if shown else "False")
