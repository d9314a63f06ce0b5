"""Runs a replay on the command line, or validates a replay that will run later."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from replay.cli.errors import LOOP, ExitError, refusing
from replay.cli.progress import Progress
from replay.cli.traces import TraceArguments
from replay.errors import RunError
from replay.forks import Origin
from replay.overrides.errors import OverrideError
from replay.overrides.overrides import OverridePlan, Overrides
from replay.runner import FinishedReplay, look_at_replay, run_replay
from replay.settings import ReplaySettings
from replay.world.loop.replay import LoopError
from reprieve.trace.v1beta1.trace_pb2 import Record
from services.telemetry.collector import TelemetryError

RecordFilter = Callable[[Iterator[Record]], Iterator[Record]]


def play(
    settings: ReplaySettings,
    trace: TraceArguments,
    overrides: Overrides,
    *,
    quiet: bool,
    through: RecordFilter = iter,
    origin: Callable[[OverridePlan], Origin | None] = lambda _plan: None,
) -> FinishedReplay:
    """Replay a trace; `through` receives its records and yields them. Raises ExitError.

    origin: returns, for the changes of the trace, a run from which the new run takes its beginning.
    """
    progress = Progress(until_ns=settings.until_ns, quiet=quiet)
    with refusing(RunError, TelemetryError, OverrideError), progress:

        def records() -> Iterator[Record]:
            return progress.follow(through(plan.records(settings.seed)))

        plan = plan_of(settings, trace, overrides)
        begun = origin(plan)
        settings = dataclasses.replace(settings, usage=plan.usage)
        if plan.removed_nodes:
            changes = {**settings.overrides, "removed_nodes": plan.removed_nodes}
            settings = dataclasses.replace(settings, overrides=changes)
        try:
            return run_replay(
                *(settings, records, progress, progress.print, progress.compiling, begun),
                announce=progress.announce,
            )
        except LoopError as error:
            raise ExitError(LOOP, str(error)) from error


def look_at(settings: ReplaySettings, trace: TraceArguments, overrides: Overrides) -> None:
    """Validate a replay that will run later. Raises ExitError if it would be refused."""
    with refusing(RunError, TelemetryError, OverrideError):
        plan = plan_of(settings, trace, overrides)
        look_at_replay(settings, lambda: plan.records(settings.seed))


def plan_of(settings: ReplaySettings, trace: TraceArguments, overrides: Overrides) -> OverridePlan:
    """Return the overrides of a replay, checked against its trace. Raises as Overrides.plan."""
    names = settings.scheduler_names
    return overrides.plan(lambda: trace.records(names), settings.until_ns)
