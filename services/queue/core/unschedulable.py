"""Unschedulable pods: refused, and waiting for an event or for their time to be over.

Three indexes keep an operation's cost in proportion to what it moves. Entries stand in the
order of their timestamps, so that those that have stayed too long are in front; the few that
come with an older timestamp than one before them stand apart. Entries with one failure, and
one gate, form a group: an event asks a group once whether it may help. And an assigned pod's
event looks at pods with required affinity terms only.

Source: kubernetes v1.20 internal/queue/scheduling_queue.go, UnschedulablePodsMap,
flushUnschedulableQLeftover; v1.34 backend/queue/unschedulable_pods.go.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import chain, islice

from services.queue.core.queued_pod import AssignedPod, Entry, Failure, PodKey

Group = tuple[Failure | None, str]
"""What an event's verdict depends on before it is asked for each pod: failure and gate."""


class UnschedulablePods:
    """The entries by key, oldest timestamp first; gated ones apart."""

    __slots__ = ("_gated", "_groups", "_late", "_newest_ns", "_ordered", "_with_affinity")

    def __init__(self) -> None:
        self._ordered: OrderedDict[PodKey, Entry] = OrderedDict()
        self._late: dict[PodKey, Entry] = {}
        self._gated: dict[PodKey, Entry] = {}
        self._groups: dict[Group, dict[PodKey, Entry]] = {}
        self._with_affinity: dict[PodKey, Entry] = {}
        self._newest_ns = 0

    def __len__(self) -> int:
        return len(self._ordered) + len(self._late) + len(self._gated)

    def __contains__(self, key: PodKey) -> bool:
        return key in self._ordered or key in self._gated or key in self._late

    @property
    def gated(self) -> int:
        """How many of the pods a PreEnqueue plugin holds back."""
        return len(self._gated)

    def put(self, entry: Entry) -> None:
        """Add an entry of a pod that is not here."""
        key = entry.key
        assert key not in self
        if entry.gate:
            self._gated[key] = entry
        elif entry.timestamp_ns >= self._newest_ns:
            self._newest_ns = entry.timestamp_ns
            self._ordered[key] = entry
        else:
            self._late[key] = entry
        self._index(key, entry)

    def replace(self, entry: Entry) -> None:
        """Put a newer version of a stay in the place of the one that is there."""
        key = entry.key
        home = self._home(key)
        assert home is not None
        known = home[key]
        assert known.timestamp_ns == entry.timestamp_ns
        if bool(known.gate) != bool(entry.gate):
            self.remove(key)
            self.put(entry)
            return
        self._unindex(key, known)
        home[key] = entry
        self._index(key, entry)

    def get(self, key: PodKey) -> Entry | None:
        """Return the entry of `key`, None if there is none."""
        return self._ordered.get(key) or self._gated.get(key) or self._late.get(key)

    def remove(self, key: PodKey) -> Entry | None:
        """Take out and return the entry of `key`, None if there is none."""
        home = self._home(key)
        if home is None:
            return None
        entry = home.pop(key)
        self._unindex(key, entry)
        return entry

    def take_all(self) -> list[Entry]:
        """Take out every entry, oldest timestamp first."""
        taken = list(self.entries())
        for index in (self._ordered, self._late, self._gated, self._groups, self._with_affinity):
            index.clear()
        return taken

    def take_some(self, *, priority_at_most: int | None, all_but_uid: str) -> list[Entry]:
        """Take out the entries of at most that priority, None for any, but that pod's."""
        taken = [
            entry
            for entry in self.entries()
            if (priority_at_most is None or entry.pod.priority <= priority_at_most)
            and entry.pod.uid != all_but_uid
        ]
        for entry in taken:
            self.remove(entry.key)
        return taken

    def take_older(self, than_ns: int) -> list[Entry]:
        """Take out the entries whose timestamp is before `than_ns`, oldest first."""
        taken = self.older(than_ns)
        for entry in taken:
            self.remove(entry.key)
        return taken

    def older(self, than_ns: int) -> list[Entry]:
        """Return the entries whose timestamp is before `than_ns`, gated ones last."""
        found: list[Entry] = []
        for entry in self._ordered.values():
            if entry.timestamp_ns >= than_ns:
                break
            found.append(entry)
        apart = chain(self._late.values(), self._gated.values())
        return found + [entry for entry in apart if entry.timestamp_ns < than_ns]

    def take_awaiting(self, assigned: AssignedPod) -> list[Entry]:
        """Take out the entries with a required affinity term that `assigned` matches."""
        taken = self.awaiting(assigned)
        for entry in taken:
            self.remove(entry.key)
        return taken

    def awaiting(self, assigned: AssignedPod) -> list[Entry]:
        """Return the entries with a required affinity term that `assigned` matches."""
        return [entry for entry in self._with_affinity.values() if entry.pod.awaits(assigned)]

    def groups(self) -> list[tuple[Group, dict[PodKey, Entry]]]:
        """Return the entries by what an event asks first; they change with the pods."""
        return list(self._groups.items())

    def oldest(self) -> Entry | None:
        """Return the ungated entry with the least timestamp, None if there is none."""
        first = next(iter(self._ordered.values()), None)
        if not self._late:
            return first
        late = min(self._late.values(), key=lambda entry: (entry.timestamp_ns, entry.sequence))
        return late if first is None or late.timestamp_ns < first.timestamp_ns else first

    def first(self, count: int) -> list[Entry]:
        """Return the first `count` ungated entries, oldest timestamp first, late ones last."""
        return list(islice(chain(self._ordered.values(), self._late.values()), count))

    def first_gated(self, count: int) -> list[Entry]:
        """Return the first `count` gated entries, in the order in which they came."""
        return list(islice(self._gated.values(), count))

    def entries(self) -> tuple[Entry, ...]:
        """Return every entry: by timestamp, those that came late, then the gated ones."""
        return (*self._ordered.values(), *self._late.values(), *self._gated.values())

    def _home(self, key: PodKey) -> dict[PodKey, Entry] | None:
        for home in (self._ordered, self._gated, self._late):
            if key in home:
                return home
        return None

    def _index(self, key: PodKey, entry: Entry) -> None:
        group = (entry.failure, entry.gate)
        members = self._groups.get(group)
        if members is None:
            members = self._groups[group] = {}
        members[key] = entry
        if entry.pod.affinity_terms:
            self._with_affinity[key] = entry

    def _unindex(self, key: PodKey, entry: Entry) -> None:
        group = (entry.failure, entry.gate)
        members = self._groups[group]
        del members[key]
        if not members:
            del self._groups[group]
        if entry.pod.affinity_terms:
            del self._with_affinity[key]
