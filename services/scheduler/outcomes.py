"""Decisions as a round's outcomes, for the world.

Consecutive refusals that make no room share one outcome, which holds each verdict once: where pods
wait, most attempts are such refusals (docs/decisions/0014).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from reprieve.kube.v1beta1 import meta_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from services.framework.preemption.candidates import DecidedBy
from services.framework.preemption.outcome import Nomination
from services.framework.runtime.diagnosis import Unschedulable
from services.kube.devices import ClaimChanges, FreedClaims
from services.kube.pod import Pod
from services.rpc.kube.devices import resource_claim_to_message
from services.scheduler.batch import BatchEntry
from services.scheduler.core.decisions import (
    Binding,
    Decision,
    Failed,
    HeldAtPermit,
    MayWait,
    Skipped,
    Verdict,
)
from services.scheduler.core.queueing.steps import Head, Requeue

CRITERIA = {
    criterion: scheduler_pb2.PreemptionCriterion.Value(f"PREEMPTION_CRITERION_{criterion.name}")
    for criterion in DecidedBy
}
MAY_WAIT = {
    MayWait.NOTHING: scheduler_pb2.MAY_WAIT_UNSPECIFIED,
    MayWait.STATUS: scheduler_pb2.MAY_WAIT_STATUS,
    MayWait.ALL: scheduler_pb2.MAY_WAIT_ALL,
}
PHASES = {
    "PreFilter": "RunPreFilterPlugins",
    "Filter": "RunFilterPlugins",
    "Score": "RunScorePlugins",
    "PostFilter": "RunPostFilterPlugins",
}

_OUTCOME_BYTES = 256
_POD_BYTES = 24
"""What an outcome has, and what a pod that it names has beside its names, at most."""


def put_outcomes(entries: Iterable[BatchEntry], out: scheduler_pb2.RoundOutcomes) -> int:
    """Write what was decided, and return the number of pods that were tried."""
    refusals: list[BatchEntry] = []
    tried = 0
    for entry in entries:
        if _is_plain_refusal(entry):
            refusals.append(entry)
            tried += 1
            continue
        # A skipped pod ends them, too: the cycles of those that share an outcome are consecutive.
        _put_refusals(refusals, out)
        refusals = []
        if not isinstance(entry.decision.verdict, Skipped | HeldAtPermit):
            tried += 1
            _put_outcome(entry, out.outcomes.add())
    _put_refusals(refusals, out)
    return tried


def _is_plain_refusal(entry: BatchEntry) -> bool:
    """Return whether the outcome has only a reason, a time and an attempt number."""
    verdict = entry.decision.verdict
    return (
        type(verdict) is Unschedulable
        and verdict.nomination is None
        and verdict.freed is None
        and not entry.answers
        and not entry.decision.warnings
    )


def _put_outcome(entry: BatchEntry, out: scheduler_pb2.Outcome) -> None:
    decision = entry.decision
    head, verdict = decision.head, decision.verdict
    out.pop.uid, out.pop.cycle = head.pop.uid, head.pop.cycle
    out.time_ns = entry.at_ns
    out.attempts = head.attempts
    out.first_enqueued_time_ns = head.first_enqueued_ns
    out.queued_time_ns = head.queued_ns
    if head.requeue is not None:
        _put_requeue(head.requeue, out.requeue)
    match verdict:
        case Binding():
            _put_binding(verdict, out.bind)
            if decision.claims is not None:
                put_claims(decision.claims, out.bind.claims)
        case Unschedulable():
            _put_unschedulable(verdict, out.unschedulable)
            if verdict.nomination is not None:
                _put_preemption(verdict.nomination, out.unschedulable.preemption)
            if verdict.freed is not None:
                put_freed(verdict.freed, out.unschedulable.freed_claims)
        case Failed():
            out.failure.message = verdict.message
            put_nomination(verdict.nominated_node_name, out.failure)
    out.warnings.extend(decision.warnings)
    out.phases.add(name="schedulingCycle", wall_duration_ns=entry.wall_ns)
    for name, taken_ns in decision.phases_ns.items():
        out.phases.add(name=PHASES.get(name, name), wall_duration_ns=taken_ns)
    out.extender_answers.extend(entry.answers)


def _put_binding(binding: Binding, out: scheduler_pb2.Bind) -> None:
    out.node_name = binding.node_name
    out.evaluated_nodes = binding.evaluated
    out.feasible_nodes = binding.feasible
    out.tied_nodes = binding.tied
    if binding.total is not None:
        out.score = binding.total


def put_claims(changes: ClaimChanges, out: scheduler_pb2.ClaimChanges) -> None:
    """Write what a binding changes of claims for devices."""
    out.SetInParent()
    out.claims.extend(map(resource_claim_to_message, changes.claims))
    if changes.created is not None:
        out.created.CopyFrom(resource_claim_to_message(changes.created))
    for container, resource, request in changes.mappings:
        out.extended_resource_claim_status.request_mappings.add(
            container_name=container, resource_name=resource, request_name=request
        )


def put_freed(freed: FreedClaims, out: scheduler_pb2.FreedClaims) -> None:
    """Write the claims that are deallocated."""
    for keys, refs in ((freed.deallocated, out.deallocated), (freed.deleted, out.deleted)):
        for key in keys:
            namespace, _, name = key.partition("/")
            refs.add(kind="ResourceClaim", namespace=namespace, name=name)


def _put_unschedulable(verdict: Unschedulable, out: scheduler_pb2.Unschedulable) -> None:
    """Write why a pod fits nowhere."""
    out.message = verdict.message
    out.unschedulable_plugins.extend(verdict.plugins)
    out.preemption_message = verdict.preemption_message
    put_nomination(verdict.nominated_node_name, out)
    for reason, nodes in verdict.reasons:
        out.reasons.add(reason=reason, nodes=nodes)


def put_nomination(
    node_name: str | None,
    out: scheduler_pb2.Unschedulable | scheduler_pb2.Failure | scheduler_pb2.PreemptionEvaluation,
) -> None:
    """Write the change of a pod's nomination: "" clears it, None leaves it alone."""
    if node_name:
        out.nominated_node_name = node_name
    elif node_name is not None:
        out.ends_nomination.SetInParent()


def _put_preemption(nomination: Nomination, out: scheduler_pb2.Preemption) -> None:
    out.node_name = nomination.node
    out.budget_violations = nomination.budget_violations
    out.decided_by = CRITERIA[nomination.decided_by]
    out.candidates = nomination.candidates
    out.victims.extend(victims(nomination.victims, nomination.violating))
    out.clears_last = nomination.clears_last
    out.cleared_nominations.extend(pod_ref(pod) for pod in nomination.cleared_nominations)
    out.reprieved.extend(pod_ref(pod) for pod in nomination.reprieved)


def _put_refusals(run: Sequence[BatchEntry], out: scheduler_pb2.RoundOutcomes) -> None:
    if not run:
        return
    outcome = out.outcomes.add()
    outcome.time_ns = run[0].at_ns
    refusals = outcome.refusals
    decisions = [entry.decision for entry in run]
    heads = [decision.head for decision in decisions]
    refusals.first_cycle = heads[0].pop.cycle
    refusals.uids.extend([head.pop.uid for head in heads])
    refusals.attempts.extend([head.attempts for head in heads])
    refusals.first_enqueued_time_ns.extend([head.first_enqueued_ns for head in heads])
    refusals.queued_time_ns.extend([head.queued_ns for head in heads])
    refusals.wall_duration_ns.extend([entry.wall_ns for entry in run])
    _put_verdicts(decisions, refusals)
    _put_steps(decisions, refusals)
    _put_requeues(heads, refusals)


def _put_verdicts(decisions: Iterable[Decision], out: scheduler_pb2.Refusals) -> None:
    """Write each verdict once, and for each decision the place of its own.

    A verdict that holds for several pods is mostly one object.
    """
    places: dict[Verdict, int] = {}
    place_of: dict[int, int] = {}
    refused_by: list[int] = []
    for decision in decisions:
        verdict = decision.verdict
        place = place_of.get(id(verdict))
        if place is None:
            assert isinstance(verdict, Unschedulable)  # noqa: S101 - plain refusals are
            place = place_of[id(verdict)] = places.setdefault(verdict, len(places))
            if place == len(out.verdicts):
                _put_unschedulable(verdict, out.verdicts.add())
        refused_by.append(place)
    out.verdict_indexes.extend(refused_by)


def _put_steps(decisions: Iterable[Decision], out: scheduler_pb2.Refusals) -> None:
    steps: dict[str, tuple[list[int], list[int]]] = {}
    for place, decision in enumerate(decisions):
        for name, taken_ns in decision.phases_ns.items():
            places, walls_ns = steps.setdefault(name, ([], []))
            places.append(place)
            walls_ns.append(taken_ns)
    for name, (places, walls_ns) in steps.items():
        out.steps.add(
            name=PHASES.get(name, name), attempt_indexes=places, wall_duration_ns=walls_ns
        )


def _put_requeues(heads: Sequence[Head], out: scheduler_pb2.Refusals) -> None:
    """Write each distinct Requeue once: one event moves many pods at once."""
    numbers: dict[Requeue, int] = {}
    for head in heads:
        requeue = head.requeue
        if requeue is not None and requeue not in numbers:
            numbers[requeue] = len(numbers) + 1
            _put_requeue(requeue, out.requeues.add())
    if numbers:
        out.requeue_numbers.extend(
            [0 if head.requeue is None else numbers[head.requeue] for head in heads]
        )


def _put_requeue(requeue: Requeue, out: session_pb2.Requeue) -> None:
    out.event, out.time_ns = requeue.event, requeue.at_ns
    if requeue.active_ns is not None:
        out.active_time_ns = requeue.active_ns


def outcome_bytes(decision: Decision, answers: Sequence[scheduler_pb2.ExtenderAnswer]) -> int:
    """Return the approximate size of a decision's outcome, at least what is written."""
    requeue = decision.head.requeue
    size = _OUTCOME_BYTES + (0 if requeue is None else len(requeue.event))
    for answer in answers:
        size += answer.ByteSize()
    verdict = decision.verdict
    if type(verdict) is Unschedulable:
        size += len(verdict.message) + len(verdict.preemption_message)
        nomination = verdict.nomination
        named = (
            ()
            if nomination is None
            else (*nomination.victims, *nomination.reprieved, *nomination.cleared_nominations)
        )
        size += sum(len(pod.uid) + len(pod.namespace) + len(pod.name) for pod in named)
        size += len(named) * _POD_BYTES
    return size


def pod_ref(pod: Pod) -> meta_pb2.ObjectReference:
    """Return a pod's name."""
    return meta_pb2.ObjectReference(uid=pod.uid, namespace=pod.namespace, name=pod.name)


def victims(pods: tuple[Pod, ...], violating: tuple[Pod, ...]) -> Iterator[scheduler_pb2.Victim]:
    """Return victims' messages, those that violate a budget marked."""
    marked = {pod.uid for pod in violating}
    for pod in pods:
        yield scheduler_pb2.Victim(
            pod=pod_ref(pod), priority=pod.priority, violates_budget=pod.uid in marked
        )
