"""`reprieve query`: SQL over a run's tables."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from replay.cli.errors import refusing
from replay.cli.parameters import output_option, run_argument, write
from replay.results.errors import RunError
from replay.results.run_directory import RunDirectory
from replay.results.table_writer import TableWriter
from replay.results.tables.query import Answer, RunTables
from replay.results.tables.schema import TABLES

_NULL = "<none>"


@click.command(name="query")
@run_argument
@click.argument("sql", required=False)
@click.option("--tables", "lists", is_flag=True, help="List the tables and their columns.")
@output_option("table", "json", "csv", meaning="For people, for programs or for spreadsheets.")
@refusing(RunError)
def command(*, run: Path, sql: str | None, lists: bool, output: str) -> None:
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
