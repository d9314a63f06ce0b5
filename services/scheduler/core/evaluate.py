"""Every verdict about one pending pod: who refuses each node, what each score gives, who is best.

The queue and the tie-break play no part in it, and neither do the short cuts of a cycle: all
nodes that PreFilter leaves, and the pod's nominated node, are filtered, and all that fit are
scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from services.kube.pod import Pod
from services.scheduler.core.cached_columns import ScoreColumn
from services.scheduler.core.cycle import (
    filter_error_text,
    try_nominated_node,
)
from services.scheduler.core.extenders import PLUGIN
from services.scheduler.core.extenders_chain import Extenders
from services.scheduler.core.framework import Framework
from services.scheduler.core.kernels import NODE_SCORE_MAX
from services.scheduler.core.plugin import Normalization
from services.scheduler.core.preemption.preemptor import ExtenderError
from services.scheduler.core.shape import EXCLUDED, Shape
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Code, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeScore:
    """One plugin's score of one node: as given, on the scale 0 to 100, and times its weight."""

    raw: int
    normalized: int
    weighted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """The verdicts by node name.

    `refusals` holds every node that does not fit; `pre_filtered` names those that PreFilter
    refused; where that was all of them, those count as skipped that came before. Skipped plugins
    have no scores and add 0 to `totals`, which are the sums of the weighted scores. `error` is how
    a plugin failed, on any node that the plugins before it spared; there are no verdicts then.
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


def no_verdicts(error: str) -> Verdicts:
    """Return those of a cycle that ended in an error."""
    return Verdicts(
        feasible=(), refusals={}, pre_filtered=frozenset(), skipped_filters=(), error=error
    )


def evaluate(
    framework: Framework,
    pod: Pod,
    extenders: Extenders | None = None,
    *,
    nominated_first: bool = True,
) -> Verdicts:
    """Return every verdict about `pod` on every node of the snapshot, the extenders' among them.

    `nominated_first` asks the filters about the pod's nominated node even where PreFilter leaves it
    out, as a cycle does.
    """
    snapshot = framework.snapshot
    shape = framework.shape(pod)
    rows = np.flatnonzero(snapshot.columns.alive).tolist()
    names = {row: snapshot.name(row) for row in rows}
    refusal = shape.pre_filter.refusal
    if refusal is not None:
        return Verdicts(
            feasible=(),
            refusals=dict.fromkeys(names.values(), refusal),
            pre_filtered=frozenset(names.values()),
            skipped_filters=shape.skipped_filters,
        )
    refusals = _refusals(framework, pod, shape, rows)
    excluded = {row for row in rows if shape.refuser[row] == EXCLUDED}
    tried = try_nominated_node(snapshot, pod, shape) if excluded and nominated_first else None
    if tried is not None and tried[0] in excluded:
        _put_tried(refusals, excluded, *tried)
    if extenders:
        failure = _extend(refusals, extenders, pod, snapshot)
        if failure is not None:
            return no_verdicts(failure.message)
    feasible = sorted((row for row in rows if row not in refusals), key=lambda row: names[row])
    failed = [status for status in refusals.values() if status.code is Code.ERROR]
    if failed or (feasible and shape.score_failure):
        return no_verdicts(filter_error_text(failed[0]) if failed else shape.score_failure)
    scores = {
        column.plugin.name: _scores(column, weight, feasible, snapshot)
        for weight, column in shape.scores
    }
    fitting = [names[row] for row in feasible]
    if extenders and len(feasible) > 1:
        added = extenders.scores(pod, [snapshot.node(row) for row in feasible])
        scores[PLUGIN] = [_added(added.get(name, 0)) for name in fitting]
    totals = [sum(column[i].weighted for column in scores.values()) for i in range(len(feasible))]
    return Verdicts(
        feasible=tuple(fitting),
        refusals={names[row]: status for row, status in refusals.items()},
        pre_filtered=frozenset(names[row] for row in excluded),
        skipped_filters=shape.skipped_filters,
        skipped_scores=shape.skipped_scores if feasible else (),
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
    passed = extenders.passed(pod, [snapshot.node(row) for row in rows])
    if isinstance(passed, ExtenderError):
        return passed
    left = {node.name for node in passed.nodes}
    silent = Status(code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE, plugin=PLUGIN)
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
    """Put what the filters say of a row in place of PreFilter's word; a failure says nothing."""
    if refusal is None:
        del refusals[row]
    elif refusal.code.is_rejected:
        refusals[row] = refusal
    else:
        return
    excluded.remove(row)


def _refusals(
    framework: Framework, pod: Pod, shape: Shape, rows: Sequence[int]
) -> dict[int, Status]:
    overridden = framework.outlook(pod).nominated_refusals(pod)
    columns = dict(shape.filters)
    found: dict[int, Status] = {}
    for row in rows:
        refuser = int(shape.refuser[row])
        if row in overridden:
            found[row] = overridden[row]
        elif refuser == EXCLUDED:
            found[row] = shape.pre_filter.excluded
        elif refuser:
            found[row] = columns[refuser].status(int(columns[refuser].codes[row]))
    return found


def _scores(
    column: ScoreColumn, weight: int, rows: Sequence[int], snapshot: Snapshot
) -> list[NodeScore]:
    column.sync()
    raw: list[int] = column.scores[list(rows)].tolist()
    kind = column.plugin.normalization
    scaled = raw
    if kind is Normalization.OWN:
        raw, scaled = _own_scores(column, rows, snapshot)
    elif kind is not Normalization.NONE:
        scaled = normalized(raw, reverse=kind is Normalization.REVERSE)
    return [
        NodeScore(raw=given, normalized=score, weighted=weight * score)
        for given, score in zip(raw, scaled, strict=True)
    ]


def _own_scores(
    column: ScoreColumn, rows: Sequence[int], snapshot: Snapshot
) -> tuple[list[int], list[int]]:
    places = np.argsort(rows)
    ascending = np.asarray(rows, dtype=np.int64)[places]
    found = column.plugin.normalize(column.data, snapshot, ascending, column.scores[ascending])
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
