"""Tests of Alibaba's tables of 2017."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.errors import TraceError
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace, recognise
from reprieve.trace.v1beta1.trace_pb2 import PodCreate, Record
from tests.unit.importers.builders import S, issues, kinds, observed

_SERVERS = (
    "0,1,add,,64,0.5,1\n0,2,add,,64,1,1\n100,1,softerror,disk_full,,,\n"
    "150,1,softerror,disk_full,,,\n200,2,harderror,,,,\n"
)
_NAMES = "task_create_time, task_end_time, job_id, task_id,number_of_instances, status, cpus, mem\n"


def _imported(path: Path, **tables: str) -> list[Record]:
    folder = path / "trace"
    folder.mkdir()
    for name, text in tables.items():
        file = folder / f"{name}.csv"
        file.write_text(text)
        assert recognise(file) == "alibaba-2017"
    return list(open_trace([folder], options=ImportOptions(unit_memory_bytes=1 << 40)))


def _creates(records: list[Record]) -> list[tuple[float, PodCreate]]:
    return [(r.time_ns / S, r.pod_create) for r in records if r.HasField("pod_create")]


def test_machines_are_added_cordoned_and_lost(tmp_path: Path) -> None:
    """A soft error cordons for good, once; a hard one takes the machine away."""
    records = _imported(tmp_path, server_event=_SERVERS)
    assert kinds(records)[3:7] == ["create node", "create node", "update node", "delete Node user"]
    node = records[3].create.node
    assert dict(node.status.allocatable) == {
        "cpu": "64000m",
        "memory": str(1 << 39),
        "pods": "1000",
    }
    assert (records[5].time_ns, records[5].update.node.spec.unschedulable) == (100 * S, True)
    assert [(issue.kind, issue.count) for issue in issues(records)] == [("no-recovery", 2)]


def test_a_file_that_is_not_one_of_the_tables_is_left_out_with_a_note(tmp_path: Path) -> None:
    """Where --format says that it is one."""
    servers, other = tmp_path / "servers.csv", tmp_path / "other.csv"
    servers.write_text(_SERVERS)
    other.write_text("20,50,3,4\n")
    records = open_trace([servers, other], format="alibaba-2017")
    (issues_found,) = [issue for issue in issues(list(records)) if issue.kind == "ignored-file"]
    assert issues_found.where.startswith(str(other))


def test_instances_of_a_task_are_pods_of_its_length(tmp_path: Path) -> None:
    """Without batch_instance, with or without a line of names; cores are hundredths."""
    text = _NAMES + "20,50,3,4,2,Terminated,50,0.0625\n10,15,3,5,1,Failed,100,0.125\n"
    creates = _creates(_imported(tmp_path, batch_task=text))
    assert [(at, create.pod.metadata.name) for at, create in creates] == [
        (10, "batch-3-5-0"),
        (20, "batch-3-4-0"),
        (20, "batch-3-4-1"),
    ]
    assert [create.life.service_duration_ns // S for _, create in creates] == [5, 30, 30]
    assert [create.life.fails for _, create in creates] == [True, False, False]
    requests = creates[1][1].pod.spec.containers[0].resources.requests
    assert dict(requests) == {"cpu": "500m", "memory": str(1 << 36)}
    assert creates[1][1].pod.metadata.uid != creates[2][1].pod.metadata.uid


def test_tasks_that_have_no_whole_life_are_counted(tmp_path: Path) -> None:
    """Waiting, running, before the start, the wrong way round, without requests."""
    text = (
        "5,0,1,1,1,Waiting,50,0.1\n5,9,1,2,1,Running,50,0.1\n-8,4,1,3,1,Terminated,50,0.1\n"
        "9,5,1,4,1,Terminated,50,0.1\n5,9,1,5,3,Terminated,,\n"
    )
    records = _imported(tmp_path, batch_task=text)
    lives = {record.pod.metadata.name: record.life for _, record in _creates(records)}
    assert lives["batch-1-3-0"].service_duration_ns == 4 * S
    assert lives["batch-1-4-0"].service_duration_ns == 0
    assert lives["batch-1-1-0"].censored
    assert {issue.kind: issue.count for issue in issues(records)} == {
        "task-time": 7,
        "never-ran": 1,
        "censored": 1,
        "there-before": 1,
        "negative-time": 1,
        "no-request": 3,
    }


def test_runs_of_instances_have_their_own_times(tmp_path: Path) -> None:
    """They come when their task does, with its requests; machines are observed."""
    records = _imported(
        tmp_path,
        batch_task="20,80,3,4,2,Terminated,50,0.5\n",
        batch_instance="30,45,3,4,7,Terminated,1,1,1,1,1,1\n50,60,9,9,8,Failed,1,2,,,,\n",
    )
    (first_at, first), (second_at, second) = _creates(records)
    assert (first_at, first.life.service_duration_ns) == (20, 15 * S)
    assert first.pod.spec.containers[0].resources.requests["cpu"] == "500m"
    assert (second_at, second.life.fails) == (50, True)
    nodes = [entry.scheduled.node_name for entry in observed(records, "scheduled")]
    assert nodes == ["machine-7", "machine-8"]
    assert [issue.kind for issue in issues(records)] == ["unknown-task"]


def test_online_containers_are_above_batch(tmp_path: Path) -> None:
    """On their machine where they were there at the start; they never end."""
    records = _imported(
        tmp_path,
        server_event=_SERVERS,
        container_event='0,Create,11,1,4,0.125,0.1,"1|2"\n60,Create,12,2,4,0.125,0.1,"3"\n',
        batch_task="20,80,3,4,1,Terminated,50,0.5\n",
    )
    pods = {record.pod.metadata.name: record for _, record in _creates(records)}
    assert pods["online-11"].pod.spec.node_name == "machine-1"
    assert not pods["online-12"].pod.spec.node_name
    assert pods["online-11"].life.censored
    assert pods["online-11"].pod.spec.priority > pods["batch-3-4-0"].pod.spec.priority
    assert observed(records, "scheduled")[0].object.name == "online-12"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("x,9,1,1,1,Terminated,50,0.1\n", "line 2: create: 'x' is not a number"),
        (",9,1,1,1,Terminated,50,0.1\n", "line 2: create is missing"),
        ("1,9,1,1,1,Terminated\n", "line 2: has 6 fields; expected 8"),
    ],
)
def test_a_broken_row_is_refused_with_its_line(tmp_path: Path, row: str, problem: str) -> None:
    """And with its column."""
    with pytest.raises(TraceError, match=problem):
        _imported(tmp_path, batch_task="5,9,1,1,1,Terminated,50,0.1\n" + row)
