"""Two runs, pod by pod."""

from __future__ import annotations

from replay.whatif.compared import fault_lines, figure_cells, wait_cells
from replay.whatif.comparison import FigureChange, compare
from replay.whatif.facts import PodFacts, RunFacts


def pod(name: str, node: str = "", **what: int) -> PodFacts:
    """Return a pod, of one class, that waited `waited` seconds."""
    found = PodFacts(namespace="prod", name=name, priority=0, priority_class="web", node=node)
    found.waited_ns = [what.get("waited", 0) * 10**9] if node else []
    found.pending_since_ns = what.get("came", 0) * 10**9
    bound_ns = found.pending_since_ns + sum(found.waited_ns)
    found.pending_until_ns = bound_ns if node else None
    found.counts.decisions["preempted"] = what.get("preempted", 0)
    found.counts.evicted["memory.available"] = what.get("evicted", 0)
    return found


def run(*pods: PodFacts) -> RunFacts:
    """Return a run of some pods."""
    return RunFacts(end_ns=60 * 10**9, pods={pod.key: pod for pod in pods})


def test_pods_pair_by_name_and_each_change_is_counted_by_class_and_namespace() -> None:
    """A move, preemption, eviction, waiting, and pods that one run alone has."""
    a = run(pod("moved", "n1"), pod("none", "n1"), pod("same", "n1"), pod("gone", "n1"))
    b = run(pod("moved", "n2", waited=3), pod("none", preempted=1), pod("same", "n1", evicted=1))
    (group,) = compare(a, b).groups
    assert (group.priority_class, group.namespace, group.pods) == ("web", "prod", 4)
    assert group.counts == {
        "moved": 1,
        "waited longer": 1,
        "got no node": 1,
        "still waiting longer": 1,
        "preempted more often": 1,
        "evicted more often": 1,
        "only in A": 1,
    }
    assert group.totals_ns == {"waited longer": 3 * 10**9, "still waiting longer": 60 * 10**9}
    assert group.samples["moved"] == ["prod/moved"]


def test_the_waits_of_bound_and_of_pending_pods_are_separate() -> None:
    """A pod that was bound in one run alone has waited for nothing that could be compared."""
    a = run(pod("bound", "n1", waited=9), pod("pending", came=50), pod("never", "n1", waited=30))
    b = run(pod("bound", "n1", waited=2), pod("pending", came=10), pod("never", came=20))
    (group,) = compare(a, b).groups
    assert group.counts == {"waited shorter": 1, "still waiting longer": 2, "got no node": 1}
    assert group.totals_ns == {"waited shorter": 7 * 10**9, "still waiting longer": 80 * 10**9}
    figures = {figure.name: (figure.a, figure.b) for figure in compare(a, b).figures}
    assert figures["waited_max"] == (30, 2)
    assert figures["still_waiting_mean"] == (10, 45)
    assert figures["still_waiting_max"] == (10, 50)


def test_equal_runs_have_no_change() -> None:
    """Neither in a group nor in a figure."""
    a, b = run(pod("same", "n1")), run(pod("same", "n1"))
    comparison = compare(a, b)
    assert not any(group.counts for group in comparison.groups)
    assert not any(figure.change for figure in comparison.figures)


def test_a_figures_change_has_its_size() -> None:
    """In itself, and as a share of A's."""
    comparison = compare(run(pod("x", "n1"), pod("y", "n1")), run(pod("x", "n1"), pod("y")))
    bound = next(figure for figure in comparison.figures if figure.name == "bound")
    assert (bound.change, bound.share) == (-1, -0.5)


def test_a_figure_that_one_run_lacks_differs_and_has_no_change() -> None:
    """No pod was bound in B, so that none has waited for 0 s; and its nodes have no GPU."""
    a, b = run(pod("x", "n1", waited=2)), run(pod("x"))
    a.allocatable["nvidia.com/gpu"] = 2
    figures = {figure.name: figure for figure in compare(a, b).figures}
    waited, gpus = figures["waited_p50"], figures["allocated{resource=nvidia.com/gpu}"]
    assert (waited.a, waited.b, waited.change, waited.share) == (2, None, None, None)
    assert (waited.is_changed, gpus.is_changed) == (True, True)
    assert figure_cells(waited) == ("waited_p50, s", "2", "-", "-", "")
    assert not next(e for e in compare(b, b).figures if e.name == "waited_p50").is_changed


def test_no_pod_counts_as_moved_where_the_policies_differ() -> None:
    """Two schedulers place pods differently by design; whether a pod gets a node says something."""
    a, b = run(pod("x", "n1"), pod("y", "n1")), run(pod("x", "n2"), pod("y"))
    (group,) = compare(a, b, one_policy=False).groups
    assert group.counts == {"got no node": 1, "still waiting longer": 1}


def test_waits_are_by_class_and_count_pods_that_still_wait() -> None:
    """Computed by hand: 2 s, 4 s and 30 s; pods without a class by their priority."""
    a = run(pod("p", "n", waited=2), pod("q", "n", waited=4), pod("r", came=30))
    b = run(pod("p", "n", waited=2))
    a.pods["prod/none"] = PodFacts(namespace="prod", name="none", priority=7, priority_class="")
    a.pods["prod/none"].unbound_ns = [9 * 10**9]
    highest, web = compare(a, b).waits
    assert (highest.name, highest.a.max_ns, highest.b.waits) == ("priority 7", 9 * 10**9, 0)
    assert (web.name, web.a.waits, web.a.still_waiting) == ("web", 3, 1)
    assert (web.a.mean_ns, web.a.p50_ns) == (12 * 10**9, 4 * 10**9)
    assert (web.a.p95_ns, web.a.max_ns) == (30 * 10**9, 30 * 10**9)
    assert (web.b.waits, web.b.still_waiting, web.b.max_ns) == (1, 0, 2 * 10**9)
    assert wait_cells(highest.b) == ("0", "0", "-", "-", "-", "-")


def test_invalid_placements_and_refusals_are_headlines() -> None:
    """A run without fit checks leaves no pod pending. Nothing is said where neither has any."""
    figures = [
        FigureChange(name="pending", a=2, b=0),
        FigureChange(name="invalid_placements", a=0, b=1212),
        FigureChange(name="refusals", a=0, b=0),
    ]
    assert list(fault_lines(figures)) == [
        "Invalid placements: 0 in A and 1,212 in B; a run with them looks better than it is."
    ]
