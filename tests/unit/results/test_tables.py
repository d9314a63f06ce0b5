"""The tables of a run: built from its files, with the declared types, and queried in SQL."""

from __future__ import annotations

import dataclasses
import re
from concurrent.futures import Future
from pathlib import Path

import duckdb
import pytest

from replay.errors import RunError
from replay.results.run.directory import RunDirectory
from replay.results.run.files import TABLES_DRAFT
from replay.results.run.manifest import Manifest
from replay.results.schema import TABLES, WALL_COLUMNS, WALL_FIGURES
from replay.results.tables import query
from replay.results.tables.query import RunTables
from services.kube.time import SECOND_NS
from tests.unit.results import messages
from tests.unit.results.small_run import NODE, small_run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Return a run in which high displaces low, is evicted itself, and late stays pending."""
    return small_run(tmp_path / "it's a run [1]")


def _ask(run: RunDirectory, sql: str) -> list[tuple[object, ...]]:
    with RunTables(run) as tables:
        return list(tables.select(sql).rows())


def test_each_table_has_the_columns_of_its_description(run: RunDirectory) -> None:
    """Names and types, in one file for each table; no other file is left behind."""
    RunTables(run).close()
    for table in TABLES.values():
        path = str(run.path / table.file_name).replace("'", "''").replace("[1]", "[[]1]")
        found = duckdb.execute(f"DESCRIBE FROM read_parquet('{path}')").fetchall()
        assert [row[:2] for row in found] == [
            (column.name, column.type) for column in table.columns
        ]
    assert not [path for path in run.path.iterdir() if path.name.startswith(TABLES_DRAFT)]


def test_the_documentation_names_every_column_and_figure_of_wall_times() -> None:
    """And no other."""
    text = (Path(__file__).parents[3] / "docs" / "runs.md").read_text("utf-8")
    listed = text.partition("## What differs")[2].partition("\n## ")[0]
    columns = {f"{table}.{name}" for table, names in WALL_COLUMNS.items() for name in names}
    assert set(re.findall(r"`(latenc\w+\.\w+_ns|latenc\w+\.(?!json)\w+)`", listed)) == columns
    (figures,) = re.findall(r"in `summary.json`: ([^;]*);", listed)
    assert set(re.findall(r"`(\w+)`", figures)) == set(WALL_FIGURES)


def test_a_pod_is_followed_from_its_creation_to_its_end(run: RunDirectory) -> None:
    """One row has the pod's data from the history and from the decision log."""
    start = messages.START_NS
    rows = _ask(
        run,
        "SELECT name, priority, requests['cpu'], scheduled_ns, node_name, waited_ns, attempts, "
        "ended_ns, ending, preempted_by, evicted_signal FROM pods",
    )
    second = SECOND_NS
    assert sorted(rows) == [
        (
            *("high", 9, 2000, start + 11 * second, NODE, 3 * second, 3, start + 20 * second),
            *("Evicted", None, "memory.available"),
        ),
        ("late", 0, 1000, None, None, None, 0, None, "Pending", None, None),
        (
            *("low", 0, 1500, None, NODE, None, 0, start + 10 * second),
            *("Preempted", "default/high", None),
        ),
    ]


def test_an_attempts_row_has_its_preemption(run: RunDirectory) -> None:
    """A binding that was refused is an attempt too, and says why."""
    sql = "SELECT result, node_name, nominated_node, decided_by, victims, refused FROM attempts"
    assert _ask(run, sql) == [
        ("Unschedulable", None, NODE, "only-candidate", 1, None),
        ("Scheduled", "gone", None, None, None, 'nodes "gone" not found'),
        ("Scheduled", NODE, None, None, None, None),
    ]


def test_a_preemption_names_both_pods(run: RunDirectory) -> None:
    """With their priorities, the victim's owner, and the criterion."""
    sql = "SELECT name, priority, by_name, by_priority, node_name, decided_by FROM preemptions"
    assert _ask(run, sql) == [("low", 0, "high", 9, NODE, "only-candidate")]


def test_an_eviction_has_threshold_and_observation_as_amounts(run: RunDirectory) -> None:
    """They stand in the kubelet's words."""
    sql = "SELECT threshold, available, threshold_amount, available_amount FROM evictions"
    assert _ask(run, sql) == [("100Mi", "66Mi", 100 << 20, 66 << 20)]


def test_a_nodes_usage_steps_with_its_pods(run: RunDirectory) -> None:
    """A pod counts from its binding to its end; the last of one instant stands."""
    sql = (
        "SELECT (at_ns - start_ns) // 1000000000, requested, allocatable FROM node_usage, run "
        "WHERE resource = 'cpu' ORDER BY at_ns"
    )
    assert _ask(run, sql) == [(0, 1500, 2000), (10, 0, 2000), (11, 2000, 2000), (20, 0, 2000)]


def test_free_capacity_has_the_reason_why_the_waiting_pod_cannot_use_it(run: RunDirectory) -> None:
    """High waits for a whole node of which a quarter is free."""
    sql = (
        "SELECT DISTINCT reason, free, waiting_pods FROM free_capacity, run "
        "WHERE resource = 'cpu' AND at_ns - start_ns BETWEEN 8000000000 AND 9000000000"
    )
    assert _ask(run, sql) == [("Insufficient cpu", 500, 1)]


def test_wall_latencies_stand_in_tables_of_their_own(run: RunDirectory) -> None:
    """A row for each step, and one for each bucket of it."""
    assert _ask(run, "SELECT step, count, p99_ns FROM latencies") == [("schedulingCycle", 2, 30)]
    assert _ask(run, "SELECT upto_ns, count FROM latency_buckets") == [(20, 1), (30, 1)]


def test_only_missing_or_changed_tables_are_rebuilt(run: RunDirectory) -> None:
    """A second look finds them as they are; a flipped bit is found, and so is another manifest."""
    RunTables(run).close()
    path = run.path / "pods.parquet"
    made_ns = path.stat().st_mtime_ns
    RunTables(run).close()
    assert path.stat().st_mtime_ns == made_ns
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert _ask(run, "SELECT count(*) FROM pods") == [(3,)]
    made_again_ns = path.stat().st_mtime_ns
    assert made_again_ns != made_ns
    run.write_manifest(dataclasses.replace(run.manifest(), seed=8))
    assert _ask(run, "SELECT seed FROM run") == [(8,)]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT 1 FROM pod", "The tables are run, pods, decisions"),
        ("SELECT nam FROM pods", '"name"'),
        ("DROP VIEW pods", "one SELECT"),
        ("SELECT 1; SELECT 2", "one SELECT"),
        ("SELECT * FROM read_csv('/etc/hostname')", "Cannot access file"),
        ("SELECT * FROM 'http://192.0.2.1/x.parquet'", "Cannot access file"),
        ("SELEC", "syntax error"),
    ],
)
def test_what_is_not_a_query_of_the_tables_is_refused(
    run: RunDirectory, sql: str, words: str
) -> None:
    """Nothing is written, and no other file and no network is read."""
    with pytest.raises(RunError, match=words):
        _ask(run, sql)


def test_a_broken_decision_log_is_named(run: RunDirectory) -> None:
    """And no table is left of it."""
    (run.path / "decisions.jsonl").write_bytes(b'{"atNs":1}\n{"at')
    with pytest.raises(RunError, match=r"decisions\.jsonl"):
        RunTables(run).close()
    assert not list(run.path.glob("*.parquet"))


def test_a_run_of_nothing_has_empty_tables(tmp_path: Path) -> None:
    """They can be queried."""
    directory = RunDirectory.create(tmp_path / "run")
    directory.write_manifest(Manifest(version="0", seed=0, rules="v1.34", traces=()))
    directory.round_log().close()
    directory.decision_log().close()
    assert _ask(directory, "SELECT count(*) FROM pods") == [(0,)]
    assert _ask(directory, "SELECT start_ns, end_ns FROM run") == [(0, 0)]


def test_force_replaces_a_run_with_its_tables(run: RunDirectory) -> None:
    """Drafts of a killed build of tables are removed, too."""
    RunTables(run).close()
    (run.path / f"{TABLES_DRAFT}x").mkdir()
    (run.path / f"{TABLES_DRAFT}x" / "pods.jsonl").write_text("{}")
    RunDirectory.create(run.path, force=True).end()
    assert list(run.path.iterdir()) == []


@pytest.mark.parametrize("reached", ["Future", "SimpleQueue"])
def test_a_signal_before_duckdb_begins_a_query_ends_it(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, reached: str
) -> None:
    """Else the process would wait for it when it ends: the query takes hours."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    sql = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
    with RunTables(run) as tables, monkeypatch.context() as patched:
        if reached == "Future":
            patched.setattr(Future, "add_done_callback", interrupted)
        else:
            patched.setattr(query, "SimpleQueue", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tables.select(sql)
    assert _ask(run, "SELECT 1") == [(1,)]
