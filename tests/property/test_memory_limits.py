"""No container, pod or node uses more memory than its limit: random usage, at every look."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import event, given, settings
from hypothesis import strategies as st

from replay.world.kubelet.memory_limits import (
    DEFAULT_KUBELET,
    container_limit,
    kubepods_limit,
    long_running,
    pod_limit,
)
from replay.world.loop.replay import Limits, Replay
from replay.world.models import Models
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.pod import PodPhase
from tests.builders import make_node, make_pod
from tests.property.test_eviction_skips import HARD, Kubelets, Nobody
from tests.unit.world.builders import S

UNTIL_S = 600
MIB = 1 << 20

amounts = st.integers(1, 1500)
growths = st.builds(
    lambda start, more: f"{start}Mi+{more}Mi/m", st.integers(0, 800), st.integers(0, 2000)
)
containers = st.tuples(st.none() | amounts, growths)
pods: st.SearchStrategy[dict[str, object]] = st.builds(
    dict,
    containers=st.lists(containers, min_size=1, max_size=3),
    sidecar=st.none() | containers,
    pod_limit=st.none() | amounts,
    policy=st.sampled_from(["Always", "OnFailure", "Never"]),
)
recorded = st.lists(st.tuples(st.integers(0, UNTIL_S), amounts, amounts), min_size=1, max_size=6)


class Watched(Kubelets):
    """The eviction service, which keeps what each node's kubelet observes."""

    def __init__(self) -> None:
        """Begin without observations."""
        super().__init__(HARD, tireless=True)
        self.seen: list[pb.Step] = []

    def apply(self, operations: Sequence[pb.Operation]) -> Sequence[pb.OperationResult]:
        """Keep the observations of steps."""
        self.seen += [operation.step for operation in operations if operation.HasField("step")]
        return super().apply(operations)


def _node() -> node_pb2.Node:
    node = make_node("n").capacity(cpu="8", memory="4Gi").message()
    node.status.allocatable["memory"] = "3500Mi"
    return node


def _pod(number: int, described: dict[str, object]) -> pod_pb2.Pod:
    made = make_pod(f"p{number}").uid(f"p{number}").node("n").phase(PodPhase.RUNNING).message()
    spec = made.spec
    spec.restart_policy = str(described["policy"])
    for index, (limit, usage) in enumerate(described["containers"]):  # type: ignore[arg-type,var-annotated] # by the strategy
        _fill(spec.containers.add(name=f"c{index}"), limit)
        made.metadata.annotations[f"reprieve/usage-memory.c{index}"] = usage
    if described["sidecar"] is not None:
        limit, usage = described["sidecar"]  # type: ignore[misc] # by the strategy
        _fill(spec.init_containers.add(name="side", restart_policy="Always"), limit)
        made.metadata.annotations["reprieve/usage-memory.side"] = usage
    if described["pod_limit"] is not None:
        spec.resources.limits["memory"] = f"{described['pod_limit']}Mi"
    return made


def _fill(container: pod_pb2.Container, limit: int | None) -> None:
    if limit is not None:
        container.resources.limits["memory"] = f"{limit}Mi"


def _played(
    messages: Sequence[pod_pb2.Pod], profiles: Sequence[trace_pb2.UsageProfile] = ()
) -> tuple[Watched, list[trace_pb2.Decision]]:
    trace_records = [trace_pb2.Record(header=trace_pb2.Header(window_end_time_ns=UNTIL_S * S))]
    node = trace_pb2.Record()
    node.create.node.CopyFrom(_node())
    trace_records += [node, *(trace_pb2.Record(usage=profile) for profile in profiles)]
    for number, message in enumerate(messages, 1):
        life = trace_pb2.PodLife(usage_id=number if profiles else None)
        trace_records.append(
            trace_pb2.Record(pod_create=trace_pb2.PodCreate(pod=message, life=life))
        )
    log: list[trace_pb2.Decision] = []
    watched = Watched()
    replay = Replay(Nobody(), watched, models=Models(), sink=log.append, observer=Nobody())
    replay.run(iter(trace_records), Limits())
    return watched, log


def _check(watched: Watched, messages: Sequence[pod_pb2.Pod]) -> None:
    by_uid = {message.metadata.uid: message for message in messages}
    for step in watched.seen:
        for stats in step.observations.pods:
            spec = by_uid[stats.pod.uid].spec
            limits = {
                container.name: container_limit(container) for container in long_running(spec)
            }
            for usage in stats.containers:
                limit = limits[usage.name]
                assert limit is None or usage.memory_working_set_bytes <= limit
            whole = pod_limit(spec)
            assert whole is None or stats.memory_working_set_bytes <= whole


@settings(max_examples=30, deadline=None)
@given(described=st.lists(pods, min_size=1, max_size=4))
def test_no_containers_usage_exceeds_its_limit(described: list[dict[str, object]]) -> None:
    """Nor a pod's that of its cgroup, nor all pods' that of kubepods, where usage is a line."""
    messages = [_pod(number, containers) for number, containers in enumerate(described)]
    watched, log = _played(messages)
    _check(watched, messages)
    limit = kubepods_limit(_node(), DEFAULT_KUBELET)
    assert limit is not None
    for step in watched.seen:
        used = sum(pod.memory_working_set_bytes for pod in step.observations.pods)
        assert used <= limit
    event(f"kills: {any(entry.observed.HasField('oom_killed') for entry in log)}")


@settings(max_examples=30, deadline=None)
@given(
    described=st.lists(pods, min_size=1, max_size=3),
    samples=st.lists(recorded, min_size=3, max_size=3),
    by_container=st.booleans(),
)
def test_no_recorded_usage_exceeds_a_limit(
    described: list[dict[str, object]],
    samples: list[list[tuple[int, int, int]]],
    by_container: bool,
) -> None:
    """Usage of a container if it is recorded by container, otherwise of the pod."""
    messages, profiles = [], []
    for number, (containers, windows) in enumerate(zip(described, samples, strict=False), 1):
        message = _pod(number, containers)
        message.metadata.annotations.clear()
        messages.append(message)
        profiles.append(_profile(number, message, windows))
        if not by_container:
            for segment in profiles[-1].segments:
                del segment.containers[:]
    watched, log = _played(messages, profiles)
    by_uid = {message.metadata.uid: message for message in messages}
    if by_container:
        _check(watched, messages)
    for step in watched.seen:
        for stats in step.observations.pods:
            whole = pod_limit(by_uid[stats.pod.uid].spec)
            assert whole is None or stats.memory_working_set_bytes <= whole
    event(f"kills: {any(entry.observed.HasField('oom_killed') for entry in log)}")


def _profile(
    number: int, message: pod_pb2.Pod, windows: Sequence[tuple[int, int, int]]
) -> trace_pb2.UsageProfile:
    """Return a profile in which containers use the two amounts of a window by turns."""
    profile = trace_pb2.UsageProfile(id=number)
    for offset_s, *used_mib in sorted(windows):
        segment = profile.segments.add(offset_duration_ns=offset_s * S)
        for index, container in enumerate(long_running(message.spec)):
            used = segment.containers.add(name=container.name)
            used.memory_bytes = used_mib[index % 2] * MIB
        segment.memory_bytes = sum(container.memory_bytes for container in segment.containers)
    return profile
