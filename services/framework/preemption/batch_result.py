"""The result of a batch dry run, and the node that is picked from it by columns.

A batch holds the criteria of each candidate and not its victims: those are found for the picked
node alone. With minCandidateNodes only some of the nodes are tried. Upstream starts at a random
one; here the tie-break of the attempt chooses it. Which candidates upstream finds first, when it
tries several nodes in parallel, is chance; here it is those in order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from services.framework.preemption import batch_kernels
from services.framework.preemption.batch_kernels import VICTIMS, VIOLATIONS
from services.framework.preemption.pick import CRITERIA_ORDER, DecidedBy, TieBreak
from services.framework.preemption.rules import PreemptionRules
from services.framework.status import Status
from services.kube.value import value

Int64s = NDArray[np.int64]


@value(kw_only=True)
class BatchDryRunResult:
    """The results of the dry runs.

    rows: int64[candidates] in the nodes' order, which `name` turns into their names.
    criteria: int64[candidates, 5] in the order of CRITERIA_ORDER, so that less is better (the
    earliest start is negated). `counted` has the number of rows for each code of `batch_kernels`;
    `status` turns a code into a refusal. Results of one equivalence class have the same message
    where their `key` is the same.
    """

    rows: Int64s
    criteria: Int64s
    counted: Mapping[int, int]
    status: Callable[[int], Status]
    name: Callable[[int], str]
    key: Hashable

    @property
    def refusals(self) -> Sequence[tuple[Status, int]]:
        """Return the other nodes' refusals with the number of nodes."""
        return [
            (self.status(code), count)
            for code, count in self.counted.items()
            if code not in {batch_kernels.CANDIDATE, batch_kernels.NOT_TRIED}
        ]

    def names(self, places: Int64s) -> tuple[str, ...]:
        """Return the names of the candidates at these places."""
        return tuple(self.name(row) for row in self.rows[places].tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedNode:
    """The chosen node, what decided, and the nodes that were left when it did."""

    node: str
    decided_by: DecidedBy
    ties: tuple[str, ...]


def pick_from_batch(
    batch: BatchDryRunResult, *, rules: PreemptionRules, tie_break: TieBreak
) -> PickedNode:
    """Pick among the candidates of `batch`, of which there must be one; see `pick_one_node`."""
    left = np.arange(len(batch.rows))
    if len(left) == 1:
        return _picked(batch, left, DecidedBy.ONLY_CANDIDATE)
    without_victims = np.flatnonzero(batch.criteria[:, VICTIMS] == 0)
    if len(without_victims):
        return _picked(batch, without_victims[:1], DecidedBy.NO_VICTIMS)
    number, field = batch_kernels.pick(batch.criteria, left)
    left = left[:number]
    if number == 1:
        return _picked(batch, left, CRITERIA_ORDER[field])
    ties = batch.names(left)
    chosen = ties[0] if rules.takes_first else tie_break(ties)
    return PickedNode(node=chosen, decided_by=DecidedBy.TIE, ties=ties)


def _picked(batch: BatchDryRunResult, place: Int64s, decided_by: DecidedBy) -> PickedNode:
    names = batch.names(place)
    return PickedNode(node=names[0], decided_by=decided_by, ties=names)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSampling:
    """How many candidates suffice: `percentage` (0 to 100) of the nodes, and at least `absolute`.

    One of them at least must spare all budgets; without any such, all nodes are tried.
    Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go,
    GetOffsetAndNumCandidates, calculateNumCandidates.
    """

    percentage: int = 10
    absolute: int = 100

    def enough(self, nodes: int) -> int:
        """Return how many candidates suffice among so many nodes."""
        return min(max(nodes * self.percentage // 100, self.absolute), nodes)

    def first(self, nodes: Sequence[str], tie_break: TieBreak) -> int:
        """Return the place of the node to begin with."""
        return nodes.index(tie_break(nodes)) if nodes else 0

    def narrowed(
        self, batch: BatchDryRunResult, nodes: Sequence[str], tie_break: TieBreak
    ) -> BatchDryRunResult:
        """Return the part of the results that a search through `nodes` finds."""
        begin, enough = self.first(nodes, tie_break), self.enough(len(nodes))
        place = {name: number for number, name in enumerate(nodes)}
        names = batch.names(np.arange(len(batch.rows)))
        turns = np.array([(place[name] - begin) % len(nodes) for name in names], dtype=np.int64)
        order = np.argsort(turns)
        non_violating = batch.criteria[order, VIOLATIONS] == 0
        tried = max(enough, int(non_violating.argmax()) + 1) if non_violating.any() else len(order)
        order, non_violating = order[:tried], non_violating[:tried]
        kept = np.concatenate([order[non_violating][:enough], order[~non_violating][:enough]])
        return replace(batch, rows=batch.rows[kept], criteria=batch.criteria[kept])
