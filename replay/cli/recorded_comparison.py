"""`reprieve replay --compare-recorded`: what is compared of which trace, and its exit code."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from replay.backends.errors import BackendError, ConfigurationError
from replay.cli.compare_output import show
from replay.cli.errors import DIFFERS, REFUSED, SERVICE, ExitError, refusing_traces
from replay.cli.playing import Through, play
from replay.cli.progress import counted
from replay.cli.scheduler_names import profile_names
from replay.cli.traces import TraceArguments
from replay.compare.findings import Outcome, Report
from replay.compare.formats import Kept, kept, without_outcomes
from replay.compare.free_run import Agreement, RecordedOutcomes, has_outcomes
from replay.compare.run import CompareSettings, compare_recorded
from replay.overrides.overrides import Overrides
from replay.results.run_directory import RunDirectory
from replay.runner import Settings
from reprieve.trace.v1alpha1.trace_pb2 import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeRun:
    """A free run, if it is `asked` for or nothing else can be compared.

    `play` replays the trace into a folder, its records passed through a function; `run_path` None
    leaves no run behind.
    """

    asked: bool
    run_path: Path | None
    records: Callable[[], Iterator[Record]]
    play: Callable[[Path, Through], RunDirectory]


def compare_trace(
    settings: Settings, trace: TraceArguments, output: str, *, plays: bool, quiet: bool
) -> None:
    """Compare a replay's trace with what was recorded in it; `plays` asks for a free run, too."""

    def played(run_path: Path, through: Through) -> RunDirectory:
        chosen = dataclasses.replace(settings, run_path=run_path)
        return play(chosen, trace, Overrides(), quiet=quiet, through=through).run

    names = profile_names(settings.scheduler.kube_scheduler_configuration)
    free = FreeRun(
        asked=plays,
        run_path=settings.run_path,
        records=lambda: trace.records(names),
        play=played,
    )
    compared = CompareSettings(
        paths=trace.paths,
        format_name=trace.format,
        scheduler_address=settings.scheduler_address,
        tls=settings.tls,
        scheduler=settings.scheduler,
    )
    compare(compared, free, output, quiet=quiet)


def compare(settings: CompareSettings, free: FreeRun, output: str, *, quiet: bool) -> None:
    """Compare, print, and raise ExitError where a decision differs or nothing can be compared.

    What keeps outcomes without states is compared with a free run alone, which judges nothing.
    """
    with refusing_traces():
        has_states = kept(settings.paths, settings.format_name) is Kept.STATES
        if not has_states and not has_outcomes(free.records()):
            raise without_outcomes(settings.paths)
    report = _judged(settings, quiet=quiet) if has_states else None
    agreement = _played(free) if free.asked or not has_states else None
    show(report, agreement, output)
    if report is not None and (differ := report.of(Outcome.DIFFERS)):
        raise ExitError(DIFFERS, f"{differ:,} recorded decisions differ")


def _judged(settings: CompareSettings, *, quiet: bool) -> Report:
    try:
        with refusing_traces(), counted("judging", quiet=quiet) as shown:
            return compare_recorded(settings, shown)
    except ConfigurationError as error:
        raise ExitError(REFUSED, str(error)) from error
    except BackendError as error:
        raise ExitError(SERVICE, str(error)) from error


def _played(free: FreeRun) -> Agreement:
    recorded = RecordedOutcomes()
    if free.run_path is not None:
        return recorded.agreement(free.play(free.run_path, recorded.seen).decisions())
    with tempfile.TemporaryDirectory(prefix="reprieve-") as folder:
        return recorded.agreement(free.play(Path(folder) / "run", recorded.seen).decisions())
