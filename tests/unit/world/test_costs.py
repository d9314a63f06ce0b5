"""Outcomes that wait until their cycle, or their binding, is over."""

from __future__ import annotations

from replay.world.loop.outcomes import SchedulingCosts
from replay.world.models import Models
from replay.world.timeline import Timeline
from tests.unit.world.builders import World, bind, unschedulable

MS = 1_000_000


def made(models: Models) -> tuple[SchedulingCosts, Timeline]:
    """Return the costs of these models, and the timeline that they plan on."""
    state = World(models).state
    return SchedulingCosts(state), state.timeline


def test_without_costs_everything_is_carried_out_now() -> None:
    """And nobody is ever busy."""
    costs, timeline = made(Models())
    outcomes = [bind("a", "n"), unschedulable("b")]
    assert costs.ready(0, outcomes) == outcomes
    assert (costs.one_by_one, costs.is_busy(0), len(timeline)) == (False, False, 0)
    assert (costs.next_ns(7), costs.next_ns(None)) == (7, None)


def test_a_cycle_is_over_after_its_cost_and_a_binding_later_still() -> None:
    """Meanwhile the scheduler cannot be woken."""
    costs, timeline = made(Models(cycle_cost_ns=2 * MS, bind_cost_ns=5 * MS))
    outcomes = [bind("a", "n"), unschedulable("b")]
    assert costs.ready(0, outcomes[:1]) == []
    assert (costs.is_busy(2 * MS - 1), costs.is_busy(2 * MS)) == (True, False)
    assert (costs.next_ns(1), costs.next_ns(9 * MS)) == (2 * MS, 9 * MS)
    assert costs.ready(2 * MS, outcomes[1:]) == []
    seen = []
    while (at_ns := timeline.next_ns()) is not None:
        for action in timeline.take_due(at_ns):
            seen += [(at_ns // MS, each.pop.uid) for each in costs.due(action.key)]
    assert seen == [(4, "b"), (7, "a")]


def test_a_binding_that_costs_time_delays_no_other_pod() -> None:
    """Only itself."""
    costs, timeline = made(Models(bind_cost_ns=5 * MS))
    late = unschedulable("b")
    assert costs.ready(0, [bind("a", "n"), late]) == [late]
    assert (costs.is_busy(0), timeline.next_ns()) == (False, 5 * MS)
