"""Every verdict about one pending pod, preemption's included, and what would be decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from services.kube.pod import Pod
from services.scheduler.core.cycle import Cycle, Errored, NoNodes, Suggested, Unschedulable
from services.scheduler.core.diagnosis import NO_NODES_TEXT, Diagnosis, fit_error_text
from services.scheduler.core.evaluate import Verdicts, evaluate, no_verdicts
from services.scheduler.core.extended_cycle import ExtendedCycle
from services.scheduler.core.failed_cycle import SnapshotFailedCycle
from services.scheduler.core.plugin_guard import PluginFailed
from services.scheduler.core.preemption.outcome import PreemptionEvaluation
from services.scheduler.core.preemption.pick import hashed_tie_break
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    host: str = ""
    fast_path: str = ""
    fit_error: str = ""
    pre_filter: Status | None = None
    unschedulable_plugins: tuple[str, ...] = ()
    preemption: PreemptionEvaluation | None = field(default=None)
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
    try:
        return _evaluated(
            cycle, pod, attempt=attempt, now_ns=now_ns, preemptor=preemptor, seed=seed
        )
    except PluginFailed as error:
        return PodEvaluation(
            profile=cycle.framework.profile.scheduler_name,
            verdicts=no_verdicts(str(error)),
            filter_order=cycle.framework.filter_order,
            weights=cycle.framework.weights,
            preemption_disabled=preemptor is None,
            error=str(error),
        )


def _evaluated(
    cycle: Cycle,
    pod: Pod,
    *,
    attempt: int,
    now_ns: int,
    preemptor: Preemptor | None,
    seed: int,
) -> PodEvaluation:
    framework = cycle.framework
    match cycle.schedule_pod(pod, attempt):
        case Suggested() as suggested:
            found = _Found(host=suggested.node_name, fast_path=_fast_path(pod, suggested))
        case NoNodes():
            found = _Found(fit_error=NO_NODES_TEXT)
        case Errored(message=message):
            found = _Found(error=message)
        case Unschedulable(diagnosis=diagnosis):
            view = SnapshotFailedCycle(pod, framework, diagnosis)
            tie_break = hashed_tie_break(seed=seed, uid=pod.uid, attempt=attempt)
            outcome = framework.post_filter(pod, view, tie_break=tie_break, now_ns=now_ns)
            judged = (
                preemptor.evaluate(pod, view, tie_break=tie_break, now_ns=now_ns)
                if preemptor is not None
                else None
            )
            if judged is not None and outcome is not None:
                judged = replace(judged, outcome=outcome)
            found = _refused(diagnosis, judged)
    extenders = cycle.extenders if isinstance(cycle, ExtendedCycle) else None
    verdicts = (
        no_verdicts(found.error)
        if found.error
        else evaluate(framework, pod, extenders, nominated_first=cycle.nominated_first)
    )
    if verdicts.error:
        found = _Found(error=verdicts.error)
    return PodEvaluation(
        profile=framework.profile.scheduler_name,
        verdicts=verdicts,
        filter_order=framework.filter_order,
        weights=framework.weights,
        host=found.host,
        fast_path=found.fast_path,
        fit_error=found.fit_error,
        pre_filter=found.pre_filter,
        unschedulable_plugins=found.unschedulable_plugins,
        preemption=found.preemption,
        preemption_disabled=preemptor is None,
        error=found.error,
    )


def _refused(diagnosis: Diagnosis, preemption: PreemptionEvaluation | None) -> _Found:
    return _Found(
        fit_error=fit_error_text(diagnosis),
        pre_filter=diagnosis.pre_filter,
        unschedulable_plugins=diagnosis.unschedulable_plugins,
        preemption=preemption,
    )


def _fast_path(pod: Pod, suggested: Suggested) -> str:
    if suggested.total is not None:
        return ""
    nominated = pod.nominated_node_name == suggested.node_name and suggested.evaluated == 1
    return "nominatedNode" if nominated else "singleFeasibleNode"
