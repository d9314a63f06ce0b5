"""Usage from kubelets, metrics.k8s.io and Prometheus, and usage profiles in a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.errors import RecordError
from replay.importers.recording.survey import Survey
from replay.record.frames import RecordingFolder
from replay.record.recorded_trace import NO_USAGE, WINDOWS_MAX, UsageHistory, trace_of, with_usage
from replay.record.redact import Redactor
from reprieve.trace.v1beta1.trace_pb2 import Record, UsageProfile
from tests.api_server import ApiServerDouble, Listing, Raw, Refusal, Script
from tests.unit.importers.builders import make_object, make_pod, make_replica_set
from tests.unit.record.recording import cluster, event, fast, issues, recorded, trace
from tests.unit.trace.builders import make_header

SUMMARY = "/api/v1/nodes/n/proxy/stats/summary"
METRICS = "/apis/metrics.k8s.io/v1beta1"
MI = 1 << 20
GI = 1 << 30
CONDITIONS = (("PodScheduled", "True", ""),)


def running(name: str, version: int, owner: Raw | None = None) -> Raw:
    """Return a pod that runs on node n since the beginning of the year."""
    return make_pod(
        name,
        version,
        node="n",
        phase="Running",
        conditions=CONDITIONS,
        owner=owner,
        status={"startTime": "2026-01-01T00:00:00Z"},
    )


def scripts() -> dict[str, Script]:
    """Return a cluster of one node with one pod."""
    node = make_object("Node", "n", 1, status={"allocatable": {"memory": "8Gi"}})
    return cluster(
        Node=Script(lists=[Listing(items=[node], version=5)]),
        Pod=Script(lists=[Listing(items=[running("p", 2)], version=5)]),
    )


def summary() -> Raw:
    """Return the summary of the kubelet of node n."""
    return {
        "node": {
            "nodeName": "n",
            "cpu": {"usageNanoCores": 1_500_000_000},
            "memory": {"workingSetBytes": 3 * GI},
            "fs": {"capacityBytes": 100 * GI, "availableBytes": 90 * GI},
        },
        "pods": [
            {
                "podRef": {"name": "p", "namespace": "default", "uid": "uid-p"},
                "cpu": {"usageNanoCores": 500_000_001},
                "memory": {"workingSetBytes": GI},
                "ephemeral-storage": {"usedBytes": 2 * GI, "inodesUsed": 7},
                "process_stats": {"process_count": 3},
            },
            {"podRef": {"name": "unknown", "namespace": "default"}, "memory": {}},
        ],
    }


def profiles(records: list[Record]) -> list[UsageProfile]:
    """Return the profiles of a trace."""
    return [record.usage for record in records if record.HasField("usage")]


def test_kubelets_report_what_pods_use_and_what_a_node_uses_beside_them(tmp_path: Path) -> None:
    """The node's own is the whole less its pods, of every amount."""
    with ApiServerDouble(scripts(), answers={SUMMARY: summary()}) as server:
        records = trace(server, tmp_path / "f", usage="auto", samples=2)
    node_profile, pod = profiles(records)
    assert node_profile.node_name == "n"
    assert node_profile.segments[0].memory_bytes == 2 * GI
    assert node_profile.segments[0].storage_bytes == 8 * GI
    assert node_profile.segments[0].cpu_milli == 1500 - 501
    assert not node_profile.segments[0].HasField("processes")
    segment = pod.segments[0]
    assert (segment.cpu_milli, segment.memory_bytes, segment.storage_bytes) == (501, GI, 2 * GI)
    assert (segment.inodes, segment.processes) == (7, 3)
    [create] = [record.pod_create for record in records if record.HasField("pod_create")]
    assert create.life.usage_id == pod.id
    assert records[0].header.options["usage"] == "kubelet"
    assert not [issue for issue in issues(records) if issue.kind == "no-usage"]


def test_usage_comes_before_its_pod_and_numbers_rise(tmp_path: Path) -> None:
    """A trace's records are ordered, and a pod's profile precedes the pod."""
    with ApiServerDouble(scripts(), answers={SUMMARY: summary()}) as server:
        records = trace(server, tmp_path / "f", usage="kubelet", samples=1)
    kinds = [record.WhichOneof("record") for record in records]
    assert kinds[:5] == ["header", "usage", "create", "usage", "pod_create"]
    assert [record.sequence for record in records] == list(range(1, len(records) + 1))


def test_metrics_are_taken_where_kubelets_may_not_be_asked(tmp_path: Path) -> None:
    """A pod is the sum of its containers; its node is known from the pod itself."""
    answers: dict[str, Raw | Refusal] = {
        SUMMARY: (403, "Forbidden", "no nodes/proxy"),
        f"{METRICS}/nodes": {
            "items": [{"metadata": {"name": "n"}, "usage": {"cpu": "900m", "memory": "600Mi"}}]
        },
        f"{METRICS}/pods": {
            "items": [
                {
                    "metadata": {"name": "p", "namespace": "default"},
                    "containers": [
                        {"name": "a", "usage": {"cpu": "100000001n", "memory": "100Mi"}},
                        {"name": "b", "usage": {"cpu": "0", "memory": "102400Ki"}},
                    ],
                }
            ]
        },
    }
    with ApiServerDouble(scripts(), answers=answers) as server:
        outcome = recorded(server, tmp_path / "f", usage="auto", samples=1)
        assert outcome.usage == "metrics.k8s.io"
    node_profile, pod = profiles(list(trace_of(outcome.folder)))
    assert pod.segments[0].memory_bytes == 200 * MI
    assert pod.segments[0].cpu_milli == 101
    assert node_profile.segments[0].memory_bytes == 400 * MI
    assert by_container(pod) == [{"a": 100, "b": 100}]


def by_container(profile: UsageProfile) -> list[dict[str, int]]:
    """Return the memory of containers in each segment, MiB."""
    return [
        {container.name: container.memory_bytes // MI for container in segment.containers}
        for segment in profile.segments
    ]


def test_kubelets_report_containers(tmp_path: Path) -> None:
    """In addition to the pod's cgroup, which uses more than its containers."""
    kubelet_summary = summary()
    kubelet_summary["pods"][0]["containers"] = [
        {"name": "web", "memory": {"workingSetBytes": 600 * MI}},
        {"name": "mesh", "memory": {"workingSetBytes": 400 * MI}},
        {"name": "unknown", "memory": {}},
    ]
    with ApiServerDouble(scripts(), answers={SUMMARY: kubelet_summary}) as server:
        records = trace(server, tmp_path / "f", usage="auto", samples=1)
    _, pod = profiles(records)
    assert pod.segments[0].memory_bytes == GI
    assert by_container(pod) == [{"web": 600, "mesh": 400}]


def test_merged_windows_keep_the_larger_amounts_of_each_container() -> None:
    """Those of a container that is in one window only, too."""
    history = UsageHistory()
    for number in range(WINDOWS_MAX + 1):
        containers = {"web": {"memory_bytes": number % 2}, f"c{number % 2}": {"memory_bytes": 1}}
        history.add(number, {"pods": {"p": {"memory_bytes": number, "containers": containers}}})
    _, merged = history.pods["p"][0]
    assert merged["containers"] == {
        "web": {"memory_bytes": 1},
        "c0": {"memory_bytes": 1},
        "c1": {"memory_bytes": 1},
    }


def test_prometheus_returns_what_cadvisor_measured(tmp_path: Path) -> None:
    """Series without a pod of ours, and values that are no numbers, are passed over."""

    def series(labels: dict[str, str], value: str) -> Raw:
        return {"metric": labels, "value": [0, value]}

    pod = {"namespace": "default", "pod": "p"}

    with ApiServerDouble(scripts()) as server:
        server.series = {
            "container_memory_working_set_bytes{container": [
                series(pod | {"container": "web"}, str(GI - 24 * MI)),
                series(pod | {"container": "mesh"}, str(24 * MI)),
                series({"namespace": "x", "pod": "y"}, "1"),
            ],
            "container_memory_working_set_bytes{id": [series({"node": "n"}, str(3 * GI))],
            "container_cpu_usage_seconds_total{container": [series(pod, "NaN")],
        }
        records = trace(server, tmp_path / "f", usage=f"prometheus={server.url}", samples=1)
    node_profile, used = profiles(records)
    assert (node_profile.segments[0].memory_bytes, used.segments[0].memory_bytes) == (2 * GI, GI)
    assert by_container(used) == [{"web": 1000, "mesh": 24}]
    assert not used.segments[0].HasField("cpu_milli")


def test_without_any_source_the_trace_says_that_no_pod_is_evicted(tmp_path: Path) -> None:
    """With "auto", an available source is selected; there is none."""
    with ApiServerDouble(scripts()) as server:
        outcome = recorded(server, tmp_path / "f", usage="auto")
    assert outcome.usage == ""
    assert "neither kubelets nor metrics.k8s.io" in outcome.usage_why
    records = list(trace_of(outcome.folder))
    assert [issue.message for issue in issues(records)] == [NO_USAGE]


@pytest.mark.parametrize("wish", ["kubelet", "metrics"])
def test_a_source_that_is_asked_for_and_not_there_is_refused(tmp_path: Path, wish: str) -> None:
    """Before anything is recorded."""
    with (
        ApiServerDouble(scripts()) as server,
        pytest.raises(RecordError, match=f"--usage {wish}: the source does not answer"),
    ):
        recorded(server, tmp_path / "f", usage=wish)


def test_a_server_that_is_not_prometheus_is_refused(tmp_path: Path) -> None:
    """With its address."""
    with (
        ApiServerDouble(scripts()) as server,
        pytest.raises(RecordError, match=r"127\.0\.0\.1:\d+: the query is refused"),
    ):
        recorded(server, tmp_path / "f", usage=f"prometheus={server.url}")


def test_the_replays_pod_takes_the_usage_of_the_recorded_one(tmp_path: Path) -> None:
    """The pod of the same owner and number, counted from its own start."""
    owner = make_replica_set(3, 1)
    pods = Script(watches=[[event("ADDED", running("rs-a", 8, owner))]])
    listed = scripts()
    listed.update(cluster(Pod=pods, ReplicaSet=Script(lists=[Listing(items=[owner], version=5)])))
    node = make_object("Node", "n", 1, status={"allocatable": {"memory": "8Gi"}})
    listed["/api/v1/nodes"] = Script(lists=[Listing(items=[node], version=5)])
    used = summary()
    used["pods"][0]["podRef"]["name"] = "rs-a"
    with ApiServerDouble(listed, answers={SUMMARY: used}) as server:
        records = trace(server, tmp_path / "f", usage="kubelet", samples=3)
    [made] = [record.controller_pod for record in records if record.HasField("controller_pod")]
    [profile] = [profile for profile in profiles(records) if not profile.node_name]
    assert made.life.usage_id == profile.id
    assert profile.segments[0].offset_duration_ns == 0


def test_redacted_usage_has_no_names_and_still_finds_its_pod(tmp_path: Path) -> None:
    """Nodes and UIDs are hashed like everywhere else."""
    with ApiServerDouble(scripts(), answers={SUMMARY: summary()}) as server:
        options = fast(redactor=Redactor(b"k"))
        records = trace(server, tmp_path / "f", usage="kubelet", samples=1, options=options)
    node_profile, pod = profiles(records)
    assert node_profile.node_name == Redactor(b"k").text("n")
    assert pod.segments[0].memory_bytes == GI
    assert "uid-p" not in str(records)


def test_long_runs_have_their_windows_put_together() -> None:
    """Merged windows have the larger amounts and the first time; constant usage is one window."""
    history = UsageHistory()
    for number in range(WINDOWS_MAX + 1):
        history.add(number, {"pods": {"p": {"memory_bytes": number}, "q": {"memory_bytes": 1}}})
    windows = history.pods["p"]
    assert len(windows) == WINDOWS_MAX // 2 + 1
    assert windows[0] == (0, {"memory_bytes": 1})
    assert windows[-1] == (WINDOWS_MAX, {"memory_bytes": WINDOWS_MAX})
    assert len(history.pods["q"]) == 1
    assert history.merged == 1


def test_a_pod_that_never_ran_has_no_profile() -> None:
    """There is nothing to count from."""
    history = UsageHistory()
    history.add(5, {"pods": {"p": {"memory_bytes": 1}}})
    create = Record(time_ns=1, sequence=2)
    create.pod_create.pod.metadata.uid = "p"
    records = list(with_usage([make_header(), create], Survey(), history))
    assert [record.WhichOneof("record") for record in records] == ["header", "pod_create"]
    assert records[1].pod_create.life.usage_id == 0


def test_a_folder_without_frames_is_refused(tmp_path: Path) -> None:
    """There is nothing to make a trace of."""
    with pytest.raises(RecordError, match="has no recorded watches"):
        list(trace_of(RecordingFolder(tmp_path)))


def test_a_node_without_statistics_is_named(tmp_path: Path) -> None:
    """Other nodes are still sampled."""
    listed = scripts()
    nodes = [
        make_object("Node", name, 1, status={"allocatable": {"memory": "8Gi"}})
        for name in ("n", "silent")
    ]
    listed["/api/v1/nodes"] = Script(lists=[Listing(items=nodes, version=5)])
    with ApiServerDouble(listed, answers={SUMMARY: summary()}) as server:
        outcome = recorded(server, tmp_path / "f", usage="kubelet", samples=1)
    assert outcome.notes == ("nodes without recorded usage (1): silent",)
