"""percentageOfNodesToScore: how many nodes are looked for, and where the search begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from services.framework.plugins.in_tree import DEFAULT_PROFILE
from services.framework.preemption.candidates import Candidate
from services.framework.profile import Profile
from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.selector import NodeSelectorTerm
from services.scheduler.core.cycle.extenders import (
    Extender,
    ExtenderTerms,
    FilterAnswer,
    NodeVictims,
)
from services.scheduler.core.cycle.host_choice import NamedChoice, nodes_to_find
from services.scheduler.core.decisions import Binding, Decision
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import Head, PopId
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from tests.builders import make_node, make_pod, requirement


@pytest.mark.parametrize(
    ("nodes", "percentage", "enough"),
    [
        (99, 10, 99),
        (100, 10, 100),
        (1000, 0, 420),
        (5000, 0, 500),
        (6000, 0, 300),
        (20_000, 0, 1000),
        (1000, 30, 300),
        (1000, 5, 100),
        (1000, 100, 1000),
    ],
)
def test_enough_nodes_are_a_share_of_all(nodes: int, percentage: int, enough: int) -> None:
    """At least 100, and adaptive where nothing is said."""
    assert nodes_to_find(nodes, percentage) == enough


class EvenOnly:
    """An extender that refuses the nodes of odd numbers."""

    terms = ExtenderTerms(name="even", filters=True)

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterAnswer:  # noqa: ARG002 - all alike
        """Let the others pass."""
        odd = {node.name: "odd" for node in nodes if int(node.name[1:]) % 2}
        return FilterAnswer(
            passed=tuple(node.name for node in nodes if node.name not in odd), failed=odd
        )

    def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Sequence[tuple[str, int]]:  # noqa: ARG002 - unused
        """Give no scores."""
        return ()

    def process_preemption(
        self, pod: Pod, candidates: Sequence[Candidate]
    ) -> Sequence[NodeVictims]:
        """Take no part in preemption."""
        raise NotImplementedError

    def bind(self, pod: Pod, node_name: str) -> None:
        """Take no part in binding."""
        raise NotImplementedError


def scheduler_of(
    nodes: int,
    *,
    sampling: int | None,
    percentage: int | None = None,
    by_name: bool = False,
    extenders: tuple[Extender, ...] = (),
) -> Scheduler:
    """Return a scheduler of empty nodes, the first one of which is full."""
    profile = Profile(plugins=DEFAULT_PROFILE.plugins, percentage_of_nodes_to_score=percentage)
    rules = RULES["v1.34"]
    scheduler = Scheduler(
        SchedulerOptions(
            rules=replace(rules, host_choice=lambda _seed: NamedChoice()) if by_name else rules,
            queue=QUEUE_TRAITS["v1.34"],
            profiles=(profile,),
            sampling=sampling,
            extenders=extenders,
        )
    )
    for number in range(nodes):
        cpu = "1" if number == 0 else "64"
        scheduler.put_node(make_node(f"n{number:03}").capacity(cpu=cpu, memory="64Gi").obj())
    return scheduler


def decisions(scheduler: Scheduler, pods: int) -> Iterator[Decision]:
    """Yield what is decided about pods, one after the other."""
    for number in range(pods):
        pod = make_pod(f"p{number}").req(cpu="2").obj()
        scheduler.put_pod(pod)
        head = Head(pop=PopId(pod.uid, number), attempts=1, first_enqueued_ns=0, queued_ns=0)
        yield scheduler.decide(head, 0)


def bindings(scheduler: Scheduler, pods: int) -> list[Binding]:
    """Return where pods are bound."""
    verdicts = [decision.verdict for decision in decisions(scheduler, pods)]
    assert all(isinstance(verdict, Binding) for verdict in verdicts)
    return [verdict for verdict in verdicts if isinstance(verdict, Binding)]


def test_the_next_pod_begins_where_the_last_one_stopped() -> None:
    """100 of 250 nodes are enough; a node that does not fit is looked at and not counted."""
    bound = bindings(scheduler_of(250, sampling=40), 3)
    assert [(verdict.evaluated, verdict.feasible) for verdict in bound] == [
        (101, 100),
        (100, 100),
        (101, 100),
    ]
    places = [int(verdict.node_name[1:]) for verdict in bound]
    assert 1 <= places[0] <= 100
    assert 101 <= places[1] <= 200
    assert places[2] >= 201 or places[2] <= 51


def test_a_nominated_node_that_pre_filter_leaves_out_counts_as_looked_at() -> None:
    """The next search begins one node further on."""
    scheduler = scheduler_of(250, sampling=40)
    named = [requirement("metadata.name", "In", f"n{number:03}") for number in range(100, 220)]
    terms = [NodeSelectorTerm(match_fields=(requirement,)) for requirement in named]
    pod = make_pod("p").req(cpu="2").required_terms(*terms).nominated("n000").obj()
    scheduler.put_pod(pod)
    head = Head(pop=PopId(pod.uid, 1), attempts=1, first_enqueued_ns=0, queued_ns=0)
    verdict = scheduler.decide(head, 0).verdict
    assert isinstance(verdict, Binding)
    assert (verdict.evaluated, verdict.feasible) == (101, 100)
    assert scheduler.choice_mark() == 101


def test_the_smallest_name_among_the_examined_nodes_wins() -> None:
    """The first 100 that fit, then the next, then from the beginning again."""
    bound = bindings(scheduler_of(250, sampling=40, by_name=True), 3)
    assert [verdict.node_name for verdict in bound] == ["n001", "n101", "n002"]


def test_all_nodes_are_filtered_unless_sampling_is_configured() -> None:
    """Whatever the profile says."""
    (bound,) = bindings(scheduler_of(250, sampling=None, percentage=40), 1)
    assert (bound.evaluated, bound.feasible) == (250, 249)


def test_a_profiles_own_percentage_counts_first() -> None:
    """Before the configuration's."""
    (bound,) = bindings(scheduler_of(250, sampling=100, percentage=50), 1)
    assert bound.feasible == 125


def test_a_retracted_attempt_starts_at_the_same_node_again() -> None:
    """The start goes back with the decisions that the queue did not accept."""
    scheduler = scheduler_of(250, sampling=40)
    first, second = decisions(scheduler, 2)
    scheduler.undo([first, second])
    again = bindings(scheduler, 2)
    assert [verdict.node_name for verdict in again] == [
        decision.verdict.node_name
        for decision in (first, second)
        if isinstance(decision.verdict, Binding)
    ]


def test_an_evaluation_shows_what_extenders_refuse_beyond_the_sample() -> None:
    """Its host is one of the first 100 that fit; its verdicts are about all nodes."""
    scheduler = scheduler_of(250, sampling=40, extenders=(EvenOnly(),))
    evaluation = scheduler.evaluate(make_pod("p").req(cpu="2").obj(), 1, 0)
    assert 2 <= int(evaluation.host[1:]) <= 100
    assert len(evaluation.verdicts.feasible) == 124
    assert evaluation.verdicts.refusals["n249"].reasons == ("odd",)
    assert scheduler.choice_mark() == 0
