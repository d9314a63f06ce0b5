"""Tests of OpenB's lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.errors import TraceError
from replay.importers.datacenter.openb import GPU_COUNT, GPU_MILLI, GPU_MODEL
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.unit.importers.builders import S, deletes, issues, kinds

_NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,393216,0,\n"
_HEAD = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
_PODS = _HEAD + (
    "p0,12000,16384,2,1000,P100|T4,LS,Running,5,105,25\n"
    "p1,6000,0,0,0,,BE,Pending,0,94,\n"
    "p2,6000,1024,1,460,,Burstable,Failed,7,12902960,8\n"
)


def _imported(path: Path, pods: str = _PODS, **options: bool) -> list[Record]:
    (path / "nodes.csv").write_text(_NODES)
    (path / "pods.csv").write_text(pods)
    return list(open_trace([path], options=ImportOptions(**options)))  # type: ignore[arg-type]  # flags only


def _pods(records: list[Record]) -> list[Record]:
    return [record for record in records if record.HasField("pod_create")]


def test_all_pods_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    """By default: with its own times the data set never fills its nodes."""
    pods = _pods(_imported(tmp_path))
    assert [pod.pod_create.pod.metadata.name for pod in pods] == ["p0", "p1", "p2"]
    assert all(pod.time_ns == 0 and not pod.pod_create.HasField("life") for pod in pods)


def test_times_are_kept_where_they_are_asked_for(tmp_path: Path) -> None:
    """Service time is from scheduled to deleted; the snapshot's time censors it."""
    pods = _pods(records := _imported(tmp_path, openb_timed=True))
    assert [pod.time_ns // S for pod in pods] == [0, 5, 7]
    never, ran, censored = (pod.pod_create.life for pod in pods)
    assert not never.HasField("service_duration_ns")
    assert ran.service_duration_ns == 80 * S
    assert not ran.censored
    assert censored.censored
    assert censored.fails
    assert {issue.kind for issue in issues(records)} == {"never-ran", "no-request"}


def test_a_pod_that_never_ran_is_deleted_when_its_user_deleted_it(tmp_path: Path) -> None:
    """It would else run for ever once a replay has room for it."""
    found = list(deletes(records := _imported(tmp_path, openb_timed=True)))
    assert [(entry.object.name, entry.cause) for entry in found] == [("p1", "user")]
    assert [record.time_ns for record in records if record.HasField("delete")] == [94 * S]
    assert not deletes(_imported(tmp_path))


def test_a_pod_that_still_waited_at_the_snapshot_is_left_to_wait(tmp_path: Path) -> None:
    """Nobody had deleted it by then."""
    waiting = _HEAD + "p,6000,1024,0,0,,BE,Pending,0,12902960,\n"
    assert not deletes(_imported(tmp_path, waiting, openb_timed=True))


def test_pods_can_be_jobs_which_make_them_again(tmp_path: Path) -> None:
    """A pod runs as long as its own did; only its own failure is the Job's."""
    records = _imported(tmp_path, openb_timed=True, openb_jobs=True)
    assert not _pods(records)
    never, ran, censored = (r.create.job for r in records if r.create.HasField("job"))
    notes = ran.spec.template.metadata.annotations
    assert notes["reprieve/service-time"] == "80s"
    assert notes["reprieve/exit-code"] == "0"
    assert ran.spec.template.spec.priority_class_name == "ls"
    assert ran.spec.backoff_limit == 0
    assert [rule.action for rule in ran.spec.pod_failure_policy.rules] == ["Ignore"]
    assert not never.spec.template.metadata.annotations
    assert not censored.spec.template.metadata.annotations
    assert [(delete.object.kind, delete.object.name) for delete in deletes(records)] == [
        ("Job", "p1")
    ]


def test_machines_of_one_shape_have_one_instance_type(tmp_path: Path) -> None:
    """So that a label selector chooses them."""
    records = _imported(tmp_path)
    nodes = [record.create.node for record in records if record.create.HasField("node")]
    assert [node.metadata.labels["node.kubernetes.io/instance-type"] for node in nodes] == [
        "64cpu-256gi-2xp100",
        "96cpu-384gi",
    ]


def test_gpus_are_extended_resources_and_models_an_affinity(tmp_path: Path) -> None:
    """As the data set's own manifests have them."""
    records = _imported(tmp_path)
    nodes = [record.create.node for record in records if record.create.HasField("node")]
    assert nodes[0].status.allocatable[GPU_MILLI] == "2000"
    assert nodes[0].metadata.labels[GPU_MODEL] == "P100"
    assert GPU_COUNT not in nodes[1].status.allocatable
    spec = _pods(records)[0].pod_create.pod.spec
    assert spec.containers[0].resources.requests[GPU_COUNT] == "2"
    assert spec.containers[0].resources.requests[GPU_MILLI] == "2000"
    required = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert list(required.node_selector_terms[0].match_expressions[0].values) == ["P100", "T4"]


def test_gpus_can_be_left_out(tmp_path: Path) -> None:
    """For comparisons of cores and memory alone."""
    spec = _pods(_imported(tmp_path, openb_gpu=False))[0].pod_create.pod.spec
    assert set(spec.containers[0].resources.requests) == {"cpu", "memory"}
    assert not spec.HasField("affinity")


def test_a_quality_of_service_becomes_a_class_and_its_priority(tmp_path: Path) -> None:
    """The data set has no integer priorities."""
    records = _imported(tmp_path)
    classes = [
        record.create.priority_class
        for record in records
        if record.create.HasField("priority_class")
    ]
    assert {class_.metadata.name: class_.value for class_ in classes} == {
        "be": 0,
        "burstable": 100,
        "ls": 1000,
    }
    assert kinds(records).index("create priority_class") < kinds(records).index("pod_create")
    assert [pod.pod_create.pod.spec.priority for pod in _pods(records)] == [1000, 0, 100]


def test_the_short_lists_have_no_times(tmp_path: Path) -> None:
    """Those of several GPUs have five columns."""
    short = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,2,0,0\n"
    assert len(_pods(_imported(tmp_path, short))) == 1
    with pytest.raises(TraceError, match="creation_time is missing"):
        _imported(tmp_path, short, openb_timed=True)


def test_a_broken_number_is_refused_with_its_line(tmp_path: Path) -> None:
    """And with its column."""
    with pytest.raises(TraceError, match=r"pods\.csv, line 2: cpu_milli: 'x'"):
        _imported(tmp_path, _HEAD + "p,x,1,0,0,,LS,Running,0,1,0\n")
