"""The commands that read a run: `query`, `report`, `explain`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from replay.cli.console import TerminalConsole
from replay.cli.errors import refusing
from replay.cli.parameters import (
    DATA,
    at_option,
    echo_data,
    of_run,
    open_run,
    output_option,
    run_argument,
    write,
)
from replay.cli.which_run import complete_name, run_option, which_run
from replay.errors import RunError
from replay.explain.explain import explain
from replay.explain.table import print_explanation
from replay.explain.target import ExplainQuery
from replay.importers.records import Moment
from replay.report.page import write_report
from replay.results.kubectl.resources import resource
from replay.results.kubectl.rows import TableWriter
from replay.results.run.directory import RunDirectory
from replay.results.schema import TABLES
from replay.results.tables.query import QueryResult, RunTables
from services.kube.yaml_scalars import written
from services.rpc.access import ClientTls
from services.rpc.client import tls_options
from services.terminal import csv_text, echo, json_text

_NULL = "<none>"
_POD = resource("pod")


@click.command(name="query")
@run_argument
@click.argument("sql", required=False)
@click.option("--tables", "lists", is_flag=True, help="List the tables and their columns.")
@output_option(
    *("table", "json", "yaml", "csv"), meaning="For people, for programs or for spreadsheets."
)
@refusing(RunError)
def query_command(*, run: Path, sql: str | None, lists: bool, output: str) -> None:
    """Query a run's tables in DuckDB's SQL.

    RUN is a run directory. SQL is one SELECT; `--tables` lists the tables and the meaning of their
    columns. Times are simulated, in ns. The tables are Parquet files in RUN, which other tools can
    read too.

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
        raise click.UsageError("give a SELECT, or --tables for the list of tables")
    with RunTables(open_run(run)) as tables:
        _OUTPUTS[output](tables.select(sql))


def _print_tables() -> None:
    for table in TABLES.values():
        write(f"{table.name}: a row is {table.row}\n")
        columns = TableWriter(("  COLUMN", "TYPE", "MEANING"), write)
        columns.rows(
            [(f"  {column.name}", column.type, column.meaning) for column in table.columns]
        )
        write("\n")


def _table(answer: QueryResult) -> None:
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
            return ",".join(f"{key}={item}" for key, item in value.items())
        case _:
            return str(value)


def _json(answer: QueryResult) -> None:
    separator = "[\n  "
    for row in answer.rows():
        mapping = dict(zip(answer.columns, row, strict=True))
        text = json.dumps(mapping, default=_plain, ensure_ascii=False)
        click.echo(separator + json_text(text), nl=False)
        separator = ",\n  "
    click.echo("[]" if separator == "[\n  " else "\n]")


def _yaml(answer: QueryResult) -> None:
    """Print the rows one at a time, as items of one YAML sequence."""
    none = True
    for row in answer.rows():
        mapping = dict(zip(answer.columns, row, strict=True))
        mapping = json.loads(json.dumps(mapping, default=_plain))
        write(written([mapping]))
        none = False
    if none:
        click.echo("[]")


def _plain(value: object) -> Any:
    return float(value) if isinstance(value, Decimal) else str(value)


def _csv(answer: QueryResult) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(map(csv_text, answer.columns))
    for batch in answer.batches():
        writer.writerows(_csv_row(row) for row in batch)


def _csv_row(row: Sequence[object]) -> list[object]:
    return [
        json.dumps(value, default=_plain)
        if isinstance(value, dict | list)
        else csv_text(value)
        if isinstance(value, str)
        else value
        for value in row
    ]


_OUTPUTS: dict[str, Callable[[QueryResult], None]] = {
    "table": _table,
    "json": _json,
    "yaml": _yaml,
    "csv": _csv,
}


@click.command(name="report")
@run_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write. Default: report.html in RUN.",
)
@refusing(RunError)
def report_command(*, run: Path, output: Path | None) -> None:
    """Write a run's report: one HTML file for any browser, which needs no network.

    It shows utilisation and pending pods over time by priority, waiting times, why pods were
    unschedulable, preemptors and victims, pods on nodes, evictions and eviction loops, free
    capacity that waiting pods could not use, and the wall time of each step.

    \b
    Examples:
      reprieve report runs/today
      reprieve report runs/today -o today.html
    """
    path = write_report(open_run(run), output)
    echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


@click.command(name="explain")
@click.argument("pod", metavar="POD")
@click.argument("others", nargs=-1, metavar="[RUN]", shell_complete=complete_name)
@run_option
@at_option("The last attempt up to this moment")
@click.option(
    "--attempt", type=click.IntRange(1), help="This attempt of the pod, from 1, instead of --at."
)
@click.option(
    "--wait",
    "waits",
    is_flag=True,
    help="Show what the pod waited for until it had a node, part by part; of a workload, as in "
    "deployment/web, of all its pods.",
)
@click.option("-n", "--namespace", default="", help="The pod's namespace.")
@click.option(
    "--top",
    default=5,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="Number of nodes, groups and candidates to show.",
)
@click.option(
    "--scheduler",
    default="",
    metavar="HOST:PORT",
    help="The scheduler service to replay the run to; required where one at an address made the "
    "run. Default: a new one, as the run had.",
)
@tls_options("", "that service")
@output_option("table", "json", "yaml", meaning="For people or for programs.")
@refusing(RunError)
def explain_command(
    *,
    pod: str,
    others: Sequence[str],
    run: Path | None,
    moment: Moment | None,
    attempt: int | None,
    waits: bool,
    namespace: str,
    top: int,
    scheduler: str,
    tls: ClientTls,
    output: str,
) -> None:
    """Explain one decision of a run: replay the run up to it and evaluate every node.

    POD is a name, NAMESPACE/NAME or a UID, and RUN the folder of a run; without it, the latest one
    under runs/ is explained. Shown are the plugins that refused nodes and why, the
    scores of the best nodes, preemption's victims and reprieved pods, and where the pod waits,
    until when and for which events. For an evicted pod: the threshold, the observation on its node,
    and its rank among the pods there. With --wait: the pod's wait for a node as a timeline of
    causes, and the time of each, which add up to the wait.

    \b
    Examples:
      reprieve explain nginx-a
      reprieve explain nginx-a runs/nginx-1 --attempt 1
      reprieve explain prod/web-0 runs/today --at 1h30m --top 10
      reprieve explain web-0 runs/today -o json
      reprieve explain cache-0 runs/eviction-loop-1 --at 10m
      reprieve explain prod/web-0 runs/today --wait
      reprieve explain deployment/web runs/today --wait
    """
    if attempt is not None and moment is not None:
        raise click.UsageError("--at and --attempt cannot be combined")
    directory, pod = _explained(run, (pod, *others))
    if waits:
        if attempt is not None or moment is not None:
            raise click.UsageError("--wait is of the whole wait: leave --at and --attempt out")
        _show_waits(directory, pod, namespace, top, output)
        return
    query = ExplainQuery(pod=pod, namespace=namespace, **of_run(moment), attempt=attempt or 0)
    explanation = explain(directory, query, top=top, address=scheduler, tls=tls)
    if output in DATA:
        echo_data(explanation.to_mapping(), output)
    else:
        print_explanation(explanation, TerminalConsole())


def _show_waits(run: RunDirectory, named: str, namespace: str, top: int, output: str) -> None:
    from replay.explain.waits import waits_of  # noqa: PLC0415 - DuckDB is loaded when needed
    from replay.explain.waits_table import print_waits  # noqa: PLC0415 - the same

    waits = waits_of(run, named, namespace, top)
    if output in DATA:
        echo_data(waits.to_mapping(), output)
    else:
        print_waits(waits, TerminalConsole(), top)


def _explained(run: Path | None, arguments: Sequence[str]) -> tuple[RunDirectory, str]:
    """Return the run and the pod of `POD [RUN]`, or of `pod POD [RUN]` as after `get`."""
    directory, names = which_run(arguments, run)
    if len(names) > 1 and names[0] in _POD.names:
        names = names[1:]
    if not names:
        raise click.UsageError("name a pod: reprieve explain POD")
    if len(names) > 1:
        return open_run(Path(names[-1])), ""  # raises: the folder has no run
    return directory, names[0].removeprefix("pod/")
