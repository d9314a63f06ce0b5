"""least-waste: the group of whose CPU and memory least stays unused.

The shares of both are added, of the capacity of all nodes that would come.

Source: kubernetes/autoscaler 1.36 expander/waste/waste.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.autoscaler.core.expander.options import ExpanderContext, ExpansionOption, requested
from services.kube.requests import CPU, MEMORY


def best(options: Sequence[ExpansionOption], context: ExpanderContext) -> list[ExpansionOption]:
    """Return the options that waste least."""
    del context
    wastes = [_waste(option) for option in options]
    return [option for option, waste in zip(options, wastes, strict=True) if waste == min(wastes)]


def _waste(option: ExpansionOption) -> float:
    capacity = option.template.node.node.capacity
    requests = [requested(pod) for pod in option.pods]
    waste = 0.0
    for name, used in (
        (CPU, sum(cpu for cpu, _ in requests)),
        (MEMORY, sum(m for _, m in requests)),
    ):
        available = capacity.get(name, 0) * option.node_count
        waste += (available - used) / available if available else float("-inf")
    return waste
