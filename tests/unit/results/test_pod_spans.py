"""A pod's trace: its spans, their times and links, and that runs repeat them."""

from __future__ import annotations

from collections.abc import Callable

from replay.results.spans.pods import PodSpans, PodSpansState
from replay.state_codec import dump, load
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from services.telemetry.span import Sampling, Span
from tests.kept_spans import KeptSpans
from tests.unit.results import messages


def _played(play: Callable[[PodSpans], None], share: float = 1.0) -> KeptSpans:
    sink = KeptSpans()
    spans = PodSpans(sink, Sampling(share), 7)
    play(spans)
    spans.close(messages.START_NS + 100 * SECOND_NS)
    return sink


def _life(spans: PodSpans) -> None:
    spans.created(messages.START_NS, messages.pod_message("a", priority=5))
    bound = messages.bound("a", "n", 3, queued_s=1)
    spans.outcome(bound)
    spans.decided(messages.scheduled("a", "n", 3))
    spans.decided(messages.started("a", 4))
    spans.decided(messages.finished("a", 9))
    spans.decided(messages.removed("a", 9))


def _seconds(span: Span) -> tuple[float, float]:
    start, end = span.start_ns - messages.START_NS, span.end_ns - messages.START_NS
    return start / SECOND_NS, end / SECOND_NS


def test_a_pod_has_a_span_for_each_part_of_its_life() -> None:
    """Times are simulated; a span without simulated duration begins and ends at one moment."""
    spans = _played(_life).of("a")
    assert {name: _seconds(span) for name, span in spans.items()} == {
        "Pod": (0, 9),
        "queue.wait": (0, 3),
        "schedulingCycle": (3, 3),
        "bindingCycle": (3, 3),
        "Running": (4, 9),
    }
    assert {span.parent_id for span in spans.values()} == {"", spans["Pod"].context.span_id}
    assert len({span.context.span_id for span in spans.values()}) == len(spans)


def test_a_cycle_reports_what_it_decided_and_how_long_it_took() -> None:
    """Wall times are attributes: the span itself is in virtual time."""
    cycle = _played(_life).of("a")["schedulingCycle"]
    assert cycle.attributes["reprieve.outcome"] == "bound"
    assert cycle.attributes["k8s.node.name"] == "n"
    assert cycle.attributes["reprieve.wall_ns.schedulingCycle"] == 60_000


def test_a_failed_attempt_says_why() -> None:
    """In kube-scheduler's own words."""

    def play(spans: PodSpans) -> None:
        spans.created(messages.START_NS, messages.pod_message("a"))
        spans.outcome(messages.unschedulable("a", "0/1 nodes are available"))

    assert _played(play).of("a")["schedulingCycle"].attributes["reprieve.message"] == (
        "0/1 nodes are available"
    )


def test_two_runs_have_the_same_spans() -> None:
    """Ids are hashes of seed and UID."""
    assert _played(_life).spans == _played(_life).spans


def test_a_preemption_and_its_victims_are_linked_both_ways() -> None:
    """And the victim's replacement is linked to the victim."""

    def play(spans: PodSpans) -> None:
        low = messages.pod_message("low", node_name="n", phase="Running", owner_uid="rs")
        spans.created(messages.START_NS, low)
        spans.created(messages.START_NS, messages.pod_message("high"))
        spans.decided(messages.nominated("high", "n", "low"))
        spans.decided(messages.preempted("low", "high"))
        spans.created(messages.START_NS, messages.pod_message("new", owner_uid="rs"))
        spans.created(messages.START_NS, messages.pod_message("newer", owner_uid="rs"))

    sink = _played(play)
    low, high = sink.of("low"), sink.of("high")
    assert list(high["preemption"].links) == [low["Pod"].context]
    assert high["preemption"].attributes["reprieve.victims"] == ["default/low"]
    assert list(low["Pod"].links) == [high["Pod"].context]
    assert list(sink.of("new")["Pod"].links) == [low["Pod"].context]
    assert list(sink.of("newer")["Pod"].links) == []


def _preempts(spans: PodSpans) -> None:
    spans.created(messages.START_NS, messages.pod_message("low", node_name="n", phase="Running"))
    spans.created(messages.START_NS, messages.pod_message("high", priority=5))
    spans.decided(messages.nominated("high", "n", "low", at_s=1))
    spans.decided(_victim())


def _victim() -> trace_pb2.Decision:
    entry = messages.preempted("low", "high", at_s=1)
    entry.observed.preempted.node_name = "n"
    return entry


def test_a_victims_end_is_in_its_preemptors_trace() -> None:
    """From the preemption to the victim's end, once, with a link to the victim's own trace."""

    def play(spans: PodSpans) -> None:
        _preempts(spans)
        spans.decided(messages.finished("low", 3))
        spans.decided(messages.removed("low", 4))

    sink = _played(play)
    high, low = sink.of("high"), sink.of("low")
    (ended,) = [span for span in sink.spans if span.name == "Terminating"]
    assert ended == high["Terminating"]
    assert ended.parent_id == high["preemption"].context.span_id
    assert _seconds(ended) == (1, 3)
    assert ended.attributes == {
        "k8s.namespace.name": "default",
        "k8s.pod.name": "low",
        "k8s.pod.uid": "uid-low",
        "k8s.node.name": "n",
        "reprieve.end": low["Pod"].attributes["reprieve.end"],
    }
    assert list(ended.links) == [low["Pod"].context]


def test_a_victims_end_needs_no_trace_of_the_victim() -> None:
    """Where a share of the pods is kept, their traces are whole."""

    def play(spans: PodSpans) -> None:
        spans.created(messages.START_NS, messages.pod_message("high", priority=5))
        spans.decided(messages.nominated("high", "n", "low", at_s=1))
        spans.decided(_victim())
        spans.decided(messages.removed("low", 4))

    ended = _played(play).of("high")["Terminating"]
    assert (_seconds(ended), list(ended.links)) == ((1, 4), [])
    assert ended.attributes["reprieve.end"] == "deleted"


def test_a_victim_that_outlives_the_run_is_still_terminating() -> None:
    """Its span ends with the run and says so."""
    ended = _played(_preempts).of("high")["Terminating"]
    assert _seconds(ended) == (1, 100)
    assert ended.attributes["reprieve.end"] == "outlives the run"


def test_a_resumed_run_continues_the_spans_of_terminating_victims() -> None:
    """They are in the state that a checkpoint keeps."""
    sink = KeptSpans()
    spans = PodSpans(sink, Sampling(1.0), 7)
    _preempts(spans)
    saved = load(PodSpansState, dump(PodSpansState, spans.state()))
    continued = PodSpans(sink, Sampling(1.0), 7, state=saved)
    continued.decided(messages.removed("low", 4))
    continued.close(messages.START_NS + 100 * SECOND_NS)
    assert _seconds(sink.of("high")["Terminating"]) == (1, 4)


def test_an_eviction_is_linked_to_the_reschedule() -> None:
    """The replacement names the eviction that it stands for."""

    def play(spans: PodSpans) -> None:
        old = messages.pod_message("old", node_name="n", phase="Running", owner_uid="rs")
        spans.created(messages.START_NS, old)
        spans.decided(messages.evicted("old", "memory.available", 3))
        spans.decided(messages.finished("old", 4, "Failed"))
        new = messages.pod_message("new", owner_uid="rs", created_s=4)
        spans.created(messages.START_NS + 4 * SECOND_NS, new)

    sink = _played(play)
    eviction = sink.of("old")["eviction"]
    assert eviction.attributes["reprieve.signal"] == "memory.available"
    assert list(sink.of("new")["Pod"].links) == [eviction.context]


def test_a_pod_that_outlives_the_run_ends_with_it() -> None:
    """Its spans are there, and its root says so."""

    def play(spans: PodSpans) -> None:
        spans.created(messages.START_NS, messages.pod_message("a", node_name="n", phase="Running"))

    spans = _played(play).of("a")
    assert _seconds(spans["Running"]) == (0, 100)
    assert spans["Pod"].attributes["reprieve.end"] == "outlives the run"


def test_a_pod_that_is_not_kept_has_no_spans() -> None:
    """Nothing is made of it."""
    assert _played(_life, share=0.0).spans == []


def test_a_refused_binding_is_an_error() -> None:
    """The pod has no node by it."""

    def play(spans: PodSpans) -> None:
        spans.created(messages.START_NS, messages.pod_message("a"))
        entry = messages.scheduled("a", "n")
        entry.refused = 'nodes "n" not found'
        spans.decided(entry)

    assert _played(play).of("a")["bindingCycle"].error == 'nodes "n" not found'
