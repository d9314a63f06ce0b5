"""A replay on the command line: its progress on a terminal, Ctrl-C, and its exit code."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Self

import yaml
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from replay.bounds import yaml_value
from replay.cli.console import TerminalConsole
from replay.cli.errors import LOOP, ExitError, refusing
from replay.cli.traces import TraceArguments
from replay.errors import RunError, TraceError
from replay.overrides.assignment import OverrideError
from replay.overrides.overrides import Overrides
from replay.results.durations import simulated
from replay.results.summary.tally import Tally
from replay.runner import FinishedReplay, ReplaySettings, run_replay
from replay.world.api.cluster import Cluster
from replay.world.loop.replay import LoopError
from replay.world.models import SECOND_NS
from reprieve.trace.v1beta1.trace_pb2 import Record
from services.kube.pod import DEFAULT_SCHEDULER
from services.telemetry.collector import TelemetryError

_PERIOD_S = 0.2
_FAR_NS = 600 * SECOND_NS


class Progress:
    """The progress of a replay, a line on standard error; nothing where that is not a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = console = TerminalConsole(stderr=True)
        self._live = (
            Live(Text("starting the services"), console=console, transient=True)
            if console.is_terminal and not quiet
            else None
        )
        self._is_quiet = quiet
        self._began = self._shown = time.monotonic()
        self._start_ns: int | None = None
        self._record_ns = 0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def compiling(self, done: int, count: int) -> None:
        """Show that kernels are compiled; where the line is not a terminal's, once."""
        if self._live is not None:
            text = f"compiling kernels, once after an install: {done} of {count}"
            self._live.update(Text(text))
        elif done == 1 and not self._is_quiet:
            self.print("compiling kernels, once after an install; this takes some 20 s")

    def print(self, text: str) -> None:
        """Show a line of its own on standard error."""
        self._console.print(Text(text))

    def follow(self, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the trace's records, and remember the time of the last one."""
        for record in records:
            self._record_ns = record.at_ns
            yield record

    def __call__(self, now_ns: int, cluster: Cluster, tally: Tally) -> None:
        """Update the line, at most five times a second."""
        del cluster
        if self._start_ns is None:
            self._start_ns, self._began = now_ns, time.monotonic()
        now = time.monotonic()
        if self._live is None or now - self._shown < _PERIOD_S:
            return
        self._shown = now
        ahead_ns = now_ns - self._record_ns
        self._live.update(Text(line(now_ns - self._start_ns, ahead_ns, now - self._began, tally)))


@contextlib.contextmanager
def counted(label: str, *, quiet: bool) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function that shows (done, total) as a bar on standard error; only on a terminal."""
    console = TerminalConsole(stderr=True)
    bar = Bar(
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )
    with bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def line(played_ns: int, ahead_ns: int, wall_s: float, tally: Tally) -> str:
    """Return the line: simulated time, pods a second of the wall clock, counts by outcome.

    `ahead_ns` is the simulated time since the trace's last record; it is shown from 10 minutes on.
    Pods a second are scheduling cycles. Unschedulable pods are those whose last attempt failed;
    other pods without a node were not tried yet.
    """
    rate = tally.cycles / max(wall_s, 1e-9)
    decided = tally.decisions
    unschedulable = sum(bool(pod.message) for pod in tally.waiting.values())
    ahead = f" ({simulated(ahead_ns)} after the last record)" if ahead_ns >= _FAR_NS else ""
    return (
        f"{simulated(played_ns)} simulated{ahead} · {rate:,.0f} pods/s · "
        f"{decided['scheduled']:,} bound · {decided['preempted']:,} preempted · "
        f"{decided['evicted']:,} evicted · {unschedulable:,} unschedulable · "
        f"{len(tally.waiting) - unschedulable:,} not tried yet"
    )


RecordFilter = Callable[[Iterator[Record]], Iterator[Record]]


def play(
    settings: ReplaySettings,
    trace: TraceArguments,
    overrides: Overrides,
    *,
    quiet: bool,
    through: RecordFilter = iter,
) -> FinishedReplay:
    """Replay a trace; `through` receives its records and yields them. Raises ExitError."""
    with refusing(RunError, TelemetryError, OverrideError), Progress(quiet=quiet) as progress:

        def records() -> Iterator[Record]:
            return progress.follow(through(plan.records(settings.scheduler.seed)))

        names = profile_names(settings.scheduler.kube_scheduler_configuration)
        plan = overrides.plan(lambda: trace.records(names), settings.until_ns)
        if plan.removed_nodes:
            changes = {**settings.overrides, "removed_nodes": plan.removed_nodes}
            settings = dataclasses.replace(settings, overrides=changes)
        try:
            return run_replay(settings, records, progress, progress.print, progress.compiling)
        except LoopError as error:
            raise ExitError(LOOP, str(error)) from error


def profile_names(configuration: str) -> tuple[str, ...]:
    """Return the schedulerName of each profile of a KubeSchedulerConfiguration, in its order.

    The default, also for a file without profiles, is default-scheduler. A file that cannot be read
    counts as one without profiles: the scheduler refuses it.
    """
    try:
        document = yaml_value(configuration, "")
    except (yaml.YAMLError, TraceError):
        return (DEFAULT_SCHEDULER,)
    profiles = document.get("profiles") if isinstance(document, dict) else None
    if not isinstance(profiles, list):
        return (DEFAULT_SCHEDULER,)
    names = [
        str(each.get("schedulerName") or DEFAULT_SCHEDULER)
        for each in profiles
        if isinstance(each, dict)
    ]
    return tuple(dict.fromkeys(names)) or (DEFAULT_SCHEDULER,)
