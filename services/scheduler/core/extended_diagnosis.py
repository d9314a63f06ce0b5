"""A diagnosis with what extenders said of nodes.

What an extender says of a node replaces what a filter said of it. It may drop a node without a
word, which counts as one that was never looked at, and it may name nodes that nobody knows, whose
reasons are counted all the same.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, findNodesThatFitPod,
findNodesThatPassExtenders; pkg/scheduler/framework/types.go, NodeToStatus, FitError.Error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from services.scheduler.core.columns import Bools
from services.scheduler.core.diagnosis import Diagnosis, Refusals
from services.scheduler.core.extenders import PLUGIN
from services.scheduler.core.kernels import NO_GROUP
from services.scheduler.core.status import Code, Status

ABSENT = Status(code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
"""What a node counts as that nothing was said of: no deletion cures it, and there is no reason."""


def with_extenders(
    diagnosis: Diagnosis,
    *,
    said: Mapping[int, Status],
    strangers: Sequence[Status],
    asked: bool,
    silent: Status,
    alive: Bools,
) -> Diagnosis:
    """Return `diagnosis` with the statuses that extenders gave, by row.

    strangers: those of names that are no nodes. asked: whether there was any node to ask about,
    of which none is left; a nominated node that was asked about alone does not count. silent: the
    status of nodes without one. alive: bool[nodes].
    """
    group_of = diagnosis.group_of.copy()
    statuses = [group.status for group in diagnosis.groups]
    places: dict[Status, int] = {}

    def place(status: Status) -> int:
        if status not in places:
            places[status] = len(statuses)
            statuses.append(status)
        return places[status]

    for row, status in said.items():
        group_of[row] = place(status)
    left = alive & (group_of == NO_GROUP)
    if left.any():
        group_of[left] = place(silent)
    counts = np.bincount(group_of[group_of != NO_GROUP], minlength=len(statuses)).tolist()
    groups = [Refusals(status, n) for status, n in zip(statuses, counts, strict=True)]
    plugins = {*diagnosis.unschedulable_plugins} - {PLUGIN} | ({PLUGIN} if asked else set())
    return replace(
        diagnosis,
        groups=(*groups, *(Refusals(status, 1) for status in strangers)),
        group_of=group_of,
        unschedulable_plugins=tuple(sorted(plugins)),
        key=None,
        _codes=None,
    )
