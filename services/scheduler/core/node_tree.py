"""The order in which upstream lists nodes: one of each zone in turn.

Zones stand in the order in which they appeared, nodes in their zone in the order in which they
came.

Source: kubernetes v1.34 pkg/scheduler/backend/cache/node_tree.go.
"""

from __future__ import annotations

from itertools import chain, zip_longest


class NodeTree:
    """Node names by zone."""

    __slots__ = ("_zone_of", "_zones")

    def __init__(self) -> None:
        self._zones: dict[str, dict[str, None]] = {}
        self._zone_of: dict[str, str] = {}

    def put(self, name: str, zone: str) -> None:
        """Add a node; one that changes its zone goes to the end of the new one."""
        if self._zone_of.get(name) == zone:
            return
        self.drop(name)
        self._zones.setdefault(zone, {})[name] = None
        self._zone_of[name] = zone

    def drop(self, name: str) -> None:
        """Remove a node, if it is there, and its zone with its last node."""
        zone = self._zone_of.pop(name, None)
        if zone is None:
            return
        del self._zones[zone][name]
        if not self._zones[zone]:
            del self._zones[zone]

    def names(self) -> list[str]:
        """Return all names, a node of each zone in turn until every zone is exhausted."""
        rounds = zip_longest(*self._zones.values())
        return [name for name in chain.from_iterable(rounds) if name is not None]
