"""Tests of Alibaba's DLRM trace, and of drafts and rows that it is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.errors import TraceError
from replay.importers.datacenter.dlrm import GPU, RDMA
from replay.importers.records import ImportOptions, PodTemplates, RecordNumbering
from replay.importers.registry import open_trace, recognise
from replay.importers.rows import RecordDrafts, table_rows
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import Marker, PodCreate, Record
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
    assert [(each.at_ns, each.pod_create.pod.metadata.name) for each in pods] == [
        (0, "instance-0"),
        (20 * S, "instance-2"),
        (475 * S, "instance-1"),
    ]


def test_what_an_instance_asks_for_becomes_requests(tmp_path: Path) -> None:
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
    before, censored, ran = (each.pod_create.life for each in _pods(_imported(tmp_path)))
    assert (before.service_time_ns, ran.service_time_ns) == (75 * S, 20.5 * S)
    assert censored.censored
    assert not censored.HasField("service_time_ns")


def test_what_a_replay_cannot_keep_is_counted(tmp_path: Path) -> None:
    """A limit of instances on a node has no counterpart."""
    counted = {each.kind: each.count for each in issues(_imported(tmp_path))}
    assert counted == {"not-simulated": 1, "there-before": 1, "censored": 1}


def test_made_nodes_have_what_instances_ask_for(tmp_path: Path) -> None:
    """Unless another size is asked for."""
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


def test_drafts_come_back_in_order() -> None:
    """Of time, then of rank, then as they were added."""
    times = [(index * 7919) % 101 for index in range(500)]
    with RecordDrafts() as drafts:
        for number, at_ns in enumerate(times):
            drafts.add(Record(at_ns=at_ns, marker=Marker(name=str(number))), rank=number % 2)
        numbering = RecordNumbering()
        found = list(drafts.records(numbering, PodTemplates(numbering)))
    expected = sorted(range(500), key=lambda number: (times[number], number % 2, number))
    assert [int(record.marker.name) for record in found] == expected
    assert [record.sequence for record in found] == list(range(1, 501))


def test_drafts_of_one_shape_share_a_template() -> None:
    """As pods of every importer do."""
    with RecordDrafts() as drafts:
        for name in ("a", "b", "c"):
            pod = Pod()
            pod.metadata.name = name
            drafts.add(Record(at_ns=1, pod_create=PodCreate(pod=pod)))
        numbering = RecordNumbering()
        found = kinds(drafts.records(numbering, PodTemplates(numbering)))
    assert found == ["pod_create", "template", "pod_create", "pod_create"]


def test_rows_of_a_file_without_names_have_as_many_fields_as_columns(tmp_path: Path) -> None:
    """Remarks and empty lines are passed over."""
    file = tmp_path / "a.csv"
    file.write_text("# remark\n\n1,x\n2,\n3\n")
    found = table_rows(file, ("number", "text"))
    first, second = next(found), next(found)
    assert (first.integer("number"), first.text("text"), first.has("other")) == (1, "x", False)
    assert (second.text("text"), second.integer("text")) == ("", None)
    with pytest.raises(TraceError, match=r"a\.csv, line 5: has 1 fields; expected 2"):
        next(found)
