"""Two runs, pod by pod."""

from __future__ import annotations

from collections import Counter

from replay.whatif.comparison import compare
from replay.whatif.facts import PodFacts, RunFacts


def pod(name: str, node: str = "", **what: int) -> PodFacts:
    """Return a pod, of one class, that waited `waited` seconds."""
    found = PodFacts(namespace="prod", name=name, priority=0, priority_class="web", node=node)
    found.waited_ns = [what.get("waited", 0) * 10**9] if node else []
    found.preempted = what.get("preempted", 0)
    found.evicted = Counter({"memory.available": what.get("evicted", 0)})
    return found


def run(*pods: PodFacts) -> RunFacts:
    """Return a run of some pods."""
    return RunFacts(pods={each.key: each for each in pods})


def test_pods_pair_by_name_and_each_change_is_counted_by_class_and_namespace() -> None:
    """A move, a lost node, preemption, eviction, waiting, and pods that one run alone has."""
    a = run(pod("moved", "n1"), pod("lost", "n1"), pod("same", "n1"), pod("gone", "n1"))
    b = run(pod("moved", "n2", waited=3), pod("lost", preempted=1), pod("same", "n1", evicted=1))
    (group,) = compare(a, b).groups
    assert (group.priority_class, group.namespace, group.pods) == ("web", "prod", 4)
    assert group.counts == {
        "moved": 1,
        "waited longer": 1,
        "lost its node": 1,
        "more preempted": 1,
        "more evicted": 1,
        "only in A": 1,
    }
    assert group.longer_ns == 3 * 10**9
    assert group.samples["moved"] == ["prod/moved"]


def test_equal_runs_have_no_change() -> None:
    """Neither in a group nor in a figure."""
    a, b = run(pod("same", "n1")), run(pod("same", "n1"))
    found = compare(a, b)
    assert not any(group.counts for group in found.groups)
    assert not any(figure.change for figure in found.figures)


def test_a_figures_change_has_its_size() -> None:
    """In itself, and as a share of A's."""
    found = compare(run(pod("x", "n1"), pod("y", "n1")), run(pod("x", "n1"), pod("y")))
    bound = next(each for each in found.figures if each.name == "bound")
    assert (bound.change, bound.share) == (-1, -0.5)
