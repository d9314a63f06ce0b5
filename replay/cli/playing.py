"""A replay on the command line: its progress, Ctrl-C, and an exit code for what ends it early."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import yaml

from replay.cli.errors import LOOP, ExitError, Interrupts, refusing
from replay.cli.progress import Progress
from replay.cli.traces import TraceArguments
from replay.overrides.assignment import OverrideError
from replay.overrides.overrides import Overrides
from replay.results.errors import RunError
from replay.results.tally import Tally
from replay.runner import Finished, Settings, run_replay
from replay.world.cluster import Cluster
from replay.world.replay import LoopError
from reprieve.trace.v1beta1.trace_pb2 import Record
from services.kube.pod import DEFAULT_SCHEDULER
from services.telemetry.setup import TelemetryError

Through = Callable[[Iterator[Record]], Iterator[Record]]


def play(
    settings: Settings,
    trace: TraceArguments,
    overrides: Overrides,
    *,
    quiet: bool,
    through: Through = iter,
) -> Finished:
    """Replay; the trace's records pass `through` on their way. Raises ExitError."""
    with (
        refusing(RunError, TelemetryError, OverrideError),
        Interrupts() as interrupts,
        Progress(quiet=quiet) as progress,
    ):

        def report(now_ns: int, cluster: Cluster, tally: Tally) -> None:
            interrupts.check()
            progress(now_ns, cluster, tally)

        names = profile_names(settings.scheduler.kube_scheduler_configuration)
        records = overrides.records(lambda: trace.records(names), settings.scheduler.seed)
        try:
            return run_replay(settings, progress.follow(through(records)), report)
        except LoopError as error:
            raise ExitError(LOOP, str(error)) from error


def profile_names(configuration: str) -> tuple[str, ...]:
    """Return the schedulerName of each profile of a KubeSchedulerConfiguration, in its order.

    A profile without one, and a file without profiles, is default-scheduler's. A file that cannot
    be read is refused by the scheduler itself, so that it counts as one without profiles here.
    """
    try:
        document = yaml.safe_load(configuration)
    except yaml.YAMLError:
        return (DEFAULT_SCHEDULER,)
    profiles = document.get("profiles") if isinstance(document, dict) else None
    if not isinstance(profiles, list):
        return (DEFAULT_SCHEDULER,)
    names = [
        str(each.get("schedulerName") or DEFAULT_SCHEDULER)
        for each in profiles
        if isinstance(each, dict)
    ]
    return tuple(dict.fromkeys(names)) or (DEFAULT_SCHEDULER,)
