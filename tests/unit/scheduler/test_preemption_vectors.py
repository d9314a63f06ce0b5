"""The preemptor against what upstream v1.34 did, where only resources decide.

The filters' refusals are taken from the vectors; the dry run is the tests' own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from replay.conform.vectors.vectors import RECORDED
from replay.trace.criteria import criterion_in_logs
from reprieve.kube.v1beta1 import node_pb2, pod_pb2, policy_pb2
from services.framework.plugins.default_preemption.plugin import DefaultPreemption
from services.framework.preemption.outcome import CannotHelp, Nomination, PreemptionEvaluation
from services.framework.preemption.rules import V1_34
from services.framework.status import Code
from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.workloads import PodDisruptionBudget
from services.rpc.kube.codec import budget_from_message, node_from_message, pod_from_message
from services.rpc.kube.json_codec import parse
from services.rpc.kube.spec import PodSpecInterner
from services.scheduler.outcomes import CRITERIA
from tests.unit.scheduler.preemption_cluster import Cluster
from tests.vectors import read_vectors

PLAIN_SPEC = {
    "containers",
    "priority",
    "priorityClassName",
    "nodeName",
    "preemptionPolicy",
    "schedulerName",
    "tolerations",
    "nodeSelector",
}
SECOND = 1_000_000_000
NOW_NS = int(datetime(2024, 6, 1, tzinfo=UTC).timestamp()) * SECOND
Json = dict[str, Any]


def _plain(scenario: Json) -> bool:
    pods = [*scenario["pods"], *scenario.get("nominated", []), scenario["pending"]]
    return all(
        pod["spec"].keys() <= PLAIN_SPEC
        and not any("ports" in container for container in pod["spec"]["containers"])
        and not pod.get("status", {}).keys() & {"containerStatuses", "resize"}
        for pod in pods
    )


def _scenarios() -> Iterator[Json]:
    for vector in read_vectors(RECORDED / "scheduling.jsonl.gz"):
        if "preemption" in vector["expected"] and _plain(vector["scenario"]):
            yield vector


def _ns(text: str | None) -> int | None:
    return None if text is None else int(datetime.fromisoformat(text).timestamp()) * SECOND


def _pod(raw: Json) -> Pod:
    raw["metadata"].setdefault("uid", raw["metadata"]["name"])
    return pod_from_message(parse(pod_pb2.Pod, raw), PodSpecInterner())


def _node(raw: Json) -> Node:
    return node_from_message(parse(node_pb2.Node, raw))


def _budget(raw: Json) -> PodDisruptionBudget:
    return budget_from_message(parse(policy_pb2.PodDisruptionBudget, raw))


def _cluster(vector: Json) -> Cluster:
    scenario, refused = vector["scenario"], vector["expected"]["filter"]
    labels = {code.label: code for code in Code}
    pods = [_pod(raw) for raw in scenario["pods"]]
    return Cluster(
        pod=_pod(scenario["pending"]),
        allocatable={node.name: node.allocatable for node in map(_node, scenario["nodes"])},
        assigned=pods,
        nominated=[_pod(raw) for raw in scenario.get("nominated", [])],
        all_budgets=[_budget(raw) for raw in scenario.get("pdbs", [])],
        codes={node: labels[item["code"]] for node, item in refused.items()},
    )


def _first(nodes: Sequence[str]) -> str:
    return min(nodes)


SCENARIOS = list(_scenarios())


@pytest.fixture(params=SCENARIOS, ids=lambda vector: str(vector["scenario"]["id"]))
def vector(request: pytest.FixtureRequest) -> Json:
    """Give each vector in turn."""
    evaluation: Json = request.param
    return evaluation


def _evaluate(vector: Json) -> PreemptionEvaluation:
    cluster = _cluster(vector)
    return DefaultPreemption(rules=V1_34).evaluate(
        cluster.pod, cluster, tie_break=_first, now_ns=NOW_NS
    )


def test_there_are_plain_vectors_to_compare() -> None:
    """The selection of vectors does not run empty."""
    assert len(SCENARIOS) > 50


def test_the_preemptor_agrees_with_upstreams_vectors(vector: Json) -> None:
    """Eligibility, candidates with their victims and criteria, and refusals agree."""
    expected = vector["expected"]["preemption"]
    evaluation = _evaluate(vector)
    assert evaluation.ineligible == expected["reason"]
    assert sorted(evaluation.potential_nodes) == sorted(expected["potentialNodes"])
    unknown_starts = expected.get("nilStartTime", [])
    assert {
        candidate.candidate.node: (
            [victim.key for victim in candidate.candidate.victims],
            candidate.candidate.violations,
            candidate.criteria is not None
            and (
                candidate.criteria.highest_priority,
                candidate.criteria.sum_priorities,
                candidate.criteria.num_victims,
            ),
        )
        for candidate in evaluation.candidates
    } == {
        node: (
            item["victims"],
            item["numPDBViolations"],
            (
                item["criteria"]["highestPriority"],
                item["criteria"]["sumPriorities"],
                item["criteria"]["numVictims"],
            ),
        )
        for node, item in expected["candidates"].items()
    }
    for judged in evaluation.candidates:
        node = judged.candidate.node
        if node not in unknown_starts and judged.criteria is not None:
            start = expected["candidates"][node]["criteria"]["earliestStartOfHighest"]
            assert judged.criteria.earliest_start_ns == _ns(start)
    assert {
        candidate.node: (
            candidate.refusal.plugin,
            candidate.refusal.code.label,
            sorted(candidate.refusal.reasons),
        )
        for candidate in evaluation.non_candidates
    } == {
        node: (item["plugin"], item["code"], sorted(item["reasons"]))
        for node, item in expected["nonCandidates"].items()
    }


def test_the_preemptor_decides_as_upstream_decided(vector: Json) -> None:
    """The picked node, what decided it, cleared nominations and the message agree."""
    expected = vector["expected"]["preemption"]
    outcome = _evaluate(vector).outcome
    if isinstance(outcome, CannotHelp):
        assert not expected["picked"]
        assert outcome.clear_nomination == (expected["resultNominatedNode"] == "")
        assert expected["message"].endswith(outcome.message)
        return
    assert isinstance(outcome, Nomination)
    assert outcome.node == expected["picked"] == expected["resultNominatedNode"]
    assert criterion_in_logs(CRITERIA[outcome.decided_by]) == expected["decidedBy"]
    assert sorted(outcome.ties) == sorted(expected.get("pickedTies", [outcome.node]))
    cleared = [pod.key for pod in outcome.cleared_nominations]
    assert sorted(cleared) == sorted(expected.get("clearNominations", []))
