"""Plays golden scheduling scenarios by EvaluatePod, and compares its responses with the vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import grpc

from replay.backends.services import FAST_PATHS
from replay.conform.vectors import claims
from replay.trace.criteria import criterion_in_logs
from reprieve.kube.v1beta1 import meta_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as service_pb2
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import SECOND_NS
from services.rpc.kube.json_codec import parse
from services.rpc.parts import merged

DEADLINE_S = 30
NOW_NS = 1_717_200_000 * SECOND_NS
OBJECTS = {
    "namespaces": "namespace",
    "nodes": "node",
    "pdbs": "pod_disruption_budget",
    "services": "service",
    "replicaSets": "replica_set",
    "statefulSets": "stateful_set",
    "replicationControllers": "replication_controller",
    "persistentVolumes": "persistent_volume",
    "persistentVolumeClaims": "persistent_volume_claim",
    "storageClasses": "storage_class",
    "csiNodes": "csi_node",
    "volumeAttachments": "volume_attachment",
    "csiDrivers": "csi_driver",
    "csiStorageCapacities": "csi_storage_capacity",
    **claims.OBJECTS,
    "pods": "pod",
}
_IGNORED = frozenset({"id", "victimOrderTies", "nilStartTime"})
_NOTHING_TRIED: Mapping[str, Any] = {
    "decidedBy": "",
    "clearNominations": [],
    "pickedTies": [],
    "message": "",
}

Json = Mapping[str, Any]


def scheduling_difference(channel: grpc.Channel, version: str, vector: Json) -> str:
    """Return a service's differences from a scenario recorded of `version`, "" if none.

    Where upstream's documentation and behaviour differ, either outcome is right.
    """
    scenario = vector["scenario"]
    stub = scheduler_service_pb2_grpc.SchedulerServiceStub(channel)
    evaluation = evaluation_of(stub, scenario, version)
    accepted = [vector[name] for name in ("expectedDocumented", "expected") if name in vector]
    found_differences = [differences(scenario, expected, evaluation) for expected in accepted]
    return "" if not all(found_differences) else "\n".join(found_differences[0])


def evaluation_of(
    stub: scheduler_service_pb2_grpc.SchedulerServiceStub, scenario: Json, rules: str
) -> scheduler_pb2.Evaluation:
    """Return the evaluation of the scenario's pod by `rules`, in a session of its own."""
    config = scheduler_pb2.SchedulerConfig(rules=rules)
    if "schedulerConfiguration" in scenario:
        config.kube_scheduler_configuration = json.dumps(scenario["schedulerConfiguration"])
    request = service_pb2.CreateSessionRequest(config=config)
    session = stub.CreateSession(request, timeout=DEADLINE_S).session_id
    try:
        stamp = session_pb2.Stamp(session_id=session, sequence=1)
        round_ = round_of(scenario)
        stub.RunRound(service_pb2.RunRoundRequest(stamp=stamp, round=round_), timeout=DEADLINE_S)
        evaluate = service_pb2.EvaluatePodRequest(stamp=session_pb2.Stamp(session_id=session))
        evaluate.new_pod.CopyFrom(parse(type(evaluate.new_pod), scenario["pending"]))
        parts = stub.EvaluatePod(evaluate, timeout=DEADLINE_S)
        return merged(parts, service_pb2.EvaluatePodResponse()).evaluation
    finally:
        ending = session_pb2.DeleteSessionRequest(session_id=session)
        stub.DeleteSession(ending, timeout=DEADLINE_S)


def round_of(scenario: Json) -> scheduler_pb2.Round:
    """Return the scenario's cluster without the evaluated pod, as the events of a round."""
    round_ = scheduler_pb2.Round(time_ns=NOW_NS, events_only=True)
    for kind, field in OBJECTS.items():
        for plain in scenario.get(kind, ()):
            content = getattr(round_.events.add(time_ns=NOW_NS).add, field)
            content.CopyFrom(parse(type(content), plain))
    for plain in scenario["nominated"]:
        pod = round_.events.add(time_ns=NOW_NS).add.pod
        pod.CopyFrom(parse(type(pod), plain))
    return round_


def differences(scenario: Json, expected: Json, evaluation: scheduler_pb2.Evaluation) -> list[str]:
    """Return the differences, one text for each field of the vector."""
    recorded, of_claims = claims.split(_complete(expected))
    answer = _answer(evaluation, recorded)
    added: list[str] = []
    if claims.is_about_claims(scenario) and "error" not in recorded:
        added = claims.claims_differences(scenario, of_claims, evaluation)
    return [
        f"{scenario['id']} {key}:\n  is     {answer.get(key)}\n  wanted {recorded.get(key)}"
        for key in sorted(recorded.keys() | answer.keys())
        if answer.get(key) != recorded.get(key)
    ] + added


def _complete(expected: Json) -> Json:
    """Return the expected fields, with the empty ones that a vector leaves out."""
    recorded = {key: value for key, value in expected.items() if key not in _IGNORED}
    if "error" in recorded:
        return {"error": True}
    recorded.setdefault("skippedFilter", [])
    if recorded["feasible"]:
        recorded.setdefault("skippedScore", [])
        recorded.setdefault("scores", {})
    if "profile" in recorded:
        recorded.setdefault("weights", {})
    if "preemption" in recorded:
        preemption = {**_NOTHING_TRIED, **recorded["preemption"]}
        recorded["preemption"] = {k: v for k, v in preemption.items() if k not in _IGNORED}
    return recorded


def _answer(evaluation: scheduler_pb2.Evaluation, recorded: Json) -> Json:
    if evaluation.error:
        return {"error": True}
    fitting = [node for node in evaluation.nodes if not node.HasField("refusal")]
    answer: dict[str, Any] = {
        "feasible": sorted(node.node_name for node in fitting),
        "filter": {
            node.node_name: _refusal(node.refusal)
            for node in evaluation.nodes
            if node.HasField("refusal")
        },
        "skippedFilter": list(evaluation.skipped_filters),
    }
    if "profile" in recorded:
        answer["profile"] = evaluation.profile
        answer["weights"] = dict(evaluation.weights)
        answer["filterOrder"] = list(evaluation.filter_order)
    if fitting:
        return {**answer, **_scored(evaluation, fitting, recorded)}
    answer["fitError"] = evaluation.fit_error
    if evaluation.HasField("pre_filter"):
        answer["preFilter"] = _refusal(evaluation.pre_filter)
    if evaluation.preemption.disabled:
        answer["postFilterDisabled"] = True
    else:
        answer["preemption"] = _preemption(evaluation.preemption, recorded.get("preemption", {}))
    return answer


def _scored(
    evaluation: scheduler_pb2.Evaluation, fitting: list[scheduler_pb2.NodeVerdict], recorded: Json
) -> Json:
    hosts = recorded.get("hosts", [])
    answer: dict[str, Any] = {
        "total": {node.node_name: node.total for node in fitting},
        "scores": _scores(fitting),
        "skippedScore": list(evaluation.skipped_scores),
        "best": sorted(evaluation.best_nodes),
        "hosts": hosts if evaluation.host in hosts else [evaluation.host],
    }
    if evaluation.fast_path:
        answer["fastPath"] = FAST_PATHS[evaluation.fast_path]
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
    plain = {
        "plugin": refusal.plugin,
        "code": "".join(word.capitalize() for word in code.split("_")),
        "reasons": list(refusal.reasons),
    }
    return {**plain, "preFilter": True} if refusal.pre_filter else plain


def _preemption(preemption: scheduler_pb2.PreemptionEvaluation, expected: Json) -> Json:
    candidates = [
        candidate for candidate in preemption.candidates if not candidate.HasField("refusal")
    ]
    refused = [candidate for candidate in preemption.candidates if candidate.HasField("refusal")]
    recorded = expected.get("candidates", {})
    ties = sorted(preemption.picked_ties)
    picked = expected.get("picked", "")
    nominated = preemption.nominated_node_name if preemption.WhichOneof("nomination") else None
    if nominated and nominated in ties:
        nominated = expected["resultNominatedNode"]
    return {
        "eligible": preemption.eligible,
        "reason": preemption.reason,
        "potentialNodes": sorted(preemption.potential_nodes),
        "candidates": {
            candidate.node_name: _candidate(candidate, recorded.get(candidate.node_name, {}))
            for candidate in candidates
        },
        "nonCandidates": {
            candidate.node_name: _refusal(candidate.refusal) for candidate in refused
        },
        "picked": picked if ties and picked in ties else preemption.picked,
        "decidedBy": criterion_in_logs(preemption.decided_by),
        "clearNominations": [_key(pod) for pod in preemption.cleared_nominations],
        "pickedTies": ties,
        "message": preemption.message,
        "resultNominatedNode": nominated,
    }


def _candidate(candidate: scheduler_pb2.CandidateVerdict, recorded: Json) -> Json:
    criteria: dict[str, Any] = {
        "highestPriority": candidate.highest_priority,
        "sumPriorities": candidate.sum_priorities,
        "numVictims": len(candidate.victims),
    }
    if candidate.HasField("earliest_start_time_ns"):
        start = datetime.fromtimestamp(candidate.earliest_start_time_ns // SECOND_NS, UTC)
        criteria["earliestStartOfHighest"] = f"{start:%Y-%m-%dT%H:%M:%SZ}"
    else:
        earliest = recorded.get("criteria", {}).get("earliestStartOfHighest")
        criteria["earliestStartOfHighest"] = earliest
    return {
        "victims": [_key(victim.pod) for victim in candidate.victims],
        "numPDBViolations": candidate.budget_violations,
        "criteria": criteria,
    }


def _key(pod: meta_pb2.ObjectReference) -> str:
    return f"{pod.namespace}/{pod.name}"
