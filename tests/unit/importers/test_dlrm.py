"""Tests of Alibaba's DLRM trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.errors import TraceError
from replay.importers.datacenter.dlrm import GPU, RDMA
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace, recognise
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.unit.importers.builders import S, issues, kinds

_HEAD = (
    "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,"
    "rdma_limit,memory_request,memory_limit,disk_request,disk_limit,max_instance_per_node,"
    "creation_time,scheduled_time,deletion_time\n"
)
_ROWS = (
    "instance_0,HN,app_0,12,12,1,1,25,25,120.0,120.0,680.0,800.5,8,,,75.0\n"
    "instance_1,CN,app_1,0.5,1,0,0,1,1,40,40,80,100,-1,475.00000000000006,480.0,500.5\n"
    "instance_2,CN,app_1,64,64,0,0,1,1,320,320,85,100,-1,20.0,21.0,\n"
)


def _imported(path: Path, text: str = _HEAD + _ROWS, **options: int) -> list[Record]:
    file = path / "dlrm.csv"
    file.write_text(text)
    assert recognise(file) == "dlrm"
    return list(open_trace([file], options=ImportOptions(**options)))  # type: ignore[arg-type]  # numbers only


def _pods(records: list[Record]) -> list[Record]:
    return [record for record in records if record.HasField("pod_create")]


def test_instances_come_in_order_of_time(tmp_path: Path) -> None:
    """Those that were there before come at the start."""
    pods = _pods(_imported(tmp_path))
    assert [(pod.time_ns, pod.pod_create.pod.metadata.name) for pod in pods] == [
        (0, "instance-0"),
        (20 * S, "instance-2"),
        (475 * S, "instance-1"),
    ]


def test_resources_of_an_instance_become_requests(tmp_path: Path) -> None:
    """GPUs and RDMA are extended resources, disk is ephemeral storage."""
    pod = _pods(_imported(tmp_path))[0].pod_create.pod
    resources = pod.spec.containers[0].resources
    assert dict(resources.requests) == {
        "cpu": "12000m",
        "memory": "122880Mi",
        "ephemeral-storage": "696320Mi",
        GPU: "1",
        RDMA: "25",
    }
    assert resources.limits["ephemeral-storage"] == "819712Mi"
    assert dict(pod.metadata.labels) == {"app": "app_0", "role": "HN"}


def test_an_instance_lives_from_scheduled_to_deleted(tmp_path: Path) -> None:
    """From the start where it was there before; without an end it is censored."""
    before, censored, ran = (pod.pod_create.life for pod in _pods(_imported(tmp_path)))
    assert (before.service_duration_ns, ran.service_duration_ns) == (75 * S, 20.5 * S)
    assert censored.censored
    assert not censored.HasField("service_duration_ns")


def test_what_a_replay_cannot_keep_is_counted(tmp_path: Path) -> None:
    """A limit of instances on a node has no counterpart."""
    counted = {issue.kind: issue.count for issue in issues(_imported(tmp_path))}
    assert counted == {"not-simulated": 1, "there-before": 1, "censored": 1}


def test_made_nodes_have_the_resources_that_instances_request(tmp_path: Path) -> None:
    """Unless another size is requested."""
    records = _imported(tmp_path, made_nodes=1)
    assert kinds(records)[:2] == ["header", "create node"]
    allocatable = records[1].create.node.status.allocatable
    assert (allocatable[GPU], allocatable[RDMA], allocatable["cpu"]) == ("8", "100", "64000m")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("i,HN,a,x,1,0,0,1,1,1,1,1,1,-1,,,\n", "line 2: cpu_request: 'x' is not a number"),
        ("i,HN,a,1,1,0.5,0,1,1,1,1,1,1,-1,,,\n", "line 2: gpu_request: '0.5'"),
        (",HN,a,1,1,0,0,1,1,1,1,1,1,-1,,,\n", "line 2: instance_sn is missing"),
        ("i,HN,a,1,1,0,0,1,1,1,1,1,1,-1,-5,,\n", "line 2: creation_time: -5 is before"),
    ],
)
def test_a_broken_row_is_refused_with_its_line(tmp_path: Path, row: str, problem: str) -> None:
    """And with its column."""
    with pytest.raises(TraceError, match=problem):
        _imported(tmp_path, _HEAD + row)
