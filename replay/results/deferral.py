"""Recording what a round brought while the services are at the next one.

A round is told as soon as the last one was carried out; what there is to write down and to count of
the last one is done then, when the replay would only wait. It is done in its order, so that a run's
files are the same; and it is never more than what one round brought.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter_ns

from replay.results.recorder import Recorder
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from reprieve.trace.v1alpha1 import trace_pb2
from services.telemetry.span import Attribute


class Deferral:
    """Stands between a replay and its recorder, as Observer and as Sink.

    Whoever wants the recorder to know of everything calls `catch_up` first, also where a run breaks
    off.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._waiting: list[Callable[[], None]] = []

    def round_told(self, round_: scheduler_pb2.Round) -> None:
        """Record what waits, and then the round."""
        told_ns = perf_counter_ns()
        self.catch_up()
        self._recorder.round_told(round_, told_ns)

    def outcomes(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Record what the scheduler answered later, but when it did."""
        answered_ns = perf_counter_ns()
        self._waiting.append(partial(self._recorder.outcomes, round_, outcomes, answered_ns))

    def decided(self, decision: trace_pb2.Decision) -> None:
        """Record a decision later."""
        self._waiting.append(partial(self._recorder.decided, decision))

    def measured(
        self, step: str, began_ns: int, wall_ns: int, nodes: int, found: Mapping[str, Attribute]
    ) -> None:
        """Record an exchange of evictions later."""
        record = self._recorder.measured
        self._waiting.append(partial(record, step, began_ns, wall_ns, nodes, found))

    def catch_up(self) -> None:
        """Record all that waits."""
        waiting, self._waiting = self._waiting, []
        for record in waiting:
            record()
