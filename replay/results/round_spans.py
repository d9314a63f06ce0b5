"""A trace for the run, in wall time: the exchanges with the services.

    replay
    ├── runRound                 from a round's telling to its outcomes
    │   ├── queueExchange        one of the scheduler's exchanges with its queue
    │   └── schedulingCycle      all cycles of the round, with their number of pods
    │       ├── RunFilterPlugins
    │       └── RunScorePlugins, RunPostFilterPlugins, ...
    └── synchronize              an exchange with the eviction service

A step that many pods share is one span with their count. The cycles of the pods' own traces, which
run in virtual time, are linked to the runRound that they were part of. A round that tried no pod is
counted in the run's own span and timed among the latencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from replay.results.attempts import CYCLE, Steps, pods_of
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from services.telemetry.sampling import Sampling
from services.telemetry.span import Attribute, Span, SpanContext, SpanSink

RUN = "replay"
RUN_ROUND = "runRound"
NOTHING_FOUND: Mapping[str, Attribute] = MappingProxyType({})


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

    @property
    def root(self) -> SpanContext:
        """Return the context of the run's own span."""
        return self._root

    def exchanged(
        self,
        began_ns: int,
        taken_ns: int,
        round_: scheduler_pb2.Round,
        outcomes: scheduler_pb2.RoundOutcomes,
        steps: Steps,
    ) -> SpanContext | None:
        """End the spans of a round that was told at `began_ns`, ns since the Unix epoch.

        `steps` are those of its cycles. They are known by what they took only: they are shown one
        after the other from the round's beginning. Returns the round's context, None where it has
        no span.
        """
        self._rounds += 1
        pods = pods_of(outcomes)
        if not pods:
            return None
        if self._sampling.share < 1 and not self._sampling.pick(self._seed, str(self._rounds)):
            return None
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
            self._step(phase.name, context, began_ns, phase.wall_ns, phase.pods)
            began_ns += phase.wall_ns
        self._cycles(context, began_ns, steps)
        return context

    def stepped(
        self,
        name: str,
        began_ns: int,
        taken_ns: int,
        nodes: int,
        found: Mapping[str, Attribute] = NOTHING_FOUND,
    ) -> None:
        """End the span of an exchange with the eviction service, which shows what it `found`."""
        attributes: dict[str, Attribute] = {"reprieve.nodes": nodes, **found}
        end_ns = began_ns + taken_ns
        self._sink.end(
            Span(name, self._context(), self._root.span_id, began_ns, end_ns, attributes)
        )

    def _cycles(self, parent: SpanContext, began_ns: int, steps: Steps) -> None:
        """End one span for all cycles of a round, and one for each of their steps."""
        if CYCLE not in steps:
            return
        cycle = self._step(CYCLE, parent, began_ns, sum(steps[CYCLE]), len(steps[CYCLE]))
        for name, walls_ns in steps.items():
            if name != CYCLE:
                taken_ns = sum(walls_ns)
                self._step(name, cycle, began_ns, taken_ns, len(walls_ns))
                began_ns += taken_ns

    def _step(
        self, name: str, parent: SpanContext, began_ns: int, taken_ns: int, pods: int
    ) -> SpanContext:
        context = self._context()
        attributes: dict[str, Attribute] = {"reprieve.pods": pods}
        end_ns = began_ns + taken_ns
        self._sink.end(Span(name, context, parent.span_id, began_ns, end_ns, attributes))
        return context

    def close(self, now_ns: int) -> None:
        """End the run's span at `now_ns`, ns since the Unix epoch."""
        attributes: dict[str, Attribute] = {"reprieve.rounds": self._rounds}
        self._sink.end(Span(RUN, self._root, "", self._began_ns, now_ns, attributes))

    def _context(self) -> SpanContext:
        return SpanContext(self._ids.trace_id, self._ids.next_span_id())
