"""The removals that the last scan found possible, for a scan that begins as that one did.

A removal follows from the cluster as the removals before it have left it. So where the cluster, the
nodes that pods may move to, budgets and controllers are what they were at the beginning, the first
removal that was possible is possible again, with the same places for its pods, and so is the second
after the first, as long as the same nodes are tried in the same order. Attempts that failed in
between have left no trace, and a hint leads each pod straight to its place of the last time.

Removals that are repeated are not carried out in the snapshot before another one has to be
simulated there (`show`). In most scans none has.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterPod
from services.autoscaler.core.scale_down.unneeded import RemovableNode
from services.autoscaler.core.simulator.hinting import HintingSimulator
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A node that can be removed, and the nodes to which its pods move.

    `until_ns` is the last instant at which the rules about its pods say the same.
    """

    removable: RemovableNode
    placed: tuple[tuple[ClusterPod, str], ...]
    until_ns: int

    @property
    def name(self) -> str:
        """Return the node's name."""
        return self.removable.node.name

    def leads_like(self, other: Removal) -> bool:
        """Return whether both removals leave the cluster the same."""
        return self.name == other.name and [
            (pod.pod.uid, pod.key, host) for pod, host in self.placed
        ] == [(pod.pod.uid, pod.key, host) for pod, host in other.placed]


@dataclass(slots=True)
class KeptRemovals:
    """The removals of the last scan and of this one.

    Of the last one's, `_followed` have been found again, None once this scan has left their path.
    Of this one's, the snapshot has the first `_shown`.
    """

    _beginning: Hashable = None
    _last: list[Removal] = field(default_factory=list)
    _current: list[Removal] = field(default_factory=list)
    _followed: int | None = None
    _shown: int = 0

    def begin(self, beginning: Hashable) -> None:
        """Begin a scan; `beginning` holds all inputs of its first removal except the time."""
        self._last, self._current, self._shown = self._current, [], 0
        self._followed = 0 if beginning == self._beginning else None
        self._beginning = beginning

    def repeated(self, name: str, hints: HintingSimulator, now: Now) -> RemovableNode | None:
        """Return the removal of a node if the last scan found it possible, and keep its hints."""
        removal = self._next()
        if removal is None or removal.name != name or removal.until_ns < now.ns:
            return None
        if any(hints.hint(pod) != host for pod, host in removal.placed):
            return None
        for pod, host in removal.placed:
            hints.keep(pod, host)
        now.hold_until(removal.until_ns)
        self._current.append(removal)
        self._followed = len(self._current)
        return removal.removable

    def show(self, snapshot: ClusterSnapshot) -> None:
        """Carry out the repeated removals in the snapshot."""
        for removal in self._current[self._shown :]:
            for pod, host in removal.placed:
                snapshot.put(pod, host)
            snapshot.remove(removal.name)
        self._shown = len(self._current)

    def add(self, removal: Removal) -> None:
        """Add a removal that was simulated in the snapshot."""
        known = self._next()
        self._current.append(removal)
        self._shown = len(self._current)
        is_same = known is not None and known.leads_like(removal)
        self._followed = len(self._current) if is_same else None

    def _next(self) -> Removal | None:
        if self._followed is None or self._followed == len(self._last):
            return None
        return self._last[self._followed]
