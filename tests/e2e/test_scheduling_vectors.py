"""The scheduler service's Evaluate against what upstream's kube-scheduler v1.34.1 did.

The same scenarios as the core's own comparison, with what only the service's answer tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest

from replay.backends.processes import EmbeddedServices
from reprieve.kube.v1alpha1 import node_pb2, object_pb2, pod_pb2, policy_pb2
from reprieve.scheduler.v1alpha1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1alpha1 import scheduler_service_pb2 as service_pb2
from reprieve.session.v1alpha1 import session_pb2
from services.rpc.kube_json import parse
from tests.golden.test_scheduling_vectors import LEAST_COMPARED, NOW_NS, Json, scenarios

DEADLINE_S = 30
SECOND_NS = 1_000_000_000
# What upstream's DynamicResources, which is not there, says where a PreFilter before its own
# refused the whole pod: it has no state then, and its error ends PostFilter before preemption's
# turn. So neither the message nor the nomination that is left alone is preemption's.
NO_DEVICE_STATE = "not found"

pytestmark = pytest.mark.e2e

Stub = scheduler_service_pb2_grpc.SchedulerServiceStub


@pytest.fixture(scope="module")
def stub(services: EmbeddedServices) -> Iterator[Stub]:
    """Yield a stub of the scheduler that runs."""
    with grpc.insecure_channel(services.processes["scheduler"].address) as channel:
        yield Stub(channel)


def request_of(scenario: Json) -> service_pb2.EvaluateRequest:
    """Return the scenario as a question."""
    request = service_pb2.EvaluateRequest(at_ns=NOW_NS)
    for node in scenario["nodes"]:
        request.objects.append(object_pb2.Object(node=parse(node_pb2.Node, node)))
    for pod in scenario["pods"]:
        request.objects.append(object_pb2.Object(pod=parse(pod_pb2.Pod, pod)))
    for each in scenario["pdbs"]:
        budget = parse(policy_pb2.PodDisruptionBudget, each)
        request.objects.append(object_pb2.Object(pod_disruption_budget=budget))
    request.nominated.extend(parse(pod_pb2.Pod, each) for each in scenario["nominated"])
    request.pod.CopyFrom(parse(pod_pb2.Pod, scenario["pending"]))
    return request


def seen(found: scheduler_pb2.Evaluation, expected: Json) -> Json:
    """Return the answer in the vectors' words."""
    fitting = [node for node in found.nodes if not node.HasField("refusal")]
    answer: dict[str, Any] = {
        "feasible": sorted(node.node_name for node in fitting),
        "filter": {
            node.node_name: _refusal(node.refusal)
            for node in found.nodes
            if node.HasField("refusal")
        },
    }
    if fitting:
        answer["total"] = {node.node_name: node.total for node in fitting}
        answer["scores"] = _scores(fitting)
        answer["best"] = sorted(found.best_nodes)
        in_hosts = found.host in expected["hosts"]
        answer["hosts"] = expected["hosts"] if in_hosts else [found.host]
    else:
        answer["fitError"] = found.fit_error
        if "preemption" in expected:
            answer["preemption"] = _preemption(found.preemption, expected["preemption"])
    return answer


def _scores(nodes: list[scheduler_pb2.NodeVerdict]) -> Json:
    columns: dict[str, dict[str, Json]] = {}
    for node in nodes:
        for score in node.scores:
            column = columns.setdefault(score.plugin, {})
            column[node.node_name] = {"normalized": score.normalized, "weighted": score.weighted}
    return columns


def _refusal(refusal: scheduler_pb2.Refusal) -> Json:
    code = scheduler_pb2.VerdictCode.Name(refusal.code).removeprefix("VERDICT_CODE_")
    found = {
        "plugin": refusal.plugin,
        "code": "".join(word.capitalize() for word in code.split("_")),
        "reasons": list(refusal.reasons),
    }
    return {**found, "preFilter": True} if refusal.pre_filter else found


def _preemption(found: scheduler_pb2.PreemptionEvaluation, expected: Json) -> Json:
    """Return what preemption found; the vector's own words for what cannot be compared."""
    candidates = [each for each in found.candidates if not each.HasField("refusal")]
    refused = [each for each in found.candidates if each.HasField("refusal")]
    wanted = expected["candidates"]
    ties = sorted(found.picked_ties)
    answer: dict[str, Any] = {
        **expected,
        "eligible": found.eligible,
        "reason": found.reason,
        "potentialNodes": sorted(found.potential_nodes),
        "candidates": {
            each.node_name: _candidate(each, wanted.get(each.node_name, {})) for each in candidates
        },
        "nonCandidates": {each.node_name: _refusal(each.refusal) for each in refused},
        "picked": expected["picked"] if ties and expected["picked"] in ties else found.picked,
    }
    answer["decidedBy"] = found.decided_by
    answer["clearNominations"] = [_key(each) for each in found.cleared_nominations]
    answer["pickedTies"] = ties
    nominated = found.nominated_node_name if found.HasField("nominated_node_name") else None
    if nominated and nominated in ties:
        nominated = expected["resultNominatedNode"]
    if expected["message"] == NO_DEVICE_STATE:
        return answer
    # Upstream's message begins with the device plugin's text.
    same = bool(found.message) and expected["message"].endswith(found.message)
    message = expected["message"] if same else found.message
    return {**answer, "resultNominatedNode": nominated, "message": message}


def _candidate(each: scheduler_pb2.CandidateVerdict, wanted: Json) -> Json:
    criteria: dict[str, Any] = {
        **wanted.get("criteria", {}),
        "highestPriority": each.highest_priority,
        "sumPriorities": each.sum_priorities,
        "numVictims": len(each.victims),
    }
    if each.HasField("earliest_start_ns"):
        start = datetime.fromtimestamp(each.earliest_start_ns // SECOND_NS, UTC)
        criteria["earliestStartOfHighest"] = f"{start:%Y-%m-%dT%H:%M:%SZ}"
    return {
        **wanted,
        "victims": [_key(victim.pod) for victim in each.victims],
        "numPDBViolations": each.budget_violations,
        "criteria": criteria,
    }


def _key(pod: session_pb2.PodRef) -> str:
    return f"{pod.namespace}/{pod.name}"


def complete(expected: Json) -> Json:
    """Return what is expected, with what a vector leaves out where it is empty."""
    if "preemption" not in expected:
        return expected
    empty = {"decidedBy": "", "clearNominations": [], "pickedTies": []}
    return {**expected, "preemption": {**empty, **expected["preemption"]}}


def test_the_service_answers_what_upstream_did(stub: Stub) -> None:
    """Verdicts, scores, hosts, fit errors and all of preemption agree in every scenario."""
    count, wrong = 0, []
    for scenario, recorded in scenarios("scheduling-dev.jsonl.gz"):
        count += 1
        expected = complete(recorded)
        found = stub.Evaluate(request_of(scenario), timeout=DEADLINE_S).evaluation
        for key, is_ in seen(found, expected).items():
            wanted = expected.get(key)
            if is_ != wanted:
                wrong.append(f"{scenario['id']} {key}:\n  is     {is_}\n  wanted {wanted}")
    assert count >= LEAST_COMPARED
    assert not wrong, f"{len(wrong)} differences in {count} scenarios:\n" + "\n".join(wrong[:40])
