"""A step that is skipped would have changed nothing: random usage, against stepping every node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from replay.world.kubelet.annotations import Growth, UsageRule
from replay.world.loop.replay import Limits, Replay
from replay.world.models import Models
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from reprieve.kube.v1beta1 import node_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.eviction.servicer import EvictionServicer
from services.kube.pod import PodPhase
from tests.builders import make_node, make_pod
from tests.unit.world.builders import S

UNTIL_S = 400
CONTEXT = cast("Any", None)
CONFIG = eviction_pb2.EvictionConfig(
    hard={"memory.available": "300Mi"},
    soft={"memory.available": "900Mi"},
    soft_grace={"memory.available": "35s"},
    pressure_transition_duration_ns=60 * S,
    max_pod_grace_period_duration_ns=20 * S,
)
NOTIFIED = eviction_pb2.EvictionConfig(kernel_memcg_notification=True)
NOTIFIED.MergeFrom(CONFIG)
HARD = eviction_pb2.EvictionConfig(hard=CONFIG.hard)
HARD_NOTIFIED = eviction_pb2.EvictionConfig(hard=CONFIG.hard, kernel_memcg_notification=True)
CALM = [
    node_pb2.NodeCondition(type=condition, status="False")
    for condition in ("MemoryPressure", "DiskPressure", "PIDPressure")
]
Decision = trace_pb2.Decision
Segments = list[tuple[int, int]]


class Kubelets:
    """The real service, called in process; `tireless` makes the world step every node for ever."""

    def __init__(self, config: eviction_pb2.EvictionConfig, *, tireless: bool) -> None:
        self._service = EvictionServicer()
        request = pb.CreateSessionRequest(config=config)
        opened = asyncio.run(self._service.CreateSession(request, CONTEXT))
        self._stamp = session_pb2.Stamp(session_id=opened.session_id)
        self._tireless = tireless
        self._conditions: dict[str, list[node_pb2.NodeCondition]] = {}
        self.steps = 0

    def apply(self, operations: Sequence[pb.Operation]) -> Sequence[pb.OperationResult]:
        """Carry out a batch."""
        self._stamp.sequence += 1
        request = pb.ApplyRequest(stamp=self._stamp, operations=operations)
        answer = self._service.apply(request)
        assert answer.applied == len(operations)
        for result in answer.results:
            self.steps += result.HasField("step")
            if result.HasField("step") and self._tireless:
                self._tire(result.node_name, result.step)
        return answer.results

    def _tire(self, node_name: str, step: eviction_pb2.StepResult) -> None:
        """Make a step say nothing of those to come; a quiet one left its conditions out."""
        if step.quiet:
            step.conditions.extend(self._conditions.get(node_name, CALM))
        self._conditions[node_name] = list(step.conditions)
        step.quiet = False
        step.ClearField("calm")


class Nobody:
    """A scheduler that decides nothing, and an observer that observes nothing."""

    takes_windows = False

    def send_round(self, round_: scheduler_pb2.Round, window: object = ()) -> None:
        """Handle a message."""

    def receive_outcomes(self) -> scheduler_pb2.RoundOutcomes:
        """Answer it."""
        return scheduler_pb2.RoundOutcomes()

    def round_sent(self, round_: scheduler_pb2.Round) -> None:
        """Ignore it."""

    def outcomes(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Ignore it."""


def records(nodes: list[list[Segments]]) -> list[trace_pb2.Record]:
    """Return nodes of 4 GiB, each with running pods that use memory as their segments say."""
    trace_records = [trace_pb2.Record(header=trace_pb2.Header(window_end_time_ns=UNTIL_S * S))]
    for number, pods in enumerate(nodes):
        record = trace_pb2.Record()
        node = make_node(f"n{number}").capacity(cpu="8", memory="4Gi")
        record.create.node.CopyFrom(node.message())
        trace_records.append(record)
        for index, segments in enumerate(pods):
            trace_records += _pod(f"n{number}", 1 + 10 * number + index, segments)
    for sequence, record in enumerate(trace_records, 1):
        record.sequence = sequence
    return trace_records


def _pod(node: str, id_: int, segments: Segments) -> list[trace_pb2.Record]:
    usage, created = trace_pb2.Record(), trace_pb2.Record()
    usage.usage.id = id_
    for offset_s, mib in segments:
        usage.usage.segments.add(offset_duration_ns=offset_s * S, memory_bytes=mib << 20)
    pod = make_pod(f"p{id_}").uid(f"p{id_}").node(node).phase(PodPhase.RUNNING)
    created.pod_create.pod.CopyFrom(pod.container("c", requests={"memory": "200Mi"}).message())
    created.pod_create.life.usage_id = id_
    return [usage, created]


def log(
    told: list[trace_pb2.Record],
    config: eviction_pb2.EvictionConfig,
    *,
    tireless: bool,
    usage: Sequence[UsageRule] = (),
) -> tuple[list[tuple[int, str]], int]:
    """Run a replay; return its decisions and its number of steps."""
    kubelets, entries, nobody = Kubelets(config, tireless=tireless), list[Decision](), Nobody()
    replay = Replay(
        nobody, kubelets, models=Models(), sink=entries.append, observer=nobody, usage=usage
    )
    replay.run(iter(told), Limits())
    return [(entry.time_ns, str(entry.observed)) for entry in entries], kubelets.steps


segments = st.lists(
    st.tuples(st.integers(0, 300), st.sampled_from([50, 400, 900, 1500, 2500, 3800])),
    min_size=1,
    max_size=4,
    unique_by=lambda pair: pair[0],
).map(sorted)


clusters = st.lists(st.lists(segments, min_size=1, max_size=4), min_size=1, max_size=3)
shrinking = st.one_of(st.none(), st.tuples(st.integers(1, 300), st.sampled_from([1, 2, 3, 8])))


def shrunk(change: tuple[int, int] | None) -> list[trace_pb2.Record]:
    """Return that the first node gets other memory, (second, GiB); nothing for None."""
    if change is None:
        return []
    record = trace_pb2.Record(time_ns=change[0] * S)
    record.update.node.metadata.name = "n0"
    memory = {"cpu": "8", "memory": f"{change[1]}Gi", "pods": "110"}
    record.update.node.status.capacity.update(memory)
    record.update.node.status.allocatable.update(memory)
    return [record]


@pytest.mark.parametrize("config", [CONFIG, NOTIFIED], ids=["polled", "notified"])
@settings(max_examples=25)
@given(nodes=clusters, change=shrinking)
@example(nodes=[[[(0, 2500)], [(80, 900)]], [[(71, 3800)]]], change=None)
def test_stepping_every_node_decides_nothing_else(
    config: eviction_pb2.EvictionConfig, nodes: list[list[Segments]], change: tuple[int, int] | None
) -> None:
    """Evictions, conditions and their times are the same; only steps are saved."""
    trace_records = records(nodes) + shrunk(change)
    lazy, few = log(trace_records, config, tireless=False)
    every, many = log(trace_records, config, tireless=True)
    assert lazy == every
    assert few <= many


rules = st.builds(
    UsageRule,
    resource=st.just("memory"),
    growth=st.builds(
        Growth,
        start_bytes=st.sampled_from([None, 0, 300 << 20]),
        more_bytes=st.integers(0, 900).map(lambda mib: mib << 20),
        period_ns=st.sampled_from([20 * S, 60 * S]),
    ),
    namespace=st.just("default"),
    name=st.sampled_from(["p1", "p2", "p11"]),
)


@pytest.mark.parametrize("config", [CONFIG, NOTIFIED], ids=["polled", "notified"])
@settings(max_examples=25)
@given(nodes=clusters, usage=st.lists(rules, min_size=1, max_size=3))
def test_growing_pods_are_looked_at_in_time(
    config: eviction_pb2.EvictionConfig, nodes: list[list[Segments]], usage: list[UsageRule]
) -> None:
    """As where every node is stepped for ever."""
    lazy, few = log(records(nodes), config, tireless=False, usage=usage)
    every, many = log(records(nodes), config, tireless=True, usage=usage)
    assert lazy == every
    assert few <= many


@settings(max_examples=25)
@given(nodes=clusters)
def test_a_notification_never_makes_the_first_eviction_later(nodes: list[list[Segments]]) -> None:
    """A poll sees a crossing at the next of its moments, the kernel at once."""
    trace_records = records(nodes)
    polled, _ = log(trace_records, HARD, tireless=False)
    notified, _ = log(trace_records, HARD_NOTIFIED, tireless=False)
    firsts = [
        min((at_ns for at_ns, what in found if "evicted" in what), default=UNTIL_S * S)
        for found in (notified, polled)
    ]
    assert firsts[0] <= firsts[1]
