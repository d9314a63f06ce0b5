"""The simulated cluster: forks, the round-robin search, hints, and templates."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from services.autoscaler.core.groups import Cloud, Instance, NodeGroup
from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterPod, DaemonSet
from services.autoscaler.core.options import Options, from_flags
from services.autoscaler.core.simulator.hinting import HintingSimulator
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot
from services.autoscaler.core.simulator.templates import Templates
from services.kube.taints import Taint, TaintEffect, Toleration
from services.kube.time import MINUTE_NS
from tests.unit.autoscaler.builders import make_node, make_pod, make_spec

TAINT = Taint(key="dedicated", value="x", effect=TaintEffect.NO_SCHEDULE)


def shown(snapshot: ClusterSnapshot) -> list[tuple[str, bool, list[str]]]:
    """Return the nodes in order, whether each is tainted, and the keys of their pods."""
    return [
        (name, bool(snapshot.node(name).node.taints), [pod.key for pod in snapshot.pods_on(name)])
        for name in snapshot.names()
    ]


def room(snapshot: ClusterSnapshot, cpu: int) -> list[str]:
    """Return the nodes on which the filters let a pod pass."""
    probe = make_pod("probe", cpu)
    return [name for name in snapshot.names() if snapshot.refusal(probe, name) is None]


def test_the_search_begins_with_the_second_node_and_goes_on_after_the_last_match() -> None:
    """Also across scans."""
    snapshot = ClusterSnapshot()
    nodes = [make_node(name) for name in ("a", "b", "c")]
    snapshot.set_state(nodes, [])
    hosts = [snapshot.schedule_anywhere(make_pod(f"p{number}")) for number in range(3)]
    assert hosts == ["b", "c", "a"]
    snapshot.set_state(nodes, [])
    assert snapshot.schedule_anywhere(make_pod("q")) == "b"


def test_a_cordoned_node_is_passed_over_even_where_that_is_tolerated() -> None:
    """The search does that; a single node is judged by the filters alone."""
    snapshot = ClusterSnapshot()
    snapshot.set_state([make_node("a", unschedulable=True)], [])
    pod = make_pod("p", make_spec(100, tolerations=(Toleration(operator="Exists"),)))
    assert snapshot.schedule_anywhere(pod) is None
    assert snapshot.schedule(pod, "a") is None


def test_a_replaced_node_keeps_its_place_and_a_reverted_addition_does_not() -> None:
    """Order is what the search follows."""
    snapshot = ClusterSnapshot()
    snapshot.set_state([make_node("a"), make_node("b")], [make_pod("p", node="a")])
    before = shown(snapshot)
    snapshot.fork()
    snapshot.add(make_node("x"))
    snapshot.replace(make_node("a", taints=(TAINT,)))
    assert shown(snapshot) == [("a", True, []), ("b", False, []), ("x", False, [])]
    snapshot.revert()
    assert shown(snapshot) == before
    snapshot.fork()
    snapshot.add(make_node("y"))
    snapshot.add(make_node("x"))
    assert snapshot.names() == ["a", "b", "y", "x"]


def test_a_pod_may_be_simulated_on_a_second_node() -> None:
    """Pods of a drained node are placed while they are still there; both take their room."""
    snapshot = ClusterSnapshot()
    pod = make_pod("p", 3000, node="a")
    snapshot.set_state([make_node("a"), make_node("b")], [pod])
    assert snapshot.schedule_anywhere(pod, lambda name: name != "a") == "b"
    assert room(snapshot, 2000) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("purx"), st.integers(0, 5)), max_size=25))
def test_a_fork_leaves_no_trace_when_it_is_reverted(steps: list[tuple[str, int]]) -> None:
    """Neither in what is there, nor in what the filters say; commits within it included."""
    snapshot = ClusterSnapshot()
    nodes = [make_node(f"n{number}") for number in range(4)]
    pods = [make_pod(f"q{number}", 1000, node=f"n{number % 4}") for number in range(6)]
    snapshot.set_state(nodes, pods)
    before, fits = shown(snapshot), [room(snapshot, cpu) for cpu in (1500, 2500, 3500)]
    snapshot.fork()
    for count, (step, number) in enumerate(steps):
        names = snapshot.names()
        name = names[number % len(names)] if names else ""
        snapshot.fork()
        if step == "p":
            snapshot.schedule_anywhere(make_pod(f"new{count}", 700))
        elif step == "u":
            snapshot.add(make_node(f"u{count}"), [make_pod(f"d{count}", node=f"u{count}")])
        elif step == "r" and name:
            snapshot.remove(name)
        elif step == "x" and name:
            snapshot.replace(make_node(name, taints=(TAINT,)))
        if number % 2:
            snapshot.commit()
        else:
            snapshot.revert()
    snapshot.revert()
    assert shown(snapshot) == before
    assert [room(snapshot, cpu) for cpu in (1500, 2500, 3500)] == fits


def test_the_state_of_the_next_scan_is_what_was_set() -> None:
    """Whatever was simulated before, and whichever objects changed."""
    snapshot = ClusterSnapshot()
    a, b = make_node("a"), make_node("b")
    p, q = make_pod("p", 3000, node="a"), make_pod("q", 3000, node="b")
    snapshot.set_state([a, b], [p, q])
    snapshot.fork()
    snapshot.add(make_node("x"))
    snapshot.set_state([b, make_node("c")], [replace(q, restart_policy="Never"), p])
    assert shown(snapshot) == [("b", False, ["default/q"]), ("c", False, [])]
    assert room(snapshot, 3500) == ["c"]


def test_a_hint_is_tried_first_and_forgotten_when_a_scan_does_not_use_it() -> None:
    """Two generations are kept."""
    snapshot, hints = ClusterSnapshot(), HintingSimulator()
    nodes = [make_node(name) for name in ("a", "b", "c")]
    pod = make_pod("p")

    def placed() -> str:
        snapshot.set_state(nodes, [])
        (result,) = hints.place(snapshot, [pod])
        hints.forget_old()
        return result[1]

    assert [placed(), placed()] == ["b", "b"]
    hints.forget_old()
    hints.forget_old()
    assert placed() == "c"


def test_a_pod_like_one_that_found_no_place_is_not_tried() -> None:
    """Same controller, labels and spec; without a controller each is tried."""
    snapshot, hints = ClusterSnapshot(), HintingSimulator()
    snapshot.set_state([make_node("a")], [])
    large, small = make_spec(9000), make_spec(10)
    first, second = make_pod("p0", large), make_pod("p1", large)
    other = make_pod("p2", small)
    placed = hints.place(snapshot, [first, second, other])
    assert [pod.key for pod, _ in placed] == ["default/p2"]
    assert hints.place(snapshot, [first, other], stop_at_failure=True) == []


def group(*instances: str, cpu: int = 4000) -> NodeGroup:
    """Return group "g"."""
    return NodeGroup(
        name="g",
        min_size=0,
        max_size=9,
        target=len(instances),
        template=make_node("template", cpu, labels={"topology.kubernetes.io/zone": "z"}),
        instances=tuple(Instance(provider_id=f"test://g/{name}") for name in instances),
    )


def templates(
    nodes: list[str], pods: list[ClusterPod], sets: list[DaemonSet], options: Options, at_ns: int
) -> Templates:
    """Return the templates of a scan of a cluster whose nodes are those of group "g"."""
    snapshot, cloud, made = ClusterSnapshot(), Cloud(), Templates()
    cloud.put(group(*nodes))
    cluster = [make_node(name, 2000) for name in nodes]
    snapshot.set_state(cluster, pods)
    made.recompute(snapshot, cluster, cloud, sets, options, Now(at_ns))
    return made


def test_an_example_counts_when_it_has_been_ready_for_more_than_a_minute() -> None:
    """Before that, the cloud's template does; which has a pod of every daemon set."""
    daemon = DaemonSet(namespace="kube-system", name="d", uid="uid-d", spec=make_spec(10))
    young = templates(["a"], [], [daemon], Options(), MINUTE_NS).by_group["g"]
    assert young.node.node.allocatable["cpu"] == 4000
    assert [pod.controller and pod.controller.uid for pod in young.pods] == ["uid-d"]
    assert young.node.node.labels["failure-domain.beta.kubernetes.io/zone"] == "z"
    old = templates(["a"], [], [daemon], Options(), MINUTE_NS + 1).by_group["g"]
    assert old.node.node.allocatable["cpu"] == 2000
    assert old.pods == ()
    forced = templates(["a"], [], [daemon], from_flags({"force-ds": "true"}), MINUTE_NS + 1)
    assert len(forced.by_group["g"].pods) == 1


def test_a_template_has_the_daemon_pods_of_its_example_and_no_others() -> None:
    """Under names of their own; pods that are being deleted are left out."""
    pods = [
        make_pod("ds-1", node="a", owner="DaemonSet"),
        make_pod("ds-2", node="a", owner="DaemonSet", deletion_ns=1),
        make_pod("p", node="a"),
    ]
    template = templates(["a"], pods, [], Options(), 2 * MINUTE_NS).by_group["g"]
    assert [pod.pod.name for pod in template.pods] == ["ds-1-template"]
    assert template.named("upcoming-0").node.name != template.named("upcoming-1").node.name


def test_a_daemon_set_that_does_not_fit_the_node_adds_no_pod() -> None:
    """By selector; passing taints, such as not-ready, do not count."""
    spec = replace(make_spec(10), node_selector={"gpu": "yes"})
    daemon = DaemonSet(namespace="kube-system", name="d", uid="uid-d", spec=spec)
    template = templates([], [], [daemon], Options(), 0).by_group["g"]
    assert template.pods == ()
