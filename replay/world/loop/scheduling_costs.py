"""The simulated durations of scheduling cycles and bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from replay.world.journal import Mistake
from replay.world.state import WorldState
from replay.world.timeline import ActionKind
from reprieve.scheduler.v1beta1 import scheduler_pb2


class SchedulingCosts:
    """The simulated durations of cycles and bindings (models cycle-cost and bind-cost).

    With a cycle cost the scheduler takes one pod at a time: events during a cycle are sent at its
    end, which is also when its outcome is carried out. A binding is carried out a bind cost after
    its cycle, while the next cycles run, as upstream's bindings do. Decisions are then those of a
    scheduler of that speed, whatever the size of its batches.

    Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, ScheduleOne (cycles one after the other,
    each binding in a goroutine of its own).
    """

    _waiting: dict[str, scheduler_pb2.Outcome]
    _mistakes: dict[str, Mistake]
    _count: int
    _busy_until_ns: int

    def __init__(self, state: WorldState) -> None:
        self._timeline = state.timeline
        self._cycle_ns = state.models.cycle_cost_ns
        self._bind_ns = state.models.bind_cost_ns
        self._waiting = {}
        self._mistakes = {}
        self._count = 0
        self._busy_until_ns = 0

    @property
    def one_by_one(self) -> bool:
        """Return whether the scheduler takes one pod at a time."""
        return self._cycle_ns > 0

    def is_busy(self, now_ns: int) -> bool:
        """Return whether a scheduling cycle is running."""
        return now_ns < self._busy_until_ns

    def next_ns(self, wakeup_ns: int | None) -> int | None:
        """Return when the scheduler can be woken that requested `wakeup_ns` (None: no wakeup)."""
        return None if wakeup_ns is None else max(wakeup_ns, self._busy_until_ns)

    def ready(
        self,
        now_ns: int,
        outcomes: Iterable[scheduler_pb2.Outcome],
        mistake_of: Callable[[scheduler_pb2.Outcome], Mistake],
    ) -> list[scheduler_pb2.Outcome]:
        """Return a round's outcomes that are carried out now; plan the others.

        `mistake_of` returns the mistake of one that is planned.
        """
        now = []
        for outcome in outcomes:
            pods = len(outcome.refusals.uids) or 1
            self._busy_until_ns = max(now_ns, self._busy_until_ns) + self._cycle_ns * pods
            binds = outcome.HasField("bind")
            at_ns = self._busy_until_ns + (self._bind_ns if binds else 0)
            if self._cycle_ns:
                self._plan(self._busy_until_ns)
            if at_ns > now_ns:
                key = self._plan(at_ns)
                self._waiting[key], self._mistakes[key] = outcome, mistake_of(outcome)
            else:
                now.append(outcome)
        return now

    def node_of_binding(self, uid: str) -> str:
        """Return the node that a pod is being bound to, "" if no binding is under way."""
        for outcome in self._waiting.values():
            if outcome.pop.uid == uid and outcome.HasField("bind"):
                return outcome.bind.node_name
        return ""

    def due(self, key: str) -> tuple[list[scheduler_pb2.Outcome], Mistake]:
        """Return the outcome that is due with a CYCLE action, and its mistake.

        It returns no outcome if the action only ends a cycle.
        """
        outcome = self._waiting.pop(key, None)
        return ([] if outcome is None else [outcome]), self._mistakes.pop(key, Mistake.NONE)

    def forget(self, now_ns: int) -> None:
        """Forget the cycle and the bindings under way: the scheduler that made them is gone."""
        self._waiting.clear()
        self._mistakes.clear()
        self._busy_until_ns = min(self._busy_until_ns, now_ns)

    def _plan(self, at_ns: int) -> str:
        self._count += 1
        key = str(self._count)
        self._timeline.plan(at_ns, ActionKind.CYCLE, key)
        return key
