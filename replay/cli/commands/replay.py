"""`reprieve replay`: replays a trace through the services and shows the decisions."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from replay.autoscaling.errors import GroupsError
from replay.cli.checks import Checks, check_options
from replay.cli.console import TerminalConsole
from replay.cli.early import labelled, refuse_unknown
from replay.cli.errors import SERVICE, SPANS_LOST, ExitError, refusing, refusing_traces
from replay.cli.parameters import MOMENT, output_option, quiet_option, shows
from replay.cli.play import look_at, play
from replay.cli.sections import SectionedCommand, section
from replay.cli.traces import TraceArguments, trace_options
from replay.errors import RunError
from replay.options import takes
from replay.overrides.errors import OverrideError
from replay.overrides.overrides import Overrides
from replay.results.run.directory import RunDirectory
from replay.results.summary.table import mistakes_query, render
from replay.runner import FinishedReplay
from replay.settings import ReplaySettings
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.access import ClientTls
from services.rpc.client import tls_options
from services.terminal import echo


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """A replay as its command line specifies it: all options, each read once.

    settings: of the replay, without what `overrides` change in its configuration files.
    """

    settings: ReplaySettings
    trace: TraceArguments
    overrides: Overrides
    checks: Checks
    output: str
    reports: bool
    quiet: bool
    tolerates_refusals: bool
    compare_recorded: bool
    free_run: bool

    def configured(self) -> ReplaySettings:
        """Return the settings with the configurations that result. Raises OverrideError."""
        settings, overrides = self.settings, self.overrides
        if settings.autoscaler is not None:
            from replay.autoscaling.resolve import resolved  # noqa: PLC0415 - when needed

            settings = replace(settings, autoscaler=resolved(settings.autoscaler, self.named()))
        settings = replace(settings, autoscaler=overrides.autoscaler(settings.autoscaler))
        scheduler, kubelet = settings.kube_scheduler_configuration, settings.kubelet_configuration
        return replace(
            settings,
            trace_paths=self.trace.paths,
            kube_scheduler_configuration=overrides.scheduler(
                scheduler or "", samples=settings.sample_nodes
            ),
            kubelet_configuration=overrides.kubelet(kubelet or "", evicts=not settings.no_eviction)
            or kubelet,
            overrides=overrides.to_mapping(),
            follow_until=str(self.trace.options.follow_until or ""),
        )

    def named(self) -> Iterator[trace_pb2.Record]:
        """Yield the trace, and what the overrides add to it by name."""
        yield from self.trace.records()
        yield from self.overrides.added()


class ReplayCommand(SectionedCommand):
    """The command, whose callback reads its options as a ReplayRequest."""

    titles = (
        *("Run", "Checks", "What-ifs", "Rules and configuration", "Assumptions"),
        *("Recorded decisions", "Spans", "Services", "Trace"),
    )

    def invoke(self, ctx: click.Context) -> None:
        """Run the replay of the command line."""
        ctx.invoke(run, super().invoke(ctx))

    def request(self, arguments: Sequence[str]) -> ReplayRequest:
        """Return the replay of a command line without running it. Raises as the command does."""
        with self.make_context("replay", list(arguments)) as context:
            request: ReplayRequest = super().invoke(context)
            return request


def _overrides(**texts: Any) -> Overrides:
    with refusing(OverrideError):
        return Overrides(**texts)


@click.command(name="replay", cls=ReplayCommand)
@takes("settings", ReplaySettings)
@section(
    "Run",
    output_option("table", "wide", "json", "yaml", meaning="How to print the summary."),
    click.option(
        "--report/--no-report",
        "reports",
        default=True,
        help="Write tables (*.parquet) and report.html into the run. Default: they are written.",
    ),
    quiet_option,
)
@section(
    "Checks",
    check_options,
    click.option(
        "--tolerate-refusals",
        "tolerates_refusals",
        is_flag=True,
        help="Exit with 0 although decisions of the scheduler were refused for its mistakes, such "
        "as a pod bound twice. Default: 3, once the run is complete.",
    ),
)
@section("What-ifs", takes("overrides", Overrides, _overrides))
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
@section("Services", tls_options("", "those services"))
@section("Trace", trace_options)
def command(
    *, settings: ReplaySettings, tls: ClientTls, overrides: Overrides, checks: Checks, **values: Any
) -> ReplayRequest:
    """Replay a trace through queue, scheduler and eviction; show the decisions and their reasons.

    TRACE... are files or folders: manifests, a recording, or another format of --format. The
    services are started as child processes, for a small trace within this process, unless addresses
    are given.

    \b
    Examples:
      reprieve replay nodes.yaml pods.yaml
      reprieve replay recording/ --run runs/today --seed 7 -o json
      reprieve replay cluster.ktr --rules v1.16 --disable-preemption
      reprieve replay cluster.ktr --scheduler 127.0.0.1:50052
      reprieve replay cluster.yaml --model start-delay=2s --model pod-gc=off
      reprieve replay recording/ --compare-recorded --free-run
      reprieve replay recording/ --follow-until 10m --drop-nodes zone=a
      reprieve replay recording/ --autoscaler groups.yaml
      reprieve replay cluster.ktr --set priorityClass.batch.value=50
    """
    return ReplayRequest(
        settings=replace(settings, tls=tls),
        overrides=overrides,
        checks=replace(checks, allows_no_effect=overrides.allows_no_effect),
        **values,
    )


def run(request: ReplayRequest) -> None:
    """Replay, or compare recorded decisions; show the result. Raises ExitError."""
    settings = replace(_usable(request), argv=request.settings.argv or tuple(sys.argv[1:]))
    if request.compare_recorded:
        from replay.cli.commands.recorded_comparison import compare_trace  # noqa: PLC0415 - loaded when needed

        compare_trace(
            settings, request.trace, request.output, plays=request.free_run, quiet=request.quiet
        )
        return
    refuse_unknown(request.checks, request.named)
    finished = play(settings, request.trace, request.overrides, quiet=request.quiet)
    if request.reports:
        _report(finished.run, quiet=request.quiet)
    _show(finished, request.output if shows(request.output, quiet=request.quiet) else "")
    request.checks.conclude_run(finished.run)
    if not request.tolerates_refusals:
        refuse_mistakes(finished.run)


def refuse_mistakes(run: RunDirectory) -> None:
    """Raise ExitError if decisions of a complete run were refused for mistakes of its scheduler."""
    refusals = run.summary()["decided"].get("refusals")
    if refusals:
        counts = ", ".join(f"{count['count']:,} {count['name']}" for count in refusals)
        query = mistakes_query(str(run.path))
        raise ExitError(
            SERVICE,
            f"decisions of the scheduler were refused for its mistakes: {counts}; the run is "
            f"complete: `{query}` shows them, and --tolerate-refusals exits with 0",
        )


def look(arguments: Sequence[str], checks: Checks, where: str) -> None:
    """Validate a replay that is to run later, with its `checks`.

    Raises as the replay would, with `where` before the text.
    """
    with labelled(where):
        request = command.request(arguments)
        settings = _usable(request)
        if not request.compare_recorded:
            refuse_unknown(checks, request.named)
            look_at(settings, request.trace, request.overrides)


_OUTPUTS = frozenset(
    {
        *("run_path", "force", "output", "reports", "quiet", "compare_recorded", "free_run"),
        *("assertions", "junit", "summary"),
    }
)
"""The parameters that choose what a replay leaves behind, and not what it plays."""


def inputs(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command line without those of its outputs and its checks.

    Further options may follow them: what stood after "--" are paths.
    """
    has_value = {
        name: not getattr(parameter, "is_flag", False)
        for parameter in command.params
        if parameter.name in _OUTPUTS
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    kept, rest = list[str](), iter(arguments)
    for argument in rest:
        if argument == "--":
            return [*kept, *(f"./{path}" if path.startswith("-") else path for path in rest)]
        name, equals, _ = argument.partition("=")
        if name not in has_value:
            kept.append(argument)
        elif has_value[name] and not equals:
            next(rest, None)
    return kept


def _usable(request: ReplayRequest) -> ReplaySettings:
    """Return the settings to replay with. Raises UsageError for options that exclude each other."""
    with refusing(OverrideError, GroupsError), refusing_traces():
        settings = request.configured()
    if not request.compare_recorded:
        if request.free_run:
            raise click.UsageError(
                "--free-run needs --compare-recorded; every other replay is free"
            )
        return settings
    if (settings.run_path is not None or settings.until_ns is not None) and not request.free_run:
        problem = "--compare-recorded replays nothing: leave --run and --until out"
        raise click.UsageError(f"{problem}, or add --free-run")
    is_changed = settings.overrides or settings.autoscaler is not None or settings.follow_until
    if is_changed or request.checks.are_wanted:
        raise click.UsageError(
            "--compare-recorded judges recorded decisions: leave overrides, --autoscaler, --assert "
            "and --follow-until out"
        )
    return settings


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


def _show(finished: FinishedReplay, output: str) -> None:
    if output:
        render(finished.summary, output, TerminalConsole())
    if finished.delivery.lost:
        raise ExitError(
            SPANS_LOST,
            f"{finished.delivery.lost} of {finished.delivery.ended} spans did not reach "
            f"{finished.delivery.target}: {finished.delivery.problem}",
        )
