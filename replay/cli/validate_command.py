"""`reprieve validate`: what a trace holds, and what a replay would get of it."""

from __future__ import annotations

import click
import orjson

from replay.cli.traces import TraceArguments, trace_options
from replay.results.durations import simulated
from replay.trace.validate import Report, validate


@click.command(name="validate")
@trace_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For people, or for programs.",
)
def command(trace: TraceArguments, output: str) -> None:
    """Read a whole trace, and say what a replay would get and what of it is not simulated.

    Exit code 2 where the trace cannot be read; warnings alone are no failure.

    \b
    Examples:
      reprieve validate recording/
      reprieve validate deployment.yaml -o json
    """
    report = validate(trace.records())
    if output == "json":
        click.echo(orjson.dumps(_mapping(report), option=orjson.OPT_INDENT_2))
    else:
        _print(report)


def _mapping(report: Report) -> dict[str, object]:
    return {
        "source": report.header.source,
        "importer": report.header.importer,
        "first_ns": report.first_ns,
        "last_ns": report.last_ns,
        "records": dict(report.counts),
        "objects": dict(report.objects),
        "observed": dict(report.observed),
        "issues": [
            {
                "kind": issue.kind,
                "where": issue.where,
                "message": issue.message,
                "count": max(1, issue.count),
            }
            for issue in report.issues
        ],
        "warnings": dict(report.warnings),
    }


def _print(report: Report) -> None:
    header = report.header
    click.echo(f"source    {header.source or 'not named'} ({header.importer or 'native'})")
    click.echo(f"time      {simulated(report.last_ns - report.first_ns)}")
    for title, counts in (
        ("records", report.counts),
        ("created", report.objects),
        ("observed", report.observed),
    ):
        listed = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
        click.echo(click.wrap_text(f"{title:<10}{listed or 'none'}", 80, "", " " * 10))
    for issue in report.issues:
        times = f"{issue.count:,} times: " if issue.count > 1 else ""
        where = f"{issue.where}: " if issue.where else ""
        text = f"note      {where}{times}{issue.message} [{issue.kind}]"
        click.echo(click.wrap_text(text, 80, "", " " * 10))
    for text, count in sorted(report.warnings.items()):
        times = f" ({count:,} times)" if count > 1 else ""
        click.echo(click.wrap_text(f"warning   {text}{times}", 80, "", " " * 10))
