"""What a what-if costs that begins late in a run, and a sweep of such, beside whole runs.

    python -m benchmarks.late_forks TRACE... [--share 0.8] [--points 12] [--workers 1]

A run of the trace is made, then one that goes on from it with a node that fails at a share of its
time, then a sweep of as many such as `--points`, each with another node. CPU is that of all
processes, and the share is of as many whole runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from replay.results.durations import simulated
from replay.results.run.cluster import ClusterObjects
from replay.results.run.directory import RunDirectory
from replay.whatif.facts import read_facts

_QUIET = ("--in-process", "--no-report", "-q")


@click.command()
@click.argument("trace", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--share", default=0.8, show_default=True, help="When nodes fail, of the run's time.")
@click.option("--points", default=12, show_default=True, help="Points of the sweep.")
@click.option("--workers", default=1, show_default=True, help="Parallel replays of the sweep.")
def main(trace: Sequence[Path], share: float, points: int, workers: int) -> None:
    """Measure and print a table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        traces = [str(path.resolve()) for path in trace]
        whole_s = _cpu_s(folder, "replay", *traces, *_QUIET, "--run", "whole")
        run = RunDirectory.open(folder / "whole")
        length_ns = read_facts(run).length_ns
        at_ns = int(length_ns * share)
        at, nodes = f"{at_ns // 10**9}s", _nodes_at(run, at_ns)
        chosen = [nodes[place * len(nodes) // points] for place in range(points)]
        forking = ("replay", "--from", "whole", "--at", at)
        fork_s = _cpu_s(folder, *forking, "--fail", chosen[0], *_QUIET, "--run", "fork")
        over = ("--over", f"fail={','.join(chosen)}", "-o", "sweep", "--workers", str(workers))
        sweep_s = _cpu_s(folder, "sweep", "whole", "--at", at, *over, "-q")
        shared = RunDirectory.open(folder / "fork").manifest().shared
        since = "nothing is shared" if shared is None else f"from {simulated(shared.length_ns)} on"
    click.echo(f"{simulated(length_ns)} in all; what-ifs at {at}, {since}")
    click.echo(f"{'WHAT':<28}{'CPU':>10}{'SHARE':>8}")
    for what, cpu_s, runs in (
        ("the whole run", whole_s, 1),
        ("a node that fails", fork_s, 1),
        (f"a sweep of {points} nodes", sweep_s, points),
    ):
        click.echo(f"{what:<28}{cpu_s:>8.1f} s{cpu_s / (runs * whole_s):>8.2f}")


def _cpu_s(folder: Path, *arguments: str) -> float:
    """Run a command; return the seconds of CPU of its processes."""
    process = subprocess.Popen([sys.executable, "-P", "-m", "replay.cli", *arguments], cwd=folder)
    _, status, used = os.wait4(process.pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise click.ClickException(f"reprieve {' '.join(arguments)} ended with {code}")
    process.returncode = 0
    return used.ru_utime + used.ru_stime


def _nodes_at(run: RunDirectory, offset_ns: int) -> list[str]:
    """Return the names of the nodes at a time after the run's start, in order."""
    cluster, start_ns = ClusterObjects(), None
    for round_ in run.rounds():
        start_ns = round_.time_ns if start_ns is None else start_ns
        if round_.time_ns > start_ns + offset_ns:
            break
        for event in round_.events:
            cluster.take(event)
    return sorted(name for kind, _, name in cluster.objects if kind == "Node")


if __name__ == "__main__":
    main()
