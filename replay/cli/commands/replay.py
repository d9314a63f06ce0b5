"""`reprieve replay`: replays a trace through the services and shows the decisions."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import click

from replay.cli.checks import Checks, check_options
from replay.cli.commands.resume import resumed
from replay.cli.console import TerminalConsole
from replay.cli.early import checks_of_look, refuse_unknown
from replay.cli.errors import REFUSED, SPANS_LOST, ExitError, refusing
from replay.cli.parameters import (
    DURATION,
    FOLDER,
    MOMENT,
    SHARE,
    output_option,
    quiet_option,
    shows,
)
from replay.cli.progress import look_at, play
from replay.cli.sections import SectionedCommand, section
from replay.cli.traces import TraceArguments, trace_options
from replay.cli.what_if import override_options
from replay.errors import RunError
from replay.overrides.assignment import OverrideError
from replay.overrides.overrides import Overrides
from replay.results.run.directory import RunDirectory
from replay.results.summary.table import render
from replay.runner import FinishedReplay, ReplaySettings
from replay.world.models import ModelError, Models, with_values
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.rpc.access import ClientTls
from services.rpc.client import tls_options
from services.rpc.version import package_version
from services.telemetry.span import Sampling
from services.terminal import echo

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(name="replay", cls=SectionedCommand)
@section(
    "Run",
    click.option(
        "--run", "run_path", type=FOLDER, help="The run's directory. Default: runs/TRACE-N."
    ),
    click.option("--force", is_flag=True, help="Replace an existing run in --run."),
    click.option(
        "--until",
        "until_ns",
        type=DURATION,
        help="Stop after this simulated time since the trace's first record, such as 1h30m.",
    ),
    click.option(
        "--seed", default=0, show_default=True, help="Breaks ties of nodes; orders --arrivals."
    ),
    output_option("table", "wide", "json", "yaml", meaning="How to print the summary."),
    click.option(
        "--report/--no-report",
        "reports",
        default=True,
        help="Write tables (*.parquet) and report.html into the run. Default: they are written.",
    ),
    quiet_option,
)
@section("Checks", check_options)
@section("What-ifs", override_options)
@section(
    "Rules and configuration",
    click.option(
        "--rules",
        type=click.Choice(["v1.36", "v1.34", "v1.16"]),
        default="v1.34",
        show_default=True,
        help="The Kubernetes version of the scheduling and preemption rules; v1.36 is v1.34 with "
        "v1.36's balance scores (docs/fidelity.md).",
    ),
    click.option(
        "--queue-rules",
        type=click.Choice(["v1.34", "v1.20", "v1.16"]),
        help="The Kubernetes version of the queue's rules. Default: that of --rules.",
    ),
    click.option("--scheduler-config", type=_FILE, help="A KubeSchedulerConfiguration file."),
    click.option("--kubelet-config", type=_FILE, help="A KubeletConfiguration file."),
    click.option("--disable-preemption", is_flag=True, help="Never preempt a pod."),
    click.option("--no-eviction", is_flag=True, help="Replay without node-pressure eviction."),
    click.option(
        "--ties",
        type=click.Choice(["hash", "name"]),
        help="How one of the nodes with the best score is selected: by a hash of seed, pod and "
        "node, or by name. Default: hash; with --rules v1.16 round-robin.",
    ),
    click.option(
        "--sample-nodes",
        is_flag=True,
        help="Score only some nodes, by percentageOfNodesToScore, and try only some candidates of "
        "a preemption, by minCandidateNodes*, as kube-scheduler does.",
    ),
    click.option(
        "--budget-status",
        type=click.Choice(["computed", "recorded"]),
        default="computed",
        show_default=True,
        help="Compute the status of disruption budgets, or use the recorded status.",
    ),
    click.option(
        "--batch-size",
        default=0,
        type=click.IntRange(0, 100_000),
        help="Pods in one exchange of scheduler and queue. Changes the speed, never a decision.",
    ),
)
@section(
    "Assumptions",
    click.option(
        "--model",
        "model_values",
        multiple=True,
        metavar="NAME=VALUE",
        help="An assumption for what the trace does not have, such as start-delay=2s or "
        "pod-gc=off; `reprieve models` lists them. Repeatable.",
    ),
    click.option(
        "--start-delay",
        "start_delay_ns",
        type=DURATION,
        default="0s",
        show_default=True,
        help="Time from the binding of a pod to Running, where the trace does not have it.",
    ),
    click.option(
        "--shutdown",
        "shutdown_ns",
        type=DURATION,
        help="Time from SIGTERM to the end of a pod, where the trace does not have it. Default: "
        "its grace period.",
    ),
)
@section(
    "Recorded decisions",
    click.option(
        "--compare-recorded",
        is_flag=True,
        help="Do not replay: judge each recorded decision in the recorded state before it.",
    ),
    click.option(
        "--free-run",
        is_flag=True,
        help="With --compare-recorded: also replay the trace, and count the pods that are bound to "
        "their recorded nodes.",
    ),
    click.option(
        "--follow-until",
        type=MOMENT,
        help="Keep the recorded state, decisions included, until this time since the start of the "
        "recording (90s, 1h30m) or this moment (2026-01-31T12:00:00Z), and replay from there.",
    ),
)
@section(
    "Spans",
    click.option(
        "--spans",
        "sampling",
        type=SHARE,
        default="all",
        show_default=True,
        help="The share of pods whose spans are kept, such as 1%. Spans are written to the run, or "
        "sent to OTEL_EXPORTER_OTLP_ENDPOINT.",
    ),
    click.option(
        "--span-clock",
        type=click.Choice(["virtual", "wall"]),
        default="virtual",
        show_default=True,
        help="The times of the pods' spans: simulated time, or the wall clock of the replay.",
    ),
)
@section(
    "Services",
    click.option(
        "--scheduler",
        "scheduler_address",
        default="",
        metavar="HOST:PORT",
        help="A running scheduler service, which has its own queue. Default: child processes.",
    ),
    click.option(
        "--eviction",
        "eviction_address",
        default="",
        metavar="HOST:PORT",
        help="A running eviction service. Default: a child process.",
    ),
    click.option(
        "--in-process",
        is_flag=True,
        help="Run the services in this process, without sockets: the same decisions, faster.",
    ),
    click.option(
        "--reconnect",
        "reconnect_ns",
        type=DURATION,
        default="5m",
        show_default=True,
        help="How long to wait for a service that is lost before the run ends; 0s: not at all. "
        "The run then goes on from its last checkpoint.",
    ),
    click.option(
        "--checkpoint-every",
        "checkpoint_every_ns",
        type=DURATION,
        default="10s",
        show_default=True,
        help="Wall time between two checkpoints, at least; they take at most 1 % of a run's time.",
    ),
    tls_options("", "those services"),
)
@section("Trace", trace_options)
def command(*, trace: TraceArguments, overrides: Overrides, checks: Checks, **values: Any) -> None:
    """Replay a trace through queue, scheduler and eviction; show the decisions and their reasons.

    TRACE... are files or folders: manifests, a recording, or another format of --format. The
    services are started as child processes, unless addresses are given.

    \b
    Examples:
      reprieve replay nodes.yaml pods.yaml
      reprieve replay recording/ --run runs/today --seed 7 -o json
      reprieve replay cluster.ktr --rules v1.16 --disable-preemption
      reprieve replay cluster.ktr --scheduler 127.0.0.1:50052
      reprieve replay cluster.yaml --model start-delay=2s --model pod-gc=off
      reprieve replay recording/ --compare-recorded --free-run
      reprieve replay recording/ --follow-until 10m --drop-nodes zone=a
      reprieve replay cluster.ktr --set priorityClass.batch.value=50
    """
    options = ReplayOptions(**values)
    checks = replace(checks, allows_no_effect=overrides.allows_no_effect)
    settings = _settings(options, trace, overrides)
    if options.compare_recorded:
        if (options.run_path is not None or options.until_ns is not None) and not options.free_run:
            problem = "--compare-recorded replays nothing: leave --run and --until out"
            raise click.UsageError(f"{problem}, or add --free-run")
        if overrides.to_mapping() or checks.are_wanted or trace.options.follow_until is not None:
            raise click.UsageError(
                "--compare-recorded judges recorded decisions: leave overrides, --assert and "
                "--follow-until out"
            )
        if checks_of_look() is not None:
            return
        from replay.cli.commands.recorded_comparison import compare_trace  # noqa: PLC0415 - loaded when needed

        compare_trace(settings, trace, options.output, plays=options.free_run, quiet=options.quiet)
        return
    if options.free_run:
        raise click.UsageError("--free-run needs --compare-recorded; every other replay is free")
    later = checks_of_look()
    refuse_unknown(
        checks if later is None else later, lambda: chain(trace.records(), overrides.added())
    )
    if later is not None:
        look_at(settings, trace, overrides)
        return
    finished = play(settings, trace, overrides, quiet=options.quiet)
    if options.reports:
        _report(finished.run, quiet=options.quiet)
    _show(finished, options.output if shows(options.output, quiet=options.quiet) else "")
    checks.conclude_run(finished.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The values of the options above, by their names."""

    run_path: Path | None
    force: bool
    output: str
    reconnect_ns: int
    checkpoint_every_ns: int
    seed: int
    ties: str | None
    rules: str
    queue_rules: str | None
    until_ns: int | None
    scheduler_address: str
    eviction_address: str
    in_process: bool
    tls: ClientTls
    scheduler_config: Path | None
    sample_nodes: bool
    kubelet_config: Path | None
    disable_preemption: bool
    batch_size: int
    start_delay_ns: int
    shutdown_ns: int | None
    budget_status: str
    no_eviction: bool
    model_values: tuple[str, ...]
    sampling: Sampling
    span_clock: str
    compare_recorded: bool
    free_run: bool
    reports: bool
    quiet: bool


def _settings(
    options: ReplayOptions, trace: TraceArguments, overrides: Overrides
) -> ReplaySettings:
    with refusing(OverrideError):
        scheduler_text = overrides.scheduler(
            _text(options.scheduler_config), samples=options.sample_nodes
        )
        kubelet_text = overrides.kubelet(
            _text(options.kubelet_config), evicts=not options.no_eviction
        )
    has_file = bool(kubelet_text) or options.kubelet_config is not None
    settings = ReplaySettings(
        version=package_version(),
        argv=tuple(sys.argv[1:]),
        trace_paths=trace.paths,
        scheduler_address=options.scheduler_address,
        eviction_address=options.eviction_address,
        in_process=options.in_process,
        tls=options.tls,
        scheduler=_scheduler_config(options, scheduler_text),
        eviction=eviction_pb2.EvictionConfig(
            use_defaults=not has_file,
            kubelet_configuration=kubelet_text,
            enforce_node_allocatable=[] if has_file else ["pods"],
        ),
        models=_models(options),
        until_ns=options.until_ns,
        run_path=options.run_path,
        force=options.force,
        sampling=options.sampling,
        wall_spans=options.span_clock == "wall",
        overrides=overrides.to_mapping(),
        follow_until=str(trace.options.follow_until or ""),
        reconnect_ns=options.reconnect_ns,
        checkpoint_every_ns=options.checkpoint_every_ns,
    )
    return resumed(settings)


def _scheduler_config(options: ReplayOptions, text: str) -> scheduler_pb2.SchedulerConfig:
    ties = f"TIE_BREAK_{options.ties.upper()}" if options.ties else None
    return scheduler_pb2.SchedulerConfig(
        rules=options.rules,
        seed=options.seed,
        kube_scheduler_configuration=text,
        queue=queue_pb2.QueueConfig(rules=options.queue_rules or ""),
        batch_size=options.batch_size or None,
        disable_preemption=options.disable_preemption,
        sample_nodes=options.sample_nodes,
        ties=scheduler_pb2.TieBreak.Value(ties) if ties else None,
    )


def _models(options: ReplayOptions) -> Models:
    models = Models(
        start_delay_ns=options.start_delay_ns,
        shutdown_ns=options.shutdown_ns,
        eviction=not options.no_eviction,
        recorded_budget_status=options.budget_status == "recorded",
    )
    try:
        return with_values(models, options.model_values)
    except ModelError as error:
        raise click.BadParameter(str(error), param_hint="--model") from error


def _report(run: RunDirectory, *, quiet: bool) -> None:
    """Write tables and the report; the run is complete without them."""
    from replay.report.page import write_report  # noqa: PLC0415 - loaded when needed

    try:
        path = write_report(run)
    except RunError as error:
        echo(f"Warning: no report: {error}", err=True)
        return
    if not quiet:
        echo(f"report: {path}", err=True)


def _text(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        with refusing(OSError):
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ExitError(REFUSED, f"{path}: is not UTF-8: {error.reason}") from error


def _show(finished: FinishedReplay, output: str) -> None:
    if output:
        render(finished.summary, output, TerminalConsole())
    if finished.delivery.lost:
        raise ExitError(
            SPANS_LOST,
            f"{finished.delivery.lost} of {finished.delivery.ended} spans did not reach "
            f"{finished.delivery.target}: {finished.delivery.problem}",
        )
