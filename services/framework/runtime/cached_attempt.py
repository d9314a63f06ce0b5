"""The result of an attempt on each row, cached per equivalence class between attempts.

The verdicts of an equivalence class leave two things open: the pods nominated to a row, which count
beside the pods on it, and whether deleting pods would help. Both follow from the row, from what the
filters read of the whole cluster (`EquivalenceClass.epoch`) and from objects by name. So an attempt
evaluates the rows that changed since the last attempt of its class, and the rows to which its own
pod is nominated; the next attempt evaluates those again, too. With an out-of-tree plugin, or a
filter that may fail, no such result is kept: each attempt evaluates all rows that have nominated
pods, and a preemption tries all its rows again. The filters' own columns stay cached.

CachedDryRuns are the results of a preemption's batch dry run by row. NodeDryRun evaluates a single
node over the cached verdicts. It runs only the filters that pods can change, in plain Python, since
calling a kernel for one node costs more than it computes.

Source: kubernetes v1.34 framework/runtime/framework.go, RunFilterPluginsWithNominatedPods.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from services.framework.columns import kernels
from services.framework.columns.columns import Bools, Int64s, LogReader
from services.framework.columns.kernels import OVERRIDDEN, Int8s
from services.framework.plugin import Scope, Trial
from services.framework.preemption.batch_kernels import NOT_TRIED
from services.framework.runtime.cached_columns import FilterColumn
from services.framework.runtime.diagnosis import Diagnosis, Refused, refused_by_filters
from services.framework.runtime.equivalence_class import EquivalenceClass
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Status
from services.kube.pod import Pod

_FEW = 16


class CachedDryRuns:
    """The results of a BatchDryRun by row, for pods of one equivalence class.

    codes: int64[nodes], as in `batch_kernels`, NOT_TRIED where no deletion can help. counted: the
    number of rows by code, None where it must be counted; `key` is the same for the rows that were
    tried. criteria: int64[nodes, 5] of the candidates that are `judged` (bool[nodes]) for the
    budgets of `budget_epoch`. bounding: the filter and its code for each bound that may be broken.
    """

    __slots__ = (
        "bounding",
        "budget_epoch",
        "codes",
        "counted",
        "criteria",
        "judged",
        "key",
        "reader",
    )

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
        self.counted: dict[int, int] | None = None
        self.key: Hashable = None

    def put(self, rows: Int64s, codes: Int64s) -> None:
        """Put the codes of `rows`, some maybe twice; their criteria must be computed again."""
        if self.counted is not None and len(rows) <= _FEW:
            for row, code in zip(rows.tolist(), codes.tolist(), strict=True):
                self._put(self.counted, row, code)
        else:
            self.counted, self.codes[rows] = None, codes
        self.judged[rows] = False

    def _put(self, counted: dict[int, int], row: int, code: int) -> None:
        before = int(self.codes[row])
        if before == code:
            return
        self.codes[row] = code
        self.key = None
        for changed, sign in ((before, -1), (code, 1)):
            counted[changed] = counted.get(changed, 0) + sign
            if not counted[changed]:
                del counted[changed]

    def answers(self) -> dict[int, int]:
        """Return each code with its number of rows, and update `key`."""
        counted = self.counted
        if counted is None:
            table = np.empty((len(self.codes), 2), dtype=np.int64)
            counted = dict(table[: kernels.count_codes(self.codes, table)].tolist())
            self.counted, self.key = counted, None
        if self.key is None:
            self.key = tuple(sorted(each for each in counted.items() if each[0] != NOT_TRIED))
        return counted


class CachedAttempt:
    """An equivalence class with the pods nominated to each row; valid for a pod after its `sync`.

    overridden: the statuses of rows whose refusal differs from the equivalence class, because
    nominated pods are counted there. counted: the nominated pods that have to be left room for, by
    row. own_rows: those that this pod sees in another way than others do, being nominated there.
    refusals: the latest refusals by what their message follows from; `refused` is the last of all,
    with the snapshot's version.
    """

    __slots__ = (
        "_changes",
        "_diagnosed",
        "_diagnosis",
        "_forgets",
        "_reader",
        "_snapshot",
        "_untried",
        "counted",
        "dry_runs",
        "equivalence",
        "overridden",
        "own_rows",
        "refusals",
        "refused",
    )

    def __init__(
        self, equivalence: EquivalenceClass, snapshot: Snapshot, *, has_out_of_tree: bool
    ) -> None:
        self.equivalence = equivalence
        self.overridden: dict[int, Status] = {}
        self.counted: dict[int, Sequence[Pod]] = {}
        self.dry_runs = CachedDryRuns(snapshot)
        self.own_rows: Sequence[int] = ()
        self.refusals: dict[Hashable, Refused] = {}
        self.refused: tuple[Hashable, Refused] | None = None
        self._snapshot = snapshot
        self._forgets = has_out_of_tree or equivalence.can_fail
        self._reader = LogReader(snapshot.row_log)
        self._untried: dict[int, None] = {}
        self._diagnosis: Diagnosis | None = None
        self._diagnosed = (-1, -1)
        self._changes = 0

    @property
    def mark(self) -> Hashable:
        """Return what differs whenever every row must be evaluated again."""
        catalog = self._snapshot.catalog
        return (
            object() if self._forgets else self.equivalence.epoch,
            catalog.namespace_epoch,
            catalog.workload_epoch,
            catalog.storage_epoch,
        )

    def sync(self, pod: Pod) -> None:
        """Bring the verdicts up to date for an attempt of `pod`, which is of the equivalence."""
        self.equivalence.sync()
        self.own_rows = self._own_rows(pod)
        rows = self._reader.changed(self.mark, self.own_rows)
        try:
            self._count_nominated(pod, rows)
        except Exception:
            self._reader.forget()
            raise

    def nominated_refusals(self, pod: Pod) -> dict[int, Status]:
        """Return `overridden` with the rows that refuse the pod without nominated pods, too.

        `overridden` leaves them out until their reasons are needed.
        """
        self._try_others(pod)
        return dict(self.overridden)

    def diagnosis(self, pod: Pod, tried: Mapping[int, Status]) -> Diagnosis:
        """Return why no node takes the pod; `tried` has its nominated node's refusal."""
        equivalence, overridden = self.equivalence, self.overridden
        self._try_others(pod)
        if tried:
            overridden = overridden | still_tried(tried, equivalence.refuser)
        version = (equivalence.version, self._changes)
        if self._diagnosis is None or version != self._diagnosed or tried:
            refuser = overridden_by(equivalence.refuser, overridden)
            count = self._snapshot.node_count
            self._diagnosis = refused_by_filters(equivalence, refuser, overridden, count)
            self._diagnosed = (-1, -1) if tried else version
        return self._diagnosis

    def _own_rows(self, pod: Pod) -> Sequence[int]:
        node = self._snapshot.nominations.node_of(pod.uid)
        if not node and not pod.nominated_node_name:
            return ()
        rows = [self._snapshot.row(name) for name in (node, pod.nominated_node_name)]
        return [row for row in rows if row is not None]

    def _count_nominated(self, pod: Pod, changed: Int64s | None) -> None:
        nominations = self._snapshot.nominations
        rows: Iterable[int]
        if changed is None:
            self._changes += 1
            for kept in (self.overridden, self.counted, self._untried):
                kept.clear()
            found = [self._snapshot.row(name) for name in nominations.node_names()]
            rows = [row for row in found if row is not None]
        elif not len(changed) or not (self.counted or len(nominations)):
            return
        else:
            rows = dict.fromkeys(changed.tolist())
        for row in rows:
            if self.counted.pop(row, None) is not None:
                self._untried.pop(row, None)
                self._changes += self.overridden.pop(row, None) is not None
            if nominations.any_on(self._snapshot.name(row)):
                self._count(row, pod)

    def _count(self, row: int, pod: Pod) -> None:
        snapshot = self._snapshot
        counted = snapshot.nominations.counted(snapshot.name(row), pod)
        if not counted or not snapshot.columns.alive[row]:
            return
        self.counted[row] = counted
        refuser = self.equivalence.refuser[row]
        if refuser == 0:
            self._try(row, pod)
        elif refuser > 0 and not self.equivalence.is_refused_before_pods(row):
            self._untried[row] = None

    def _try_others(self, pod: Pod) -> None:
        for row in self._untried:
            self._try(row, pod)
        self._untried.clear()

    def _try(self, row: int, pod: Pod) -> None:
        equivalence = self.equivalence
        refusal = NodeDryRun(pod, row, equivalence, self._snapshot).refusal()
        if refusal is not None and (
            equivalence.refuser[row] == 0 or refusal != equivalence.status(row)
        ):
            self.overridden[row] = refusal
            self._changes += 1


def still_tried(tried: Mapping[int, Status], refuser: Int8s) -> dict[int, Status]:
    """Return what of `tried` still holds after all nodes were filtered: rows that passed then.

    refuser: int8[nodes] of that evaluation, negative where a row was left out.
    """
    return {row: status for row, status in tried.items() if refuser[row] <= 0}


def overridden_by(refuser: Int8s, overridden: Mapping[int, Status]) -> Int8s:
    """Return `refuser` with OVERRIDDEN in the rows that have another status."""
    if not overridden:
        return refuser
    changed = refuser.copy()
    for row in overridden:
        changed[row] = OVERRIDDEN
    return changed


class NodeDryRun:
    """A DryRun of the row of a live node, for a pod whose equivalence class is up to date."""

    __slots__ = ("_checks", "_counters", "_nominated", "_pods", "_trials", "_view")

    def __init__(
        self, pod: Pod, row: int, equivalence: EquivalenceClass, snapshot: Snapshot
    ) -> None:
        self._checks = _checks(equivalence, row, snapshot)
        self._trials = [trial for _, _, trial in self._checks if trial is not None]
        self._counters = equivalence.counters
        self._view = NodeView.of(snapshot, row)
        self._pods = list(snapshot.pods_on(row))
        self._nominated = snapshot.nominations.counted(snapshot.name(row), pod)

    def pods(self) -> Sequence[Pod]:
        """Return the node's current pods; see DryRun."""
        return self._pods

    def remove(self, pod: Pod) -> None:
        """Take `pod` off the node; see DryRun."""
        for index, held in enumerate(self._pods):
            if held.uid == pod.uid:
                self._pods[index] = self._pods[-1]
                self._pods.pop()
                self._take_off(held)
                return
        raise AssertionError(f"{pod.key} is not on the node")

    def add(self, pod: Pod) -> None:
        """Put `pod` on the node; see DryRun."""
        self._pods.append(pod)
        self._put_on(pod)

    def refusal(self) -> Status | None:
        """Run the filters; see DryRun."""
        if self._nominated:
            for pod in self._nominated:
                self._put_on(pod)
            refused = self._filtered()
            for pod in self._nominated:
                self._take_off(pod)
            if refused is not None:
                return refused
        return self._filtered()

    def _filtered(self) -> Status | None:
        for column, cached_code, trial in self._checks:
            code = cached_code
            if trial is not None:
                code = trial.code()
            elif not cached_code:
                code = column.plugin.filter_node(column.pre.data, self._view)
            if code:
                return column.status(code)
        return None

    def _put_on(self, pod: Pod) -> None:
        self._view.add(pod)
        for counter in self._counters:
            counter.came_to_view(pod, self._view)
        for trial in self._trials:
            trial.add(pod)

    def _take_off(self, pod: Pod) -> None:
        self._view.remove(pod)
        for counter in self._counters:
            counter.went_from_view(pod, self._view)
        for trial in self._trials:
            trial.remove(pod)


_Check = tuple[FilterColumn, int, Trial | None]


def _checks(equivalence: EquivalenceClass, row: int, snapshot: Snapshot) -> list[_Check]:
    """Return the filters that may refuse the row, with the code of those that pods cannot change.

    The code is 0 for the others, of which some have a trial of the row; a refusal that pods cannot
    change is the last.
    """
    checks: list[_Check] = []
    for column, plugin in equivalence.trials:
        if plugin is not None:
            checks.append((column, 0, plugin.trial(column.pre.data, snapshot, row)))
        elif column.plugin.scope is Scope.PODS:
            checks.append((column, 0, None))
        elif code := int(column.codes[row]):
            checks.append((column, code, None))
            break
    return checks
