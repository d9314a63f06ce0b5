"""An estimate where requests alone decide is that of pods tried one by one on simulated nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.autoscaler.core.equivalence import EquivalenceGroup
from services.autoscaler.core.estimator import packing_kernel
from services.autoscaler.core.estimator.binpacking import estimate
from services.autoscaler.core.estimator.limits import NodeLimiter
from services.autoscaler.core.objects import ClusterNode, ClusterPod
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot
from services.autoscaler.core.simulator.templates import NodeTemplate
from services.framework.columns.kernels import Kernel
from services.kube.node import LABEL_HOSTNAME, LABEL_ZONE
from services.kube.pod import Container, ContainerPort, NodeAffinity, PodSpec
from services.kube.selector import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Operator,
    PodAffinity,
    PodAffinityTerm,
    Requirement,
    TopologySpreadConstraint,
    UnsatisfiableAction,
)
from services.kube.taints import Toleration
from tests.unit.autoscaler.builders import make_node, make_pod

pytestmark = pytest.mark.usefixtures("tier")

APPS = ("a", "b", "c")
KINDS = ("plain", "plain", "plain", "port", "apart", "near", "hosts", "zones", "named")


def selector(app: str) -> LabelSelector:
    """Return a selector for the pods of an app."""
    requirement = Requirement(key="app", operator=Operator.IN, values=(app,))
    return LabelSelector(requirements=(requirement,))


def spec_of(kind: str, cpu: int, memory: int, app: str) -> PodSpec:
    """Return a spec; `app` is the label of the pods that its constraint counts."""
    port = (ContainerPort(host_port=80),) if kind == "port" else ()
    requests = {"cpu": cpu, "memory": memory * 2**30, "example.com/device": cpu // 1500}
    spec = PodSpec(containers=(Container(name="c", requests=requests, ports=port),))
    term = PodAffinityTerm(topology_key=LABEL_HOSTNAME, selector=selector(app))
    match kind:
        case "apart":
            return replace(spec, pod_anti_affinity=PodAffinity(required=(term,)))
        case "near":
            return replace(spec, pod_affinity=PodAffinity(required=(term,)))
        case "hosts" | "zones":
            spread = TopologySpreadConstraint(
                max_skew=2,
                topology_key=LABEL_HOSTNAME if kind == "hosts" else LABEL_ZONE,
                when_unsatisfiable=UnsatisfiableAction.DO_NOT_SCHEDULE,
                selector=selector(app),
            )
            return replace(spec, topology_spread_constraints=(spread,))
        case "named":
            other = Requirement(key=LABEL_HOSTNAME, operator=Operator.NOT_IN, values=("t-e-0",))
            required = NodeSelector(terms=(NodeSelectorTerm(match_expressions=(other,)),))
            return replace(spec, node_affinity=NodeAffinity(required=required))
    return spec


specs = st.builds(
    spec_of,
    st.sampled_from(KINDS),
    st.sampled_from((0, 300, 700, 1000, 1900, 3500, 9000)),
    st.integers(0, 3),
    st.sampled_from(APPS),
)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[ClusterNode], list[ClusterPod]]:
    """Draw a few nodes and the pods on them."""
    nodes = [
        make_node(f"n{number}", labels={LABEL_ZONE: f"z{number % 2}"})
        for number in range(draw(st.integers(0, 3)))
    ]
    pods = [
        make_pod(f"r{number}-{node.name}", spec, node=node.name, labels={"app": app})
        for node in nodes
        for number, (spec, app) in enumerate(
            draw(st.lists(st.tuples(specs, st.sampled_from(APPS)), max_size=2))
        )
    ]
    return nodes, pods


@st.composite
def templates(draw: st.DrawFn) -> NodeTemplate:
    """Draw a node of 4 cores with few or many pods and maybe a daemon pod, maybe cordoned."""
    node = make_node("t", labels={LABEL_ZONE: "z1"}, unschedulable=draw(st.booleans()))
    amounts = {
        **node.node.allocatable,
        "pods": draw(st.sampled_from((1, 4, 110))),
        "example.com/device": 3,
    }
    node = replace(node, node=replace(node.node, allocatable=amounts, capacity=amounts))
    daemons = draw(st.lists(specs, max_size=1))
    pods = [
        make_pod(f"d{number}", spec, node="t", owner="DaemonSet", labels={"app": "a"})
        for number, spec in enumerate(daemons)
    ]
    return NodeTemplate(node, tuple(pods))


@st.composite
def pending(draw: st.DrawFn) -> list[EquivalenceGroup]:
    """Draw groups of pods, all of which tolerate a cordon."""
    drawn = draw(
        st.lists(st.tuples(specs, st.sampled_from(APPS), st.integers(1, 9)), min_size=1, max_size=5)
    )
    everything = (Toleration(operator="Exists"),)
    return [
        EquivalenceGroup(
            tuple(
                make_pod(f"p{number}-{place}", tolerant, labels={"app": app})
                for place in range(count)
            )
        )
        for number, (spec, app, count) in enumerate(drawn)
        for tolerant in (replace(spec, tolerations=everything),)
    ]


@settings(max_examples=400, deadline=None)
@given(
    clusters(),
    templates(),
    pending(),
    st.sampled_from((0, 0, 1, 3, -1)),
    st.integers(0, 12),
    st.booleans(),
)
def test_both_ways_to_an_estimate_place_every_pod_on_the_same_node(
    cluster: tuple[list[ClusterNode], list[ClusterPod]],
    template: NodeTemplate,
    groups: list[EquivalenceGroup],
    limit: int,
    last_place: int,
    fastpath: bool,
) -> None:
    """And leave the search where it would be, and the limiter, and the snapshot as it was.

    Groups that are too large for a node are among those that pass.
    """

    def found(*, singly: bool) -> tuple[object, ...]:
        snapshot = ClusterSnapshot()
        snapshot.set_state(*cluster)
        snapshot.last_place = last_place
        snapshot.fork()
        snapshot.add(template.node, template.pods)
        fitting = [
            group
            for group in groups
            if (refusal := snapshot.refusal(group.sample, template.node.name)) is None
            or refusal.plugin == "NodeResourcesFit"
        ]
        snapshot.revert()
        limiter = NodeLimiter(limit)
        with pytest.MonkeyPatch.context() as patch:
            if singly:
                patch.setattr(ClusterSnapshot, "requests_that_decide", lambda _self, _pod: None)
            result = estimate(snapshot, template, fitting, limiter, fastpath=fastpath)
        placements = [(pod.key, name) for pod, name in result.placements]
        return (
            result.node_count,
            placements,
            snapshot.last_place,
            limiter.permitted,
            snapshot.names(),
        )

    assert found(singly=False) == found(singly=True)


def test_warming_up_compiles_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or loads it from disk, as an image has it."""
    monkeypatch.setattr(Kernel, "plain_steps", 10_000)
    monkeypatch.setattr(packing_kernel.pack, "machine_code", None)
    packing_kernel.warm_up()
    assert isinstance(packing_kernel.pack, Kernel)
    assert packing_kernel.pack.machine_code.signatures
