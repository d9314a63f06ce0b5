"""Tests of Google's tables of 2019."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from replay.errors import TraceError
from replay.importers.registry import open_trace, recognise
from replay.trace.reader import OrderCheck
from reprieve.trace.v1beta1.trace_pb2 import PodCreate, Record
from tests.unit.importers.builders import S, issues, kinds, observed

_US = 1_000_000
_SUBMIT, _QUEUE, _ENABLE, _SCHEDULE, _EVICT, _FAIL, _FINISH, _KILL = range(8)
Raw = dict[str, Any]


def _machine(machine: int, cpus: float = 0.5) -> Raw:
    return {
        "time": "0",
        "machine_id": str(machine),
        "type": 1,
        "switch_id": "s",
        "capacity": {"cpus": cpus, "memory": 0.25},
        "platform_id": "p",
    }


def _instance(at_s: float, change: object, index: int = 0, **more: Any) -> Raw:
    return {
        "time": str(int(at_s * _US)),
        "type": change,
        "collection_id": "380608800000",
        "scheduling_class": 2,
        "collection_type": 0,
        "priority": 200,
        "alloc_collection_id": "0",
        "instance_index": index,
        "machine_id": "0",
        "resource_request": {"cpus": 0.125, "memory": 0.0625},
        "constraint": [],
        **more,
    }


def _imported(path: Path, *lines: Raw) -> list[Record]:
    file = path / "cell.json"
    file.write_bytes(b"\n".join(orjson.dumps(line) for line in (_machine(5), *lines)))
    assert recognise(file) == "google-2019"
    records = list(open_trace([file]))
    check = OrderCheck()
    assert not [problem for record in records if (problem := check.problem(record))]
    return records


def _creates(records: list[Record]) -> list[PodCreate]:
    return [record.pod_create for record in records if record.HasField("pod_create")]


def test_lines_in_no_order_are_put_into_order(tmp_path: Path) -> None:
    """An export of BigQuery has none; 64-bit numbers are texts, enums numbers or names."""
    records = _imported(
        tmp_path,
        _instance(700, "FINISH"),
        _instance(602, _SCHEDULE, machine_id="5"),
        _instance(601, "SUBMIT"),
    )
    assert kinds(records) == [
        "header",
        "create priority_class",
        "create node",
        "pod_create",
        "observed scheduled",
        "observed finished",
    ]
    (create,) = _creates(records)
    assert create.life.service_duration_ns == 98 * S
    assert create.pod.spec.priority == 200
    assert dict(create.pod.spec.containers[0].resources.requests) == {
        "cpu": "8000m",
        "memory": str(16 << 30),
    }
    assert observed(records, "scheduled")[0].scheduled.node_name == "machine-5"


def test_a_queued_task_is_gated_until_it_is_enabled(tmp_path: Path) -> None:
    """The batch scheduler holds it back."""
    records = _imported(
        tmp_path, _instance(601, _SUBMIT), _instance(601, _QUEUE), _instance(660, _ENABLE)
    )
    (create,) = _creates(records)
    assert [scheduling_gate.name for scheduling_gate in create.pod.spec.scheduling_gates] == [
        "borg/queued"
    ]
    lifted = next(record for record in records if record.HasField("update"))
    assert lifted.time_ns == 660 * S
    assert not lifted.update.pod.spec.scheduling_gates
    assert lifted.update.pod.metadata.uid == create.pod.metadata.uid


def test_a_reservation_is_a_pod_and_what_is_within_is_left_out(tmp_path: Path) -> None:
    """The task uses what the alloc instance holds."""
    records = _imported(
        tmp_path,
        _instance(601, _SUBMIT, collection_type=1, collection_id="1"),
        _instance(602, _SUBMIT, alloc_collection_id="1", alloc_instance_index=0),
    )
    assert [create.pod.metadata.labels["borg/collection"] for create in _creates(records)] == ["1"]
    assert {issue.kind: issue.count for issue in issues(records)}["in-alloc"] == 1


def test_one_on_a_machine_is_an_anti_affinity(tmp_path: Path) -> None:
    """More than one has no counterpart."""

    def collection(number: str, **limits: int) -> Raw:
        return {"time": str(600 * _US), "type": 0, "collection_id": number, **limits}

    records = _imported(
        tmp_path,
        collection("1", max_per_machine=1),
        collection("2", max_per_machine=3, max_per_switch=0),
        _instance(601, _SUBMIT, collection_id="1"),
        _instance(602, _SUBMIT, collection_id="2"),
    )
    one, three = (create.pod.spec.HasField("affinity") for create in _creates(records))
    assert (one, three) == (True, False)
    assert {issue.kind for issue in issues(records)} == {"not-simulated", "censored"}


def test_constraints_attributes_and_usage_are_read(tmp_path: Path) -> None:
    """With the relations that 2011 did not have."""
    constraints = [
        {"name": "k", "value": "2", "relation": 5},
        {"name": "g", "relation": "PRESENT"},
        {"name": "h", "value": "x", "relation": 1},
    ]
    records = _imported(
        tmp_path,
        {"time": "0", "machine_id": "5", "name": "k", "value": "2"},
        _instance(601, _SUBMIT, constraint=constraints),
        _instance(602, _SCHEDULE, machine_id="5"),
        {
            "start_time": str(605 * _US),
            "end_time": str(905 * _US),
            "collection_id": "380608800000",
            "instance_index": 0,
            "machine_id": "5",
            "average_usage": {"cpus": 0.0625, "memory": 0.03125},
        },
        _instance(950, _KILL),
    )
    (create,) = _creates(records)
    affinity = create.pod.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution
    found = [
        (match_expression.operator, list(match_expression.values))
        for match_expression in required.node_selector_terms[0].match_expressions
    ]
    assert found[:2] == [("Gt", ["1"]), ("Exists", [])]
    assert found[2][0] == "NotIn"
    usage = next(record.usage for record in records if record.HasField("usage"))
    assert (usage.segments[0].cpu_milli, usage.segments[0].memory_bytes) == (4000, 8 << 30)
    assert "delete Pod user" in kinds(records)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (_instance(1, 99), "line 2: type: 99"),
        (_instance(1, "START"), "line 2: type: 'START'"),
        ({**_instance(1, 0), "time": "soon"}, "line 2: time: 'soon'"),
        ({**_instance(1, 0), "resource_request": {"cpus": "much"}}, "line 2: cpus: 'much'"),
        ({**_machine(7), "type": 0}, "line 2: type: the machine event has no known type"),
    ],
)
def test_a_broken_line_is_refused_with_its_place(tmp_path: Path, line: Raw, problem: str) -> None:
    """And with its field."""
    with pytest.raises(TraceError, match=problem):
        _imported(tmp_path, line)
