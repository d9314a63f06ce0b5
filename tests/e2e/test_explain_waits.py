"""What pods waited for: the parts of each wait follow each other and add up to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.cli.errors import REFUSED
from replay.explain.waits import (
    BACKOFF,
    BINDING,
    ROOM,
    UNTRIED,
    PodWaits,
    _waits,
    cause_of,
    waits_of,
    workloads_that_waited,
)
from replay.results.durations import simulated
from replay.results.run.directory import RunDirectory
from replay.results.tables.query import RunTables
from replay.whatif.facts import read_facts
from reprieve.trace.v1beta1 import trace_pb2
from tests.e2e.commands import reprieve
from tests.e2e.replays import DEMOS, ROOT, SHARED, run
from tests.unit.world.builders import S, create, create_pod, delete, make_node, make_pod

pytestmark = pytest.mark.e2e

RECORDINGS = SHARED / "traces" / "recordings"
GATED = """
kind: Node
apiVersion: v1
metadata: {name: n1}
status: {allocatable: {cpu: "2", memory: 4Gi, pods: "10"}}
---
{kind: PriorityClass, apiVersion: scheduling.k8s.io/v1, metadata: {name: high}, value: 100}
---
{kind: Deployment, apiVersion: apps/v1, metadata: {name: web, namespace: shop},
 spec: {replicas: 3, selector: {matchLabels: {app: web}},
  template: {metadata: {labels: {app: web}},
   spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}}}}
---
{kind: Pod, apiVersion: v1, metadata: {name: gated},
 spec: {schedulingGates: [{name: later}], containers: [{name: c, image: i}]}}
"""
TRACES = {
    "shop": [str(ROOT / "examples" / "recordings" / "shop")],
    "preemption": [str(DEMOS / "nginx-preemption.jsonl")],
    "eviction": [str(DEMOS / "eviction-loop.jsonl")],
    "gated": ["gated.yaml", "--until", "3m"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the runs of four traces."""
    folder = tmp_path_factory.mktemp("waits")
    (folder / "gated.yaml").write_text(GATED)
    for name, arguments in TRACES.items():
        reprieve(folder, "replay", *arguments, "--run", name, "-q", "--no-report", code=None)
    return folder


def waited(run: RunDirectory) -> Iterator[tuple[str, int | None, PodWaits]]:
    """Yield each pod that waited for a node: its UID, the wait of its table, and its waits."""
    sql = "SELECT uid, waited_ns FROM pods WHERE waiting_since_ns IS NOT NULL"
    with RunTables(run) as tables:
        pods = list(tables.select(sql).rows())
    for uid, waited_ns in pods:
        yield uid, waited_ns, waits_of(run, uid)


@pytest.mark.parametrize("name", TRACES)
def test_the_parts_of_every_wait_add_up_to_it(runs: Path, name: str) -> None:
    """Without a gap, from the creation to the binding or the end."""
    run = RunDirectory.open(runs / name)
    pods = list(waited(run))
    assert pods
    for uid, waited_ns, waits in pods:
        (pod,) = waits.pods
        assert pod.uid == uid
        assert waited_ns in (None, pod.length_ns)
        assert sum(part.length_ns for part in pod.parts) == pod.length_ns
        assert sum(length_ns for _, length_ns in pod.totals()) == pod.length_ns
        for part in pod.parts:
            assert 0 <= part.backoff_ns + part.turn_ns <= part.length_ns
        for part, following in pairwise(pod.parts):
            assert part.until_ns == following.from_ns
            assert part.cause != following.cause
        if pod.parts:
            assert pod.parts[0].from_ns == pod.from_ns
            assert pod.parts[-1].until_ns == pod.until_ns


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="no ../shared/traces beside the project")
@pytest.mark.parametrize("name", ["a", "c", "e", pytest.param("b2", marks=pytest.mark.long)])
def test_the_parts_add_up_for_every_pod_of_a_recording(name: str, tmp_path: Path) -> None:
    """They are what `compare` makes of the decision log: the waits of each name, and who waits."""
    reprieve(tmp_path, "replay", str(RECORDINGS / name), "--run", "run", "-q", "--no-report")
    run = RunDirectory.open(tmp_path / "run")
    facts = read_facts(run)
    with RunTables(run) as tables:
        waits = _waits(run, tables, "true", {}, "every pod")
    bound_ns, lasting_ns = Counter[str](), dict[str, int]()
    for pod in waits.pods:
        assert sum(part.length_ns for part in pod.parts) == pod.length_ns
        if pod.node:
            bound_ns[pod.key] += pod.length_ns
        elif pod.lasts:
            lasting_ns[pod.key] = pod.length_ns
    assert any(len(pod.parts) > 1 for pod in waits.pods) or name == "a"
    assert +bound_ns == +Counter({key: sum(pod.waited_ns) for key, pod in facts.pods.items()})
    assert lasting_ns == {
        key: facts.end_ns - pod.pending_since_ns
        for key, pod in facts.pods.items()
        if pod.pending and not pod.gated
    }
    assert sum(length_ns for _, length_ns in waits.totals()) == waits.length_ns > 0


def test_a_pod_that_waits_for_its_victims_says_so(runs: Path) -> None:
    """And for room before: the nginx demo's preemptor."""
    run = RunDirectory.open(runs / "preemption")
    causes = {part.cause for _, _, waits in waited(run) for part in waits.pods[0].parts}
    assert ROOM in causes
    sql = "SELECT by_uid, namespace || '/' || name FROM preemptions ORDER BY sequence LIMIT 1"
    with RunTables(run) as tables:
        ((preemptor, victim),) = tables.select(sql).rows()
    waits = waits_of(run, preemptor)
    (pod,) = waits.pods
    removed = [change for change in waits.changes if change.sentence == f"Pod {victim} was removed"]
    assert [pod.tried_ns < change.at_ns <= pod.until_ns for change in removed] == [True]
    shown = reprieve(runs, "explain", preemptor, "preemption", "--wait").stdout
    at = simulated(removed[0].at_ns - waits.start_ns)
    assert f"{at}   Pod {victim} was removed" in shown


def test_a_workloads_waits_are_those_of_its_pods(runs: Path) -> None:
    """Two of three pods fit on the node; the third one waits, and holders are named."""
    done = reprieve(runs, "explain", "deployment/web", "gated", "--wait", "-o", "json")
    waits = json.loads(done.stdout)
    assert len(waits["pods"]) == 3
    assert sum(pod["waitedNs"] for pod in waits["pods"]) == waits["waitedNs"] > 0
    assert [total["cause"] for total in waits["byCause"]] == ["Insufficient cpu"]
    (pending,) = [pod for pod in waits["pods"] if pod["lasts"]]
    shown = reprieve(runs, "explain", pending["pod"], "gated", "--wait").stdout
    assert "and still waits at the run's end" in shown
    assert "n1     1 cpu    Deployment shop/web (2 cpu)" in shown
    run = RunDirectory.open(runs / "gated")
    with RunTables(run) as tables:
        (workload,) = workloads_that_waited(
            lambda sql, values: tables.select(sql, values).rows(), run.manifest().end_ns, 10
        )
    assert workload.key == "Deployment shop/web"
    assert workload.length_ns == waits["waitedNs"]


def test_a_gated_pod_does_not_wait_for_a_node(runs: Path) -> None:
    """It has a gate to the end."""
    done = reprieve(runs, "explain", "default/gated", "gated", "--wait", code=REFUSED)
    assert "gated has no pod that waited for a node" in done.stderr


def test_the_report_has_the_workloads_that_waited_most(runs: Path) -> None:
    """With the causes."""
    reprieve(runs, "report", "gated")
    page = (runs / "gated" / "report.html").read_text()
    assert "Workloads that waited most" in page
    assert "Insufficient cpu" in page


def test_a_cause_names_the_reasons_of_most_nodes() -> None:
    """Those of at least half as many nodes as the first one; the others are details."""
    message = "0/9 nodes are available: 5 Insufficient cpu, 3 Insufficient memory, 1 node(s) x."
    cause, details = cause_of("refused", message)
    assert cause == "Insufficient cpu, Insufficient memory"
    assert details[0] == ("Insufficient cpu", 5)
    assert cause_of("untried", None) == (UNTRIED, ())


def test_a_wait_is_of_the_whole_time(runs: Path) -> None:
    """A moment makes no sense with it."""
    done = reprieve(runs, "explain", "x", "gated", "--wait", "--at", "1m", code=REFUSED)
    assert "leave --at and --attempt out" in " ".join(done.stderr.split())


def test_a_binding_that_takes_time_is_a_part_of_its_own(tmp_path: Path) -> None:
    """The node is chosen at once; a gated pod is never bound, and waits for nothing."""
    (tmp_path / "gated.yaml").write_text(GATED)
    options = ["--model", "bind-cost=5s", "--until", "3m", "-q", "--no-report"]
    reprieve(tmp_path, "replay", "gated.yaml", *options, "--run", "run", code=None)
    run = RunDirectory.open(tmp_path / "run")
    parts = [
        [(part.cause, part.from_ns - pod.from_ns, part.length_ns) for part in pod.parts]
        for _, waited_ns, waits in waited(run)
        for pod in waits.pods
        if waited_ns is not None
    ]
    assert parts == [[(BINDING, 0, 5 * 10**9)]] * 2


MEMORY = "Insufficient memory"


def of_size(name: str, memory: str, *, at_s: float) -> trace_pb2.Record:
    """Return the record of a pod that requests so much memory."""
    pod = make_pod(name, grace_s=0)
    pod.spec.containers[0].resources.requests["memory"] = memory
    return at(at_s, create_pod(pod))


def at(seconds: float, record: trace_pb2.Record) -> trace_pb2.Record:
    """Return a record of that time."""
    record.time_ns = int(seconds * S)
    return record


RECORDS = [
    trace_pb2.Record(header=trace_pb2.Header(format_version=2)),
    create(make_node("n")),
    of_size("holder", "4Gi", at_s=0),
    of_size("waiting", "4Gi", at_s=1),
]


@pytest.mark.parametrize(
    ("rules", "causes", "moves"),
    [
        # A hint finds that a node which is too small does not help.
        ("v1.34", [(MEMORY, 2.0)], [("AssignedPodDelete", 1, 3.0)]),
        # Any node moves it to podBackoffQ, until 2 s. A failure at the end of a backoff does not
        # begin another one, so that the deletion makes it active at once.
        (
            "v1.16",
            [(MEMORY, 1.5), (BACKOFF, 0.5)],
            [("NodeAdd", 1, 1.5), ("AssignedPodDelete", 1, 3.0)],
        ),
    ],
)
def test_the_events_that_moved_a_pod_and_its_backoff_are_told_apart(
    services: EmbeddedServices,
    tmp_path: Path,
    rules: str,
    causes: list[tuple[str, float]],
    moves: list[tuple[str, int, float]],
) -> None:
    """A node of 4 Gi is full from 0 s to 3 s; another one, at 1.5 s, is too small."""
    small = at(1.5, create(make_node("small", "1Gi")))
    records = [*RECORDS, small, at(3, delete("Pod", "holder"))]
    finished = run(services, records, tmp_path / "run", rules=rules)
    waits = waits_of(finished.run, "waiting")
    assert [(cause, length_ns / S) for cause, length_ns in waits.totals()] == causes
    assert [
        (moved.event, moved.times, moved.last_ns / S) for moved in waits.pods[0].moves()
    ] == moves
    shown = reprieve(tmp_path, "explain", "waiting", "run", "--wait").stdout
    for event, _, last_s in moves:
        assert event in shown
        assert simulated(int(last_s * S)) in shown
