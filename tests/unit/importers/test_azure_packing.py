"""Tests of Azure's packing trace."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from replay.errors import TraceError
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace, recognise
from reprieve.trace.v1beta1.trace_pb2 import PodCreate, Record
from tests.unit.importers.builders import S, issues, kinds

_DAY = 86_400 * S
_Row = tuple[object, ...]
_TYPES: Sequence[_Row] = (
    (1, "small", 16, 0.0333333333, 0.025, None, 0.01, 0.1),
    (2, "small", 17, 0.05, 0.05, None, 0.01, 0.1),
    (3, "large", 16, 0.5, 0.5, 0.25, 0, 0.5),
    (4, "huge", 17, 1.0, 1.0, 1.0, 1.0, 1.0),
)
_VMS: Sequence[_Row] = (
    (3, 7, "large", 0, 0.5, 1.75),
    (2, 7, "small", 1, 0.25, 0.5),
    (1, 8, "small", 0, -3.5, 2.0),
    (4, 9, "large", 0, 1.0, None),
    (5, 9, "huge", 0, 1.0, 2.0),
)


def _database(path: Path, vms: Sequence[_Row] = _VMS, types: Sequence[_Row] = _TYPES) -> Path:
    file = path / "packing.sqlite"
    file.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as database:
        database.execute(
            "CREATE TABLE vmType (id INTEGER PRIMARY KEY, vmTypeId, machineId INTEGER, "
            "core REAL, memory REAL, hdd REAL, ssd REAL, nic REAL)"
        )
        database.execute(
            "CREATE TABLE vm (vmId INTEGER PRIMARY KEY, tenantId, vmTypeId, priority INTEGER, "
            "starttime REAL, endtime REAL)"
        )
        database.executemany("INSERT INTO vmType VALUES (?,?,?,?,?,?,?,?)", types)
        database.executemany("INSERT INTO vm VALUES (?,?,?,?,?,?)", vms)
        database.commit()
    assert recognise(file) == "azure-packing"
    return file


def _imported(path: Path, vms: Sequence[_Row] = _VMS, **options: object) -> list[Record]:
    chosen = ImportOptions(machine="16", **options)  # type: ignore[arg-type]  # a test's few options
    return list(open_trace([_database(path, vms)], options=chosen))


def _creates(records: list[Record]) -> list[tuple[int, PodCreate]]:
    return [(r.time_ns, r.pod_create) for r in records if r.HasField("pod_create")]


def test_machines_come_in_the_order_of_their_starts(tmp_path: Path) -> None:
    """Days become ns; what was there before comes at the start."""
    creates = _creates(_imported(tmp_path))
    assert [(at / _DAY, create.pod.metadata.name) for at, create in creates] == [
        (0, "vm-1"),
        (0.25, "vm-2"),
        (0.5, "vm-3"),
        (1, "vm-4"),
    ]
    lives = [create.life for _, create in creates]
    assert [life.service_duration_ns / _DAY for life in lives] == [2, 0.25, 1.25, 0]
    assert [life.censored for life in lives] == [False, True, False, True]


def test_priority_zero_is_the_high_one(tmp_path: Path) -> None:
    """In Kubernetes larger values are higher."""
    records = _imported(tmp_path)
    assert kinds(records)[:3] == ["header", "create priority_class", "create priority_class"]
    creates = {
        create.pod.metadata.name: (create.pod.spec.priority_class_name, create.pod.spec.priority)
        for _, create in _creates(records)
    }
    assert creates["vm-1"] == ("high", 1000)
    assert creates["vm-2"] == ("low", 0)


def test_sizes_are_parts_of_the_chosen_machine(tmp_path: Path) -> None:
    """Rounded up to a millionth; what is absent or zero is not requested."""
    small, large = (
        dict(create.pod.spec.containers[0].resources.requests)
        for _, create in _creates(_imported(tmp_path))[1:3]
    )
    assert small == {
        "cpu": "33334m",
        "memory": "25000Mi",
        "packing.azure.com/ssd": "10000",
        "packing.azure.com/nic": "100000",
    }
    assert large["packing.azure.com/hdd"] == "250000"
    assert "packing.azure.com/ssd" not in large


def test_made_nodes_have_all_parts_of_a_machine(tmp_path: Path) -> None:
    """The trace has no nodes."""
    records = _imported(tmp_path, made_nodes=1)
    node = next(record.create.node for record in records if record.create.HasField("node"))
    assert node.status.allocatable["cpu"] == "1000000m"
    assert node.status.allocatable["packing.azure.com/nic"] == "1000000"


def test_what_is_dropped_or_guessed_is_counted(tmp_path: Path) -> None:
    """A type that the machine does not hold, early starts, open ends, low priorities."""
    reversed_ = (6, 9, "small", 0, 2.0, 1.0)
    counted = {issue.kind: 0 for issue in issues(_imported(tmp_path, (*_VMS, reversed_)))}
    for issue in issues(_imported(tmp_path, (*_VMS, reversed_))):
        counted[issue.kind] += issue.count
    assert counted == {"no-size": 1, "there-before": 1, "censored": 2, "negative-time": 1}


def test_a_machine_must_be_chosen_where_there_are_several(tmp_path: Path) -> None:
    """The refusal lists them, with how many types each can hold."""
    file = _database(tmp_path)
    with pytest.raises(TraceError, match=r"--machine: 16 \(2 types\), 17 \(2 types\)"):
        list(open_trace([file]))
    with pytest.raises(TraceError, match="no machineId '18'"):
        list(open_trace([file], options=ImportOptions(machine="18")))
    only = _database(tmp_path, types=_TYPES[:1])
    assert kinds(open_trace([only]))[-1] == "issue no-size"


@pytest.mark.parametrize(
    ("vm", "problem"),
    [
        ((1, 1, "small", 2, 0.0, 1.0), "vm 1: priority: 2 is neither"),
        ((1, 1, "small", 0, None, 1.0), "vm 1: starttime is missing"),
        ((1, 1, "small", 0, 0.0, 1e300), "vm 1: endtime: 1e\\+300 is not a number of days"),
        ((1, 1, "small", 0, "soon", 1.0), "vm 1: starttime: 'soon'"),
    ],
)
def test_a_broken_row_is_refused(tmp_path: Path, vm: _Row, problem: str) -> None:
    """With its vmId."""
    with pytest.raises(TraceError, match=problem):
        _imported(tmp_path, (vm,))


def test_a_database_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    """Nothing is read of it in part."""
    file = _database(tmp_path)
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(TraceError, match="cannot be read as the trace's database"):
        list(open_trace([file], options=ImportOptions(machine="16")))
