"""Pops in flight: handed out for a scheduling cycle, without an outcome yet.

A pop belongs to whoever asked for it. In a session with leases it belongs to that owner for
a while only, and any sign of life renews it; what runs out goes back into the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.queue.core.entry import PopId, Popped
from services.queue.core.pod import QueuedPod


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
