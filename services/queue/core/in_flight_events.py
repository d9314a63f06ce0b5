"""What has happened while pods are in flight.

A pod that comes back refused is judged by the events since its pop, for it may have missed
what would have moved it. Events are numbered; a pop remembers the number of the next one, and
what lies before the oldest pop is forgotten. A pod is in flight once. Pods stand in an ordered
dict: the oldest is found at once, where a dict would pass over all that have left before it.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/active_queue.go, inFlightPods,
inFlightEvents.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import islice

from services.queue.core.cluster_event import Happening


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
