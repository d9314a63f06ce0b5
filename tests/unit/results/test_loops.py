"""Evict-reschedule loops, found among evictions."""

from __future__ import annotations

from replay.results.summary.eviction_loops import LOOP_EVICTIONS_MIN, EvictionLoop, EvictionLoops


def evictions(count: int, *, owner: str = "ReplicaSet default/web") -> EvictionLoops:
    """Return the loops after evictions of `count` pods of one owner, a minute apart."""
    loops = EvictionLoops()
    for number in range(count):
        if owner:
            loops.pod_added(f"uid-{number}", owner)
        loops.evicted(number * 60, f"uid-{number}", "memory.available", f"n{number % 2}")
    return loops


def test_a_controller_whose_pods_are_evicted_again_and_again_is_a_loop() -> None:
    """With its nodes in the order in which they came."""
    (loop,) = evictions(LOOP_EVICTIONS_MIN).found()
    assert loop == EvictionLoop(
        owner="ReplicaSet default/web",
        signal="memory.available",
        evictions=LOOP_EVICTIONS_MIN,
        nodes=("n0", "n1"),
        every_ns=60,
    )


def test_fewer_evictions_and_bare_pods_are_none() -> None:
    """Without a replacement there is no loop."""
    assert evictions(LOOP_EVICTIONS_MIN - 1).found() == ()
    assert evictions(10, owner="").found() == ()


def test_pods_that_are_evicted_at_the_same_moment_are_not_a_loop() -> None:
    """A leak that begins on four nodes at once; evictions after it count as one moment more."""
    loops = EvictionLoops()
    for number, at_ns in enumerate((0, 0, 0, 0, 60, 60, 90)):
        assert loops.found() == ()
        loops.pod_added(f"uid-{number}", "ReplicaSet default/web")
        loops.evicted(at_ns, f"uid-{number}", "memory.available", f"n{number}")
    (loop,) = loops.found()
    assert (loop.evictions, loop.every_ns) == (7, 45)


def test_signals_are_kept_apart() -> None:
    """Two of each are no loop."""
    loops = evictions(2)
    for number in range(2):
        loops.evicted(number, f"uid-{number}", "nodefs.available", "n0")
    assert loops.found() == ()
