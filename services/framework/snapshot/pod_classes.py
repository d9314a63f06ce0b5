"""Pods by class (what other pods' constraints can read of a pod), and their counts by row.

Constraints between pods count the pods of certain classes on each row. PodClasses keeps each pod's
row and class as numbers, and a log of the pods that came and went. ClassCounts follows that log, so
that a count is updated without reading the pods again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

import numpy as np

from services.framework.columns import domain_kernels
from services.framework.columns.columns import Columns, Int64s
from services.kube.pod import Pod, PodSpec
from services.kube.selector import LabelSelector, Operator

_LOGGED = 8192
_FIRST_SLOTS = 1024
_CLASSES_MAX = 65_536
_FREE = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodClass:
    """The fields of a pod that affect other pods; `spec` is None if it has no pod affinity."""

    namespace: str
    labels: Mapping[str, str]
    terminating: bool
    spec: PodSpec | None


LabelPair = tuple[str, str]

_Key = tuple[str, frozenset[tuple[str, str]], bool, PodSpec | None]


class PodClasses:
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

    def __init__(self, placed: Iterable[tuple[Pod, int]]) -> None:
        """Count the pods that are on rows already."""
        self.generation = 0
        self.log: Int64s = np.zeros((_LOGGED, 3), dtype=np.int64)
        self.start = self.end = 0
        self._forget(_FIRST_SLOTS)
        for pod, row in placed:
            self.came(pod, row)

    def class_of(self, pod: Pod) -> int:
        """Return the number of a pod's class, whether the pod is counted or not."""
        slot = self._slot_of.get(pod.uid)
        if slot is not None:
            return int(self.numbers[slot])
        return self._number(pod)

    def labelled(self, pairs: Sequence[LabelPair], first: int) -> Iterable[int]:
        """Return the classes from number `first` on that have one of the labels with its value."""
        classes: set[int] = set()
        for pair in pairs:
            numbers = self._by_label.get(pair, ())
            classes.update(numbers[bisect_left(numbers, first) :])
        return sorted(classes)

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
        """Stop counting a pod."""
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


Weigh = Callable[[PodClass], int]
"""What one pod of a class counts."""

Candidates = Callable[[int], Iterable[int]]
"""From a class's number on, the classes that may count anything."""

_FIRST = 64


class ClassWeights:
    """The weight of a pod of each class, computed once per class; 0 unless it is a candidate."""

    __slots__ = ("_candidates", "_classes", "_generation", "_weigh", "_weighed", "weights")

    def __init__(
        self, pod_classes: PodClasses, weigh: Weigh, candidates: Candidates | None
    ) -> None:
        self._classes = pod_classes
        self._weigh = weigh
        self._candidates = candidates
        self._generation = pod_classes.generation
        self._weighed = 0
        self.weights: Int64s = np.zeros(_FIRST, dtype=np.int64)

    def of(self, number: int) -> int:
        """Return the weight of a pod of that class."""
        self.sync()
        return int(self.weights[number])

    def sync(self) -> None:
        """Compute the weights of new classes."""
        classes = self._classes.classes
        if self._generation != self._classes.generation:
            self._generation, self._weighed = self._classes.generation, 0
            self.weights[:] = 0
        if self._weighed == len(classes):
            return
        if len(self.weights) < len(classes):
            grown = np.zeros(2 * len(classes), dtype=np.int64)
            grown[: self._weighed] = self.weights[: self._weighed]
            self.weights = grown
        ask = self._candidates
        for number in range(self._weighed, len(classes)) if ask is None else ask(self._weighed):
            self.weights[number] = self._weigh(classes[number])
        self._weighed = len(classes)


class ClassCounts:
    """The sum of the weights of the pods on each row, right after `sync`.

    counts: int64[nodes]; rows that are not alive are counted too. `version` grows whenever a
    count may have changed.
    """

    __slots__ = (
        "__weakref__",
        "_classes",
        "_columns",
        "_generation",
        "_position",
        "counts",
        "version",
        "weights",
    )

    def __init__(self, pod_classes: PodClasses, columns: Columns, weights: ClassWeights) -> None:
        self.weights = weights
        self.counts: Int64s = np.zeros(0, dtype=np.int64)
        self.version = 0
        self._classes = pod_classes
        self._columns = columns
        self._generation = -1
        self._position = -1

    def sync(self) -> None:
        """Count the pods that were added and removed."""
        pod_classes = self._classes
        if self._position == pod_classes.end and len(self.counts) == self._columns.capacity:
            return
        self.weights.sync()
        if (
            self._position < pod_classes.start
            or self._generation != pod_classes.generation
            or len(self.counts) != self._columns.capacity
        ):
            self._recount()
        else:
            begin, end = self._position - pod_classes.start, pod_classes.end - pod_classes.start
            changes = pod_classes.log[begin:end]
            self.version += domain_kernels.follow(changes, self.weights.weights, self.counts)
        self._position, self._generation = pod_classes.end, pod_classes.generation

    def _recount(self) -> None:
        pod_classes = self._classes
        self.counts = np.zeros(self._columns.capacity, dtype=np.int64)
        domain_kernels.recount(
            pod_classes.rows, pod_classes.numbers, self.weights.weights, self.counts
        )
        self.version += 1


class ClassCountsByKey:
    """The class counts in use, by key."""

    __slots__ = ("_by_key", "_classes", "_columns")

    def __init__(self, pod_classes: PodClasses, columns: Columns) -> None:
        self._classes = pod_classes
        self._columns = columns
        self._by_key: WeakValueDictionary[Hashable, ClassCounts] = WeakValueDictionary()

    def of(self, key: Hashable, weigh: Weigh, candidates: Candidates | None = None) -> ClassCounts:
        """Return the class counts of `key`, which holds all that `weigh` follows from."""
        counts = self._by_key.get(key)
        if counts is None:
            counts = ClassCounts(self._classes, self._columns, self.weights(weigh, candidates))
            self._by_key[key] = counts
        return counts

    def weights(self, weigh: Weigh, candidates: Candidates | None = None) -> ClassWeights:
        """Return the weights alone, for dry runs."""
        return ClassWeights(self._classes, weigh, candidates)

    def selected(self, selectors: Sequence[LabelSelector | None]) -> Candidates | None:
        """Return the classes that one of the selectors may pick, None where that may be any."""
        pairs: list[LabelPair] = []
        for selector in selectors:
            needed = label_pairs(selector)
            if needed is None:
                return None
            pairs += needed
        return partial(self._classes.labelled, pairs)


def label_pairs(selector: LabelSelector | None) -> Sequence[LabelPair] | None:
    """Return labels of which a pod must have one for the selector to pick it; None: unknown."""
    if selector is None:
        return ()
    by_value = (
        requirement for requirement in selector.requirements if requirement.operator is Operator.IN
    )
    first = next(by_value, None)
    return None if first is None else [(first.key, value) for value in first.values]
