"""How full the nodes of a run were over time, against figures computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.results.run.directory import RunDirectory
from replay.whatif.compared import compare_runs
from replay.whatif.comparison import PodEffect, pod_effects
from replay.whatif.facts import all_figures, read_facts
from replay.whatif.occupancy import TYPICAL_PODS, Requests, typical
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.builders import make_node
from tests.unit.results import messages
from tests.unit.whatif.test_facts import run_of

LENGTH_S = 128
"""So that fragmentation is measured at each odd second."""


def pod(name: str, cpu: str, **made: object) -> pod_pb2.Pod:
    """Return a pod that requests some CPU."""
    message = messages.pod_message(name, **made)  # type: ignore[arg-type] # as it is
    message.spec.containers[0].resources.requests["cpu"] = cpu
    return message


def bound(name: str, node: str, at_s: int) -> tuple[scheduler_pb2.Round, trace_pb2.Decision]:
    """Return a binding as the history and as the log have it; the scheduler claims no wait."""
    event = messages.patched(name, at_s, node_name=node)
    return messages.round_of(event, at_s=at_s), messages.scheduled(name, node, at_s)


def nodes() -> scheduler_pb2.Round:
    """Return a node of 4 cores and one of 2, at the beginning."""
    four, two = (
        make_node(name).capacity(cpu=cpu, pods=10).message()
        for name, cpu in (("four", "4"), ("two", "2"))
    )
    return messages.round_of(messages.added(four), messages.added(two))


def two_pods(path: Path) -> RunDirectory:
    """Leave a run of 128 s.

    `large`, of 2 cores, waits 16 s, gets `four` and is removed at 96 s; `small`, of 1 core, waits
    from 32 s to 64 s and gets `two`.
    """
    large, decided_large = bound("large", "four", 16)
    small, decided_small = bound("small", "two", 64)
    return run_of(
        path,
        nodes(),
        messages.round_of(messages.added(pod("large", "2"))),
        large,
        messages.round_of(messages.added(pod("small", "1"), 32), at_s=32),
        small,
        messages.round_of(messages.deleted("large", 96), at_s=96),
        decisions=(decided_large, decided_small),
        ended=("finished", LENGTH_S),
    )


def test_utilisation_is_the_integral_over_time_and_its_largest_value(tmp_path: Path) -> None:
    """2 cores for 80 s and 1 core for 64 s, of 6 cores for 128 s; 3 of 6 cores at most."""
    figures = all_figures(read_facts(two_pods(tmp_path / "run")))
    assert figures["allocated_mean{resource=cpu}"] == pytest.approx(100 * 224 / 768)
    assert figures["allocated_peak{resource=cpu}"] == 50
    assert figures["allocated{resource=cpu}"] == pytest.approx(100 / 6)


def test_empty_nodes_are_counted_over_time(tmp_path: Path) -> None:
    """`four` is empty for 16 s and then for 32 s, `two` for 64 s."""
    figures = all_figures(read_facts(two_pods(tmp_path / "run")))
    assert figures["node_hours"] == pytest.approx(2 * 128 / 3600)
    assert figures["empty_node_hours"] == pytest.approx(112 / 3600)


def test_a_node_with_pods_of_daemon_sets_alone_is_empty(tmp_path: Path) -> None:
    """A drain moves neither these nor mirror pods."""
    daemon = pod("daemon", "1", node_name="four", phase="Running", owner_uid="set")
    daemon.metadata.owner_references[0].kind = "DaemonSet"
    static = pod("static", "1", node_name="two", phase="Running")
    static.metadata.annotations["kubernetes.io/config.mirror"] = "hash"
    rounds = nodes(), messages.round_of(messages.added(daemon), messages.added(static))
    run = run_of(tmp_path / "run", *rounds, ended=("finished", 3600))
    figures = all_figures(read_facts(run))
    assert (figures["node_hours"], figures["empty_node_hours"]) == (2, 2)
    assert figures["allocated_mean{resource=cpu}"] == pytest.approx(100 * 2 / 6)


def test_fragmentation_is_what_is_free_where_pods_do_not_fit(tmp_path: Path) -> None:
    """From 64 s on `two` has 1 core, which `large` cannot use, and `small` could."""
    figures = all_figures(read_facts(two_pods(tmp_path / "run")))
    assert figures["fragmentation{resource=cpu}"] == pytest.approx(100 * 0.5 * 64 / 768)
    assert figures["fragmentation{resource=pods}"] == pytest.approx(100 * 0.5 * 9 * 64 / (20 * 128))


def test_typical_requests_are_those_at_even_places() -> None:
    """A hundred kinds of pods, of which the first is as frequent as all others."""
    pods: dict[Requests, int] = {
        (("cpu", number), ("pods", 1)): 99 if number == 1 else 1 for number in range(1, 101)
    }
    chosen = typical(pods, "cpu")
    assert sum(chosen.values()) == TYPICAL_PODS
    assert chosen[(("cpu", 1), ("pods", 1))] == TYPICAL_PODS / 2
    assert typical(pods, "memory") == {}


def test_waits_are_the_worlds_and_not_what_the_scheduler_says(tmp_path: Path) -> None:
    """The log says that neither pod waited."""
    figures = all_figures(read_facts(two_pods(tmp_path / "run")))
    assert (figures["waited_mean"], figures["waited_max"]) == (24, 32)


def test_pods_without_a_node_count_with_their_wait_so_far(tmp_path: Path) -> None:
    """One still waits, for 28 s; one was removed after 50 s; a gated one does not wait yet."""
    gated = pod("gated", "1")
    gated.spec.scheduling_gates.add(name="example.com/gate")
    first = messages.round_of(messages.added(gated), messages.added(pod("gone", "9")))
    run = run_of(
        tmp_path / "run",
        nodes(),
        first,
        messages.round_of(messages.deleted("gone", 50), at_s=50),
        messages.round_of(messages.added(pod("waits", "9"), 100), at_s=100),
        ended=("finished", LENGTH_S),
    )
    figures = all_figures(read_facts(run))
    assert (figures["waited_so_far_mean"], figures["waited_so_far_max"]) == (39, 50)
    assert (figures["waited_so_far_p50"], figures["waited_mean"]) == (50, None)
    assert (figures["still_waiting_mean"], figures["still_waiting_max"]) == (28, 28)
    assert figures["pending"] == 2


def test_a_pod_waits_from_when_its_last_gate_went(tmp_path: Path) -> None:
    """Its time with a gate is not the scheduler's."""
    gated = pod("p", "1")
    gated.spec.scheduling_gates.add(name="example.com/gate")
    free = messages.added(pod("p", "1"), 10)
    free.update.CopyFrom(free.add)
    history, decided = bound("p", "two", 14)
    rounds = nodes(), messages.round_of(messages.added(gated)), messages.round_of(free, at_s=10)
    run = run_of(tmp_path / "run", *rounds, history, decisions=(decided,))
    assert all_figures(read_facts(run))["waited_max"] == 4
    unbound = run_of(tmp_path / "unbound", *rounds, ended=("finished", 40))
    figures = all_figures(read_facts(unbound))
    assert (figures["still_waiting_max"], figures["waited_so_far_max"]) == (30, 30)


def test_a_gated_pod_does_not_wait_for_a_node(tmp_path: Path) -> None:
    """In B its gate goes after 2 s; it waits from then on."""
    gated = pod("p", "1")
    gated.spec.scheduling_gates.add(name="example.com/gate")
    added = messages.round_of(messages.added(gated))
    a = run_of(tmp_path / "a", nodes(), added, ended=("finished", 8))
    facts = read_facts(a)
    assert facts.pods["default/p"].pending
    assert not facts.waits(facts.pods["default/p"], facts.length_ns)
    free = messages.added(pod("p", "9"), 2)
    free.update.CopyFrom(free.add)
    b = run_of(
        tmp_path / "b", nodes(), added, messages.round_of(free, at_s=2), ended=("finished", 8)
    )
    effects = list(pod_effects("default/p", facts, read_facts(b)))
    assert effects == [PodEffect("still waiting longer", 6 * 10**9)]


def preempted(name: str, at_s: int) -> trace_pb2.Decision:
    """Return a preemption."""
    decision = messages.decision(name, at_s)
    decision.observed.preempted.by.name = "preemptor"
    return decision


def test_work_lost_is_the_time_that_preempted_pods_had_run(tmp_path: Path) -> None:
    """30 s of a pod that started at 20 s; 55 s of one that ran 5 s before the beginning."""
    ran = pod("ran", "1", node_name="four", phase="Running")
    ran.status.start_time.seconds = messages.START_NS // 10**9 - 5
    started = messages.decision("started", 20)
    started.observed.started.node_name = "four"
    history, decided = bound("started", "four", 10)
    never, unstarted = bound("never", "two", 10)
    added = [messages.added(pod(name, "1")) for name in ("started", "never")]
    run = run_of(
        tmp_path / "run",
        nodes(),
        messages.round_of(messages.added(ran), *added),
        history,
        never,
        decisions=(
            *(decided, unstarted, started),
            *(preempted(name, 50) for name in ("started", "never", "ran")),
        ),
    )
    figures = all_figures(read_facts(run, LENGTH_S * 10**9))
    assert (figures["preempted"], figures["work_lost"]) == (3, 85)


def test_a_run_that_was_stopped_ends_the_comparison_for_both(tmp_path: Path) -> None:
    """Nothing that B does later counts, since A decides no more."""
    a = run_of(
        tmp_path / "a",
        nodes(),
        messages.round_of(messages.added(pod("large", "2"))),
        ended=("the time of --until is reached", 48),
    )
    compared = compare_runs(a, two_pods(tmp_path / "b"), explains=False)
    figures = {figure.name: (figure.a, figure.b) for figure in compared.comparison.figures}
    assert figures["node_hours"] == pytest.approx((96 / 3600, 96 / 3600))
    assert figures["allocated_mean{resource=cpu}"] == pytest.approx((0, 100 * 64 / 288))
    assert figures["still_waiting_max"] == (48, 16)
    assert figures["bindings"] == (0, 1)
    assert "A ends at 48s and B at 2m8s: all figures are of the time until 48s." in list(
        compared.notes()
    )


def test_a_run_that_ended_by_itself_stays_as_it_is(tmp_path: Path) -> None:
    """Its pending pods wait on, and its empty nodes stand until the other run ends."""
    a = run_of(
        tmp_path / "a",
        nodes(),
        messages.round_of(messages.added(pod("large", "2"))),
        ended=("finished", 0),
    )
    compared = compare_runs(a, two_pods(tmp_path / "b"), explains=False)
    figures = {figure.name: (figure.a, figure.b) for figure in compared.comparison.figures}
    assert figures["empty_node_hours"] == pytest.approx((256 / 3600, 112 / 3600))
    assert figures["waited_so_far_max"] == (128, 32)
    assert "Only B has default/small." in list(compared.notes())


def test_both_runs_are_judged_by_the_same_pods(tmp_path: Path) -> None:
    """`huge` is in B alone, fits nowhere, and makes what is free in A as fragmented as in B."""
    a = run_of(tmp_path / "a", nodes(), ended=("finished", LENGTH_S))
    huge = messages.round_of(messages.added(pod("huge", "9")))
    b = run_of(tmp_path / "b", nodes(), huge, ended=("finished", LENGTH_S))
    compared = compare_runs(a, b, explains=False)
    figures = {figure.name: (figure.a, figure.b) for figure in compared.comparison.figures}
    assert figures["fragmentation{resource=cpu}"] == (100, 100)
