"""What the scheduling queue's core costs as it grows: microseconds an operation, bytes a pod.

One process, no wires, rules of v1.34 with upstream's hints. Pods come from ten templates. Times are
the processor's; of small sizes, which are tried more than once, the best is shown. The first rows
are what a bare heap of tuples costs in the same run: the machine's own speed, and what no queue
of Python's can do without. Run it as `python -m benchmarks.queue_scale`, or with the sizes to try:
`... 1000 1000000`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from time import process_time_ns

from services.framework.cluster_event import ObjectEvent
from services.framework.plugins.events import IN_TREE
from services.garbage import calm
from services.kube.pod import Container, PodSpec
from services.kube.time import SECOND_NS
from services.queue.core.queued_pod import Failure, InFlightPod, PodRef, QueuedPod
from services.queue.core.results import SubQueue
from services.queue.core.rules.versions import QueueConfig
from services.queue.core.scheduling_queue import SchedulingQueue

SIZES = (1_000, 10_000, 100_000, 1_000_000)
TRIED_PODS = 20_000
FIT = Failure(plugins=("NodeResourcesFit",))
TAINTED = Failure(plugins=("NodeAffinity", "TaintToleration"))
TEMPLATES = tuple(
    PodSpec(containers=(Container(name="c", requests={"cpu": 100 * n, "memory": n << 30}),))
    for n in range(1, 11)
)
LABELS = tuple({"app": f"app-{number}"} for number in range(10))


def pod_of(number: int) -> QueuedPod:
    """Return a pending pod."""
    return QueuedPod(
        uid=f"{number:08x}-0000-4000-8000-000000000000",
        namespace="default",
        name=f"pod-{number}",
        priority=number * 7919 % 5 * 100,
        labels=LABELS[number % 10],
        spec=TEMPLATES[number % 10],
    )


def resident_bytes() -> int:
    """Return what this process holds in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def timed_us(action: Callable[[], object], count: int) -> float:
    """Return what `action` costs the processor, for each of `count`."""
    started_ns = process_time_ns()
    action()
    return (process_time_ns() - started_ns) / 1e3 / count


class Trial:
    """A queue of `size` pods, and the operations that are timed on it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.queue = SchedulingQueue(QueueConfig(version="v1.34", registrations=IN_TREE))
        self.now_ns = 0

    def run(self) -> dict[str, float]:
        """Return microseconds by operation, and bytes a pod."""
        gc.collect()
        before = resident_bytes()
        costs = {"add": timed_us(partial(self.add, self.pods()), self.size)}
        costs["pop + give back"] = timed_us(self.refuse_all, self.size)
        gc.collect()
        costs["bytes a pod"] = (resident_bytes() - before) / self.size
        updates = [(pod, pod._replace(nominated_node_name="n")) for pod in self.pods()]
        costs["update"] = timed_us(partial(self.update, updates), self.size)
        costs["move of none"] = timed_us(self.move_none, 1)
        costs["move of 1/1000"] = timed_us(self.move_few, -(-self.size // 1000))
        costs["move of all"] = timed_us(self.move_all, self.size)
        refs = self.some()
        costs["delete"] = timed_us(partial(self.delete, refs), len(refs))
        costs["pop + done"] = timed_us(self.finish_all, self.size)
        return costs

    def pods(self) -> list[QueuedPod]:
        """Return the pods of the trial."""
        return [pod_of(number) for number in range(self.size)]

    def add(self, pods: list[QueuedPod]) -> None:
        """Add the pods, a microsecond apart."""
        for pod in pods:
            self.now_ns += 1000
            self.queue.add(pod, now_ns=self.now_ns)

    def refuse_all(self) -> None:
        """Try each pod once: it fits nowhere, and a thousandth is kept away by taints."""
        for number in range(self.size):
            self.now_ns += 1000
            popped = self.queue.pop(now_ns=self.now_ns)
            if not isinstance(popped, InFlightPod):
                raise TypeError(popped)
            failure = TAINTED if number % 1000 == 0 else FIT
            self.queue.add_unschedulable(popped.id, now_ns=self.now_ns, failure=failure)

    def update(self, versions: list[tuple[QueuedPod, QueuedPod]]) -> None:
        """Change the status of each pod, as a scheduler does, and ask for the next flush."""
        for old, new in versions:
            self.queue.update(old, new, now_ns=self.now_ns)
            self.queue.next_wakeup_ns(self.now_ns)

    def move_none(self) -> None:
        """Send an event for which no plugin that refused a pod has registered."""
        self.queue.move_all(ObjectEvent.of("PersistentVolumeClaimAdd"), now_ns=self.now_ns)

    def move_few(self) -> None:
        """Send an event that concerns a thousandth of the pods."""
        self.now_ns += 60 * SECOND_NS
        moved = self.queue.move_all(ObjectEvent.of("NodeTaintChange"), now_ns=self.now_ns)
        if moved != -(-self.size // 1000):
            raise ValueError(moved)

    def move_all(self) -> None:
        """Send the end of a pod, which may help every pod that asked for more."""
        self.queue.move_all(ObjectEvent.of("AssignedPodDelete"), now_ns=self.now_ns)
        if self.queue.sizes()[SubQueue.UNSCHEDULABLE]:
            raise ValueError(self.queue.sizes())

    def some(self) -> list[PodRef]:
        """Return a tenth of the pods, ten thousand at most, from among all."""
        step = self.size // min(self.size // 10, 10_000)
        return [pod_of(number).ref for number in range(0, self.size, step)]

    def delete(self, pods: list[PodRef]) -> None:
        """Delete the pods."""
        for pod in pods:
            self.queue.delete(pod, now_ns=self.now_ns)

    def finish_all(self) -> None:
        """Bind what is left."""
        while isinstance(popped := self.queue.pop(now_ns=self.now_ns), InFlightPod):
            self.queue.done(popped.id)


def bare(size: int) -> dict[str, float]:
    """Return what pushing and popping tuples costs, in microseconds each."""
    heap: list[tuple[int, int]] = []

    def push() -> None:
        for number in range(size):
            heappush(heap, (number * 7919 % 5, number))

    def pop() -> None:
        while heap:
            heappop(heap)

    return {"bare push": timed_us(push, size), "bare pop": timed_us(pop, size)}


def costs_of(size: int) -> dict[str, float]:
    """Return the best of some trials; memory is that of the first, which found none to reuse."""
    first = Trial(size).run()
    trials = [bare(size) | first]
    trials += [bare(size) | Trial(size).run() for _ in range(TRIED_PODS // size)]
    best = {name: min(trial[name] for trial in trials) for name in trials[0]}
    return best | {"bytes a pod": first["bytes a pod"]}


def main() -> None:
    """Print a table: a row for each operation, a column for each size."""
    calm()  # as the service does
    sizes = [int(text) for text in sys.argv[1:]] or list(SIZES)
    columns = [costs_of(size) for size in sizes]
    print(f"{'us':>16}" + "".join(f"{size:>12,}" for size in sizes))
    for name in columns[0]:
        print(f"{name:>16}" + "".join(f"{costs[name]:>12,.1f}" for costs in columns))


if __name__ == "__main__":
    main()
