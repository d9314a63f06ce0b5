"""The compiled dry run of all nodes at once agrees with the preemptor's dry run node by node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from services.framework.plugins.default_preemption.plugin import DefaultPreemption
from services.framework.preemption.batch_dry_run import (
    BatchDryRun,
    BatchDryRunResult,
    CandidateSampling,
)
from services.framework.preemption.candidates import hashed_tie_break
from services.framework.preemption.outcome import PreemptionEvaluation
from services.framework.preemption.rules import V1_16, V1_34, PreemptionRules
from services.framework.runtime.failed_cycle import FitError
from services.framework.runtime.framework import Framework
from services.framework.snapshot.snapshot import Snapshot
from services.kube.node import LABEL_HOSTNAME, LABEL_ZONE
from services.kube.pod import Pod
from services.kube.selector import (
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    UnsatisfiableAction,
)
from services.kube.workloads import PodDisruptionBudget
from services.scheduler.core.cycle.attempt import ProfileCycles
from services.scheduler.core.cycle.host_choice import KeyedChoice
from tests.builders import make_budget, make_node, make_pod, requirement

pytestmark = pytest.mark.usefixtures("tier")

NOW_NS = 3
NODES = ("n0", "n1", "n2")
LOWEST = -(2**31)
priorities = st.sampled_from([LOWEST, -1, 0, 1, 2, 3])


@st.composite
def assigned(draw: st.DrawFn, name: str) -> Pod:
    """Draw a pod on a node; its start may be missing, now, or after now."""
    pod = make_pod(name).req(cpu=draw(st.integers(0, 3)), memory=draw(st.integers(0, 2)))
    pod = pod.priority(draw(priorities)).node(draw(st.sampled_from(NODES)))
    pod = pod.started(draw(st.none() | st.integers(1, 4)))
    if draw(st.integers(0, 9)) == 0:
        pod = pod.req({"cpu": 1, "example.com/gpu": draw(st.integers(0, 1))})
    label = draw(st.sampled_from(["", "a", "b"]))
    return (pod.label("app", label) if label else pod).obj()


@st.composite
def budgets(draw: st.DrawFn) -> list[PodDisruptionBudget]:
    """Draw budgets, two of which may cover the same pods; some name disrupted pods."""
    found = []
    for name, app in (("a", "a"), ("b", "b"), ("c", "a")):
        if draw(st.booleans()):
            budget = make_budget(name).match_labels(app=app).allowed(draw(st.integers(-1, 2)))
            named = draw(st.integers(0, 30))
            found.append((budget.disrupted(f"p{named}") if named < 15 else budget).obj())
    return found


def change(data: st.DataObject, snapshot: Snapshot, step: int) -> None:
    """Put pods on nodes and take some off; draw new budgets and nominations."""
    for index in range(data.draw(st.integers(3, 9))):
        snapshot.set_pod(data.draw(assigned(f"p{10 * step + index}")))
    uids = [f"uid-default-p{number}" for number in range(20)]
    for uid in data.draw(st.lists(st.sampled_from(uids), max_size=3)):
        held = snapshot.pod(uid)
        if held is not None and data.draw(st.booleans()):
            snapshot.set_pod(replace(held, start_time_ns=data.draw(st.integers(1, 4))))
        elif held is not None:
            snapshot.remove_pod(uid)
    for name in "abc":
        snapshot.remove_budget("default", name)
    for budget in data.draw(budgets()):
        snapshot.set_budget(budget)
    for index in range(3):
        nominated = make_pod(f"q{index}").req(cpu=data.draw(st.integers(0, 2)))
        nominated = nominated.priority(data.draw(st.integers(0, 4)))
        nominated = nominated.label("app", data.draw(st.sampled_from("ab")))
        snapshot.nominations.drop(nominated.obj().uid)
        if data.draw(st.booleans()):
            snapshot.nominations.put(nominated.obj(), data.draw(st.sampled_from(NODES)))


def assert_agrees(batch: BatchDryRunResult, found: PreemptionEvaluation) -> None:
    """Compare candidates, their criteria, and the refusals."""
    judged = []
    for candidate in found.candidates:
        criteria = candidate.criteria
        numbers = (0, 0, 0, 0, 0)
        if criteria is not None:
            numbers = (
                criteria.violations,
                criteria.highest_priority,
                criteria.sum_priorities,
                criteria.num_victims,
                -criteria.earliest_start_ns,
            )
        judged.append((candidate.candidate.node, numbers))
    rows = batch.rows.tolist()
    in_batch = {
        batch.name(row): tuple(criteria) if criteria[3] else (0, 0, 0, 0, 0)
        for row, criteria in zip(rows, batch.criteria.tolist(), strict=True)
    }
    assert in_batch == dict(judged)
    refusals = sorted(
        (reasons for status, count in batch.refusals for reasons in [status.reasons] * count)
    )
    assert refusals == sorted(candidate.refusal.reasons for candidate in found.non_candidates)


def plain(data: st.DataObject, name: str) -> Pod:
    """Draw a pod that fits nowhere at once, maybe."""
    pod = make_pod(name).req(cpu=data.draw(st.integers(2, 4)), memory=1)
    return pod.priority(data.draw(st.sampled_from([0, 2, 3]))).obj()


def particular(data: st.DataObject, name: str) -> Pod:
    """Draw such a pod that is to be spread and wants to be away from others."""
    pod = plain(data, name)
    key = st.sampled_from([LABEL_ZONE, LABEL_HOSTNAME])
    constraints = tuple(
        TopologySpreadConstraint(
            max_skew=1,
            topology_key=data.draw(key),
            when_unsatisfiable=UnsatisfiableAction.DO_NOT_SCHEDULE,
            selector=data.draw(selectors),
            min_domains=data.draw(st.integers(1, 3)),
        )
        for _ in range(data.draw(st.integers(0, 2)))
    )
    near = data.draw(aways) if data.draw(st.booleans()) else None
    spec = replace(
        pod.spec,
        topology_spread_constraints=constraints,
        pod_affinity=near,
        pod_anti_affinity=data.draw(aways),
    )
    return replace(pod, spec=spec, labels={"app": data.draw(st.sampled_from("ab"))})


def clinging(data: st.DataObject, name: str) -> Pod:
    """Draw such a pod that wants to be near others, which may be of its own kind."""
    pod = plain(data, name)
    spec = replace(pod.spec, pod_affinity=data.draw(terms), priority=3)
    return replace(pod, spec=spec, labels={"app": data.draw(st.sampled_from("ab"))})


def make_hermits(data: st.DataObject, snapshot: Snapshot) -> None:
    """Have some pods on nodes, and a nominated one, want others away."""
    for uid in [f"uid-default-p{number}" for number in range(20)]:
        held = snapshot.pod(uid)
        if held is not None and data.draw(st.integers(0, 3)) == 0:
            spec = replace(held.spec, pod_anti_affinity=data.draw(aways))
            snapshot.set_pod(replace(held, spec=spec))
    if data.draw(st.booleans()):
        pod = make_pod("q9").label("app", "a").priority(data.draw(st.integers(0, 4))).obj()
        spec = replace(pod.spec, pod_anti_affinity=data.draw(aways))
        snapshot.nominations.put(replace(pod, spec=spec), data.draw(st.sampled_from(NODES)))


selectors = st.sampled_from(
    [
        LabelSelector(requirements=(requirement("app", "In", "a"),)),
        LabelSelector(requirements=(requirement("app", "In", "b"),)),
        LabelSelector(requirements=(requirement("app", "Exists"),)),
        LabelSelector(),
    ]
)
terms = st.builds(
    PodAffinity,
    required=st.lists(
        st.builds(
            PodAffinityTerm,
            topology_key=st.sampled_from([LABEL_ZONE, LABEL_HOSTNAME, LABEL_HOSTNAME]),
            selector=selectors,
        ),
        min_size=1,
        max_size=2,
    ).map(tuple),
)
aways = st.none() | terms


@given(
    data=st.data(),
    rules=st.sampled_from([V1_34, V1_16]),
    make=st.sampled_from([plain, particular, clinging]),
)
@settings(max_examples=160)
def test_the_batch_agrees_with_the_dry_runs(
    data: st.DataObject, rules: PreemptionRules, make: Callable[[st.DataObject, str], Pod]
) -> None:
    """After every change of the cluster, verdicts, criteria and outcome are the twin's."""
    snapshot = Snapshot()
    for number, name in enumerate(NODES):
        node = make_node(name).capacity(cpu="4", memory="4", pods="4")
        if number < 2 or make is not clinging:
            node = node.zone(f"z{number // 2}")
        snapshot.set_node(node.label(LABEL_HOSTNAME, name).obj())
    framework = Framework(snapshot)
    cycles, batch_dry_run = ProfileCycles(framework, KeyedChoice(0)), BatchDryRun(snapshot, rules)
    preemptor = DefaultPreemption(rules=rules)
    for step in range(2):
        change(data, snapshot, step)
        if make is particular:
            make_hermits(data, snapshot)
        pod = make(data, f"new{step}")
        result = cycles.schedule_pod(pod, 1)
        if not isinstance(result, FitError):
            continue
        tie_break = hashed_tie_break(seed=0, uid=pod.uid, attempt_number=1)
        fast = replace(result, batch=batch_dry_run)
        evaluation = preemptor.evaluate(pod, result, tie_break=tie_break, now_ns=NOW_NS)
        batch = fast.batch_dry_run(NOW_NS)
        event(f"{make.__name__}: {min(len(evaluation.candidates), 3)} candidates")
        assert (
            preemptor.post_filter(pod, fast, tie_break=tie_break, now_ns=NOW_NS)
            == evaluation.outcome
        )
        assert batch is not None
        assert_agrees(batch, evaluation)
        absolute = data.draw(st.integers(1, len(NODES)))
        sampling = CandidateSampling(percentage=0, absolute=absolute)
        sampled = DefaultPreemption(rules=rules, sampling=sampling)
        evaluation = sampled.evaluate(pod, result, tie_break=tie_break, now_ns=NOW_NS)
        assert (
            sampled.post_filter(pod, fast, tie_break=tie_break, now_ns=NOW_NS) == evaluation.outcome
        )
