"""The pace at which the nodes of a zone are tainted once they have failed."""

from __future__ import annotations

import pytest

from replay.world.controllers.zones import Pace, ZoneState, period_ns, zone_state
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import S, World, create, make_node, update
from tests.unit.world.test_node_lives import FAIL, RECOVER, UNREACHABLE, action

NORMAL, PARTIAL, FULL = ZoneState.NORMAL, ZoneState.PARTIAL, ZoneState.FULL


@pytest.mark.parametrize(
    ("ready", "unready", "state"),
    [
        (5, 0, NORMAL),
        (1, 2, NORMAL),  # Two nodes are too few, though they are 67 %.
        (3, 3, NORMAL),  # 50 %
        (9, 11, PARTIAL),  # exactly 55 %
        (10, 11, NORMAL),  # 52 %
        (2, 3, PARTIAL),  # 60 %
        (0, 1, FULL),
        (0, 80, FULL),
    ],
)
def test_a_zone_is_disrupted_from_three_nodes_and_55_percent_on(
    ready: int, unready: int, state: ZoneState
) -> None:
    """And fully where no node is ready."""
    assert zone_state(ready, unready) is state


def test_a_disrupted_zone_is_tainted_slowly_or_not_at_all() -> None:
    """Up to 50 nodes it is small."""
    assert period_ns(NORMAL, 10) == period_ns(FULL, 1000) == 10 * S
    assert (period_ns(PARTIAL, 50), period_ns(PARTIAL, 51)) == (None, 100 * S)


def test_a_pace_that_is_swapped_begins_empty_unless_it_had_a_token() -> None:
    """A bucket that never fills has none."""
    pace = Pace()
    assert pace.due_ns(7 * S) == 7 * S
    pace.take(7 * S)
    assert pace.due_ns(8 * S) == 17 * S
    pace.swap(12 * S, 100 * S)
    assert pace.due_ns(12 * S) == 112 * S
    pace.swap(113 * S, 10 * S)
    assert pace.due_ns(113 * S) == 113 * S
    pace.swap(113 * S, None)
    assert pace.due_ns(200 * S) is None
    pace.swap(300 * S, 10 * S)
    assert pace.due_ns(300 * S) == 310 * S


def world_of(**zones: int) -> World:
    """Return a world with so many ready nodes in each zone, named a-0, a-1, b-0."""
    world = World()
    for zone, number in zones.items():
        for index in range(number):
            node = make_node(f"{zone}-{index}")
            node.metadata.labels["topology.kubernetes.io/zone"] = zone
            node.status.conditions.add(type="Ready", status="True")
            world.feed(0, create(node))
    return world


def fail(world: World, now_ns: int, *names: str) -> None:
    """Let nodes fall silent."""
    world.feed(now_ns, *(action(FAIL, name) for name in names))


def tainted_at(world: World) -> dict[str, int]:
    """Return when each node got its NoExecute taint, s."""
    return {
        name: taint.time_added.seconds
        for name, node in world.cluster.nodes.items()
        for taint in node.spec.taints
        if (taint.key, taint.effect) == (UNREACHABLE, "NoExecute")
    }


def notes(world: World) -> list[str]:
    """Return the notes about zones."""
    return [text for kind, text in world.journal.notes if kind == "zones"]


def test_failed_nodes_of_a_zone_are_tainted_ten_seconds_apart_zone_by_zone() -> None:
    """Silent at 0: Unknown at 50 s, the first of each zone at 55 s."""
    world = world_of(a=5, b=4)
    fail(world, 0, "a-0", "a-1", "b-3")
    world.run_until(500 * S)
    assert tainted_at(world) == {"a-0": 55, "a-1": 65, "b-3": 55}
    assert notes(world) == []


def test_a_zone_that_is_wholly_lost_is_tainted_at_the_usual_pace() -> None:
    """The other zone still has nodes."""
    world = world_of(a=4, b=1)
    fail(world, 0, "a-0", "a-1", "a-2", "a-3")
    world.run_until(500 * S)
    assert tainted_at(world) == {"a-0": 55, "a-1": 65, "a-2": 75, "a-3": 85}


def test_a_small_zone_that_is_mostly_lost_is_not_tainted_and_that_is_noted() -> None:
    """3 of 5 are 60 %; a fourth that recovers brings the pace back, with an empty bucket."""
    world = world_of(a=5, b=1)
    fail(world, 0, "a-0", "a-1", "a-2")
    world.run_until(500 * S)
    assert tainted_at(world) == {}
    (note,) = notes(world)
    assert note.startswith("3 of 5 nodes of zone a are not ready: the node lifecycle controller ev")
    world.feed(501 * S, action(RECOVER, "a-1"))
    world.run_until(800 * S)
    assert tainted_at(world) == {"a-0": 515, "a-2": 525}


def test_a_large_zone_that_is_mostly_lost_is_tainted_every_100_seconds() -> None:
    """29 of 51 nodes are 57 %; the bucket was full when the zone's state changed."""
    world = world_of(a=51, b=1)
    fail(world, 0, *(f"a-{index}" for index in range(29)))
    world.run_until(300 * S)
    assert tainted_at(world) == {"a-0": 55, "a-1": 155, "a-2": 255}


def test_where_all_zones_are_lost_the_taints_go_and_no_more_come() -> None:
    """a-0 is tainted at 55 s; the rest is Unknown at 150 s, when the taint is taken away.

    At 300 s b-0 is back: a-0 and a-1 are tainted at 310 s and 320 s.
    """
    world = world_of(a=2, b=1)
    fail(world, 0, "a-0")
    fail(world, 100 * S, "a-1", "b-0")
    world.run_until(149 * S)
    assert tainted_at(world) == {"a-0": 55}
    world.run_until(299 * S)
    assert tainted_at(world) == {}
    assert len(notes(world)) == 1
    world.feed(300 * S, action(RECOVER, "b-0"))
    world.run_until(1000 * S)
    assert tainted_at(world) == {"a-0": 310, "a-1": 320}


def test_a_node_may_be_left_out_of_its_zones_state() -> None:
    """With it 3 of 5 would be lost."""
    world = world_of(a=5, b=1)
    left_out = make_node("a-2")
    left_out.metadata.labels["topology.kubernetes.io/zone"] = "a"
    left_out.metadata.labels["node.kubernetes.io/exclude-disruption"] = ""
    world.feed(0, update(left_out))
    fail(world, 0, "a-0", "a-1", "a-2")
    world.run_until(500 * S)
    assert tainted_at(world) == {"a-0": 55, "a-1": 65, "a-2": 75}


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_taint_is_swapped_at_once_when_the_status_changes(status: str) -> None:
    """Whatever the pace: 4 of 5 nodes are not ready."""
    world = world_of(a=5, b=1)
    other = {"False": "Unknown", "Unknown": "False"}[status]
    keys = {"False": "node.kubernetes.io/not-ready", "Unknown": UNREACHABLE}
    records: list[trace_pb2.Record] = []
    for index in range(4):
        node = make_node(f"a-{index}")
        node.metadata.labels["topology.kubernetes.io/zone"] = "a"
        node.status.conditions.add(type="Ready", status=status)
        node.spec.taints.add(key=keys[other], effect="NoExecute")
        records.append(update(node))
    world.feed(S, *records)
    world.run_until(5 * S)
    for index in range(4):
        (key,) = [
            taint.key
            for taint in world.cluster.nodes[f"a-{index}"].spec.taints
            if taint.effect == "NoExecute"
        ]
        assert key == keys[status]
