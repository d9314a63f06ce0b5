"""What an attempt of one shape of pod comes to on each row, kept from one attempt to the next.

A shape's own verdicts leave two things open: the pods that are nominated to a row, which count
beside those that are there, and whether deleting pods would help. Both follow from the row, from
what the filters read of the whole cluster (`Shape.epoch`) and from objects by name. So an attempt
looks again at the rows that changed since the shape's last one, and at the rows to which its own
pod is nominated; those the next attempt looks at again, too.

Where plugins of users' own take part, or a filter may fail, every row is looked at each time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from services.kube.pod import Pod
from services.scheduler.core.cached_columns import FilterColumn
from services.scheduler.core.change_log import LogReader
from services.scheduler.core.columns import Bools, Int64s
from services.scheduler.core.decisions import Refused
from services.scheduler.core.diagnosis import Diagnosis, refused_by_filters
from services.scheduler.core.kernels import OVERRIDDEN, Int8s
from services.scheduler.core.node_dry_run import NodeDryRun
from services.scheduler.core.reprieve import NOT_TRIED
from services.scheduler.core.shape import Shape
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Status


class DryRuns:
    """What preempting for a shape came to by row, as far as `Surveyor` has looked.

    codes: int64[nodes], as in `reprieve`, NOT_TRIED where no deletion can help. criteria:
    int64[nodes, 5] of the candidates that are `judged` (bool[nodes]) for the budgets of
    `budget_epoch`. bounding: which filter answers what where a bound is broken.
    """

    __slots__ = ("bounding", "budget_epoch", "codes", "criteria", "judged", "reader")

    def __init__(self, snapshot: Snapshot) -> None:
        self.reader = LogReader(snapshot.row_log)
        self.budget_epoch = -1
        self.bounding: Sequence[tuple[FilterColumn, int]] = ()
        self.begin(0)

    def begin(self, capacity: int) -> None:
        """Begin with no row tried."""
        self.codes: Int64s = np.full(capacity, NOT_TRIED, dtype=np.int64)
        self.criteria: Int64s = np.zeros((capacity, 5), dtype=np.int64)
        self.judged: Bools = np.zeros(capacity, dtype=np.bool_)


class KeptRefusal(NamedTuple):
    """A refusal, with the snapshot's version and with what its words follow from (None: more)."""

    version: tuple[int, ...]
    key: Hashable
    refused: Refused


class Outlook:
    """A shape with the pods nominated to each row; after `sync` with a pod, as that one sees them.

    overridden: the statuses of rows that refuse the pod because nominated pods are counted there.
    counted: the nominated pods that have to be left room for, by row.
    """

    __slots__ = (
        "_diagnosis",
        "_forgets",
        "_reader",
        "_snapshot",
        "_untried",
        "counted",
        "dry_runs",
        "overridden",
        "refusal",
        "shape",
    )

    def __init__(self, shape: Shape, snapshot: Snapshot, *, has_foreign: bool) -> None:
        self.shape = shape
        self.overridden: dict[int, Status] = {}
        self.counted: dict[int, Sequence[Pod]] = {}
        self.dry_runs = DryRuns(snapshot)
        self.refusal: KeptRefusal | None = None
        self._snapshot = snapshot
        self._forgets = has_foreign or shape.can_fail
        self._reader = LogReader(snapshot.row_log)
        self._untried: dict[int, None] = {}
        self._diagnosis: Diagnosis | None = None

    @property
    def mark(self) -> Hashable:
        """Return what differs whenever any row may have to be looked at again."""
        catalog = self._snapshot.catalog
        epochs = (catalog.namespace_epoch, catalog.workload_epoch, catalog.storage_epoch)
        return object() if self._forgets else (self.shape.epoch, *epochs)

    def own_rows(self, pod: Pod) -> Sequence[int]:
        """Return the rows that `pod` sees in another way than others do, being nominated there."""
        names = (self._snapshot.nominations.node_of(pod.uid), pod.nominated_node_name)
        rows = [self._snapshot.row(name) for name in names if name]
        return [row for row in rows if row is not None]

    def sync(self, pod: Pod) -> None:
        """Bring the verdicts up to date for an attempt of `pod`, which is of the shape."""
        self.shape.sync()
        rows = self._reader.changed(self.mark, self.own_rows(pod))
        try:
            self._count_nominated(pod, rows)
        except Exception:
            self._reader.forget()
            raise

    def nominated_refusals(self, pod: Pod) -> dict[int, Status]:
        """Return `overridden` with the rows that refuse the pod without nominated pods, too.

        `overridden` leaves them out until somebody asks for their reasons.
        """
        for row in self._untried:
            self._try(row, pod)
        self._untried.clear()
        return dict(self.overridden)

    def diagnosis(self, pod: Pod, tried: Mapping[int, Status]) -> Diagnosis:
        """Return why no node takes the pod; `tried` is what its nominated node's turn came to."""
        overridden = self.nominated_refusals(pod) | still_tried(tried, self.shape.refuser)
        refuser = overridden_by(self.shape.refuser, overridden)
        self._diagnosis = refused_by_filters(
            self.shape, refuser, overridden, self._snapshot.node_count, self._diagnosis
        )
        return self._diagnosis

    def _count_nominated(self, pod: Pod, changed: Int64s | None) -> None:
        snapshot = self._snapshot
        rows: Iterable[int]
        if changed is None:
            for kept in (self.overridden, self.counted, self._untried):
                kept.clear()
            found = [snapshot.row(name) for name in snapshot.nominations.node_names()]
            rows = [row for row in found if row is not None]
        elif not len(changed) or not (self.counted or len(snapshot.nominations)):
            return
        else:
            rows = dict.fromkeys(changed.tolist())
        for row in rows:
            self._count(row, pod)

    def _count(self, row: int, pod: Pod) -> None:
        for kept in (self.overridden, self.counted, self._untried):
            kept.pop(row, None)
        snapshot = self._snapshot
        counted = snapshot.nominations.counted(snapshot.name(row), pod)
        if not counted or not snapshot.columns.alive[row]:
            return
        self.counted[row] = counted
        if self.shape.refuser[row] > 0:
            self._untried[row] = None
        elif self.shape.refuser[row] == 0:
            self._try(row, pod)

    def _try(self, row: int, pod: Pod) -> None:
        refusal = NodeDryRun(pod, row, self.shape, self._snapshot).refusal()
        if refusal is not None:
            self.overridden[row] = refusal


def still_tried(tried: Mapping[int, Status], refuser: Int8s) -> dict[int, Status]:
    """Return what of `tried` still holds after all nodes' turn: rows that no filter refused then.

    refuser: int8[nodes] of that turn, negative where a row was not looked at.
    """
    return {row: status for row, status in tried.items() if refuser[row] <= 0}


def overridden_by(refuser: Int8s, overridden: Mapping[int, Status]) -> Int8s:
    """Return `refuser` with OVERRIDDEN in the rows that have another status."""
    if not overridden:
        return refuser
    changed = refuser.copy()
    changed[list(overridden)] = OVERRIDDEN
    return changed
