"""Which nodes count for a topology spread rule.

Source: kubernetes v1.34 plugins/podtopologyspread/common.go, matchNodeInclusionPolicies and
nodeLabelsMatchSpreadConstraints.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.scheduler.core.columns import Bools
from services.scheduler.core.plugins.pod_topology_spread_rules import Required, Rule, Spread
from services.scheduler.core.plugins.taint_toleration import Tolerance
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.topology import Domains


class CountedNodes:
    """The nodes that count for each rule of a spread, right after `sync`.

    domains: those of each rule's label. by_rule: bool[nodes] for each rule.
    """

    __slots__ = (
        "_matching",
        "_position",
        "_snapshot",
        "_spread",
        "_tolerance",
        "by_rule",
        "domains",
    )

    def __init__(self, spread: Spread, snapshot: Snapshot) -> None:
        self._spread = spread
        self._snapshot = snapshot
        self.domains: Sequence[Domains] = [
            snapshot.topologies.domains(rule.topology_key) for rule in spread.rules
        ]
        self.by_rule: Sequence[Bools] = []
        self._tolerance = Tolerance(spread.tolerations)
        self._matching: Bools = np.zeros(0, dtype=np.bool_)
        self._position = -1

    def sync(self) -> None:
        """Judge the nodes again that changed."""
        for domains in self.domains:
            domains.sync()
        end = self._snapshot.node_log.end
        if self._position == end:
            return
        if _asks(self._spread.required):
            self._match_nodes()
        self._position = end
        labelled = self._snapshot.columns.alive
        if self._spread.needs_all:
            for domains in self.domains:
                labelled = labelled & (domains.of_row >= 0)
        self.by_rule = [self._counted(rule, labelled) for rule in self._spread.rules]

    def _counted(self, rule: Rule, labelled: Bools) -> Bools:
        counted = labelled
        if rule.honors_affinity and _asks(self._spread.required):
            counted = counted & self._matching
        if rule.honors_taints:
            codes = self._tolerance.codes(self._snapshot)
            counted = counted & (codes[self._snapshot.columns.taint_class] == 0)
        return counted

    def _match_nodes(self) -> None:
        columns = self._snapshot.columns
        same = len(self._matching) == columns.capacity
        rows = self._snapshot.node_log.since(self._position) if same else None
        if rows is None:
            self._matching = np.zeros(columns.capacity, dtype=np.bool_)
            rows = columns.rows
        labels, required = self._spread.required
        for row in rows.tolist():
            node = self._snapshot.node(row) if columns.alive[row] else None
            self._matching[row] = node is not None and node.matches(labels, required)


def _asks(required: Required) -> bool:
    return bool(required[0]) or required[1] is not None
