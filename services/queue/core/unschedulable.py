"""Unschedulable pods: tried, refused, and waiting for an event or for a minute to pass.

Time never goes back, so entries stand in the order of their timestamps and those that
have stayed too long are at the front: a leftover flush costs what it moves, and so does
an assigned pod's event, which looks at pods with required affinity terms only.

Source: kubernetes v1.20 internal/queue/scheduling_queue.go, UnschedulablePodsMap,
flushUnschedulableQLeftover.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice

from services.queue.core.entry import Entry
from services.queue.core.pod import AssignedPod, PodKey


class UnschedulablePods:
    """The entries by key, oldest timestamp first."""

    __slots__ = ("_entries", "_newest_ns", "_with_affinity")

    def __init__(self) -> None:
        self._entries: OrderedDict[PodKey, Entry] = OrderedDict()
        self._with_affinity: dict[PodKey, Entry] = {}
        self._newest_ns = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: PodKey) -> bool:
        return key in self._entries

    def put(self, entry: Entry) -> None:
        """Add an entry whose timestamp is not before any other's."""
        key = entry.key
        assert key not in self._entries
        assert entry.timestamp_ns >= self._newest_ns
        self._newest_ns = entry.timestamp_ns
        self._entries[key] = entry
        if entry.pod.affinity_terms:
            self._with_affinity[key] = entry

    def replace(self, entry: Entry) -> None:
        """Put a newer version of a pod in the place of the one that is there."""
        key = entry.key
        assert self._entries[key].timestamp_ns == entry.timestamp_ns
        self._entries[key] = entry
        self._with_affinity.pop(key, None)
        if entry.pod.affinity_terms:
            self._with_affinity[key] = entry

    def get(self, key: PodKey) -> Entry | None:
        """Return the entry of `key`, None if there is none."""
        return self._entries.get(key)

    def remove(self, key: PodKey) -> Entry | None:
        """Take out and return the entry of `key`, None if there is none."""
        entry = self._entries.pop(key, None)
        if entry is not None and entry.pod.affinity_terms:
            del self._with_affinity[key]
        return entry

    def take_all(self) -> list[Entry]:
        """Take out every entry, oldest timestamp first."""
        taken = list(self._entries.values())
        self._entries.clear()
        self._with_affinity.clear()
        return taken

    def take_some(self, *, priority_at_most: int | None, all_but_uid: str) -> list[Entry]:
        """Take out the entries of at most that priority, None for any, but that pod's."""
        taken = [
            entry
            for entry in self._entries.values()
            if (priority_at_most is None or entry.pod.priority <= priority_at_most)
            and entry.pod.uid != all_but_uid
        ]
        for entry in taken:
            self.remove(entry.key)
        return taken

    def take_older(self, than_ns: int) -> list[Entry]:
        """Take out the entries whose timestamp is before `than_ns`, oldest first."""
        taken: list[Entry] = []
        while (oldest := self.oldest()) is not None and oldest.timestamp_ns < than_ns:
            self.remove(oldest.key)
            taken.append(oldest)
        return taken

    def take_awaiting(self, assigned: AssignedPod) -> list[Entry]:
        """Take out the entries with a required affinity term that `assigned` matches."""
        taken = [entry for entry in self._with_affinity.values() if entry.pod.awaits(assigned)]
        for entry in taken:
            self.remove(entry.key)
        return taken

    def oldest(self) -> Entry | None:
        """Return the entry with the least timestamp, None if there is none."""
        return next(iter(self._entries.values())) if self._entries else None

    def first(self, count: int) -> list[Entry]:
        """Return the first `count` entries, oldest timestamp first; fewer if there are fewer."""
        return list(islice(self._entries.values(), count))

    def entries(self) -> tuple[Entry, ...]:
        """Return every entry, oldest timestamp first."""
        return tuple(self._entries.values())
