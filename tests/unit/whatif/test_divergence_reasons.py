"""What is said of two preemptions that differ."""

from __future__ import annotations

from collections.abc import Sequence

from replay.explain.explanation import NodeCandidate, PreemptionReason, PreemptionVictim
from replay.whatif.divergence import preemption_differences

SHIFT = 1 << 31
SYSTEM = 2_000_000_000


def preemption(*priorities: int, decided_by: str = "only-candidate") -> PreemptionReason:
    """Return what was found where node n alone can be had, for victims of these priorities."""
    victims = tuple(
        PreemptionVictim(pod=f"default/p{number}", priority=priority, violates_budget=False)
        for number, priority in enumerate(priorities)
    )
    found = NodeCandidate(
        node="n",
        victims=victims,
        reprieved=(),
        budget_violations=0,
        highest_priority=max(priorities),
        sum_priorities=sum(priority + SHIFT for priority in priorities),
        earliest_start_ns=None,
    )
    return PreemptionReason(
        picked="n", decided_by=decided_by, candidate_count=1, candidates=(found,)
    )


def said(a: Sequence[int], b: Sequence[int]) -> list[str]:
    """Return the sentences about victims of these priorities."""
    return list(preemption_differences(preemption(*a), preemption(*b)))


def test_victims_are_compared_by_priority_and_not_as_a_sum() -> None:
    """Upstream's sum adds 2^31 to each: no priority that anybody has given."""
    assert said([0, 0], [0, 0, 0]) == ["On n the victims are 2 of 0 in A and 3 of 0 in B."]
    assert said([SYSTEM, 5], [5]) == [
        "On n the victims are 1 of 2,000,000,000 and 1 of 5 in A and 1 of 5 in B."
    ]


def test_equal_victims_are_not_reported() -> None:
    """Only what differs is."""
    assert said([7, 0], [0, 7]) == []
