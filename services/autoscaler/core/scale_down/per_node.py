"""What follows from a node and the pods on it, kept from scan to scan.

Most nodes are the same as in the scan before, while the rules about their pods are the dearest part
of a scan. A value stands while the snapshot's stamp of its node is equal, and at most up to the
instant after which a rule that reads the time may say something else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from services.autoscaler.core.now import Now

T = TypeVar("T")


class _Entry(NamedTuple, Generic[T]):
    """A value, what it follows from, and the last instant at which it holds."""

    key: Hashable
    value: T
    until_ns: int


@dataclass(slots=True)
class PerNode(Generic[T]):
    """Values by node, of the nodes that this and the last scan asked for."""

    current: dict[str, _Entry[T]] = field(default_factory=dict)
    old: dict[str, _Entry[T]] = field(default_factory=dict)

    def get(self, name: str, key: Hashable, now: Now, compute: Callable[[Now], T]) -> T:
        """Return a node's value; `key` has its stamp and all else that the value follows from.

        `compute` asks the instant that it is given, not `now`.
        """
        entry = self.old.get(name)
        if entry is None or entry.key != key or entry.until_ns < now.ns:
            asked = Now(now.ns)
            entry = _Entry(key, compute(asked), asked.until_ns)
        now.hold_until(entry.until_ns)
        self.current[name] = entry
        return entry.value

    def forget_old(self) -> None:
        """Forget the values that were not asked for since this was called before."""
        self.old, self.current = self.current, {}
