"""minCandidateNodes: only some of the nodes that preemption may help on are tried.

Upstream begins at a random node; here the tie-break of the attempt chooses it. Which nodes are
found first, when several are tried at once, is chance upstream; here it is those in order.

Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go,
GetOffsetAndNumCandidates, calculateNumCandidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from services.scheduler.core.preemption.pick import TieBreak
from services.scheduler.core.preemption.survey import VIOLATIONS, Survey


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSampling:
    """How many candidates suffice: `percentage` (0 to 100) of the nodes, and at least `absolute`.

    One of them at least must spare all budgets; without any such, all nodes are tried.
    """

    percentage: int = 10
    absolute: int = 100

    def enough(self, nodes: int) -> int:
        """Return how many candidates suffice among so many nodes."""
        return min(max(nodes * self.percentage // 100, self.absolute), nodes)

    def first(self, nodes: Sequence[str], tie_break: TieBreak) -> int:
        """Return the place of the node to begin with."""
        return nodes.index(tie_break(nodes)) if nodes else 0

    def narrowed(self, survey: Survey, nodes: Sequence[str], tie_break: TieBreak) -> Survey:
        """Return what a search through `nodes` finds of a survey of all of them."""
        begin, enough = self.first(nodes, tie_break), self.enough(len(nodes))
        place = {name: number for number, name in enumerate(nodes)}
        names = survey.names(np.arange(len(survey.rows)))
        turns = np.array([(place[name] - begin) % len(nodes) for name in names], dtype=np.int64)
        order = np.argsort(turns)
        spotless = survey.criteria[order, VIOLATIONS] == 0
        tried = max(enough, int(spotless.argmax()) + 1) if spotless.any() else len(order)
        order, spotless = order[:tried], spotless[:tried]
        kept = np.concatenate([order[spotless][:enough], order[~spotless][:enough]])
        return replace(survey, rows=survey.rows[kept], criteria=survey.criteria[kept])
