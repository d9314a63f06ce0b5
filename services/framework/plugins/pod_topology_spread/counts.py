"""Counts the pods that match spread constraints by domain, also for the dry run of a node.

Source: kubernetes v1.34 plugins/podtopologyspread/filtering.go, calPreFilterState, Filter and
updateWithPod.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from services.framework.columns import domain_kernels
from services.framework.columns.columns import Bools, Int64s
from services.framework.columns.domain_kernels import FAR
from services.framework.plugins.pod_topology_spread.constraints import (
    CountedNodes,
    Spread,
    SpreadRule,
)
from services.framework.preemption.batch_dry_run import Bound, Bounds
from services.framework.snapshot.pod_classes import ClassCounts, PodClass
from services.framework.snapshot.snapshot import Snapshot
from services.kube.pod import Pod

MISSING_LABEL, SKEWED = 1, 2
"""Codes: the node lacks a rule's label; the pod would break a rule."""


@dataclass(frozen=True, slots=True)
class DomainCounts:
    """One rule's matching pods by domain.

    sums: int64[domains]; found: bool[domains], which hold a node that counts. They are `number`,
    `least` is the emptiest one's sum (FAR without any), `emptiest` its number, and `second` the
    least sum of the others.
    """

    sums: Int64s
    found: Bools
    number: int
    least: int
    emptiest: int
    second: int

    def emptiest_but(self, domain: int) -> int:
        """Return the lowest sum of the domains other than `domain`."""
        return self.second if domain == self.emptiest else self.least


class SpreadCounts:
    """A spread's rules over the snapshot; `by_rule` holds right after `write`."""

    __slots__ = ("_dry_weights", "by_rule", "class_counts", "nodes", "snapshot", "spread")

    def __init__(self, spread: Spread, snapshot: Snapshot) -> None:
        self.spread = spread
        self.snapshot = snapshot
        self.nodes = CountedNodes(spread, snapshot)
        self.class_counts: Sequence[ClassCounts] = [
            class_counts_of(rule, spread, snapshot) for rule in spread.rules
        ]
        self._dry_weights = [
            snapshot.class_counts.weights(
                partial(_sees, rule, spread.namespace),
                snapshot.class_counts.selected([rule.selector]),
            )
            for rule in spread.rules
        ]
        self.by_rule: Sequence[DomainCounts] = []

    def version(self) -> Hashable:
        """Return a version that differs whenever a code may differ."""
        for class_counts in self.class_counts:
            class_counts.sync()
        return (
            self.snapshot.node_log.end,
            *(class_counts.version for class_counts in self.class_counts),
        )

    def write(self, codes: Int64s) -> None:
        """Write the codes of all rows: the first rule that refuses one decides."""
        self.nodes.sync()
        used = len(self.snapshot.columns.rows)
        self.by_rule = [self._counts(index, used) for index in range(len(self.spread.rules))]
        for rule, domains, counts in zip(
            self.spread.rules, self.nodes.domains, self.by_rule, strict=True
        ):
            allowed = allowed_sum(rule, counts.number, counts.least)
            domain_kernels.spread(
                used, domains.of_row, counts.sums, allowed, MISSING_LABEL, SKEWED, codes
            )

    def bounds(self, rows: Int64s) -> Bounds:
        """Return how many more matching pods the domains of `rows` admit.

        The pod's domain must not be ahead of the emptiest other one by more than maxSkew; of
        itself it is never ahead. A row without a label admits none.
        """
        shape = (len(rows), len(self.by_rule))
        room: Int64s = np.zeros(shape, dtype=np.int64)
        counted: Bools = np.zeros(shape, dtype=np.bool_)
        for index, counts in enumerate(self.by_rule):
            rule, domain = self.spread.rules[index], self.nodes.domains[index].of_row[rows]
            least = np.where(domain == counts.emptiest, counts.second, counts.least)
            floor = 0 if counts.number < rule.min_domains else least
            held = np.append(counts.sums, FAR)[domain]
            room[:, index] = rule.max_skew - rule.self_match + floor - held
            room[domain < 0, index] = -FAR
            counted[:, index] = self.nodes.by_rule[index][rows]
        bounds = [Bound(weights, SKEWED) for weights in self._dry_weights]
        return Bounds(room=room, counted=counted, bounds=bounds)

    def has_labels(self, rows: Int64s) -> bool:
        """Return whether none of `rows` lacks a rule's label."""
        return all(bool((domain.of_row[rows] >= 0).all()) for domain in self.nodes.domains)

    def sees(self, index: int, number: int) -> int:
        """Return whether rule `index` sees pods of a class, as 1 or 0."""
        return self._dry_weights[index].of(number)

    def _counts(self, index: int, used: int) -> DomainCounts:
        domains = self.nodes.domains[index]
        sums = np.zeros(domains.size, dtype=np.int64)
        eligible = np.zeros(domains.size, dtype=np.bool_)
        class_counts, counted = self.class_counts[index], self.nodes.by_rule[index]
        answer = domain_kernels.spread_sums(
            used, domains.of_row, counted, class_counts.counts, sums, eligible
        )
        return DomainCounts(sums, eligible, *answer)


def allowed_sum(rule: SpreadRule, number: int, least: int) -> int:
    """Return how many matching pods a domain may hold before the pod is added."""
    floor = 0 if number < rule.min_domains else least
    return rule.max_skew + floor - rule.self_match


def class_counts_of(rule: SpreadRule, spread: Spread, snapshot: Snapshot) -> ClassCounts:
    """Return the class_counts of the pods that a rule counts."""
    key = ("spread", spread.namespace, rule.selector)
    candidates = snapshot.class_counts.selected([rule.selector])
    return snapshot.class_counts.of(key, partial(_counts, rule, spread.namespace), candidates)


def _counts(rule: SpreadRule, namespace: str, other: PodClass) -> int:
    return int(rule.counts(other, namespace))


def _sees(rule: SpreadRule, namespace: str, other: PodClass) -> int:
    return int(rule.sees(other, namespace))


class SpreadTrial:
    """A Trial of one row, right after `write`.

    Pods that come and go are taken for matching whether they terminate or not, and by an empty
    selector too, as upstream does. They change one domain of each rule.
    """

    __slots__ = ("_added", "_counts", "_domains", "_moves")

    def __init__(self, counts: SpreadCounts, row: int) -> None:
        self._counts = counts
        self._domains = [int(domains.of_row[row]) for domains in counts.nodes.domains]
        counted = [bool(by_rule[row]) for by_rule in counts.nodes.by_rule]
        self._moves = [index for index, moves in enumerate(counted) if moves]
        self._added = [0] * len(counted)

    def add(self, pod: Pod) -> None:
        """Put `pod` on the node."""
        self._change(pod, 1)

    def remove(self, pod: Pod) -> None:
        """Take `pod` off the node."""
        self._change(pod, -1)

    def code(self) -> int:
        """Return the current code of the node."""
        for rule, domain, counts, added in zip(
            self._counts.spread.rules, self._domains, self._counts.by_rule, self._added, strict=True
        ):
            if domain < 0:
                return MISSING_LABEL
            held = int(counts.sums[domain]) + added
            least = counts.least
            if counts.found[domain]:
                least = min(held, counts.emptiest_but(domain))
            if held > allowed_sum(rule, counts.number, least):
                return SKEWED
        return 0

    def _change(self, pod: Pod, sign: int) -> None:
        if not self._moves or pod.namespace != self._counts.spread.namespace:
            return
        number = self._counts.snapshot.pod_classes.class_of(pod)
        for index in self._moves:
            self._added[index] += sign * self._counts.sees(index, number)
