"""Pods in flight, and the cluster events since each was popped.

A pop belongs to whoever asked for it. In a session with leases it belongs to that owner for
a while only, and any sign of life renews it; what runs out goes back into the queue.

What has happened while pods are in flight.

A pod that comes back refused is judged by the events since its pop, for it may have missed
what would have moved it. Events are numbered; a pop remembers the number of the next one, and
what lies before the oldest pop is forgotten. A pod is in flight once. Pods stand in an ordered
dict: the oldest is found at once, where a dict would pass over all that have left before it.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/active_queue.go, inFlightPods,
inFlightEvents.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from itertools import islice

from services.queue.core.cluster_event import Happening
from services.queue.core.queued_pod import PopId, Popped, QueuedPod


class Pops:
    """The pops in flight by cycle, oldest first."""

    __slots__ = ("_by_cycle", "_lease_ns")

    def __init__(self, lease_ns: int) -> None:
        self._by_cycle: dict[int, Popped] = {}
        self._lease_ns = lease_ns

    @property
    def by_cycle(self) -> Mapping[int, Popped]:
        """The pops by their scheduling cycle."""
        return self._by_cycle

    def begin(self, popped: Popped, now_ns: int) -> Popped:
        """Hand out a pop; its cycle has none yet."""
        assert popped.cycle not in self._by_cycle, "a cycle has one pop"
        if self._lease_ns:
            popped = popped._replace(lease_until_ns=now_ns + self._lease_ns)
        self._by_cycle[popped.cycle] = popped
        return popped

    def end(self, pop_id: PopId) -> Popped | None:
        """Take the pop out; None if no such pop is in flight."""
        popped = self._by_cycle.get(pop_id.cycle)
        if popped is None or popped.pod.uid != pop_id.uid:
            return None
        return self._by_cycle.pop(pop_id.cycle)

    def renew(self, owner: str, now_ns: int) -> int:
        """Let the owner's pops run for another lease; return how many it has."""
        held = [popped for popped in self._by_cycle.values() if popped.owner == owner]
        if self._lease_ns:
            for popped in held:
                until_ns = now_ns + self._lease_ns
                self._by_cycle[popped.cycle] = popped._replace(lease_until_ns=until_ns)
        return len(held)

    def take_of(self, owner: str) -> list[Popped]:
        """Take out the owner's pops, oldest first."""
        return self._take(popped for popped in self._by_cycle.values() if popped.owner == owner)

    def take_expired(self, now_ns: int) -> list[Popped]:
        """Take out the pops whose lease has run out, oldest first."""
        if not self._lease_ns:
            return []
        return self._take(
            popped for popped in self._by_cycle.values() if popped.lease_until_ns <= now_ns
        )

    def latest(self, uid: str) -> QueuedPod | None:
        """Return the pod as it was when it was last popped, or renewed since; None if it is not."""
        held = (popped.pod for popped in reversed(self._by_cycle.values()))
        return next((pod for pod in held if pod.uid == uid), None)

    def hold(self, uid: str, gates: tuple[str, ...]) -> None:
        """Note which gates hold a pod that is in flight, for when it comes back."""
        for cycle, popped in self._by_cycle.items():
            pod = popped.pod
            if pod.uid == uid:
                entry = popped.entry.with_pod(pod._replace(gates=gates))
                self._by_cycle[cycle] = popped._replace(entry=entry)

    def renew_pod(self, pod: QueuedPod) -> None:
        """Put a newer version of a pod that is in flight into its pop."""
        for cycle, popped in self._by_cycle.items():
            if popped.pod.uid == pod.uid:
                self._by_cycle[cycle] = popped._replace(entry=popped.entry.with_pod(pod))

    def restore(self, pops: Iterable[Popped]) -> None:
        """Take over pops in flight."""
        self._by_cycle = {popped.cycle: popped for popped in pops}

    def _take(self, pops: Iterable[Popped]) -> list[Popped]:
        taken = sorted(pops, key=lambda popped: popped.cycle)
        for popped in taken:
            del self._by_cycle[popped.cycle]
        return taken


class InFlightEvents:
    """Events in order, and since which of them each pod is in flight, by UID."""

    __slots__ = ("_events", "_first", "_since")

    def __init__(self) -> None:
        self._events: deque[Happening] = deque()
        self._first = 0
        self._since: OrderedDict[str, int] = OrderedDict()

    def __contains__(self, uid: str) -> bool:
        return uid in self._since

    def begin(self, uid: str) -> None:
        """Note that the pod is in flight from now on."""
        assert uid not in self._since, "a pod is in flight once"
        self._since[uid] = self._first + len(self._events)

    def note(self, happening: Happening) -> None:
        """Remember an event, if any pod is in flight."""
        if self._since:
            self._events.append(happening)

    def note_for(self, uid: str, happenings: Iterable[Happening]) -> bool:
        """Remember events if that pod is in flight; tell whether it is."""
        if uid not in self._since:
            return False
        self._events.extend(happenings)
        return True

    def since_pop_of(self, uid: str) -> list[Happening] | None:
        """Return the events since the pod's pop, in order; None if it is not in flight."""
        since = self._since.get(uid)
        if since is None or not self._events:
            return None if since is None else []
        return list(islice(self._events, since - self._first, None))

    def end(self, uid: str) -> None:
        """Note that the pod is no longer in flight, and forget what only it had to know."""
        if self._since.pop(uid, None) is None:
            return
        events = self._events
        if events:
            kept_from = next(iter(self._since.values()), self._first + len(events))
            while self._first < kept_from:
                events.popleft()
                self._first += 1

    def clear(self) -> None:
        """Forget all pods, and so all events."""
        self._since.clear()
        self._first += len(self._events)
        self._events.clear()

    def pods(self) -> tuple[tuple[str, int], ...]:
        """Return each pod in flight and how many of the remembered events came before it."""
        return tuple((uid, since - self._first) for uid, since in self._since.items())

    def events(self) -> tuple[Happening, ...]:
        """Return the remembered events in order."""
        return tuple(self._events)

    def restore(self, pods: Iterable[tuple[str, int]], events: Iterable[Happening]) -> None:
        """Take over what `pods` and `events` returned."""
        self._first = 0
        self._since = OrderedDict(pods)
        self._events = deque(events)
