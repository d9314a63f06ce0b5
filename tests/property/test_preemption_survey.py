"""The compiled dry run of all nodes at once says what the preemptor finds node by node."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from services.kube.budget import PodDisruptionBudget
from services.kube.pod import Pod
from services.scheduler.core.cycle import Cycle, Unschedulable
from services.scheduler.core.failed_cycle import SnapshotFailedCycle
from services.scheduler.core.framework import Framework
from services.scheduler.core.host_choice import KeyedChoice
from services.scheduler.core.preemption.outcome import PreemptionEvaluation
from services.scheduler.core.preemption.pick import hashed_tie_break
from services.scheduler.core.preemption.preemptor import Preemptor
from services.scheduler.core.preemption.rules import V1_16, V1_34, PreemptionRules
from services.scheduler.core.preemption.survey import Survey
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.surveyor import Surveyor
from tests.builders import make_budget, make_node, make_pod

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
    """Put pods on nodes and take some off; draw budgets and nominations anew."""
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
        snapshot.nominations.drop(nominated.obj().uid)
        if data.draw(st.booleans()):
            snapshot.nominations.put(nominated.obj(), data.draw(st.sampled_from(NODES)))


def assert_agrees(survey: Survey, found: PreemptionEvaluation) -> None:
    """Compare candidates, what they are judged by, and the refusals."""
    judged = []
    for each in found.candidates:
        criteria = each.criteria
        numbers = (0, 0, 0, 0, 0)
        if criteria is not None:
            numbers = (
                criteria.violations,
                criteria.highest_priority,
                criteria.sum_priorities,
                criteria.num_victims,
                -criteria.earliest_start_ns,
            )
        judged.append((each.candidate.node, numbers))
    rows = survey.rows.tolist()
    surveyed = {
        survey.name(row): tuple(criteria) if criteria[3] else (0, 0, 0, 0, 0)
        for row, criteria in zip(rows, survey.criteria.tolist(), strict=True)
    }
    assert surveyed == dict(judged)
    refusals = sorted(
        (reasons for status, count in survey.refusals for reasons in [status.reasons] * count)
    )
    assert refusals == sorted(each.refusal.reasons for each in found.non_candidates)


@given(data=st.data(), rules=st.sampled_from([V1_34, V1_16]))
@settings(max_examples=100, deadline=None)
def test_the_survey_agrees_with_the_dry_runs(data: st.DataObject, rules: PreemptionRules) -> None:
    """After every change of the cluster, verdicts, criteria and outcome are the twin's."""
    snapshot = Snapshot()
    for name in NODES:
        snapshot.set_node(make_node(name).capacity(cpu="4", memory="4", pods="4").obj())
    framework = Framework(snapshot)
    cycle, surveyor = Cycle(framework, KeyedChoice(0)), Surveyor(snapshot, rules)
    preemptor = Preemptor(rules=rules)
    for step in range(2):
        change(data, snapshot, step)
        pending = make_pod(f"new{step}").req(cpu=data.draw(st.integers(2, 4)), memory=1)
        pod = pending.priority(data.draw(st.sampled_from([0, 2, 3]))).obj()
        result = cycle.schedule_pod(pod, 1)
        if not isinstance(result, Unschedulable):
            continue
        tie_break = hashed_tie_break(seed=0, uid=pod.uid, attempt=1)
        plain = SnapshotFailedCycle(pod, framework, result.diagnosis)
        fast = SnapshotFailedCycle(pod, framework, result.diagnosis, surveyor)
        found = preemptor.evaluate(pod, plain, tie_break=tie_break, now_ns=NOW_NS)
        survey = fast.survey(NOW_NS)
        event(f"{min(len(found.candidates), 3)} candidates")
        assert survey is not None
        assert_agrees(survey, found)
        assert preemptor.preempt(pod, fast, tie_break=tie_break, now_ns=NOW_NS) == found.outcome
