"""The benchmark as a smoke test: every row runs small; no time is asserted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bench, compare, phases
from benchmarks.rows import ROWS, chosen
from benchmarks.workloads import scheduler_perf
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.e2e.replays import SHARED

PERF = SHARED / "traces" / "scheduler_perf"
CONFIGS = {
    "SchedulingBasic": PERF / "misc" / "performance-config.excerpt.yaml",
    "PreemptionBasic": PERF / "default_preemption" / "performance-config.yaml",
}
Items = Mapping[str, Mapping[tuple[str, str], Any]]

pytestmark = pytest.mark.e2e


def test_each_row_runs_small_and_comes_with_its_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row whose files are not there is left out by name."""
    found = items(tmp_path, "--in-process", "--million")
    printed = capsys.readouterr().out
    there = [row for row in ROWS if all(path.exists() for path in row.needs)]
    assert list(found) == [row.name for row in there]
    for row in there:
        figures = found[row.name]
        assert figures["SchedulingThroughput", ""]["unit"] == row.unit
        for metric in ("Pods", "PodsBound", "Attempts", "Rounds"):
            assert figures[metric, ""]["data"]["Median"] > 0, (row.name, metric)
        assert figures["QueueExchangesPerPod", ""]["data"]["Median"] >= 0
    assert all(f"\n{row.name} " in printed for row in ROWS)
    assert counted(found, "PreemptionBasic/5000Nodes", "PodsBound") == 25
    assert counted(found, "Deployments/500Budgets_5000Pods", "Pods") == 2 * 4 * 2
    assert counted(found, "AtOnce/5000Nodes_500Shapes", "PodsBound") == 100


def test_over_grpc_each_process_has_its_figures(tmp_path: Path) -> None:
    """CPU and memory of all three services and of the replay, with the median of two runs."""
    found = items(tmp_path, "--rows", "OpenB/LookAlike", "--repeat", "2")["OpenB/LookAlike"]
    for metric in ("CPUPerPod", "PeakMemory"):
        processes = {process for name, process in found if name == metric}
        assert processes == {"", "replay", "scheduler", "queue", "eviction"}
    assert set(found["WallTime", ""]["data"]) == {"Median", "Min", "Max"}


def test_each_phase_has_its_share_of_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    """The shares are of all samples; five bare costs follow."""
    phases.main(["OneByOne", "--quick", "--repeat", "2"])
    printed = capsys.readouterr().out.splitlines()
    shares = [float(line.split()[-1].rstrip("%")) for line in printed if line.endswith("%")]
    assert sum(shares) == pytest.approx(100, abs=0.1 * len(shares))
    bare = printed[next(at for at, line in enumerate(printed) if line.startswith("BARE")) + 1 :]
    assert len([float(line.split()[-1]) for line in bare]) == 5


def test_a_row_is_chosen_by_its_name_or_the_beginning_of_it() -> None:
    """The beginning goes up to the slash."""
    assert [row.name for row in chosen("NginxDemo/Later")] == ["NginxDemo/Later"]
    assert len(chosen("AtOnce")) == 4
    with pytest.raises(ValueError, match="no row is named Pods; the rows are SchedulingBasic"):
        chosen("FourTiers,Pods")


def test_a_commit_without_the_benchmark_knows_no_row(tmp_path: Path) -> None:
    """Its rows are then left out of a comparison."""
    assert compare.known_rows(tmp_path, [], named="") == set()


def test_a_comparison_shows_the_spread_of_its_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    """Each run now is divided by the run of the base just before it."""
    walls = ((10.0, 5.0), (8.0, 2.0), (9.0, 9.0))
    runs = [[dict.fromkeys(compare.MEASURES, wall) for wall in pair] for pair in walls]
    compare.show("Row", runs)
    line = capsys.readouterr().out.splitlines()[1].split()
    assert line == ["Row", "WallTime", "9.0", "5.0", "0.50", "0.25", "to", "1.00"]


@pytest.mark.skipif(not PERF.is_dir(), reason="no ../shared/traces beside the project")
@pytest.mark.parametrize(
    ("case", "counts"),
    [
        ("SchedulingBasic", {"nodes": 5000, "pods": 1000, "measured": 10_000}),
        ("PreemptionBasic", {"nodes": 1000, "pods": 4000, "measured": 1000}),
    ],
)
def test_scheduler_perf_s_workloads_are_those_of_its_yaml(
    case: str, counts: dict[str, int]
) -> None:
    """All records but the header, which names the files, and the importer's notes."""
    names = {"nodes": "initNodes", "pods": "initPods", "measured": "measurePods"}
    params = {names[name]: count for name, count in counts.items()}
    options = ImportOptions(workload=case, params=params)
    read = [of_workload(record) for record in open_trace([CONFIGS[case]], options=options)]
    made = [of_workload(record) for record in scheduler_perf(case, **counts)]
    assert [line for line in made if line] == [line for line in read if line]


def of_workload(record: Record) -> Record | None:
    """Return a record without its number; None for the header and for notes."""
    if record.HasField("header") or record.HasField("issue"):
        return None
    record.ClearField("sequence")
    return record


def items(folder: Path, *arguments: str) -> Items:
    """Run rows small; return the items of what was written by row, metric and process."""
    path = folder / "bench.json"
    bench.main(["--quick", "--json", str(path), *arguments])
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written["version"] == "v1"
    found: dict[str, dict[tuple[str, str], Any]] = {}
    for item in written["dataItems"]:
        labels = item["labels"]
        found.setdefault(labels["Name"], {})[labels["Metric"], labels.get("Process", "")] = item
    return found


def counted(found: Items, row: str, metric: str) -> float:
    """Return a figure of a row."""
    value: float = found[row][metric, ""]["data"]["Median"]
    return value
