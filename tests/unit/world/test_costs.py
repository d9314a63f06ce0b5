"""Outcomes that wait until their cycle, or their binding, is over."""

from __future__ import annotations

from replay.world.journal import Mistake
from replay.world.loop.scheduling_costs import SchedulingCosts
from replay.world.models import Models
from replay.world.timeline import Timeline
from reprieve.scheduler.v1beta1 import scheduler_pb2
from tests.unit.world.builders import World, bind, unschedulable

MS = 1_000_000


def made(models: Models) -> tuple[SchedulingCosts, Timeline]:
    """Return the costs of these models, and the timeline that they plan on."""
    state = World(models).state
    return SchedulingCosts(state), state.timeline


def no_mistake(_: scheduler_pb2.Outcome) -> Mistake:
    """Return that an outcome has none."""
    return Mistake.NONE


def test_without_costs_everything_is_carried_out_now() -> None:
    """And nobody is ever busy."""
    costs, timeline = made(Models())
    outcomes = [bind("a", "n"), unschedulable("b")]
    assert costs.ready(0, outcomes, no_mistake) == outcomes
    assert (costs.one_by_one, costs.is_busy(0), len(timeline)) == (False, False, 0)
    assert (costs.next_ns(7), costs.next_ns(None)) == (7, None)


def test_a_cycle_is_over_after_its_cost_and_a_binding_later_still() -> None:
    """Meanwhile the scheduler cannot be woken."""
    costs, timeline = made(Models(cycle_cost_ns=2 * MS, bind_cost_ns=5 * MS))
    outcomes = [bind("a", "n"), unschedulable("b")]
    assert costs.ready(0, outcomes[:1], no_mistake) == []
    assert (costs.is_busy(2 * MS - 1), costs.is_busy(2 * MS)) == (True, False)
    assert (costs.next_ns(1), costs.next_ns(9 * MS)) == (2 * MS, 9 * MS)
    assert costs.ready(2 * MS, outcomes[1:], no_mistake) == []
    seen = []
    while (at_ns := timeline.next_ns()) is not None:
        for action in timeline.take_due(at_ns):
            seen += [(at_ns // MS, outcome.pop.uid) for outcome in costs.due(action.key)[0]]
    assert seen == [(4, "b"), (7, "a")]


def test_a_binding_that_costs_time_delays_no_other_pod() -> None:
    """Only itself."""
    costs, timeline = made(Models(bind_cost_ns=5 * MS))
    late = unschedulable("b")
    assert costs.ready(0, [bind("a", "n"), late], no_mistake) == [late]
    assert (costs.is_busy(0), timeline.next_ns()) == (False, 5 * MS)
