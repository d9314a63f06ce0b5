"""The order of nodes."""

from __future__ import annotations

from services.framework.snapshot.node_indexes import NodeTree


def test_zones_take_turns_until_all_are_exhausted() -> None:
    """One node of each zone, then the rest of the longer ones."""
    tree = NodeTree()
    for name, zone in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"), ("c1", "c")]:
        tree.put(name, zone)
    assert tree.names() == ["a1", "b1", "c1", "a2", "a3"]


def test_a_zone_goes_with_its_last_node_and_comes_back_as_the_last() -> None:
    """Zones stand in the order in which they appeared."""
    tree = NodeTree()
    tree.put("a1", "a")
    tree.put("b1", "b")
    tree.put("a1", "c")
    assert tree.names() == ["b1", "a1"]
    tree.drop("b1")
    tree.drop("never-there")
    tree.put("b1", "b")
    assert tree.names() == ["a1", "b1"]
