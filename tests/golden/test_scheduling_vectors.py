"""The scheduler's core against what upstream's kube-scheduler v1.34.1 did.

Only scenarios are compared whose objects no absent plugin would look at. The vectors lie in the
folder `shared` beside the repository.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from reprieve.kube.v1alpha1 import node_pb2, pod_pb2, policy_pb2
from services.kube.pod import Pod
from services.rpc.kube_codec import budget_from_message, node_from_message, pod_from_message
from services.rpc.kube_json import parse
from services.rpc.kube_spec import PodSpecInterner
from services.scheduler.core.cycle import Cycle, NoNodes, Suggested, Unschedulable
from services.scheduler.core.diagnosis import fit_error_text
from services.scheduler.core.evaluate import Verdicts, evaluate
from services.scheduler.core.failed_cycle import SnapshotFailedCycle
from services.scheduler.core.framework import Framework
from services.scheduler.core.host_choice import KeyedChoice
from services.scheduler.core.preemption.outcome import Nominate
from services.scheduler.core.preemption.preemptor import Preemptor
from services.scheduler.core.preemption.rules import V1_34
from services.scheduler.core.snapshot import Snapshot

FOLDER = Path(__file__).resolve().parents[2] / ".." / "shared" / "golden"
ABSENT_FILTERS = {
    "DynamicResources",
    "InterPodAffinity",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
}
ABSENT_SCORES = {"InterPodAffinity", "PodTopologySpread", "VolumeBinding"}
LEAST_COMPARED = 338
NOW_NS = 1_717_200_000 * 1_000_000_000

Json = Mapping[str, Any]


def scenarios(name: str) -> Iterator[tuple[Json, Json]]:
    """Yield the served scenarios of a file with what is expected."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"the golden vectors are not beside the repository: {path}")
    with gzip.open(path) as lines:
        for line in lines:
            vector = json.loads(line)
            if is_served(vector["scenario"]):
                yield vector["scenario"], vector["expected"]


def is_served(scenario: Json) -> bool:
    """Tell whether the objects concern none but the plugins that are there."""
    if any(scenario.get(key) for key in UNSERVED_OBJECTS):
        return False
    return all(_is_served_pod(pod) for pod in all_pods(scenario))


UNSERVED_OBJECTS = (
    "services",
    "replicaSets",
    "schedulerConfiguration",
    "persistentVolumes",
    "persistentVolumeClaims",
    "storageClasses",
    "csiNodes",
    "volumeAttachments",
    "csiDrivers",
    "csiStorageCapacities",
)


def all_pods(scenario: Json) -> list[Json]:
    """Return assigned, nominated and pending pods."""
    return [*scenario["pods"], *scenario["nominated"], scenario["pending"]]


def _is_served_pod(pod: Json) -> bool:
    spec, status = pod["spec"], pod.get("status", {})
    affinity = spec.get("affinity") or {}
    unserved = (
        affinity.get("podAffinity"),
        affinity.get("podAntiAffinity"),
        spec.get("topologySpreadConstraints"),
        spec.get("volumes"),
        spec.get("resourceClaims"),
        status.get("containerStatuses"),
        status.get("initContainerStatuses"),
    )
    return not any(unserved)


def snapshot_of(scenario: Json) -> tuple[Snapshot, Pod]:
    """Return the scenario's cluster, and the pending pod."""
    interner, snapshot = PodSpecInterner(), Snapshot()
    for node in scenario["nodes"]:
        snapshot.set_node(node_from_message(parse(node_pb2.Node, node)))
    for each in scenario["pods"]:
        snapshot.set_pod(pod_from_message(parse(pod_pb2.Pod, each), interner))
    for each in scenario["nominated"]:
        pod = pod_from_message(parse(pod_pb2.Pod, each), interner)
        snapshot.nominations.put(pod, pod.nominated_node_name)
    for each in scenario["pdbs"]:
        snapshot.set_budget(budget_from_message(parse(policy_pb2.PodDisruptionBudget, each)))
    return snapshot, pod_from_message(parse(pod_pb2.Pod, scenario["pending"]), interner)


def observed(scenario: Json, expected: Json) -> Json:
    """Return what the core says, in the vectors' words."""
    snapshot, pod = snapshot_of(scenario)
    framework = Framework(snapshot)
    verdicts = evaluate(framework, pod)
    answer: dict[str, Any] = {
        "feasible": list(verdicts.feasible),
        "filter": {name: _refusal(verdicts, name) for name in verdicts.refusals},
        "skippedFilter": _skipped(verdicts),
    }
    if verdicts.feasible:
        answer |= _scored(verdicts)
    result = Cycle(framework, KeyedChoice(seed=1)).schedule_pod(pod, 1)
    match result:
        case Suggested(node_name=name):
            answer["hosts"] = expected["hosts"] if name in expected["hosts"] else [name]
        case Unschedulable(diagnosis=diagnosis):
            answer["fitError"] = fit_error_text(diagnosis)
            cycle = SnapshotFailedCycle(pod, framework, diagnosis)
            answer["preemption"] = preempted(pod, cycle, expected["preemption"])
        case NoNodes():
            answer["fitError"] = "no nodes"
    return answer


def preempted(pod: Pod, cycle: SnapshotFailedCycle, expected: Json) -> Json:
    """Return what the preemptor says, and the vector's own words for the rest."""
    found = Preemptor(rules=V1_34).evaluate(pod, cycle, tie_break=min, now_ns=NOW_NS)
    outcome = found.outcome
    return {
        **expected,
        "potentialNodes": sorted(found.potential_nodes),
        "candidates": {
            each.candidate.node: {
                **expected["candidates"].get(each.candidate.node, {}),
                "victims": [victim.key for victim in each.candidate.victims],
                "numPDBViolations": each.candidate.violations,
            }
            for each in found.candidates
        },
        "nonCandidates": {
            each.node: {
                "plugin": each.refusal.plugin,
                "code": each.refusal.code.label,
                "reasons": sorted(each.refusal.reasons),
            }
            for each in found.non_candidates
        },
        "picked": outcome.node if isinstance(outcome, Nominate) else "",
    }


def _skipped(verdicts: Verdicts) -> list[str]:
    if not verdicts.feasible and verdicts.pre_filtered == verdicts.refusals.keys():
        return []  # PreFilter ended before it came to skipping
    return sorted({*verdicts.skipped_filters, *ABSENT_FILTERS})


def _refusal(verdicts: Verdicts, name: str) -> Json:
    status = verdicts.refusals[name]
    found = {
        "plugin": status.plugin,
        "code": status.code.label,
        "reasons": sorted(status.reasons),
    }
    return {**found, "preFilter": True} if name in verdicts.pre_filtered else found


def _scored(verdicts: Verdicts) -> Json:
    return {
        "skippedScore": sorted({*verdicts.skipped_scores, *ABSENT_SCORES}),
        "scores": {
            plugin: {
                node: {"normalized": score.normalized, "weighted": score.weighted}
                for node, score in column.items()
            }
            for plugin, column in verdicts.scores.items()
        },
        "total": dict(verdicts.totals),
        "best": sorted(verdicts.best),
    }


@cache
def compared(name: str) -> tuple[int, list[str]]:
    """Return how many scenarios of a file were compared, and what differs."""
    count, wrong = 0, []
    for scenario, expected in scenarios(name):
        count += 1
        answer = observed(scenario, expected)
        for key, value in answer.items():
            wanted = expected.get(key)
            if value != wanted:
                wrong.append(f"{scenario['id']} {key}:\n  is     {value}\n  wanted {wanted}")
    return count, wrong


@pytest.mark.parametrize("name", ["scheduling-dev.jsonl.gz", "scheduling-extra-dev.jsonl.gz"])
def test_verdicts_texts_and_hosts_are_those_of_upstream(name: str) -> None:
    """Filters, scores, totals, best nodes, hosts and messages agree in every served scenario."""
    count, wrong = compared(name)
    assert not wrong, f"{len(wrong)} differences in {count} scenarios:\n" + "\n".join(wrong[:40])


def test_most_scenarios_are_compared() -> None:
    """The selection does not quietly shrink."""
    count, _ = compared("scheduling-dev.jsonl.gz")
    assert count >= LEAST_COMPARED
