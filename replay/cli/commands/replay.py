"""`reprieve replay`: play a trace through the services and show what was decided."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from replay.cli.errors import REFUSED, SPANS_LOST, ExitError, refusing
from replay.cli.parameters import DURATION, FOLDER, MOMENT, SHARE, output_option
from replay.cli.progress import play
from replay.cli.run_options import assert_option, check_all, override_options
from replay.cli.traces import TraceArguments, trace_options
from replay.errors import RunError
from replay.overrides.assignment import OverrideError
from replay.overrides.overrides import Overrides
from replay.results.run.directory import RunDirectory
from replay.results.summary.table import render
from replay.runner import Finished, Settings
from replay.whatif.facts import read_facts
from replay.whatif.figures import Assertion, FigureError
from replay.world.models import ModelError, Models, with_values
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.rpc.client import ClientTls, tls_options
from services.rpc.version import package_version
from services.telemetry.span import Sampling

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(name="replay")
@trace_options
@click.option(
    "--run",
    "run_path",
    type=FOLDER,
    help="Where to leave the results. Default: runs/TRACE-N, the next free N.",
)
@click.option("--force", is_flag=True, help="Replace a former run in --run.")
@output_option("table", "wide", "json", "yaml", meaning="How to print the summary.")
@click.option("--seed", default=0, show_default=True, help="Breaks ties; see `feasible, tied`.")
@click.option(
    "--ties",
    type=click.Choice(["hash", "name"]),
    help="Which of the nodes with the best score is taken: by a hash of seed, pod and node, or the "
    "least node name. Default: hash; with rules v1.16, one after the other.",
)
@click.option(
    "--rules",
    type=click.Choice(["v1.36", "v1.34", "v1.16"]),
    default="v1.34",
    show_default=True,
    help="Whose scheduling and preemption rules.",
)
@click.option(
    "--queue-rules",
    type=click.Choice(["v1.34", "v1.20", "v1.16"]),
    help="Whose queue. Default: that of the rules.",
)
@click.option(
    "--until",
    "until_ns",
    type=DURATION,
    help="Stop after this simulated time, counted from the trace's first record.",
)
@click.option(
    "--follow-until",
    type=MOMENT,
    help="Take a recording as it is, decisions too, up to this time since its beginning (90s, "
    "1h30m) or this moment (2026-01-31T12:00:00Z), and play freely from there on.",
)
@click.option(
    "--scheduler",
    "scheduler_address",
    default="",
    metavar="HOST:PORT",
    help="A scheduler service elsewhere; it knows its own queue. Default: child processes.",
)
@click.option(
    "--eviction",
    "eviction_address",
    default="",
    metavar="HOST:PORT",
    help="An eviction service elsewhere. Default: a child process.",
)
@click.option(
    "--in-process",
    is_flag=True,
    help="Run the services within this process, without sockets: the same decisions, sooner.",
)
@tls_options("", "those services")
@click.option("--scheduler-config", type=_FILE, help="A KubeSchedulerConfiguration file.")
@click.option(
    "--sample-nodes",
    is_flag=True,
    help="Score some of the nodes only, by percentageOfNodesToScore, and try some candidates of a "
    "preemption only, by minCandidateNodes*, as kube-scheduler does.",
)
@click.option("--kubelet-config", type=_FILE, help="A KubeletConfiguration file.")
@click.option("--disable-preemption", is_flag=True, help="Never displace a pod.")
@click.option(
    "--batch-size",
    default=0,
    type=click.IntRange(0, 100_000),
    help="Pods in one exchange of scheduler and queue. Changes speed, never a decision.",
)
@click.option(
    "--start-delay",
    "start_delay_ns",
    type=DURATION,
    default="0s",
    show_default=True,
    help="From bound to Running, where the trace does not say.",
)
@click.option(
    "--shutdown",
    "shutdown_ns",
    type=DURATION,
    help="From SIGTERM to a pod's end, where the trace does not say. Default: its grace period.",
)
@click.option(
    "--budget-status",
    type=click.Choice(["computed", "recorded"]),
    default="computed",
    show_default=True,
    help="Whether disruption budgets' status is computed, or taken from the trace.",
)
@click.option("--no-eviction", is_flag=True, help="Leave node-pressure eviction out.")
@click.option(
    "--model",
    "model_values",
    multiple=True,
    metavar="NAME=VALUE",
    help="What the replay assumes where the trace does not say; `reprieve models` lists them. May "
    "be given several times.",
)
@click.option(
    "--spans",
    "sampling",
    type=SHARE,
    default="all",
    show_default=True,
    help="Pods whose spans are kept. They go into the run, or to OTEL_EXPORTER_OTLP_ENDPOINT.",
)
@click.option(
    "--span-clock",
    type=click.Choice(["virtual", "wall"]),
    default="virtual",
    show_default=True,
    help="Whether the pods' spans run in simulated time, or when the replay came to it.",
)
@click.option(
    "--compare-recorded",
    is_flag=True,
    help="Play nothing: judge each recorded decision in the state in which it was taken.",
)
@click.option(
    "--free-run",
    is_flag=True,
    help="With --compare-recorded: also play the trace, and tell how many pods went where the "
    "recorded ones did.",
)
@click.option(
    "--report/--no-report",
    "reports",
    default=True,
    help="Whether to leave tables (*.parquet) and report.html in the run. Default: they are left.",
)
@override_options
@assert_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    *,
    trace: TraceArguments,
    overrides: Overrides,
    assertions: tuple[Assertion, ...],
    run_path: Path | None,
    force: bool,
    output: str,
    seed: int,
    ties: str | None,
    rules: str,
    queue_rules: str | None,
    until_ns: int | None,
    scheduler_address: str,
    eviction_address: str,
    in_process: bool,
    tls: ClientTls,
    scheduler_config: Path | None,
    sample_nodes: bool,
    kubelet_config: Path | None,
    disable_preemption: bool,
    batch_size: int,
    start_delay_ns: int,
    shutdown_ns: int | None,
    budget_status: str,
    no_eviction: bool,
    model_values: tuple[str, ...],
    sampling: Sampling,
    span_clock: str,
    compare_recorded: bool,
    free_run: bool,
    reports: bool,
    quiet: bool,
) -> None:
    """Play a trace through queue, scheduler and eviction, and show what was decided, and why.

    TRACE... is a recording (files or a folder), manifests, OpenB's CSV files or Reprieve's own
    format. The services are started as child processes, unless addresses are given.

    \b
    Examples:
      reprieve replay nodes.yaml pods.yaml
      reprieve replay recording/ --run runs/today --seed 7 -o json
      reprieve replay cluster.ktr --rules v1.16 --disable-preemption
      reprieve replay cluster.ktr --scheduler 127.0.0.1:50052 --eviction 127.0.0.1:50053
      reprieve replay cluster.yaml --model start-delay=2s --model taint-eviction=off
      reprieve replay recording/ --compare-recorded --free-run
      reprieve replay recording/ --follow-until 10m --set priorityClass.batch.value=50
      reprieve replay cluster.ktr --set priorityClass.batch.value=50 --scale-nodes 0.8
    """
    follow_until = trace.options.follow_until
    with refusing(OverrideError):
        scheduler_text = overrides.scheduler(_text(scheduler_config), samples=sample_nodes)
        kubelet_text = overrides.kubelet(_text(kubelet_config), evicts=not no_eviction)
    scheduler = scheduler_pb2.SchedulerConfig(
        rules=rules,
        seed=seed,
        kube_scheduler_configuration=scheduler_text,
        queue=queue_pb2.QueueConfig(rules=queue_rules or ""),
        batch_size=batch_size or None,
        disable_preemption=disable_preemption,
        sample_nodes=sample_nodes,
        ties=scheduler_pb2.TieBreak.Value(f"TIE_BREAK_{ties.upper()}") if ties else None,
    )
    settings = Settings(
        version=package_version(),
        argv=tuple(sys.argv[1:]),
        trace_paths=trace.paths,
        scheduler_address=scheduler_address,
        eviction_address=eviction_address,
        in_process=in_process,
        tls=tls,
        scheduler=scheduler,
        eviction=_eviction_config(kubelet_text, is_given=kubelet_config is not None),
        models=_models(
            Models(
                start_delay_ns=start_delay_ns,
                shutdown_ns=shutdown_ns,
                eviction=not no_eviction,
                recorded_budget_status=budget_status == "recorded",
            ),
            model_values,
        ),
        until_ns=until_ns,
        run_path=run_path,
        force=force,
        sampling=sampling,
        wall_spans=span_clock == "wall",
        overrides=overrides.to_mapping(),
        usage=tuple(overrides.usage.values()),
        follow_until=str(follow_until or ""),
    )
    if compare_recorded:
        if (run_path is not None or until_ns is not None) and not free_run:
            problem = "--compare-recorded plays nothing: leave --run and --until out"
            raise click.UsageError(f"{problem}, or give --free-run")
        if overrides.to_mapping() or assertions or follow_until is not None:
            raise click.UsageError(
                "--compare-recorded judges what was recorded: change nothing, leave --assert and "
                "--follow-until out"
            )
        from replay.cli.commands.recorded_comparison import compare_trace  # noqa: PLC0415 - loaded when needed

        compare_trace(settings, trace, output, plays=free_run, quiet=quiet)
        return
    if free_run:
        raise click.UsageError("--free-run belongs to --compare-recorded: a replay is free anyway")
    finished = play(settings, trace, overrides, quiet=quiet)
    if reports:
        _report(finished.run, quiet=quiet)
    _show(finished, output)
    if assertions:
        with refusing(FigureError, RunError):
            check_all(assertions, read_facts(finished.run))


def _report(run: RunDirectory, *, quiet: bool) -> None:
    """Leave tables and the report; the run itself is whole without them."""
    from replay.report.page import write_report  # noqa: PLC0415 - loaded when needed

    try:
        path = write_report(run)
    except RunError as error:
        click.echo(f"Warning: no report: {error}", err=True)
        return
    if not quiet:
        click.echo(f"report: {path}", err=True)


def _models(models: Models, given: Sequence[str]) -> Models:
    try:
        return with_values(models, given)
    except ModelError as error:
        raise click.BadParameter(str(error), param_hint="--model") from error


def _text(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        with refusing(OSError):
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ExitError(REFUSED, f"{path}: is no UTF-8 text: {error.reason}") from error


def _eviction_config(text: str, *, is_given: bool) -> eviction_pb2.EvictionConfig:
    if not text and not is_given:
        return eviction_pb2.EvictionConfig(use_defaults=True)
    return eviction_pb2.EvictionConfig(kubelet_configuration=text)


def _show(finished: Finished, output: str) -> None:
    render(finished.summary, output, Console())
    if finished.delivery.lost:
        raise ExitError(
            SPANS_LOST,
            f"{finished.delivery.lost} of {finished.delivery.ended} spans did not reach "
            f"{finished.delivery.target}: {finished.delivery.problem}",
        )
