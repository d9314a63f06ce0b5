"""Which of the candidate nodes is preempted on.

The criteria apply in turn, each to the nodes that the one before left, until a single node is left:
1. fewest violations of disruption budgets; 2. lowest priority of the most important victim; 3.
smallest sum of the victims' priorities; 4. fewest victims; 5. latest start of the victims of the
highest priority, by their earliest; 6. a tie-break. `batch_kernels.pick` is the same for a batch.

Source: kubernetes v1.34 pkg/scheduler/framework/preemption/preemption.go, SelectCandidate and
pickOneNodeForPreemption; v1.16 pkg/scheduler/core/generic_scheduler.go,
pickOneNodeForPreemption.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from services.framework.columns.hashing import all_mixed, attempt_hash
from services.framework.preemption.rules import PreemptionRules
from services.framework.preemption.victims import Candidate, earliest_start_ns

PRIORITY_SHIFT = 1 << 31
"""Added to each victim's priority in a sum, so that no term is negative."""

TieBreak = Callable[[Sequence[str]], str]
"""Chooses one of several node names that are equally good."""


class DecidedBy(StrEnum):
    """What decided the choice of a node."""

    ONLY_CANDIDATE = "only-candidate"
    NO_VICTIMS = "0-no-victims"
    VIOLATIONS = "1-pdb-violations"
    HIGHEST_PRIORITY = "2-highest-priority"
    SUM_PRIORITIES = "3-sum-priorities"
    NUM_VICTIMS = "4-num-victims"
    LATEST_START = "5-latest-start"
    TIE = "6-tie"


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """What a candidate is judged by.

    `sum_priorities` adds 2^31 to each priority. `earliest_start_ns` is the earliest start among
    the victims of the highest priority, in ns since the Unix epoch.
    """

    violations: int
    highest_priority: int
    sum_priorities: int
    num_victims: int
    earliest_start_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """The chosen candidate, what decided, and the nodes that were left when it did.

    `ties` is a single node unless `decided_by` is TIE.
    """

    candidate: Candidate
    decided_by: DecidedBy
    ties: tuple[str, ...]


_CRITERIA: tuple[tuple[DecidedBy, Callable[[Criteria], int]], ...] = (
    (DecidedBy.VIOLATIONS, lambda criteria: criteria.violations),
    (DecidedBy.HIGHEST_PRIORITY, lambda criteria: criteria.highest_priority),
    (DecidedBy.SUM_PRIORITIES, lambda criteria: criteria.sum_priorities),
    (DecidedBy.NUM_VICTIMS, lambda criteria: criteria.num_victims),
    (DecidedBy.LATEST_START, lambda criteria: -criteria.earliest_start_ns),
)
CRITERIA_ORDER = tuple(decided_by for decided_by, _ in _CRITERIA)
"""The criteria in the order in which they apply."""


def hashed_tie_break(*, seed: int, uid: str, attempt: int) -> TieBreak:
    """Return the tie-break that host selection uses, for one attempt to schedule one pod."""
    attempt_bits = attempt_hash(seed, uid, attempt)

    def choose(nodes: Sequence[str]) -> str:
        ranks = all_mixed(nodes, attempt_bits)
        return min(nodes[place] for place in np.flatnonzero(ranks == ranks.min()).tolist())

    return choose


def criteria_of(candidate: Candidate, *, now_ns: int) -> Criteria | None:
    """Return what the candidate is judged by; None without victims.

    The highest priority is the first victim's, as upstream takes it. The rules of v1.34 have
    the victims in order of importance; those of v1.16 put budget violations first, so that a
    later victim may have a higher priority.
    """
    victims = candidate.victims
    if not victims:
        return None
    return Criteria(
        violations=candidate.violations,
        highest_priority=victims[0].priority,
        sum_priorities=sum(victim.priority + PRIORITY_SHIFT for victim in victims),
        num_victims=len(victims),
        earliest_start_ns=earliest_start_ns(victims, now_ns=now_ns),
    )


def pick_one_node(
    candidates: Sequence[Candidate], *, rules: PreemptionRules, tie_break: TieBreak, now_ns: int
) -> Picked | None:
    """Return the best of `candidates`, which are in the nodes' order; None without any.

    The first candidate without victims is taken at once; only the rules of v1.16 have such.
    """
    if not candidates:
        return None
    if len(candidates) == 1:
        return _picked(candidates[0], DecidedBy.ONLY_CANDIDATE)
    judged: list[tuple[Candidate, Criteria]] = []
    for candidate in candidates:
        criteria = criteria_of(candidate, now_ns=now_ns)
        if criteria is None:
            return _picked(candidate, DecidedBy.NO_VICTIMS)
        judged.append((candidate, criteria))
    for decided_by, value in _CRITERIA:
        best = min(value(criteria) for _, criteria in judged)
        judged = [each for each in judged if value(each[1]) == best]
        if len(judged) == 1:
            return _picked(judged[0][0], decided_by)
    return _tied([candidate for candidate, _ in judged], rules, tie_break)


def _picked(candidate: Candidate, decided_by: DecidedBy) -> Picked:
    return Picked(candidate=candidate, decided_by=decided_by, ties=(candidate.node,))


def _tied(equals: Sequence[Candidate], rules: PreemptionRules, tie_break: TieBreak) -> Picked:
    nodes = tuple(candidate.node for candidate in equals)
    chosen = nodes[0] if rules.takes_first else tie_break(nodes)
    return Picked(candidate=equals[nodes.index(chosen)], decided_by=DecidedBy.TIE, ties=nodes)
