"""The run's trace, in wall time: the exchanges with the services.

    replay
    ├── runRound                 from a message to the scheduler to its outcomes, with the
    │   │                        number of rounds in it
    │   ├── queueExchange        one of the scheduler's exchanges with its queue
    │   └── schedulingCycle      all cycles of these rounds, with their number of pods
    │       ├── RunFilterPlugins
    │       └── RunScorePlugins, RunPostFilterPlugins, ...
    └── synchronize              an exchange with the eviction service

A step that many pods share is one span with the number of pods. The cycles in the pods' traces,
which run in simulated time, are linked to the runRound that they belong to. A round without an
attempt has no span; the run's span and the latencies count it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from replay.results.run.decision_log import CYCLE, Steps, pods_of
from reprieve.eviction.v1beta1 import eviction_service_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from services.telemetry.span import Attribute, Sampling, Span, SpanContext, SpanSink, TraceIds

RUN = "replay"
RUN_ROUND = "runRound"
NOTHING_FOUND: Mapping[str, Attribute] = MappingProxyType({})
NODES_MAX = 20
"""Limit for the nodes under pressure that a span names."""
_HEAD = 3


class MeasuredExchange:
    """A message to the scheduler: its `first` round, and the rounds of the same window."""

    def __init__(self, first: scheduler_pb2.Round) -> None:
        self.first = first
        self.rounds = 0
        self.events = 0
        self.pods = 0
        self.queue_exchanges = 0
        self.phases: list[session_pb2.Phase] = []
        self.steps: dict[str, list[int]] = {}

    def add(
        self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes, steps: Steps
    ) -> None:
        """Count a round and its outcomes; `steps` are the wall times of its cycles."""
        self.rounds += 1
        self.events += len(round_.events)
        self.pods += pods_of(outcomes)
        self.queue_exchanges += outcomes.queue_exchanges
        self.phases += outcomes.phases
        for name, walls_ns in steps.items():
            self.steps.setdefault(name, []).extend(walls_ns)


@dataclass(slots=True, kw_only=True)
class RoundSpansState:
    """The ids and counts from which a resumed run continues its spans; updated as spans end."""

    ids: TraceIds
    root: SpanContext
    began_ns: int
    exchanges: int = 0
    rounds: int = 0


class RoundSpans:
    """Makes the spans of sampled rounds; the run's span is always made.

    began_ns: the run's beginning, ns since the Unix epoch. state: the state saved by the run that
    is continued.
    """

    def __init__(
        self,
        sink: SpanSink,
        sampling: Sampling,
        seed: int,
        began_ns: int,
        state: RoundSpansState | None = None,
    ) -> None:
        self._sink = sink
        self._sampling = sampling
        self._seed = seed
        if state is None:
            ids = replace(sampling, share=1.0).pick(seed, RUN)
            assert ids is not None  # noqa: S101 - a share of 1 keeps everything
            root = SpanContext(ids.trace_id, ids.next_span_id())
            state = RoundSpansState(ids=ids, root=root, began_ns=began_ns)
        self._state = state

    def state(self) -> RoundSpansState:
        """Return the state to continue from; save it before the next round changes it."""
        return self._state

    @property
    def root(self) -> SpanContext:
        """Return the context of the run's span."""
        return self._state.root

    def begun(self, outcomes: scheduler_pb2.RoundOutcomes) -> SpanContext | None:
        """Begin the span of an exchange whose first round had these outcomes; None: no span."""
        self._state.exchanges += 1
        if not pods_of(outcomes):
            return None
        if self._sampling.share < 1 and not self._sampling.pick(
            self._seed, str(self._state.exchanges)
        ):
            return None
        return self._context()

    def ended(
        self, context: SpanContext | None, began_ns: int, taken_ns: int, exchange: MeasuredExchange
    ) -> None:
        """End the spans of an exchange that began at `began_ns`, ns since the Unix epoch.

        Only the durations of the cycles' steps are measured, not their times, so their spans are
        placed one after the other from the beginning of the exchange.
        """
        self._state.rounds += exchange.rounds
        if context is None:
            return
        attributes: dict[str, Attribute] = {
            "reprieve.at_ns": exchange.first.time_ns,
            "reprieve.round": exchange.first.number,
            "reprieve.rounds": exchange.rounds,
            "reprieve.events": exchange.events,
            "reprieve.pods": exchange.pods,
            "reprieve.queue_exchanges": exchange.queue_exchanges,
        }
        self._sink.end(
            Span(
                RUN_ROUND,
                context,
                self._state.root.span_id,
                began_ns,
                began_ns + taken_ns,
                attributes,
            )
        )
        for phase in exchange.phases:
            self._step(phase.name, context, began_ns, phase.wall_duration_ns, phase.pods)
            began_ns += phase.wall_duration_ns
        self._cycles(context, began_ns, exchange.steps)

    def stepped(
        self,
        name: str,
        began_ns: int,
        taken_ns: int,
        nodes: int,
        found: Mapping[str, Attribute] = NOTHING_FOUND,
    ) -> None:
        """End the span of an exchange with the eviction service; `found` are further attributes."""
        attributes: dict[str, Attribute] = {"reprieve.nodes": nodes, **found}
        end_ns = began_ns + taken_ns
        self._sink.end(
            Span(name, self._context(), self._state.root.span_id, began_ns, end_ns, attributes)
        )

    def _cycles(self, parent: SpanContext, began_ns: int, steps: Steps) -> None:
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
        attributes: dict[str, Attribute] = {"reprieve.rounds": self._state.rounds}
        self._sink.end(Span(RUN, self._state.root, "", self._state.began_ns, now_ns, attributes))

    def _context(self) -> SpanContext:
        return SpanContext(self._state.ids.trace_id, self._state.ids.next_span_id())


def synchronize_attributes(
    answers: Iterable[eviction_service_pb2.OperationResult],
) -> dict[str, Attribute]:
    """Return span attributes: the thresholds met, and the first pods of each ranking.

    No attributes if no threshold is met. Lists hold "NODE: ..." for the first NODES_MAX nodes; the
    count is of all nodes.
    """
    met = [answer for answer in answers if answer.step.thresholds_met]
    if not met:
        return {}
    thresholds, heads, evicted = [], [], []
    for answer in met[:NODES_MAX]:
        name, result = answer.node_name, answer.step
        thresholds += [f"{name}: {threshold.text}" for threshold in result.thresholds_met]
        head = [f"{ranked.pod.namespace}/{ranked.pod.name}" for ranked in result.ranking[:_HEAD]]
        if head:
            heads.append(f"{name}: {', '.join(head)}")
        evicted += [
            f"{name}: {eviction.pod.namespace}/{eviction.pod.name}" for eviction in result.evictions
        ]
    return {
        "reprieve.nodes_with_thresholds_met": len(met),
        "reprieve.thresholds_met": thresholds,
        "reprieve.ranking_head": heads,
        "reprieve.evicted": evicted,
    }
