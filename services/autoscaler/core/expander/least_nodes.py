"""least-nodes: the group that needs fewest nodes.

Source: kubernetes/autoscaler 1.36 expander/leastnodes/leastnodes.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.autoscaler.core.expander.options import ExpanderContext, ExpansionOption


def best(options: Sequence[ExpansionOption], context: ExpanderContext) -> list[ExpansionOption]:
    """Return the options with fewest nodes, but at least one."""
    del context
    least = min((option.node_count for option in options if option.node_count), default=0)
    return [option for option in options if option.node_count and option.node_count == least]
