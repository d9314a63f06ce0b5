"""Zones: how many of their nodes are ready, and at what pace the others get NoExecute taints.

The pods of many nodes that fail together are likely not lost: the control plane may be cut off
from them. So a zone's nodes are tainted one after the other, and hardly, or not at all, where most
of them have failed.

Source: kubernetes v1.34 pkg/controller/nodelifecycle/node_lifecycle_controller.go,
ComputeZoneState, setLimiterInZone, ReducedQPSFunc, HealthyQPSFunc;
scheduler/rate_limited_queue.go, SwapLimiter, EvictionRateLimiterBurst; kube-controller-manager's
--node-eviction-rate (0.1), --secondary-node-eviction-rate (0.01), --large-cluster-size-threshold
(50) and --unhealthy-zone-threshold (0.55).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from services.kube.time import SECOND_NS

PERIOD_NS = 10 * SECOND_NS
"""The time between two taints in a zone."""
SLOW_PERIOD_NS = 100 * SECOND_NS
"""The time between two taints in a large zone of which most nodes have failed."""
LARGE_ZONE = 50
"""The largest zone that counts as small."""
UNHEALTHY_PERCENT = 55
UNHEALTHY_NODES = 3


class ZoneState(Enum):
    """The state of a zone; the values are texts for users."""

    INITIAL = "not looked at yet"
    NORMAL = "normal"
    PARTIAL = "partially disrupted"
    FULL = "fully disrupted"


def zone_state(ready: int, unready: int) -> ZoneState:
    """Return the state of a zone with so many nodes; it has at least one."""
    if not ready:
        return ZoneState.FULL
    if unready >= UNHEALTHY_NODES and 100 * unready >= UNHEALTHY_PERCENT * (ready + unready):
        return ZoneState.PARTIAL
    return ZoneState.NORMAL


def period_ns(state: ZoneState, nodes: int) -> int | None:
    """Return the time between two taints in a zone of so many nodes, ns; None: there are none."""
    if state is not ZoneState.PARTIAL:
        return PERIOD_NS
    return SLOW_PERIOD_NS if nodes > LARGE_ZONE else None


@dataclass(slots=True)
class Pace:
    """A token bucket of one token; `next_ns` is when it has a token again.

    `period_ns` is the time in which it fills, None if it never does.
    """

    period_ns: int | None = PERIOD_NS
    next_ns: int = 0

    def due_ns(self, now_ns: int) -> int | None:
        """Return when the next token can be taken, ns; None for never."""
        return None if self.period_ns is None else max(now_ns, self.next_ns)

    def take(self, now_ns: int) -> None:
        """Take the token that is there."""
        assert self.period_ns is not None  # noqa: S101 - due_ns was a time
        self.next_ns = now_ns + self.period_ns

    def swap(self, now_ns: int, period_ns: int | None) -> None:
        """Change the period; the new bucket is empty unless the old one has a token."""
        if period_ns == self.period_ns:
            return
        has_token = self.due_ns(now_ns) == now_ns
        self.period_ns = period_ns
        if period_ns is not None:
            self.next_ns = now_ns if has_token else now_ns + period_ns


@dataclass(slots=True)
class Zone:
    """A zone: its state, its pace, and the failed nodes that wait for their taint, in order."""

    state: ZoneState = ZoneState.INITIAL
    pace: Pace = field(default_factory=Pace)
    waiting: dict[str, None] = field(default_factory=dict)
