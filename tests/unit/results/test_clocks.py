"""The clocks that pods' spans run on."""

from __future__ import annotations

from replay.results.spans.clocks import VirtualClock, WallClock


def test_the_virtual_clock_shows_the_simulations_time() -> None:
    """Whatever has been reached."""
    clock = VirtualClock()
    clock.reached(7)
    assert clock.time_ns(5) == 5


def test_the_wall_clock_shows_when_a_moment_was_reached() -> None:
    """Between two moments, the earlier one; each is noted once."""
    wall = iter([100, 200, 300])
    clock = WallClock(lambda: next(wall))
    for at_ns in (10, 10, 20, 30):
        clock.reached(at_ns)
    assert [clock.time_ns(at_ns) for at_ns in (5, 10, 15, 20, 99)] == [100, 100, 100, 200, 300]
