"""The state that the evaluator receives before each decision, and the use of its evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from replay.compare.comparison import Comparison, ComparisonReport, Finding, FindingOutcome
from replay.compare.explain import DifferenceReason
from replay.compare.recorded import ClusterView, DecisionKind, Recording
from replay.compare.verdict import Match
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.scheduler.v1beta1 import scheduler_pb2
from tests.unit.compare.builders import FIT, node, pod, recording, victim
from tests.unit.importers.builders import claim, gap, line

Answer = Callable[[str, frozenset[str]], scheduler_pb2.Evaluation]


class FakeJudge:
    """Answers by the pod's name and the pods that are on a node as it was sent."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.bound: set[str] = set()
        self.seen: list[tuple[str, frozenset[str]]] = []

    def report(self, at_ns: int, events: Sequence[scheduler_pb2.Event]) -> None:
        """Note which pods are on a node."""
        del at_ns
        for event in events:
            if event.HasField("patch"):
                self.bound.add(event.patch.pod.uid)
            for told in (event.add, event.update):
                if told.pod.spec.node_name:
                    self.bound.add(told.pod.metadata.uid)
            self.bound.discard(event.remove.uid)

    def evaluate_pod(self, pod: ObjectReference) -> scheduler_pb2.Evaluation:
        """Answer in the state that was sent."""
        self.seen.append((pod.name, frozenset(self.bound)))
        return self.answer(pod.name, frozenset(self.bound))

    def evaluate_in(self, cluster: ClusterView, at_ns: int) -> scheduler_pb2.Evaluation:
        """Evaluate in the given cluster."""
        del at_ns
        bound = {
            decision.pod.metadata.uid for decision in cluster.objects if decision.HasField("pod")
        }
        return self.answer(cluster.pod.metadata.name, frozenset(bound))


def best(*nodes: str) -> scheduler_pb2.Evaluation:
    """Return the verdict for a pod whose best nodes are these."""
    return scheduler_pb2.Evaluation(host=nodes[0], best_nodes=nodes, feasible_nodes=len(nodes) + 1)


def findings(recorded: Recording, answer: Answer, changed: Answer | None = None) -> list[Finding]:
    """Compare with judges that answer so."""
    other = FakeJudge(changed) if changed else None
    return list(Comparison(recorded, FakeJudge(answer), other).findings())


def two_bound(folder: Path) -> Recording:
    """Return a recording in which `a` is bound to n and then `b` to m."""
    return recording(
        folder,
        node("n", 1),
        node("m", 2),
        line(3, "ADDED", pod("a", 3)),
        line(3, "ADDED", pod("b", 4)),
        line(4, "MODIFIED", pod("a", 5, node="n")),
        line(4, "MODIFIED", pod("b", 6, node="m")),
    )


def test_decisions_in_a_gap_and_after_a_missing_end_are_not_judged(tmp_path: Path) -> None:
    """Because the state before them is unknown, whatever the evaluation is."""
    recorded = recording(
        tmp_path,
        node("n", 1),
        claim(0, "Node", 2, until=0, is_list=True),
        *(line(1, "ADDED", pod(name, number)) for number, name in enumerate("abc", 3)),
        *(gap(3, "Pod", 5, since=2), line(3, "MODIFIED", pod("a", 6, node="n"))),
        claim(3, "Pod", 7, until=3),
        line(4, "MODIFIED", pod("b", 8, node="n")),
        gap(6, "Pod", 8, since=3, ended=True),
        line(5, "MODIFIED", pod("c", 9, node="n")),
    )
    compared = findings(recorded, lambda _name, _bound: best("n"))
    assert [decision.outcome for decision in compared] == [
        FindingOutcome.NOT_JUDGED,
        FindingOutcome.AGREES,
        FindingOutcome.NOT_JUDGED,
    ]
    assert {decision.verdict.match for decision in compared[::2]} == {Match.GAP}
    report = ComparisonReport(rules="", kubernetes_version="", order="", notes=())
    report.add(compared)
    assert report.to_mapping()["reasons"] == {"not judged: a gap of the recording": 2}
    assert "changes before it may be missing of" in str(report.to_mapping()["findings"])


def test_the_recorded_outcome_counts_and_not_the_judges(tmp_path: Path) -> None:
    """`b` is compared with `a` on its recorded node, although the evaluation of `a` differs."""
    judge = FakeJudge(lambda _name, _bound: best("m"))
    compared = list(Comparison(two_bound(tmp_path), judge).findings())
    assert judge.seen == [("a", frozenset()), ("b", frozenset({"uid-a"}))]
    assert [decision.outcome for decision in compared] == [
        FindingOutcome.DIFFERS,
        FindingOutcome.AGREES,
    ]


def test_pods_decided_earlier_count_as_bound_before_it_is_written(tmp_path: Path) -> None:
    """By the log `b` was first; resourceVersion alone would have it the other way."""
    ordered = recording(
        tmp_path,
        node("n", 1),
        line(3, "ADDED", pod("a", 3)),
        line(3, "ADDED", pod("b", 4)),
        line(4, "MODIFIED", pod("a", 5, node="n")),
        line(4, "MODIFIED", pod("b", 6, node="n")),
        log=[{"pod": "default/b", "node": "n"}, {"pod": "default/a", "node": "n"}],
    )
    judge = FakeJudge(lambda name, bound: best("n" if name == "b" or "uid-b" in bound else "m"))
    compared = list(Comparison(ordered, judge).findings())
    assert judge.seen == [("b", frozenset()), ("a", frozenset({"uid-b"}))]
    assert [decision.outcome for decision in compared] == [
        FindingOutcome.AGREES,
        FindingOutcome.AGREES,
    ]
    assert [decision.explanation and decision.explanation.reason for decision in compared] == [
        None,
        DifferenceReason.ORDER,
    ]


def test_exact_ties_agree(tmp_path: Path) -> None:
    """The recorded node is one of the best."""
    compared = findings(two_bound(tmp_path), lambda _name, _bound: best("m", "n"))
    assert {decision.verdict.match for decision in compared} == {Match.TIED}


def test_what_the_recorded_versions_rules_alone_decide_is_explained(tmp_path: Path) -> None:
    """By the judge that has them."""
    compared = findings(
        two_bound(tmp_path),
        lambda _name, _bound: best("x"),
        lambda name, _bound: best("n" if name == "a" else "m"),
    )
    assert {decision.outcome for decision in compared} == {FindingOutcome.EXPLAINED}
    assert {decision.explanation.reason for decision in compared if decision.explanation} == {
        DifferenceReason.CHANGE
    }


def test_another_order_of_concurrent_bindings_explains_a_difference(tmp_path: Path) -> None:
    """`b` agrees where `a`, bound just before it, had not been decided."""
    compared = findings(
        two_bound(tmp_path), lambda name, bound: best("n" if name == "a" or bound else "m")
    )
    explained = compared[1].explanation
    assert explained is not None
    assert (explained.reason, compared[1].outcome) == (
        DifferenceReason.ORDER,
        FindingOutcome.EXPLAINED,
    )


def test_a_change_that_was_not_seen_yet_explains(tmp_path: Path) -> None:
    """`b` agrees in the state before `old` went."""
    recorded = recording(
        tmp_path,
        node("n", 1),
        line(3, "ADDED", pod("b", 2)),
        line(3, "ADDED", pod("old", 3, node="n")),
        line(4, "DELETED", pod("old", 4, node="n")),
        line(4, "MODIFIED", pod("b", 5, node="m")),
    )
    compared = findings(recorded, lambda _name, bound: best("m" if "uid-old" in bound else "n"))
    explained = compared[-1].explanation
    assert explained is not None
    assert (explained.reason, compared[-1].outcome) == (
        DifferenceReason.LATE,
        FindingOutcome.EXPLAINED,
    )


def crowded(folder: Path, *lines: bytes) -> Recording:
    """Return a recording of n with `old` and `low`, and m with `other`, before these lines."""
    return recording(
        folder,
        node("n", 1),
        node("m", 2),
        line(3, "ADDED", pod("old", 3, node="n")),
        line(3, "ADDED", pod("low", 4, node="n")),
        line(3, "ADDED", pod("other", 5, node="m")),
        *lines,
    )


def refusing(with_old: int, without: int) -> Answer:
    """Return a judge to whom so many nodes lack cpu where it sees `old` on n, and where not."""

    def answer(_name: str, bound: frozenset[str]) -> scheduler_pb2.Evaluation:
        lacking = with_old if "uid-old" in bound else without
        return scheduler_pb2.Evaluation(
            fit_error=f"0/2 nodes are available: {lacking} Insufficient cpu, 2 Insufficient memory."
        )

    return answer


ENDING = {"deletionTimestamp": "2026-01-31T12:00:34Z", "deletionGracePeriodSeconds": 30}
FAILED = "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory."


def test_a_pods_end_on_one_node_that_was_not_seen_yet_explains_a_failure(tmp_path: Path) -> None:
    """Even if the scheduler had seen the failed pod, which was created after that end."""
    recorded = crowded(
        tmp_path,
        line(4, "DELETED", pod("old", 6, node="n")),
        line(4, "ADDED", pod("b", 7)),
        line(4, "MODIFIED", pod("b", 8, refused=FAILED)),
    )
    explained = findings(recorded, refusing(2, 1))[-1].explanation
    assert explained is not None
    assert explained.reason is DifferenceReason.LATE
    assert explained.text == (
        "agrees where on node n was not seen yet: the removal of Pod default/old "
        "(resourceVersion 6, 0 ms before)"
    )


def test_an_end_long_before_a_failure_explains_nothing(tmp_path: Path) -> None:
    """No watch lags by more than a second."""
    recorded = crowded(
        tmp_path,
        line(4, "DELETED", pod("old", 6, node="n")),
        line(6, "ADDED", pod("b", 7)),
        line(6, "MODIFIED", pod("b", 8, refused=FAILED)),
    )
    assert findings(recorded, refusing(2, 1))[-1].outcome is FindingOutcome.DIFFERS


def test_an_end_that_makes_no_difference_explains_nothing(tmp_path: Path) -> None:
    """The recorded decision has to come out in the state before it."""
    recorded = crowded(
        tmp_path,
        line(4, "DELETED", pod("old", 6, node="n")),
        line(4, "ADDED", pod("b", 7)),
        line(4, "MODIFIED", pod("b", 8, refused=FAILED)),
    )
    assert findings(recorded, refusing(1, 1))[-1].outcome is FindingOutcome.DIFFERS


def test_ends_on_several_nodes_are_not_taken_together(tmp_path: Path) -> None:
    """Each node by itself, lest enough of them explain anything."""
    recorded = crowded(
        tmp_path,
        line(4, "DELETED", pod("old", 6, node="n")),
        line(4, "DELETED", pod("other", 7, node="m")),
        line(4, "ADDED", pod("b", 8)),
        line(4, "MODIFIED", pod("b", 9, refused=FAILED)),
    )

    def answer(_name: str, bound: frozenset[str]) -> scheduler_pb2.Evaluation:
        both = {"uid-old", "uid-other"} <= bound
        return scheduler_pb2.Evaluation(fit_error=FAILED if both else FIT)

    assert findings(recorded, answer)[-1].outcome is FindingOutcome.DIFFERS


@pytest.mark.parametrize(
    ("on", "outcome"), [("n", FindingOutcome.EXPLAINED), ("m", FindingOutcome.DIFFERS)]
)
def test_a_pod_that_began_to_end_unseen_on_the_node_explains_other_victims_there(
    tmp_path: Path, on: str, outcome: FindingOutcome
) -> None:
    """Ends on other nodes are not considered, because the victims are on this node."""
    ending = "old" if on == "n" else "other"
    recorded = crowded(
        tmp_path,
        line(4, "MODIFIED", pod(ending, 6, node=on, metadata=ENDING)),
        line(4, "ADDED", pod("high", 7, priority=9)),
        line(4, "MODIFIED", victim("low", 8, "n")),
        line(4, "MODIFIED", pod("high", 9, refused=FIT, status={"nominatedNodeName": "n"})),
    )

    class ByEnds(FakeJudge):
        """Names `low` where nothing is seen to end, else `more`."""

        def evaluate_in(self, cluster: ClusterView, at_ns: int) -> scheduler_pb2.Evaluation:
            """Answer by what is being deleted."""
            del at_ns
            return preempting("more" if cluster.terminating else "low")

    judge = ByEnds(lambda _name, _bound: preempting("more"))
    compared = list(Comparison(recorded, judge).findings())[-1]
    assert compared.outcome is outcome
    if compared.explanation is not None:
        assert "the deletion request of Pod default/old" in compared.explanation.text


def preempting(*names: str) -> scheduler_pb2.Evaluation:
    """Return the verdict for a pod that preempts these on n."""
    evaluation = scheduler_pb2.Evaluation(fit_error=FIT)
    evaluation.preemption.picked = "n"
    candidate = evaluation.preemption.candidates.add(node_name="n")
    for name in names:
        candidate.victims.add().pod.uid = f"uid-{name}"
        candidate.victims[-1].pod.namespace = "default"
        candidate.victims[-1].pod.name = name
    return evaluation


def test_a_preemption_agrees_with_the_same_victims_only(tmp_path: Path) -> None:
    """A victim more or less is another decision."""
    recorded = recording(
        tmp_path,
        node("n", 1),
        line(3, "ADDED", pod("low", 2)),
        line(3, "MODIFIED", pod("low", 3, node="n")),
        line(5, "ADDED", pod("high", 4)),
        line(8, "MODIFIED", victim("low", 5, "n")),
        line(8, "MODIFIED", pod("high", 6, refused=FIT, status={"nominatedNodeName": "n"})),
    )

    def answer(*names: str) -> Answer:
        return lambda name, _bound: preempting(*names) if name == "high" else best("n")

    assert findings(recorded, answer("low"))[-1].verdict.match is Match.VICTIMS
    assert findings(recorded, answer("low", "more"))[-1].outcome is FindingOutcome.DIFFERS


def test_a_report_lists_findings_that_differ_or_have_an_explanation(tmp_path: Path) -> None:
    """Decisions that agree without an explanation are only counted."""
    report = ComparisonReport(rules="v1.34", kubernetes_version="v1.34.1", order="x", notes=[])
    report.add(findings(two_bound(tmp_path), lambda _name, _bound: best("m")))
    assert report.outcomes[DecisionKind.BIND, FindingOutcome.AGREES] == 1
    assert report.of(FindingOutcome.DIFFERS) == 1
    printed = report.to_mapping()["findings"]
    assert [(line["pod"], line["outcome"]) for line in printed] == [("default/a", "differs")]
