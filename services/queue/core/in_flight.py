"""Pods in flight, and the cluster events since each was popped.

A popped pod belongs to the owner that popped it. In a session with leases, it belongs to the owner
for a limited time, and any request of that owner renews the lease; when the lease expires, the pod
returns to the queue.

While a pod is in flight, it is in no sub-queue, so an event cannot move it. Therefore events are
recorded, and when the cycle has failed, the events since the pop decide the pod's sub-queue. Events
are numbered. Each pod in flight has the number of the first event after its pop, and events before
the oldest pod's number are dropped. A pod is recorded here at most once. UIDs are keys of an
OrderedDict, which finds the oldest one at once; a plain dict would skip all deleted entries first.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/active_queue.go, inFlightPods,
inFlightEvents.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from itertools import islice

from services.framework.cluster_event import ObjectEvent
from services.queue.core.queued_pod import InFlightPod, PopId, QueuedPod


class InFlightPods:
    """The pods in flight by scheduling cycle, oldest first."""

    __slots__ = ("_by_cycle", "_lease_ns")

    def __init__(self, lease_ns: int) -> None:
        self._by_cycle: dict[int, InFlightPod] = {}
        self._lease_ns = lease_ns

    @property
    def by_cycle(self) -> Mapping[int, InFlightPod]:
        """The pods by the scheduling cycle that their pop began."""
        return self._by_cycle

    def begin(self, popped: InFlightPod, now_ns: int) -> InFlightPod:
        """Add a pod whose cycle begins, and return it with its lease."""
        assert popped.cycle not in self._by_cycle, "a cycle has one pop"
        if self._lease_ns:
            popped = popped._replace(lease_until_ns=now_ns + self._lease_ns)
        self._by_cycle[popped.cycle] = popped
        return popped

    def end(self, pop_id: PopId) -> InFlightPod | None:
        """Remove and return the pod of that pop; None if the pop is not in flight."""
        popped = self._by_cycle.get(pop_id.cycle)
        if popped is None or popped.pod.uid != pop_id.uid:
            return None
        return self._by_cycle.pop(pop_id.cycle)

    def renew(self, owner: str, now_ns: int) -> int:
        """Restart the leases of the owner's pods at `now_ns`; return the number of these pods."""
        held = [popped for popped in self._by_cycle.values() if popped.owner == owner]
        if self._lease_ns:
            for popped in held:
                until_ns = now_ns + self._lease_ns
                self._by_cycle[popped.cycle] = popped._replace(lease_until_ns=until_ns)
        return len(held)

    def take_of(self, owner: str) -> list[InFlightPod]:
        """Remove and return the owner's pods, oldest first."""
        return self._take(popped for popped in self._by_cycle.values() if popped.owner == owner)

    def take_expired(self, now_ns: int) -> list[InFlightPod]:
        """Remove and return the pods whose lease has expired, oldest first."""
        if not self._lease_ns:
            return []
        return self._take(
            popped for popped in self._by_cycle.values() if popped.lease_until_ns <= now_ns
        )

    def _take(self, pods: Iterable[InFlightPod]) -> list[InFlightPod]:
        taken = sorted(pods, key=lambda popped: popped.cycle)
        for popped in taken:
            del self._by_cycle[popped.cycle]
        return taken

    def latest(self, uid: str) -> QueuedPod | None:
        """Return the version of a pod in flight, by its latest pop; None if it is not in flight."""
        held = (popped.pod for popped in reversed(self._by_cycle.values()))
        return next((pod for pod in held if pod.uid == uid), None)

    def set_gates(self, uid: str, gates: tuple[str, ...]) -> None:
        """Set the gates that a pod in flight has when its cycle fails."""
        for popped in tuple(self._by_cycle.values()):
            if popped.pod.uid == uid:
                self._put_version(popped, popped.pod._replace(gates=gates))

    def update(self, pod: QueuedPod) -> None:
        """Replace a pod that is in flight by a newer version."""
        for popped in tuple(self._by_cycle.values()):
            if popped.pod.uid == pod.uid:
                self._put_version(popped, pod)

    def _put_version(self, popped: InFlightPod, pod: QueuedPod) -> None:
        pod_info = popped.pod_info.with_pod(pod)
        self._by_cycle[popped.cycle] = popped._replace(pod_info=pod_info)

    def restore(self, pods: Iterable[InFlightPod]) -> None:
        """Set the pods in flight to those of a checkpoint."""
        self._by_cycle = {popped.cycle: popped for popped in pods}


class InFlightEvents:
    """The events since the oldest pop, in order, and the first event after each pod's pop."""

    __slots__ = ("_events", "_first", "_since")

    def __init__(self) -> None:
        self._events: deque[ObjectEvent] = deque()
        self._first = 0
        self._since: OrderedDict[str, int] = OrderedDict()

    def __contains__(self, uid: str) -> bool:
        return uid in self._since

    def __len__(self) -> int:
        return len(self._events)

    def begin(self, uid: str) -> None:
        """Record events for the pod from now on."""
        assert uid not in self._since, "a pod is in flight once"
        self._since[uid] = self._first + len(self._events)

    def record(self, object_event: ObjectEvent) -> None:
        """Record an event, if any pod is in flight."""
        if self._since:
            self._events.append(object_event)

    def record_for(self, uid: str, object_events: Iterable[ObjectEvent]) -> bool:
        """Record events if the pod is in flight; return whether it is."""
        if uid not in self._since:
            return False
        self._events.extend(object_events)
        return True

    def since_pop_of(self, uid: str) -> list[ObjectEvent] | None:
        """Return the events since the pod's pop, in order; None if it is not in flight."""
        since = self._since.get(uid)
        if since is None or not self._events:
            return None if since is None else []
        return list(islice(self._events, since - self._first, None))

    def end(self, uid: str) -> None:
        """Stop recording for the pod, and drop the events that no other pod needs."""
        if self._since.pop(uid, None) is None:
            return
        events = self._events
        if events:
            kept_from = next(iter(self._since.values()), self._first + len(events))
            while self._first < kept_from:
                events.popleft()
                self._first += 1

    def clear(self) -> None:
        """Remove all pods and all events."""
        self._since.clear()
        self._first += len(self._events)
        self._events.clear()

    def pods(self) -> tuple[tuple[str, int], ...]:
        """Return (UID, number of recorded events before its pop) of each pod in flight."""
        return tuple((uid, since - self._first) for uid, since in self._since.items())

    def events(self) -> tuple[ObjectEvent, ...]:
        """Return the recorded events in order."""
        return tuple(self._events)

    def restore(self, pods: Iterable[tuple[str, int]], events: Iterable[ObjectEvent]) -> None:
        """Set the state to what `pods` and `events` returned."""
        self._first = 0
        self._since = OrderedDict(pods)
        self._events = deque(events)
