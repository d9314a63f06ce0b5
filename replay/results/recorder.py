"""Hands each round, its outcomes and its decisions to the parts that keep them.

The parts are the decision log, the history, the logs of objects and of extender responses, the
tally, the spans of pods and the spans of rounds. Wall time is measured here; nothing flows back
into the run.

Recording lags behind by one message to the scheduler: records are written after the next message
has been sent, while the scheduler works on it. Records keep their order, and wall times are taken
at once, not when the record is written. A record waits as messages and values that nobody modifies
any more. An error of recording is raised before the response to that message is read. `position`
writes all waiting records before a checkpoint.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns, time_ns
from types import TracebackType
from typing import Self

from replay.results.run.decision_log import steps_of
from replay.results.run.directory import RunDirectory
from replay.results.run.history import RoundLog
from replay.results.run.log_file import RunLog
from replay.results.spans.clocks import VirtualClock, WallClock
from replay.results.spans.pods import PodSpans, PodSpansState
from replay.results.spans.rounds import (
    NOTHING_FOUND,
    RUN_ROUND,
    MeasuredExchange,
    RoundSpans,
    RoundSpansState,
)
from replay.results.summary.tally import Tally
from replay.world.controllers.autoscaling.node_groups import Autoscaling
from replay.world.journal import FailedAttempt
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.growing_file import TimedFlush
from services.telemetry.service_spans import traceparent
from services.telemetry.span import (
    Attribute,
    Delivery,
    Sampling,
    SinkPosition,
    SpanContext,
    SpanSink,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderPosition:
    """The position of a recorder between two instants, from which a run can be continued.

    spans: the position of the span sink; None without spans. wall_ns: the wall time of the run so
    far. The other fields are live objects of the recorder: save them before recording goes on. The
    position holds no file, lock or function; the ResumePoint has the sizes of the run's files.
    """

    spans: SinkPosition | None
    wall_ns: int
    tally: Tally
    pod_spans: PodSpansState | None
    round_spans: RoundSpansState | None


_LATE_MAX = 4096
"""Records that may wait; a long phase without messages, in which kubelets act, would add many."""


class RunRecorder:
    """Records a replay: its Observer, and the receiver of its decisions.

    spans: the sink of spans; None for no spans. sampling: selects the pods that have spans.
    wall_clock: whether pods' spans show wall time in place of simulated time; then records do not
    wait. position: the position to continue from; the run's files must have the sizes of that
    position. wall_ns: the wall time of the run, set by `close`. tally: the counts of all records.
    As a context manager, the recorder flushes records to the files within a second, and closes the
    files if the run breaks off.
    """

    _late: deque[tuple[Callable[..., None], tuple[object, ...]]]
    _is_in_window: bool

    def __init__(
        self,
        run: RunDirectory,
        *,
        spans: SpanSink | None = None,
        sampling: Sampling | None = None,
        seed: int = 0,
        wall_clock: bool = False,
        position: RecorderPosition | None = None,
        autoscaling: Autoscaling | None = None,
    ) -> None:
        self.tally = Tally() if position is None else position.tally
        self.wall_ns = 0
        self._autoscaling = autoscaling
        self._run = run
        self._decision_log = run.decision_log()
        self._round_log = run.round_log()
        self._responses_log: RoundLog | None = None
        self._objects_log: RoundLog | None = None
        self._timed_flush = TimedFlush(self._flush)
        self._lags = not wall_clock
        self._late = deque()
        self._is_in_window = False
        began_ns = perf_counter_ns()
        self._began_ns = began_ns - (position.wall_ns if position is not None else 0)
        self._sent_ns: deque[int] = deque()
        self._exchange: MeasuredExchange | None = None
        self._within: SpanContext | None = None
        self._epoch_ns = time_ns() - began_ns
        self._sink = spans
        self._pod_spans: PodSpans | None = None
        self._round_spans: RoundSpans | None = None
        if spans is not None:
            began = self._epoch_ns + began_ns
            before = None if position is None else position.round_spans
            run_ns = before.began_ns if before is not None else began
            sampling = replace(sampling or Sampling(1.0), run_ns=run_ns if wall_clock else 0)
            clock = WallClock(time_ns) if wall_clock else VirtualClock()
            self._pod_spans = PodSpans(
                spans, sampling, seed, clock, None if position is None else position.pod_spans
            )
            self._round_spans = RoundSpans(spans, sampling, seed, began, before)

    def __enter__(self) -> Self:
        self._timed_flush.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.ExitStack() as stack:
            if kind is not None and self._sink is not None:
                stack.callback(self._sink.close)
            stack.callback(self._close_logs)
            self.catch_up()

    @property
    def traceparent(self) -> str:
        """Return the traceparent of the run's span, for the services' spans; "" without spans."""
        return traceparent(self._round_spans.root) if self._round_spans is not None else ""

    def round_sent(self, round_: scheduler_pb2.Round) -> None:
        """Record a round that was sent to the scheduler; write earlier records first."""
        is_message = not self._is_in_window
        self._record(self._round_sent, round_, perf_counter_ns() if is_message else None)
        if is_message:
            self.catch_up()

    def outcomes(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Record the outcomes of a round."""
        self._is_in_window = outcomes.window_continues
        self._record(self._outcomes, round_, outcomes, perf_counter_ns())

    def decided(self, decision: trace_pb2.Decision) -> None:
        """Record a decision."""
        self._record(self._decided, decision)

    def failed(self, attempts: Sequence[FailedAttempt]) -> None:
        """Record attempts that bound nothing, as decisions."""
        self._record(self._failed, attempts)

    def object_changed(self, event: scheduler_pb2.Event) -> None:
        """Record the change of an object that the scheduler does not receive in full."""
        self._record(self._object_changed, event)

    def measured(
        self,
        step: str,
        began_ns: int,
        wall_ns: int,
        nodes: int,
        attributes: Mapping[str, Attribute] = NOTHING_FOUND,
    ) -> None:
        """Record an exchange with the eviction service, begun at `began_ns` of perf_counter_ns.

        `attributes` are added to its span.
        """
        self._record(self._measured, step, began_ns, wall_ns, nodes, attributes)

    def _record(self, record: Callable[..., None], *happened: object) -> None:
        self._late.append((record, happened))
        if not self._lags or len(self._late) == _LATE_MAX:
            self.catch_up()

    def catch_up(self) -> None:
        """Write all waiting records. Raises OutputError and RunError."""
        while self._late:
            record, happened = self._late.popleft()
            record(*happened)

    def _round_sent(self, round_: scheduler_pb2.Round, sent_ns: int | None) -> None:
        """Record a round; `sent_ns` is None for a later round of a window, sent with its first."""
        if sent_ns is not None:
            self._sent_ns.append(sent_ns)
        self._round_log.write(round_)
        self.tally.sent(round_)
        for event in round_.events:
            self.tally.workloads.sent(event)
            if self._autoscaling is not None:
                self.tally.scaling.sent(event, self._autoscaling)
            match event.WhichOneof("event"):
                case "add":
                    if event.add.HasField("pod"):
                        self._pod_added(event)
                case "update":
                    if event.update.HasField("pod"):
                        self.tally.pod_updated(event.update.pod)
                case "remove":
                    self.tally.pod_removed(event.remove.uid)

    def _outcomes(
        self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes, received_ns: int
    ) -> None:
        if self._exchange is None:
            self._exchange = MeasuredExchange(round_)
            if self._round_spans is not None:
                self._within = self._round_spans.begun(outcomes)
        steps = steps_of(outcomes)
        self.tally.outcomes(outcomes, steps)
        self._exchange.add(round_, outcomes, steps)
        self._write_responses(round_, outcomes)
        if self._pod_spans is not None:
            for outcome in outcomes.outcomes:
                self._pod_spans.outcome(outcome, self._within)
        if not outcomes.window_continues:
            self._exchanged(self._exchange, received_ns)
            self._exchange = None

    def _exchanged(self, exchange: MeasuredExchange, received_ns: int) -> None:
        """Measure a message to the scheduler, whose last round was answered at `received_ns`."""
        sent_ns = self._sent_ns.popleft()
        taken_ns = received_ns - sent_ns
        self.tally.step(RUN_ROUND, taken_ns, exchange.pods)
        if self._round_spans is not None:
            began_ns = self._epoch_ns + sent_ns
            self._round_spans.ended(self._within, began_ns, taken_ns, exchange)

    def _decided(self, decision: trace_pb2.Decision) -> None:
        self._decision_log.write(decision)
        self.tally.decided(decision)
        if self._pod_spans is not None:
            self._pod_spans.decided(decision)

    def _failed(self, attempts: Sequence[FailedAttempt]) -> None:
        self._decision_log.write_failed(attempts)
        self.tally.failed(attempts)
        if self._pod_spans is not None:
            self._pod_spans.reached(attempts[-1].at_ns)

    def _object_changed(self, event: scheduler_pb2.Event) -> None:
        self.tally.workloads.object_changed(event)
        self._objects_log = self._objects_log or self._run.objects_log()
        self._objects_log.write(scheduler_pb2.Round(time_ns=event.time_ns, events=[event]))

    def _measured(
        self,
        step: str,
        began_ns: int,
        wall_ns: int,
        nodes: int,
        attributes: Mapping[str, Attribute],
    ) -> None:
        self.tally.step(step, wall_ns, nodes)
        if self._round_spans is not None:
            self._round_spans.stepped(step, self._epoch_ns + began_ns, wall_ns, nodes, attributes)

    def flush(self) -> None:
        """Write all records to the run's files. Raises OutputError and RunError."""
        self.catch_up()
        for log in self._logs():
            log.flush()

    def position(self, *, syncs: bool = True) -> RecorderPosition:
        """Write all records to the run's files, and return the position to continue the run from.

        syncs: whether to wait until the disk has the records. Call this between two instants, while
        no round waits for its outcomes. Raises OutputError and RunError.
        """
        self.catch_up()
        assert self._exchange is None  # noqa: S101 - no round waits for its outcomes
        assert not self._sent_ns  # noqa: S101 - the same
        for log in self._logs():
            if syncs:
                log.sync()
            else:
                log.flush()
        return RecorderPosition(
            spans=None if self._sink is None else self._sink.position(syncs=syncs),
            wall_ns=perf_counter_ns() - self._began_ns,
            tally=self.tally,
            pod_spans=None if self._pod_spans is None else self._pod_spans.state(),
            round_spans=None if self._round_spans is None else self._round_spans.state(),
        )

    def close(self) -> Delivery:
        """Close the files and the spans, and return how many spans were delivered.

        Sets `wall_ns`, which excludes the time of closing.
        """
        self.catch_up()
        self.wall_ns = perf_counter_ns() - self._began_ns
        self._close_logs()
        self._run.write_latencies({"wall_ns": self.wall_ns, "steps": self.tally.latencies()})
        return self._close_spans()

    def _write_responses(
        self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes
    ) -> None:
        """Record extender responses so that the run can be replayed without calling extenders."""
        answered = [outcome for outcome in outcomes.outcomes if outcome.extender_answers]
        if not answered:
            return
        self._responses_log = self._responses_log or self._run.responses_log()
        recorded = scheduler_pb2.Round(time_ns=round_.time_ns)
        for answering in answered:
            attempt = recorded.recorded.add(
                attempt=answering.attempts, answers=answering.extender_answers
            )
            attempt.pod.uid = answering.pop.uid
        self._responses_log.write(recorded)

    def _logs(self) -> list[RunLog]:
        logs = (self._decision_log, self._round_log, self._objects_log, self._responses_log)
        return [log for log in logs if log is not None]

    def _flush(self) -> None:
        """Flush records to the files; called from another thread. Raises OSError."""
        for log in self._logs():
            log.unwritten.flush()
        if self._sink is not None:
            self._sink.flush()

    def _close_logs(self) -> None:
        """Close every log, even if one of them cannot be written."""
        self._timed_flush.close()
        with contextlib.ExitStack() as stack:
            for log in reversed(self._logs()):
                stack.callback(log.close)

    def _pod_added(self, event: scheduler_pb2.Event) -> None:
        pod = event.add.pod
        self.tally.pod_added(pod)
        if self._pod_spans is not None:
            self._pod_spans.created(event.time_ns, pod)

    def _close_spans(self) -> Delivery:
        if self._sink is None:
            return Delivery()
        if self._pod_spans is not None:
            self._pod_spans.close(self.tally.last_ns)
        if self._round_spans is not None:
            self._round_spans.close(time_ns())
        return self._sink.close()
