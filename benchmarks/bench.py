"""Replay the benchmark's rows, and print what each took beside upstream's figure.

    python -m benchmarks.bench [--quick] [--million] [--rows NAME,...] [--in-process]
                               [--spans CHOICE] [--repeat N] [--json FILE] [--list]

The trace of a row is made first, as a file in the native format, and is not part of the figures.
Then it is replayed in a process of its own, whose services are child processes on loopback ports.
docs/performance.md says what the rows and columns are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.rows import ATTEMPTS, RUNS, Row, chosen
from replay.backends.processes import prepare
from replay.results.run.files import SUMMARY
from replay.results.summary.tally import Tally
from replay.runner import ProcessUsage, run_replay
from replay.settings import ReplaySettings
from replay.trace.reader import read
from replay.trace.writer import write
from replay.world.api.cluster import Cluster
from reprieve.trace.v1beta1.trace_pb2 import Record
from services.telemetry.span import Sampling

JSON = Path("runs") / "bench.json"
MIB = 1 << 20
PROCESSES = ("replay", "scheduler", "queue", "eviction")
SPANS_ROWS = ("FourTiers", "FourTiers/NoSpans")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How rows are run; `spans` "" leaves that to the row."""

    quick: bool = False
    in_process: bool = False
    spans: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one run of a row took.

    counted: how many of what the row counts there were in the `phase_s` that it counts in.
    cpu_s, peak_bytes: of the whole replay, by process.
    """

    wall_s: float
    counted: int
    phase_s: float
    pods: int
    bound: int
    attempts: int
    rounds: int
    messages: int
    windows: Mapping[str, int]
    exchanges: int
    cpu_s: Mapping[str, float]
    peak_bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One figure of a row over all its runs."""

    metric: str
    unit: str
    values: Sequence[float]
    of: str = ""

    def as_mapping(self, row: str) -> dict[str, object]:
        """Return it as one of scheduler_perf's dataItems."""
        labels = {"Name": row, "Metric": self.metric}
        if self.of:
            labels["EndedSince" if self.metric == "Windows" else "Process"] = self.of
        values = self.values
        data = {"Median": median(values), "Min": min(values), "Max": max(values)}
        return {"data": data, "unit": self.unit, "labels": labels}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, print, write."""
    prepare()
    options = _options(arguments)
    rows = [row for row in options.rows if options.million or options.named or not row.long]
    if options.list:
        print("\n".join(row.name for row in rows if not _missing(row)))
        return
    choice = Choice(quick=options.quick, in_process=options.in_process, spans=options.spans)
    items_by_row: dict[str, list[Item]] = {}
    print(_line(*_HEADS))
    for row in rows:
        if missing := _missing(row):
            print(f"{row.name:<36} left out: there is no {missing}", flush=True)
            continue
        items_by_row[row.name] = items(row, runs_of(row, choice, options.repeat))
        print(_first_line(row, items_by_row[row.name]), flush=True)
    _show_cpu(items_by_row)
    _show_sources([row for row in rows if row.name in items_by_row])
    options.json.parent.mkdir(parents=True, exist_ok=True)
    data = [item.as_mapping(name) for name, measured in items_by_row.items() for item in measured]
    options.json.write_text(json.dumps({"version": "v1", "dataItems": data}, indent=1) + "\n")
    print(f"\nwritten to {options.json}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="all rows small, in this process")
    parser.add_argument("--million", action="store_true", help="the long rows, too")
    parser.add_argument("--rows", default="", help="names, or their beginnings up to a slash")
    parser.add_argument("--in-process", action="store_true", help="services without sockets")
    parser.add_argument("--spans", default="", help='"off", "all" or a share (default: the row\'s)')
    parser.add_argument("--repeat", type=int, default=1, help="runs of each row; shows medians")
    parser.add_argument("--json", type=Path, default=JSON, help=f"default: {JSON}")
    parser.add_argument("--list", action="store_true", help="name the rows that would be run")
    options = parser.parse_args(arguments)
    options.named = bool(options.rows)
    try:
        options.rows = chosen(options.rows)
        Sampling.parse(options.spans or "all")
    except ValueError as error:
        parser.error(str(error))
    return options


def _missing(row: Row) -> Path | None:
    return next((path for path in row.needs if not path.exists()), None)


def runs_of(row: Row, choice: Choice, repeat: int) -> list[Measured]:
    """Make the row's trace and measure it so many times."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.ktr"
        write(trace, row.records(choice.quick))
        if choice.quick:
            return [measure(row.name, choice, trace) for _ in range(repeat)]
        return [_in_a_process(row.name, choice, trace) for _ in range(repeat)]


def _in_a_process(name: str, choice: Choice, trace: Path) -> Measured:
    """Measure in a process of its own, so that its memory is its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(measure, name, choice, trace).result()


def measure(name: str, choice: Choice, trace: Path) -> Measured:
    """Replay a row's trace in this process, or by the command in one of its own."""
    row = next(row for row in chosen(name) if row.name == name)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        if row.program:
            return _of_program(row, choice, trace, run)
        return _of_replay(row, choice, trace, run)


class _Watch:
    """Notes the phase of a replay: after the last moment before the marker's."""

    def __init__(self, *, phase: bool) -> None:
        self._phase = phase
        self.phase_ns: int | None = None
        self.cpu_s = 0.0
        self.began_s = 0.0
        self.ended_s = 0.0

    def records(self, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the records, and look for the marker."""
        self.cpu_s = time.process_time()
        for record in records:
            if self._phase and self.phase_ns is None and record.HasField("marker"):
                self.phase_ns = record.time_ns
            yield record

    def progress(self, now_ns: int, _cluster: Cluster, _tally: Tally) -> None:
        """Take note of a moment that is over."""
        self.ended_s = time.perf_counter()
        if self._phase and (self.phase_ns is None or now_ns < self.phase_ns):
            self.began_s = self.ended_s


def _of_replay(row: Row, choice: Choice, trace: Path, run: Path) -> Measured:
    settings = ReplaySettings(
        version="benchmark",
        run_path=run,
        in_process=choice.in_process,
        sampling=Sampling.parse(choice.spans or row.spans),
    )
    watch = _Watch(phase=row.phase)
    with _served(row.scheduler) as (address, foreign):
        settings = replace(settings, scheduler_address=address)
        finished = run_replay(settings, lambda: watch.records(read(trace)), watch.progress)
    cpu_s = {"replay": time.process_time() - watch.cpu_s}
    summary, usage = finished.summary, finished.usage | foreign
    bound = summary.decided.bound
    if row.phase:
        bound = sum(
            decision.observed.HasField("scheduled") and not decision.refused
            for decision in finished.run.decisions()
            if decision.time_ns >= (watch.phase_ns or 0)
        )
    return Measured(
        wall_s=summary.wall_ns / 1e9,
        counted=summary.attempts if row.unit == ATTEMPTS else bound,
        phase_s=watch.ended_s - watch.began_s if row.phase else summary.wall_ns / 1e9,
        pods=summary.pods,
        bound=summary.decided.bound,
        attempts=summary.attempts,
        rounds=summary.rounds,
        messages=summary.messages,
        windows={window.name: window.count for window in summary.windows},
        exchanges=summary.queue_exchanges,
        cpu_s=cpu_s | {name: used.cpu_s for name, used in usage.items()},
        peak_bytes={"replay": _peak_bytes()}
        | {name: used.peak_bytes for name, used in usage.items()},
    )


@contextlib.contextmanager
def _served(scheduler: Sequence[str]) -> Iterator[tuple[str, dict[str, ProcessUsage]]]:
    """Serve a scheduler in place of ours; yield its address and, once it has ended, its usage."""
    usage: dict[str, ProcessUsage] = {}
    if not scheduler:
        yield "", usage
        return
    module, *arguments = scheduler
    command = [sys.executable, "-m", f"{__package__}.{module}", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None  # noqa: S101 - a pipe
        assert process.stdout is not None  # noqa: S101 - a pipe
        yield process.stdout.readline().strip(), usage
        process.stdin.close()
        usage["scheduler"] = ProcessUsage(**json.loads(process.stdout.readline()))


def _of_program(row: Row, choice: Choice, trace: Path, run: Path) -> Measured:
    """Measure the command; `first` gives it an empty folder for compiled kernels."""
    command = [sys.executable, "-m", "replay.cli", "replay", str(trace), "--quiet"]
    command += ["--run", str(run), "--spans", choice.spans or row.spans]
    command += ["--in-process"] if choice.in_process else []
    environment = dict(os.environ)
    if row.first and not choice.quick:
        environment["NUMBA_CACHE_DIR"] = str(run.parent / "kernels")
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode(errors='replace')}")
    summary = json.loads((run / SUMMARY).read_text(encoding="utf-8"))
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(
        wall_s=wall_s,
        counted=1,
        phase_s=wall_s,
        pods=summary["pods"],
        bound=summary["decided"]["bound"],
        attempts=summary["attempts"],
        rounds=summary["rounds"],
        messages=summary["messages"],
        windows={window["name"]: window["count"] for window in summary["windows"]},
        exchanges=summary["queue_exchanges"],
        cpu_s={"together": cpu_s},
        peak_bytes={"largest": after.ru_maxrss * 1024},
    )


def _peak_bytes() -> int:
    """Return this process' largest resident memory so far; 0 where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def items(row: Row, runs: Sequence[Measured]) -> list[Item]:
    """Return a row's figures."""

    def item(metric: str, unit: str, value: Callable[[Measured], float], of: str = "") -> Item:
        return Item(metric=metric, unit=unit, values=[value(run) for run in runs], of=of)

    figures = [
        item("SchedulingThroughput", row.unit, lambda run: run.counted / run.phase_s),
        item("WallTime", "s", lambda run: run.wall_s),
        item("PhaseTime", "s", lambda run: run.phase_s),
        item("Pods", "pods", lambda run: run.pods),
        item("PodsBound", "pods", lambda run: run.bound),
        item("Attempts", "attempts", lambda run: run.attempts),
        item("Rounds", "rounds", lambda run: run.rounds),
        item("PodsPerMessage", "pods", lambda run: run.pods / max(1, run.messages)),
        item("QueueExchangesPerPod", "exchanges", lambda run: run.exchanges / max(1, run.pods)),
        item("CPUPerPod", "us", lambda run: sum(run.cpu_s.values()) / max(1, run.pods) * 1e6),
        item("PeakMemory", "MiB", lambda run: sum(run.peak_bytes.values()) / MIB),
    ]
    for why in dict.fromkeys(why for run in runs for why in run.windows):
        figures.append(item("Windows", "windows", partial(_windows, why=why), why))
    if len(runs[0].cpu_s) > 1:
        for name in runs[0].cpu_s:
            figures += [
                item("CPUPerPod", "us", partial(_cpu_us, name=name), name),
                item("PeakMemory", "MiB", partial(_peak_mib, name=name), name),
            ]
    return figures


def _cpu_us(run: Measured, *, name: str) -> float:
    return run.cpu_s[name] / max(1, run.pods) * 1e6


def _windows(run: Measured, *, why: str) -> float:
    return run.windows.get(why, 0)


def _peak_mib(run: Measured, *, name: str) -> float:
    return run.peak_bytes[name] / MIB


_HEADS = ("ROW", "RATE", "UPSTREAM", "WALL", "PODS/MESSAGE", "EXCHANGES", "MEMORY")


def _line(row: str, rate: str, upstream: str, wall: str, *rest: str) -> str:
    together, exchanges, memory = rest
    return f"{row:<36}{rate:>18}{upstream:>10}{wall:>10}{together:>14}{exchanges:>11}{memory:>11}"


def _medians(measured: Sequence[Item]) -> dict[tuple[str, str], float]:
    return {(item.metric, item.of): median(item.values) for item in measured}


def _first_line(row: Row, measured: Sequence[Item]) -> str:
    medians = _medians(measured)
    rate = medians["SchedulingThroughput", ""]
    return _line(
        row.name,
        "" if row.unit == RUNS else f"{rate:,.0f} {row.unit}",
        row.upstream.figure if row.upstream else "",
        f"{medians['WallTime', '']:,.2f} s",
        f"{medians['PodsPerMessage', '']:,.1f}",
        f"{medians['QueueExchangesPerPod', '']:,.3f}",
        f"{medians['PeakMemory', '']:,.0f} MiB",
    )


def _show_cpu(items_by_row: Mapping[str, Sequence[Item]]) -> None:
    print("\nCPU a pod, us")
    print("".join(f"{head:>12}" for head in ("ALL", *map(str.upper, PROCESSES))).rjust(96))
    for name, measured in items_by_row.items():
        medians = _medians(measured)
        figures = [medians.get(("CPUPerPod", process)) for process in ("", *PROCESSES)]
        shown = ("" if figure is None else f"{figure:,.0f}" for figure in figures)
        print(f"{name:<36}" + "".join(f"{figure:>12}" for figure in shown))
    with_spans, without = (items_by_row.get(name) for name in SPANS_ROWS)
    if with_spans and without:
        ratio = _medians(with_spans)["WallTime", ""] / _medians(without)["WallTime", ""]
        print(f"\nAll spans took {ratio:.2f} times the time of none ({SPANS_ROWS[0]}).")


def _show_sources(rows: Sequence[Row]) -> None:
    sources: dict[str, list[str]] = {}
    for row in rows:
        if row.upstream:
            sources.setdefault(row.upstream.source, []).append(row.name.partition("/")[0])
    if sources:
        print("\nUpstream's figures, in the unit of RATE where they name none")
    for source, names in sources.items():
        print(f"  {', '.join(dict.fromkeys(names))}: {source}")


if __name__ == "__main__":
    main()
