"""State that the autoscaler caches between scans to save work never changes a scan's decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from services.autoscaler.core.autoscaler import Autoscaler, Gone
from services.autoscaler.core.calls import Call, Calls, Done
from services.autoscaler.core.groups import Instance, NodeGroup
from services.autoscaler.core.objects import ClusterPod, ReplicaController
from services.autoscaler.core.options import GroupOptions, Options
from services.autoscaler.core.scale_down.kept_removals import KeptRemovals
from services.autoscaler.core.scale_down.per_node import PerNode
from services.kube.node import LABEL_HOSTNAME
from services.kube.pod import Condition
from services.kube.selector import (
    LabelSelector,
    Operator,
    PodAffinity,
    PodAffinityTerm,
    Requirement,
    TopologySpreadConstraint,
    UnsatisfiableAction,
)
from services.kube.time import HOUR_NS, MINUTE_NS, SECOND_NS
from services.kube.workloads import PodDisruptionBudget
from tests.unit.autoscaler.builders import make_node, make_pod, make_spec

START_NS = 100 * HOUR_NS
REFUSED = Condition(type="PodScheduled", status="False", reason="Unschedulable")
APP = Requirement(key="app", operator=Operator.IN, values=("x",))
EVERYBODY = LabelSelector(requirements=(APP,))
SPREAD = TopologySpreadConstraint(
    max_skew=1,
    topology_key=LABEL_HOSTNAME,
    when_unsatisfiable=UnsatisfiableAction.DO_NOT_SCHEDULE,
    selector=EVERYBODY,
)
APART = PodAffinity(required=(PodAffinityTerm(topology_key=LABEL_HOSTNAME, selector=EVERYBODY),))
SPECS = [
    *(make_spec(cpu) for cpu in (100, 900, 1500, 2500)),
    make_spec(200, spread=(SPREAD,)),
    replace(make_spec(300), pod_anti_affinity=APART),
]
NODES = [f"n{number}" for number in range(5)]
OPTIONS = Options(group_defaults=GroupOptions(scale_down_unneeded_ns=MINUTE_NS))
CONTROLLER = ReplicaController(kind="ReplicaSet", namespace="default", name="owner")
Change = tuple[str, int, int]
T = TypeVar("T")


def judged_by_cluster(_pod: ClusterPod) -> bool:
    """Have a snapshot take a verdict about any pod to follow from the whole cluster."""
    return False


def forget(autoscaler: Autoscaler) -> None:
    """Drop an autoscaler's caches."""
    planner = autoscaler.planner
    planner.emptiness, planner.measured, planner.moved = PerNode(), PerNode(), PerNode()
    planner.kept = KeptRemovals()


def apply(autoscaler: Autoscaler, change: Change, at_ns: int) -> None:
    """Change the cluster: what kind of change, of which object, to which state."""
    kind, number, state = change
    name = NODES[number % len(NODES)]
    match kind:
        case "node":
            autoscaler.apply(
                make_node(name, ready=state != 2, unschedulable=state == 4)
                if state
                else Gone(kind="Node", key=name)
            )
        case "pod":
            autoscaler.apply(a_pod(number, state, at_ns))
        case "no pod":
            autoscaler.apply(Gone(kind="Pod", key=a_pod(number, 0, at_ns).key))
        case "budget":
            autoscaler.apply(
                PodDisruptionBudget(
                    namespace="default", name="b", selector=EVERYBODY, disruptions_allowed=state % 3
                )
            )
        case "controller":
            autoscaler.apply(
                Gone(kind="ReplicaSet", key="default/owner") if state % 2 else CONTROLLER
            )
        case "group":
            put_group(autoscaler, state)


def a_pod(number: int, state: int, at_ns: int) -> ClusterPod:
    """Return a pod on a node or pending, of a system or not, about to go or not."""
    on = NODES[(number + state) % len(NODES)] if state % 4 else ""
    pod = make_pod(
        f"p{number}",
        SPECS[state % len(SPECS)],
        node=on,
        labels={"app": "x"},
        namespace="kube-system" if number % 3 == 0 else "default",
        owner="DaemonSet" if state == 7 else "ReplicaSet",
        creation_ns=at_ns - (HOUR_NS - MINUTE_NS),
        deletion_ns=at_ns + 5 * SECOND_NS if state == 5 else None,
    )
    if on:
        return pod
    return replace(pod, pod=replace(pod.pod, conditions=(REFUSED,)))


def put_group(autoscaler: Autoscaler, state: int) -> None:
    """Put group "g", to which all nodes belong."""
    autoscaler.apply(
        NodeGroup(
            name="g",
            min_size=state % 2,
            max_size=len(NODES) + 3,
            target=len(NODES),
            template=make_node("template"),
            instances=tuple(Instance(provider_id=f"test://g/{name}") for name in NODES),
            options=replace(OPTIONS.group_defaults, ignore_daemonsets_utilization=state >= 4),
        )
    )


def carried_out(step: Calls[T]) -> tuple[list[Call], T]:
    """Run a step to its end; every call is carried out, without a report."""
    calls: list[Call] = []
    try:
        calls.append(next(step))
        while True:
            calls.append(step.send(Done()))
    except StopIteration as end:
        result: T = end.value
    return calls, result


changes = st.tuples(
    st.sampled_from(
        ("node", "pod", "pod", "pod", "pod", "no pod", "budget", "controller", "group")
    ),
    st.integers(0, 9),
    st.integers(0, 11),
)
scans = st.lists(
    st.tuples(
        st.sampled_from([seconds * SECOND_NS for seconds in (10, 10, 31, 301)]),
        st.lists(changes, max_size=2),
    ),
    min_size=2,
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(changes, min_size=8, max_size=14), scans)
def test_a_scan_decides_the_same_without_what_was_kept_to_save_work(
    before: list[Change], later: list[tuple[int, list[Change]]]
) -> None:
    """Reports, calls, the search's place, and the hints; whatever changes, and as time passes."""
    keeping, forgetting = (Autoscaler(OPTIONS, lambda names: names[0]) for _ in range(2))
    forgetting.snapshot.is_judged_by_node = judged_by_cluster  # type: ignore[method-assign, assignment]
    at_ns = START_NS
    for autoscaler in (keeping, forgetting):
        for name in NODES:
            autoscaler.apply(make_node(name))
        put_group(autoscaler, 0)
        autoscaler.apply(CONTROLLER)
        for change in before:
            apply(autoscaler, change, at_ns)
        autoscaler.start(at_ns)
    for wait_ns, batch in later:
        at_ns += wait_ns
        for change in batch:
            for autoscaler in (keeping, forgetting):
                apply(autoscaler, change, at_ns)
        forget(forgetting)
        found = []
        for autoscaler in (keeping, forgetting):
            steps = carried_out(autoscaler.act(at_ns)), carried_out(autoscaler.scan(at_ns))
            hints = autoscaler.pod_hints, autoscaler.planner.hints
            found.append(repr((steps, autoscaler.snapshot.last_place, hints)))
        assert found[0] == found[1]
