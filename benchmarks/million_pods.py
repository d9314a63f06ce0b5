"""Stream a long trace through validate, convert and replay, and print time and memory of each.

    python -m benchmarks.million_pods [PODS] [--nodes N] [--spread] [--spans CHOICE] [--report]
                                      [--run FOLDER]

PODS (default 1,000,000) small pods come and go on 1,000 nodes, with a rush every ten minutes that
makes higher tiers preempt lower ones. A tenth of them goes first: where memory is bounded, ten
times the pods take no more of it. A tenth should be some tens of thousands, as a cluster keeps
12,500 pods that have ended. Each step is a process of its own, and a replay starts its services.
Pods come in whole seconds, as API servers write times; with --spread they come one by one, and each
costs a round. Machines are noisy: compare figures of one run.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.million_workload import workload
from replay.importers.registry import open_trace
from replay.results.run_directory import RunDirectory
from replay.runner import Settings, run_replay
from replay.trace.validate import validate
from replay.trace.writer import write
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from services.telemetry.sampling import Sampling

MIB = 1024 * 1024
PODS = 1_000_000
_TENTH = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A step to be measured: the trace that it reads and the folder that it may write to."""

    step: str
    trace: Path
    folder: Path
    spans: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a step took: wall and CPU time, s, and the largest memory of each process, bytes."""

    wall_s: float
    cpu_s: Mapping[str, float]
    peak_bytes: Mapping[str, int]
    said: str


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pods", nargs="?", type=int, default=PODS, help=f"default: {PODS:,}")
    parser.add_argument("--nodes", type=int, default=1000, help="default: 1000")
    parser.add_argument("--spread", action="store_true", help="pods come one by one")
    parser.add_argument("--spans", default="1%", help='"off", "all" or a share (default: 1%%)')
    parser.add_argument("--report", action="store_true", help="make tables and report, too")
    parser.add_argument("--run", type=Path, help="keep traces and runs in this folder")
    options = parser.parse_args()
    steps = ["validate", "convert", "replay", *(["report"] if options.report else [])]
    with contextlib.ExitStack() as stack:
        folder = options.run or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peaks: dict[tuple[str, str], list[int]] = {}
        for pods in dict.fromkeys((max(1, options.pods // _TENTH), options.pods)):
            own = folder / f"{pods}"
            own.mkdir(parents=True, exist_ok=True)
            trace = own / "trace.ktr"
            write(trace, workload(pods, nodes=options.nodes, spread=options.spread))
            print(f"\n{pods:,} pods, {trace.stat().st_size / MIB:.0f} MiB of trace")
            for step in steps:
                measured = in_a_process(
                    Job(step=step, trace=trace, folder=own, spans=options.spans)
                )
                show(step, pods, measured)
                for process, peak in measured.peak_bytes.items():
                    peaks.setdefault((step, process), []).append(peak)
    show_growth(peaks)


def in_a_process(job: Job) -> Measured:
    """Return what a step took in a process of its own, so that its memory is its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(measure, job).result()


def measure(job: Job) -> Measured:
    """Carry out a step in this process."""
    before = time.process_time()
    began = time.perf_counter()
    said, others_cpu_s, others_peak = _STEPS[job.step](job)
    return Measured(
        wall_s=time.perf_counter() - began,
        cpu_s={job.step: time.process_time() - before} | others_cpu_s,
        peak_bytes={job.step: peak_bytes()} | others_peak,
        said=said,
    )


_Done = tuple[str, dict[str, float], dict[str, int]]


def _validate(job: Job) -> _Done:
    report = validate(open_trace([job.trace]))
    return f"{report.objects['pod']:,} pods found", {}, {}


def _convert(job: Job) -> _Done:
    target = job.folder / "converted.jsonl.zst"
    count = write(target, open_trace([job.trace]))
    return f"{count:,} records to {target.name}", {}, {}


def _replay(job: Job) -> _Done:
    settings = Settings(
        version="benchmark",
        run_path=job.folder / "run",
        force=True,
        scheduler=scheduler_pb2.SchedulerConfig(seed=1),
        sampling=Sampling.parse(job.spans),
    )
    finished = run_replay(settings, open_trace([job.trace]), lambda *_: None)
    summary = finished.summary
    said = (
        f"{summary.decided.bound:,} bound in {summary.attempts:,} attempts and {summary.rounds:,} "
        f"rounds, {summary.decided.preempted:,} preempted, {summary.unbound.pods:,} never bound"
    )
    cpu_s = {name: usage.cpu_s for name, usage in finished.usage.items()}
    return said, cpu_s, {name: usage.peak_bytes for name, usage in finished.usage.items()}


def _report(job: Job) -> _Done:
    from replay.report.report import write_report  # noqa: PLC0415 - its libraries are large

    path = write_report(RunDirectory.open(job.folder / "run"))
    return f"{path.stat().st_size / MIB:.1f} MiB", {}, {}


_STEPS: Mapping[str, Callable[[Job], _Done]] = {
    "validate": _validate,
    "convert": _convert,
    "replay": _replay,
    "report": _report,
}


def peak_bytes() -> int:
    """Return this process' largest resident memory so far; 0 where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def show(step: str, pods: int, measured: Measured) -> None:
    """Print a step's figures."""
    rate = pods / max(measured.wall_s, 1e-9)
    print(f"{step:<10}{measured.wall_s:>9.1f} s  {rate:>9,.0f} pods/s  {measured.said}")
    for process, peak in measured.peak_bytes.items():
        cpu_s = measured.cpu_s[process]
        print(
            f"  {process:<10}{cpu_s:>7.1f} s CPU {cpu_s / pods * 1e6:>7,.0f} us a pod "
            f"{peak / MIB:>7,.0f} MiB at most",
            flush=True,
        )


def show_growth(peaks: Mapping[tuple[str, str], list[int]]) -> None:
    """Print how much more memory ten times the pods took."""
    print("\nmemory, a tenth of the pods and all of them")
    for (step, process), (few, *more) in peaks.items():
        if few and more:
            many = more[-1]
            sizes = f"{few / MIB:>7,.0f} {many / MIB:>7,.0f} MiB"
            print(f"{step:<10}{process:<10}{sizes}  x {many / few:.2f}")


if __name__ == "__main__":
    main()
