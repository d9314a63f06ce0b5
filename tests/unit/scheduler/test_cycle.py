"""A scheduling cycle's choice, and its words where there is none."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from services.framework.runtime.diagnosis import Unschedulable, fit_error_text, reason_counts
from services.framework.runtime.failed_cycle import FitError
from services.framework.runtime.framework import Framework
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code
from services.kube.pod import Pod
from services.kube.selector import NodeSelectorTerm
from services.scheduler.core.cycle.attempt import CycleRecorder, CycleResult, ProfileCycles
from services.scheduler.core.cycle.host_choice import KeyedChoice, NamedChoice, RoundRobinChoice
from services.scheduler.core.decisions import Binding
from tests.builders import make_node, make_pod, requirement
from tests.cycles import evaluate


def cluster(cpus: dict[str, str]) -> Snapshot:
    """Return a snapshot of nodes with so many CPUs."""
    snapshot = Snapshot()
    for name, cpu in cpus.items():
        snapshot.set_node(make_node(name).capacity(cpu=cpu, memory="8Gi").obj())
    return snapshot


def schedule(snapshot: Snapshot, pod: Pod, *, seed: int = 0, attempt: int = 1) -> CycleResult:
    """Run one cycle of the default profile."""
    return ProfileCycles(Framework(snapshot), KeyedChoice(seed)).schedule_pod(pod, attempt)


def names(*nodes: str) -> NodeSelectorTerm:
    """Return the term that names nodes, by which PreFilter leaves out all others."""
    return NodeSelectorTerm(match_fields=(requirement("metadata.name", "In", *nodes),))


def node_of(result: CycleResult) -> str:
    """Return the node of a suggestion."""
    assert isinstance(result, Binding)
    return result.node_name


def test_the_node_with_the_best_total_is_taken() -> None:
    """The larger one is emptier afterwards."""
    result = schedule(cluster({"small": "2", "large": "8"}), make_pod().req(cpu="1").obj())
    assert isinstance(result, Binding)
    assert (result.node_name, result.feasible, result.evaluated) == ("large", 2, 2)
    assert result.tied == 1
    assert result.total is not None


def test_without_any_node_nothing_can_be_done() -> None:
    """Not even preemption."""
    assert schedule(Snapshot(), make_pod().obj()) == Unschedulable(
        message="no nodes available to schedule pods", nominated_node_name=""
    )


def test_the_only_node_that_fits_is_not_scored() -> None:
    """As upstream returns at once."""
    result = schedule(cluster({"a": "1", "b": "4"}), make_pod().req(cpu="2").obj())
    assert isinstance(result, Binding)
    assert (result.node_name, result.feasible, result.total) == ("b", 1, None)


def test_reasons_are_counted_and_sorted_as_texts() -> None:
    """kube-scheduler's own words."""
    snapshot = cluster({"a": "1", "b": "1", "c": "1"})
    snapshot.set_node(make_node("d").taint("k", "v").obj())
    result = schedule(snapshot, make_pod().req(cpu="2").obj())
    assert isinstance(result, FitError)
    text = "0/4 nodes are available: 1 node(s) had untolerated taint {k: v}, 3 Insufficient cpu."
    assert fit_error_text(result.diagnosis) == text
    after = "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
    assert fit_error_text(result.diagnosis, after) == f"{text} {after}"
    assert reason_counts(result.diagnosis) == (
        ("Insufficient cpu", 3),
        ("node(s) had untolerated taint {k: v}", 1),
    )
    assert result.diagnosis.unschedulable_plugins == ("NodeResourcesFit", "TaintToleration")


def test_a_diagnosis_lists_rows_by_code() -> None:
    """Where preemption may help, and where not."""
    snapshot = cluster({"tiny": "1", "full": "4"})
    snapshot.set_pod(make_pod("holder").req(cpu="3").node("full").obj())
    result = schedule(snapshot, make_pod().req(cpu="2").obj())
    assert isinstance(result, FitError)
    rows = snapshot.rows_in_order()
    said = {code: rows[result.diagnosis.refused_with(code, rows)].tolist() for code in Code}
    assert said[Code.UNSCHEDULABLE] == [snapshot.row("full")]
    assert said[Code.UNSCHEDULABLE_AND_UNRESOLVABLE] == [snapshot.row("tiny")]
    assert result.diagnosis.status(said[Code.UNSCHEDULABLE][0]).reasons == ("Insufficient cpu",)


def test_ties_follow_seed_pod_and_attempt_and_nothing_else() -> None:
    """The same identity chooses the same node; another one spreads."""
    snapshot = cluster({f"n{i}": "4" for i in range(8)})
    pod = make_pod().req(cpu="1").obj()
    assert node_of(schedule(snapshot, pod)) == node_of(schedule(snapshot, pod))
    assert len({node_of(schedule(snapshot, pod, seed=seed)) for seed in range(30)}) > 3
    assert len({node_of(schedule(snapshot, pod, attempt=n)) for n in range(30)}) > 3
    others = (replace(pod, uid=f"u{n}") for n in range(30))
    assert len({node_of(schedule(snapshot, other)) for other in others}) > 3


def test_a_tie_does_not_depend_on_the_order_in_which_nodes_came() -> None:
    """Nor on nodes that have gone since."""
    names = [f"n{i}" for i in range(6)]
    forwards, backwards = cluster(dict.fromkeys(names, "4")), cluster({"gone": "4"})
    for name in reversed(names):
        backwards.set_node(make_node(name).capacity(cpu="4", memory="8Gi").obj())
    backwards.remove_node("gone")
    pod = make_pod().req(cpu="1").obj()
    assert node_of(schedule(forwards, pod)) == node_of(schedule(backwards, pod))


def test_round_robin_takes_the_best_nodes_in_turn_zone_by_zone() -> None:
    """The preset v1.16; one feasible node alone does not advance the index."""
    snapshot = Snapshot()
    for name, zone in [("a1", "a"), ("a2", "a"), ("b1", "b")]:
        snapshot.set_node(make_node(name).capacity(cpu="4").zone(zone).obj())
    choice = RoundRobinChoice()
    cycles = ProfileCycles(Framework(snapshot), choice)
    pod, named = make_pod().obj(), make_pod().node("a2").obj()
    taken = [
        node_of(cycles.schedule_pod(attempted, 1)) for attempted in (pod, pod, named, pod, pod)
    ]
    assert taken == ["a1", "b1", "a2", "a2", "a1"]
    assert choice.last_node_index == 4


def test_ties_by_name_take_the_least_name_among_the_best() -> None:
    """Whatever the order in which nodes came, the pod, and the rows of nodes that have gone."""
    snapshot = cluster({"n3": "4", "gone": "4", "n10": "4", "n2": "4", "a-small-one": "1"})
    snapshot.remove_node("gone")
    cycles = ProfileCycles(Framework(snapshot), NamedChoice())
    pods = [make_pod(f"pod-{number}").req(cpu="500m").obj() for number in range(5)]
    assert {node_of(cycles.schedule_pod(pod, 1)) for pod in pods} == {"n10"}
    snapshot.set_node(make_node("n1").capacity(cpu="4", memory="8Gi").obj())
    result = cycles.schedule_pod(pods[0], 1)
    assert isinstance(result, Binding)
    assert (result.node_name, result.tied, result.feasible) == ("n1", 4, 5)


def test_a_nominated_node_is_taken_without_looking_further() -> None:
    """Even where another one scores better."""
    snapshot = cluster({"small": "2", "large": "8"})
    result = schedule(snapshot, make_pod().req(cpu="1").nominated("small").obj())
    assert isinstance(result, Binding)
    assert (result.node_name, result.evaluated) == ("small", 1)


def test_the_older_versions_score_the_nominated_node_among_the_others() -> None:
    """They have no short cut for it."""
    snapshot = cluster({"small": "2", "large": "8"})
    cycles = ProfileCycles(Framework(snapshot), RoundRobinChoice(), nominated_first=False)
    assert node_of(cycles.schedule_pod(make_pod().req(cpu="1").nominated("small").obj(), 1)) == (
        "large"
    )


def test_a_nominated_node_that_does_not_fit_or_has_gone_is_passed_over() -> None:
    """All nodes are looked at then."""
    snapshot = cluster({"small": "1", "large": "8"})
    for nominated in ("small", "gone"):
        assert node_of(schedule(snapshot, make_pod().req(cpu="2").nominated(nominated).obj())) == (
            "large"
        )


def test_a_nominated_node_is_tried_although_pre_filter_names_others() -> None:
    """Its own refusal stays in the diagnosis, beside the others' and for preemption to see."""
    snapshot = cluster(dict.fromkeys("abc", "4"))
    pod = make_pod().req(cpu="8").required_terms(names("a")).nominated("b").obj()
    result = schedule(snapshot, pod)
    assert isinstance(result, FitError)
    diagnosis = result.diagnosis
    assert fit_error_text(diagnosis) == (
        "0/3 nodes are available: 1 Insufficient cpu, "
        "1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )
    assert diagnosis.unschedulable_plugins == ("NodeAffinity", "NodeResourcesFit")
    verdicts = evaluate(Framework(snapshot), pod)
    assert verdicts.refusals["b"].reasons == ("node(s) didn't match Pod's node affinity/selector",)
    assert verdicts.pre_filtered == {"c"}


def test_a_nominated_node_among_many_counts_as_evaluated_once() -> None:
    """The node that PreFilter names is looked at, and the nominated one was."""
    snapshot = cluster(dict.fromkeys("abc", "4"))
    for nominated, evaluated in (("b", 2), ("a", 1), ("gone", 1), ("", 1)):
        pod = make_pod().req(cpu="1").required_terms(names("a")).nominated(nominated).obj()
        result = schedule(snapshot, pod)
        assert isinstance(result, Binding)
        assert (result.node_name, result.evaluated) == ("a", evaluated)


def test_only_the_versions_that_try_a_nominated_node_first_show_its_own_refusal() -> None:
    """In the others it is one of those that PreFilter left out."""
    snapshot = cluster(dict.fromkeys("ab", "4"))
    pod = make_pod().req(cpu="8").required_terms(names("a")).nominated("b").obj()
    verdicts = evaluate(Framework(snapshot), pod, nominated_first=False)
    assert verdicts.pre_filtered == {"b"}


def test_room_is_reserved_for_nominated_pods_of_equal_or_higher_priority() -> None:
    """A pod of higher priority need not leave any."""
    snapshot = cluster({"a": "4"})
    waiting = make_pod("waiting").req(cpu="3").priority(5).obj()
    snapshot.nominations.put(waiting, "a")
    result = schedule(snapshot, make_pod().req(cpu="2").priority(5).obj())
    assert isinstance(result, FitError)
    assert fit_error_text(result.diagnosis) == "0/1 nodes are available: 1 Insufficient cpu."
    assert node_of(schedule(snapshot, make_pod().req(cpu="2").priority(6).obj())) == "a"
    assert node_of(schedule(snapshot, waiting)) == "a"


def test_a_nominated_pod_may_request_a_resource_that_no_node_has() -> None:
    """Its resource is new to the snapshot, and takes nothing from the others."""
    snapshot = cluster({"a": "4"})
    odd = make_pod("odd").req({"example.com/new": 1}).priority(9).obj()
    snapshot.nominations.put(odd, "a")
    assert node_of(schedule(snapshot, make_pod().req(cpu="2").obj())) == "a"


def test_only_named_nodes_count_as_evaluated() -> None:
    """PreFilter leaves the others out."""
    snapshot = cluster(dict.fromkeys("abc", "4"))
    pod = make_pod().required_terms(names("a"), names("b")).obj()
    result = schedule(snapshot, pod)
    assert isinstance(result, Binding)
    assert (result.evaluated, result.feasible) == (2, 2)


def test_phases_are_timed_only_by_a_stopwatch_from_outside() -> None:
    """The core reads no clock."""
    ticks = count(0, 10)
    framework = Framework(cluster({"a": "4", "b": "4"}))
    recorder = CycleRecorder(lambda: next(ticks))
    cycles = ProfileCycles(framework, KeyedChoice(0))
    assert node_of(cycles.schedule_pod(make_pod().obj(), 1, recorder))
    assert recorder.phases_ns == {"PreFilter": 10, "Filter": 10, "Score": 10}


def test_only_phases_that_ran_are_timed() -> None:
    """PreFilter runs for the first pod of a shape; one feasible node alone is not scored."""
    ticks = count(0, 10)
    framework = Framework(cluster({"a": "1", "b": "4"}))
    cycles = ProfileCycles(framework, KeyedChoice(0))
    pod = make_pod().req(cpu="2").obj()
    phases = []
    for recorder in (CycleRecorder(lambda: next(ticks)), CycleRecorder(lambda: next(ticks))):
        assert node_of(cycles.schedule_pod(pod, 1, recorder)) == "b"
        phases.append(list(recorder.phases_ns))
    assert phases == [["PreFilter", "Filter"], ["Filter"]]


@pytest.mark.parametrize("nodes", [1, 40])
def test_a_cycle_changes_nothing(nodes: int) -> None:
    """Neither the snapshot's numbers nor its logs."""
    snapshot = cluster({f"n{i}": "4" for i in range(nodes)})
    before, end = snapshot.columns.requested.copy(), snapshot.pod_log.end
    schedule(snapshot, make_pod().req(cpu="1").obj())
    assert np.array_equal(before, snapshot.columns.requested)
    assert snapshot.pod_log.end == end
