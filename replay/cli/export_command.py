"""`reprieve export`: a run for other tools to open."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

import click
import orjson

from replay.cli.errors import refusing
from replay.cli.parameters import run_argument
from replay.results.chrome_trace import TraceEvent, trace_events
from replay.results.errors import RunError
from replay.results.run_directory import RunDirectory
from replay.results.tables.query import RunTables

_EVENTS_PER_WRITE = 2000


@click.command(name="export")
@run_argument
@click.option(
    "--format",
    "_format",
    type=click.Choice(["chrome-trace"]),
    default="chrome-trace",
    show_default=True,
    help="chrome-trace: JSON that Perfetto and chrome://tracing open.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Where to write it; a name that ends in .gz is compressed.",
)
@refusing(RunError, OSError)
def command(*, run: Path, _format: str, output: Path) -> None:
    """Export a run over simulated time: each node with its pods, and the pods that wait.

    Nodes are processes, pods slices in them, preemptions and evictions instants; pending pods are
    counters of the cluster: not tried yet, refused, nominated.

    \b
    Examples:
      reprieve export runs/today -o today.json.gz
      reprieve export runs/today --format chrome-trace -o today.json
    """
    partial = output.with_name(f".partial.{output.name}")
    try:
        with RunTables(RunDirectory.open(run)) as tables:
            count = _write(partial, trace_events(tables))
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    click.echo(f"{output}: {count:,} trace events", err=True)


def _write(path: Path, events: Iterable[TraceEvent]) -> int:
    count, lines = 0, bytearray(b'{"displayTimeUnit":"ms","traceEvents":[')
    compressed = path.name.endswith(".gz")
    with gzip.open(path, "wb", 3) if compressed else path.open("wb") as file:
        for event in events:
            lines += b",\n" if count else b"\n"
            lines += orjson.dumps(event)
            count += 1
            if count % _EVENTS_PER_WRITE == 0:
                file.write(lines)
                lines.clear()
        file.write(lines + b"\n]}\n")
    return count
