"""Counts by domain the pods that a pod's required terms match, and those that keep it away.

Source: kubernetes v1.34 plugins/interpodaffinity/filtering.go, preFilterState, PreFilter, Filter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from services.framework.columns import domain_kernels
from services.framework.columns.columns import Bools, Int64s
from services.framework.plugins.inter_pod_affinity.terms import ClusterTerms, Term
from services.framework.preemption.batch_dry_run import Bound, Bounds
from services.framework.snapshot.node_indexes import Domains
from services.framework.snapshot.pod_classes import Candidates, ClassCounts, PodClass, Weigh
from services.framework.snapshot.snapshot import Snapshot
from services.kube.pod import Pod

_T = TypeVar("_T")

NOT_NEAR, NOT_AWAY, KEPT_AWAY = 1, 2, 3
"""Codes: the pod's affinity, its anti-affinity, and other pods' anti-affinity are not met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredTerms:
    """The terms that the filter's verdicts about a pod depend on.

    `self_match` is set where the pod matches its own affinity, which admits the first such pod.
    `kept_away` are the numbers of the cluster's terms that it meets.
    """

    near: tuple[Term, ...]
    away: tuple[Term, ...]
    self_match: bool
    kept_away: tuple[int, ...]


class KeyedCount:
    """Pods counted by the domains of one label key; `sums` (int64[domains]) after `add_up`."""

    __slots__ = ("_seen", "_snapshot", "_there", "class_counts", "domains", "sums", "total")

    def __init__(self, key: str, class_counts: ClassCounts, snapshot: Snapshot) -> None:
        self.domains: Domains = snapshot.topologies.domains(key)
        self.class_counts = class_counts
        self.sums: Int64s = np.zeros(0, dtype=np.int64)
        self.total = 0
        self._snapshot = snapshot
        self._seen = (-1, -1)
        self._there = False

    def sync(self) -> tuple[int, int]:
        """Bring counts and domains up to date, and return their versions."""
        self.domains.sync()
        self.class_counts.sync()
        return (self.domains.version, self.class_counts.version)

    def is_there(self) -> bool:
        """Return whether anything is counted on a node with the label."""
        versions = self.sync()
        if versions != self._seen:
            self._seen = versions
            used = len(self._snapshot.columns.rows)
            self._there = domain_kernels.present(
                used, self.domains.of_row, self.class_counts.counts
            )
        return self._there

    def add_up(self) -> None:
        """Add the counts up by domain, right after `sync`."""
        self.sums = np.zeros(self.domains.size, dtype=np.int64)
        used = len(self._snapshot.columns.rows)
        self.total = domain_kernels.domain_sums(
            used, self.domains.of_row, self.class_counts.counts, self.sums
        )


class AffinityCounts:
    """A pod's required terms over the snapshot; sums hold right after `write`.

    `near` has one count for each label key of the affinity, all of the pods that meet every term;
    `away` and `kept_away` one for each key of theirs.
    """

    __slots__ = ("away", "kept_away", "near", "required", "snapshot")

    def __init__(self, required: RequiredTerms, cluster: ClusterTerms, snapshot: Snapshot) -> None:
        self.required = required
        self.snapshot = snapshot
        self.near = self._near() if required.near else ()
        selected = snapshot.class_counts.selected
        self.away = [
            self._counted(
                key, ("away", terms), _meets_any(terms), selected([term.selector for term in terms])
            )
            for key, terms in by_key(required.away, lambda term: term.topology_key)
        ]
        index = cluster.away
        self.kept_away = [
            self._counted(
                key,
                ("kept away", cluster, numbers),
                _keeps_away(frozenset(numbers), cluster),
                partial(cluster.holding, index, numbers),
            )
            for key, numbers in by_key(
                required.kept_away, lambda number: index.terms[number].topology_key
            )
        ]

    def is_idle(self) -> bool:
        """Return whether no node can be refused, by the pod's terms or by those of other pods.

        Source: kubernetes v1.34 plugins/interpodaffinity/filtering.go, PreFilter's Skip.
        """
        if self.required.near or self.required.away:
            return False
        return not any(term.is_there() for term in self.kept_away)

    def version(self) -> Hashable:
        """Return a version that differs whenever a code may differ."""
        return tuple(term.sync() for term in (*self.near, *self.away, *self.kept_away))

    def write(self, codes: Int64s) -> None:
        """Write the codes of all rows."""
        used = len(self.snapshot.columns.rows)
        for term in (*self.near, *self.away, *self.kept_away):
            term.sync()
            term.add_up()
        lone = self.required.self_match and not any(term.total for term in self.near)
        for term in self.near:
            domain_kernels.want(used, term.domains.of_row, term.sums, lone, NOT_NEAR, codes)
        for code, counts in ((NOT_AWAY, self.away), (KEPT_AWAY, self.kept_away)):
            for count in counts:
                domain_kernels.avoid(used, count.domains.of_row, count.sums, code, codes)

    def bounds(self, rows: Int64s) -> Bounds:
        """Return the bounds: a pod to be near must remain, and no pod to be away from.

        A pod that matches its own affinity may be the first such pod. Where all others are on one
        row, that row admits it whichever of them is deleted: it is the first, or near those left.
        """
        bounded = [(NOT_NEAR, term) for term in self.near]
        bounded += [(NOT_AWAY, term) for term in self.away]
        bounded += [(KEPT_AWAY, term) for term in self.kept_away]
        room: Int64s = np.zeros((len(rows), len(bounded)), dtype=np.int64)
        counted: Bools = np.zeros(room.shape, dtype=np.bool_)
        for index, (code, term) in enumerate(bounded):
            domain = term.domains.of_row[rows]
            held = np.append(term.sums, 0)[domain]
            counted[:, index] = domain >= 0
            room[:, index] = held - 1 if code == NOT_NEAR else -held
        if self.near and self.required.self_match:
            alone = np.logical_and.reduce(
                [term.total == term.class_counts.counts[rows] for term in self.near]
            )
            near = slice(len(self.near))
            room[:, near] = np.where(alone[:, None] & counted[:, near], 0, room[:, near])
            counted[:, near] &= ~alone[:, None]
        return Bounds(
            room=room,
            counted=counted,
            bounds=[
                Bound(term.class_counts.weights, code, code == NOT_NEAR) for code, term in bounded
            ],
        )

    def _near(self) -> Sequence[KeyedCount]:
        terms = self.required.near
        keys = dict.fromkeys(term.topology_key for term in terms)
        candidates = self.snapshot.class_counts.selected([terms[0].selector])
        return [self._counted(key, ("near", terms), _meets_all(terms), candidates) for key in keys]

    def _counted(
        self, key: str, name: Hashable, weigh: Weigh, candidates: Candidates | None
    ) -> KeyedCount:
        class_counts = self.snapshot.class_counts.of(name, weigh, candidates)
        return KeyedCount(key, class_counts, self.snapshot)


def by_key(items: Iterable[_T], key_of: Callable[[_T], str]) -> list[tuple[str, tuple[_T, ...]]]:
    """Return the items of each topology key, in the order of the keys' first items."""
    items_by_key: dict[str, list[_T]] = {}
    for item in items:
        items_by_key.setdefault(key_of(item), []).append(item)
    return [(key, tuple(rows)) for key, rows in items_by_key.items()]


def _meets_all(terms: Sequence[Term]) -> Weigh:
    return lambda other: int(all(term.matches(other.namespace, other.labels) for term in terms))


def _meets_any(terms: Sequence[Term]) -> Weigh:
    return lambda other: sum(term.matches(other.namespace, other.labels) for term in terms)


def _keeps_away(numbers: frozenset[int], cluster: ClusterTerms) -> Weigh:
    def weigh(other: PodClass) -> int:
        other_terms = cluster.of(other)
        return (
            sum(number in numbers for number in other_terms.away) if other_terms is not None else 0
        )

    return weigh


class AffinityTrial:
    """A Trial of one row, right after `write`."""

    __slots__ = ("_added", "_counts", "_every", "_near")

    def __init__(self, counts: AffinityCounts, row: int) -> None:
        self._counts = counts
        every = (*counts.near, *counts.away, *counts.kept_away)
        self._every = [(count, int(count.domains.of_row[row])) for count in every]
        self._near = len(counts.near)
        self._added = [0] * len(every)

    def add(self, pod: Pod) -> None:
        """Put `pod` on the node."""
        self._change(pod, 1)

    def remove(self, pod: Pod) -> None:
        """Take `pod` off the node."""
        self._change(pod, -1)

    def code(self) -> int:
        """Return the current code of the node."""
        if self._near and not self._is_near():
            return NOT_NEAR
        for index in range(self._near, len(self._every)):
            count, domain = self._every[index]
            if domain >= 0 and int(count.sums[domain]) + self._added[index] > 0:
                return NOT_AWAY if index < self._near + len(self._counts.away) else KEPT_AWAY
        return 0

    def _is_near(self) -> bool:
        lacks, total = False, 0
        for index in range(self._near):
            count, domain = self._every[index]
            if domain < 0:
                return False
            total += count.total + self._added[index]
            lacks = lacks or int(count.sums[domain]) + self._added[index] <= 0
        return not lacks or (total == 0 and self._counts.required.self_match)

    def _change(self, pod: Pod, sign: int) -> None:
        number = self._counts.snapshot.pod_classes.class_of(pod)
        for index, (count, domain) in enumerate(self._every):
            if domain >= 0:
                self._added[index] += sign * count.class_counts.weights.of(number)
