"""How much a node would even out the spread of a pod's kind.

Domains count that hold a node that fits, so the raw scores follow from which nodes fit. A rule
adds the pods in the node's domain times log(domains + 2), so that rules with few domains weigh
less, and maxSkew - 1. The fewer, the better.

Source: kubernetes v1.34 plugins/podtopologyspread/scoring.go.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.scheduler.core import domain_kernels
from services.scheduler.core.columns import Bools, Int64s
from services.scheduler.core.domain_kernels import Floats
from services.scheduler.core.logarithm import DomainWeights
from services.scheduler.core.plugin import Normalized
from services.scheduler.core.plugins.pod_topology_spread_counts import tally_of
from services.scheduler.core.plugins.pod_topology_spread_nodes import CountedNodes
from services.scheduler.core.plugins.pod_topology_spread_rules import Spread
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.tally import Tally

_WEIGHTS = DomainWeights()


class SpreadScores:
    """A spread's rules over the nodes that fit."""

    __slots__ = ("_nodes", "_snapshot", "_spread", "_tallies")

    def __init__(self, spread: Spread, snapshot: Snapshot) -> None:
        self._spread = spread
        self._snapshot = snapshot
        self._nodes = CountedNodes(spread, snapshot)
        self._tallies: Sequence[Tally] = [tally_of(rule, spread, snapshot) for rule in spread.rules]

    def of(self, rows: Int64s) -> Normalized:
        """Return the scores of `rows`, all nodes that fit; those that lack a label get 0.

        With a system default they are scored by the labels that they have.
        """
        self._nodes.sync()
        for tally in self._tallies:
            tally.sync()
        ignored = self._ignored(rows)
        scored = len(rows) - int(np.count_nonzero(ignored))
        values: Floats = np.zeros(len(rows), dtype=np.float64)
        for index in range(len(self._tallies)):
            self._add(index, rows, ignored, scored, values)
        raw: Int64s = np.zeros(len(rows), dtype=np.int64)
        scores: Int64s = np.zeros(len(rows), dtype=np.int64)
        domain_kernels.rounded(values, raw)
        domain_kernels.turn(ignored, raw, scores)
        return Normalized(raw, scores)

    def _add(self, index: int, rows: Int64s, ignored: Bools, scored: int, values: Floats) -> None:
        rule, domains = self._spread.rules[index], self._nodes.domains[index]
        counts = self._tallies[index].counts
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
