"""How the CPU time of a decision grows with nodes and shapes, in the scheduler's core alone.

Pods of so many shapes (specs) by turns are bound one after the other. The nodes are empty at first
and alike; or every third of them has a taint that pods would rather not tolerate; or a label of one
changes before each pod. The first pod of a shape, which is decided on all nodes, stands in a column
of its own. Run it as `python -m benchmarks.scheduler_growth`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time_ns

from benchmarks.scheduler_core import CAPACITY
from services.kube.node import Node
from services.kube.pod import EMPTY, Container, Pod, PodSpec
from services.kube.taints import Taint, TaintEffect
from services.scheduler.core.decisions import Binding
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import Head, PopId
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.core.session.warm_up import warm_up

MIB = 1 << 20
PODS = 2000
DISLIKED = (Taint(key="disliked", effect=TaintEffect.PREFER_NO_SCHEDULE),)
SIZES = ((1000, 1), (1000, 500), (5000, 1), (5000, 500), (50_000, 1), (50_000, 500))


def alike(number: int) -> Node:
    """Return a node."""
    return Node(name=f"node-{number}", allocatable=CAPACITY)


def tainted(number: int) -> Node:
    """Return a node, every third one with a taint."""
    taints = () if number % 3 else DISLIKED
    return Node(name=f"node-{number}", allocatable=CAPACITY, taints=taints)


def shape(number: int) -> PodSpec:
    """Return one of 500 specs, as the rows `AtOnce` have them."""
    requests = {"cpu": 100 + 10 * (number % 50), "memory": (128 + 64 * (number // 50)) * MIB}
    return PodSpec(containers=(Container(name="c", requests=requests),))


class Burst:
    """Binds pods of so many shapes; `change` returns the node that changes before the next one."""

    def __init__(
        self,
        nodes: int,
        shapes: int,
        node: Callable[[int], Node],
        change: Callable[[int], Node] | None = None,
    ) -> None:
        rules = RULES["v1.36"]
        queue = QUEUE_TRAITS[rules.queue_version]
        self.scheduler = Scheduler(SchedulerOptions(rules=rules, queue=queue))
        self.specs = [shape(number) for number in range(shapes)]
        self.change = change
        self.bound = 0
        for number in range(nodes):
            self.scheduler.put_node(node(number))

    def bind(self, pods: int) -> float:
        """Bind so many pods, and return the CPU time of each in us."""
        taken_ns = 0
        for number in range(self.bound, self.bound + pods):
            uid = f"pending-{number}"
            spec = self.specs[number % len(self.specs)]
            self.scheduler.put_pod(
                Pod(uid=uid, namespace="default", name=uid, spec=spec, labels=EMPTY)
            )
            changed = None if self.change is None else self.change(number)
            head = Head(pop=PopId(uid, number), attempts=1, first_enqueued_ns=0, queued_ns=0)
            began_ns = process_time_ns()
            if changed is not None:
                self.scheduler.put_node(changed)
            decision = self.scheduler.decide(head, 2000)
            taken_ns += process_time_ns() - began_ns
            if not isinstance(decision.verdict, Binding):
                raise TypeError(f"the cluster is not as it was meant: {decision.verdict}")
        self.bound += pods
        return taken_ns / pods / 1000


def main() -> None:
    """Print a row for each size."""
    warm_up()
    print(f"{'NODES':>8}{'SHAPES':>8}{'FIRST':>10}{'ALIKE':>8}{'TAINTED':>9}{'CHANGING':>10}")
    for nodes, shapes in SIZES:

        def changing(number: int, nodes: int = nodes) -> Node:
            name = f"node-{number * 7 % nodes}"
            return Node(name=name, allocatable=CAPACITY, labels={"changed": str(number)})

        plain = Burst(nodes, shapes, alike)
        first_us = plain.bind(shapes)
        by_case = [plain.bind(PODS)]
        for burst in (Burst(nodes, shapes, tainted), Burst(nodes, shapes, alike, changing)):
            burst.bind(shapes)
            by_case.append(burst.bind(PODS))
        print(f"{nodes:8,}{shapes:8}{first_us:10,.0f}", end="")
        print(f"{by_case[0]:8,.0f}{by_case[1]:9,.0f}{by_case[2]:10,.0f}", flush=True)


if __name__ == "__main__":
    main()
