"""What follows from a node and the pods on it, kept from scan to scan.

Most nodes are the same as in the scan before, while the rules about their pods are the dearest part
of a scan. A value stands while the snapshot's stamp of its node is equal, and at most up to the
instant after which a rule that reads the time may say something else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

FOR_EVER_NS = 1 << 63
"""Later than any instant."""


class Timed(NamedTuple, Generic[T]):
    """A value, and the last instant at which it holds if nothing changes."""

    value: T
    until_ns: int


@dataclass(slots=True)
class PerNode(Generic[T]):
    """Values by node, of the nodes that this and the last scan asked for."""

    current: dict[str, tuple[Hashable, Timed[T]]] = field(default_factory=dict)
    old: dict[str, tuple[Hashable, Timed[T]]] = field(default_factory=dict)

    def get(self, name: str, key: Hashable, now_ns: int, compute: Callable[[], Timed[T]]) -> T:
        """Return a node's value; `key` has its stamp and all else that the value follows from."""
        entry = self.old.get(name)
        if entry is None or entry[0] != key or entry[1].until_ns < now_ns:
            entry = key, compute()
        self.current[name] = entry
        return entry[1].value

    def forget_old(self) -> None:
        """Forget the values that were not asked for since this was called before."""
        self.old, self.current = self.current, {}
