"""How many pods of certain classes are on each row, brought up to date by what came and went."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from weakref import WeakValueDictionary

import numpy as np

from services.kube.selector import LabelSelector, Operator
from services.scheduler.core import domain_kernels
from services.scheduler.core.census import Census, LabelPair, PodClass
from services.scheduler.core.columns import Columns, Int64s

Weigh = Callable[[PodClass], int]
"""What one pod of a class counts."""

Candidates = Callable[[int], Iterable[int]]
"""From a class's number on, the classes that may count anything."""

_FIRST = 64


class ClassWeights:
    """What a pod of each class counts, asked once a class; those that are no candidates count 0."""

    __slots__ = ("_candidates", "_census", "_generation", "_known", "_weigh", "weights")

    def __init__(self, census: Census, weigh: Weigh, candidates: Candidates | None) -> None:
        self._census = census
        self._weigh = weigh
        self._candidates = candidates
        self._generation = census.generation
        self._known = 0
        self.weights: Int64s = np.zeros(_FIRST, dtype=np.int64)

    def of(self, number: int) -> int:
        """Return what a pod of that class counts."""
        self.sync()
        return int(self.weights[number])

    def sync(self) -> None:
        """Ask about the classes that are new."""
        classes = self._census.classes
        if self._generation != self._census.generation:
            self._generation, self._known = self._census.generation, 0
            self.weights[:] = 0
        if self._known == len(classes):
            return
        if len(self.weights) < len(classes):
            grown = np.zeros(2 * len(classes), dtype=np.int64)
            grown[: self._known] = self.weights[: self._known]
            self.weights = grown
        ask = self._candidates
        for number in range(self._known, len(classes)) if ask is None else ask(self._known):
            self.weights[number] = self._weigh(classes[number])
        self._known = len(classes)


class Tally:
    """The sum of the weights of the pods on each row, right after `sync`.

    counts: int64[nodes]; rows that are no nodes are counted too. `version` grows whenever a
    count may have changed.
    """

    __slots__ = (
        "__weakref__",
        "_census",
        "_columns",
        "_generation",
        "_position",
        "counts",
        "version",
        "weights",
    )

    def __init__(self, census: Census, columns: Columns, weights: ClassWeights) -> None:
        self.weights = weights
        self.counts: Int64s = np.zeros(0, dtype=np.int64)
        self.version = 0
        self._census = census
        self._columns = columns
        self._generation = -1
        self._position = -1

    def sync(self) -> None:
        """Count what came and went."""
        census = self._census
        if self._position == census.end and len(self.counts) == self._columns.capacity:
            return
        self.weights.sync()
        if (
            self._position < census.start
            or self._generation != census.generation
            or len(self.counts) != self._columns.capacity
        ):
            self._recount()
        else:
            begin, end = self._position - census.start, census.end - census.start
            changes = census.log[begin:end]
            self.version += domain_kernels.follow(changes, self.weights.weights, self.counts)
        self._position, self._generation = census.end, census.generation

    def _recount(self) -> None:
        census = self._census
        self.counts = np.zeros(self._columns.capacity, dtype=np.int64)
        domain_kernels.recount(census.rows, census.numbers, self.weights.weights, self.counts)
        self.version += 1


class Tallies:
    """The tallies that someone holds, by what they count."""

    __slots__ = ("_by_key", "_census", "_columns")

    def __init__(self, census: Census, columns: Columns) -> None:
        self._census = census
        self._columns = columns
        self._by_key: WeakValueDictionary[Hashable, Tally] = WeakValueDictionary()

    def tally(self, key: Hashable, weigh: Weigh, candidates: Candidates | None = None) -> Tally:
        """Return the tally of `key`, which says all that `weigh` follows from."""
        found = self._by_key.get(key)
        if found is None:
            found = Tally(self._census, self._columns, self.weights(weigh, candidates))
            self._by_key[key] = found
        return found

    def weights(self, weigh: Weigh, candidates: Candidates | None = None) -> ClassWeights:
        """Return the weights alone, for dry runs."""
        return ClassWeights(self._census, weigh, candidates)

    def selected(self, selectors: Sequence[LabelSelector | None]) -> Candidates | None:
        """Return the classes that one of the selectors may pick, None where that may be any."""
        pairs: list[LabelPair] = []
        for selector in selectors:
            needed = label_pairs(selector)
            if needed is None:
                return None
            pairs += needed
        return partial(self._census.labelled, pairs)


def label_pairs(selector: LabelSelector | None) -> Sequence[LabelPair] | None:
    """Return labels of which a pod must have one for the selector to pick it; None: unknown."""
    if selector is None:
        return ()
    asked = (each for each in selector.requirements if each.operator is Operator.IN)
    first = next(asked, None)
    return None if first is None else [(first.key, value) for value in first.values]
