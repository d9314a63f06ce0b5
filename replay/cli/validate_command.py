"""`reprieve validate`: what a trace holds, and what a replay would get of it."""

from __future__ import annotations

import click
import yaml

from replay.cli.parameters import echo_json, output_option, write
from replay.cli.traces import TraceArguments, trace_options
from replay.results.durations import simulated
from replay.trace.validate import Report, validate


@click.command(name="validate")
@trace_options
@output_option(
    *("table", "wide", "json", "yaml"),
    meaning="For people, 80 columns or each line whole, or for programs.",
)
def command(trace: TraceArguments, output: str) -> None:
    """Read a whole trace, and say what a replay would get and what of it is not simulated.

    Exit code 2 where the trace cannot be read; warnings alone are no failure.

    \b
    Examples:
      reprieve validate recording/
      reprieve validate deployment.yaml -o json
      reprieve validate cluster.sktrace --nodes-from nodes.yaml
      reprieve validate performance-config.yaml --workload PreemptionBasic/1000Nodes
      reprieve validate machine_events/ task_events/ --unit-cpu 64 --unit-memory 256Gi
    """
    report = validate(trace.records())
    match output:
        case "json":
            echo_json(_mapping(report))
        case "yaml":
            text = yaml.safe_dump(_mapping(report), sort_keys=False, allow_unicode=True)
            write(text)
        case _:
            _print(report, wide=output == "wide")


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


def _print(report: Report, *, wide: bool) -> None:
    def tell(text: str) -> None:
        click.echo(text if wide else click.wrap_text(text, 80, "", " " * 10))

    header = report.header
    click.echo(f"source    {header.source or 'not named'} ({header.importer or 'native'})")
    click.echo(f"time      {simulated(report.last_ns - report.first_ns)}")
    for title, counts in (
        ("records", report.counts),
        ("created", report.objects),
        ("observed", report.observed),
    ):
        listed = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
        tell(f"{title:<10}{listed or 'none'}")
    for issue in report.issues:
        times = f"{issue.count:,} times: " if issue.count > 1 else ""
        where = f"{issue.where}: " if issue.where else ""
        tell(f"note      {where}{times}{issue.message} [{issue.kind}]")
    for text, count in sorted(report.warnings.items()):
        times = f" ({count:,} times)" if count > 1 else ""
        tell(f"warning   {text}{times}")
    if not report.objects["node"]:
        tell("hint      --made-nodes 10 --node-size cpu=64,memory=256Gi, or --nodes-from FILE")
