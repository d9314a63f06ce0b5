"""What differs between the versions of the queue, chosen once for a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.queue.core.backoff import (
    AttemptBackoff,
    BackoffLimits,
    BackoffPolicy,
    PodBackoffMap,
)
from services.queue.core.incoming import SubQueue
from services.queue.core.pod import QueuedPod


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentTexts:
    """Upstream's words for a failed pod that is in a sub-queue already; {pod} is ns/name."""

    active: str
    backoff: str
    unschedulable: str

    def text(self, where: SubQueue, pod: QueuedPod) -> str:
        """Return the words for `pod` being in `where`."""
        words: str = getattr(self, where.value)
        return words.format(pod=f"{pod.namespace}/{pod.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMode:
    """One version's strategies, and how long a pod may stay unschedulable by default."""

    name: str
    max_unschedulable_ns: int
    backoff: Callable[[BackoffLimits], BackoffPolicy]
    present: PresentTexts


V1_16 = QueueMode(
    name="v1.16",
    max_unschedulable_ns=60_000_000_000,
    backoff=PodBackoffMap,
    present=PresentTexts(
        active="pod is already present in the activeQ",
        backoff="pod is already present in the backoffQ",
        unschedulable="pod is already present in unschedulableQ",
    ),
)
"""activeQ, podBackoffQ and unschedulable pods, with the PodBackoffMap."""

V1_20 = QueueMode(
    name="v1.20",
    max_unschedulable_ns=60_000_000_000,
    backoff=AttemptBackoff,
    present=PresentTexts(
        active="pod: {pod} is already present in the active queue",
        backoff="pod {pod} is already present in the backoff queue",
        unschedulable="pod: {pod} is already present in unschedulable queue",
    ),
)
"""The same, with backoff by the attempts of a stay."""
