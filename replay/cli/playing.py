"""A replay on the command line: its progress, Ctrl-C, and an exit code for what ends it early."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from replay.backends.errors import BackendError, ConfigurationError
from replay.cli.errors import LOOP, REFUSED, SERVICE, ExitError
from replay.cli.interrupts import Interrupts
from replay.cli.override_options import refusing_overrides
from replay.cli.progress import Progress
from replay.cli.scheduler_names import profile_names
from replay.cli.traces import TraceArguments
from replay.overrides.overrides import Overrides
from replay.results.errors import RunError
from replay.results.tally import Tally
from replay.runner import Finished, Settings, run_replay
from replay.world.cluster import Cluster
from replay.world.replay import LoopError
from reprieve.trace.v1alpha1.trace_pb2 import Record
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
    try:
        with refusing_overrides(), Interrupts() as interrupts, Progress(quiet=quiet) as progress:

            def report(now_ns: int, cluster: Cluster, tally: Tally) -> None:
                interrupts.check()
                progress(now_ns, cluster, tally)

            names = profile_names(settings.scheduler.kube_scheduler_configuration)
            seed = settings.scheduler.seed
            records = overrides.records(lambda: trace.records(names), seed)
            return run_replay(settings, progress.follow(through(records)), report)
    except (RunError, TelemetryError, ConfigurationError) as error:
        raise ExitError(REFUSED, str(error)) from error
    except BackendError as error:
        notes = getattr(error, "__notes__", [])
        raise ExitError(SERVICE, "\n".join([str(error), *notes])) from error
    except LoopError as error:
        raise ExitError(LOOP, str(error)) from error
