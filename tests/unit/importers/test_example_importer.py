"""The importer of docs/write-an-importer.md, on two small tables."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from replay.errors import TraceError
from replay.importers.registry import IMPORTERS, open_trace, recognise
from replay.trace.reader import OrderCheck
from replay.trace.validate import validate
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.unit.importers.builders import S, issues, kinds, observed

_ROOT = Path(__file__).resolve().parents[3]
_MODULE = _ROOT / "examples" / "importers" / "batch_csv.py"
_START_S = 1_700_000_000
_MACHINES = "machine,cores,memory_mib\nm1,8,16384\n"
_HEAD = "task,submitted,started,ended,machine,cores,memory_mib,priority\n"
_TASKS = _HEAD + (
    f"late,{_START_S + 9},,,,4,1024,0\n"
    f"urgent,{_START_S + 5},{_START_S + 6},,m1,8,1024,1000\n"
    f"first,{_START_S},{_START_S + 1},{_START_S + 4},m1,8,1024,0\n"
)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("batch_csv", _MODULE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(IMPORTERS, module.NAME, module.IMPORTER)


def _imported(path: Path, tasks: str = _TASKS) -> list[Record]:
    for name, text in (("machines.csv", _MACHINES), ("tasks.csv", tasks)):
        (path / name).write_text(text)
        assert recognise(path / name) == "batch-csv"
    return list(open_trace([path]))


def test_the_example_makes_a_trace(tmp_path: Path) -> None:
    """It starts at the first task; what happened to tasks is observed."""
    records = _imported(tmp_path)
    check = OrderCheck()
    assert not [problem for record in records if (problem := check.problem(record))]
    assert kinds(records) == [
        *("header", "create priority_class", "create priority_class", "create node"),
        *("pod_create", "observed scheduled", "pod_create", "observed scheduled", "pod_create"),
        "issue censored",
    ]
    assert {record.time_ns for record in records[:5]} == {_START_S * S}
    assert validate(records).header.times_recorded
    pods = [record.pod_create for record in records if record.HasField("pod_create")]
    assert [pod.pod.spec.priority for pod in pods] == [0, 1000, 0]
    assert pods[0].life.service_duration_ns == 3 * S
    assert [pod.life.censored for pod in pods] == [False, True, True]
    assert next(issues(records)).count == 2
    assert {entry.scheduled.node_name for entry in observed(records, "scheduled")} == {"m1"}


def test_the_example_refuses_a_broken_row(tmp_path: Path) -> None:
    """With file and line."""
    with pytest.raises(TraceError, match=r"tasks\.csv, line 2: cores: 'x' is not a number"):
        _imported(tmp_path, _HEAD + "a,1,2,3,m1,x,1,0\n")


def test_the_page_quotes_the_example() -> None:
    """Word for word."""
    page = (_ROOT / "docs" / "write-an-importer.md").read_text(encoding="utf-8")
    assert f"```python\n{_MODULE.read_text(encoding='utf-8')}```" in page
