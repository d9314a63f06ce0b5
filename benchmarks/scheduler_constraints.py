"""What constraints between pods cost in the scheduler's core: spread, affinity, and preemption.

Each case decides pods one after the other on a cluster of ten pods a node, each on what the one
before has changed. Run it as `python -m benchmarks.scheduler_constraints [NODES...]`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace

from benchmarks.scheduler_core import ROUNDS, timed
from services.framework.runtime.diagnosis import Unschedulable
from services.kube.node import LABEL_HOSTNAME, LABEL_ZONE, Node
from services.kube.pod import Container, Pod, PodSpec
from services.kube.selector import (
    LabelSelector,
    Operator,
    PodAffinity,
    PodAffinityTerm,
    Requirement,
    TopologySpreadConstraint,
    UnsatisfiableAction,
    WeightedPodAffinityTerm,
)
from services.scheduler.core.decisions import Binding
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.core.session.warm_up import warm_up

GIB = 1 << 30
CAPACITY = {"cpu": 32_000, "memory": 128 * GIB, "pods": 110}
APPS = 50
ZONES = 3
PODS_EACH = 10


def selector(app: str) -> LabelSelector:
    """Return what selects an application's pods."""
    return LabelSelector(
        requirements=(Requirement(key="app", operator=Operator.IN, values=(app,)),)
    )


def plain(cpu_milli: int = 100, priority: int = 0) -> PodSpec:
    """Return a spec without constraints."""
    container = Container(name="c", requests={"cpu": cpu_milli, "memory": GIB})
    return PodSpec(containers=(container,), priority=priority)


def spread(
    app: str, action: UnsatisfiableAction, priority: int = 0, cpu_milli: int = 100
) -> PodSpec:
    """Return a spec that spreads its application over zones and over nodes."""
    constraints = tuple(
        TopologySpreadConstraint(
            max_skew=skew, topology_key=key, when_unsatisfiable=action, selector=selector(app)
        )
        for key, skew in ((LABEL_ZONE, 5), (LABEL_HOSTNAME, 2))
    )
    container = Container(name="c", requests={"cpu": cpu_milli, "memory": GIB})
    return PodSpec(
        containers=(container,), topology_spread_constraints=constraints, priority=priority
    )


def apart(app: str, priority: int = 0, cpu_milli: int = 100) -> PodSpec:
    """Return a spec that keeps an application's pods on nodes of their own, near in a zone."""
    container = Container(name="c", requests={"cpu": cpu_milli, "memory": GIB})
    host = PodAffinityTerm(topology_key=LABEL_HOSTNAME, selector=selector(app))
    zone = PodAffinityTerm(topology_key=LABEL_ZONE, selector=selector(app))
    return PodSpec(
        containers=(container,),
        pod_affinity=PodAffinity(preferred=(WeightedPodAffinityTerm(weight=10, term=zone),)),
        pod_anti_affinity=PodAffinity(required=(host,)),
        priority=priority,
    )


def scheduler_of(nodes: int, specs: list[PodSpec]) -> Scheduler:
    """Return a cluster of `nodes` in three zones whose pods have `specs` in turn."""
    scheduler = Scheduler(SchedulerOptions(rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.20"]))
    for number in range(nodes):
        name = f"node-{number}"
        labels = {LABEL_HOSTNAME: name, LABEL_ZONE: f"zone-{number % ZONES}"}
        scheduler.put_node(Node(name=name, labels=labels, allocatable=CAPACITY))
        for place in range(PODS_EACH):
            app = (number * PODS_EACH + place) % len(specs)
            uid = f"{name}-{place}"
            running = Pod(
                uid=uid,
                namespace="default",
                name=uid,
                spec=specs[app],
                labels={"app": f"app-{app}"},
                node_name=name,
                start_time_ns=(number * 7 + place * 13) % 1000,
            )
            scheduler.put_pod(running)
    return scheduler


def in_turn(specs: list[PodSpec]) -> Iterator[tuple[PodSpec, Mapping[str, str]]]:
    """Yield the specs in turn, with their applications."""
    number = 0
    while True:
        yield specs[number % len(specs)], {"app": f"app-{number % len(specs)}"}
        number += 1


def spreading(nodes: int, action: UnsatisfiableAction) -> float:
    """Bind pods of 50 applications that spread."""
    specs = [spread(f"app-{app}", action) for app in range(APPS)]
    return timed(scheduler_of(nodes, specs), in_turn(specs), Binding)


def staying_apart(nodes: int) -> float:
    """Bind pods of 500 applications, each with anti-affinity to itself."""
    apps = 500
    specs = [apart(f"app-{app}") for app in range(apps)]
    return timed(scheduler_of(nodes, specs), in_turn(specs), Binding)


def plain_among_others(nodes: int) -> float:
    """Bind plain pods among pods that have affinity and spread."""
    specs = [apart(f"app-{app}") for app in range(APPS)]
    plains = [plain() for _ in range(APPS)]
    pods = ((spec, {"app": f"other-{number}"}) for number, spec in enumerate(plains * ROUNDS))
    return timed(scheduler_of(nodes, specs), pods, Binding)


def preempting(nodes: int, wanting: PodSpec) -> float:
    """Find victims for pods with constraints on full nodes of ten pods of lower priority."""
    scheduler = scheduler_of(nodes, [plain(3200) for _ in range(APPS)])
    pods = ((wanting, {"app": "new"}) for _ in range(10))
    return timed(scheduler, pods, Unschedulable)


def preemptors() -> Iterator[tuple[str, PodSpec]]:
    """Yield specs that preempt, one for each constraint."""
    big = plain(6000, priority=10)
    yield "spread", spread("new", UnsatisfiableAction.DO_NOT_SCHEDULE, 10, 6000)
    yield "anti-affinity", replace(big, pod_anti_affinity=apart("new").pod_anti_affinity)
    zone = PodAffinityTerm(topology_key=LABEL_ZONE, selector=selector("app-0"))
    yield "affinity", replace(big, pod_affinity=PodAffinity(required=(zone,)))


def main() -> None:
    """Print the cases."""
    warm_up()
    for nodes in [int(text) for text in sys.argv[1:]] or [1000, 5000]:
        forbid, prefer = UnsatisfiableAction
        print(f"{spreading(nodes, forbid):10.1f} us  spread, DoNotSchedule, {nodes:,} nodes")
        print(f"{spreading(nodes, prefer):10.1f} us  spread, ScheduleAnyway, {nodes:,} nodes")
        print(f"{staying_apart(nodes):10.1f} us  anti-affinity, 500 applications, {nodes:,} nodes")
        print(f"{plain_among_others(nodes):10.1f} us  plain pods among those, {nodes:,} nodes")
        for name, wanting in preemptors():
            taken = preempting(nodes, wanting)
            print(f"{taken:10.1f} us  preempt with {name}, {nodes:,} nodes of 10 victims")


if __name__ == "__main__":
    main()
