"""Traces of format 1 read as those of today.

The files in data/ were written by the code of commit 2c4354e, the last one of format 1, from the
records below; there, the wait that is not known was -1 ns.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from replay.errors import TraceError
from replay.trace import reader
from replay.trace.reader import read
from replay.trace.writer import SUFFIXES, Writer, write
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.policy_pb2 import PodDisruptionBudgetSpec
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.errors import FieldError
from services.rpc.kube.codec import budget_from_message
from services.rpc.kube.json_codec import parse
from tests.unit.trace.builders import make_header, make_marker, make_pod

DATA = Path(__file__).parent / "data"
FILES = [DATA / "format1.ktr", DATA / "format1.jsonl"]
_ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": "30%"}}
_CLAIM = {"kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data", "uid": "u-claim"}
_JOB = {"kind": "Job", "apiVersion": "batch/v1", "namespace": "shop", "name": "j", "uid": "u-job"}
OBJECTS: list[tuple[str, Mapping[str, Any]]] = [
    ("pod_disruption_budget", {"metadata": {"name": "number"}, "spec": {"minAvailable": 2}}),
    ("pod_disruption_budget", {"metadata": {"name": "none"}, "spec": {"maxUnavailable": 0}}),
    ("pod_disruption_budget", {"metadata": {"name": "percent"}, "spec": {"maxUnavailable": "25%"}}),
    ("deployment", {"metadata": {"name": "web"}, "spec": {"replicas": 3, "strategy": _ROLLING}}),
    ("daemon_set", {"metadata": {"name": "agent"}, "spec": {"updateStrategy": _ROLLING}}),
    (
        "stateful_set",
        {
            "metadata": {"name": "db"},
            "spec": {"updateStrategy": {"rollingUpdate": {"partition": 1, "maxSurge": 2}}},
        },
    ),
    (
        "persistent_volume",
        {"metadata": {"name": "pv"}, "spec": {"capacity": {"storage": "1Gi"}, "claimRef": _CLAIM}},
    ),
    ("persistent_volume", {"metadata": {"name": "free"}, "spec": {"storageClassName": "fast"}}),
    (
        "cron_job",
        {
            "metadata": {"name": "c"},
            "spec": {"schedule": "* * * * *"},
            "status": {"active": [_JOB, {"kind": "Job", "name": "other"}]},
        },
    ),
    ("node", {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4", "memory": "8Gi"}}}),
]
"""Kinds, by their fields in KubernetesObject, and what they hold, as Kubernetes has it."""


def _object(kind: str, mapping: Mapping[str, Any]) -> KubernetesObject:
    message = type(getattr(KubernetesObject(), kind))
    return KubernetesObject(**{kind: parse(message, mapping)})


def _records() -> list[trace_pb2.Record]:
    """Return the records in the files, without times and numbers, which are set last."""
    pod = ObjectReference(kind="Pod", namespace="shop", name="p", uid="u-p")
    scheduled = trace_pb2.Scheduled(node_name="n", waited_duration_ns=7)
    unknown = trace_pb2.Scheduled(node_name="n")
    evicted = trace_pb2.Evicted(node_name="n", grace_period_seconds=9)
    ranked = evicted.ranking.add(priority=3, usage=5, request=4, exceeds_request=True)
    ranked.pod.CopyFrom(pod)
    profile = trace_pb2.UsageProfile(id=1)
    profile.segments.add(memory_bytes=5)
    records = [
        make_header(source="test", window_end_time_ns=99),
        *(trace_pb2.Record(create=_object(*obj)) for obj in OBJECTS),
        *(trace_pb2.Record(update=_object(*obj)) for obj in OBJECTS),
        make_pod(0, 0, "p"),
        trace_pb2.Record(usage=profile),
        trace_pb2.Record(delete=trace_pb2.Delete(object=pod, grace_period_seconds=30)),
        trace_pb2.Record(observed=trace_pb2.Observed(object=pod, scheduled=scheduled)),
        trace_pb2.Record(observed=trace_pb2.Observed(object=pod, scheduled=unknown)),
        trace_pb2.Record(observed=trace_pb2.Observed(object=pod, evicted=evicted)),
        make_marker(0, 0),
    ]
    for number, record in enumerate(records):
        record.time_ns, record.sequence = number, number + 1
    return records


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.suffix))
def test_both_forms_read_as_the_records_of_today(path: Path) -> None:
    """Numbers that may be percentages, references, and times that nobody knows."""
    assert b'"formatVersion":1' in FILES[1].read_bytes()
    assert list(read(path)) == _records()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.suffix))
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_was_read_is_written_as_a_trace_of_today(
    tmp_path: Path, path: Path, suffix: str
) -> None:
    """Nothing of the former format is left: the new file is that of today's records."""
    converted, made = tmp_path / f"converted{suffix}", tmp_path / f"made{suffix}"
    write(converted, read(path))
    write(made, _records())
    assert converted.read_bytes() == made.read_bytes()
    assert list(read(converted, converts=False)) == _records()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.suffix))
def test_nothing_is_appended_to_a_trace_of_format_1(tmp_path: Path, path: Path) -> None:
    """The file would have two formats; it is refused by name and not changed."""
    copy = tmp_path / path.name
    shutil.copy(path, copy)
    with pytest.raises(TraceError, match="format_version 1; this version reads 2") as refused:
        Writer(copy, append=True)
    assert str(copy) in str(refused.value)
    assert copy.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("number", [1.5, 2.0**31, float("inf")])
def test_a_bound_that_is_not_a_whole_number_stays_wrong(number: float) -> None:
    """Format 1 could hold it, and a replay refused it by its path, as today."""
    value = bytes([1 << 3 | 2, 9, 2 << 3 | 1]) + struct.pack("<d", number)
    spec = PodDisruptionBudgetSpec.FromString(value)
    record = trace_pb2.Record()
    record.create.pod_disruption_budget.spec.CopyFrom(spec)
    reader.convert_from_format_1(record, is_text=False)
    converted = record.create.pod_disruption_budget
    assert converted.spec.min_available.string_value == str(number)
    with pytest.raises(FieldError, match="minAvailable"):
        budget_from_message(converted)


def _in_snake_case(plain: Any) -> Any:
    """Return a line with its fields' names in snake case, which JSON takes, too."""
    match plain:
        case dict():
            return {_snake(name): _in_snake_case(value) for name, value in plain.items()}
        case list():
            return [*map(_in_snake_case, plain)]
    return plain


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


@pytest.mark.parametrize("version", [1, "1"])
def test_a_text_may_spell_fields_in_snake_case(tmp_path: Path, version: object) -> None:
    """And a number as a text; it is read as the other spelling."""
    lines = [json.loads(line) for line in FILES[1].read_text().splitlines()]
    path = tmp_path / "spelt.jsonl"
    for spelt in (lines, [*map(_in_snake_case, lines)]):
        header = spelt[0]["header"]
        (name,) = {"formatVersion", "format_version"} & header.keys()
        header[name] = version
        path.write_text("".join(f"{json.dumps(line)}\n" for line in spelt))
        assert list(read(path)) == _records()


ZEROS: list[dict[str, Any]] = [
    {"podCreate": {"pod": {"metadata": {"name": "p"}}, "templateId": 0, "life": {"usageId": 0}}},
    {"usage": {"id": 1, "templateId": 0}},
    {"issue": {"kind": "k", "count": "0"}},
    {"controllerPod": {"ordinal": "1", "life": {"usageId": 0}}},
]


def test_zeros_without_a_meaning_are_left_out(tmp_path: Path) -> None:
    """Format 1 had no absent values there; those of today that are 0 stay."""
    header = {
        "formatVersion": 1,
        "windowEndNs": "0",
        "cpuMilliPerUnit": "0",
        "memoryBytesPerUnit": "0",
    }
    path = tmp_path / "zeros.jsonl"

    def records(version: int) -> list[dict[str, Any]]:
        lines = [{"header": {**header, "formatVersion": version}}, *ZEROS]
        numbered = [{**line, "sequence": number} for number, line in enumerate(lines, 1)]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in numbered))
        return [MessageToDict(record) for record in read(path)]

    former, today = records(1), records(2)
    assert former[0]["header"] == {"formatVersion": 2}
    assert [line["podCreate"]["life"] for line in (former[1], today[1])] == [{}, {"usageId": 0}]
    assert "templateId" not in former[1]["podCreate"]
    assert "templateId" not in former[2]["usage"]
    assert "count" not in former[3]["issue"]
    assert former[4]["controllerPod"]["life"] == {}
    assert "0" in str(today[0]["header"])
