"""Every node that a preemption might help on, judged at once, and the one picked by columns.

A survey says of a candidate what it is judged by, and not who its victims are: those are found
for the picked node alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.kube.value import value
from services.scheduler.core import reprieve
from services.scheduler.core.preemption.pick import CRITERIA_ORDER, DecidedBy, TieBreak
from services.scheduler.core.preemption.rules import PreemptionRules
from services.scheduler.core.status import Status

Int64s = NDArray[np.int64]

VIOLATIONS = CRITERIA_ORDER.index(DecidedBy.VIOLATIONS)
NUM_VICTIMS = CRITERIA_ORDER.index(DecidedBy.NUM_VICTIMS)


@value(kw_only=True)
class Survey:
    """What the dry runs came to.

    rows: int64[candidates] in the nodes' order, which `name` turns into their names.
    criteria: int64[candidates, 5] in the order of CRITERIA_ORDER, so that less is better (the
    earliest start is negated). `counted` are all rows' answers, as in `reprieve`, with their
    number; `status` puts refusals into words. Surveys of one shape say the same in words where
    their `key` is the same.
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
            if code not in {reprieve.CANDIDATE, reprieve.NOT_TRIED}
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


def pick_surveyed(survey: Survey, *, rules: PreemptionRules, tie_break: TieBreak) -> PickedNode:
    """Pick among the candidates of `survey`, of which there must be one; see `pick_one_node`."""
    left = np.arange(len(survey.rows))
    if len(left) == 1:
        return _picked(survey, left, DecidedBy.ONLY_CANDIDATE)
    spotless = np.flatnonzero(survey.criteria[:, NUM_VICTIMS] == 0)
    if len(spotless):
        return _picked(survey, spotless[:1], DecidedBy.NO_VICTIMS)
    number, field = reprieve.pick(survey.criteria, left)
    left = left[:number]
    if number == 1:
        return _picked(survey, left, CRITERIA_ORDER[field])
    ties = survey.names(left)
    chosen = ties[0] if rules.takes_first else tie_break(ties)
    return PickedNode(node=chosen, decided_by=DecidedBy.TIE, ties=ties)


def _picked(survey: Survey, place: Int64s, decided_by: DecidedBy) -> PickedNode:
    names = survey.names(place)
    return PickedNode(node=names[0], decided_by=decided_by, ties=names)
