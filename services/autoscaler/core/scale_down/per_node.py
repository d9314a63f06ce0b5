"""Caches values computed from a node and its pods across the scans of an autoscaler.

Most nodes are the same as in the scan before, and the rules about their pods take most of a scan's
time. A value is valid while the snapshot's stamp of its node is equal, and at most until the time
after which a rule that depends on the time may have another result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from services.autoscaler.core.now import Now

T = TypeVar("T")


class _Entry(NamedTuple, Generic[T]):
    """A cached value, its key, and the last time at which it is valid."""

    key: Hashable
    value: T
    until_ns: int


@dataclass(slots=True)
class PerNode(Generic[T]):
    """Cached values by node, of the nodes that were read in this scan and in the last one."""

    current: dict[str, _Entry[T]] = field(default_factory=dict)
    old: dict[str, _Entry[T]] = field(default_factory=dict)

    def get(self, name: str, key: Hashable, now: Now, compute: Callable[[Now], T]) -> T:
        """Return a node's value; `key` holds its stamp and every other input of the value.

        `compute` must read the time from its argument, not from `now`.
        """
        entry = self.old.get(name)
        if entry is None or entry.key != key or entry.until_ns < now.ns:
            asked = Now(now.ns)
            entry = _Entry(key, compute(asked), asked.until_ns)
        now.hold_until(entry.until_ns)
        self.current[name] = entry
        return entry.value

    def forget_old(self) -> None:
        """Drop the values that were not read since the last call."""
        self.old, self.current = self.current, {}
