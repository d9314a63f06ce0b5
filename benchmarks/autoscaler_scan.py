"""What scans cost in the autoscaler's core, in CPU time: no wire, one process.

    python -m benchmarks.autoscaler_scan [ROW ...] [--repeat N]

Every node is of one of 30 groups. Four of five nodes are full with ten pods; the fifth takes and
runs 30 pods, which request less than half of it; some of them fit on what larger nodes have left.

- 1,000 pods wait: an autoscaler that knows the calm cluster receives 1,000 pods that fit nowhere,
  of several shapes, a controller each, and scans. Shapes are plain, or every fifth of them has a
  constraint: spread over hosts or zones, anti-affinity to its own kind, or a node selector.
- Nothing has changed: the median of a run of scans, as a replay of a calm day has 8,640 of them,
  and the longest, in which removals that failed are simulated again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from time import process_time

from services.autoscaler.core.autoscaler import Autoscaler
from services.autoscaler.core.calls import Done
from services.autoscaler.core.groups import Instance, NodeGroup
from services.autoscaler.core.objects import ClusterNode, ClusterPod, ReplicaController
from services.autoscaler.core.options import Options
from services.autoscaler.core.reports import ScanReport
from services.garbage import calm
from services.kube.node import LABEL_HOSTNAME, LABEL_ZONE, Node
from services.kube.pod import Condition, Container, OwnerReference, Pod, PodSpec
from services.kube.selector import (
    LabelSelector,
    Operator,
    PodAffinity,
    PodAffinityTerm,
    Requirement,
    TopologySpreadConstraint,
    UnsatisfiableAction,
)
from services.kube.time import HOUR_NS, SECOND_NS

GIB = 1 << 30
GROUPS = 30
RUNNING_SHAPES = 40
CORES = (8, 16, 32, 64)
PENDING = 1000
CALM_SCANS = 60
INTERVAL_NS = 10 * SECOND_NS
START_NS = 1000 * HOUR_NS
READY = Condition(type="Ready", status="True", last_transition_ns=0)
REFUSED = Condition(type="PodScheduled", status="False", reason="Unschedulable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row: `pending_shapes` 0 where nothing happens; `constrained` gives some a constraint."""

    name: str
    nodes: int
    pending_shapes: int = 0
    constrained: bool = False


ROWS = (
    Row(name="Pending/1000Nodes_20Shapes", nodes=1000, pending_shapes=20),
    Row(
        name="Pending/1000Nodes_20Shapes_Constrained",
        nodes=1000,
        pending_shapes=20,
        constrained=True,
    ),
    Row(name="Pending/5000Nodes_500Shapes", nodes=5000, pending_shapes=500),
    Row(name="Calm/1000Nodes", nodes=1000),
    Row(name="Calm/5000Nodes", nodes=5000),
)


def main() -> None:
    """Measure the rows and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("rows", nargs="*", help="beginnings of names; all by default")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'ROW':<42}{'MEDIAN':>12}{'LONGEST':>12}")
    for row in ROWS:
        if arguments.rows and not row.name.startswith(tuple(arguments.rows)):
            continue
        times_s = (
            calm_scans(row) if not row.pending_shapes else pending_scans(row, arguments.repeat)
        )
        print(f"{row.name:<42}{median(times_s) * 1e3:>9.1f} ms{max(times_s) * 1e3:>9.1f} ms")


def pending_scans(row: Row, repeat: int) -> list[float]:
    """Return the CPU seconds of scans that pods wait for, each of an autoscaler of its own.

    The first one is left out: it loads kernels.
    """
    times_s = []
    for _ in range(repeat + 1):
        autoscaler = calm_autoscaler(row.nodes)
        scan(autoscaler, START_NS)
        for pod in pending_pods(row):
            autoscaler.apply(pod)
        calm()
        began_s = process_time()
        report = scan(autoscaler, START_NS + INTERVAL_NS)
        times_s.append(process_time() - began_s)
        assert report.scale_up is not None  # noqa: S101 - what is measured
        assert report.scale_up.groups, report.scale_up  # noqa: S101 - what is measured
    return times_s[1:]


def calm_scans(row: Row) -> list[float]:
    """Return the CPU seconds of scans in which nothing happens, after the first two."""
    autoscaler = calm_autoscaler(row.nodes)
    times_s = []
    for number in range(CALM_SCANS + 2):
        calm()
        began_s = process_time()
        scan(autoscaler, START_NS + number * INTERVAL_NS)
        times_s.append(process_time() - began_s)
    return times_s[2:]


def scan(autoscaler: Autoscaler, now_ns: int) -> ScanReport:
    """Do what is due, and scan; every call succeeds and changes nothing."""
    for _ in autoscaler.act(now_ns):
        pass
    scanning = autoscaler.scan(now_ns)
    try:
        next(scanning)
        while True:
            scanning.send(Done())
    except StopIteration as end:
        report: ScanReport = end.value
        return report


def calm_autoscaler(nodes: int) -> Autoscaler:
    """Return one that has received a cluster and was started."""
    autoscaler = Autoscaler(Options(max_bulk_soft_taint_count=0), lambda names: names[0])
    specs: dict[tuple[int, int, int], PodSpec] = {}
    for number in range(nodes):
        node = node_of(number)
        autoscaler.apply(node)
        allocatable, count = node.node.allocatable, pods_of(number)
        percent = 42 if is_sparse(number) else 99
        for place in range(count):
            shape = (number + 7 * place) % RUNNING_SHAPES
            key = (shape, allocatable["cpu"], count)
            if key not in specs:
                cpu, memory = (
                    allocatable[name] * percent // 100 // count for name in ("cpu", "memory")
                )
                specs[key] = spec_of(cpu, memory - shape)
            name = f"{node.name}-{place}"
            autoscaler.apply(pod_of(name, specs[key], f"running-{shape}", node=node.name))
    for shape in range(RUNNING_SHAPES):
        autoscaler.apply(
            ReplicaController(
                kind="ReplicaSet", namespace="default", name=f"running-{shape}", desired=99
            )
        )
    for number in range(GROUPS):
        members = range(number, nodes, GROUPS)
        group = NodeGroup(
            name=f"group-{number:02d}",
            min_size=0,
            max_size=len(members) + 1000,
            target=len(members),
            template=node_of(number),
            instances=tuple(Instance(provider_id=f"cloud://{member}") for member in members),
        )
        autoscaler.apply(group)
    autoscaler.start(START_NS)
    return autoscaler


def node_of(number: int) -> ClusterNode:
    """Return a node, which is of the group of its number modulo the number of groups."""
    group = number % GROUPS
    name = f"n{number:05d}"
    cores = CORES[group % len(CORES)]
    amounts = {
        "cpu": 1000 * cores,
        "memory": 4 * GIB * cores,
        "pods": pods_of(number) if is_sparse(number) else 110,
    }
    labels = {
        LABEL_HOSTNAME: name,
        LABEL_ZONE: f"zone-{group % 3}",
        "pool": f"pool-{group}",
        "half": f"half-{group % 2}",
    }
    node = Node(
        name=name, labels=labels, allocatable=amounts, capacity=amounts, conditions=(READY,)
    )
    return ClusterNode(node=node, provider_id=f"cloud://{number}")


def is_sparse(number: int) -> bool:
    """Return whether less than half of a node is used."""
    return number % 5 == 0


def pods_of(number: int) -> int:
    """Return how many pods run on a node."""
    return 30 if is_sparse(number) else 10


def pending_pods(row: Row) -> Iterator[ClusterPod]:
    """Yield the pods that wait, one of each shape in turn."""
    shapes = row.pending_shapes
    specs = [
        spec_of(
            700 + 3300 * shape // shapes,
            GIB * (1 + shape % 7),
            constraint=1 + shape // 5 % 4 if row.constrained and shape % 5 == 4 else 0,
            app=f"pending-{shape}",
        )
        for shape in range(shapes)
    ]
    for number in range(PENDING):
        shape = number % shapes
        yield pod_of(f"pending-{number:04d}", specs[shape], f"pending-{shape}")


def spec_of(cpu_milli: int, memory_bytes: int, *, constraint: int = 0, app: str = "") -> PodSpec:
    """Return a spec; a constraint other than 0 is of one of four kinds, with pods of `app`."""
    requests = {"cpu": cpu_milli, "memory": memory_bytes}
    selector = LabelSelector(
        requirements=(Requirement(key="app", operator=Operator.IN, values=(app,)),)
    )
    spread: tuple[TopologySpreadConstraint, ...] = ()
    apart: PodAffinity | None = None
    half: dict[str, str] = {}
    match constraint:
        case 1 | 2:
            spread = (
                TopologySpreadConstraint(
                    max_skew=3,
                    topology_key=LABEL_HOSTNAME if constraint == 1 else LABEL_ZONE,
                    when_unsatisfiable=UnsatisfiableAction.DO_NOT_SCHEDULE,
                    selector=selector,
                ),
            )
        case 3:
            term = PodAffinityTerm(topology_key=LABEL_HOSTNAME, selector=selector)
            apart = PodAffinity(required=(term,))
        case 4:
            half = {"half": "half-1"}
    return PodSpec(
        containers=(Container(name="c", requests=requests),),
        node_selector=half,
        pod_anti_affinity=apart,
        topology_spread_constraints=spread,
    )


def pod_of(name: str, spec: PodSpec, owner: str, *, node: str = "") -> ClusterPod:
    """Return a pod of a ReplicaSet; without a node, one that the scheduler has refused."""
    controller = OwnerReference(
        kind="ReplicaSet", name=owner, uid=f"uid-{owner}", controller=True, api_version="apps/v1"
    )
    pod = Pod(
        uid=f"uid-{name}",
        namespace="default",
        name=name,
        spec=spec,
        labels={"app": owner},
        owners=(controller,),
        node_name=node,
        conditions=() if node else (REFUSED,),
        creation_ns=START_NS - HOUR_NS,
    )
    return ClusterPod(pod=pod)


if __name__ == "__main__":
    main()
