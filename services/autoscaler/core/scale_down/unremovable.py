"""The nodes that cannot go, with reasons: of this scan, and how long a failed simulation counts.

A node for which the simulation of its removal failed is not simulated again for a while.

Source: kubernetes/autoscaler 1.36 core/scaledown/unremovable/nodes.go.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from services.autoscaler.core.now import Now
from services.autoscaler.core.scale_down.reasons import Unremovable


@dataclass(slots=True)
class UnremovableNodes:
    """Reasons by node, and until when a failed simulation counts, by node."""

    reasons: dict[str, Unremovable] = field(default_factory=dict)
    until_ns: dict[str, int] = field(default_factory=dict)

    def begin_scan(self, nodes: Container[str], now: Now) -> None:
        """Forget the last scan's reasons, and simulations that are old or whose node is gone."""
        self.reasons = {}
        self.until_ns = {
            name: until_ns
            for name, until_ns in self.until_ns.items()
            if name in nodes and now.is_before(until_ns)
        }

    def add(self, node: str, unremovable: Unremovable, *, until_ns: int | None = None) -> None:
        """Note why a node cannot be removed; `until_ns`: do not simulate its removal before."""
        self.reasons[node] = unremovable
        if until_ns is not None:
            self.until_ns[node] = until_ns

    def is_recent(self, node: str) -> bool:
        """Return whether a failed simulation still counts."""
        return node in self.until_ns
