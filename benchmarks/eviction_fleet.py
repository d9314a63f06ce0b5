"""What node-pressure eviction costs on many nodes where nothing is met.

    python -m benchmarks.eviction_fleet [--nodes N] [--pods-per-node N] [--minutes N]

Every node has pods whose usage changes every five minutes, as public traces tell it, and never
reaches a threshold. A kubelet steps its manager every 10 s; the printed cost is CPU for each
node and such step, of the world and of the EvictionService, with what lies between them, once
the cluster stands and each node has been stepped for the first time. It is measured twice: on roomy
nodes, which would hold what each pod uses at most, and on tight ones, which hold what the pods use
together but not that, so that all changes to come must be looked at.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from replay.backends.processes import EmbeddedServices
from replay.backends.services import EvictionService
from replay.world.api.cluster import Cluster
from replay.world.kubelet.pressure import INTERVAL_NS
from replay.world.loop.replay import Limits, Replay
from replay.world.models import Models
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.garbage import calm
from services.kube.time import SECOND_NS

SAMPLE_S = 300
MIB = 1 << 20
NODES = {"roomy": "64Gi", "tight": "9Gi"}


class Nobody:
    """A scheduler that decides nothing, and an observer that observes nothing."""

    takes_windows = False

    def send_round(self, round_: scheduler_pb2.Round, window: object = ()) -> None:
        """Take a message."""

    def receive_outcomes(self) -> scheduler_pb2.RoundOutcomes:
        """Answer it; all but pods to be scheduled may wait."""
        return scheduler_pb2.RoundOutcomes(may_wait=scheduler_pb2.MAY_WAIT_ALL)

    def round_sent(self, round_: scheduler_pb2.Round) -> None:
        """Ignore it."""

    def outcomes(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Ignore it."""


def records(nodes: int, pods: int, minutes: int, memory: str) -> Iterator[trace_pb2.Record]:
    """Yield nodes of that memory, and running pods of 1 GiB at most."""
    yield trace_pb2.Record(header=trace_pb2.Header(window_end_time_ns=minutes * 60 * SECOND_NS))
    for number in range(1, 9):
        record = trace_pb2.Record()
        record.usage.id = number
        for sample in range(minutes * 60 // SAMPLE_S + 1):
            used = 256 + (number * 97 + sample * 61) % 768
            record.usage.segments.add(
                offset_duration_ns=sample * SAMPLE_S * SECOND_NS, memory_bytes=used * MIB
            )
        yield record
    for number in range(nodes):
        node = node_pb2.Node()
        node.metadata.name = f"n{number:05d}"
        node.status.capacity.update({"cpu": "32", "memory": memory, "pods": "110"})
        node.status.allocatable.update(node.status.capacity)
        record = trace_pb2.Record()
        record.create.node.CopyFrom(node)
        yield record
        for index in range(pods):
            yield _pod(f"n{number:05d}", index)


def _pod(node: str, index: int) -> trace_pb2.Record:
    pod = pod_pb2.Pod()
    pod.metadata.name = pod.metadata.uid = f"{node}-{index}"
    pod.metadata.namespace = "default"
    pod.spec.node_name = node
    pod.spec.containers.add(name="c").resources.requests["memory"] = "1Gi"
    pod.status.phase = "Running"
    record = trace_pb2.Record()
    record.pod_create.pod.CopyFrom(pod)
    record.pod_create.life.usage_id = 1 + index % 8
    return record


def main() -> None:
    """Replay and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods-per-node", type=int, default=10)
    parser.add_argument("--minutes", type=int, default=120)
    arguments = parser.parse_args()
    for name, memory in NODES.items():
        measure(name, memory, arguments)


def measure(name: str, memory: str, arguments: argparse.Namespace) -> None:
    """Replay nodes of that memory and print what it cost."""
    with EmbeddedServices(scheduler=False) as embedded:
        process = embedded.processes["eviction"]
        service = EvictionService(process.address, eviction_pb2.EvictionConfig(use_defaults=True))
        nobody = Nobody()
        replay = Replay(nobody, service, models=Models(), sink=lambda _entry: None, observer=nobody)
        trace = list(records(arguments.nodes, arguments.pods_per_node, arguments.minutes, memory))
        calm()
        marks: list[tuple[float, float, float]] = []

        def mark(_now_ns: int, _cluster: Cluster) -> None:
            """Put down what was used when the cluster stood and each node had been stepped once."""
            if not marks:
                marks.append((time.perf_counter(), time.process_time(), process.cpu_s()))

        replay.run(iter(trace), Limits(progress=mark))
        began_s, own_before_s, service_before_s = marks[0]
        wall_s = time.perf_counter() - began_s
        own_s, service_s = time.process_time() - own_before_s, process.cpu_s() - service_before_s
        steps = arguments.nodes * arguments.minutes * 60 * SECOND_NS // INTERVAL_NS
        print(
            f"{arguments.nodes:,} {name} nodes, {steps:,} steps of 10 s in {wall_s:.2f} s of wall"
        )
        for part, cpu_s in (("world", own_s), ("eviction", service_s)):
            print(f"{part:<10}{cpu_s:>8.2f} s {cpu_s / steps * 1e6:>8.2f} us a node and step")
        service.close()


if __name__ == "__main__":
    main()
