"""What an exchange with the eviction service shows of itself in its span."""

from __future__ import annotations

from collections.abc import Iterable

from reprieve.eviction.v1alpha1 import eviction_service_pb2
from services.telemetry.span import Attribute

NODES_MAX = 20
"""How many nodes under pressure a span names."""
_HEAD = 3


def synchronize_attributes(
    answers: Iterable[eviction_service_pb2.StepAnswer],
) -> dict[str, Attribute]:
    """Return the thresholds met and each ranking's head, by node; nothing where none is met.

    Lists hold "NODE: ..." for the first NODES_MAX nodes; the count beside them is of all.
    """
    met = [answer for answer in answers if answer.result.thresholds_met]
    if not met:
        return {}
    thresholds, heads, evicted = [], [], []
    for answer in met[:NODES_MAX]:
        name, result = answer.node_name, answer.result
        thresholds += [f"{name}: {each.text}" for each in result.thresholds_met]
        head = [f"{each.pod.namespace}/{each.pod.name}" for each in result.ranking[:_HEAD]]
        if head:
            heads.append(f"{name}: {', '.join(head)}")
        evicted += [f"{name}: {each.pod.namespace}/{each.pod.name}" for each in result.evictions]
    return {
        "reprieve.nodes_with_thresholds_met": len(met),
        "reprieve.thresholds_met": thresholds,
        "reprieve.ranking_head": heads,
        "reprieve.evicted": evicted,
    }
