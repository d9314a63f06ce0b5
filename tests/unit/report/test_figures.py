"""The charts of a report agree with the run's tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.report.displaced import evictions, loops, preemptions
from replay.report.load import latencies, pending, utilisation, waiting
from replay.report.nodes import PODS_MAX, fragmentation, node_timeline, reasons, refusals
from replay.report.page import SECTIONS
from replay.report.section import BUCKETS, GROUPS_MAX, ReportSection, stepped
from services.kube.time import SECOND_NS
from tests.unit.report.tables import pod, source

_NODE = {"node_name": "n", "added_ns": 0, "allocatable": {"cpu": 4000}, "cpu_milli": 4000}


def _series(figure: ReportSection, choice: str = "") -> dict[str, Any]:
    return {chart["name"]: chart["data"] for chart in figure.charts[choice]["series"]}


@given(
    changes=st.lists(
        st.tuples(st.integers(0, BUCKETS * 10), st.integers(-3, 3)), min_size=1, max_size=30
    )
)
@settings(max_examples=25)
def test_stepped_values_have_their_mean_and_peak_in_each_bucket(
    changes: list[tuple[int, int]],
) -> None:
    """As a naive walk over every moment finds them."""
    changes = [(0, 100), *changes]
    rows = " UNION ALL ".join(f"SELECT 'a' AS name, {t} AS t, {d} AS d" for t, d in changes)
    run = source(BUCKETS * 10 / SECOND_NS)
    parts = stepped(run, {"one": rows, "none": f"{rows} LIMIT 0"})
    steps = parts["one"]["a"]
    assert parts["none"] == {}
    values = [sum(d for t, d in changes if t <= at) for at in range(BUCKETS * 10 + 1)]
    for i in range(BUCKETS):
        stood = values[i * 10 : i * 10 + 10]
        assert steps.means[i] == pytest.approx(sum(stood) / 10)
        assert steps.peaks[i] == max(stood + values[BUCKETS * 10 :] * (i == BUCKETS - 1))


def test_utilisation_is_requested_by_bound_pods_over_allocatable() -> None:
    """One core of four for half of the run."""
    figure = utilisation(
        source(
            nodes=[_NODE],
            pods=[pod("a", priority=7, node_name="n", scheduled_s=0, ended_s=120, ending="Failed")],
        )
    )
    values = [share for _, share in _series(figure, "cpu")["priority 7"]]
    assert values[: BUCKETS // 2] == [25.0] * (BUCKETS // 2)
    assert values[BUCKETS // 2 :] == [0.0] * (BUCKETS // 2 + 1)


def test_a_run_of_one_instant_is_drawn_as_a_second() -> None:
    """As a list of a cluster is replayed: charts show what it became."""
    figure = utilisation(source(0, nodes=[_NODE], pods=[pod("a", node_name="n", scheduled_s=0)]))
    values = _series(figure, "cpu")["priority 0"]
    assert [values[0], values[-1]] == [[0, 25.0], [1, 25.0]]


def test_pending_pods_are_counted_from_their_creation_to_their_binding() -> None:
    """A wait shorter than a bucket is seen too; a pod that came with its node never waits."""
    figure = pending(
        source(
            pods=[
                pod("a", created_s=10.1, scheduled_s=10.2, node_name="n"),
                pod("b", created_s=120, priority=5),
                pod("c", node_name="n"),
            ]
        )
    )
    series = _series(figure)
    assert [at for at, count in series["priority 0"] if count] == [10.0]
    assert next(at for at, count in series["priority 5"] if count) == 120.0
    assert list(series) == ["priority 5", "priority 0"]


def test_many_priorities_are_put_together() -> None:
    """So that a chart stays readable and small."""
    pods = [pod(f"p{i}", priority=i) for i in range(GROUPS_MAX + 5)]
    assert len(_series(pending(source(pods=pods)))) == GROUPS_MAX + 1
    bound = [pod(f"p{i}", priority=i, waited_s=1) for i in range(GROUPS_MAX + 5)]
    assert len(_series(waiting(source(pods=bound)))) == GROUPS_MAX + 1


def test_waiting_times_add_up_to_all_bound_pods() -> None:
    """Half at once, all after ten seconds; the rest of the axis stays at 100 %."""
    figure = waiting(
        source(
            pods=[
                pod("a", waited_s=0, ending="Running"),
                pod("b", waited_s=10, ending="Failed"),
                pod("c"),
            ]
        )
    )
    assert _series(figure)["priority 0"] == [[0.001, 50.0], [10.0, 100.0], [12.0, 100.0]]
    assert figure.rows == [["0", 2, "0s", "10s", "10s", "10s", 1]]


def test_a_reason_counts_once_for_each_attempt() -> None:
    """And for the pods that are left with it at the end."""
    message = (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a: b, c}."
    )
    figure = reasons(
        source(
            attempts=[{"message": message, "uid": "x"}] * 2, pods=[pod("x", last_message=message)]
        )
    )
    assert [list(row) for row in figure.rows] == [
        ["Insufficient cpu", 2, 1],
        ["node(s) had untolerated taint {a: b, c}", 2, 1],
    ]


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (
            "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available.",
            ["Insufficient cpu"],
        ),
        ("0/9 nodes are available: 1 too many, but fine, 8 Too many pods.", None),
        ("0/2 nodes are available: pod has unbound claims.", ["pod has unbound claims"]),
        ('pod "a" is gated', ['pod "a" is gated']),
        ("no nodes available to schedule pods", ["no nodes available to schedule pods"]),
    ],
)
def test_a_message_is_taken_apart_into_reasons(message: str, found: list[str] | None) -> None:
    """Commas within a reason stay; the part about preemption is left out."""
    assert refusals(message) == (found or ["too many, but fine", "Too many pods"])


def test_the_preemption_graph_shows_which_pods_displaced_which() -> None:
    """By controller and priority, both sides kept apart even where their names are equal."""
    victim: dict[str, Any] = {
        "namespace": "default",
        "owner": "Job default/a",
        "priority": 1,
        "by_priority": 9,
    }
    victim |= {"by_namespace": "default", "by_name": "p", "by_uid": "p", "at_ns": 0, "name": "v"}
    figure = preemptions(source(preemptions=[victim | {"sequence": i} for i in range(3)]))
    (series,) = figure.charts[""]["series"]
    left = "<default: pods without a controller (9)"
    assert series["links"] == [{"source": left, "target": ">Job default/a (1)", "value": 3}]
    names = [point["name"] for point in series["data"]]
    assert names == [left, ">Job default/a (1)"]
    assert figure.rows[0][:3] == ["default/p", "9", 3]


def test_a_preemption_graph_of_thousands_stays_small() -> None:
    """The smallest are put together on each side, and none is lost."""
    rows = [
        {"by_owner": f"Job d/{i}", "owner": f"Job d/v{i}", "priority": 0, "by_priority": 1}
        | {"by_namespace": "d", "by_name": "p", "namespace": "d", "name": f"v{i}", "at_ns": 0}
        for i in range(40)
    ]
    (series,) = preemptions(source(preemptions=rows)).charts[""]["series"]
    assert len(series["data"]) <= 26
    assert sum(link["value"] for link in series["links"]) == 40


def test_evictions_are_named_by_signal_and_threshold() -> None:
    """Over time as bars, and with what was available in the table."""
    row: dict[str, Any] = {"signal": "memory.available", "threshold": "100Mi", "node_name": "n"}
    row |= {"available": "66Mi", "available_amount": 66 << 20, "at_ns": 30 * SECOND_NS}
    figure = evictions(source(evictions=[row, row | {"signal": None, "threshold": None}]))
    series = _series(figure)
    assert set(series) == {"memory.available < 100Mi", "local storage limit"}
    assert [bar for bar in series["local storage limit"] if bar[1]] == [[30.0, 1]]
    assert ["memory.available", "100Mi", 1, 1, "66Mi", "66Mi", "30s", "30s"] in figure.rows


def test_a_loop_rises_with_each_eviction() -> None:
    """Fewer than three are none."""
    row: dict[str, Any] = {"owner": "Job d/a", "signal": "memory.available", "node_name": "n"}
    rows = [row | {"uid": str(i), "sequence": i, "at_ns": i * SECOND_NS} for i in range(3)]
    assert _series(loops(source(evictions=rows))) == {"Job d/a": [[0.0, 1], [1.0, 2], [2.0, 3]]}
    assert not loops(source(evictions=rows[:2])).charts


def test_overlapping_pods_of_a_node_get_separate_lanes() -> None:
    """And in one row where they do not."""
    figure = node_timeline(
        source(
            pods=[
                pod("a", node_name="n", scheduled_s=0, ended_s=10, ending="Succeeded"),
                pod("b", node_name="n", scheduled_s=5, ended_s=20, ending="Preempted"),
                pod("c", node_name="n", scheduled_s=10, ending="Running"),
            ]
        )
    )
    lanes = {
        point["name"]: point["value"][:3]
        for series in figure.charts["n"]["series"]
        for point in series["data"]
    }
    assert lanes == {
        "default/a": [0.0, 10.0, 0],
        "default/b": [5.0, 20.0, 1],
        "default/c": [10.0, 240.0, 0],
    }


def test_a_node_of_thousands_of_pods_shows_those_that_were_displaced() -> None:
    """The rest by how long they stayed."""
    pods = [
        pod(f"p{i}", node_name="n", scheduled_s=0, ended_s=100, ending="Succeeded")
        for i in range(PODS_MAX + 10)
    ]
    pods.append(pod("v", node_name="n", scheduled_s=0, ended_s=1, ending="Preempted"))
    figure = node_timeline(source(pods=pods))
    shown = {series["name"]: len(series["data"]) for series in figure.charts["n"]["series"]}
    assert shown == {"Succeeded": PODS_MAX - 1, "Preempted": 1}


def test_free_capacity_is_shared_out_by_reason() -> None:
    """As a share of what there is; where no pod waits it has no reason."""
    row: dict[str, Any] = {"resource": "cpu", "allocatable": 1000, "waiting_pods": 2}
    rows = [
        row | {"at_ns": 0, "reason": "Insufficient memory", "free": 500},
        row | {"at_ns": SECOND_NS, "reason": "", "free": 250, "waiting_pods": 0},
    ]
    figure = fragmentation(source(free_capacity=rows))
    assert _series(figure, "cpu") == {
        "Insufficient memory": [[0.0, 50.0], [1.0, 0.0]],
        "no pod waits": [[0.0, 0.0], [1.0, 25.0]],
    }


def test_free_capacity_does_not_depend_on_the_order_of_rows() -> None:
    """Reasons with equal shares go by name: a resumed run has the undisturbed run's report."""
    rows: list[dict[str, Any]] = [
        {"resource": "cpu", "allocatable": 3000, "waiting_pods": 1, "free": free}
        | {"at_ns": second * SECOND_NS, "reason": reason}
        for second, free in enumerate((1, 100, 333))
        for reason in ("node(s) had untolerated taint", "Insufficient memory", "fits")
    ]
    shown = [fragmentation(source(free_capacity=table)) for table in (rows, rows[::-1])]
    assert shown[0].rows == shown[1].rows
    assert list(_series(shown[0], "cpu")) == list(_series(shown[1], "cpu"))


def test_latencies_are_charted_by_step() -> None:
    """From the median to the longest."""
    row: dict[str, Any] = {"step": "runRound", "count": 1, "pods": 1, "sum_ns": 9}
    row |= {"p50_ns": 5, "p90_ns": 6, "p99_ns": 7, "max_ns": 0}
    series = _series(latencies(source(latencies=[row])))
    assert series["median"] == [[5, "runRound"]]
    assert series["maximum"] == [[1, "runRound"]]


def test_an_empty_run_says_so_in_every_figure() -> None:
    """No chart is drawn of nothing."""
    empty = source()
    for make in SECTIONS:
        figure = make(empty)
        assert not figure.charts
        assert figure.empty.endswith(".")
