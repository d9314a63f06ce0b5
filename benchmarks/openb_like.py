"""Replay a generated look-alike of the OpenB manifests, or any trace, and print what it took.

    python -m benchmarks.openb_like [--seed N] [--batch-size K] [--queue-mode MODE]
                                    [--spans CHOICE] [TRACE...]

1,213 nodes and 7,064 pods of about 160 shapes arrive at once; a handful does not fit. The services
are child processes on loopback ports, as in any replay. Machines are noisy: compare ratios within
one run, not figures of two.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from replay.generate.presets import PRESETS
from replay.importers.registry import open_trace
from replay.runner import Finished, Settings, run_replay
from reprieve.queue.v1alpha1 import queue_pb2
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from reprieve.trace.v1alpha1 import trace_pb2
from services.telemetry.sampling import Sampling

MIB = 1024 * 1024


def main() -> None:
    """Read the command line, replay, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="*", type=Path, help="default: the look-alike")
    parser.add_argument("--seed", type=int, default=1, help="breaks ties (default: 1)")
    parser.add_argument("--batch-size", type=int, default=0, help="K (default: the scheduler's)")
    parser.add_argument("--queue-mode", default="", help="v1.34, v1.20 or v1.16 (default: v1.34)")
    parser.add_argument("--spans", default="all", help='"off", "all" or a share (default: all)')
    options = parser.parse_args()
    began = time.perf_counter()
    records = list(open_trace(options.traces) if options.traces else PRESETS["openb-like"](1))
    print(f"{len(records):,} records made or read in {time.perf_counter() - began:.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            version="benchmark",
            run_path=Path(folder) / "run",
            scheduler=scheduler_pb2.SchedulerConfig(
                seed=options.seed,
                batch_size=options.batch_size,
                queue=queue_pb2.QueueConfig(mode=options.queue_mode),
            ),
            sampling=Sampling.parse(options.spans),
        )
        show(replayed(settings, iter(records)))


def replayed(settings: Settings, records: Iterator[trace_pb2.Record]) -> tuple[Finished, float]:
    """Return a replay that has ended, and the CPU seconds that this process took for it."""
    before = time.process_time()
    finished = run_replay(settings, records, lambda _now_ns, _cluster, _tally: None)
    return finished, time.process_time() - before


def show(measured: tuple[Finished, float]) -> None:
    """Print the figures."""
    finished, own_cpu_s = measured
    summary = finished.summary
    pods = max(1, summary.pods)
    wall_s = summary.wall_ns / 1e9
    print(
        f"{summary.pods:,} pods, {summary.attempts:,} attempts, "
        f"{summary.decided.bound:,} bound, {len(finished.replay.cluster.pending)} unscheduled"
    )
    print(f"wall        {wall_s:8.2f} s  {pods / wall_s:10,.0f} pods/s")
    print(f"mean batch  {summary.batch_size_mean:8.1f} attempts an exchange with the queue (K)")
    print(f"{'process':<12}{'CPU':>8}    {'CPU a pod':>10}  {'peak memory':>12}")
    own_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    rows = [("replay", own_cpu_s, own_peak)]
    rows += [(name, usage.cpu_s, usage.peak_bytes) for name, usage in finished.usage.items()]
    for name, cpu_s, peak in rows:
        print(f"{name:<12}{cpu_s:>8.2f} s  {cpu_s / pods * 1e6:>7.0f} us  {peak / MIB:>8.0f} MiB")


if __name__ == "__main__":
    main()
