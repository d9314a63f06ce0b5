"""Every verdict about one pending pod, preemption's included, and what would be decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from services.kube.pod import Pod
from services.scheduler.core.cycle import Cycle, Errored, NoNodes, Suggested, Unschedulable
from services.scheduler.core.diagnosis import NO_NODES_TEXT, Diagnosis, fit_error_text
from services.scheduler.core.evaluate import Verdicts, evaluate, no_verdicts
from services.scheduler.core.extended_cycle import ExtendedCycle
from services.scheduler.core.failed_cycle import SnapshotFailedCycle
from services.scheduler.core.plugin_guard import PluginFailed
from services.scheduler.core.preemption.outcome import PreemptionEvaluation
from services.scheduler.core.preemption.pick import TieBreak, hashed_tie_break
from services.scheduler.core.preemption.preemptor import Preemptor
from services.scheduler.core.status import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvaluation:
    """All that is found about a pod; texts are kube-scheduler's.

    `host` is "" where no node fits, and `fast_path` "nominatedNode" or "singleFeasibleNode" where
    a cycle returns without scoring. `error` is how the cycle failed, without any verdict then.
    `preemption` is what the preemptor finds, with the outcome of PostFilter as a whole; it is None
    where a node fits or where preemption is disabled.
    """

    profile: str
    verdicts: Verdicts
    filter_order: tuple[str, ...]
    weights: Mapping[str, int]
    host: str = ""
    fast_path: str = ""
    fit_error: str = ""
    pre_filter: Status | None = None
    unschedulable_plugins: tuple[str, ...] = ()
    preemption: PreemptionEvaluation | None = None
    preemption_disabled: bool = False
    error: str = ""


def evaluate_pod(
    cycle: Cycle,
    pod: Pod,
    *,
    attempt: int,
    now_ns: int,
    preemptor: Preemptor | None,
    seed: int,
) -> PodEvaluation:
    """Judge `pod` as `cycle` would on its attempt number `attempt`; nothing is assumed."""
    blank = PodEvaluation(
        profile=cycle.framework.profile.scheduler_name,
        verdicts=no_verdicts(""),
        filter_order=cycle.framework.filter_order,
        weights=cycle.framework.weights,
        preemption_disabled=preemptor is None,
    )
    try:
        match cycle.schedule_pod(pod, attempt):
            case Suggested() as suggested:
                fast_path = _fast_path(pod, suggested)
                found = replace(blank, host=suggested.node_name, fast_path=fast_path)
            case NoNodes():
                found = replace(blank, fit_error=NO_NODES_TEXT)
            case Errored(message=message):
                return _failed(blank, message)
            case Unschedulable(diagnosis=diagnosis):
                tie_break = hashed_tie_break(seed=seed, uid=pod.uid, attempt=attempt)
                found = replace(
                    blank,
                    fit_error=fit_error_text(diagnosis),
                    pre_filter=diagnosis.pre_filter,
                    unschedulable_plugins=diagnosis.unschedulable_plugins,
                    preemption=_preempted(cycle, pod, diagnosis, preemptor, tie_break, now_ns),
                )
        extenders = cycle.extenders if isinstance(cycle, ExtendedCycle) else None
        first = cycle.nominated_first
        verdicts = evaluate(cycle.framework, pod, extenders, nominated_first=first)
    except PluginFailed as error:
        return _failed(blank, str(error))
    if verdicts.error:
        return replace(blank, verdicts=verdicts, error=verdicts.error)
    return replace(found, verdicts=verdicts)


def _failed(blank: PodEvaluation, error: str) -> PodEvaluation:
    return replace(blank, verdicts=no_verdicts(error), error=error)


def _preempted(
    cycle: Cycle,
    pod: Pod,
    diagnosis: Diagnosis,
    preemptor: Preemptor | None,
    tie_break: TieBreak,
    now_ns: int,
) -> PreemptionEvaluation | None:
    view = SnapshotFailedCycle(pod, cycle.framework, diagnosis)
    outcome = cycle.framework.post_filter(pod, view, tie_break=tie_break, now_ns=now_ns)
    if preemptor is None:
        return None
    judged = preemptor.evaluate(pod, view, tie_break=tie_break, now_ns=now_ns)
    return judged if outcome is None else replace(judged, outcome=outcome)


def _fast_path(pod: Pod, suggested: Suggested) -> str:
    if suggested.total is not None:
        return ""
    nominated = pod.nominated_node_name == suggested.node_name and suggested.evaluated == 1
    return "nominatedNode" if nominated else "singleFeasibleNode"
