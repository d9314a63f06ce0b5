"""Topology domains: which nodes have the same value of a label.

Each label key that someone asks for gets a column that numbers its values. Numbers may be given
anew when nodes change, so nothing keeps one beyond the next change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from services.scheduler.core.columns import Int64s

if TYPE_CHECKING:
    from services.scheduler.core.snapshot import Snapshot

NO_DOMAIN = -1
_SPARE = 64


class Domains:
    """The domains of one label key, right after `sync`.

    of_row: int64[nodes], the domain of each row; NO_DOMAIN where the node lacks the label, or
    where the row is no node. `size` numbers are in use, from 0. `version` grows with each change.
    """

    __slots__ = ("_numbers", "_position", "_snapshot", "key", "of_row", "version")

    def __init__(self, key: str, snapshot: Snapshot) -> None:
        self.key = key
        self.of_row: Int64s = np.zeros(0, dtype=np.int64)
        self.version = 0
        self._snapshot = snapshot
        self._position = -1
        self._numbers: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Return how many numbers are in use."""
        return len(self._numbers)

    @property
    def unlabelled(self) -> int:
        """Return the number of the empty value, one that is not in use where no node has it."""
        return self._numbers.get("", len(self._numbers))

    def sync(self) -> None:
        """Read the nodes again that changed."""
        snapshot = self._snapshot
        log = snapshot.node_log
        if self._position == log.end:
            return
        capacity = snapshot.columns.capacity
        rows = log.since(self._position) if len(self.of_row) == capacity else None
        if rows is None or len(self._numbers) > 2 * snapshot.node_count + _SPARE:
            self._numbers.clear()
            rows = snapshot.columns.rows
            self.of_row = np.full(capacity, NO_DOMAIN, dtype=np.int64)
        self._position = log.end
        for row in rows.tolist():
            self.of_row[row] = self._number(row)
        self.version += 1

    def _number(self, row: int) -> int:
        if not self._snapshot.columns.alive[row]:
            return NO_DOMAIN
        value = self._snapshot.node(row).labels.get(self.key)
        if value is None:
            return NO_DOMAIN
        return self._numbers.setdefault(value, len(self._numbers))


class Topologies:
    """The domains of every label key that was asked for."""

    __slots__ = ("_by_key", "_snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._by_key: dict[str, Domains] = {}

    def domains(self, key: str) -> Domains:
        """Return the domains of a label key; `sync` them before use."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = Domains(key, self._snapshot)
        return found
