"""What each plugin says of single nodes."""

from __future__ import annotations

import pytest

from services.framework.runtime.framework import Framework
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code
from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.selector import NodeSelectorTerm
from services.scheduler.core.cycle.evaluate import NodeVerdicts
from tests.builders import make_node, make_pod, requirement
from tests.cycles import evaluate

ROOMY = {"cpu": "8", "memory": "16Gi", "example.com/gpu": "2"}


def verdicts(pod: Pod, *nodes: Node, assigned: tuple[Pod, ...] = ()) -> NodeVerdicts:
    """Return the verdicts about `pod` on nodes with pods."""
    snapshot = Snapshot()
    for node in nodes:
        snapshot.set_node(node)
    for other in assigned:
        snapshot.set_pod(other)
    return evaluate(Framework(snapshot), pod)


def refusal(pod: Pod, node: Node, *assigned: Pod) -> tuple[str, Code, tuple[str, ...]] | None:
    """Return who refuses `pod` on one node, how and why."""
    status = verdicts(pod, node, assigned=assigned).refusals.get(node.name)
    return (status.plugin, status.code, status.reasons) if status is not None else None


def score(plugin: str, pod: Pod, *nodes: Node, assigned: tuple[Pod, ...] = ()) -> list[int]:
    """Return a plugin's normalised scores of the nodes."""
    scores = verdicts(pod, *nodes, assigned=assigned).scores[plugin]
    return [scores[node.name].normalized for node in nodes]


def test_a_cordoned_node_refuses_pods_that_do_not_tolerate_it() -> None:
    """A toleration of its taint, of any effect, opens it."""
    node = make_node("n").unschedulable().obj()
    expected = (
        "NodeUnschedulable",
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        ("node(s) were unschedulable",),
    )
    assert refusal(make_pod().obj(), node) == expected
    tolerant = make_pod().toleration("node.kubernetes.io/unschedulable", operator="Exists").obj()
    assert refusal(tolerant, node) is None


def test_a_pod_that_names_its_node_fits_no_other() -> None:
    """By spec.nodeName."""
    evaluated = verdicts(make_pod().node("a").obj(), make_node("a").obj(), make_node("b").obj())
    assert evaluated.feasible == ("a",)
    assert evaluated.refusals["b"].reasons == ("node(s) didn't match the requested node name",)


def test_the_first_untolerated_taint_is_named() -> None:
    """PreferNoSchedule ones do not refuse."""
    node = make_node("n").taint("a", "1", "PreferNoSchedule").taint("b", "2").taint("c", "3").obj()
    assert refusal(make_pod().toleration("b", "2").obj(), node) == (
        "TaintToleration",
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        ("node(s) had untolerated taint {c: 3}",),
    )


def test_an_equal_toleration_without_key_covers_any_key_of_its_value() -> None:
    """Upstream compares the value alone then."""
    node = make_node("n").taint("any", "v").obj()
    assert refusal(make_pod().toleration(value="v", operator="Equal").obj(), node) is None
    assert refusal(make_pod().toleration(value="w", operator="Equal").obj(), node) is not None


def test_fewer_untolerated_soft_taints_are_better() -> None:
    """The most tainted node gets 0; without any taint all get 100."""
    clean = make_node("a").obj()
    one = make_node("b").taint("x", effect="PreferNoSchedule").obj()
    two = make_node("c").taint("x", effect="PreferNoSchedule").taint("y", effect="PreferNoSchedule")
    assert score("TaintToleration", make_pod().obj(), clean, one, two.obj()) == [100, 50, 0]
    assert score("TaintToleration", make_pod().obj(), clean) == [100]


@pytest.mark.parametrize(
    ("pod", "fits"),
    [
        (make_pod().node_selector(disk="ssd").obj(), True),
        (make_pod().node_selector(disk="ssd", zone="z").obj(), False),
        (make_pod().node_affinity_in("disk", "hdd", "ssd").obj(), True),
        (make_pod().required_terms().obj(), False),
        (make_pod().required_terms(NodeSelectorTerm()).obj(), False),
    ],
)
def test_required_labels_decide(pod: Pod, fits: bool) -> None:
    """Selectors must match; no term, or an empty one, matches nothing."""
    refused = refusal(pod, make_node("n").label("disk", "ssd").obj())
    assert (refused is None) is fits
    if refused is not None:
        assert refused[2] == ("node(s) didn't match Pod's node affinity/selector",)


def names(*nodes: str) -> NodeSelectorTerm:
    """Return a term that names nodes."""
    return NodeSelectorTerm(match_fields=(requirement("metadata.name", "In", *nodes),))


def test_a_pod_that_names_nodes_by_field_is_tried_on_those_alone() -> None:
    """The others get PreFilter's words."""
    pod = make_pod().required_terms(names("a"), names("c")).obj()
    evaluated = verdicts(pod, *(make_node(name).obj() for name in "abc"))
    assert evaluated.feasible == ("a", "c")
    assert evaluated.pre_filtered == {"b"}
    assert evaluated.refusals["b"].reasons == ("node(s) didn't satisfy plugin(s) [NodeAffinity]",)


def test_terms_that_name_no_node_in_common_conflict() -> None:
    """Within one term the requirements are joined."""
    fields = (requirement("metadata.name", "In", "a"), requirement("metadata.name", "In", "b"))
    pod = make_pod().required_terms(NodeSelectorTerm(match_fields=fields)).obj()
    evaluated = verdicts(pod, make_node("a").obj())
    assert evaluated.refusals["a"].reasons == ("pod affinity terms conflict",)


def test_preferred_terms_add_their_weights() -> None:
    """The best node gets 100."""
    pod = (
        make_pod()
        .preferred(20, requirement("disk", "In", "ssd"))
        .preferred(60, requirement("fast", "Exists"))
        .preferred(9)
        .obj()
    )
    nodes = [
        make_node("a").label("disk", "ssd").obj(),
        make_node("b").label("fast", "").label("disk", "ssd").obj(),
        make_node("c").obj(),
    ]
    assert score("NodeAffinity", pod, *nodes) == [25, 100, 0]


def test_a_held_host_port_refuses_and_may_become_free() -> None:
    """Preemption can help."""
    holder = make_pod("holder").host_port(80).node("n").obj()
    node = make_node("n").obj()
    assert refusal(make_pod().host_port(80).obj(), node, holder) == (
        "NodePorts",
        Code.UNSCHEDULABLE,
        ("node(s) didn't have free ports for the requested pod ports",),
    )
    assert refusal(make_pod().host_port(80, protocol="UDP").obj(), node, holder) is None


def test_every_shortage_is_named() -> None:
    """The pod limit first, then the resources."""
    node = make_node("n").capacity({**ROOMY, "pods": 1}).obj()
    holder = make_pod("holder").req({"cpu": "7", "example.com/gpu": 2}).node("n").obj()
    pod = make_pod().req({"example.com/gpu": 1, "memory": "1Gi", "cpu": "2"}).obj()
    assert refusal(pod, node, holder) == (
        "NodeResourcesFit",
        Code.UNSCHEDULABLE,
        ("Too many pods", "Insufficient cpu", "Insufficient example.com/gpu"),
    )


def test_a_request_beyond_the_whole_node_cannot_be_cured() -> None:
    """No pod's leaving helps."""
    refused = refusal(make_pod().req(cpu="9").obj(), make_node("n").capacity(ROOMY).obj())
    assert refused == (
        "NodeResourcesFit",
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        ("Insufficient cpu",),
    )


def test_a_request_of_zero_fits_even_where_the_node_has_none_or_too_little() -> None:
    """Over-committed and absent resources do not matter then."""
    node = make_node("n").capacity(cpu="1").obj()
    holder = make_pod("holder").req(cpu="3").node("n").obj()
    assert refusal(make_pod().req({"cpu": 0, "example.com/gpu": 0}).obj(), node, holder) is None


def test_the_emptier_node_is_better() -> None:
    """LeastAllocated: (100 - 50, truncated, and 100 - 25) in the mean."""
    nodes = [make_node(name).capacity(cpu="4", memory="8Gi").obj() for name in "ab"]
    holder = make_pod("holder").req(cpu="1", memory="2Gi").node("a").obj()
    pod = make_pod().req(cpu="1", memory="1Gi").obj()
    assert score("NodeResourcesFit", pod, *nodes, assigned=(holder,)) == [56, 81]


def test_an_evenly_used_node_is_better() -> None:
    """BalancedAllocation: half the difference of the used fractions is taken off."""
    nodes = [
        make_node("a").capacity(cpu="4", memory="4Gi").obj(),
        make_node("b").capacity(cpu="4", memory="8Gi").obj(),
    ]
    pod = make_pod().req(cpu="2", memory="2Gi").obj()
    assert score("NodeResourcesBalancedAllocation", pod, *nodes) == [100, 87]


def test_a_pod_without_requests_is_not_balanced() -> None:
    """The plugin is skipped, and adds nothing."""
    evaluated = verdicts(make_pod().container().obj(), make_node("n").capacity(ROOMY).obj())
    assert "NodeResourcesBalancedAllocation" in evaluated.skipped_scores


def test_images_count_by_size_and_by_how_many_nodes_have_them() -> None:
    """An untagged name means latest; below 23 MiB nothing counts."""
    mib = 1024 * 1024
    nodes = [
        make_node("a").image(1000 * mib, "registry:5000/web:latest").obj(),
        make_node("b").image(20 * mib, "registry:5000/web").obj(),
    ]
    pod = make_pod().image("registry:5000/web").obj()
    assert score("ImageLocality", pod, *nodes) == [100 * (500 - 23) // (1000 - 23), 0]


def test_gates_keep_a_pod_out_of_the_queue() -> None:
    """PreEnqueue names them; without gates the pod goes in."""
    framework = Framework(Snapshot())
    status = framework.pre_enqueue(make_pod().gates("quota", "licence").obj())
    assert status is not None
    assert status.reasons == ("waiting for scheduling gates: [quota licence]",)
    assert framework.pre_enqueue(make_pod().obj()) is None


def test_the_order_by_priority_is_left_to_the_queue() -> None:
    """PrioritySort is the queue's own order, for which an empty key stands."""
    framework = Framework(Snapshot())
    assert framework.sort_key(make_pod("high").priority(9).obj()) == b""
