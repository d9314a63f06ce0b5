"""What a session chooses for its queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.queue.core.backoff import BackoffLimits
from services.queue.core.registrations import Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """The rules of a session; a mode is named as in mode.MODES.

    A leftover flush moves pods that have been unschedulable for longer than
    `max_unschedulable_ns`; None is the mode's own. `pop_from_backoff_q` and `queueing_hints`
    are feature gates of v1.34, and `registrations` what its hints go by. A pop is held for
    `lease_ns` unless its owner renews it; 0 is for ever.
    """

    mode: str = "v1.20"
    backoff: BackoffLimits = field(default_factory=BackoffLimits)
    max_unschedulable_ns: int | None = None
    pop_from_backoff_q: bool = True
    queueing_hints: bool = True
    registrations: tuple[Registration, ...] = ()
    lease_ns: int = 0
