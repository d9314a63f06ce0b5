"""A whole run directory, made by hand: twenty seconds of one node."""

from __future__ import annotations

from pathlib import Path

from replay.results.run.directory import RunDirectory
from replay.results.run.manifest import Manifest
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.builders import make_node
from tests.unit.results import messages

NODE = "worker"
_MESSAGE = (
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 66Mi. "
    "Container c was using 2030Mi, request is 256Mi, has larger consumption of memory. "
)


def small_run(path: Path) -> RunDirectory:
    """Leave a run in `path` in which high displaces low, is evicted itself, and late is pending."""
    directory = RunDirectory.create(path)
    rounds = directory.round_log()
    for round_ in _rounds():
        rounds.write(round_)
    rounds.close()
    decisions = directory.decision_log()
    for sequence, decision in enumerate(_decisions(), 1):
        decision.sequence = sequence
        decisions.write(decision)
    decisions.close()
    step: dict[str, object] = {"pods": 2, "count": 2, "sum_ns": 50, "p50_ns": 20, "p90_ns": 30}
    step |= {"p99_ns": 30, "max_ns": 30, "buckets": [[20, 1], [30, 1]]}
    directory.write_summary({"namespaces": ["default"]})
    directory.write_latencies({"wall_ns": 9, "steps": {"schedulingCycle": step}})
    manifest = Manifest(version="0", seed=7, rules="v1.34", traces=())
    directory.write_manifest(manifest.ended("over"))
    directory.end()
    return directory


def _pod(name: str, cpu: str, **of: object) -> pod_pb2.Pod:
    pod = messages.pod_message(name, **of)  # type: ignore[arg-type] # keywords of one test
    pod.spec.containers[0].resources.requests["cpu"] = cpu
    return pod


def _rounds() -> list[scheduler_pb2.Round]:
    node = make_node(NODE).capacity(cpu="2").message()
    sent, patched = messages.round_of, messages.patched
    failed = pod_pb2.PodStatus(phase="Failed")
    return [
        sent(
            messages.added(node),
            messages.added(_pod("low", "1500m", node_name=NODE, phase="Running", owner_uid="o")),
        ),
        sent(messages.added(_pod("high", "2", priority=9), 8), at_s=8),
        sent(messages.deleted("low", 10), at_s=10),
        sent(patched("high", 11, node_name=NODE), at_s=11),
        sent(messages.added(_pod("late", "1"), 12), at_s=12),
        sent(patched("high", 20, status=failed), at_s=20),
    ]


def _decisions() -> list[trace_pb2.Decision]:
    victim = messages.preempted("low", "high", 8)
    victim.observed.preempted.node_name = NODE
    refused = messages.scheduled("high", "gone", 10)
    refused.refused = 'nodes "gone" not found'
    evicted = messages.evicted("high", "memory.available", 19)
    evicted.observed.evicted.message = _MESSAGE
    return [
        messages.failed("high", "0/1 nodes are available: 1 Insufficient cpu.", 8),
        messages.nominated("high", NODE, "low", at_s=8),
        victim,
        messages.removed("low", 10, "preempted"),
        refused,
        messages.scheduled("high", NODE, 11, waited_s=3),
        messages.started("high", 11),
        evicted,
        messages.finished("high", 20, "Failed"),
    ]
