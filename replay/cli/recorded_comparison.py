"""`reprieve replay --compare-recorded`: what is compared of which trace, and its exit code."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from replay.backends.errors import BackendError, ConfigurationError
from replay.cli.compare_output import show
from replay.cli.errors import DIFFERS, REFUSED, SERVICE, ExitError, refusing_traces
from replay.cli.playing import play
from replay.cli.progress import counted
from replay.cli.scheduler_names import profile_names
from replay.cli.traces import TraceArguments
from replay.compare.findings import Outcome, Report
from replay.compare.formats import Kept, kept, without_outcomes
from replay.compare.free_run import Agreement, RecordedOutcomes, has_outcomes
from replay.compare.run import CompareSettings, compare_recorded
from replay.overrides.overrides import Overrides
from replay.runner import Settings


def compare_trace(
    settings: Settings, trace: TraceArguments, output: str, *, plays: bool, quiet: bool
) -> None:
    """Compare a replay's trace with what was recorded in it; `plays` asks for a free run, too.

    What keeps outcomes without states is compared with a free run alone, which judges nothing.
    Raises ExitError where a decision differs or nothing can be compared.
    """
    names = profile_names(settings.scheduler.kube_scheduler_configuration)
    with refusing_traces():
        has_states = kept(trace.paths, trace.format) is Kept.STATES
        if not has_states and not has_outcomes(trace.records(names)):
            raise without_outcomes(trace.paths)
    report = _judged(settings, trace, quiet=quiet) if has_states else None
    agreement = _played(settings, trace, quiet=quiet) if plays or not has_states else None
    show(report, agreement, output)
    if report is not None and (differ := report.of(Outcome.DIFFERS)):
        raise ExitError(DIFFERS, f"{differ:,} recorded decisions differ")


def _judged(settings: Settings, trace: TraceArguments, *, quiet: bool) -> Report:
    compared = CompareSettings(
        paths=trace.paths,
        format_name=trace.format,
        scheduler_address=settings.scheduler_address,
        tls=settings.tls,
        scheduler=settings.scheduler,
    )
    try:
        with refusing_traces(), counted("judging", quiet=quiet) as shown:
            return compare_recorded(compared, shown)
    except ConfigurationError as error:
        raise ExitError(REFUSED, str(error)) from error
    except BackendError as error:
        raise ExitError(SERVICE, str(error)) from error


def _played(settings: Settings, trace: TraceArguments, *, quiet: bool) -> Agreement:
    """Replay the trace freely; without a path for the run, no run is left behind."""
    recorded = RecordedOutcomes()
    with tempfile.TemporaryDirectory(prefix="reprieve-") as folder:
        run_path = settings.run_path or Path(folder) / "run"
        chosen = dataclasses.replace(settings, run_path=run_path)
        played = play(chosen, trace, Overrides(), quiet=quiet, through=recorded.seen)
        return recorded.agreement(played.run.decisions())
