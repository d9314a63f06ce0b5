"""Cached verdicts are exact: after any changes they are those of a cluster built from scratch."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.framework.columns.columns import Int64s
from services.framework.plugin import FilterPlugin, PodColumnsPlugin, PreFiltered, Scope
from services.framework.plugins.in_tree import DEFAULT_PROFILE, SERVED
from services.framework.profile import PluginSetting
from services.framework.runtime.framework import Framework
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.node import Node
from services.kube.pod import Pod
from services.scheduler.core.cycle.attempt import ProfileCycles
from services.scheduler.core.cycle.evaluate import NodeVerdicts
from services.scheduler.core.cycle.host_choice import KeyedChoice
from services.scheduler.core.decisions import Binding
from tests.builders import make_node, make_pod
from tests.cycles import dry_run_on, evaluate

NODES = [f"n{i}" for i in range(20)]
SHAPES = [
    make_pod("plain").req(cpu="500m", memory="1Gi").obj(),
    make_pod("empty").container().obj(),
    make_pod("gpu").req({"cpu": "1", "example.com/gpu": "1"}).obj(),
    make_pod("port").host_port(80).obj(),
    make_pod("tolerant").req(cpu="2").toleration("dedicated", operator="Exists").obj(),
    make_pod("picky").image("big").node_selector(disk="ssd").obj(),
    make_pod("wishful").req(memory="3Gi").preferred(5).node_affinity_in("disk", "ssd", "hdd").obj(),
    make_pod("named").node("n3").obj(),
]


class Seats(FilterPlugin[int], PodColumnsPlugin):
    """Refuses a node where two pods have a seat: a filter over a column of its own."""

    name = "Seats"
    scope = Scope.PODS

    def pod_came(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Count a pod that has a seat."""
        snapshot.columns.owned(self.name)[row] += len(pod.spec.node_selector)

    def pod_went(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Remove the pod."""
        snapshot.columns.owned(self.name)[row] -= len(pod.spec.node_selector)

    def came_to_view(self, pod: Pod, view: NodeView) -> None:
        """Count it in a dry run."""
        view.change_owned(self.name, len(pod.spec.node_selector))

    def went_from_view(self, pod: Pod, view: NodeView) -> None:
        """Remove the pod in a dry run."""
        view.change_owned(self.name, -len(pod.spec.node_selector))

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return that all pods are alike."""
        return "seated"

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[int]:  # noqa: ARG002 - unused
        """Allow for two."""
        return PreFiltered(data=2)

    def filter_node(self, data: int, view: NodeView) -> int:
        """Refuse a node whose seats are taken."""
        return int(view.owned(self.name) >= data)

    def filter(self, data: int, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        """Refuse the rows whose seats are taken."""
        codes[rows] = snapshot.columns.owned(self.name)[rows] >= data

    def filter_status(self, data: int, code: int) -> Status:  # noqa: ARG002 - one status only
        """Return the only refusal."""
        return Status(code=Code.UNSCHEDULABLE, plugin=self.name, reasons=("no seat",))


PROFILE = replace(
    DEFAULT_PROFILE, plugins=(*DEFAULT_PROFILE.plugins, PluginSetting(name=Seats.name))
)
REGISTRY = {**SERVED, Seats.name: Seats}

names = st.sampled_from(NODES)
shapes = st.sampled_from(SHAPES)
numbers = st.integers(0, 12)


class Changes(RuleBasedStateMachine):
    """Changes a snapshot at random and compares it with a fresh one."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshot = Snapshot()
        self.framework = Framework(self.snapshot, PROFILE, REGISTRY)
        self.turn = 0
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.nominated: dict[str, tuple[Pod, str]] = {}
        self.set_node("n0", 4, "ssd", 0)

    @rule(name=names, cpu=st.integers(1, 8), disk=st.sampled_from(["ssd", "hdd"]), kind=numbers)
    def set_node(self, name: str, cpu: int, disk: str, kind: int) -> None:
        """Add a node or change it."""
        builder = make_node(name).capacity(
            {"cpu": cpu, "memory": "8Gi", "example.com/gpu": kind % 2, "pods": 4}
        )
        builder.label("disk", disk).zone(f"z{kind % 3}")
        if kind % 4 == 1:
            builder.taint("dedicated", "x", "NoSchedule" if kind > 4 else "PreferNoSchedule")
        if kind % 5 == 2:
            builder.unschedulable()
        if kind % 3 == 0:
            builder.image(700_000_000, "big:latest")
        self.nodes[name] = builder.obj()
        self.snapshot.set_node(self.nodes[name])

    @rule(name=names)
    def remove_node(self, name: str) -> None:
        """Remove a node, if it is there."""
        self.nodes.pop(name, None)
        self.snapshot.remove_node(name)

    @rule(number=numbers, shape=shapes, node=names)
    def set_pod(self, number: int, shape: Pod, node: str) -> None:
        """Add an assigned pod, or move or change it."""
        pod = replace(shape, uid=f"u{number}", name=f"p{number}", node_name=node)
        self.pods[pod.uid] = pod
        self.snapshot.set_pod(pod)

    @rule(number=numbers)
    def remove_pod(self, number: int) -> None:
        """Remove a pod, if it is there."""
        self.pods.pop(f"u{number}", None)
        self.snapshot.remove_pod(f"u{number}")

    @rule(shape=shapes, node=names)
    def assume_and_forget(self, shape: Pod, node: str) -> None:
        """Assume a pod and give it back."""
        self.snapshot.assume(replace(shape, uid="assumed"), node)
        self.snapshot.forget("assumed")

    @rule(number=numbers, shape=shapes, node=names)
    def nominate(self, number: int, shape: Pod, node: str) -> None:
        """Nominate a pending pod."""
        pod = replace(shape, uid=f"pending{number}", node_name="")
        self.nominated.pop(pod.uid, None)
        self.nominated[pod.uid] = (pod, node)
        self.snapshot.nominations.put(pod, node)

    @rule(number=numbers)
    def drop_nomination(self, number: int) -> None:
        """Forget a nomination, if it is there."""
        self.nominated.pop(f"pending{number}", None)
        self.snapshot.nominations.drop(f"pending{number}")

    @rule(node=names, shape=shapes)
    def dry_run_and_put_back(self, node: str, shape: Pod) -> None:
        """Take every pod off a node hypothetically: an empty node's verdict, and the old one."""
        row = self.snapshot.row(node)
        if row is None or shape.node_name:
            return
        dry_run = dry_run_on(self.framework, shape, row)
        before, pods = dry_run.refusal(), list(dry_run.pods())
        for pod in pods:
            dry_run.remove(pod)
        empty = Snapshot()
        empty.set_node(self.nodes[node])
        for pod, node_name in self.nominated.values():
            empty.nominations.put(pod, node_name)
        alone = Framework(empty, PROFILE, REGISTRY)
        assert dry_run.refusal() == dry_run_on(alone, shape, empty.row(node) or 0).refusal()
        for pod in pods:
            dry_run.add(pod)
        assert dry_run.refusal() == before

    @invariant()
    def verdicts_are_those_of_a_cluster_built_anew(self) -> None:
        """Compare every verdict about two shapes; caches of other shapes become stale meanwhile."""
        fresh = Snapshot()
        for node in self.nodes.values():
            fresh.set_node(node)
        for pod in self.pods.values():
            fresh.set_pod(pod)
        for pod, node_name in self.nominated.values():
            fresh.nominations.put(pod, node_name)
        framework = Framework(fresh, PROFILE, REGISTRY)
        self.turn += 1
        for turn in (self.turn, self.turn * 3 + 1):
            shape = SHAPES[turn % len(SHAPES)]
            verdicts = evaluate(self.framework, shape)
            assert verdicts == evaluate(framework, shape)
            self._choice_is_one_of_the_best(shape, verdicts)

    def _choice_is_one_of_the_best(self, shape: Pod, verdicts: NodeVerdicts) -> None:
        result = ProfileCycles(self.framework, KeyedChoice(1)).schedule_pod(shape, 1)
        if isinstance(result, Binding):
            assert result.node_name in verdicts.best
            assert (result.feasible, result.tied) == (len(verdicts.feasible), len(verdicts.best))
            assert result.total in {None, verdicts.totals[result.node_name]}
        else:
            assert not verdicts.feasible


Changes.TestCase.settings = settings(max_examples=25, stateful_step_count=25)
TestCachedVerdicts = Changes.TestCase
