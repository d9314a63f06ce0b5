"""What one scheduling cycle costs in the scheduler's core: no wires, no queue, one process.

Plain pods on OpenB's number of nodes, pods that fit nowhere and can preempt nobody, where nothing
or one node has changed since the last one of their shape, and pods that preempt. Run it as
`python -m benchmarks.scheduler_core`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from statistics import median
from time import perf_counter_ns

from services.cel.selectors import DeviceSelectors
from services.framework.runtime.diagnosis import Unschedulable
from services.kube.devices import (
    ClaimSpec,
    Device,
    DeviceClass,
    DeviceRequest,
    NodeChoice,
    RequestDetail,
    ResourceClaim,
    ResourceSlice,
)
from services.kube.node import Node
from services.kube.pod import EMPTY, Container, OwnerReference, Pod, PodClaim, PodSpec
from services.scheduler.core.decisions import Binding
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import Head, PopId
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.core.session.warm_up import warm_up

GIB = 1 << 30
CAPACITY = {"cpu": 32_000, "memory": 128 * GIB, "pods": 110}
ROUNDS = 300
GPU = "example.com/gpu"
GPUS = 8


def spec_of(cpu_milli: int, priority: int = 0) -> PodSpec:
    """Return the spec of a pod with one container."""
    container = Container(name="c", requests={"cpu": cpu_milli, "memory": GIB})
    return PodSpec(containers=(container,), priority=priority)


def scheduler_of(nodes: int, pods_each: int, spec: PodSpec) -> Scheduler:
    """Return a scheduler of a cluster whose nodes hold `pods_each` running pods of `spec`."""
    scheduler = Scheduler(SchedulerOptions(rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.20"]))
    for number in range(nodes):
        name = f"node-{number}"
        scheduler.put_node(Node(name=name, allocatable=CAPACITY))
        for place in range(pods_each):
            uid = f"{name}-{place}"
            running = Pod(
                uid=uid,
                namespace="default",
                name=uid,
                spec=spec,
                node_name=name,
                start_time_ns=(number * 7 + place * 13) % 1000,
            )
            scheduler.put_pod(running)
    return scheduler


def timed(
    scheduler: Scheduler,
    pods: Iterator[tuple[PodSpec, Mapping[str, str]]],
    verdict: type,
    happen: Callable[[int], None] | None = None,
    complete: Callable[[Pod], Pod] = lambda pod: pod,
) -> float:
    """Return the median of one decision in us, each on a cluster that the one before has changed.

    `pods` are specs with labels. `happen` is called before each with its number, and `complete`
    returns it with what specs and labels lack. What preempts is taken back, so that the next one
    finds the same cluster.
    """
    taken_ns: list[int] = []
    for number, (spec, labels) in zip(range(ROUNDS), pods, strict=False):
        uid = f"pending-{number}"
        pod = complete(Pod(uid=uid, namespace="default", name=uid, spec=spec, labels=labels))
        scheduler.put_pod(pod)
        head = Head(pop=PopId(uid, number), attempts=1, first_enqueued_ns=0, queued_ns=0)
        if happen is not None:
            happen(number)
        began = perf_counter_ns()
        decision = scheduler.decide(head, 2000)
        taken_ns.append(perf_counter_ns() - began)
        if not isinstance(decision.verdict, verdict):
            raise TypeError(f"the cluster is not as it was meant: {decision.verdict}")
        if decision.nomination is not None:
            scheduler.undo([decision])
    return median(taken_ns) / 1000


def plain_pods() -> float:
    """Bind pods of 60 shapes on 1,213 nodes."""
    scheduler = scheduler_of(1213, 3, spec_of(1000))
    specs = [spec_of(100 + 50 * number) for number in range(60)]
    return timed(scheduler, ((specs[number % 60], EMPTY) for number in range(ROUNDS)), Binding)


def helpless_pods() -> float:
    """Refuse pods that fit nowhere among pods of their own priority, on 100 full nodes."""
    scheduler = scheduler_of(100, 20, spec_of(1600))
    spec = spec_of(2000)
    return timed(scheduler, iter([(spec, EMPTY)] * ROUNDS), Unschedulable)


def waiting_pods() -> float:
    """Refuse pods of 30 shapes on 100 full nodes, to one of which a pod comes before each."""
    scheduler = scheduler_of(100, 20, spec_of(1600))
    guest = Pod(uid="guest", namespace="default", name="guest", spec=spec_of(0))

    def happen(number: int) -> None:
        scheduler.remove_pod("guest")
        scheduler.put_pod(replace(guest, node_name=f"node-{number % 100}"))

    specs = [spec_of(2000 + 50 * number) for number in range(30)]
    pods = ((specs[number % 30], EMPTY) for number in range(ROUNDS))
    return timed(scheduler, pods, Unschedulable, happen)


def preempting_pods() -> float:
    """Find victims on 1,000 full nodes with ten pods of lower priority each."""
    scheduler = scheduler_of(1000, 10, spec_of(3200))
    spec = spec_of(6000, priority=10)
    return timed(scheduler, iter([(spec, EMPTY)] * ROUNDS), Unschedulable)


def _gpu_scheduler() -> Scheduler:
    """Return a scheduler of 1,000 nodes by v1.36, where a plugin evaluates selectors."""
    selectors = DeviceSelectors(multiple=True)
    scheduler = Scheduler(
        SchedulerOptions(rules=RULES["v1.36"], queue=QUEUE_TRAITS["v1.20"], matches=selectors)
    )
    for number in range(1000):
        node = Node(name=f"node-{number}", allocatable={**CAPACITY, GPU: GPUS})
        scheduler.put_node(node)
    return scheduler


def extended_resources() -> float:
    """Bind pods with one GPU each, an extended resource, on 1,000 nodes of eight."""
    container = Container(name="c", requests={"cpu": 100, "memory": GIB, GPU: 1})
    spec = PodSpec(containers=(container,))
    return timed(_gpu_scheduler(), iter([(spec, EMPTY)] * ROUNDS), Binding)


def device_claims() -> float:
    """Bind pods with a claim of one GPU each on 1,000 nodes of eight."""
    scheduler = _gpu_scheduler()
    driver = "gpu.example.com"
    selector = f'device.driver == "{driver}" && device.attributes["{driver}"].model == "a100"'
    scheduler.put_object(DeviceClass(name="gpu", selectors=(selector,)))
    devices = tuple(
        Device(name=f"gpu-{index}", attributes={"model": "a100"}) for index in range(GPUS)
    )
    for number in range(1000):
        name = f"node-{number}"
        on_node = NodeChoice(node_name=name)
        scheduler.put_object(
            ResourceSlice(
                name=name, driver=driver, pool=name, slice_count=1, nodes=on_node, devices=devices
            )
        )
    detail = RequestDetail(name="gpu", class_name="gpu", count=1)
    requested = ClaimSpec(requests=(DeviceRequest(name="gpu", exactly=detail),))

    def with_claim(pod: Pod) -> Pod:
        """Let the pod's claim be made, as its controller does."""
        scheduler.put_object(
            ResourceClaim(
                namespace="default",
                name=f"{pod.name}-gpu",
                uid=f"{pod.uid}-gpu",
                owners=(OwnerReference(kind="Pod", name=pod.name, uid=pod.uid, controller=True),),
                spec=requested,
            )
        )
        return replace(pod, claim_names=(("gpu", f"{pod.name}-gpu"),))

    claims = (PodClaim(name="gpu", from_template=True),)
    spec = replace(spec_of(100), device_claims=claims)
    return timed(scheduler, iter([(spec, EMPTY)] * ROUNDS), Binding, complete=with_claim)


CASES: dict[str, Callable[[], float]] = {
    "bind, 1,213 nodes": plain_pods,
    "fit nowhere, preempt nobody, 100 nodes": helpless_pods,
    "the same, where one node has changed": waiting_pods,
    "preempt, 1,000 nodes of 10 victims": preempting_pods,
    "bind, 1,000 nodes of 8 GPUs, an extended resource": extended_resources,
    "bind, 1,000 nodes of 8 GPUs, a device claim": device_claims,
}


def main() -> None:
    """Print the cases."""
    warm_up()
    for name, case in CASES.items():
        print(f"{case():8.1f} us  {name}")


if __name__ == "__main__":
    main()
