"""The words for a preemption that finds no candidate.

Source: kubernetes v1.34 pkg/scheduler/framework/types.go, FitError.Error; framework/preemption/
preemption.go, Preempt; apimachinery pkg/util/errors/errors.go, aggregate.Error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from services.scheduler.core.status import Code, Status

NOT_HELPFUL = "Preemption is not helpful for scheduling"


def not_helpful_text(node_count: int, refused: Sequence[tuple[Status, int]]) -> str:
    """Count the reasons of `refused`, each with its number of nodes.

    Every other node counts as one that cannot be cured. Sorted as texts, number first, as
    upstream sorts them.
    """
    counts: Counter[str] = Counter()
    for status, nodes in refused:
        for reason in status.reasons:
            counts[reason] += nodes
    untried = node_count - sum(nodes for _, nodes in refused)
    if untried > 0:
        counts[NOT_HELPFUL] += untried
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    text = f"0/{node_count} nodes are available:"
    return f"{text} {listed}." if listed else text


def errors_text(refused: Sequence[tuple[Status, int]]) -> str:
    """Return the errors met in dry runs as one text, each said once; "" without any."""
    errors = [status for status, _ in refused if status.code is Code.ERROR]
    texts = list(dict.fromkeys(error.message for error in errors))
    return f"[{', '.join(texts)}]" if len(texts) > 1 else "".join(texts)
