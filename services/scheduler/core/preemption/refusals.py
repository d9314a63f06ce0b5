"""The words for a preemption that finds no candidate.

Source: kubernetes v1.34 pkg/scheduler/framework/types.go, FitError.Error; framework/preemption/
preemption.go, Preempt; apimachinery pkg/util/errors/errors.go, aggregate.Error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from services.scheduler.core.preemption.victims import NonCandidate
from services.scheduler.core.status import Code

NOT_HELPFUL = "Preemption is not helpful for scheduling"


def not_helpful_text(node_count: int, refused: Sequence[NonCandidate]) -> str:
    """Count the reasons of `refused`; every other node counts as one that cannot be cured.

    Sorted as texts, number first, as upstream sorts them.
    """
    counts = Counter(reason for each in refused for reason in each.refusal.reasons)
    untried = node_count - len(refused)
    if untried > 0:
        counts[NOT_HELPFUL] += untried
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    text = f"0/{node_count} nodes are available:"
    return f"{text} {listed}." if listed else text


def errors_text(refused: Sequence[NonCandidate]) -> str:
    """Return the errors met in dry runs as one text, each said once; "" without any."""
    errors = [each.refusal for each in refused if each.refusal.code is Code.ERROR]
    texts = list(dict.fromkeys(error.message for error in errors))
    return f"[{', '.join(texts)}]" if len(texts) > 1 else "".join(texts)
