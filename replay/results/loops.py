"""Evict-reschedule loops: a controller's pods evicted one after the other, for one reason.

A kubelet evicts a pod, its controller makes another, that one comes to a node that will be short of
the same thing, and so on, for as long as nothing changes. Users have met it since
kubernetes/kubernetes#31778.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LEAST = 3
"""Evictions of one controller's pods by one signal, from which they count as a loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop: whose pods, by which signal, how many of them, on which nodes, and how often.

    `every_ns` is the mean simulated time from one eviction to the next.
    """

    owner: str
    signal: str
    evictions: int
    nodes: tuple[str, ...]
    every_ns: int


@dataclass(slots=True, kw_only=True)
class _Series:
    first_ns: int
    last_ns: int
    evictions: int = 0
    nodes: dict[str, None] = field(default_factory=dict)


class Loops:
    """Follows the evictions of controllers' pods."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._series: dict[tuple[str, str], _Series] = {}

    def pod_added(self, uid: str, owner: str) -> None:
        """Note a pod's controller, as "Kind namespace/name"."""
        self._owners[uid] = owner

    def pod_gone(self, uid: str) -> None:
        """Forget a pod."""
        self._owners.pop(uid, None)

    def evicted(self, at_ns: int, uid: str, signal: str, node_name: str) -> None:
        """Count an eviction, if the pod has a controller."""
        owner = self._owners.get(uid)
        if owner is None:
            return
        series = self._series.get((owner, signal))
        if series is None:
            series = self._series[owner, signal] = _Series(first_ns=at_ns, last_ns=at_ns)
        series.evictions += 1
        series.last_ns = at_ns
        series.nodes[node_name] = None

    def found(self) -> tuple[Loop, ...]:
        """Return the loops, those with most evictions first."""
        loops = [
            Loop(
                owner=owner,
                signal=signal,
                evictions=series.evictions,
                nodes=tuple(series.nodes),
                every_ns=(series.last_ns - series.first_ns) // (series.evictions - 1),
            )
            for (owner, signal), series in self._series.items()
            if series.evictions >= LEAST
        ]
        return tuple(sorted(loops, key=lambda each: (-each.evictions, each.owner, each.signal)))
