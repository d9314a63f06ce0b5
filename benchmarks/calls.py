"""Count what a replay calls for each pod or attempt, by process, and name what it calls most.

    python -m benchmarks.calls ROW [--top N]

The row is replayed in one process under cProfile, which counts every call of a function, Python's
or C's. Each is put down to the process whose code makes it: that of the caller where the function
itself is of no folder of ours. What a process does for its transport is not in it, and the code
that both ends of it share (messages, telemetry) stands in a line of its own. Times are the
profiler's and serve to compare lines with each other only.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench import Choice, measure
from benchmarks.rows import ATTEMPTS, chosen
from replay.trace.writer import write

_PARTS = {
    "replay/": "replay",
    "services/scheduler/": "scheduler",
    "services/queue/": "queue",
    "services/eviction/": "eviction",
    "services/": "shared by both ends",
}
_Function = tuple[str, int, str]


def main(arguments: Sequence[str] | None = None) -> None:
    """Profile one row and print its table."""
    parser = argparse.ArgumentParser(prog="benchmarks.calls", description=__doc__)
    parser.add_argument("row", help="a row's name, or its beginning up to a slash")
    parser.add_argument("--top", type=int, default=8, help="functions named for each process")
    options = parser.parse_args(arguments)
    row = chosen(options.row)[0]
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.ktr"
        write(trace, row.records(False))
        choice = Choice(in_process=True)
        measure(row.name, choice, trace)  # what is loaded and compiled once
        measured = profile.runcall(measure, row.name, choice, trace)
    count = measured.attempts if row.unit == ATTEMPTS else measured.pods
    unit = "attempt" if row.unit == ATTEMPTS else "pod"
    _show(pstats.Stats(profile), count, f"{row.name}, for each of {count:,} {unit}s", options.top)


def _show(stats: pstats.Stats, count: int, title: str, top: int) -> None:
    calls: Counter[tuple[str, _Function]] = Counter()
    times: Counter[str] = Counter()
    table: Mapping[_Function, Any] = stats.stats  # type: ignore[attr-defined] # not in its stub
    for function, (_, called, own_s, _, callers) in table.items():
        part = _part(function)
        if part:
            calls[part, function] += called
            times[part] += own_s
            continue
        for caller, (_, from_it, own_from_it_s, _) in callers.items():
            part = _part(caller) or "other"
            calls[part, function] += from_it
            times[part] += own_from_it_s
    print(f"{title}\n{'':22}{'CALLS':>8}{'OF PYTHON':>12}{'SHARE OF TIME':>16}")
    parts = dict.fromkeys((*_PARTS.values(), "other"))
    for part in parts:
        mine = {function: n for (of, function), n in calls.items() if of == part}
        python = sum(n for function, n in mine.items() if function[0] != "~")
        share = times[part] / sum(times.values())
        print(f"{part:22}{sum(mine.values()) / count:8.0f}{python / count:12.0f}{share:16.0%}")
    print(f"{'all':22}{sum(calls.values()) / count:8.0f}")
    for part in parts:
        found = Counter({function: n for (of, function), n in calls.items() if of == part})
        print(f"\n{part}")
        for (file, _, name), n in found.most_common(top):
            place = "" if file == "~" else f"  {Path(file).parent.name}/{Path(file).name}"
            print(f"{n / count:8.1f}  {name}{place}")


def _part(function: _Function) -> str:
    """Return whose code a function is, "" where it is of no folder of ours."""
    place = function[0].rpartition("/site-packages/")[2]
    for folder, part in _PARTS.items():
        if f"/{folder}" in place:
            return part
    return ""


if __name__ == "__main__":
    main()
