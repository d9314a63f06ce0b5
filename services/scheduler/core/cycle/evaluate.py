"""Every verdict about one pending pod: refusals by node, scores, preemption, and the decision.

The pod goes through its cycle as in an attempt, with a recorder that wants all verdicts: the cycle
then looks at every node also where a nominated node would end it. The queue and the tie-break play
no part in the verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from services.framework.plugin import PlannedClaims, Preemptor
from services.framework.preemption.candidates import hashed_tie_break
from services.framework.preemption.outcome import ExtenderError, PreemptionEvaluation
from services.framework.runtime.diagnosis import Unschedulable, fit_error_text
from services.framework.runtime.failed_cycle import FitError
from services.framework.runtime.guard import PluginFailed
from services.framework.runtime.merged_columns import EXCLUDED
from services.framework.runtime.verdicts import ClassVerdicts
from services.framework.status import Code, Status
from services.kube.devices import FreedClaims
from services.kube.pod import Pod
from services.scheduler.core.cycle.attempt import CycleRecorder, ProfileCycles
from services.scheduler.core.cycle.extenders import EXTENDER_PLUGIN
from services.scheduler.core.decisions import Binding, Failed

_SILENT = Status(code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE, plugin=EXTENDER_PLUGIN)
"""The status of a node that an extender drops without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeScore:
    """One plugin's score of one node: raw, normalised to 0 to 100, and times its weight."""

    raw: int
    normalized: int
    weighted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdicts:
    """The verdicts by node name.

    `refusals` holds every node that does not fit; `pre_filtered` names those that PreFilter
    refused; where that was all of them, those count as skipped that came before. Skipped plugins
    have no scores and add 0 to `totals`, which are the sums of the weighted scores. `error` is how
    a plugin failed on a node that passed the plugins before it; there are no verdicts then.
    """

    feasible: tuple[str, ...]
    refusals: Mapping[str, Status]
    pre_filtered: frozenset[str]
    skipped_filters: tuple[str, ...]
    skipped_scores: tuple[str, ...] = ()
    scores: Mapping[str, Mapping[str, NodeScore]] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    best: tuple[str, ...] = ()
    error: str = ""


def no_verdicts(error: str) -> NodeVerdicts:
    """Return the verdicts of a cycle that ended in an error."""
    return NodeVerdicts(
        feasible=(), refusals={}, pre_filtered=frozenset(), skipped_filters=(), error=error
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvaluation:
    """The complete evaluation of a pod; texts are kube-scheduler's.

    `host` is "" where no node fits, and `fast_path` "nominatedNode" or "singleFeasibleNode" where
    a cycle returns without scoring. `error` is how the cycle failed, without any verdict then.
    `preemption` is what the preemptor finds, with the outcome of PostFilter as a whole; it is None
    where a node fits or where preemption is disabled. `claims` are what a binding to each node that
    fits would change of claims for devices, and `freed` those that are given back.
    """

    profile: str
    verdicts: NodeVerdicts
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
    claims: Mapping[str, PlannedClaims] = field(default_factory=dict)
    freed: FreedClaims | None = None


def evaluate_pod(
    cycles: ProfileCycles,
    pod: Pod,
    *,
    attempt_number: int,
    now_ns: int,
    preemptor: Preemptor | None,
    seed: int,
) -> PodEvaluation:
    """Evaluate `pod` as `cycles` would on attempt `attempt_number`; nothing is assumed."""
    blank = PodEvaluation(
        profile=cycles.framework.profile.scheduler_name,
        verdicts=no_verdicts(""),
        filter_order=cycles.framework.filter_order,
        weights=cycles.framework.weights,
        preemption_disabled=preemptor is None,
    )
    cycles.framework.snapshot.now_ns = now_ns
    recorder = CycleRecorder(wants_all=True)
    try:
        result = cycles.schedule_pod(pod, attempt_number, recorder)
        if isinstance(result, Failed):
            return replace(blank, verdicts=no_verdicts(result.message), error=result.message)
        verdicts = _node_verdicts(cycles, pod, recorder)
        if verdicts.error:
            return replace(blank, verdicts=verdicts, error=verdicts.error)
        blank = replace(blank, verdicts=verdicts, claims=_claims(cycles, pod, verdicts))
        match result:
            case Binding():
                return replace(blank, host=result.node_name, fast_path=_fast_path(pod, result))
            case Unschedulable(message=message):  # There is no node; no refusal is repeated here.
                return replace(blank, fit_error=message)
            case FitError(diagnosis=diagnosis):
                tie_break = hashed_tie_break(seed=seed, uid=pod.uid, attempt_number=attempt_number)
                outcome = cycles.framework.post_filter(
                    pod, result, tie_break=tie_break, now_ns=now_ns
                )
                judged = None
                if preemptor is not None:
                    judged = preemptor.evaluate(pod, result, tie_break=tie_break, now_ns=now_ns)
                if judged is not None and outcome is not None:
                    judged = replace(judged, outcome=outcome)
                return replace(
                    blank,
                    fit_error=fit_error_text(diagnosis),
                    pre_filter=diagnosis.pre_filter,
                    unschedulable_plugins=diagnosis.unschedulable_plugins,
                    preemption=judged,
                    freed=None if outcome is None else outcome.freed,
                )
    except PluginFailed as error:
        return replace(blank, verdicts=no_verdicts(str(error)), error=str(error))


def _node_verdicts(cycles: ProfileCycles, pod: Pod, recorder: CycleRecorder) -> NodeVerdicts:
    """Return the recorded verdicts by node name."""
    snapshot = cycles.framework.snapshot
    verdicts = recorder.verdicts or cycles.framework.verdicts.synced(pod)
    filters, pre_filter = verdicts.filters, verdicts.filters.pre_filter
    names = {row: snapshot.name(row) for row in np.flatnonzero(snapshot.columns.alive).tolist()}
    if pre_filter.refusal is not None:
        return NodeVerdicts(
            feasible=(),
            refusals=dict.fromkeys(names.values(), pre_filter.refusal),
            pre_filtered=frozenset(names.values()),
            skipped_filters=filters.skipped_filters,
        )
    sent = recorder.sent
    if sent is not None and sent.sample is not verdicts.refuser and cycles.extenders is not None:
        # Sampling has left out nodes, which extenders have not seen.
        all_sent = cycles.extenders.send(pod, verdicts.refuser)
        if isinstance(all_sent, ExtenderError):
            return no_verdicts(all_sent.message)
        sent = all_sent
    refusals = verdicts.refusals()
    excluded = [
        row for row in refusals if verdicts.refuser[row] == EXCLUDED and row not in verdicts.tried
    ]
    if sent is not None:
        refusals |= sent.refusals(_SILENT)
    rows = [row for row in names if row not in refusals]
    skipped_scores: tuple[str, ...] = ()
    scores: dict[str, dict[str, NodeScore]] = {}
    try:
        if rows:
            skipped_scores, scores = verdicts.totals().skipped, _scores(verdicts, names, rows)
    except PluginFailed:
        if len(rows) > 1:
            raise
        # A cycle takes a single node without scoring it, so that a plugin may fail at that here.
    if cycles.extenders is not None and len(rows) > 1:
        added = sent.prioritize() if sent is not None else {}
        scores[EXTENDER_PLUGIN] = {
            name: NodeScore(raw=score, normalized=score, weighted=score)
            for name, score in ((names[row], added.get(names[row], 0)) for row in rows)
        }
    feasible = tuple(sorted(names[row] for row in rows))
    totals = {name: sum(column[name].weighted for column in scores.values()) for name in feasible}
    best = max(totals.values(), default=0)
    return NodeVerdicts(
        feasible=feasible,
        refusals={names[row]: status for row, status in refusals.items()},
        pre_filtered=frozenset(names[row] for row in excluded),
        skipped_filters=filters.skipped_filters,
        skipped_scores=skipped_scores,
        scores=scores,
        totals=totals,
        best=tuple(name for name, total in totals.items() if total == best),
    )


def _scores(
    verdicts: ClassVerdicts, names: Mapping[int, str], rows: Sequence[int]
) -> dict[str, dict[str, NodeScore]]:
    """Return each plugin's scores of `rows`, which are all that fit; raise PluginFailed."""
    totals = verdicts.totals()
    failure = totals.synced_failure()
    if failure:
        raise PluginFailed(failure)
    return {
        plugin: {
            names[row]: NodeScore(raw=raw, normalized=score, weighted=weight * score)
            for row, raw, score in zip(
                rows, normalized.raw.tolist(), normalized.scores.tolist(), strict=True
            )
        }
        for plugin, weight, normalized in totals.by_plugin(np.array(rows, dtype=np.int64))
    }


def _claims(cycles: ProfileCycles, pod: Pod, verdicts: NodeVerdicts) -> Mapping[str, PlannedClaims]:
    framework = cycles.framework
    planned: dict[str, PlannedClaims] = {}
    for name in verdicts.feasible:
        row = framework.snapshot.row(name)
        plan = None if row is None else framework.planned_claims(pod, row)
        if plan is not None:
            planned[name] = plan
    return planned


def _fast_path(pod: Pod, suggested: Binding) -> str:
    if suggested.total is not None:
        return ""
    nominated = pod.nominated_node_name == suggested.node_name and suggested.evaluated == 1
    return "nominatedNode" if nominated else "singleFeasibleNode"
