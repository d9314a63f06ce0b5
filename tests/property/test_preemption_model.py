"""The preemptor against a naive twin, over random small clusters where only resources decide.

The twin has no incremental dry run and no narrowing of candidates: it builds each node from scratch
for each question, and compares whole tuples.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from services.framework.plugins.default_preemption.plugin import DefaultPreemption
from services.framework.preemption.outcome import CannotHelp, Nomination
from services.framework.preemption.rules import V1_16, V1_34, PreemptionRules
from services.kube.pod import Pod
from services.kube.workloads import PodDisruptionBudget
from tests.builders import make_budget, make_pod
from tests.unit.scheduler.preemption_cluster import Cluster, shortages

NOW_NS = 100
Verdict = tuple[list[str], int]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Draw up to four nodes, ten pods, two budgets and three nominated pods."""
    nodes = [f"n{index}" for index in range(draw(st.integers(1, 4)))]
    assigned = []
    for index in range(draw(st.integers(0, 10))):
        pod = make_pod(f"p{index}").req(cpu=draw(st.integers(0, 3)))
        pod = pod.priority(draw(st.integers(-1, 3))).node(draw(st.sampled_from(nodes)))
        pod = pod.started(draw(st.none() | st.integers(1, 3)))
        label = draw(st.sampled_from(["", "a", "b"]))
        assigned.append((pod.label("app", label) if label else pod).obj())
    nominated = [
        make_pod(f"q{index}")
        .req(cpu=draw(st.integers(0, 2)))
        .priority(draw(st.integers(0, 4)))
        .nominated(draw(st.sampled_from(nodes)))
        .obj()
        for index in range(draw(st.integers(0, 3)))
    ]
    budgets = []
    for app in draw(st.sets(st.sampled_from("ab"))):
        budget = make_budget(app).match_labels(app=app).allowed(draw(st.integers(0, 2)))
        budgets.append(budget.disrupted(f"p{draw(st.integers(0, 12))}").obj())
    budgets.sort(key=lambda budget: budget.name)
    return Cluster(
        pod=make_pod("new").req(cpu=draw(st.integers(1, 4))).priority(2).obj(),
        allocatable={node: {"cpu": 4000, "pods": 5} for node in nodes},
        assigned=assigned,
        nominated=nominated,
        all_budgets=budgets,
    )


def fits(cluster: Cluster, node: str, held: Sequence[Pod]) -> bool:
    """Return whether the pod fits together with `held` and nominated pods of higher priority."""
    above = [pod for pod in cluster.nominated_on(node) if pod.priority >= cluster.pod.priority]
    return not shortages(cluster.allocatable[node], [*held, *above], cluster.pod)


def rank(pod: Pod) -> tuple[int, int]:
    """Order pods by falling importance."""
    return -pod.priority, NOW_NS if pod.start_time_ns is None else pod.start_time_ns


def violators(
    pods: Sequence[Pod], budgets: Sequence[PodDisruptionBudget], rules: PreemptionRules
) -> list[str]:
    """Name the pods that violate a budget, going through `pods` again for each."""
    violating = []
    for index, pod in enumerate(pods):
        for budget in budgets:
            if pod.labels.get("app") != budget.name:
                continue
            if rules is V1_16:
                violates = budget.disruptions_allowed <= 0
            else:
                users = [
                    pod.name
                    for pod in pods[: index + 1]
                    if pod.labels.get("app") == budget.name
                    and pod.name not in budget.disrupted_pods
                ]
                violates = pod.name in users and len(users) > budget.disruptions_allowed
            if violates:
                violating.append(pod.name)
    return violating


def verdict(cluster: Cluster, node: str, rules: PreemptionRules) -> Verdict | None:
    """Return the victims on one node and how many violate a budget; None where it does not help."""
    lower = sorted(
        (pod for pod in cluster.pods_on(node) if pod.priority < cluster.pod.priority), key=rank
    )
    kept = [pod for pod in cluster.pods_on(node) if pod not in lower]
    if (not lower and rules is V1_34) or not fits(cluster, node, kept):
        return None
    guarded = violators(lower, cluster.all_budgets, rules)
    victims: list[Pod] = []
    for pod in sorted(lower, key=lambda pod: pod.name not in guarded):
        if fits(cluster, node, [*kept, pod]):
            kept.append(pod)
        else:
            victims.append(pod)
    if not victims and rules is V1_34:
        return None
    if rules is V1_34:
        victims.sort(key=rank)
    names = [pod.name for pod in victims]
    return names, sum(name in guarded for name in names)


def goodness(cluster: Cluster, found: Verdict) -> tuple[int, ...]:
    """Return a candidate's criteria as one tuple; less is better."""
    names, violations = found
    victims = [next(pod for pod in cluster.assigned if pod.name == name) for name in names]
    if not victims:
        return (-1,)
    top = max(pod.priority for pod in victims)
    earliest = min(rank(pod)[1] for pod in victims if pod.priority == top)
    total = sum(pod.priority + 2**31 for pod in victims)
    return violations, victims[0].priority, total, len(victims), -earliest


@given(cluster=clusters(), rules=st.sampled_from([V1_34, V1_16]))
@settings(max_examples=300)
def test_the_preemptor_agrees_with_its_naive_twin(cluster: Cluster, rules: PreemptionRules) -> None:
    """Candidates, victims, violations and the picked node are the twin's."""
    evaluation = DefaultPreemption(rules=rules).evaluate(
        cluster.pod, cluster, tie_break=lambda nodes: nodes[0], now_ns=NOW_NS
    )
    twin = {node: verdict(cluster, node, rules) for node in cluster.allocatable}
    expected = {node: item for node, item in twin.items() if item is not None}
    assert {
        judged.candidate.node: (
            [pod.name for pod in judged.candidate.victims],
            judged.candidate.violations,
        )
        for judged in evaluation.candidates
    } == expected
    assert {
        candidate.node for candidate in evaluation.non_candidates
    } == twin.keys() - expected.keys()
    if not expected:
        assert isinstance(evaluation.outcome, CannotHelp)
        return
    assert isinstance(evaluation.outcome, Nomination)
    best = min(goodness(cluster, entry) for entry in expected.values())
    equals = [node for node, item in expected.items() if goodness(cluster, item) == best]
    assert evaluation.outcome.node == equals[0]


@given(cluster=clusters())
@settings(max_examples=150)
def test_a_preemption_makes_room_and_takes_no_pod_in_vain(cluster: Cluster) -> None:
    """The pod fits without the victims, but not together with any one of them."""
    outcome = DefaultPreemption(rules=V1_34).post_filter(
        cluster.pod, cluster, tie_break=lambda nodes: nodes[0], now_ns=NOW_NS
    )
    if isinstance(outcome, CannotHelp):
        return
    victims = {pod.uid for pod in outcome.victims}
    kept = [pod for pod in cluster.pods_on(outcome.node) if pod.uid not in victims]
    assert fits(cluster, outcome.node, kept)
    assert not any(fits(cluster, outcome.node, [*kept, pod]) for pod in outcome.victims)
    assert all(pod.priority < cluster.pod.priority for pod in outcome.victims)
