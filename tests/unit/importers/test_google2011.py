"""Tests of Google's tables of 2011."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from replay.errors import TraceError
from replay.importers.datacenter.borg_pods import WINDOWS_MAX, Task, add_usage
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace, recognise
from replay.trace.reader import OrderCheck
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import PodCreate, Record
from tests.unit.importers.builders import S, issues, kinds, observed

_US = 1_000_000
_SUBMIT, _SCHEDULE, _EVICT, _FAIL, _FINISH, _KILL, _LOST, _UPDATE = 0, 1, 2, 3, 4, 5, 6, 8
_MACHINES = "0,5,0,platform,0.5,0.25\n0,6,0,platform,1,1\n"


def _task(
    at_s: float, change: int, machine: str = "", index: int = 0, priority: int = 9, **more: str
) -> str:
    requests = more.get("requests", "0.125,0.0625,0.001")
    apart, missing = more.get("apart", "0"), more.get("missing", "")
    return (
        f"{int(at_s * _US)},{missing},77,{index},{machine},{change},user,3,{priority},"
        f"{requests},{apart}\n"
    )


def _imported(path: Path, *tasks: str, **tables: str) -> list[Record]:
    """Import a folder of tables; the tasks' rows are put into order, and into two shards."""
    tasks = tuple(sorted(tasks, key=lambda row: int(row.partition(",")[0])))
    folder = path / "trace"
    folder.mkdir(exist_ok=True)
    for name, text in {"machine_events": _MACHINES, **tables}.items():
        if isinstance(text, str):
            (folder / f"{name}.csv").write_text(text)
    half = len(tasks) // 2
    for number, shard in enumerate((tasks[:half], tasks[half:])):
        if shard:
            name = f"task_events-0000{number}.csv.gz"
            (folder / name).write_bytes(gzip.compress("".join(shard).encode()))
    records = list(open_trace([folder], options=ImportOptions(unit_cpu_milli=64_000)))
    check = OrderCheck()
    assert not [problem for record in records if (problem := check.problem(record))]
    return records


def _creates(records: list[Record]) -> list[tuple[float, PodCreate]]:
    return [(r.time_ns / S, r.pod_create) for r in records if r.HasField("pod_create")]


def _only(records: list[Record]) -> PodCreate:
    ((_, create),) = _creates(records)
    return create


def test_machines_become_nodes_of_their_share(tmp_path: Path) -> None:
    """1.0 stands for 64 cores and 256 GiB; an update keeps what it does not tell."""
    machines = _MACHINES + f"{700 * _US},5,2,platform,0.75,\n{800 * _US},6,1,platform,,\n"
    records = _imported(tmp_path, machine_events=machines)
    assert kinds(records) == ["header"] + ["create node"] * 2 + ["update node", "delete Node user"]
    first, second = records[1].create.node, records[2].create.node
    assert first.metadata.name == "machine-5"
    assert dict(first.status.allocatable) == {
        "cpu": "32000m",
        "memory": str(64 << 30),
        "pods": "1000",
    }
    assert second.status.capacity["cpu"] == "64000m"
    changed = records[3].update.node
    assert changed.status.allocatable["cpu"] == "48000m"
    assert changed.status.allocatable["memory"] == str(64 << 30)
    assert records[4].time_ns == 800 * S


def test_more_than_its_capacity_can_be_admitted(tmp_path: Path) -> None:
    """Borg does; a scheduler of Kubernetes looks at allocatable."""
    file = tmp_path / "machine_events.csv"
    file.write_text(_MACHINES)
    records = list(open_trace([file], options=ImportOptions(allocatable_percent=150)))
    status = records[1].create.node.status
    assert (status.capacity["cpu"], status.allocatable["cpu"]) == ("32000m", "48000m")


def test_a_task_is_a_pod_that_runs_as_long_as_all_its_runs(tmp_path: Path) -> None:
    """It was evicted after 30 s, submitted again, and finished after 70 s more."""
    records = _imported(
        tmp_path,
        _task(601, _SUBMIT),
        _task(602, _SCHEDULE, "5"),
        _task(632, _EVICT, "5"),
        _task(633, _SUBMIT),
        _task(640, _SCHEDULE, "6"),
        _task(710, _FINISH, "6"),
    )
    ((at_s, create),) = _creates(records)
    assert (at_s, create.pod.metadata.name) == (601, "77-0-601000000")
    assert (create.life.service_duration_ns, create.life.censored) == (100 * S, False)
    assert (create.pod.spec.priority, create.pod.spec.priority_class_name) == (9, "borg-9")
    requests = create.pod.spec.containers[0].resources.requests
    assert dict(requests) == {"cpu": "8000m", "memory": str(16 << 30)}
    assert [entry.scheduled.node_name for entry in observed(records, "scheduled")] == [
        "machine-5",
        "machine-6",
    ]
    assert records[0].header.window_end_time_ns == 710 * S
    assert "create priority_class" in kinds(records)


def test_how_a_task_ended_is_how_its_pod_lives(tmp_path: Path) -> None:
    """Killed: deleted by its user. Failed: fails. Lost, and alive at the end."""
    started = [
        part
        for index in range(4)
        for part in (_task(601, _SUBMIT, index=index), _task(602, _SCHEDULE, "6", index=index))
    ]
    records = _imported(
        tmp_path,
        *started,
        _task(610, _KILL, "6", index=0),
        _task(620, _FAIL, "6", index=1),
        _task(630, _LOST, "6", index=2),
        _task(640, _UPDATE, "6", index=3),
    )
    killed, failed, lost, alive = (create.life for _, create in _creates(records))
    assert (killed.censored, killed.service_duration_ns) == (True, 8 * S)
    assert (failed.fails, failed.service_duration_ns) == (True, 18 * S)
    assert (lost.censored, lost.service_duration_ns) == (False, 28 * S)
    assert (alive.censored, alive.service_duration_ns) == (True, 38 * S)
    deletes = [(r.time_ns / S, r.delete.object.name) for r in records if r.HasField("delete")]
    assert deletes == [(610, "77-0-601000000")]
    assert {issue.kind for issue in issues(records)} == {"lost", "censored", "not-simulated"}


def test_a_task_that_ran_before_exists_on_its_machine(tmp_path: Path) -> None:
    """Time 0 is before the window."""
    create = _only(
        _imported(tmp_path, _task(0, _SUBMIT), _task(0, _SCHEDULE, "5"), _task(650, _FINISH, "5"))
    )
    assert create.pod.metadata.name == "77-0"
    assert create.pod.spec.node_name == "machine-5"
    assert create.pod.status.phase == "Running"
    assert create.pod.status.HasField("start_time")
    assert create.life.service_duration_ns == 650 * S


def test_a_tasks_eviction_is_explained_by_what_happened_beside_it(tmp_path: Path) -> None:
    """Another took its place, its machine went, or neither."""
    started = [
        part
        for index in range(3)
        for part in (
            _task(601, _SUBMIT, index=index, priority=0),
            _task(602, _SCHEDULE, "6" if index == 1 else "5", index=index, priority=0),
        )
    ]
    records = _imported(
        tmp_path,
        *started,
        _task(609, _SUBMIT, index=9),
        _task(610, _EVICT, "5", index=0, priority=0),
        _task(610, _SCHEDULE, "5", index=9),
        _task(698, _EVICT, "6", index=1, priority=0),
        _task(750, _EVICT, "5", index=2, priority=0),
        machine_events=_MACHINES + f"{700 * _US},6,1,platform,,\n",
    )
    (preempted,) = observed(records, "preempted")
    assert preempted.object.name.startswith("77-0-")
    assert preempted.preempted.by.name.startswith("77-9-")
    (lost,) = observed(records, "removed")
    assert (lost.object.name, lost.removed.cause) == ("77-1-601000000", "node-lost")
    (evicted,) = observed(records, "evicted")
    assert evicted.object.name == "77-2-601000000"
    assert [kind for kind in kinds(records) if kind.startswith("delete")] == ["delete Node user"]


def test_a_task_that_is_resubmitted_much_later_is_another_pod(tmp_path: Path) -> None:
    """Ids are used again; within an hour it is the same one."""
    records = _imported(
        tmp_path,
        _task(601, _SUBMIT),
        _task(602, _SCHEDULE, "5"),
        _task(612, _FAIL, "5"),
        _task(9000, _SUBMIT),
        _task(9001, _SCHEDULE, "5"),
        _task(9002, _FINISH, "5"),
    )
    lives = [(record.pod.metadata.name, record.life.fails) for _, record in _creates(records)]
    assert lives == [("77-0-601000000", True), ("77-0-9000000000", False)]


def test_constraints_become_an_affinity_to_labels_of_machines(tmp_path: Path) -> None:
    """Attributes are labels; an empty value stands for a missing attribute."""
    attributes = f"0,5,kernel,3,0\n0,5,gpu,a/b=,0\n{605 * _US},5,gpu,,1\n"
    constraints = "".join(
        f"{601 * _US},77,0,{operator},{name},{value}\n"
        for operator, name, value in ((3, "kernel", "2"), (0, "gpu", "a/b="), (1, "disk", ""))
    )
    records = _imported(
        tmp_path, _task(601, _SUBMIT), machine_attributes=attributes, task_constraints=constraints
    )
    node = next(r.create.node for r in records if r.create.HasField("node"))
    later = next(r.update.node for r in records if r.update.HasField("node"))
    affinity = _only(records).pod.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution
    kernel, gpu, disk = required.node_selector_terms[0].match_expressions
    assert (kernel.operator, list(kernel.values)) == ("Gt", ["2"])
    assert node.metadata.labels[kernel.key] == "3"
    assert (gpu.operator, node.metadata.labels[gpu.key]) == ("In", gpu.values[0])
    assert gpu.key not in later.metadata.labels
    assert disk.operator == "Exists"


def test_tasks_that_want_machines_of_their_own_are_kept_apart(tmp_path: Path) -> None:
    """By an anti-affinity within the job."""
    affinity = _only(_imported(tmp_path, _task(601, _SUBMIT, apart="1"))).pod.spec.affinity
    term = affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution[0]
    assert term.topology_key == "kubernetes.io/hostname"
    assert dict(term.label_selector.match_labels) == {"borg/collection": "77"}


def test_usage_counts_from_the_start_of_the_run(tmp_path: Path) -> None:
    """Over all runs; the first window begins with the pod."""
    rest = "," * 13
    usage = "".join(
        f"{at * _US},{(at + 10) * _US},77,0,5,0.0625,{memory}{rest}\n"
        for at, memory in ((605, "0.03125"), (615, "0.0625"), (650, "0.125"), (900, "1"))
    )
    records = _imported(
        tmp_path,
        _task(601, _SUBMIT),
        _task(602, _SCHEDULE, "5"),
        _task(622, _EVICT, "5"),
        _task(630, _SUBMIT),
        _task(640, _SCHEDULE, "6"),
        _task(700, _FINISH, "6"),
        task_usage=usage,
    )
    profile = next(record.usage for record in records if record.HasField("usage"))
    assert _only(records).life.usage_id == profile.id
    assert [(s.offset_duration_ns / S, (s.memory_bytes or 0) >> 30) for s in profile.segments] == [
        (0, 8),
        (13, 16),
        (30, 32),
    ]
    assert {s.cpu_milli for s in profile.segments} == {4000}
    assert [(issue.kind, issue.count) for issue in issues(records)] == [("unknown-task", 1)]


def test_usage_of_a_long_run_stays_bounded() -> None:
    """Neighbours are put together, and the larger value kept."""
    from decimal import Decimal  # noqa: PLC0415 - of this test alone

    from replay.importers.datacenter.borg_events import TaskChange, TaskEvent, TaskUsageEvent  # noqa: PLC0415

    submit = TaskEvent(at_us=0, where="", key=(1, 0), change=TaskChange.SUBMIT)
    task = Task(submit=submit, running_us=0)
    for number in range(4 * WINDOWS_MAX):
        memory = Decimal(number)
        event = TaskUsageEvent(at_us=number * 300, where="", key=(1, 0), cpu=None, memory=memory)
        add_usage(task, event)
    assert len(task.usage) <= WINDOWS_MAX
    assert task.usage[0][0] == 0
    assert max(memory or 0 for _, _, memory in task.usage) == 4 * WINDOWS_MAX - 1


def test_what_was_repaired_or_dropped_is_counted(tmp_path: Path) -> None:
    """Times after the window, ends of nothing, starts without a SUBMIT, missing requests."""
    records = _imported(
        tmp_path,
        _task(601, _SCHEDULE, "5", index=0),
        _task(602, _FINISH, "5", index=1),
        _task(603, _SUBMIT, index=2, requests=",,", missing="2"),
        _task(604, _SUBMIT, index=2),
        f"{2**63 - 1},,77,0,5,4,user,3,9,,,,\n",
        f"{2**64 - 1},,77,2,5,4,user,3,9,,,,\n",
        machine_events=_MACHINES + f"{9 * _US},7,0,platform,,\n{10 * _US},8,1,platform,,\n",
        job_events="0,,77,0,user,3,name,logical\n",
    )
    assert {issue.kind: issue.count for issue in issues(records)} == {
        "ignored-file": 1,
        "no-capacity": 1,
        "unknown-machine": 1,
        "no-submit": 1,
        "unknown-task": 1,
        "missing-info": 1,
        "no-request": 1,
        "duplicate-submit": 1,
        "after-window": 2,
        "censored": 2,
    }


def test_rows_out_of_order_are_named(tmp_path: Path) -> None:
    """They are read as they come; what is made of them is sorted."""
    file = tmp_path / "task_events.csv"
    file.write_text(_task(700, _SUBMIT, index=1) + _task(601, _SUBMIT, index=2))
    records = list(open_trace([file]))
    assert [at_s for at_s, _ in _creates(records)] == [601, 700]
    assert "out-of-order" in {issue.kind for issue in issues(records)}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("x" + _task(1, _SUBMIT)[1:], "time: 'x000000' is not a number"),
        (_task(1, 9), "change: 9 is not a number from 0 to 8"),
        (_task(1, _SUBMIT, requests="a,b,c"), "cpu: 'a' is not a number"),
        ("1,2,3\n", "has 3 fields; expected 13"),
    ],
)
def test_a_broken_row_is_refused_with_its_line(tmp_path: Path, row: str, problem: str) -> None:
    """The second row, of a file that begins well."""
    file = tmp_path / "task_events.csv"
    file.write_text(_task(0, _SUBMIT) + row)
    with pytest.raises(TraceError, match=f"line 2: {problem}"):
        list(open_trace([file]))


@pytest.mark.parametrize(
    ("row", "is_known"),
    [
        ("0,5,0,HofLGzk=,0.5,0.2493", True),
        ("0,3418309,0,1,kernel,2", True),
        ("0,5,kernel,3,0", True),
        ("6459,6524,3,4,15740,Terminated,50,0.0079", False),
        ("0,1148,add,,64,0.69,1", False),
    ],
)
def test_tables_are_detected_by_their_columns(tmp_path: Path, row: str, is_known: bool) -> None:
    """Other traces have as many."""
    file = tmp_path / "a.csv"
    file.write_text(row + "\n")
    assert (recognise(file) == "google-2011") is is_known


def test_pods_of_one_job_share_a_template(tmp_path: Path) -> None:
    """Names apart, tasks of a job are alike."""
    records = _imported(tmp_path, *(_task(601, _SUBMIT, index=index) for index in range(5)))
    assert kinds(records).count("template") == 1
    assert isinstance(_creates(records)[0][1].pod, Pod)
