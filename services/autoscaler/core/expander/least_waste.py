"""least-waste: the group of whose CPU and memory least stays unused.

The shares of both are added, of the capacity of all nodes that would come.

Source: kubernetes/autoscaler 1.36 expander/waste/waste.go.
"""

from __future__ import annotations

from collections import Counter
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
    # Thousands of pods have a few specs.
    numbers = Counter(pod.pod.spec for pod in option.pods)
    requests = [(number, requested(spec)) for spec, number in numbers.items()]
    waste = 0.0
    for name, used in (
        (CPU, sum(number * cpu for number, (cpu, _) in requests)),
        (MEMORY, sum(number * memory for number, (_, memory) in requests)),
    ):
        available = capacity.get(name, 0) * option.node_count
        waste += (available - used) / available if available else float("-inf")
    return waste
