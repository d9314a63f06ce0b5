"""The drains of nodes in a run: time of the cordon, duration, and budgets that held it up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from reprieve.trace.v1beta1 import trace_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainedNode:
    """The drain of a node; times in ns.

    step: the last step, as in trace_pb2.NodeDrain. cordoned_ns: since the Unix epoch. took_ns: from
    the cordon until the last pod was gone or the drain failed; 0 before that. message: the budgets
    that the drain waits or waited for, or why it failed.
    """

    node: str
    step: str
    cordoned_ns: int
    took_ns: int = 0
    evicted: int = 0
    message: str = ""


@dataclass(slots=True)
class DrainedNodes:
    """Collects the drains of a run from its decisions."""

    _rows: list[DrainedNode] = field(default_factory=list)
    _last: dict[str, int] = field(default_factory=dict)

    def take(self, decision: trace_pb2.Decision) -> None:
        """Add a step of a node's drain."""
        node, drain = decision.observed.object.name, decision.observed.node_drain
        index = self._last.get(node)
        if index is None or drain.step == "Cordoned":
            index = self._last[node] = len(self._rows)
            self._rows.append(DrainedNode(node=node, step=drain.step, cordoned_ns=decision.time_ns))
        row = replace(self._rows[index], step=drain.step)
        if drain.step not in ("Cordoned", "Uncordoned"):
            is_over = drain.step != "Blocked"
            row = replace(
                row,
                took_ns=drain.elapsed_duration_ns if is_over else 0,
                evicted=drain.evicted,
                message=drain.message,
            )
        self._rows[index] = row

    def rows(self) -> tuple[DrainedNode, ...]:
        """Return the drains in the order in which the nodes were cordoned."""
        return tuple(self._rows)
