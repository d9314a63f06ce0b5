"""What a scheduling cycle and a binding cost in simulated time.

With a cost of cycles the scheduler takes one pod at a time: what happens while it is at it is told
when the cycle is over, and so is what the cycle decided. A binding is carried out a binding's cost
after its cycle, while the next cycles go on, as upstream's bindings do beside the cycles. Decisions
are then those of a scheduler that is as slow, whatever the size of its batches.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, ScheduleOne (cycles one after the other,
each binding in a goroutine of its own).
"""

from __future__ import annotations

from collections.abc import Iterable

from replay.world.models import Models
from replay.world.timeline import Kind, Timeline
from reprieve.scheduler.v1alpha1 import scheduler_pb2


class Costs:
    """Keeps outcomes until their time has come; without costs it is now."""

    def __init__(self, timeline: Timeline, models: Models) -> None:
        self._timeline = timeline
        self._cycle_ns = models.cycle_cost_ns
        self._bind_ns = models.bind_cost_ns
        self._held: dict[str, scheduler_pb2.Outcome] = {}
        self._count = 0
        self._busy_until_ns = 0

    @property
    def one_by_one(self) -> bool:
        """Tell whether the scheduler is to take one pod at a time."""
        return self._cycle_ns > 0

    def is_busy(self, now_ns: int) -> bool:
        """Tell whether the scheduler is still at a cycle."""
        return now_ns < self._busy_until_ns

    def next_ns(self, wakeup_ns: int) -> int | None:
        """Return when the scheduler can next be woken that asked for `wakeup_ns` (0: never)."""
        return max(wakeup_ns, self._busy_until_ns) if wakeup_ns else None

    def ready(
        self, now_ns: int, outcomes: Iterable[scheduler_pb2.Outcome]
    ) -> list[scheduler_pb2.Outcome]:
        """Return the outcomes of a round that are carried out now, and keep the others."""
        now = []
        for outcome in outcomes:
            pods = len(outcome.refusals.uids) or 1
            self._busy_until_ns = max(now_ns, self._busy_until_ns) + self._cycle_ns * pods
            binds = outcome.HasField("bind")
            at_ns = self._busy_until_ns + (self._bind_ns if binds else 0)
            if self._cycle_ns:
                self._plan(self._busy_until_ns)
            if at_ns > now_ns:
                self._held[self._plan(at_ns)] = outcome
            else:
                now.append(outcome)
        return now

    def due(self, key: str) -> list[scheduler_pb2.Outcome]:
        """Return the outcome that is carried out with an action, none for a cycle's end alone."""
        held = self._held.pop(key, None)
        return [] if held is None else [held]

    def _plan(self, at_ns: int) -> str:
        self._count += 1
        key = str(self._count)
        self._timeline.plan(at_ns, Kind.CYCLE, key)
        return key
