"""Why a pod fits nowhere, held as columns, and the same in kube-scheduler's words.

Source: kubernetes v1.34 pkg/scheduler/framework/types.go, Diagnosis and FitError.Error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from services.scheduler.core.cached_columns import FilterColumn
from services.scheduler.core.columns import Int64s
from services.scheduler.core.kernels import Int8s
from services.scheduler.core.prefilter import PreFilterOutcome
from services.scheduler.core.shape import EXCLUDED, Shape
from services.scheduler.core.status import Code, Status

NO_NODES_TEXT = "no nodes available to schedule pods"
"""The message where the snapshot has no node; upstream's ErrNoNodesAvailable."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """The rows, int64[n], that got one status."""

    status: Status
    rows: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The refusals of one scheduling cycle; `groups` cover every node once.

    `pre_filter` is the refusal of the whole pod, where there was one; all nodes stand in one
    group with it then. `unschedulable_plugins` are sorted.
    """

    node_count: int
    groups: tuple[Refusals, ...]
    unschedulable_plugins: tuple[str, ...]
    pending_plugins: tuple[str, ...] = ()
    pre_filter: Status | None = None

    def rows_with(self, code: Code) -> Int64s:
        """Return the rows that were refused with `code`, ascending: int64[n]."""
        found = [group.rows for group in self.groups if group.status.code is code]
        return np.sort(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)

    def status(self, row: int) -> Status:
        """Return the status of one row; it must be a node's."""
        return next(group.status for group in self.groups if row in group.rows)


def refused_by_pre_filter(outcome: PreFilterOutcome, rows: Int64s) -> Diagnosis:
    """Return the diagnosis of a pod that PreFilter refused; `rows` are all nodes."""
    assert outcome.refusal is not None
    groups = (Refusals(outcome.refusal, rows),)
    return Diagnosis(
        node_count=len(rows),
        groups=groups,
        unschedulable_plugins=_plugins(groups, outcome),
        pre_filter=outcome.refusal,
    )


def refused_by_filters(
    shape: Shape, refuser: Int8s, overridden: Mapping[int, Status], node_count: int
) -> Diagnosis:
    """Return the diagnosis of a pod that no node takes.

    refuser: int8[nodes] as in Shape. `overridden` holds rows whose status differs from the
    columns', because nominated pods were counted there.
    """
    groups = list(_by_filter(shape.filters, refuser, overridden))
    excluded = _without(np.flatnonzero(refuser == EXCLUDED), overridden)
    if len(excluded):
        groups.append(Refusals(shape.pre_filter.excluded, excluded))
    for row, status in overridden.items():
        groups.append(Refusals(status, np.array([row], dtype=np.int64)))
    return Diagnosis(
        node_count=node_count,
        groups=tuple(groups),
        unschedulable_plugins=_plugins(groups, shape.pre_filter),
        pending_plugins=_named(g.status for g in groups if g.status.code is Code.PENDING),
    )


def fit_error_text(diagnosis: Diagnosis, post_filter: str = "") -> str:
    """Return the event's message: "0/4 nodes are available: 3 Insufficient cpu, ...".

    `post_filter` is what preemption has to say, appended where it is not empty.
    """
    text = f"0/{diagnosis.node_count} nodes are available:"
    if diagnosis.pre_filter is not None and diagnosis.pre_filter.message:
        text += f" {diagnosis.pre_filter.message}."
    else:
        counted = sorted(f"{count} {reason}" for reason, count in reason_counts(diagnosis))
        if counted:
            text += f" {', '.join(counted)}."
    return f"{text} {post_filter}" if post_filter else text


def reason_counts(diagnosis: Diagnosis) -> tuple[tuple[str, int], ...]:
    """Return each reason with the number of nodes that it refuses, most frequent first.

    Equally frequent ones stand in the order of their texts.
    """
    counts: Counter[str] = Counter()
    for group in diagnosis.groups:
        for reason in group.status.reasons:
            counts[reason] += len(group.rows)
    return tuple(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def _by_filter(
    filters: Sequence[tuple[int, FilterColumn]], refuser: Int8s, overridden: Mapping[int, Status]
) -> Iterator[Refusals]:
    for number, column in filters:
        rows = _without(np.flatnonzero(refuser == number), overridden)
        codes = column.codes[rows]
        for code in np.unique(codes).tolist():
            yield Refusals(column.status(code), rows[codes == code])


def _without(rows: Int64s, overridden: Mapping[int, Status]) -> Int64s:
    return rows[~np.isin(rows, list(overridden))] if overridden else rows


def _plugins(groups: Iterable[Refusals], pre_filter: PreFilterOutcome) -> tuple[str, ...]:
    rejected = {group.status.plugin for group in groups if group.status.code.is_rejected}
    return tuple(sorted((rejected | set(pre_filter.plugins)) - {""}))


def _named(statuses: Iterable[Status]) -> tuple[str, ...]:
    return tuple(sorted({status.plugin for status in statuses if status.plugin}))
