"""A trace for the run, in wall time: the exchanges with the scheduler that tried pods.

replay
└── runRound               from a round's telling to its outcomes
    └── queueExchange      one of the scheduler's exchanges with its queue

A round that tried no pod is counted in the run's own span and timed among the latencies.
"""

from __future__ import annotations

from reprieve.scheduler.v1alpha1 import scheduler_pb2
from services.telemetry.sampling import Sampling
from services.telemetry.span import Attribute, Span, SpanContext, SpanSink

RUN = "replay"
RUN_ROUND = "runRound"


class RoundSpans:
    """Makes the spans of the rounds that are kept; the run's own is always kept."""

    def __init__(self, sink: SpanSink, sampling: Sampling, seed: int, began_ns: int) -> None:
        self._sink = sink
        self._sampling = sampling
        self._seed = seed
        self._began_ns = began_ns
        ids = Sampling(1.0).pick(seed, RUN)
        assert ids is not None  # noqa: S101 - a share of 1 keeps everything
        self._ids = ids
        self._root = SpanContext(ids.trace_id, ids.next_span_id())
        self._rounds = 0

    def exchanged(
        self,
        began_ns: int,
        taken_ns: int,
        round_: scheduler_pb2.Round,
        outcomes: scheduler_pb2.RoundOutcomes,
    ) -> None:
        """End the span of a round that was told at `began_ns`, ns since the Unix epoch.

        The shared steps are known by what they took only: they are shown one after the other from
        the round's beginning.
        """
        self._rounds += 1
        pods = len(outcomes.outcomes)
        if not pods:
            return
        if self._sampling.share < 1 and not self._sampling.pick(self._seed, str(self._rounds)):
            return
        attributes: dict[str, Attribute] = {
            "reprieve.at_ns": round_.at_ns,
            "reprieve.round": round_.round,
            "reprieve.events": len(round_.events),
            "reprieve.pods": pods,
            "reprieve.queue_exchanges": outcomes.queue_exchanges,
        }
        context = self._context()
        self._sink.end(
            Span(RUN_ROUND, context, self._root.span_id, began_ns, began_ns + taken_ns, attributes)
        )
        for phase in outcomes.phases:
            end_ns = began_ns + phase.wall_ns
            shared: dict[str, Attribute] = {"reprieve.pods": phase.pods}
            self._sink.end(
                Span(phase.name, self._context(), context.span_id, began_ns, end_ns, shared)
            )
            began_ns = end_ns

    def close(self, now_ns: int) -> None:
        """End the run's span at `now_ns`, ns since the Unix epoch."""
        attributes: dict[str, Attribute] = {"reprieve.rounds": self._rounds}
        self._sink.end(Span(RUN, self._root, "", self._began_ns, now_ns, attributes))

    def _context(self) -> SpanContext:
        return SpanContext(self._ids.trace_id, self._ids.next_span_id())
