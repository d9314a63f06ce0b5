"""The scores from preferred terms: the pod's own, and those of the pods on nodes.

Source: kubernetes v1.34 plugins/interpodaffinity/scoring.go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from services.framework.columns import domain_kernels
from services.framework.columns.columns import Int64s
from services.framework.plugin import Normalized
from services.framework.plugins.inter_pod_affinity.counts import KeyedCount, by_key
from services.framework.plugins.inter_pod_affinity.terms import ClusterTerms, WeightedTerm
from services.framework.snapshot.pod_classes import Candidates, PodClass, Weigh
from services.framework.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """The preferred terms that the scores of a pod depend on.

    `met` are the numbers of the cluster's terms that it meets: required ones count
    `hard_weight`, preferred ones what they say.
    """

    own: tuple[WeightedTerm, ...]
    met: tuple[int, ...]
    hard_weight: int


class AffinityScores:
    """Preferences over the snapshot.

    Each label key has a count of the weights that pods bring to their domain, and one of the
    terms that match at all: weights may cancel out, which is not the same as no match.
    """

    __slots__ = ("_matches", "_snapshot", "_weights")

    def __init__(self, preferences: Preferences, cluster: ClusterTerms, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        index = cluster.scored
        preferred = dict(by_key(preferences.own, lambda preference: preference.term.topology_key))
        of_others = dict(by_key(preferences.met, lambda number: index.terms[number].topology_key))
        self._weights: list[KeyedCount] = []
        self._matches: list[KeyedCount] = []
        for key in dict.fromkeys((*preferred, *of_others)):
            of_pod, others = preferred.get(key, ()), of_others.get(key, ())
            read = _reader(of_pod, frozenset(others), preferences.hard_weight, cluster)
            name = (cluster, of_pod, others, preferences.hard_weight)
            candidates = self._candidates(of_pod, others, cluster)
            for kind, counts, weigh in (
                ("weights", self._weights, _sum_of(read)),
                ("matches", self._matches, _number_of(read)),
            ):
                class_counts = snapshot.class_counts.of((kind, name), weigh, candidates)
                counts.append(KeyedCount(key, class_counts, snapshot))

    def is_idle(self) -> bool:
        """Return whether no term matches anything, which is PreScore's Skip."""
        return not any(match.is_there() for match in self._matches)

    def version(self) -> Hashable:
        """Return a version that differs whenever a score may differ."""
        return tuple(weight.sync() for weight in self._weights)

    def write(self, scores: Int64s) -> None:
        """Write the raw scores of all rows."""
        used = len(self._snapshot.columns.rows)
        for weight in self._weights:
            weight.sync()
            weight.add_up()
            domain_kernels.add_sums(used, weight.domains.of_row, weight.sums, scores)

    def _candidates(
        self, own: Sequence[WeightedTerm], others: Sequence[int], cluster: ClusterTerms
    ) -> Candidates | None:
        """Return the classes that the pod's terms may pick or that have the others' terms."""
        picked = self._snapshot.class_counts.selected(
            [preference.term.selector for preference in own]
        )
        if picked is None:
            return None
        return lambda first: (*picked(first), *cluster.holding(cluster.scored, others, first))


def stretched(rows: Int64s, raw: Int64s) -> Normalized:
    """Return raw scores on the scale 0 to 100, of which the lowest becomes 0."""
    scores: Int64s = np.zeros(len(rows), dtype=np.int64)
    domain_kernels.stretch(rows, raw, scores)
    return Normalized(raw, scores)


_Read = Callable[[PodClass], Sequence[int]]


def _reader(
    own: Sequence[WeightedTerm], theirs: frozenset[int], hard_weight: int, cluster: ClusterTerms
) -> _Read:
    """Return a function for the weights of the terms that match between the pod and another."""

    def read(other: PodClass) -> Sequence[int]:
        weights = [
            preference.weight
            for preference in own
            if preference.term.matches(other.namespace, other.labels)
        ]
        terms = cluster.of(other) if theirs else None
        if terms is not None:
            if hard_weight > 0:
                weights += [hard_weight for number in terms.near if number in theirs]
            weights += [weight for number, weight in terms.preferred if number in theirs]
        return weights

    return read


def _sum_of(read: _Read) -> Weigh:
    return lambda other: sum(read(other))


def _number_of(read: _Read) -> Weigh:
    return lambda other: len(read(other))
