"""`reprieve validate`, `convert` and `generate`: check and write traces."""

from __future__ import annotations

from pathlib import Path

import click

from replay.cli.console import TerminalConsole
from replay.cli.parameters import DATA, TRACE_FILE, echo_data, output_option
from replay.cli.traces import TraceArguments, trace_options, write_trace
from replay.generate.presets import PRESETS
from replay.generate.workload import GenerateOptions, generate
from replay.options import DURATION
from replay.results.durations import simulated
from replay.trace.reader import has_end
from replay.trace.validate import TraceReport, validate
from services.terminal import echo, one_line

_DEFAULTS = GenerateOptions()
_UNWRAPPED = 1 << 19
"""Width of a console that is not a terminal, in columns."""


@click.command(name="validate")
@trace_options
@output_option(
    *("table", "wide", "json", "yaml"),
    meaning="table: 80 columns on a terminal; wide: lines are not wrapped; json and yaml: for "
    "programs.",
)
def validate_command(trace: TraceArguments, output: str) -> None:
    """Read a whole trace; show what a replay reads from it, and what is not simulated.

    The exit code is 2 where the trace cannot be read, and 0 with warnings.

    \b
    Examples:
      reprieve validate recording/
      reprieve validate deployment.yaml -o json
      reprieve validate cluster.sktrace --nodes-from nodes.yaml
      reprieve validate performance.yaml --workload PreemptionBasic/1000Nodes
      reprieve validate machine_events/ task_events/ --unit-memory 256Gi
    """
    report = validate(trace.records())
    for path in trace.paths:
        if path.is_file() and not has_end(path):
            text = f"{path} has no end: whether it was cut off cannot be checked"
            report.warnings[text] += 1
    if output in DATA:
        echo_data(_mapping(report), output)
    else:
        _print(report, wide=output == "wide")


def _mapping(report: TraceReport) -> dict[str, object]:
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


def _print(report: TraceReport, *, wide: bool) -> None:
    is_wrapped = not wide and TerminalConsole().width < _UNWRAPPED

    def show(text: str) -> None:
        line = one_line(text)
        echo(*click.wrap_text(line, 80, "", " " * 10).split("\n") if is_wrapped else [line])

    header = report.header
    echo(f"source    {header.source or 'not named'} ({header.importer or 'native'})")
    echo(f"time      {simulated(report.last_ns - report.first_ns)}")
    for title, counts in (
        ("records", report.counts),
        ("created", report.objects),
        ("observed", report.observed),
    ):
        listed = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
        show(f"{title:<10}{listed or 'none'}")
    for issue in report.issues:
        times = f"{issue.count:,} times: " if issue.count > 1 else ""
        where = f"{issue.where}: " if issue.where else ""
        show(f"note      {where}{times}{issue.message} [{issue.kind}]")
    for text, count in sorted(report.warnings.items()):
        times = f" ({count:,} times)" if count > 1 else ""
        show(f"warning   {text}{times}")
    if not report.objects["node"]:
        show("hint      --made-nodes 10 --node-size cpu=64,memory=256Gi, or --nodes-from FILE")


@click.command(name="convert")
@trace_options
@click.option(
    "-o",
    "--output",
    required=True,
    type=TRACE_FILE,
    help="The new trace: .ktr (protobuf in zstd frames) or .jsonl (one record a line).",
)
def convert_command(trace: TraceArguments, output: Path) -> None:
    """Convert a trace of any format that Reprieve reads to the native format.

    \b
    Examples:
      reprieve convert nodes.yaml pods.yaml -o cluster.ktr
      reprieve convert recording/ -o recording.jsonl
      reprieve convert cluster.ktr -o cluster.jsonl      # to read it
      reprieve convert task_events/ machine_events/ -o google.ktr
      reprieve convert packing.sqlite --machine 16 --made-nodes 500 -o azure.ktr
    """
    write_trace(output, trace.records())


@click.command(name="generate")
@click.option(
    "-o", "--output", required=True, type=TRACE_FILE, help="The new trace: .ktr or .jsonl."
)
@click.option(
    "--preset", type=click.Choice(sorted(PRESETS)), help="A named workload; only --seed changes it."
)
@click.option(
    "--seed", default=_DEFAULTS.seed, show_default=True, help="The seed of all random choices."
)
@click.option(
    "--nodes",
    default=_DEFAULTS.nodes,
    show_default=True,
    type=click.IntRange(1),
    help="Nodes of four shapes.",
)
@click.option(
    "--pods",
    default=_DEFAULTS.pods,
    show_default=True,
    type=click.IntRange(0),
    help="Bare pods and replicas of Deployments.",
)
@click.option(
    "--deployments",
    default=_DEFAULTS.deployments,
    show_default=True,
    type=click.IntRange(0),
    help="Deployments; their replicas are among --pods.",
)
@click.option(
    "--budgets",
    default=_DEFAULTS.budgets,
    show_default=True,
    type=click.IntRange(0),
    help="PodDisruptionBudgets of Deployments and of groups of bare pods.",
)
@click.option(
    "--zones",
    default=_DEFAULTS.zones,
    show_default=True,
    type=click.IntRange(1),
    help="Zones, to which nodes are assigned in turn.",
)
@click.option(
    "--window",
    "window_ns",
    type=DURATION,
    default=simulated(_DEFAULTS.window_ns),
    show_default=True,
    help="The time in which the pods are created.",
)
@click.option(
    "--service-time",
    "service_ns",
    type=DURATION,
    default=simulated(_DEFAULTS.service_ns),
    show_default=True,
    help="The average time that a bare pod runs.",
)
@click.option(
    "--leaky",
    "leaky_percent",
    default=_DEFAULTS.leaky_percent,
    show_default=True,
    type=click.IntRange(0, 100),
    help="Percentage of pod shapes that use more memory than they request after a while.",
)
def generate_command(output: Path, preset: str | None, seed: int, **counts: int) -> None:
    """Write a synthetic workload: nodes, four tiers of priority, budgets, service times, usage.

    The same options give the same bytes. A preset ignores the other options but --seed.

    \b
    Examples:
      reprieve generate -o workload.ktr --nodes 500 --pods 10000 --seed 7
      reprieve generate -o openb-like.ktr --preset openb-like
      reprieve generate -o gpus.ktr --preset accelerators
    """
    records = PRESETS[preset](seed) if preset else generate(GenerateOptions(seed=seed, **counts))
    write_trace(output, records)
