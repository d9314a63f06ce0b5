"""What preemption found, best candidate first; and refusals, grouped."""

from __future__ import annotations

from collections.abc import Iterable

from replay.explain.explanation import Candidate, Preemption, RefusedNodes, Victim
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from reprieve.session.v1alpha1 import session_pb2

_CODES = {
    scheduler_pb2.VERDICT_CODE_ERROR: "Error",
    scheduler_pb2.VERDICT_CODE_UNSCHEDULABLE: "Unschedulable",
    scheduler_pb2.VERDICT_CODE_UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    scheduler_pb2.VERDICT_CODE_PENDING: "Pending",
}


def refused_nodes(
    refusals: Iterable[tuple[str, scheduler_pb2.Refusal]], top: int
) -> tuple[RefusedNodes, ...]:
    """Return the nodes by who refused them first and why, the largest group first.

    Each group names its first `top` nodes.
    """
    groups: dict[tuple[str, int, tuple[str, ...], bool], list[str]] = {}
    for node_name, refusal in refusals:
        key = (refusal.plugin, refusal.code, tuple(refusal.reasons), refusal.pre_filter)
        groups.setdefault(key, []).append(node_name)
    return tuple(
        RefusedNodes(
            plugin=plugin,
            code=_CODES.get(code, ""),  # type: ignore[call-overload] # an enum is an int
            reasons=reasons,
            count=len(names),
            nodes=tuple(names[:top]),
            by_pre_filter=by_pre_filter,
        )
        for (plugin, code, reasons, by_pre_filter), names in sorted(
            groups.items(), key=lambda each: (-len(each[1]), each[0])
        )
    )


def preemption_of(found: scheduler_pb2.PreemptionEvaluation, top: int) -> Preemption:
    """Return what the preemptor found, with its `top` candidates."""
    if found.disabled:
        return Preemption(disabled=True)
    candidates = [each for each in found.candidates if not each.HasField("refusal")]
    candidates.sort(key=lambda each: (each.node_name != found.picked, *_judged_by(each)))
    refused = [
        (each.node_name, each.refusal) for each in found.candidates if each.HasField("refusal")
    ]
    return Preemption(
        ineligible=found.reason if not found.eligible else "",
        message=found.message,
        picked=found.picked,
        decided_by=found.decided_by,
        tied=len(found.picked_ties),
        potential_nodes=len(found.potential_nodes),
        candidate_count=len(candidates),
        candidates=tuple(_candidate(each) for each in candidates[:top]),
        no_candidates=refused_nodes(refused, top)[:top],
    )


def _judged_by(candidate: scheduler_pb2.CandidateVerdict) -> tuple[int, int, int, int, int, str]:
    """Return upstream's criteria in their order, less being better."""
    return (
        candidate.budget_violations,
        candidate.highest_priority,
        candidate.sum_priorities,
        len(candidate.victims),
        -candidate.earliest_start_ns,
        candidate.node_name,
    )


def _candidate(found: scheduler_pb2.CandidateVerdict) -> Candidate:
    return Candidate(
        node=found.node_name,
        victims=tuple(
            Victim(pod=_key(each.pod), priority=each.priority, violates_budget=each.violates_budget)
            for each in found.victims
        ),
        reprieved=tuple(map(_key, found.reprieved)),
        budget_violations=found.budget_violations,
        highest_priority=found.highest_priority,
        sum_priorities=found.sum_priorities,
        earliest_start_ns=(
            found.earliest_start_ns if found.HasField("earliest_start_ns") else None
        ),
    )


def _key(pod: session_pb2.PodRef) -> str:
    return f"{pod.namespace}/{pod.name}"
