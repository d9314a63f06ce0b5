"""`reprieve generate`: a seeded synthetic workload."""

from __future__ import annotations

from pathlib import Path

import click

from replay.cli.parameters import DURATION, TRACE_FILE
from replay.cli.traces import write_trace
from replay.generate.presets import PRESETS
from replay.generate.workload import GenerateOptions, generate
from replay.results.durations import simulated

_DEFAULTS = GenerateOptions()


@click.command(name="generate")
@click.option(
    "-o",
    "--output",
    required=True,
    type=TRACE_FILE,
    help="Where to write: .ktr or .jsonl.",
)
@click.option("--preset", type=click.Choice(sorted(PRESETS)), help="A workload that has a name.")
@click.option(
    "--seed", default=_DEFAULTS.seed, show_default=True, help="Other seeds give other workloads."
)
@click.option("--nodes", default=_DEFAULTS.nodes, show_default=True, type=click.IntRange(1))
@click.option("--pods", default=_DEFAULTS.pods, show_default=True, type=click.IntRange(0))
@click.option(
    "--deployments",
    default=_DEFAULTS.deployments,
    show_default=True,
    type=click.IntRange(0),
    help="Deployments that share the pods with bare ones.",
)
@click.option("--budgets", default=_DEFAULTS.budgets, show_default=True, type=click.IntRange(0))
@click.option("--zones", default=_DEFAULTS.zones, show_default=True, type=click.IntRange(1))
@click.option(
    "--window",
    "window_ns",
    type=DURATION,
    default=simulated(_DEFAULTS.window_ns),
    show_default=True,
    help="Time in which the pods arrive.",
)
@click.option(
    "--service-time",
    "service_ns",
    type=DURATION,
    default=simulated(_DEFAULTS.service_ns),
    show_default=True,
    help="How long a bare pod runs on average.",
)
@click.option(
    "--leaky",
    "leaky_percent",
    default=_DEFAULTS.leaky_percent,
    show_default=True,
    type=click.IntRange(0, 100),
    help="Percentage of pod shapes that come to use more memory than they request.",
)
def command(output: Path, preset: str | None, seed: int, **counts: int) -> None:
    """Write a synthetic workload: nodes, four tiers of priority, budgets, service times, usage.

    The same options give the same bytes. A preset brings its own counts.

    \b
    Examples:
      reprieve generate -o workload.ktr --nodes 500 --pods 10000 --seed 7
      reprieve generate -o openb-like.ktr --preset openb-like
    """
    records = PRESETS[preset](seed) if preset else generate(GenerateOptions(seed=seed, **counts))
    write_trace(output, records)
