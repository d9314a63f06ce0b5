"""The tables of a run: made of its files, typed as declared, and asked in SQL."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from replay.results.errors import RunError
from replay.results.manifest import Manifest
from replay.results.run_directory import TABLES_DRAFT, RunDirectory
from replay.results.tables.build import build_tables, ensure_tables
from replay.results.tables.query import RunTables
from replay.results.tables.schema import TABLES
from reprieve.kube.v1alpha1 import node_pb2, pod_pb2
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from reprieve.trace.v1alpha1 import trace_pb2
from tests.unit.results import messages

_NODE = "worker"
_MESSAGE = (
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 66Mi. "
    "Container c was using 2030Mi, request is 256Mi, has larger consumption of memory. "
)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Return a run in which high displaces low, guest is evicted and late stays pending."""
    directory = RunDirectory.create(tmp_path / "it's a run [1]")
    directory.write_manifest(
        Manifest(version="0", seed=7, rules="v1.34", traces=(), finished=True, end="over")
    )
    rounds = directory.round_log()
    for round_ in _rounds():
        rounds.write(round_)
    rounds.close()
    decisions = directory.decision_log()
    for sequence, decision in enumerate(_decisions(), 1):
        decision.sequence = sequence
        decisions.write(decision)
    decisions.close()
    step: dict[str, object] = {"pods": 2, "count": 2, "sum_ns": 50, "p50_ns": 20, "p90_ns": 30}
    step |= {"p99_ns": 30, "max_ns": 30, "buckets": [[20, 1], [30, 1]]}
    directory.write_latencies({"wall_ns": 9, "steps": {"schedulingCycle": step}})
    return directory


def _pod(name: str, cpu: str, **of: object) -> pod_pb2.Pod:
    pod = messages.pod_message(name, **of)  # type: ignore[arg-type] # keywords of one test
    pod.spec.containers[0].resources.requests["cpu"] = cpu
    return pod


def _rounds() -> list[scheduler_pb2.Round]:
    node = node_pb2.Node()
    node.metadata.name = _NODE
    node.status.allocatable.update({"cpu": "2", "pods": "110"})
    told, patched = messages.round_of, messages.patched
    failed = pod_pb2.PodStatus(phase="Failed")
    return [
        told(
            messages.added(node),
            messages.added(_pod("low", "1500m", node_name=_NODE, phase="Running", owner_uid="o")),
        ),
        told(messages.added(_pod("high", "2", priority=9), 8), at_s=8),
        told(messages.deleted("low", 10), at_s=10),
        told(patched("high", 11, node_name=_NODE), at_s=11),
        told(messages.added(_pod("late", "1"), 12), at_s=12),
        told(patched("high", 20, status=failed), at_s=20),
    ]


def _decisions() -> list[trace_pb2.Decision]:
    victim = messages.preempted("low", "high", 8)
    victim.observed.preempted.node_name = _NODE
    refused = messages.scheduled("high", "gone", 10)
    refused.refused = 'nodes "gone" not found'
    evicted = messages.evicted("high", "memory.available", 19)
    evicted.observed.evicted.message = _MESSAGE
    return [
        messages.failed("high", "0/1 nodes are available: 1 Insufficient cpu.", 8),
        messages.nominated("high", _NODE, "low", at_s=8),
        victim,
        messages.removed("low", 10, "preempted"),
        refused,
        messages.scheduled("high", _NODE, 11, waited_s=3),
        messages.started("high", 11),
        evicted,
        messages.finished("high", 20, "Failed"),
    ]


def _ask(run: RunDirectory, sql: str) -> list[tuple[object, ...]]:
    with RunTables(run) as tables:
        return list(tables.ask(sql).rows())


def test_each_table_has_the_columns_that_are_told_of_it(run: RunDirectory) -> None:
    """Names and types, in a file of its own, and nothing else is left behind."""
    build_tables(run)
    for table in TABLES.values():
        path = str(run.path / table.file_name).replace("'", "''").replace("[1]", "[[]1]")
        found = duckdb.execute(f"DESCRIBE FROM read_parquet('{path}')").fetchall()
        assert [row[:2] for row in found] == [(each.name, each.type) for each in table.columns]
    assert not [each for each in run.path.iterdir() if each.name.startswith(TABLES_DRAFT)]


def test_a_pod_is_followed_from_its_creation_to_its_end(run: RunDirectory) -> None:
    """What the history tells of it and what was decided of it meet in one row."""
    start = messages.START_NS
    rows = _ask(
        run,
        "SELECT name, priority, requests['cpu'], scheduled_ns, node_name, waited_ns, attempts, "
        "ended_ns, ending, preempted_by, evicted_signal FROM pods",
    )
    second = messages.SECOND_NS
    assert sorted(rows) == [
        (
            *("high", 9, 2000, start + 11 * second, _NODE, 3 * second, 3, start + 20 * second),
            *("Evicted", None, "memory.available"),
        ),
        ("late", 0, 1000, None, None, None, 0, None, "Pending", None, None),
        (
            *("low", 0, 1500, None, _NODE, None, 0, start + 10 * second),
            *("Preempted", "default/high", None),
        ),
    ]


def test_an_attempt_knows_the_preemption_that_it_led_to(run: RunDirectory) -> None:
    """A binding that was refused is an attempt too, and says why."""
    sql = "SELECT result, node_name, nominated_node, decided_by, victims, refused FROM attempts"
    assert _ask(run, sql) == [
        ("Unschedulable", None, _NODE, "only-candidate", 1, None),
        ("Scheduled", "gone", None, None, None, 'nodes "gone" not found'),
        ("Scheduled", _NODE, None, None, None, None),
    ]


def test_a_preemption_names_both_pods(run: RunDirectory) -> None:
    """With their priorities, the victim's owner, and the criterion."""
    sql = "SELECT name, priority, by_name, by_priority, node_name, decided_by FROM preemptions"
    assert _ask(run, sql) == [("low", 0, "high", 9, _NODE, "only-candidate")]


def test_an_eviction_tells_threshold_and_observation_as_amounts(run: RunDirectory) -> None:
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


def test_free_capacity_says_why_the_waiting_pod_cannot_have_it(run: RunDirectory) -> None:
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


def test_tables_are_made_again_only_where_the_run_is_newer(run: RunDirectory) -> None:
    """A second look finds them as they are."""
    ensure_tables(run)
    path = run.path / "pods.parquet"
    made_ns = path.stat().st_mtime_ns
    ensure_tables(run)
    assert path.stat().st_mtime_ns == made_ns
    os.utime(run.path / "decisions.jsonl", ns=(made_ns + 10**9, made_ns + 10**9))
    ensure_tables(run)
    assert path.stat().st_mtime_ns != made_ns


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
def test_what_is_no_question_to_the_tables_is_refused(
    run: RunDirectory, sql: str, words: str
) -> None:
    """Nothing is written, and no other file and no network is read."""
    with pytest.raises(RunError, match=words):
        _ask(run, sql)


def test_a_broken_decision_log_is_named(run: RunDirectory) -> None:
    """And no table is left of it."""
    (run.path / "decisions.jsonl").write_bytes(b'{"atNs":1}\n{"at')
    with pytest.raises(RunError, match=r"decisions\.jsonl"):
        ensure_tables(run)
    assert not list(run.path.glob("*.parquet"))


def test_a_run_of_nothing_has_empty_tables(tmp_path: Path) -> None:
    """They can be asked all the same."""
    directory = RunDirectory.create(tmp_path / "run")
    directory.write_manifest(Manifest(version="0", seed=0, rules="v1.34", traces=()))
    directory.round_log().close()
    directory.decision_log().close()
    assert _ask(directory, "SELECT count(*) FROM pods") == [(0,)]
    assert _ask(directory, "SELECT start_ns, end_ns FROM run") == [(0, 0)]


def test_force_replaces_a_run_with_its_tables(run: RunDirectory) -> None:
    """What a killed making of tables left behind goes too."""
    build_tables(run)
    (run.path / f"{TABLES_DRAFT}x").mkdir()
    (run.path / f"{TABLES_DRAFT}x" / "pods.jsonl").write_text("{}")
    RunDirectory.create(run.path, force=True)
    assert list(run.path.iterdir()) == []
