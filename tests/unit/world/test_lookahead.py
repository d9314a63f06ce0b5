"""When what several profiles use together comes to matter."""

from __future__ import annotations

from replay.world.kubelet.usage_curves import (
    HORIZON_NS,
    NodeUsage,
    SegmentCurve,
    UsageLimits,
    exact_bytes,
    int64s,
    look_again_ns,
)
from tests.unit.world.builders import S


def together(*told: tuple[int, list[tuple[int, int, int]]]) -> NodeUsage:
    """Return sources of (start in ns, segments of (offset in s, memory, storage))."""
    sources = NodeUsage()
    for start_ns, segments in told:
        offsets = int64s([offset_s * S for offset_s, _, _ in segments])
        memory = SegmentCurve(offsets, [memory for _, memory, _ in segments])
        storage = SegmentCurve(offsets, [storage for _, _, storage in segments])
        sources.memory.append((start_ns, memory))
        sources.storage.append((start_ns, storage))
    return sources


def test_only_too_much_matters() -> None:
    """What is used at one moment counts together, and what is free again does not matter."""
    sources = together(
        (0, [(0, 1, 0), (10, 3, 0), (20, 1, 0), (30, 3, 0)]),
        (0, [(0, 2, 0), (10, 1, 0), (30, 2, 0)]),
    )
    assert look_again_ns(sources, 0, UsageLimits(memory=4)) == 30 * S
    assert look_again_ns(sources, 0, UsageLimits(memory=3)) == 10 * S
    assert look_again_ns(sources, 30 * S, UsageLimits(memory=4)) is None
    assert look_again_ns(sources, 0, UsageLimits(memory=5)) is None
    assert look_again_ns(sources, 0, UsageLimits(storage=0)) is None
    assert look_again_ns(NodeUsage(), 0, UsageLimits(memory=0)) is None


def test_either_resource_may_matter_first() -> None:
    """Each against its own bound."""
    sources = together((5 * S, [(0, 1, 1), (10, 1, 9), (20, 9, 9)]))
    assert look_again_ns(sources, 5 * S, UsageLimits(memory=5, storage=5)) == 15 * S
    assert look_again_ns(sources, 5 * S, UsageLimits(memory=5)) == 25 * S


def test_profiles_whose_most_together_is_allowed_are_never_looked_at_again() -> None:
    """However far they go; those that only may exceed it are, at the end of the look ahead."""
    far_s = 5 * HORIZON_NS // S
    sources = together((0, [(0, 1, 0), (far_s, 4, 0)]), (0, [(0, 3, 0), (7, 0, 0)]))
    assert look_again_ns(sources, 0, UsageLimits(memory=7)) is None
    assert look_again_ns(sources, 0, UsageLimits(memory=6)) == HORIZON_NS
    assert look_again_ns(sources, HORIZON_NS, UsageLimits(memory=6)) is None


def test_events_beyond_the_horizon_are_found_later() -> None:
    """Long profiles are not read to their end at once."""
    far_s = HORIZON_NS // S + 7
    sources = together((0, [(0, 1, 0), (far_s, 7, 0)]))
    assert look_again_ns(sources, 0, UsageLimits(memory=2)) == HORIZON_NS
    assert look_again_ns(sources, HORIZON_NS, UsageLimits(memory=2)) == far_s * S


def test_a_profile_uses_nothing_before_its_first_segment() -> None:
    """And its last amounts for ever."""
    sources = together((100 * S, [(5, 1, 2), (10, 3, 4)]), (0, []))
    assert [
        (exact_bytes(sources.memory, now_s * S), exact_bytes(sources.storage, now_s * S))
        for now_s in (104, 105, 999)
    ] == [(0, 0), (1, 2), (3, 4)]
