"""Eviction loops: a controller replaces an evicted pod, and the replacement is evicted, too."""

from __future__ import annotations

from dataclasses import dataclass, field

LOOP_EVICTIONS_MIN = 3
"""The number of evictions of one controller's pods, by one signal, from which they are a loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionLoop:
    """An eviction loop: the controller, the signal, the evictions and their nodes.

    `every_ns` is the mean simulated time from one moment with evictions to the next.
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
    moments: int = 0
    nodes: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class EvictionLoops:
    """Finds eviction loops: a controller's pods evicted one after the other, for one signal.

    In a loop, a kubelet evicts a pod, the pod's controller creates another, and that pod is bound
    to a node that will run short of the same resource, and so on, until something changes. Pods
    evicted at the same moment, for example because a leak began on several nodes at once, are not a
    loop: none of them replaces another.
    Source: kubernetes/kubernetes#31778.
    """

    _owners: dict[str, str] = field(default_factory=dict)
    _series: dict[tuple[str, str], _Series] = field(default_factory=dict)

    def pod_added(self, uid: str, owner: str) -> None:
        """Note a pod's controller, as "Kind namespace/name"."""
        self._owners[uid] = owner

    def pod_removed(self, uid: str) -> None:
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
        series.moments += not series.moments or at_ns != series.last_ns
        series.last_ns = at_ns
        series.nodes[node_name] = None

    def found(self) -> tuple[EvictionLoop, ...]:
        """Return the loops; the loop with the most evictions comes first."""
        loops = [
            EvictionLoop(
                owner=owner,
                signal=signal,
                evictions=series.evictions,
                nodes=tuple(series.nodes),
                every_ns=(series.last_ns - series.first_ns) // (series.moments - 1),
            )
            for (owner, signal), series in self._series.items()
            if series.moments >= LOOP_EVICTIONS_MIN
        ]
        return tuple(sorted(loops, key=lambda loop: (-loop.evictions, loop.owner, loop.signal)))
