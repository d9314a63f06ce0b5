"""`reprieve query`, `export` and `report`: a run's tables in SQL, for other tools, on a page."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import orjson

from replay.cli.errors import refusing
from replay.cli.parameters import output_option, run_argument, write
from replay.errors import RunError
from replay.report.page import write_report
from replay.results.kubectl.rows import TableWriter
from replay.results.run.directory import RunDirectory
from replay.results.schema import TABLES
from replay.results.spans.chrome_trace import TraceEvent, trace_events
from replay.results.tables.query import Answer, RunTables

_NULL = "<none>"
_EVENTS_PER_WRITE = 2000


@click.command(name="query")
@run_argument
@click.argument("sql", required=False)
@click.option("--tables", "lists", is_flag=True, help="List the tables and their columns.")
@output_option("table", "json", "csv", meaning="For people, for programs or for spreadsheets.")
@refusing(RunError)
def query_command(*, run: Path, sql: str | None, lists: bool, output: str) -> None:
    """Ask a run's tables in DuckDB's SQL.

    RUN is a run directory. SQL is one SELECT; `--tables` lists the tables with their columns and
    what these mean. Times are simulated, in ns. The tables are Parquet files in RUN, for any other
    tool too.

    \b
    Examples:
      reprieve query runs/today --tables
      reprieve query runs/today 'SELECT ending, count(*) FROM pods GROUP BY ending'
      reprieve query runs/today -o csv 'SELECT by_name, count(*) AS victims
        FROM preemptions GROUP BY by_name ORDER BY victims DESC' > preemptors.csv
    """
    if lists:
        _print_tables()
        return
    if not sql:
        raise click.UsageError("give a SELECT, or --tables for what can be asked")
    with RunTables(RunDirectory.open(run)) as tables:
        _OUTPUTS[output](tables.ask(sql))


def _print_tables() -> None:
    for table in TABLES.values():
        write(f"{table.name}: a row is {table.row}\n")
        columns = TableWriter(("  COLUMN", "TYPE", "MEANING"), write)
        columns.rows([(f"  {each.name}", each.type, each.meaning) for each in table.columns])
        write("\n")


def _table(answer: Answer) -> None:
    columns = [name.upper() for name in answer.columns]
    table = TableWriter(columns, write)
    for batch in answer.batches():
        table.rows([[_cell(value) for value in row] for row in batch])


def _cell(value: object) -> str:
    match value:
        case None:
            return _NULL
        case bool():
            return str(value).lower()
        case float() | Decimal():
            return f"{value:.6g}"
        case dict():
            return ",".join(f"{key}={each}" for key, each in value.items())
        case _:
            return str(value)


def _json(answer: Answer) -> None:
    separator = "[\n  "
    for row in answer.rows():
        mapping = dict(zip(answer.columns, row, strict=True))
        click.echo(separator + json.dumps(mapping, default=_plain, ensure_ascii=False), nl=False)
        separator = ",\n  "
    click.echo("[]" if separator == "[\n  " else "\n]")


def _plain(value: object) -> Any:
    return float(value) if isinstance(value, Decimal) else str(value)


def _csv(answer: Answer) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.columns)
    for batch in answer.batches():
        writer.writerows(_csv_row(row) for row in batch)


def _csv_row(row: Sequence[object]) -> list[object]:
    return [
        json.dumps(each, default=_plain) if isinstance(each, dict | list) else each for each in row
    ]


_OUTPUTS: dict[str, Callable[[Answer], None]] = {"table": _table, "json": _json, "csv": _csv}


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
def export_command(*, run: Path, _format: str, output: Path) -> None:
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
            count = _write_events(partial, trace_events(tables))
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    click.echo(f"{output}: {count:,} trace events", err=True)


def _write_events(path: Path, events: Iterable[TraceEvent]) -> int:
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


@click.command(name="report")
@run_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write it. Default: report.html in RUN.",
)
@refusing(RunError)
def report_command(*, run: Path, output: Path | None) -> None:
    """Write a run's report: one HTML file that opens in any browser, without a network.

    It shows utilisation and pending pods over time by priority, waiting times, why pods were
    unschedulable, who displaced whom, each node's pods, evictions and loops of them, what was free
    but could not be used, and what each step took.

    \b
    Examples:
      reprieve report runs/today
      reprieve report runs/today -o today.html
    """
    path = write_report(RunDirectory.open(run), output)
    click.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
