"""Every verdict about one pending pod: refusals by node, scores, preemption, and the decision.

The queue and the tie-break play no part in the verdicts, and neither do the shortcuts of a cycle:
all nodes that PreFilter leaves and the pod's nominated node are filtered, and all that fit are
scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from services.framework.columns.kernels import NODE_SCORE_MAX
from services.framework.plugin import Normalization
from services.framework.preemption.outcome import PreemptionEvaluation
from services.framework.preemption.pick import TieBreak, hashed_tie_break
from services.framework.preemption.preemptor import ExtenderError, Preemptor
from services.framework.runtime.diagnosis import NO_NODES_TEXT, Diagnosis, fit_error_text
from services.framework.runtime.framework import Framework
from services.framework.runtime.guard import PluginFailed
from services.framework.runtime.plugin_columns import ScoreColumn
from services.framework.runtime.verdicts import EXCLUDED, EquivalenceClass
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.pod import Pod
from services.scheduler.core.cycle.attempt import (
    Cycle,
    CycleError,
    FitError,
    NoNodesAvailable,
    ScheduleResult,
    filter_error_text,
    try_nominated_node,
)
from services.scheduler.core.cycle.extenders import EXTENDER_PLUGIN, Extenders
from services.scheduler.core.cycle.failed_cycle import SnapshotFailedCycle


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
    """Return those of a cycle that ended in an error."""
    return NodeVerdicts(
        feasible=(), refusals={}, pre_filtered=frozenset(), skipped_filters=(), error=error
    )


def evaluate(
    framework: Framework,
    pod: Pod,
    extenders: Extenders | None = None,
    *,
    nominated_first: bool = True,
) -> NodeVerdicts:
    """Return every verdict about `pod` on every node of the snapshot, the extenders' among them.

    `nominated_first` runs the filters on the pod's nominated node even where PreFilter excludes it,
    as a cycle does.
    """
    snapshot = framework.snapshot
    equivalence = framework.equivalence_class(pod)
    rows = np.flatnonzero(snapshot.columns.alive).tolist()
    names = {row: snapshot.name(row) for row in rows}
    refusal = equivalence.pre_filter.refusal
    if refusal is not None:
        return NodeVerdicts(
            feasible=(),
            refusals=dict.fromkeys(names.values(), refusal),
            pre_filtered=frozenset(names.values()),
            skipped_filters=equivalence.skipped_filters,
        )
    refusals = _refusals(framework, pod, equivalence, rows)
    excluded = {row for row in rows if equivalence.refuser[row] == EXCLUDED}
    tried = try_nominated_node(snapshot, pod, equivalence) if excluded and nominated_first else None
    if tried is not None and tried[0] in excluded:
        _put_tried(refusals, excluded, *tried)
    if extenders:
        failure = _extend(refusals, extenders, pod, snapshot)
        if failure is not None:
            return no_verdicts(failure.message)
    feasible = sorted((row for row in rows if row not in refusals), key=lambda row: names[row])
    failed = [status for status in refusals.values() if status.code is Code.ERROR]
    if failed or (feasible and equivalence.score_failure):
        return no_verdicts(filter_error_text(failed[0]) if failed else equivalence.score_failure)
    scores = {
        column.plugin.name: _scores(column, weight, feasible, snapshot)
        for weight, column in equivalence.scores
    }
    fitting = [names[row] for row in feasible]
    if extenders and len(feasible) > 1:
        added = extenders.scores(pod, [snapshot.node(row) for row in feasible])
        scores[EXTENDER_PLUGIN] = [_added(added.get(name, 0)) for name in fitting]
    totals = [sum(column[i].weighted for column in scores.values()) for i in range(len(feasible))]
    return NodeVerdicts(
        feasible=tuple(fitting),
        refusals={names[row]: status for row, status in refusals.items()},
        pre_filtered=frozenset(names[row] for row in excluded),
        skipped_filters=equivalence.skipped_filters,
        skipped_scores=equivalence.skipped_scores if feasible else (),
        scores={
            plugin: dict(zip(fitting, column, strict=True)) for plugin, column in scores.items()
        },
        totals=dict(zip(fitting, totals, strict=True)),
        best=tuple(n for n, total in zip(fitting, totals, strict=True) if total == max(totals)),
    )


def _extend(
    refusals: dict[int, Status], extenders: Extenders, pod: Pod, snapshot: Snapshot
) -> ExtenderError | None:
    """Add the nodes that extenders refuse, or return how one of them failed."""
    rows = [row for row in snapshot.listed_rows() if row not in refusals]
    if any(status.code is Code.ERROR for status in refusals.values()):
        return None
    passed = extenders.filter(pod, [snapshot.node(row) for row in rows])
    if isinstance(passed, ExtenderError):
        return passed
    left = {node.name for node in passed.nodes}
    silent = Status(code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE, plugin=EXTENDER_PLUGIN)
    for row in rows:
        name = snapshot.name(row)
        if name not in left:
            refusals[row] = passed.statuses.get(name, silent)
    return None


def _added(score: int) -> NodeScore:
    """Return what extenders add, which nothing normalises."""
    return NodeScore(raw=score, normalized=score, weighted=score)


def _put_tried(
    refusals: dict[int, Status], excluded: set[int], row: int, refusal: Status | None
) -> None:
    """Replace PreFilter's refusal of a row by the filters' result; a failure replaces nothing."""
    if refusal is None:
        del refusals[row]
    elif refusal.code.is_rejected:
        refusals[row] = refusal
    else:
        return
    excluded.remove(row)


def _refusals(
    framework: Framework, pod: Pod, equivalence: EquivalenceClass, rows: Sequence[int]
) -> dict[int, Status]:
    overridden = framework.cached_attempt(pod).nominated_refusals(pod)
    columns = dict(equivalence.filters)
    found: dict[int, Status] = {}
    for row in rows:
        refuser = int(equivalence.refuser[row])
        if row in overridden:
            found[row] = overridden[row]
        elif refuser == EXCLUDED:
            found[row] = equivalence.pre_filter.excluded
        elif refuser:
            found[row] = columns[refuser].status(int(columns[refuser].values[row]))
    return found


def _scores(
    column: ScoreColumn, weight: int, rows: Sequence[int], snapshot: Snapshot
) -> list[NodeScore]:
    column.sync()
    raw: list[int] = column.values[list(rows)].tolist()
    kind = column.plugin.normalization
    scaled = raw
    if kind is Normalization.OWN:
        raw, scaled = _own_scores(column, rows, snapshot)
    elif kind is not Normalization.NONE:
        scaled = normalized(raw, reverse=kind is Normalization.REVERSE)
    return [
        NodeScore(raw=raw_score, normalized=score, weighted=weight * score)
        for raw_score, score in zip(raw, scaled, strict=True)
    ]


def _own_scores(
    column: ScoreColumn, rows: Sequence[int], snapshot: Snapshot
) -> tuple[list[int], list[int]]:
    places = np.argsort(rows)
    ascending = np.asarray(rows, dtype=np.int64)[places]
    found = column.plugin.normalize(column.data, snapshot, ascending, column.values[ascending])
    raw, scores = np.zeros_like(found.raw), np.zeros_like(found.scores)
    raw[places], scores[places] = found.raw, found.scores
    return raw.tolist(), scores.tolist()


def normalized(raw: Sequence[int], *, reverse: bool) -> list[int]:
    """Return raw scores on the scale 0 to 100, the highest one being 100 (or 0 in reverse).

    Source: kubernetes v1.34 plugins/helper/normalize_score.go, DefaultNormalizeScore.
    """
    highest = max(raw, default=0)
    scaled = [NODE_SCORE_MAX * score // highest if highest > 0 else 0 for score in raw]
    return [NODE_SCORE_MAX - score for score in scaled] if reverse else scaled


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvaluation:
    """All that is found about a pod; texts are kube-scheduler's.

    `host` is "" where no node fits, and `fast_path` "nominatedNode" or "singleFeasibleNode" where
    a cycle returns without scoring. `error` is how the cycle failed, without any verdict then.
    `preemption` is what the preemptor finds, with the outcome of PostFilter as a whole; it is None
    where a node fits or where preemption is disabled.
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


def evaluate_pod(
    cycle: Cycle, pod: Pod, *, attempt: int, now_ns: int, preemptor: Preemptor | None, seed: int
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
            case ScheduleResult() as suggested:
                fast_path = _fast_path(pod, suggested)
                found = replace(blank, host=suggested.node_name, fast_path=fast_path)
            case NoNodesAvailable():
                found = replace(blank, fit_error=NO_NODES_TEXT)
            case CycleError(message=message):
                return _failed(blank, message)
            case FitError(diagnosis=diagnosis):
                tie_break = hashed_tie_break(seed=seed, uid=pod.uid, attempt=attempt)
                found = replace(
                    blank,
                    fit_error=fit_error_text(diagnosis),
                    pre_filter=diagnosis.pre_filter,
                    unschedulable_plugins=diagnosis.unschedulable_plugins,
                    preemption=_preempted(cycle, pod, diagnosis, preemptor, tie_break, now_ns),
                )
        verdicts = evaluate(
            cycle.framework, pod, cycle.extenders, nominated_first=cycle.nominated_first
        )
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


def _fast_path(pod: Pod, suggested: ScheduleResult) -> str:
    if suggested.total is not None:
        return ""
    nominated = pod.nominated_node_name == suggested.node_name and suggested.evaluated == 1
    return "nominatedNode" if nominated else "singleFeasibleNode"
