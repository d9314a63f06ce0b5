"""A replay on the command line: its progress on a terminal, Ctrl-C, and its exit code."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from replay.cli.console import TerminalConsole
from replay.results.durations import simulated
from replay.results.summary.tally import Tally
from replay.trace.reading import watched
from replay.world.api.cluster import Cluster
from reprieve.trace.v1beta1.trace_pb2 import Record
from services.kube.time import SECOND_NS

_PERIOD_S = 0.2
_FAR_NS = 600 * SECOND_NS
_ESTIMATE_S = 2.0
_READ_AHEAD = 0.9
"""If more than this share of a trace is read before the replay, reading shows no progress."""


class Progress:
    """The progress of a replay as a line on standard error, if that is a terminal.

    `until_ns` is the simulated time after which the replay ends, None for the end of the trace.
    """

    def __init__(self, *, until_ns: int | None = None, quiet: bool = False) -> None:
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
        self._until_ns = until_ns
        self._window_end_ns = 0
        self._files: dict[Path, tuple[int, int]] = {}
        self._read_before = 1.0
        self._watch = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
            self._watch.enter_context(watched(self._reading))
        return self

    def __exit__(self, *exception: object) -> None:
        self._watch.close()
        if self._live is not None:
            self._live.stop()

    def _reading(self, path: Path, read_bytes: int, size: int) -> None:
        """Show how much of a file has been read, until the replay begins."""
        self._files[path] = (read_bytes, size)
        now = time.monotonic()
        if self._live is None or self._start_ns is not None or now - self._shown < _PERIOD_S:
            return
        self._shown = now
        row = Table.grid(padding=(0, 1))
        read = Text(f"{read_bytes / 1e6:,.0f} of {size / 1e6:,.0f} MB")
        row.add_row(Text(f"reading {path.name}"), ProgressBar(size, read_bytes, width=30), read)
        self._live.update(row)

    def _share(self, now_ns: int, start_ns: int) -> float | None:
        """Return the completed share of the replay, from 0 to 1; None if it cannot be computed.

        The share is of the simulated time if the end is known; otherwise of the trace's bytes, if
        the trace is one file that is read during the replay.
        """
        ends = [self._window_end_ns] if self._window_end_ns else []
        if self._until_ns is not None:
            ends.append(start_ns + self._until_ns)
        if ends:
            return (now_ns - start_ns) / max(1, min(ends) - start_ns)
        if self._read_before > _READ_AHEAD or len(self._files) != 1:
            return None
        return (self._read() - self._read_before) / (1 - self._read_before)

    def _read(self) -> float:
        """Return the share of the trace's files that has been read."""
        read = sum(read for read, _ in self._files.values())
        return read / max(1, sum(size for _, size in self._files.values()))

    def compiling(self, done: int, count: int) -> None:
        """Show that kernels are compiled; print it only once if standard error is no terminal."""
        if self._live is not None:
            text = f"compiling kernels, once after an install: {done} of {count}"
            self._live.update(Text(text))
        elif done == 1 and not self._is_quiet:
            self.print("compiling kernels, once after an install; this takes some 20 s")

    def print(self, text: str) -> None:
        """Show a separate line on standard error."""
        self._console.print(Text(text))

    def announce(self, text: str) -> None:
        """Show a separate line on standard error, unless output is quiet."""
        if not self._is_quiet:
            self.print(text)

    def follow(self, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the trace's records, and store the time of the last record."""
        for record in records:
            self._record_ns = record.time_ns
            if record.HasField("header"):
                self._window_end_ns = record.header.window_end_time_ns
            yield record

    def __call__(self, now_ns: int, cluster: Cluster, tally: Tally) -> None:
        """Update the line, at most five times a second."""
        del cluster
        if self._start_ns is None:
            self._start_ns, self._began = now_ns, time.monotonic()
            self._read_before = self._read() if self._files else 1.0
        now = time.monotonic()
        if self._live is None or now - self._shown < _PERIOD_S:
            return
        self._shown = now
        ahead_ns = now_ns - self._record_ns
        share = self._share(now_ns, self._start_ns)
        wall_s = now - self._began
        self._live.update(Text(line(now_ns - self._start_ns, ahead_ns, wall_s, tally, share)))


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


def line(
    played_ns: int, ahead_ns: int, wall_s: float, tally: Tally, share: float | None = None
) -> str:
    """Return the progress line: completed share, simulated time, pods per second, outcome counts.

    `share` is the completed share of the replay, from 0 to 1, or None; after two seconds, the
    remaining time is estimated from it. `ahead_ns` is the simulated time since the trace's last
    record; it is shown from 10 minutes on. Pods per second are scheduling cycles per second of wall
    time. Unschedulable pods are pods whose last attempt failed; other pods without a node were not
    tried yet.
    """
    rate = tally.cycles / max(wall_s, 1e-9)
    decided = tally.decisions
    unschedulable = sum(bool(pod.message) for pod in tally.waiting.values())
    ahead = f" ({simulated(ahead_ns)} after the last record)" if ahead_ns >= _FAR_NS else ""
    return (
        f"{_done(share, wall_s)}{simulated(played_ns)} simulated{ahead} · {rate:,.0f} pods/s · "
        f"{decided['scheduled']:,} bound · {decided['preempted']:,} preempted · "
        f"{decided['evicted']:,} evicted · {unschedulable:,} unschedulable · "
        f"{len(tally.waiting) - unschedulable:,} not tried yet"
    )


def _done(share: float | None, wall_s: float) -> str:
    if share is None or not 0 < share <= 1:
        return ""
    text = f"{share:.0%}".replace("%", " %")
    if wall_s < _ESTIMATE_S:
        return f"{text} · "
    left_s = round(wall_s * (1 - share) / share)
    return f"{text}, {simulated(left_s * SECOND_NS)} left · "
