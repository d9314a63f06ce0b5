"""Checks of figures: their grammar, and what they find."""

from __future__ import annotations

from collections import Counter

import pytest

from replay.results.summary.figures import FIGURES
from replay.whatif.assertions import FigureError, check, matches, parse_assertion
from replay.whatif.facts import PodFacts, RunFacts, all_figures


def facts(preempted: int = 1) -> RunFacts:
    """Return a run of two pods."""
    low = PodFacts(namespace="prod", name="low", priority=10, priority_class="batch")
    low.pending_until_ns, low.waited_ns = None, [4_000_000_000]
    low.counts.decisions["preempted"] = preempted
    high = PodFacts(namespace="prod", name="high", priority=1000, priority_class="web")
    high.waited_ns, high.counts.evicted["memory.available"] = [1_500_000_000], 2
    return RunFacts(
        pods={"prod/low": low, "prod/high": high},
        allocatable=Counter(cpu=4000),
        allocated=Counter(cpu=3000),
    )


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("preempted == 1", True),
        ("preempted{priority<1000} == 0", False),
        ("preempted{priority >= 1000} == 0", True),
        ("preempted{class=web, namespace=prod} == 0", True),
        ("preempted{class!=web} == 0", False),
        ("evicted{signal=memory.available} <= 1", False),
        ("evicted{signal=pid.available} == 0", True),
        ("waited_p99 > 3.5", True),
        ("waited_max{name=high} == 1.5", True),
        ("allocated{resource=cpu} == 75", True),
        ("pending != 1", False),
    ],
)
def test_a_check_is_of_the_pods_that_meet_its_conditions(text: str, holds: bool) -> None:
    """By priority, class, namespace, name, signal or resource."""
    assert check(parse_assertion(text), facts()).holds is holds


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pendng == 0", "'pendng' is not a figure; did you mean pending?"),
        ("colour == 1", "'colour' is not a figure; figures are pods, bound,"),
        ("bound{colour=1} == 1", "bound has no label 'colour'"),
        ("bound", "is not a check; write preempted"),
        ("bound{priority} == 1", "'priority' is not a condition"),
        ("bound == many", "is not a check"),
    ],
)
def test_an_invalid_check_is_refused_before_a_run(text: str, told: str) -> None:
    """With what there is."""
    with pytest.raises(FigureError) as found:
        parse_assertion(text)
    assert told in str(found.value)


def test_a_share_of_what_no_node_has_is_refused() -> None:
    """With the resources that there are."""
    with pytest.raises(FigureError, match="needs a resource of the nodes: cpu"):
        check(parse_assertion("allocated{resource=gpu} > 1"), facts())


def test_a_change_is_what_b_has_more_than_a() -> None:
    """A single run has no change."""
    change = parse_assertion("preempted.change == 2")
    assert check(change, facts(preempted=3), facts()).holds
    with pytest.raises(FigureError, match="change needs two runs"):
        check(change, facts())


def test_a_failed_check_shows_the_value() -> None:
    """In a sentence with the unit."""
    failed, held = (
        check(parse_assertion(text), facts()) for text in ("waited_mean < 2", "pods == 2")
    )
    assert failed.sentence == "failed: waited_mean < 2 (it is 2.75 s)"
    assert held.holds


def test_one_pod_is_not_counted_in_the_plural() -> None:
    """The unit follows the number."""
    one, two = (check(parse_assertion(text), facts()) for text in ("pending == 0", "pods == 0"))
    assert one.sentence == "failed: pending == 0 (it is 1 pod)"
    assert two.sentence == "failed: pods == 0 (it is 2 pods)"


def test_every_figure_has_a_meaning_and_a_value() -> None:
    """The table of figures is whole."""
    assert all(figure.meaning for figure in FIGURES.values())
    assert {name.partition("{")[0] for name in all_figures(facts())} == set(FIGURES)


@pytest.mark.parametrize("operator", ["<=", ">=", "==", "!="])
def test_a_check_of_a_figure_without_a_value_fails_and_says_why(operator: str) -> None:
    """Nothing was bound, so that nothing has waited for its binding: `<= 30` does not hold."""
    run = facts()
    for pod in run.pods.values():
        pod.waited_ns = []
    text = f"waited_p99 {operator} 0"
    checked = check(parse_assertion(text), run)
    assert checked.sentence == f"failed: {text} (it has no value: no pod was bound)"
    change = parse_assertion("waited_max.change <= 0")
    where = " in the run that it is compared with"
    assert check(change, run, facts()).found == "it has no value: no pod was bound"
    assert check(change, facts(), run).found == f"it has no value: no pod was bound{where}"


def test_figures_without_a_value_are_none() -> None:
    """Waits until a binding, where no pod was bound, and what no group costs.

    Where no pod waits, the longest is 0 s.
    """
    figures = all_figures(RunFacts())
    assert {name for name, value in figures.items() if value is None} == {
        *(name for name in FIGURES if name.startswith("waited_")),
        "cost",
    }
    assert figures["still_waiting_max"] == figures["still_waiting_mean"] == 0


def test_a_star_in_a_text_stands_for_any_text() -> None:
    """A name of Kubernetes has none, and without one a value is the whole text."""
    assert matches("web-0", "web-*")
    assert matches("web", "*")
    assert not matches("web-0", "web")
    assert not matches("my-web-0", "web-*")
    assert not matches("web-0", "web-?")


def test_a_number_sign_in_a_text_stands_for_a_number() -> None:
    """Copies of a pod, or pods of a StatefulSet, and none of the Deployment of the same name."""
    assert matches("web-0", "web-#")
    assert matches("web-120", "web-#")
    assert not matches("web-", "web-#")
    assert not matches("web-5d8f9c-x2k4p", "web-#")
    assert matches("web-5d8f9c-0", "web-*-#")
