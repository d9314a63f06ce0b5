"""Recorded evictions by kubelets: right ones, impossible ones, and undecidable ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from replay.compare.comparison import FindingOutcome
from replay.compare.evictions import compare_eviction
from replay.compare.explain import DifferenceReason
from replay.compare.verdict import Match
from reprieve.kube.v1beta1.pod_pb2 import Pod
from tests.builders import make_pod
from tests.unit.compare.builders import node, pod, recording
from tests.unit.compare.test_comparison import best, findings
from tests.unit.importers.builders import line

MEMORY = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
ABOVE = "Container c was using 200Mi, request is 100Mi, has larger consumption of memory. "
PIDS = "The node was low on resource: pids. Threshold quantity: 100, available: 5. "


def made(name: str, priority: int = 0, notes: Mapping[str, str] | None = None) -> Pod:
    """Return a pod with one container on node n."""
    started = make_pod(name).annotations(notes).node("n").priority(priority)
    return started.container("c").message()


def limited() -> Pod:
    """Return a pod with limits of its own on local storage."""
    result = made("p")
    result.spec.containers[0].resources.limits["ephemeral-storage"] = "1Gi"
    result.spec.volumes.add(name="scratch").empty_dir.size_limit = "500Mi"
    return result


def ended(name: str) -> Pod:
    """Return a pod that has ended, which cannot be evicted."""
    result = made(name)
    result.status.phase = "Succeeded"
    return result


def test_the_only_pod_that_could_go_is_the_right_one() -> None:
    """Critical pods and those that have ended are no rivals."""
    rivals = [made("system", 2_000_000_000), ended("done")]
    assert compare_eviction(made("p"), rivals, MEMORY).verdict.match is Match.ALONE


def test_a_pod_above_its_request_and_below_all_others_in_priority_is_first() -> None:
    """Whatever the other pods used, they rank behind it."""
    differences = compare_eviction(made("p"), [made("a", 1), made("b", 7)], MEMORY + ABOVE)
    assert differences.verdict.match is Match.FIRST


@pytest.mark.parametrize(
    ("message", "rival"),
    [
        (MEMORY + ABOVE, made("equal", 5)),
        (MEMORY + ABOVE, made("lower", 1)),
        (MEMORY, made("higher", 9)),
        (MEMORY.replace("50Mi", "150Mi") + ABOVE, made("higher", 9)),
        (PIDS, made("equal", 5)),
    ],
)
def test_an_eviction_that_depends_on_other_pods_usage_lacks_data(message: str, rival: Pod) -> None:
    """Equal or lower priority, no use above the request, or minimum reclaim."""
    differences = compare_eviction(made("p", 5), [rival], message)
    assert not differences.verdict.agrees
    assert differences.explanation is not None
    assert differences.explanation.reason is DifferenceReason.MISSING


def test_process_ids_are_ranked_by_priority_first() -> None:
    """So a pod of lower priority would have been evicted first."""
    differences = compare_eviction(made("p", 5), [made("lower", 1)], PIDS)
    assert (differences.verdict.match, differences.explanation) == (Match.DIFFERS, None)
    assert "default/lower first" in differences.verdict.got
    assert compare_eviction(made("p", 5), [made("up", 9)], PIDS).verdict.match is Match.FIRST


@pytest.mark.parametrize(
    "critical", [made("p", 2_000_000_000), made("p", notes={"kubernetes.io/config.mirror": "x"})]
)
def test_a_critical_pod_is_never_evicted(critical: Pod) -> None:
    """A recorded one is a real difference."""
    differences = compare_eviction(critical, [], MEMORY)
    assert (differences.verdict.match, differences.explanation) == (Match.DIFFERS, None)


@pytest.mark.parametrize(
    ("message", "ground"),
    [
        ('Usage of EmptyDir volume "scratch" exceeds the limit "500Mi". ', Match.LIMIT),
        ('Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". ', Match.DIFFERS),
        ('Container c exceeded its local ephemeral storage limit "1Gi". ', Match.LIMIT),
        ('Container d exceeded its local ephemeral storage limit "1Gi". ', Match.DIFFERS),
        (
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
            Match.LIMIT,
        ),
    ],
)
def test_an_eviction_for_a_limit_agrees_where_the_pod_has_that_limit(
    message: str, ground: Match
) -> None:
    """The limit is in the pod's spec, and its usage in nobody else's."""
    assert compare_eviction(limited(), [made("other")], message).verdict.match is ground


def test_messages_without_information_are_missing_data() -> None:
    """As of a kubelet of another kind."""
    differences = compare_eviction(made("p"), [], "Gone.")
    assert differences.explanation is not None
    assert differences.explanation.reason is DifferenceReason.MISSING


def test_an_eviction_is_a_decision_and_is_judged_among_the_pods_of_its_node(tmp_path: Path) -> None:
    """Pods of other schedulers, too, are evicted."""
    evicted = {"reason": "Evicted", "message": MEMORY + ABOVE}
    other = pod("other", 3, node="n", priority=4)
    other["spec"]["schedulerName"] = "other"
    recorded = recording(
        tmp_path,
        node("n", 1),
        line(3, "ADDED", pod("p", 2, node="n")),
        line(3, "ADDED", other),
        line(9, "MODIFIED", pod("p", 5, node="n", phase="Failed", status=evicted)),
    )
    found = findings(recorded, lambda _name, _bound: best("n"))
    assert [(e.decision.kind.value, e.outcome) for e in found] == [
        ("eviction", FindingOutcome.AGREES)
    ]
    assert found[0].verdict.match is Match.FIRST
