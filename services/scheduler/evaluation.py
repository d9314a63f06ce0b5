"""Every verdict about one pod, and a session's whole state, as messages."""

from __future__ import annotations

from collections.abc import Iterable

from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as service_pb2
from services.framework.plugin import PlannedClaims
from services.framework.preemption.candidates import NonCandidate
from services.framework.preemption.outcome import (
    CannotHelp,
    JudgedCandidate,
    Nomination,
    PreemptionEvaluation,
)
from services.framework.status import Code, Status
from services.kube.pod import Pod
from services.rpc.errors import FieldError, NotFoundError
from services.rpc.kube.codec import pod_from_message
from services.rpc.kube.messages import budget_to_message, node_to_message
from services.rpc.kube.spec import PodSpecInterner
from services.scheduler.core.cycle.evaluate import PodEvaluation
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.outcomes import (
    CRITERIA,
    pod_ref,
    put_claims,
    put_freed,
    put_nomination,
    victims,
)
from services.scheduler.session import SchedulerSession

PODS_PER_NOMINATION = 1000
_CODES = {
    Code.SUCCESS: scheduler_pb2.VERDICT_CODE_SUCCESS,
    Code.ERROR: scheduler_pb2.VERDICT_CODE_ERROR,
    Code.UNSCHEDULABLE: scheduler_pb2.VERDICT_CODE_UNSCHEDULABLE,
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: (
        scheduler_pb2.VERDICT_CODE_UNSCHEDULABLE_AND_UNRESOLVABLE
    ),
    Code.PENDING: scheduler_pb2.VERDICT_CODE_PENDING,
}


_FAST_PATHS = {
    "nominatedNode": scheduler_pb2.FAST_PATH_NOMINATED_NODE,
    "singleFeasibleNode": scheduler_pb2.FAST_PATH_SINGLE_FEASIBLE_NODE,
}


def evaluate_pod(
    scheduler: Scheduler, request: service_pb2.EvaluatePodRequest, at_ns: int
) -> scheduler_pb2.Evaluation:
    """Judge a pending pod in the current state. Raises FieldError and NotFoundError."""
    pod = _judged(scheduler, request)
    if not scheduler.serves(pod):
        name = pod.spec.scheduler_name
        field = "new_pod" if request.HasField("new_pod") else "pod"
        raise FieldError(f"{field}.spec.scheduler_name", f"no profile serves {name!r}")
    if request.HasField("attempt") and request.attempt < 1:
        raise FieldError("attempt", "must be above 0, or left out")
    if request.HasField("top_k") and request.top_k < 1:
        raise FieldError("top_k", "must be above 0, or left out")
    return _encode(scheduler.evaluate(pod, request.attempt or 1, at_ns), request.top_k)


def _judged(scheduler: Scheduler, request: service_pb2.EvaluatePodRequest) -> Pod:
    """Return the session's pod that is named, or the one that the request brings."""
    uid = request.pod.uid
    if request.HasField("new_pod"):
        new = pod_from_message(request.new_pod, PodSpecInterner(), field="new_pod")
        if not new.uid:
            raise FieldError("new_pod.metadata.uid", "is required")
        if uid:
            raise FieldError("pod", "is not for a request with new_pod")
        if new.uid in scheduler.pods:
            raise FieldError("new_pod.metadata.uid", f"{new.uid!r} is a pod of the session")
        return new
    if not uid:
        raise FieldError("pod.uid", "is required")
    pod = scheduler.pods.get(uid)
    if pod is None or pod.node_name:
        raise NotFoundError(f"the session has no pending pod {uid!r}")
    return pod


def state_of(session: SchedulerSession, at_ns: int) -> scheduler_pb2.SchedulerState:
    """Return all that a session's scheduler holds; its queue's state is left out."""
    core, state = session.scheduler, scheduler_pb2.SchedulerState(time_ns=at_ns)
    snapshot = core.snapshot
    for row in snapshot.listed_rows():
        state.objects.add().node.CopyFrom(node_to_message(snapshot.node(row)))
    for message in session.intake.messages.values():
        state.objects.add().pod.CopyFrom(message)
    for budget in snapshot.budgets.values():
        state.objects.add().pod_disruption_budget.CopyFrom(budget_to_message(budget))
    state.objects.extend(session.intake.others.values())
    for pop, node_name in core.assumed():
        assumed = state.assumed.add(node_name=node_name)
        assumed.pop.uid, assumed.pop.cycle = pop.uid, pop.cycle
    for node_name in snapshot.nominations.node_names():
        nominated = [pod_ref(pod) for pod in snapshot.nominations.on(node_name)]
        for start in range(0, len(nominated), PODS_PER_NOMINATION):
            pods = nominated[start : start + PODS_PER_NOMINATION]
            state.nominations.append(queue_pb2.Nomination(node_name=node_name, pods=pods))
    state.last_node_index = core.choice_mark()
    return state


def _encode(judged: PodEvaluation, top_k: int) -> scheduler_pb2.Evaluation:
    out = scheduler_pb2.Evaluation(
        profile=judged.profile,
        skipped_filters=sorted(judged.verdicts.skipped_filters),
        skipped_scores=sorted(judged.verdicts.skipped_scores),
        filter_order=judged.filter_order,
        weights=judged.weights,
        best_nodes=judged.verdicts.best,
        host=judged.host or None,
        fast_path=_FAST_PATHS.get(judged.fast_path),
        fit_error=judged.fit_error,
        error=judged.error,
        feasible_nodes=len(judged.verdicts.feasible),
        unschedulable_plugins=judged.unschedulable_plugins,
    )
    out.nodes.extend(_node_verdicts(judged, top_k))
    if judged.freed is not None:
        put_freed(judged.freed, out.freed_claims)
    if judged.pre_filter is not None:
        out.pre_filter.CopyFrom(_refusal(judged.pre_filter, pre_filter=True))
    if judged.preemption is not None:
        _put_preemption(judged.preemption, out.preemption)
    elif judged.preemption_disabled and judged.fit_error:
        out.preemption.disabled = True
    return out


def _node_verdicts(judged: PodEvaluation, top_k: int) -> Iterable[scheduler_pb2.NodeVerdict]:
    """Yield the nodes that fit, best first, then the others by name; at most top_k (0: all)."""
    verdicts = judged.verdicts
    fitting = sorted(verdicts.feasible, key=lambda name: (-verdicts.totals.get(name, 0), name))
    names = [*fitting, *sorted(verdicts.refusals)]
    for name in names[: top_k or None]:
        node = scheduler_pb2.NodeVerdict(node_name=name)
        refusal = verdicts.refusals.get(name)
        if refusal is not None:
            pre_filter = name in verdicts.pre_filtered
            node.refusal.CopyFrom(_refusal(refusal, pre_filter=pre_filter))
        else:
            node.total = verdicts.totals.get(name, 0)
            if name in judged.claims:
                _put_planned(judged.claims[name], node)
            for plugin, scores in verdicts.scores.items():
                score = scores[name]
                node.scores.add(
                    plugin=plugin,
                    raw=score.raw,
                    normalized=score.normalized,
                    weighted=score.weighted,
                )
        yield node


def _put_planned(planned: PlannedClaims, out: scheduler_pb2.NodeVerdict) -> None:
    put_claims(planned.changes, out.claims)
    if planned.failure is not None:
        point = "PreBind" if planned.in_binding else "Reserve"
        plugin, text = planned.failure.plugin, planned.failure.message
        out.claims_failure = f'running {point} plugin "{plugin}": {text}'
    elif planned.changes.waits:
        out.claims_failure = "waits for binding conditions"


def _refusal(status: Status, *, pre_filter: bool = False) -> scheduler_pb2.Refusal:
    return scheduler_pb2.Refusal(
        plugin=status.plugin,
        code=_CODES[status.code],
        reasons=sorted(status.reasons),
        pre_filter=pre_filter,
    )


def _put_preemption(
    evaluation: PreemptionEvaluation, out: scheduler_pb2.PreemptionEvaluation
) -> None:
    out.eligible = not evaluation.ineligible
    out.reason = evaluation.ineligible
    out.potential_nodes.extend(sorted(evaluation.potential_nodes))
    judged = [_candidate(candidate) for candidate in evaluation.candidates]
    refused = [_non_candidate(node) for node in evaluation.non_candidates]
    out.candidates.extend(sorted([*judged, *refused], key=lambda candidate: candidate.node_name))
    if evaluation.picked is not None:
        out.picked = evaluation.picked.candidate.node
        out.decided_by = CRITERIA[evaluation.picked.decided_by]
        if len(evaluation.picked.ties) > 1:
            out.picked_ties.extend(sorted(evaluation.picked.ties))
    match evaluation.outcome:
        case Nomination() as nomination:
            put_nomination(nomination.node, out)
            out.cleared_nominations.extend(map(pod_ref, nomination.cleared_nominations))
        case CannotHelp() as cannot:
            out.message = cannot.message or cannot.reason
            if cannot.clear_nomination:
                put_nomination("", out)


def _candidate(judged: JudgedCandidate) -> scheduler_pb2.CandidateVerdict:
    candidate, criteria = judged.candidate, judged.criteria
    out = scheduler_pb2.CandidateVerdict(
        node_name=candidate.node,
        victims=victims(candidate.victims, candidate.violating),
        reprieved=[pod_ref(pod) for pod in candidate.reprieved],
        budget_violations=candidate.violations,
    )
    if criteria is not None:
        out.highest_priority = criteria.highest_priority
        out.sum_priorities = criteria.sum_priorities
        if not _lacks_start(candidate.victims, criteria.highest_priority):
            out.earliest_start_time_ns = criteria.earliest_start_ns
    return out


def _lacks_start(pods: tuple[Pod, ...], priority: int) -> bool:
    return any(pod.start_time_ns is None for pod in pods if pod.priority == priority)


def _non_candidate(refused: NonCandidate) -> scheduler_pb2.CandidateVerdict:
    return scheduler_pb2.CandidateVerdict(node_name=refused.node, refusal=_refusal(refused.refusal))
