"""Indexes over nodes beside the columns: their order, taints, images and topology domains.

Upstream's node list takes one node of each zone in turn. Zones are ordered by their first
appearance, nodes within a zone by their arrival.

The nodes of a topology domain have the same value of a label. Each label key in use has a column
that numbers its values. The numbers may change whenever nodes change, so nothing may keep one
beyond the next change.

Source: kubernetes v1.34 pkg/scheduler/backend/cache/node_tree.go; cache.go, addNodeImageStates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest

import numpy as np

from services.framework.columns.columns import ChangeLog, Columns, Int64s
from services.kube.node import ContainerImage, Node
from services.kube.taints import Taint

Taints = tuple[Taint, ...]


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


class TaintClasses:
    """Numbers each sequence of taints that a node has had; 0 is the empty one.

    A toleration is tested once per class, not once a node.
    """

    __slots__ = ("_classes", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[tuple[tuple[str, str, str], ...], int] = {(): 0}
        self._classes: list[Taints] = [()]

    def of(self, taints: Taints) -> int:
        """Return the number of the class of nodes with these taints."""
        key = tuple((taint.key, taint.value, taint.effect.value) for taint in taints)
        number = self._numbers.setdefault(key, len(self._classes))
        if number == len(self._classes):
            self._classes.append(taints)
        return number

    def all(self) -> Sequence[Taints]:
        """Return the taints of each class, by number."""
        return self._classes


@dataclass(slots=True)
class ImageState:
    """One image name: what it takes on each node that holds it, in bytes by row."""

    rows: dict[int, int] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Return the size that counts."""
        return max(self.rows.values())


class Images:
    """Image states by name; `epoch` grows with every change, and with the number of nodes.

    It stays where no node holds any image.

    Where nodes report different sizes under one name, the largest counts. Upstream's cache keeps
    the size that came first, so that its scores follow from history; ours follow from the nodes
    alone, since a restored snapshot has to score like the one it was taken of.
    """

    __slots__ = ("_by_name", "epoch")

    def __init__(self) -> None:
        self._by_name: dict[str, ImageState] = {}
        self.epoch = 0

    def state(self, name: str) -> ImageState | None:
        """Return the state of an image, None where no node holds it."""
        return self._by_name.get(name)

    def by_name(self) -> Mapping[str, ImageState]:
        """Return every state."""
        return self._by_name

    def hold(self, row: int, images: Iterable[ContainerImage]) -> None:
        """Record that a node holds `images`."""
        for image in images:
            for name in image.names:
                rows = self._by_name.setdefault(name, ImageState()).rows
                rows[row] = max(rows.get(row, 0), image.size_bytes)
        self.epoch += bool(self._by_name)

    def release(self, row: int, images: Iterable[ContainerImage]) -> None:
        """Record that a node no longer holds `images`."""
        self.epoch += bool(self._by_name)
        for image in images:
            for name in image.names:
                self._drop(name, row)

    def _drop(self, name: str, row: int) -> None:
        state = self._by_name.get(name)
        if state is None:
            return
        state.rows.pop(row, None)
        if not state.rows:
            del self._by_name[name]


NO_DOMAIN = -1
_SPARE = 64


class Domains:
    """The domains of one label key, right after `sync`.

    of_row: int64[nodes], the domain of each row; NO_DOMAIN where the node lacks the label, or where
    the row is not a node. `size` numbers are in use, from 0. `version` grows with each change.
    """

    __slots__ = ("_columns", "_log", "_nodes", "_numbers", "_position", "key", "of_row", "version")

    def __init__(
        self, key: str, nodes: Sequence[Node | None], columns: Columns, log: ChangeLog
    ) -> None:
        self.key = key
        self.of_row: Int64s = np.zeros(0, dtype=np.int64)
        self.version = 0
        self._nodes = nodes
        self._columns = columns
        self._log = log
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
        columns, log = self._columns, self._log
        if self._position == log.end:
            return
        capacity = columns.capacity
        rows = log.since(self._position) if len(self.of_row) == capacity else None
        if rows is None or len(self._numbers) > 2 * len(columns.rows) + _SPARE:
            self._numbers.clear()
            rows = columns.rows
            self.of_row = np.full(capacity, NO_DOMAIN, dtype=np.int64)
        self._position = log.end
        for row in rows.tolist():
            self.of_row[row] = self._number(row)
        self.version += 1

    def _number(self, row: int) -> int:
        node = self._nodes[row]
        value = None if node is None else node.labels.get(self.key)
        if value is None:
            return NO_DOMAIN
        return self._numbers.setdefault(value, len(self._numbers))


class Topologies:
    """The domains of every label key that was requested."""

    __slots__ = ("_by_key", "_columns", "_log", "_nodes")

    def __init__(self, nodes: Sequence[Node | None], columns: Columns, log: ChangeLog) -> None:
        """Follow `nodes`, by row, whose changes `log` notes."""
        self._nodes = nodes
        self._columns = columns
        self._log = log
        self._by_key: dict[str, Domains] = {}

    def domains(self, key: str) -> Domains:
        """Return the domains of a label key; `sync` them before use."""
        domains = self._by_key.get(key)
        if domains is None:
            domains = self._by_key[key] = Domains(key, self._nodes, self._columns, self._log)
        return domains
