"""The preemptor's rules, one by one, on small clusters where only resources decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from services.framework.plugins.default_preemption.plugin import (
    POLICY_NEVER,
    VICTIM_TERMINATING,
    DefaultPreemption,
)
from services.framework.preemption.batch_dry_run import CandidateSampling
from services.framework.preemption.candidates import Candidate, DecidedBy, hashed_tie_break
from services.framework.preemption.outcome import CannotHelp, Cause, ExtenderError, Nomination
from services.framework.preemption.rules import (
    V1_16,
    V1_34,
    PreemptionRules,
    after_deletion_refused,
    after_status_refused,
)
from services.framework.status import Code
from services.kube.pod import Pod
from services.kube.selector import LabelSelector, Operator, Requirement
from tests.builders import PodBuilder, make_budget, make_pod
from tests.unit.scheduler.preemption_cluster import Cluster

NOW_NS = 1_000_000
BOTH = pytest.mark.parametrize("rules", [V1_34, V1_16], ids=lambda rules: str(rules.name))


def first(nodes: Sequence[str]) -> str:
    """Break a tie by the nodes' order."""
    return nodes[0]


def last(nodes: Sequence[str]) -> str:
    """Break a tie against the nodes' order."""
    return nodes[-1]


def preemptor_pod(cpu: str = "2", priority: int = 100) -> PodBuilder:
    """Start the pod that wants room."""
    return make_pod("high").req(cpu=cpu).priority(priority)


def held(
    name: str, node: str = "n1", *, cpu: str = "1", priority: int = 0, start: int = 10
) -> PodBuilder:
    """Start a pod on a node."""
    return make_pod(name).req(cpu=cpu).priority(priority).node(node).started(start)


def cluster(
    pod: PodBuilder | Pod, *assigned: PodBuilder, nodes: Sequence[str] = ("n1",), cpu: int = 2000
) -> Cluster:
    """Build a cluster of equal nodes."""
    return Cluster(
        pod=pod if isinstance(pod, Pod) else pod.obj(),
        allocatable={node: {"cpu": cpu, "pods": 110} for node in nodes},
        assigned=[pod.obj() for pod in assigned],
    )


def nominate(rules: PreemptionRules, where: Cluster) -> Nomination:
    """Preempt, which must work."""
    outcome = DefaultPreemption(rules=rules).post_filter(
        where.pod, where, tie_break=first, now_ns=NOW_NS
    )
    assert isinstance(outcome, Nomination)
    return outcome


def cannot(rules: PreemptionRules, where: Cluster) -> CannotHelp:
    """Preempt, which must not work."""
    outcome = DefaultPreemption(rules=rules).post_filter(
        where.pod, where, tie_break=first, now_ns=NOW_NS
    )
    assert isinstance(outcome, CannotHelp)
    return outcome


def names(pods: Sequence[Pod]) -> list[str]:
    """Name the pods."""
    return [pod.name for pod in pods]


@BOTH
def test_a_pod_that_never_preempts_leaves_its_nomination_alone(rules: PreemptionRules) -> None:
    """Policy Never is the first question."""
    outcome = cannot(rules, cluster(preemptor_pod().never_preempts(), held("low")))
    assert (outcome.cause, outcome.reason) == (Cause.NOT_ELIGIBLE, POLICY_NEVER)
    assert not outcome.clear_nomination
    assert not outcome.is_error


@BOTH
def test_a_pod_waits_for_its_own_victims(rules: PreemptionRules) -> None:
    """A preempted pod that is still terminating on the nominated node blocks."""
    where = cluster(preemptor_pod().nominated("n1"), held("low").terminating(preempted=True))
    assert cannot(rules, where).reason == VICTIM_TERMINATING


def test_only_v1_16_waits_for_a_pod_that_terminates_for_another_reason() -> None:
    """In v1.34 the condition of preemption has to be there."""
    where = cluster(preemptor_pod().nominated("n1"), held("low").terminating())
    assert cannot(V1_16, where).reason == VICTIM_TERMINATING
    assert nominate(V1_34, where).node == "n1"


def test_a_disruption_that_is_not_true_or_not_preemption_does_not_block_in_v1_34() -> None:
    """Status and reason both have to say so."""
    for status, reason in (("False", "PreemptionByScheduler"), ("True", "EvictionByEvictionAPI")):
        victim = held("low").terminating().condition("DisruptionTarget", status, reason)
        assert nominate(V1_34, cluster(preemptor_pod().nominated("n1"), victim)).node == "n1"


@BOTH
def test_a_terminating_pod_of_equal_priority_does_not_block(rules: PreemptionRules) -> None:
    """Only what the pod may preempt makes it wait."""
    where = cluster(
        preemptor_pod(cpu="1").nominated("n1"),
        held("equal", priority=100).terminating(preempted=True),
        held("low"),
    )
    assert names(nominate(rules, where).victims) == ["low"]


def test_only_v1_34_preempts_again_where_the_nominated_node_cannot_be_cured() -> None:
    """An unresolvable refusal lifts the wait."""
    where = cluster(
        preemptor_pod().nominated("n1"),
        held("low").terminating(preempted=True),
        held("other", "n2"),
        nodes=("n1", "n2"),
    )
    where.codes = {"n1": Code.UNSCHEDULABLE_AND_UNRESOLVABLE}
    assert nominate(V1_34, where).node == "n2"
    assert cannot(V1_16, where).reason == VICTIM_TERMINATING


@BOTH
def test_a_nominated_node_that_has_gone_does_not_block(rules: PreemptionRules) -> None:
    """Nobody terminates on a node that is not there."""
    where = cluster(preemptor_pod().nominated("gone"), held("low"))
    assert nominate(rules, where).node == "n1"


def test_without_nodes_preemption_is_an_error() -> None:
    """Each version has its own words; the nomination is left alone."""
    where = cluster(preemptor_pod(), nodes=())
    new, old = cannot(V1_34, where), cannot(V1_16, where)
    assert (new.message, old.message) == ("preemption: no nodes available", "")
    assert old.reason == "no nodes available to schedule pods"
    assert new.is_error
    assert not new.clear_nomination


@BOTH
def test_nodes_that_cannot_be_cured_clear_the_nomination(rules: PreemptionRules) -> None:
    """No node is tried, and all of them count as not helped."""
    where = cluster(preemptor_pod(), held("low"), nodes=("n1", "n2"))
    where.codes = dict.fromkeys(("n1", "n2"), Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
    outcome = cannot(rules, where)
    assert outcome.clear_nomination
    assert outcome.reason == (
        "0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


def test_refusals_and_untried_nodes_are_counted_together() -> None:
    """The words are those of kube-scheduler."""
    where = cluster(preemptor_pod(), held("equal", priority=100), nodes=("n1", "n2", "n3", "n4"))
    where.codes = dict.fromkeys(("n2", "n3", "n4"), Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
    assert cannot(V1_34, where).message == (
        "preemption: 0/4 nodes are available: 1 No preemption victims found for incoming pod, "
        "3 Preemption is not helpful for scheduling."
    )


def test_only_v1_34_clears_the_nomination_where_tried_nodes_do_not_help() -> None:
    """v1.16 returns without a node and without a nomination to clear."""
    where = cluster(preemptor_pod(cpu="4"), held("low"))
    assert cannot(V1_34, where).clear_nomination
    assert not cannot(V1_16, where).clear_nomination
    assert "1 Insufficient cpu" in cannot(V1_34, where).reason


def test_v1_16_takes_the_first_node_without_victims_at_once() -> None:
    """Nothing is compared any more."""
    where = cluster(preemptor_pod(), held("low", "n1"), nodes=("n1", "n2", "n3"))
    outcome = nominate(V1_16, where)
    assert (outcome.node, outcome.victims) == ("n2", ())
    assert outcome.decided_by is DecidedBy.NO_VICTIMS
    assert nominate(V1_34, where).node == "n1"


@BOTH
def test_a_reprieved_pod_is_not_a_victim(rules: PreemptionRules) -> None:
    """The most important pods that leave room stay."""
    where = cluster(
        preemptor_pod(cpu="1"), held("a", priority=1), held("b", priority=3), held("c", priority=2),
        cpu=3000,
    )  # fmt: skip
    outcome = nominate(rules, where)
    assert names(outcome.victims) == ["a"]
    assert names(outcome.reprieved) == ["b", "c"]


@BOTH
def test_of_equal_pods_the_one_that_started_last_goes(rules: PreemptionRules) -> None:
    """A pod without a start counts as started now."""
    where = cluster(
        preemptor_pod(cpu="1"), held("young", start=20), make_pod("new").req(cpu="1").node("n1"),
        held("old", start=10), cpu=3000,
    )  # fmt: skip
    assert names(nominate(rules, where).victims) == ["new"]


def test_a_guarded_pod_is_reprieved_before_a_more_important_one() -> None:
    """A high-priority unguarded pod goes to spare a low-priority guarded one."""
    where = cluster(
        preemptor_pod(cpu="1"), held("guarded", priority=1).label("app", "a"),
        held("free", priority=50),
    )  # fmt: skip
    where.all_budgets = [make_budget().match_labels(app="a").allowed(0).obj()]
    outcome = nominate(V1_34, where)
    assert names(outcome.victims) == ["free"]
    assert outcome.budget_violations == 0


def test_a_budget_is_used_up_over_all_potential_victims_in_v1_34_only() -> None:
    """v1.16 asks whether the budget allows anything at all."""
    where = cluster(
        preemptor_pod(), held("a", priority=2).label("app", "a"),
        held("b", priority=1).label("app", "a"),
    )  # fmt: skip
    where.all_budgets = [make_budget().match_labels(app="a").allowed(1).obj()]
    assert nominate(V1_34, where).budget_violations == 1
    assert nominate(V1_16, where).budget_violations == 0


def test_a_pod_that_the_budget_counts_as_disrupted_does_not_violate_it() -> None:
    """It does not use the budget up either; v1.16 does not look."""
    where = cluster(preemptor_pod(), held("a", cpu="2").label("app", "a"))
    where.all_budgets = [make_budget().match_labels(app="a").allowed(0).disrupted("a").obj()]
    assert nominate(V1_34, where).budget_violations == 0
    assert nominate(V1_16, where).budget_violations == 1


@BOTH
def test_empty_selectors_other_namespaces_and_unlabelled_pods_have_no_budget(
    rules: PreemptionRules,
) -> None:
    """None of these budgets covers a victim."""
    where = cluster(preemptor_pod(), held("plain"), held("labelled").label("app", "a"))
    unlabelled = LabelSelector(
        requirements=(Requirement(key="app", operator=Operator.DOES_NOT_EXIST),)
    )
    where.all_budgets = [
        replace(make_budget("matches-unlabelled").obj(), selector=unlabelled),
        make_budget("nil").obj(),
        make_budget("empty").match_labels().obj(),
        make_budget("away", "elsewhere").match_labels(app="a").obj(),
    ]
    assert nominate(rules, where).budget_violations == 0


def test_only_v1_34_puts_victims_in_order_of_importance() -> None:
    """v1.16 leaves those that violate a budget in front."""
    where = cluster(
        preemptor_pod(), held("guarded", priority=1).label("app", "a"), held("free", priority=50)
    )
    where.all_budgets = [make_budget().match_labels(app="a").allowed(0).obj()]
    assert names(nominate(V1_34, where).victims) == ["free", "guarded"]
    assert names(nominate(V1_16, where).victims) == ["guarded", "free"]


@BOTH
@pytest.mark.parametrize(
    ("better", "worse", "decided_by"),
    [
        ([held("a", priority=9, cpu="2")], [held("z", cpu="2").label("app", "guarded")],
         DecidedBy.BUDGET_VIOLATIONS),
        ([held("a", priority=1, cpu="2")], [held("z", priority=2, cpu="2")],
         DecidedBy.HIGHEST_PRIORITY),
        ([held("a", priority=2, cpu="2")], [held("y", priority=2), held("z", priority=-9)],
         DecidedBy.SUM_PRIORITIES),
        ([held("a", cpu="2")], [held("y"), held("z", priority=-(2**31))],
         DecidedBy.NUM_VICTIMS),
        ([held("a", cpu="2", start=30)], [held("z", cpu="2", start=20)],
         DecidedBy.LATEST_START),
    ],
)  # fmt: skip
def test_a_criterion_decides_if_earlier_criteria_are_equal(
    rules: PreemptionRules, better: list[PodBuilder], worse: list[PodBuilder], decided_by: DecidedBy
) -> None:
    """The better node stands second, so that order does not help it."""
    assigned = [replace(pod.obj(), node_name="worse") for pod in worse]
    assigned += [replace(pod.obj(), node_name="better") for pod in better]
    where = cluster(preemptor_pod(), nodes=("worse", "better"))
    where.assigned = assigned
    where.all_budgets = [make_budget().match_labels(app="guarded").allowed(0).obj()]
    outcome = nominate(rules, where)
    assert (outcome.node, outcome.decided_by) == ("better", decided_by)
    assert (outcome.ties, outcome.candidates) == (("better",), 2)


def test_the_last_tie_is_the_callers_in_v1_34_and_the_first_nodes_in_v1_16() -> None:
    """All equal nodes are listed."""
    where = cluster(
        preemptor_pod(), held("a", "n1", cpu="2"), held("b", "n2", cpu="2"), nodes=("n1", "n2")
    )
    found = [
        DefaultPreemption(rules=rules).post_filter(where.pod, where, tie_break=last, now_ns=NOW_NS)
        for rules in (V1_34, V1_16)
    ]
    picked = [
        (outcome.node, outcome.ties, outcome.decided_by)
        for outcome in found
        if isinstance(outcome, Nomination)
    ]
    tie = DecidedBy.TIE
    assert picked == [("n2", ("n1", "n2"), tie), ("n1", ("n1", "n2"), tie)]


def test_a_hashed_tie_break_depends_on_its_identity_only() -> None:
    """The order of the nodes does not matter; another attempt may choose otherwise."""
    nodes = [f"n{index}" for index in range(50)]
    choose = hashed_tie_break(seed=1, uid="u", attempt_number=1)
    assert choose(nodes) == choose(nodes[::-1])
    assert len({hashed_tie_break(seed=1, uid="u", attempt_number=n)(nodes) for n in range(20)}) > 1


def test_nominated_pods_of_higher_priority_keep_their_room() -> None:
    """Only lower nominations are cleared from the picked node."""
    where = cluster(preemptor_pod(cpu="1"), held("low", cpu="2"), cpu=2000)
    where.nominated = [
        make_pod("higher").req(cpu="1").priority(200).nominated("n1").obj(),
        make_pod("lower").req(cpu="1").priority(50).nominated("n1").obj(),
        make_pod("equal").req(cpu="0").priority(100).nominated("n1").obj(),
        make_pod("elsewhere").req(cpu="1").priority(50).nominated("n2").obj(),
    ]
    assert names(nominate(V1_34, where).cleared_nominations) == ["lower"]


def test_v1_34_does_not_delete_a_terminating_victim() -> None:
    """With nothing to delete, lower nominations stay too; v1.16 deletes again."""
    where = cluster(preemptor_pod(), held("low", cpu="2").terminating())
    where.nominated = [make_pod("lower").priority(50).nominated("n1").obj()]
    new, old = nominate(V1_34, where), nominate(V1_16, where)
    assert (names(new.victims), new.deletions, new.cleared_nominations) == (["low"], (), ())
    assert names(old.deletions) == ["low"]
    assert names(old.cleared_nominations) == ["lower"]


def test_a_picked_node_that_has_gone_is_an_error_in_v1_16() -> None:
    """The snapshot may have lost the node."""
    where = cluster(preemptor_pod(), held("low"))
    where.gone = frozenset({"n1"})
    outcome = cannot(V1_16, where)
    assert outcome.cause is Cause.NODE_GONE
    assert outcome.reason == (
        "preemption failed: the target node n1 has been deleted from scheduler cache"
    )


def test_a_limited_search_begins_at_its_offset_and_stops_when_it_has_enough() -> None:
    """At least one candidate without violations is wanted before it stops."""
    where = cluster(
        preemptor_pod(), *(held(f"p{n}", f"n{n}", cpu="2") for n in range(5)),
        nodes=[f"n{n}" for n in range(5)],
    )  # fmt: skip
    limited = DefaultPreemption(rules=V1_34, sampling=CandidateSampling(percentage=50, absolute=1))
    evaluation = limited.evaluate(
        where.pod, where, tie_break=lambda nodes: nodes[3 % len(nodes)], now_ns=NOW_NS
    )
    assert [candidate.candidate.node for candidate in evaluation.candidates] == ["n3", "n4"]


def test_a_limited_search_continues_until_one_candidate_violates_no_budget() -> None:
    """Those without violations stand first, and no more are kept of each kind than wanted."""
    guarded = [held(f"p{n}", f"n{n}", cpu="2").label("app", "a") for n in range(3)]
    where = cluster(
        preemptor_pod(), *guarded, held("p3", "n3", cpu="2"), held("p4", "n4", cpu="2"),
        nodes=[f"n{n}" for n in range(5)],
    )  # fmt: skip
    where.all_budgets = [make_budget().match_labels(app="a").allowed(0).obj()]
    limited = DefaultPreemption(rules=V1_34, sampling=CandidateSampling(percentage=0, absolute=2))
    evaluation = limited.evaluate(where.pod, where, tie_break=first, now_ns=NOW_NS)
    assert [candidate.candidate.node for candidate in evaluation.candidates] == ["n3", "n0", "n1"]


def test_extenders_narrow_the_candidates() -> None:
    """The node is picked among those they leave."""
    where = cluster(
        preemptor_pod(), held("a", "n1", priority=9), held("b", "n2"), nodes=("n1", "n2")
    )

    def only_n1(_: Pod, candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        return tuple(candidate for candidate in candidates if candidate.node == "n1")

    outcome = DefaultPreemption(rules=V1_34, narrow=only_n1).post_filter(
        where.pod, where, tie_break=first, now_ns=NOW_NS
    )
    assert isinstance(outcome, Nomination)
    assert (outcome.node, outcome.decided_by) == ("n1", DecidedBy.ONLY_CANDIDATE)


@pytest.mark.parametrize(
    ("answer", "message", "is_error"),
    [
        (ExtenderError(message="timeout"), "preemption: timeout", True),
        ((), "preemption: no candidate node for preemption", False),
    ],
)
def test_extenders_that_leave_nothing_leave_the_nomination_alone(
    answer: ExtenderError | tuple[()], message: str, *, is_error: bool
) -> None:
    """A failure is an error, an empty answer is not."""
    where = cluster(preemptor_pod(), held("low"))
    outcome = DefaultPreemption(rules=V1_34, narrow=lambda _pod, _candidates: answer).post_filter(
        where.pod, where, tie_break=first, now_ns=NOW_NS
    )
    assert isinstance(outcome, CannotHelp)
    assert (outcome.message, outcome.is_error) == (message, is_error)
    assert not outcome.clear_nomination


def test_victims_go_after_lower_nominations_in_v1_34_and_before_them_in_v1_16() -> None:
    """The world receives it."""
    where = cluster(preemptor_pod(), held("low", cpu="2"))
    assert not nominate(V1_34, where).clears_last
    assert nominate(V1_16, where).clears_last


def test_a_refused_status_ends_the_preemption_in_v1_16_only() -> None:
    """v1.34 has nothing that ties the deletions to the status."""
    assert after_status_refused(V1_16).forget_nomination
    assert not after_status_refused(V1_34).forget_nomination


@BOTH
def test_a_refused_deletion_keeps_the_nomination(rules: PreemptionRules) -> None:
    """Only v1.34 tries the pod again at once."""
    left = after_deletion_refused(rules)
    assert not left.forget_nomination
    assert left.activate == (rules is V1_34)
