"""Make tables and report of a run of many pods, and print what that took.

    python -m benchmarks.results_tables [--pods N] [--nodes N] [--keep FOLDER]

The run directory is made up without any service: pods arrive evenly over a day, every tenth fails
to be scheduled three times before, and every hundredth is preempted; the others succeed after ten
minutes. What is measured is what `reprieve report` does of it.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from replay.report.page import write_report
from replay.results.run.directory import RunDirectory
from replay.results.run.manifest import Manifest
from replay.results.tables.query import build_tables
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import DAY_NS, SECOND_NS
from services.rpc.kube.fields import timestamp

_SERVICE_NS = 600 * SECOND_NS
_PRIORITIES = (0, 0, 0, 100, 100, 1000)
_MESSAGE = "0/{} nodes are available: {} Insufficient cpu, {} Insufficient memory."


def main() -> None:
    """Read the command line, make the run, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--keep", type=Path, help="leave the run here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory.create(options.keep or Path(folder) / "run", force=True)
        began = time.perf_counter()
        _make(run, options.pods, options.nodes)
        print(f"{options.pods:,} pods made up in {time.perf_counter() - began:.0f} s")
        _measured("tables", run, lambda run: build_tables(run, run.path))
        _measured("report", run, write_report)
        for path in sorted(run.path.iterdir()):
            print(f"{path.name:<24}{path.stat().st_size / 1e6:>10.1f} MB")


def _measured(name: str, run: RunDirectory, make: Callable[[RunDirectory], object]) -> None:
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    make(run)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{name:<12}{time.process_time() - cpu_s:>8.1f} s CPU"
        f"{time.perf_counter() - wall_s:>8.1f} s   peak memory {peak_mib:,} MiB"
    )


def _make(run: RunDirectory, pods: int, nodes: int) -> None:
    rounds, decisions = run.round_log(), run.decision_log()
    rounds.write(scheduler_pb2.Round(events=[_node(number) for number in range(nodes)]))
    sequence, ending = 0, 0
    step_ns = DAY_NS // pods
    lifetime = _SERVICE_NS // step_ns + 1
    for number in range(pods + lifetime):
        at_ns = number * step_ns
        round_ = scheduler_pb2.Round(time_ns=at_ns)
        entries: list[trace_pb2.Decision] = []
        if number >= lifetime and ending < pods:
            entries += _end(round_, at_ns, ending, nodes)
            ending += 1
        if number < pods:
            entries += _begin(round_, at_ns, number, nodes)
        rounds.write(round_)
        for entry in entries:
            sequence += 1
            entry.sequence, entry.time_ns = sequence, at_ns
            decisions.write(entry)
    rounds.close()
    decisions.close()
    run.write_latencies({"steps": {}})
    manifest = Manifest(version="benchmark", seed=0, rules="v1.34", traces=())
    run.write_manifest(manifest.ended("finished"))


def _node(number: int) -> scheduler_pb2.Event:
    event = scheduler_pb2.Event()
    node = event.add.node
    node.metadata.name = f"node-{number:04d}"
    node.status.allocatable.update({"cpu": "32", "memory": "128Gi", "pods": "110"})
    return event


def _begin(
    round_: scheduler_pb2.Round, at_ns: int, number: int, nodes: int
) -> Iterator[trace_pb2.Decision]:
    pod = pod_pb2.Pod()
    pod.metadata.name, pod.metadata.namespace = _name(number), "bench"
    pod.metadata.uid = _uid(number)
    pod.metadata.creation_timestamp.CopyFrom(timestamp(at_ns))
    pod.metadata.owner_references.add(
        kind="Job", name=f"job-{number % 500}", uid=f"job-{number % 500}", controller=True
    )
    pod.spec.priority = _PRIORITIES[number % len(_PRIORITIES)]
    container = pod.spec.containers.add(name="c")
    container.resources.requests.update({"cpu": f"{1 + number % 4}", "memory": "2Gi"})
    pod.status.phase = "Pending"
    round_.events.add(time_ns=at_ns).add.pod.CopyFrom(pod)
    round_.events.add(
        time_ns=at_ns,
        patch=scheduler_pb2.PodPatch(pod=_ref(number), node_name=_host(number, nodes)),
    )
    if number % 10 == 0:
        for attempt in range(1, 4):
            entry = _entry(number)
            short = nodes - attempt - number % 7
            entry.observed.failed_scheduling.message = _MESSAGE.format(nodes, nodes, short)
            entry.observed.failed_scheduling.attempts = attempt
            entry.observed.failed_scheduling.reason = "Unschedulable"
            yield entry
    entry = _entry(number)
    entry.observed.scheduled.node_name = _host(number, nodes)
    entry.observed.scheduled.attempts = 4 if number % 10 == 0 else 1
    entry.observed.scheduled.waited_duration_ns = number % 997 * 1_000_000
    yield entry
    entry = _entry(number)
    entry.observed.started.node_name = _host(number, nodes)
    yield entry


def _end(
    round_: scheduler_pb2.Round, at_ns: int, number: int, nodes: int
) -> Iterator[trace_pb2.Decision]:
    entry = _entry(number)
    if number % 100 == 0:
        entry.observed.preempted.by.CopyFrom(_entry(number + 1).observed.object)
        entry.observed.preempted.node_name = _host(number, nodes)
        yield entry
        entry = _entry(number)
        entry.observed.removed.cause = "preempted"
        round_.events.add(time_ns=at_ns).remove.CopyFrom(entry.observed.object)
    else:
        entry.observed.finished.phase = "Succeeded"
        status = pod_pb2.PodStatus(phase="Succeeded")
        patch = scheduler_pb2.PodPatch(pod=_ref(number), status=status)
        round_.events.add(time_ns=at_ns, patch=patch)
    yield entry


def _entry(number: int) -> trace_pb2.Decision:
    reference = meta_pb2.ObjectReference(
        kind="Pod", namespace="bench", name=_name(number), uid=_uid(number)
    )
    return trace_pb2.Decision(observed=trace_pb2.Observed(object=reference))


def _ref(number: int) -> meta_pb2.ObjectReference:
    return meta_pb2.ObjectReference(uid=_uid(number), namespace="bench", name=_name(number))


def _name(number: int) -> str:
    return f"job-{number % 500}-{number:07d}"


def _uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def _host(number: int, nodes: int) -> str:
    return f"node-{number * 7919 % nodes:04d}"


if __name__ == "__main__":
    main()
