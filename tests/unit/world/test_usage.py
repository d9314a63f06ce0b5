"""What a node's kubelet observes."""

from __future__ import annotations

from replay.world.api.pod_record import PodRecord
from replay.world.kubelet.usage import MEMORY, UsageProfiles
from replay.world.kubelet.usage_curves import UsageLimits, next_change_ns
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import S, make_node, make_pod

GIB = 1 << 30


def profile(
    id_: int, *segments: tuple[int, int], node: str = "", template: int = 0
) -> trace_pb2.UsageProfile:
    """Return a profile of (offset in s, memory in GiB)."""
    made = trace_pb2.UsageProfile(id=id_, node_name=node, template_id=template)
    for offset_s, memory_gib in segments:
        made.segments.add(offset_duration_ns=offset_s * S, memory_bytes=memory_gib * GIB)
    return made


def running(name: str, usage_id: int, *, since_s: int | None = 0) -> PodRecord:
    """Return a pod that runs since `since_s`."""
    life = trace_pb2.PodLife(usage_id=usage_id)
    record = PodRecord(uid=name, key=name, message=make_pod(name), life=life)
    record.running_ns = None if since_s is None else since_s * S
    return record


def test_usage_follows_the_segments_from_the_pods_start() -> None:
    """Nothing before the first, and the last for ever."""
    profiles = UsageProfiles()
    profiles.add(profile(1, (5, 1), (10, 2)))
    pod = running("p", 1, since_s=100)
    seen = []
    for now_s in (100, 105, 109, 110, 9999):
        observed = profiles.observe(make_node(), 0, [pod], now_s * S)
        seen.append(observed.pods[0].memory_working_set_bytes // GIB)
    assert seen == [0, 1, 1, 2, 2]


def test_available_on_a_node_is_capacity_minus_pods_and_overhead() -> None:
    """Its overhead counts from its coming."""
    profiles = UsageProfiles()
    profiles.add(profile(1, (0, 1)))
    profiles.add(profile(2, (0, 0), (10, 2), node="n"))
    pods = [running("a", 1), running("b", 1)]
    before = profiles.observe(make_node(memory="8Gi"), 50 * S, pods, 59 * S).memory
    after = profiles.observe(make_node(memory="8Gi"), 50 * S, pods, 60 * S).memory
    assert (before.available_bytes, before.working_set_bytes) == (6 * GIB, 2 * GIB)
    assert (after.available_bytes, after.time_ns) == (4 * GIB, 60 * S)


def test_more_than_there_is_leaves_nothing() -> None:
    """Never less than nothing, and the capacity stays what it is."""
    profiles = UsageProfiles()
    profiles.add(profile(1, (0, 9)))
    memory = profiles.observe(make_node(memory="4Gi"), 0, [running("p", 1)], S).memory
    assert (memory.available_bytes, memory.working_set_bytes) == (0, 4 * GIB)


def test_pods_that_do_not_run_or_have_no_profile_have_no_statistics() -> None:
    """The kubelet ranks them as it ranks pods without any."""
    profiles = UsageProfiles()
    profiles.add(profile(1, (0, 1)))
    pods = [running("waits", 1, since_s=None), running("unknown", 7), running("p", 1)]
    observed = profiles.observe(make_node(), 0, pods, S)
    assert [pod.pod.name for pod in observed.pods] == ["p"]
    assert [profiles.has_usage(pod) for pod in pods] == [True, False, True]


def test_without_any_profile_nothing_is_observed_of_the_node() -> None:
    """An absent figure is not known, which is not 0."""
    observed = UsageProfiles().observe(make_node(), 0, [running("p", 1)], S)
    assert not observed.HasField("memory")
    assert not observed.HasField("node_fs")


def test_storage_is_observed_if_the_node_has_storage() -> None:
    """From ephemeral-storage."""
    profiles = UsageProfiles()
    made = trace_pb2.UsageProfile(id=1)
    made.segments.add(storage_bytes=GIB, inodes=7, processes=3)
    profiles.add(made)
    node = make_node()
    assert not profiles.observe(node, 0, [running("p", 1)], S).HasField("node_fs")
    node.status.capacity["ephemeral-storage"] = "10Gi"
    observed = profiles.observe(node, 0, [running("p", 1)], S)
    assert (observed.node_fs.available_bytes, observed.node_fs.capacity_bytes) == (
        9 * GIB,
        10 * GIB,
    )
    (pod,) = observed.pods
    assert (pod.ephemeral_used_bytes, pod.processes, pod.containers[0].inodes_used) == (GIB, 3, 7)


def test_containers_share_a_pods_usage_by_their_memory_requests() -> None:
    """Evenly where none has any."""
    profiles = UsageProfiles()
    profiles.add(profile(1, (0, 4)))
    pod = running("p", 1)
    pod.message.spec.containers.add(name="d").resources.requests["memory"] = "3Gi"
    stats = profiles.observe(make_node(), 0, [pod], S).pods[0].containers
    assert [(stat.name, stat.memory_working_set_bytes // GIB) for stat in stats] == [
        ("c", 1),
        ("d", 3),
    ]
    for container in pod.message.spec.containers:
        container.resources.requests.clear()
    stats = profiles.observe(make_node(), 0, [pod], S).pods[0].containers
    assert [stat.memory_working_set_bytes // GIB for stat in stats] == [2, 2]


def test_every_change_of_a_node_and_its_pods_is_foreseen() -> None:
    """Of its pods or of its own, whichever comes first; none where nothing comes."""
    profiles = UsageProfiles()
    profiles.add(profile(1, (5, 1), (10, 2)))
    profiles.add(profile(2, (0, 0), (107, 1), node="n"))
    sources = profiles.node_usage(make_node(), 0, [running("p", 1, since_s=100)])
    seen = [next_change_ns(sources, now_s * S) for now_s in (100, 105, 107, 110)]
    assert seen == [105 * S, 107 * S, 110 * S, None]


def test_usage_bounds_follow_from_the_amounts_that_must_stay_available() -> None:
    """Signals that the trace does not contain bound nothing, nor does an amount of 0."""
    profiles, node = UsageProfiles(), make_node(memory="8Gi")
    least = {MEMORY: 3 * GIB, "nodefs.available": GIB, "pid.available": 7}
    assert profiles.limits(node, least) == UsageLimits()
    profiles.add(profile(1, (0, 1)))
    assert profiles.limits(node, least) == UsageLimits(memory=5 * GIB)
    assert profiles.limits(node, {MEMORY: 0}) == UsageLimits()
