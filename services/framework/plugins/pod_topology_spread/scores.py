"""Scores nodes by how much the pod would reduce the skew of its topology spread constraints.

The domains that hold a node that fits are counted, so the raw scores follow from which nodes fit. A
rule adds the pods in the node's domain times log(domains + 2), so that rules with few domains weigh
less, and maxSkew - 1. The lowest raw score is the best.

Scores are rounded sums of logarithms, so that a last bit can decide. `logarithm` is the method of
Sun's fdlibm, which upstream's language uses on amd64: with x = 2^k * (1 + f) and 1 + f within a
factor of sqrt(2) of 1, log(1 + f) is computed from s = f / (2 + f) by a polynomial in s^2.

Source: kubernetes v1.34 plugins/podtopologyspread/scoring.go; FreeBSD lib/msun/src/e_log.c; Go 1.24
src/math/log.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp

import numpy as np
from numpy.typing import NDArray

from services.framework.columns import domain_kernels
from services.framework.columns.columns import Bools, Int64s
from services.framework.columns.domain_kernels import Floats
from services.framework.plugin import Normalized
from services.framework.plugins.pod_topology_spread.constraints import CountedNodes, Spread
from services.framework.plugins.pod_topology_spread.counts import class_counts_of
from services.framework.snapshot.pod_classes import ClassCounts
from services.framework.snapshot.snapshot import Snapshot

_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_ODD = (6.666666666666735130e-01, 2.857142874366239149e-01, 1.818357216161805012e-01)
_LAST_ODD = 1.479819860511658591e-01
_EVEN = (3.999999999940941908e-01, 2.222219843214978396e-01, 1.531383769920937332e-01)
_HALF_ROOT = 0.70710678118654752440


def logarithm(number: int) -> float:
    """Return the natural logarithm of a number above 0."""
    mantissa, exponent = frexp(number)
    if mantissa < _HALF_ROOT:
        mantissa, exponent = mantissa * 2, exponent - 1
    f = mantissa - 1
    s = f / (2 + f)
    square = s * s
    fourth = square * square
    odd = square * (_ODD[0] + fourth * (_ODD[1] + fourth * (_ODD[2] + fourth * _LAST_ODD)))
    even = fourth * (_EVEN[0] + fourth * (_EVEN[1] + fourth * _EVEN[2]))
    half_square = 0.5 * f * f
    rest = s * (half_square + (odd + even)) + exponent * _LN2_LOW
    return exponent * _LN2_HIGH - ((half_square - rest) - f)


class DomainWeights:
    """The weight of a count among n domains, log(n + 2), for each n; float64[n]."""

    __slots__ = ("_weights",)

    def __init__(self) -> None:
        self._weights: NDArray[np.float64] = np.zeros(0, dtype=np.float64)

    def up_to(self, number: int) -> NDArray[np.float64]:
        """Return the weights of 0 to `number` domains and maybe more."""
        if len(self._weights) <= number:
            values = [logarithm(n + 2) for n in range(2 * number + 1)]
            self._weights = np.array(values, dtype=np.float64)
        return self._weights


_WEIGHTS = DomainWeights()


class SpreadScores:
    """A spread's rules over the nodes that fit."""

    __slots__ = ("_class_counts", "_nodes", "_snapshot", "_spread")

    def __init__(self, spread: Spread, snapshot: Snapshot) -> None:
        self._spread = spread
        self._snapshot = snapshot
        self._nodes = CountedNodes(spread, snapshot)
        self._class_counts: Sequence[ClassCounts] = [
            class_counts_of(rule, spread, snapshot) for rule in spread.rules
        ]

    def of(self, rows: Int64s) -> Normalized:
        """Return the scores of `rows`, all nodes that fit; those that lack a label get 0.

        With a system default they are scored by the labels that they have.
        """
        self._nodes.sync()
        for class_counts in self._class_counts:
            class_counts.sync()
        ignored = self._ignored(rows)
        scored = len(rows) - int(np.count_nonzero(ignored))
        values: Floats = np.zeros(len(rows), dtype=np.float64)
        for index in range(len(self._class_counts)):
            self._add(index, rows, ignored, scored, values)
        raw: Int64s = np.zeros(len(rows), dtype=np.int64)
        scores: Int64s = np.zeros(len(rows), dtype=np.int64)
        domain_kernels.rounded(values, raw)
        domain_kernels.turn(ignored, raw, scores)
        return Normalized(raw, scores)

    def _add(self, index: int, rows: Int64s, ignored: Bools, scored: int, values: Floats) -> None:
        rule, domains = self._spread.rules[index], self._nodes.domains[index]
        counts = self._class_counts[index].counts
        weights = _WEIGHTS.up_to(max(scored, domains.size + 1))
        more = float(rule.max_skew - 1)
        if rule.is_by_host:
            weight = float(weights[scored])
            domain_kernels.add_counts(rows, ignored, domains.of_row, counts, weight, more, values)
            return
        domain_kernels.add_spread(
            rows,
            ignored,
            len(self._snapshot.columns.rows),
            domains.of_row,
            domains.size + 1,
            domains.unlabelled,
            self._nodes.by_rule[index],
            counts,
            weights,
            more,
            values,
        )

    def _ignored(self, rows: Int64s) -> Bools:
        ignored: Bools = np.zeros(len(rows), dtype=np.bool_)
        if self._spread.needs_all:
            for domains in self._nodes.domains:
                ignored |= domains.of_row[rows] < 0
        return ignored
