"""The pods on each row as numbers, for kernels that read single pods.

The table follows `Snapshot.row_log` and is updated on `sync`: rows whose pods changed are read
again, all others stay. Each row's pods are in falling importance (higher priority, then earlier
start), so that the victims of a preemption are a row's tail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from services.framework.columns.columns import Int64s
from services.framework.snapshot.snapshot import Snapshot
from services.kube.pod import Pod, PodSpec

RANK, START_NS, PLACE, LOAD, GROUP, CLASS = range(6)
"""Fields of a pod in the table.

Its priority negated; its start, NO_START where it has none; its place among `pods_on`, which
decides what is equal; its row of `amounts`; its place in `groups`; its class in
`Snapshot.pod_classes`, 0 where those are not followed.
"""

NO_START = 2**63 - 1
_FIELDS = 6
_FIRST_WIDTH = 8
_KEPT_MAX = 65_536


class NodePods:
    """The table, right after `sync`.

    count: int64[nodes], the pods on each row. table: int64[nodes, width, 6]; the first `count`
    entries of a row are its pods. amounts: int64[loads, resources], as in `PodLoad`; those in use
    come first. groups: one pod for all of the same namespace and labels; a pod whose name is
    singled out has a group of its own.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._singled_out: frozenset[str] = frozenset()
        self._width = _FIRST_WIDTH
        self._position = -1
        self._generation = -1
        self._forget()

    def single_out(self, names: frozenset[str]) -> None:
        """Give pods of these names groups of their own."""
        if names != self._singled_out:
            self._singled_out = names
            self._forget()

    def sync(self) -> None:
        """Read the rows again whose pods changed."""
        columns, log = self._snapshot.columns, self._snapshot.row_log
        generation = self._snapshot.pod_classes.generation if self._snapshot.has_pod_classes else -1
        if (
            generation != self._generation
            or self.amounts.shape[1] != len(columns.resources)
            or self._keeps_too_many()
        ):
            self._generation = generation
            self._forget()
        elif self._position == log.end and len(self.count) == columns.capacity:
            return
        changed = log.since(self._position) if len(self.count) == columns.capacity else None
        self._position = log.end
        if changed is None:
            self._read_all()
            return
        for row in dict.fromkeys(changed.tolist()):
            self._read(row)

    def _keeps_too_many(self) -> bool:
        """Return whether most of the cached values belong to removed pods."""
        kept = max(len(self._group_of), len(self._load_of))
        return kept > _KEPT_MAX and kept > 2 * int(self.count.sum())

    def _forget(self) -> None:
        self._position = -1
        self._group_of: dict[str, tuple[Mapping[str, str], int]] = {}
        self._numbers: dict[tuple[str, frozenset[tuple[str, str]], str], int] = {}
        self._load_of: dict[PodSpec, int] = {}
        self.groups: list[Pod] = []
        self.count: Int64s = np.zeros(0, dtype=np.int64)
        self.amounts: Int64s = np.zeros(
            (_FIRST_WIDTH, len(self._snapshot.columns.resources)), dtype=np.int64
        )

    def _read_all(self) -> None:
        rows = self._snapshot.columns.rows.tolist()
        most = max((len(self._snapshot.pods_on(row)) for row in rows), default=0)
        self._width = max(self._width, most)
        capacity = self._snapshot.columns.capacity
        self.count = np.zeros(capacity, dtype=np.int64)
        self.table = np.zeros((capacity, self._width, _FIELDS), dtype=np.int64)
        for row in rows:
            self._read(row)

    def _read(self, row: int) -> None:
        pods = self._snapshot.pods_on(row)
        count = len(pods)
        self.count[row] = count
        if count > self._width:
            self._widen(count)
        if count:
            self.table[row, :count] = self._ranked(pods)

    def _ranked(self, pods: Sequence[Pod]) -> list[tuple[int, int, int, int, int, int]]:
        entries = []
        pod_classes = self._snapshot.pod_classes if self._snapshot.has_pod_classes else None
        for place, pod in enumerate(pods):
            start_ns = NO_START if pod.start_time_ns is None else pod.start_time_ns
            spec = self._snapshot.spec_in_force(pod) if pod.reports_resources else pod.spec
            load = self._load_of.get(spec)
            if load is None:
                load = self._new_load(spec)
            number = pod_classes.class_of(pod) if pod_classes is not None else 0
            entries.append((-pod.spec.priority, start_ns, place, load, self._group(pod), number))
        entries.sort()
        return entries

    def _group(self, pod: Pod) -> int:
        kept = self._group_of.get(pod.uid)
        if kept is not None and kept[0] is pod.labels:
            return kept[1]
        name = pod.name if pod.name in self._singled_out else ""
        key = (pod.namespace, frozenset(pod.labels.items()), name)
        number = self._numbers.setdefault(key, len(self.groups))
        if number == len(self.groups):
            self.groups.append(pod)
        self._group_of[pod.uid] = (pod.labels, number)
        return number

    def _new_load(self, spec: PodSpec) -> int:
        number = self._load_of[spec] = len(self._load_of)
        if number == len(self.amounts):
            self.amounts = np.concatenate([self.amounts, np.zeros_like(self.amounts)])
        self.amounts[number] = self._snapshot.load(spec).amounts
        return number

    def _widen(self, least: int) -> None:
        added = max(least, 2 * self._width) - self._width
        self._width += added
        self.table = np.pad(self.table, ((0, 0), (0, added), (0, 0)))
