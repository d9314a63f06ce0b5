"""The pods on nodes by class, where a class is all that another pod's constraints can see of one.

Constraints between pods count pods of certain classes on each row. The census keeps each pod's
row and class as numbers, and a log of who came and went, from which a count follows the pods
without looking at them again (services.scheduler.core.tally).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from services.kube.pod import Pod, PodSpec
from services.scheduler.core.columns import Int64s

if TYPE_CHECKING:
    from services.scheduler.core.snapshot import Snapshot

_LOGGED = 8192
_FIRST_SLOTS = 1024
_CLASSES_MAX = 65_536
_FREE = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodClass:
    """What other pods can see of a pod; `spec` is None where it has no pod affinity of its own."""

    namespace: str
    labels: Mapping[str, str]
    terminating: bool
    spec: PodSpec | None


LabelPair = tuple[str, str]

_Key = tuple[str, frozenset[tuple[str, str]], bool, PodSpec | None]


class Census:
    """The classes by number, and the pods that are counted.

    rows, numbers: int64[slots], row and class of the pod in each slot, -1 where it is free.
    log: int64[kept, 3], row, class and sign of each change; `start` and `end` are positions in it
    as in ChangeLog. `generation` grows when classes get new numbers.
    """

    __slots__ = (
        "_by_label",
        "_free",
        "_numbers",
        "_slot_of",
        "classes",
        "end",
        "generation",
        "log",
        "numbers",
        "rows",
        "start",
    )

    def __init__(self, snapshot: Snapshot) -> None:
        self.generation = 0
        self.log: Int64s = np.zeros((_LOGGED, 3), dtype=np.int64)
        self.start = self.end = 0
        self._forget(_FIRST_SLOTS)
        for row in snapshot.columns.rows.tolist():
            for pod in snapshot.pods_on(row):
                self.came(pod, row)

    def class_of(self, pod: Pod) -> int:
        """Return the number of a pod's class, whether the pod is counted or not."""
        slot = self._slot_of.get(pod.uid)
        if slot is not None:
            return int(self.numbers[slot])
        return self._number(pod)

    def labelled(self, pairs: Sequence[LabelPair], first: int) -> Iterable[int]:
        """Return the classes from number `first` on that have one of the labels with its value."""
        found: set[int] = set()
        for pair in pairs:
            numbers = self._by_label.get(pair, ())
            found.update(numbers[bisect_left(numbers, first) :])
        return sorted(found)

    def came(self, pod: Pod, row: int) -> None:
        """Count a pod."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        number = self._number(pod)
        self._slot_of[pod.uid] = slot
        self.rows[slot], self.numbers[slot] = row, number
        self._note(row, number, 1)

    def went(self, pod: Pod, row: int) -> None:
        """Take a pod out again."""
        slot = self._slot_of.pop(pod.uid)
        self._note(row, int(self.numbers[slot]), -1)
        self.rows[slot] = self.numbers[slot] = _FREE
        self._free.append(slot)
        if len(self.classes) > _CLASSES_MAX and len(self.classes) > 2 * len(self._slot_of):
            self._renumber()

    def _number(self, pod: Pod) -> int:
        spec = pod.spec
        affine = spec if spec.has_pod_affinity else None
        key = (pod.namespace, frozenset(pod.labels.items()), pod.is_terminating, affine)
        number = self._numbers.setdefault(key, len(self.classes))
        if number == len(self.classes):
            self.classes.append(
                PodClass(
                    namespace=pod.namespace,
                    labels=pod.labels,
                    terminating=pod.is_terminating,
                    spec=affine,
                )
            )
            self._index(number)
        return number

    def _index(self, number: int) -> None:
        for pair in self.classes[number].labels.items():
            self._by_label.setdefault(pair, []).append(number)

    def _note(self, row: int, number: int, sign: int) -> None:
        length = self.end - self.start
        if length == _LOGGED:
            half = _LOGGED // 2
            self.log[:half] = self.log[half:]
            self.start += half
            length = self.end - self.start
        self.log[length] = (row, number, sign)
        self.end += 1

    def _forget(self, slots: int) -> None:
        self.classes: list[PodClass] = []
        self._by_label: dict[LabelPair, list[int]] = {}
        self._numbers: dict[_Key, int] = {}
        self.rows: Int64s = np.full(slots, _FREE, dtype=np.int64)
        self.numbers: Int64s = np.full(slots, _FREE, dtype=np.int64)
        self._slot_of: dict[str, int] = {}
        self._free = list(range(slots - 1, -1, -1))

    def _grow(self) -> None:
        before = len(self.rows)
        blank = np.full(before, _FREE, dtype=np.int64)
        self.rows = np.concatenate([self.rows, blank])
        self.numbers = np.concatenate([self.numbers, blank])
        self._free.extend(range(2 * before - 1, before - 1, -1))

    def _renumber(self) -> None:
        """Keep the classes that pods are of, under new numbers."""
        used = self.numbers >= 0
        kept = np.unique(self.numbers[used])
        self.numbers[used] = np.searchsorted(kept, self.numbers[used])
        old = list(self._numbers)
        self.classes = [self.classes[number] for number in kept.tolist()]
        self._numbers = {old[number]: place for place, number in enumerate(kept.tolist())}
        self._by_label = {}
        for number in range(len(self.classes)):
            self._index(number)
        self.start = self.end
        self.generation += 1
