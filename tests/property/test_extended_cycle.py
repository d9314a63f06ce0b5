"""Extenders that agree with everything change nothing, and one that refuses stands for a filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.framework.plugins.in_tree import DEFAULT_PROFILE
from services.framework.preemption.candidates import Candidate
from services.framework.profile import ExtensionPoint, PluginSet
from services.framework.runtime.diagnosis import Unschedulable
from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.selector import NodeSelectorTerm
from services.scheduler.core.cycle.extenders import (
    Extender,
    ExtenderTerms,
    FilterAnswer,
    NodeVictims,
)
from services.scheduler.core.cycle.host_choice import NamedChoice
from services.scheduler.core.decisions import Binding, Decision, Failed
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import Head, PopId
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from tests.builders import make_node, make_pod, requirement

WORDS = "node(s) were unschedulable"


class Agreeable:
    """Lets all nodes pass but cordoned ones, scores them alike, and leaves all candidates."""

    terms = ExtenderTerms(name="x", filters=True, prioritizes=True, preempts=True, weight=3)

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterAnswer:  # noqa: ARG002 - all alike
        """Refuse cordoned nodes, as NodeUnschedulable would."""
        return FilterAnswer(
            passed=tuple(node.name for node in nodes if not node.unschedulable),
            unresolvable={node.name: WORDS for node in nodes if node.unschedulable},
        )

    def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> list[tuple[str, int]]:  # noqa: ARG002 - all alike
        """Give every node nothing."""
        return [(node.name, 0) for node in nodes]

    def process_preemption(self, pod: Pod, candidates: Sequence[Candidate]) -> list[NodeVictims]:  # noqa: ARG002 - all alike
        """Leave everything as it is."""
        return [
            NodeVictims(
                node_name=candidate.node,
                pod_uids=tuple(victim.uid for victim in candidate.victims),
                budget_violations=candidate.violations,
            )
            for candidate in candidates
        ]

    def bind(self, pod: Pod, node_name: str) -> None:
        """Bind."""


class Unwilling(Agreeable):
    """Refuses every node."""

    terms = ExtenderTerms(name="x", filters=True)

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterAnswer:  # noqa: ARG002 - all alike
        """Refuse all alike."""
        return FilterAnswer(passed=(), failed=dict.fromkeys((node.name for node in nodes), "no"))


def scheduler_of(
    nodes: list[Node], sampling: int | None, rules: str, *extenders: Extender, by_name: bool = False
) -> Scheduler:
    """Return a scheduler of some nodes; ties are broken as the rules say, or `by_name`."""
    chosen = (lambda _seed: NamedChoice()) if by_name else RULES[rules].host_choice
    made = Scheduler(
        SchedulerOptions(
            rules=replace(RULES[rules], host_choice=chosen),
            queue=QUEUE_TRAITS["v1.34"],
            seed=7,
            sampling=sampling,
            extenders=extenders,
        )
    )
    for node in nodes:
        made.put_node(node)
    return made


def decide(scheduler: Scheduler, pod: Pod) -> Decision:
    """Schedule a new pod."""
    scheduler.put_pod(pod)
    head = Head(pop=PopId(pod.uid, 1), attempts=1, first_enqueued_ns=0, queued_ns=0)
    return scheduler.decide(head, 10)


def shown(decision: Decision) -> tuple[Any, ...]:
    """Return a verdict as values that can be compared; the tie-break's row aside."""
    verdict = decision.verdict
    match verdict:
        case Binding():
            return (
                verdict.node_name,
                verdict.feasible,
                verdict.evaluated,
                verdict.tied,
                verdict.total,
            )
        case Unschedulable():
            return (verdict.message, sorted(verdict.reasons), verdict.nomination)
        case Failed():
            return (verdict.message,)
    return ()


NODES = st.lists(
    st.tuples(st.sampled_from("124"), st.booleans(), st.booleans()), min_size=1, max_size=6
)
PODS = st.lists(
    st.tuples(st.sampled_from("124"), st.integers(0, 2), st.booleans(), st.booleans()), max_size=12
)


@settings(max_examples=15)
@given(
    nodes=NODES,
    pods=PODS,
    named=st.lists(st.sampled_from(["", "", "n0", "n1"]), min_size=12, max_size=12),
    mode=st.sampled_from([("v1.34", None), ("v1.34", 0), ("v1.16", None)]),
    by_name=st.booleans(),
)
def test_extenders_that_agree_change_no_decision(
    nodes: list[tuple[str, bool, bool]],
    pods: list[tuple[str, int, bool, bool]],
    named: list[str],
    mode: tuple[str, int | None],
    by_name: bool,
) -> None:
    """With preemption, nominations, nodes that PreFilter names, sampling, and all ties.

    Where nothing scores, nodes are worth 1 without extenders and 0 with them, as upstream has it.
    """
    rules, sampling = mode
    built = [
        (make_node(f"n{i}").taint("k", "v") if tainted else make_node(f"n{i}"))
        .capacity(cpu=cpu, memory="8Gi")
        .obj()
        for i, (cpu, tainted, _) in enumerate(nodes)
    ]
    plain = scheduler_of(built, sampling, rules, by_name=by_name)
    extended = scheduler_of(built, sampling, rules, Agreeable(), by_name=by_name)
    for i, (cpu, priority, tolerates, nominated) in enumerate(pods):
        builder = make_pod(f"p{i}").req(cpu=cpu).priority(priority)
        if named[i]:
            field = requirement("metadata.name", "In", named[i])
            builder = builder.required_terms(NodeSelectorTerm(match_fields=(field,)))
        pod = (builder.toleration("k", operator="Exists") if tolerates else builder).obj()
        if nominated:
            pod = replace(pod, nominated_node_name="n0")
        expected, found = shown(decide(plain, pod)), shown(decide(extended, pod))
        if rules == "v1.16" and len(expected) == 5 and expected[4] is not None:
            expected = (*expected[:4], expected[4] - 1)
        assert found == expected


def test_an_extender_is_called_for_a_nominated_node_that_pre_filter_excluded() -> None:
    """Its refusal of that node stays in the diagnosis; it has refused no other one."""
    off = PluginSet(disabled=("NodeAffinity",))
    options = SchedulerOptions(
        rules=RULES["v1.34"],
        queue=QUEUE_TRAITS["v1.34"],
        profiles=(replace(DEFAULT_PROFILE, at={ExtensionPoint.FILTER: off}),),
        extenders=(Unwilling(),),
    )
    scheduler = Scheduler(options)
    for name, cpu in (("a", "1"), ("b", "4"), ("c", "4")):
        scheduler.put_node(make_node(name).capacity(cpu=cpu, memory="8Gi").obj())
    field = requirement("metadata.name", "In", "a")
    pod = make_pod().req(cpu="2").required_terms(NodeSelectorTerm(match_fields=(field,)))
    verdict = decide(scheduler, pod.nominated("b").obj()).verdict
    assert isinstance(verdict, Unschedulable)
    assert verdict.message.startswith(
        "0/3 nodes are available: 1 Insufficient cpu, 1 no, "
        "1 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )
    assert verdict.plugins == ("NodeAffinity", "NodeResourcesFit")


@settings(max_examples=15)
@given(nodes=NODES, pods=PODS)
def test_an_extender_may_stand_for_a_filter(
    nodes: list[tuple[str, bool, bool]], pods: list[tuple[str, int, bool, bool]]
) -> None:
    """A node that the extender refuses is not preempted on; other nodes are unaffected."""
    built = [
        replace(make_node(f"n{i}").capacity(cpu=cpu, memory="8Gi").obj(), unschedulable=cordoned)
        for i, (cpu, _, cordoned) in enumerate(nodes)
    ]
    plain = scheduler_of(built, None, "v1.34")
    tolerant = scheduler_of(built, None, "v1.34", Agreeable())
    for i, (cpu, priority, _, _) in enumerate(pods):
        builder = make_pod(f"p{i}").req(cpu=cpu).priority(priority)
        pod = builder.obj()
        waved = builder.toleration("node.kubernetes.io/unschedulable", operator="Exists").obj()
        expected, found = decide(plain, pod), decide(tolerant, waved)
        if isinstance(expected.verdict, Unschedulable):
            assert isinstance(found.verdict, Unschedulable)
            one, other = expected.verdict.nomination, found.verdict.nomination
            assert (one and one.node) == (other and other.node)
        else:
            assert shown(found)[:2] == shown(expected)[:2]
