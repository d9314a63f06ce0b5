"""The attributes of a span of an exchange with the eviction service."""

from __future__ import annotations

from replay.results.spans.rounds import NODES_MAX, RoundSpans, synchronize_attributes
from reprieve.eviction.v1beta1 import eviction_service_pb2
from services.telemetry.span import Sampling
from tests.kept_spans import KeptSpans

TEXT = "memory.available<100Mi grace=0s min_reclaim="


def answer(node: str, *ranked: str, evicted: str = "") -> eviction_service_pb2.OperationResult:
    """Return a step that met a threshold and ranked pods of "default"."""
    made = eviction_service_pb2.OperationResult(node_name=node)
    made.step.thresholds_met.add(text=TEXT)
    for name in ranked:
        made.step.ranking.add().pod.name = name
        made.step.ranking[-1].pod.namespace = "default"
    if evicted:
        eviction = made.step.evictions.add()
        eviction.pod.namespace, eviction.pod.name = "default", evicted
    return made


def test_thresholds_met_and_the_rankings_head_are_shown_by_node() -> None:
    """Three pods of a ranking, and who of them had to go."""
    calm = eviction_service_pb2.OperationResult(node_name="n1")
    calm.step.quiet = True
    shown = synchronize_attributes([calm, answer("n2", "a", "b", "c", "d", evicted="a")])
    assert shown == {
        "reprieve.nodes_with_thresholds_met": 1,
        "reprieve.thresholds_met": [f"n2: {TEXT}"],
        "reprieve.ranking_head": ["n2: default/a, default/b, default/c"],
        "reprieve.evicted": ["n2: default/a"],
    }


def test_where_nothing_is_met_nothing_is_shown() -> None:
    """Nor where the node must collect first: the step that continues shows it."""
    waiting = eviction_service_pb2.OperationResult(node_name="n")
    waiting.need_reclaim.images = True
    assert synchronize_attributes([waiting]) == {}


def test_a_whole_cluster_under_pressure_does_not_swell_a_span() -> None:
    """The first nodes are named, all are counted."""
    many = [answer(f"n{number}") for number in range(NODES_MAX + 5)]
    shown = synchronize_attributes(many)
    assert shown["reprieve.nodes_with_thresholds_met"] == NODES_MAX + 5
    assert shown["reprieve.thresholds_met"] == [f"n{number}: {TEXT}" for number in range(NODES_MAX)]


def test_the_span_has_thresholds_and_the_number_of_nodes() -> None:
    """As its attributes."""
    kept = KeptSpans()
    spans = RoundSpans(kept, Sampling(1.0), 0, 0)
    spans.stepped("synchronize", 5, 20, 4, synchronize_attributes([answer("n")]))
    (span,) = kept.spans
    assert span.attributes["reprieve.nodes"] == 4
    assert span.attributes["reprieve.thresholds_met"] == [f"n: {TEXT}"]
