"""Compiles or loads every kernel before the first pod needs it.

A service runs this before it reports that it serves, unless it is started for a small replay. The
build of an image runs it to fill numba's cache on disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from services.framework.columns.kernels import Kernel
from services.framework.preemption.batch_dry_run import BatchDryRun
from services.framework.preemption.candidates import pick_one_node
from services.framework.preemption.rules import V1_34
from services.framework.runtime.failed_cycle import FitError
from services.framework.runtime.framework import Framework
from services.framework.runtime.merged_columns import NO_NODE
from services.framework.snapshot.snapshot import Snapshot
from services.kube.node import LABEL_HOSTNAME, LABEL_ZONE, Node
from services.kube.pod import Container, Pod, PodSpec
from services.kube.selector import (
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    UnsatisfiableAction,
    WeightedPodAffinityTerm,
)
from services.kube.taints import Taint, TaintEffect
from services.kube.workloads import PodDisruptionBudget
from services.scheduler.core.cycle.attempt import ProfileCycles
from services.scheduler.core.cycle.host_choice import KeyedChoice, NamedChoice


def warm_up(compiling: Callable[[int, int], None] = lambda _done, _all: None) -> None:
    """Schedule a few pods on a small cluster, so that each kernel has been called once.

    `compiling` receives how many of all kernels were compiled, after each of them; not where they
    are loaded from disk. From now on this process compiles every kernel at its first call.
    """
    done = itertools.count(1)
    Kernel.plain_steps = 0
    Kernel.on_compiled = lambda: compiling(next(done), Kernel.count)
    snapshot = Snapshot()
    capacity = {"cpu": 4000, "memory": 1 << 33, "pods": 110}
    disliked = Taint(key="disliked", effect=TaintEffect.PREFER_NO_SCHEDULE)
    for name, taints in (("a", ()), ("b", ()), ("c", (disliked,))):
        snapshot.set_node(Node(name=name, allocatable=capacity, taints=taints))
    cycles = ProfileCycles(Framework(snapshot), KeyedChoice(0))
    spec = PodSpec(containers=(Container(name="c", requests={"cpu": 100, "memory": 1 << 20}),))
    best_effort = PodSpec(containers=(Container(name="c"),))
    first = Pod(uid="b", namespace="", name="", spec=best_effort)
    ProfileCycles(cycles.framework, NamedChoice()).schedule_pod(first, 1)
    cycles.schedule_pod(first, 1)
    for number in range(3):
        pod = Pod(uid=str(number), namespace="", name="", spec=spec)
        cycles.schedule_pod(pod, 1)
        for copy in ("x", "y"):
            assumed = Pod(uid=f"{number}{copy}", namespace="", name="", spec=spec)
            snapshot.assume(assumed, "a")
    _constrain(cycles, snapshot)
    _preempt(cycles, snapshot)
    Kernel.on_compiled = None


def _constrain(cycles: ProfileCycles, snapshot: Snapshot) -> None:
    """Schedule pods with inter-pod affinity, anti-affinity and topology spread constraints."""
    everybody = LabelSelector()
    near = PodAffinityTerm(topology_key=LABEL_HOSTNAME, selector=everybody)
    wish = WeightedPodAffinityTerm(weight=1, term=near)
    affinity = PodAffinity(required=(near,), preferred=(wish,))
    constraints = tuple(
        TopologySpreadConstraint(
            max_skew=9, topology_key=key, when_unsatisfiable=action, selector=everybody
        )
        for action in UnsatisfiableAction
        for key in (LABEL_HOSTNAME, LABEL_ZONE)
    )
    labels = {LABEL_HOSTNAME: "d", LABEL_ZONE: "z"}
    for name in "de":
        snapshot.set_node(Node(name=name, labels=labels, allocatable={"pods": 9}))
    for uid, spec in (
        ("near", PodSpec(pod_affinity=affinity)),
        ("away", PodSpec(pod_anti_affinity=affinity)),
        ("spread", PodSpec(topology_spread_constraints=constraints)),
    ):
        for place in "de":
            snapshot.assume(Pod(uid=uid + place, namespace="", name="", spec=spec), place)
        pod = Pod(uid=uid, namespace="", name="", spec=spec)
        cycles.schedule_pod(pod, 1)
        everywhere = np.where(snapshot.columns.alive, 0, NO_NODE).astype(np.int8)
        verdicts = cycles.framework.verdicts.synced(pod)
        verdicts.totals().normalized_totals(everywhere)
    for name in "de":
        snapshot.remove_node(name)


def _preempt(cycles: ProfileCycles, snapshot: Snapshot) -> None:
    """Schedule a pod that needs preemption; a PodDisruptionBudget covers the victims."""
    snapshot.set_budget(PodDisruptionBudget(namespace="", name="b", selector=LabelSelector()))
    whole = Container(name="c", requests={"cpu": 4000})
    for name in "abc":
        below = Pod(uid=name, namespace="", name="", spec=PodSpec(containers=(whole,)))
        snapshot.assume(below, name)
    pod = Pod(uid="p", namespace="", name="", spec=PodSpec(containers=(whole,), priority=1))
    result = cycles.schedule_pod(pod, 1)
    assert isinstance(result, FitError)
    result.batch = BatchDryRun(snapshot, V1_34)
    batch = result.batch_dry_run(0)
    assert batch is not None
    pick_one_node(batch.criteria, batch.names, rules=V1_34, tie_break=min)
