"""Plays golden scheduling scenarios by EvaluatePod, and compares its responses with the vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import grpc

from replay.backends.services import FAST_PATHS
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


def scheduling_difference(channel: grpc.Channel, vector: Json) -> str:
    """Return a service's differences from a recorded scenario, "" for none.

    Where upstream's documentation and behaviour differ, either outcome is right.
    """
    scenario = vector["scenario"]
    stub = scheduler_service_pb2_grpc.SchedulerServiceStub(channel)
    found = evaluation_of(stub, scenario)
    accepted = [vector[name] for name in ("expectedDocumented", "expected") if name in vector]
    found_differences = [differences(scenario, expected, found) for expected in accepted]
    return "" if not all(found_differences) else "\n".join(found_differences[0])


def evaluation_of(
    stub: scheduler_service_pb2_grpc.SchedulerServiceStub, scenario: Json
) -> scheduler_pb2.Evaluation:
    """Return the evaluation of the scenario's pod, in a session of its own."""
    config = scheduler_pb2.SchedulerConfig()
    if "schedulerConfiguration" in scenario:
        config.kube_scheduler_configuration = json.dumps(scenario["schedulerConfiguration"])
    request = service_pb2.CreateSessionRequest(config=config)
    session = stub.CreateSession(request, timeout=DEADLINE_S).session
    try:
        stamp = session_pb2.Stamp(session=session, sequence=1)
        round_ = round_of(scenario)
        stub.RunRound(service_pb2.RunRoundRequest(stamp=stamp, round=round_), timeout=DEADLINE_S)
        evaluate = service_pb2.EvaluatePodRequest(stamp=session_pb2.Stamp(session=session))
        evaluate.new_pod.CopyFrom(parse(type(evaluate.new_pod), scenario["pending"]))
        parts = stub.EvaluatePod(evaluate, timeout=DEADLINE_S)
        return merged(parts, service_pb2.EvaluatePodResponse()).evaluation
    finally:
        ending = session_pb2.DeleteSessionRequest(session=session)
        stub.DeleteSession(ending, timeout=DEADLINE_S)


def round_of(scenario: Json) -> scheduler_pb2.Round:
    """Return the scenario's cluster without the evaluated pod, as the events of a round."""
    round_ = scheduler_pb2.Round(at_ns=NOW_NS, events_only=True)
    for kind, field in OBJECTS.items():
        for plain in scenario.get(kind, ()):
            content = getattr(round_.events.add(at_ns=NOW_NS).add, field)
            content.CopyFrom(parse(type(content), plain))
    for plain in scenario["nominated"]:
        pod = round_.events.add(at_ns=NOW_NS).add.pod
        pod.CopyFrom(parse(type(pod), plain))
    return round_


def differences(scenario: Json, expected: Json, found: scheduler_pb2.Evaluation) -> list[str]:
    """Return the differences, one text for each field of the vector."""
    wanted = _complete(expected)
    answer = _answer(found, wanted)
    return [
        f"{scenario['id']} {key}:\n  is     {answer.get(key)}\n  wanted {wanted.get(key)}"
        for key in sorted(wanted.keys() | answer.keys())
        if answer.get(key) != wanted.get(key)
    ]


def _complete(expected: Json) -> Json:
    """Return the expected fields, with the empty ones that a vector leaves out."""
    wanted = {key: value for key, value in expected.items() if key not in _IGNORED}
    if "error" in wanted:
        return {"error": True}
    wanted.setdefault("skippedFilter", [])
    if wanted["feasible"]:
        wanted.setdefault("skippedScore", [])
        wanted.setdefault("scores", {})
    if "profile" in wanted:
        wanted.setdefault("weights", {})
    if "preemption" in wanted:
        preemption = {**_NOTHING_TRIED, **wanted["preemption"]}
        wanted["preemption"] = {k: v for k, v in preemption.items() if k not in _IGNORED}
    return wanted


def _answer(found: scheduler_pb2.Evaluation, wanted: Json) -> Json:
    if found.error:
        return {"error": True}
    fitting = [node for node in found.nodes if not node.HasField("refusal")]
    answer: dict[str, Any] = {
        "feasible": sorted(node.node_name for node in fitting),
        "filter": {
            node.node_name: _refusal(node.refusal)
            for node in found.nodes
            if node.HasField("refusal")
        },
        "skippedFilter": list(found.skipped_filters),
    }
    if "profile" in wanted:
        answer["profile"] = found.profile
        answer["weights"] = dict(found.weights)
        answer["filterOrder"] = list(found.filter_order)
    if fitting:
        return {**answer, **_scored(found, fitting, wanted)}
    answer["fitError"] = found.fit_error
    if found.HasField("pre_filter"):
        answer["preFilter"] = _refusal(found.pre_filter)
    if found.preemption.disabled:
        answer["postFilterDisabled"] = True
    else:
        answer["preemption"] = _preemption(found.preemption, wanted.get("preemption", {}))
    return answer


def _scored(
    found: scheduler_pb2.Evaluation, fitting: list[scheduler_pb2.NodeVerdict], wanted: Json
) -> Json:
    hosts = wanted.get("hosts", [])
    answer: dict[str, Any] = {
        "total": {node.node_name: node.total for node in fitting},
        "scores": _scores(fitting),
        "skippedScore": list(found.skipped_scores),
        "best": sorted(found.best_nodes),
        "hosts": hosts if found.host in hosts else [found.host],
    }
    if found.fast_path:
        answer["fastPath"] = FAST_PATHS[found.fast_path]
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
    candidates = [candidate for candidate in found.candidates if not candidate.HasField("refusal")]
    refused = [candidate for candidate in found.candidates if candidate.HasField("refusal")]
    wanted = expected.get("candidates", {})
    ties = sorted(found.picked_ties)
    picked = expected.get("picked", "")
    nominated = found.nominated_node_name if found.HasField("nominated_node_name") else None
    if nominated and nominated in ties:
        nominated = expected["resultNominatedNode"]
    return {
        "eligible": found.eligible,
        "reason": found.reason,
        "potentialNodes": sorted(found.potential_nodes),
        "candidates": {
            candidate.node_name: _candidate(candidate, wanted.get(candidate.node_name, {}))
            for candidate in candidates
        },
        "nonCandidates": {
            candidate.node_name: _refusal(candidate.refusal) for candidate in refused
        },
        "picked": picked if ties and picked in ties else found.picked,
        "decidedBy": found.decided_by,
        "clearNominations": [_key(pod) for pod in found.cleared_nominations],
        "pickedTies": ties,
        "message": found.message,
        "resultNominatedNode": nominated,
    }


def _candidate(each: scheduler_pb2.CandidateVerdict, wanted: Json) -> Json:
    criteria: dict[str, Any] = {
        "highestPriority": each.highest_priority,
        "sumPriorities": each.sum_priorities,
        "numVictims": len(each.victims),
    }
    if each.HasField("earliest_start_ns"):
        start = datetime.fromtimestamp(each.earliest_start_ns // SECOND_NS, UTC)
        criteria["earliestStartOfHighest"] = f"{start:%Y-%m-%dT%H:%M:%SZ}"
    else:
        earliest = wanted.get("criteria", {}).get("earliestStartOfHighest")
        criteria["earliestStartOfHighest"] = earliest
    return {
        "victims": [_key(victim.pod) for victim in each.victims],
        "numPDBViolations": each.budget_violations,
        "criteria": criteria,
    }


def _key(pod: meta_pb2.ObjectReference) -> str:
    return f"{pod.namespace}/{pod.name}"
