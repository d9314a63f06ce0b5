"""Live progress on a terminal: simulated time, pods a second, counts by outcome."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from replay.results.tally import Tally
from replay.world.cluster import Cluster

_PERIOD_S = 0.2


class Progress:
    """A line on standard error that tells how far a replay has come; nothing in a pipe."""

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._live = (
            Live(Text("starting the services"), console=console, transient=True)
            if console.is_terminal and not quiet
            else None
        )
        self._began = self._shown = time.monotonic()
        self._start_ns: int | None = None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, now_ns: int, cluster: Cluster, tally: Tally) -> None:
        """Show where the replay stands, a few times a second."""
        if self._start_ns is None:
            self._start_ns, self._began = now_ns, time.monotonic()
        now = time.monotonic()
        if self._live is None or now - self._shown < _PERIOD_S:
            return
        self._shown = now
        rate = tally.cycles / max(now - self._began, 1e-9)
        decided = tally.decisions
        seconds = (now_ns - self._start_ns) / 1e9
        self._live.update(
            Text(
                f"{seconds:,.0f} s simulated · {tally.cycles:,} attempts ({rate:,.0f}/s) · "
                f"{decided['scheduled']:,} bound · {decided['preempted']:,} preempted · "
                f"{decided['evicted']:,} evicted · {len(cluster.pending):,} pending"
            )
        )
