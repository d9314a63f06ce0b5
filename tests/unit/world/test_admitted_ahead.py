"""Pods of the trace that are admitted before their time."""

from __future__ import annotations

from replay.world.ahead.admitted import AdmittedAhead
from tests.unit.world.builders import S, World, create_pod, make_pod


def test_a_pod_that_was_admitted_ahead_is_the_one_that_is_created() -> None:
    """It is not admitted again, and its name may have been taken meanwhile."""
    world, record, late = World(), create_pod(make_pod()), create_pod(make_pod("late"))
    ahead = AdmittedAhead(world.inputs, world.lifecycle, world.admission)
    admitted, _ = ahead.admit(S, record), ahead.admit(S, late)
    assert admitted is not None
    assert ahead.admit(S, record) is admitted
    world.feed(0, create_pod(make_pod("late")))
    world.feed(S, record, late)
    assert world.pod("p") is admitted.pod
    assert world.refusals() == ["pod default/late exists already"]
