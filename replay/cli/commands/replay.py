"""`reprieve replay`: replays a trace through the services and shows the decisions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from replay.autoscaling.errors import GroupsError
from replay.cli.checks import Checks, check_options
from replay.cli.console import TerminalConsole
from replay.cli.early import labelled, refuse_unknown
from replay.cli.errors import REFUSED, SERVICE, SPANS_LOST, ExitError, refusing, refusing_traces
from replay.cli.parameters import MOMENT, open_run, output_option, quiet_option, shows
from replay.cli.play import look_at, play
from replay.cli.sections import SectionedCommand, section
from replay.cli.traces import TraceArguments, trace_options
from replay.durations import shown
from replay.errors import RunError
from replay.forks import Origin
from replay.importers.records import Moment
from replay.options import takes
from replay.overrides.errors import OverrideError
from replay.overrides.overrides import OverridePlan, Overrides
from replay.results.run.directory import RunDirectory
from replay.results.summary.table import mistakes_query, render
from replay.runner import FinishedReplay
from replay.settings import RESTARTABLE, ReplaySettings
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.access import ClientTls
from services.rpc.client import tls_options
from services.terminal import echo, one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """A replay as its command line specifies it: all options, each read once.

    settings: the replay's settings, before `overrides` change its configuration files. shares: a
    run from which the new run takes its beginning, as far as both are equal. argv: the command line
    without the option for `shares`.
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
    shares: Path | None = None
    argv: tuple[str, ...] = field(default=(), compare=False)

    def configured(self) -> ReplaySettings:
        """Return the settings with the overridden configurations. Raises OverrideError."""
        settings, overrides = self.settings, self.overrides
        if settings.autoscaler is not None:
            from replay.autoscaling.resolve import resolved  # noqa: PLC0415 - when needed

            settings = replace(settings, autoscaler=resolved(settings.autoscaler, self.named()))
        settings = replace(settings, autoscaler=overrides.autoscaler(settings.autoscaler))
        scheduler, kubelet = settings.kube_scheduler_configuration, settings.kubelet_configuration
        restarts = self.settings.restarts
        if settings.restart_scheduler:
            from replay.cli.restarts import restarts_of  # noqa: PLC0415 - loaded when needed

            start_ns = next(self.trace.records(), trace_pb2.Record()).time_ns
            restarts = restarts_of(settings, overrides, start_ns)
        return replace(
            settings,
            restarts=restarts,
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
        """Yield the trace, and the named objects that overrides add to it."""
        yield from self.trace.records()
        yield from self.overrides.added()


class ReplayCommand(SectionedCommand):
    """The command; its callback returns the options as a ReplayRequest."""

    titles = (
        *("Run", "Checks", "What-ifs", "Rules and configuration", "Assumptions"),
        *("Recorded decisions", "Spans", "Services", "Trace"),
    )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a command line; --from stands for a run's command line, with options added."""
        if any(argument.partition("=")[0] in _OF_FORKS for argument in args):
            args = self._expanded(ctx, args)
        ctx.meta[_ARGV] = ("replay", *without(args, {"shares"}))
        return super().parse_args(ctx, args)

    def _expanded(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Replace --from and --at by what they stand for."""
        raw, _, _ = self.make_parser(ctx).parse_args(list(args))
        run, moment = raw.get("fork"), raw.get("moment")
        has_trace = isinstance(raw.get("paths"), tuple)
        if moment is not None and run is None:
            raise click.UsageError("--at is a moment of a run: name the run with --from", ctx)
        if run is not None:
            if has_trace:
                problem = "--from RUN repeats the command of the run, with its trace"
                raise click.UsageError(f"{problem}: leave TRACE out", ctx)
            added = without(args, {"fork", "moment"})
            return [*forked(Path(run), moment, added), "--share", run]
        return args

    def invoke(self, ctx: click.Context) -> None:
        """Run the replay of the command line."""
        ctx.invoke(run, super().invoke(ctx))

    def request(self, arguments: Sequence[str]) -> ReplayRequest:
        """Parse a command line without running the replay. Raises as the command does."""
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
@section(
    "What-ifs",
    click.option(
        "--from",
        "fork",
        metavar="RUN",
        help="Repeat the command of this run, with further options, from a state that the run has "
        "kept: the latest one before anything differs. In place of TRACE.",
    ),
    click.option(
        "--at",
        "moment",
        metavar="DURATION|TIME",
        help="With --from: let the what-ifs of this command begin at this moment of the run. With "
        "options of the scheduler, such as --rules or --scheduler, it is restarted then.",
    ),
    click.option(
        "--share", "shares", hidden=True, type=click.Path(file_okay=False, path_type=Path)
    ),
    takes("overrides", Overrides, _overrides),
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
@section("Services", tls_options("", "those services"))
@section("Trace", trace_options)
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    settings: ReplaySettings,
    tls: ClientTls,
    overrides: Overrides,
    checks: Checks,
    fork: None,
    moment: None,
    **values: Any,
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
      reprieve replay --from runs/today --at 2h --fail node-7
      reprieve replay --from runs/today --at 2h --rules v1.16
    """
    del fork, moment  # parse_args has replaced them by the options that they stand for.
    return ReplayRequest(
        settings=replace(settings, tls=tls),
        argv=context.meta[_ARGV],
        overrides=overrides,
        checks=replace(checks, allows_no_effect=overrides.allows_no_effect),
        **values,
    )


def run(request: ReplayRequest) -> None:
    """Replay, or compare recorded decisions; show the result. Raises ExitError."""
    settings = replace(_usable(request), argv=request.settings.argv or request.argv)
    if request.compare_recorded:
        from replay.cli.commands.recorded_comparison import compare_trace  # noqa: PLC0415 - loaded when needed

        compare_trace(
            settings, request.trace, request.output, plays=request.free_run, quiet=request.quiet
        )
        return
    refuse_unknown(request.checks, request.named)
    finished = play(
        settings,
        request.trace,
        request.overrides,
        quiet=request.quiet,
        origin=lambda plan: _origin(request, plan),
    )
    if request.reports:
        _report(finished.run, quiet=request.quiet)
    _show(finished, request.output if shows(request.output, quiet=request.quiet) else "")
    request.checks.conclude_run(finished.run)
    if not request.tolerates_refusals:
        refuse_mistakes(finished.run)


def _origin(request: ReplayRequest, plan: OverridePlan) -> Origin | None:
    """Return the run from which a new run takes its beginning; None for a resumed run."""
    if request.shares is None or request.settings.resumes:
        return None
    from replay.cli.forks import Prepared, shared_states  # noqa: PLC0415 - loaded when needed

    run = open_run(request.shares)
    former = command.request(inputs_of(run))
    shared = shared_states(Prepared(former), Prepared(request, plan))
    return None if shared is None else Origin(run=run, until_ns=shared.until_ns)


def refuse_mistakes(run: RunDirectory) -> None:
    """Raise ExitError if a complete run has decisions refused for mistakes of the scheduler."""
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
    """Validate a replay, and its `checks`, that will run later.

    Raises the errors that the replay would raise, with `where` before the message.
    """
    with labelled(where):
        request = command.request(arguments)
        settings = _usable(request)
        if not request.compare_recorded:
            refuse_unknown(checks, request.named)
            look_at(settings, request.trace, request.overrides)


_OF_FORKS = frozenset({"--from", "--at"})
_ARGV = "reprieve.replay.argv"
"""The key in a click context for the command line that was parsed."""
_OUTPUTS = frozenset(
    {
        *("shares", "keep_checkpoints"),
        *("run_path", "force", "output", "reports", "quiet", "compare_recorded", "free_run"),
        *("assertions", "junit", "summary"),
    }
)
"""The parameters that select a replay's outputs, and do not influence its decisions."""


def inputs(arguments: Sequence[str]) -> list[str]:
    """Return a command line's arguments without the options for outputs and checks.

    The separator "--" is resolved ("-x" after it becomes "./-x"), so options can be appended.
    """
    return without(arguments, _OUTPUTS)


def without(arguments: Sequence[str], names: Collection[str]) -> list[str]:
    """Return the arguments of a command line without the parameters of these names, as `inputs`."""
    has_value = {
        name: not getattr(parameter, "is_flag", False)
        for parameter in command.params
        if parameter.name in names
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


def inputs_of(
    run: RunDirectory,
    repeating: Callable[[list[str]], list[str]] = lambda begun: ["replay", *begun],
) -> list[str]:
    """Return the inputs of the command that made a run.

    Raises ExitError if the run is not signed by this user, because its command names files to read
    and addresses to connect to. The message shows the command that `repeating` makes of the inputs,
    so that the user can run it.
    """
    with refusing(RunError):
        manifest, doubt = run.signed_manifest()
    if manifest.argv[:1] != ("replay",):
        problem = (
            f"{run.path} was not made by `reprieve replay`: name its trace in place of the run"
        )
        raise ExitError(REFUSED, problem)
    repeated = inputs(manifest.argv[1:])
    if doubt:
        shown_command = shlex.join(["reprieve", *repeating(repeated)])
        lines = (
            f"{run.path} was not made here by you: {doubt}",
            f"name its trace if you trust what its command reads: {shown_command}",
        )
        raise ExitError(REFUSED, "\n".join(map(one_line, lines)))
    return repeated


def forked(run: Path, moment: str | None, added: Sequence[str]) -> list[str]:
    """Return a run's command line with further options; their what-ifs begin at `moment`."""
    with refusing(RunError):
        begun = inputs_of(open_run(run))
    return [*begun, *(added if moment is None else begun_at(added, moment, begun))]


_TIMED = {
    "drain": "--drain",
    "fail": "--fail",
    "apply": "--apply",
    "sets": "--set",
    "drop_nodes": "--drop-nodes",
    "scale_nodes": "--scale-nodes",
}
"""The what-if options that can begin at a later time, by parameter name."""
_AT_ANY_TIME = frozenset(
    {
        *("run_path", "force", "until_ns", "batch_size", "in_process", "reconnect_ns", "no_audit"),
        *("checkpoint_every_ns", "keep_checkpoints", "sampling", "span_clock"),
        "restart_scheduler",
        *("allows_no_effect", "scale_order"),
    }
)
"""Options without influence on decisions before the what-ifs begin."""


def begun_at(added: Sequence[str], moment: str, begun: Sequence[str]) -> list[str]:
    """Let each what-if in `added` begin at `moment`, for a fork of the command line `begun`.

    What-ifs get `at=` unless they have it. Options of the scheduler become those of a restart at
    that time. Raises UsageError and ExitError.
    """
    from replay.cli.restarts import changes_scheduler, options_of_restart  # noqa: PLC0415 - when needed

    since_start = shown(_offset_ns(moment, begun))
    at = f",at={since_start}"
    context = command.make_context("replay", ["-", *added], resilient_parsing=True)
    deciding = {option.name for option in (*fields(Overrides), *fields(ReplaySettings))}
    for parameter in context.command.params:
        name = str(parameter.name)
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name in deciding - _TIMED.keys() - _AT_ANY_TIME - {*RESTARTABLE}:
            problem = "has an effect from the beginning: leave --at out"
            raise click.UsageError(f"{parameter.opts[0]} {problem}")
    scheduler_sets = list[str]()
    kept = without(added, {*_TIMED, *RESTARTABLE})
    former = command.make_context("replay", list(begun), resilient_parsing=True)
    if context.params.get("drop_nodes") and former.params.get("drop_nodes"):
        raise click.UsageError("--drop-nodes is in the run's command already: name its trace")
    for name, flag in _TIMED.items():
        texts = context.params.get(name) or ()
        texts = (texts,) if isinstance(texts, str) else texts
        if name == "sets":
            with refusing(OverrideError):
                scheduler_sets = [text for text in texts if changes_scheduler(text)]
            texts = [text for text in texts if text not in scheduler_sets]
        for text in texts:
            has_time = any(part.strip().startswith("at=") for part in text.split(","))
            kept += [flag, text if has_time else text + at]
    raw, _, _ = command.make_parser(context).parse_args(["-", *added])
    restart = options_of_restart(raw, scheduler_sets)
    if restart:
        kept += ["--restart-scheduler", f"{since_start} {shlex.join(restart)}"]
    return kept


def _offset_ns(text: str, begun: Sequence[str]) -> int:
    """Return a moment as ns since the start of the trace of `begun`. Raises UsageError."""
    moment: Moment = MOMENT.convert(text, None, None)
    if moment.since_start_ns is not None:
        return moment.since_start_ns
    start_ns = next(command.request(begun).trace.records(), trace_pb2.Record()).time_ns
    if moment.at_ns < start_ns:
        raise click.UsageError(f"--at {text} is before the start of the trace")
    return moment.at_ns - start_ns


def _usable(request: ReplayRequest) -> ReplaySettings:
    """Return the replay's settings. Raises UsageError for options that exclude each other."""
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
    """Write tables and the report; the run is complete even if this fails."""
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
