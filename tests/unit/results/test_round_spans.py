"""The run's own trace, in wall time."""

from __future__ import annotations

from replay.results.run.decision_log import steps_of
from replay.results.spans.rounds import MeasuredExchange, RoundSpans
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.telemetry.span import Sampling, SpanContext
from tests.kept_spans import KeptSpans

CYCLES = ("schedulingCycle", "RunFilterPlugins")


def outcomes(pods: int) -> scheduler_pb2.RoundOutcomes:
    """Return a round's outcomes: each cycle took 10 ns, of which filters took 4."""
    made = scheduler_pb2.RoundOutcomes(queue_exchanges=1)
    made.phases.add(name="queueExchange", wall_duration_ns=7, pods=pods)
    for number in range(pods):
        outcome = made.outcomes.add()
        outcome.pop.uid = f"uid-{number}"
        outcome.phases.add(name="schedulingCycle", wall_duration_ns=10)
        outcome.phases.add(name="RunFilterPlugins", wall_duration_ns=4)
    return made


def exchanged(spans: RoundSpans, *told: scheduler_pb2.RoundOutcomes) -> SpanContext | None:
    """End the spans of an exchange of these rounds, which took 50 ns from 100 ns on."""
    exchange = MeasuredExchange(scheduler_pb2.Round())
    for outcomes in told:
        exchange.add(scheduler_pb2.Round(), outcomes, steps_of(outcomes))
    context = spans.begun(told[0])
    spans.ended(context, 100, 50, exchange)
    return context


def test_the_rounds_of_a_window_share_their_spans() -> None:
    """Their pods are counted together, and each exchange with the queue has its own."""
    kept = KeptSpans()
    spans = RoundSpans(kept, Sampling(1.0), 0, 0)
    exchanged(spans, outcomes(2), outcomes(1))
    spans.close(9)
    names = [span.name for span in kept.spans]
    assert names == ["runRound", *["queueExchange"] * 2, *CYCLES, "replay"]
    spans_by_name = {span.name: span.attributes for span in kept.spans}
    assert (
        spans_by_name["runRound"]["reprieve.rounds"]
        == spans_by_name["replay"]["reprieve.rounds"]
        == 2
    )
    assert spans_by_name["schedulingCycle"]["reprieve.pods"] == 3


def test_a_step_that_pods_share_is_one_span_with_their_count() -> None:
    """Three cycles are one schedulingCycle of three pods, with the filters below it."""
    kept = KeptSpans()
    spans = RoundSpans(kept, Sampling(1.0), 0, 0)
    context = exchanged(spans, outcomes(3))
    spans_by_name = {span.name: span for span in kept.spans}
    assert context == spans_by_name["runRound"].context
    cycle, filters = spans_by_name["schedulingCycle"], spans_by_name["RunFilterPlugins"]
    assert (cycle.start_ns, cycle.end_ns) == (107, 137)
    assert cycle.attributes["reprieve.pods"] == 3
    assert cycle.parent_id == spans_by_name["runRound"].context.span_id
    assert filters.parent_id == cycle.context.span_id
    assert filters.end_ns - filters.start_ns == 12


def test_a_round_that_tried_no_pod_has_no_span() -> None:
    """It is counted in the run's own span."""
    kept = KeptSpans()
    spans = RoundSpans(kept, Sampling(1.0), 0, 0)
    assert exchanged(spans, scheduler_pb2.RoundOutcomes()) is None
    spans.close(9)
    assert [(span.name, span.attributes["reprieve.rounds"]) for span in kept.spans] == [
        ("replay", 1)
    ]


def test_an_exchange_of_evictions_is_a_span_of_the_run() -> None:
    """`synchronize` tells how many nodes were stepped."""
    kept = KeptSpans()
    spans = RoundSpans(kept, Sampling(1.0), 0, 0)
    spans.stepped("synchronize", 5, 20, 4)
    (span,) = kept.spans
    assert (span.name, span.end_ns, span.attributes["reprieve.nodes"]) == ("synchronize", 25, 4)
