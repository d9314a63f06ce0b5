"""A diagnosis with the statuses that extenders gave to nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from services.framework.columns.columns import Bools
from services.framework.columns.kernels import NO_GROUP
from services.framework.runtime.diagnosis import Diagnosis, StatusCount
from services.framework.status import Code, Status
from services.scheduler.core.cycle.extenders import EXTENDER_PLUGIN

ABSENT = Status(code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
"""The status of a node that was not evaluated: unresolvable, without a reason."""


def with_extenders(
    diagnosis: Diagnosis,
    *,
    by_row: Mapping[int, Status],
    unknown_nodes: Sequence[Status],
    any_sent: bool,
    silent: Status,
    alive: Bools,
) -> Diagnosis:
    """Return `diagnosis` with the statuses that extenders gave, by row.

    An extender's status of a node replaces a filter's. It may drop a node without a status, which
    counts as a node that was never evaluated, and it may name nodes that are not in the snapshot,
    whose reasons are counted as well.
    Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, findNodesThatFitPod,
    findNodesThatPassExtenders; pkg/scheduler/framework/types.go, NodeToStatus, FitError.Error.

    unknown_nodes: the statuses of names that are not in the snapshot. any_sent: whether any node
    was sent to extenders, of which none is left; a nominated node sent alone does not count.
    silent: the status of nodes without one. alive: bool[nodes].
    """
    group_of = diagnosis.group_of.copy()
    statuses = [group.status for group in diagnosis.groups]
    places: dict[Status, int] = {}

    def place(status: Status) -> int:
        if status not in places:
            places[status] = len(statuses)
            statuses.append(status)
        return places[status]

    for row, status in by_row.items():
        group_of[row] = place(status)
    left = alive & (group_of == NO_GROUP)
    if left.any():
        group_of[left] = place(silent)
    counts = np.bincount(group_of[group_of != NO_GROUP], minlength=len(statuses)).tolist()
    groups = [StatusCount(status, n) for status, n in zip(statuses, counts, strict=True)]
    plugins = {*diagnosis.unschedulable_plugins} - {EXTENDER_PLUGIN} | (
        {EXTENDER_PLUGIN} if any_sent else set()
    )
    return replace(
        diagnosis,
        groups=(*groups, *(StatusCount(status, 1) for status in unknown_nodes)),
        group_of=group_of,
        unschedulable_plugins=tuple(sorted(plugins)),
        key=None,
        _codes=None,
    )
