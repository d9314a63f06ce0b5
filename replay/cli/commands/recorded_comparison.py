"""`reprieve replay --compare-recorded`: compares recorded decisions, and sets the exit code."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from replay.cli.errors import DIFFERS, ExitError, refusing_traces
from replay.cli.parameters import DATA, echo_data, shows, write
from replay.cli.play import play
from replay.cli.progress import counted
from replay.cli.traces import TraceArguments
from replay.compare.comparison import ComparisonReport, Finding, FindingOutcome
from replay.compare.free_run import BindingMatch, FreeRunAgreement, RecordedOutcomes, has_outcomes
from replay.compare.recorded import DecisionKind
from replay.compare.run import (
    CompareSettings,
    RecordedContent,
    compare_recorded,
    recorded_content,
    without_outcomes,
)
from replay.overrides.overrides import Overrides
from replay.results.kubectl.rows import TableWriter
from replay.settings import ReplaySettings
from services.terminal import echo

_TEXT_MAX = 300
_SHOWN_MAX = 20
_ALWAYS_SHOWN = ("guessed-time", "partial-recording", "gap", "missing-end")


def compare_trace(
    settings: ReplaySettings, trace: TraceArguments, output: str, *, plays: bool, quiet: bool
) -> None:
    """Compare the recorded decisions of a trace with ours; `plays` adds a free run.

    A trace with outcomes but without recorded states is compared only with a free run; then no
    single decision is judged. Raises ExitError if a decision differs or nothing can be compared.
    """
    names = settings.scheduler_names
    with refusing_traces():
        has_states = recorded_content(trace.paths, trace.format) is RecordedContent.STATES
        if not has_states and not has_outcomes(trace.records(names)):
            raise without_outcomes(trace.paths)
    report = _judged(settings, trace, quiet=quiet) if has_states else None
    agreement = _played(settings, trace, quiet=quiet) if plays or not has_states else None
    if shows(output, quiet=quiet):
        show(report, agreement, output)
    if report is not None and (differ := report.of(FindingOutcome.DIFFERS)):
        raise ExitError(DIFFERS, f"{differ:,} recorded decisions differ")


def _judged(settings: ReplaySettings, trace: TraceArguments, *, quiet: bool) -> ComparisonReport:
    compared = CompareSettings(
        paths=trace.paths,
        format_name=trace.format,
        scheduler_address=settings.scheduler_address,
        tls=settings.tls,
        scheduler=settings.scheduler,
        follows_version=settings.rules is None,
    )
    with refusing_traces(), counted("judging", quiet=quiet) as shown:
        return compare_recorded(compared, shown)


def _played(settings: ReplaySettings, trace: TraceArguments, *, quiet: bool) -> FreeRunAgreement:
    """Replay the trace with our own decisions; without a path, the run is removed afterwards."""
    recorded = RecordedOutcomes()
    with tempfile.TemporaryDirectory(prefix="reprieve-") as folder:
        run_path = settings.run_path or Path(folder) / "run"
        chosen = dataclasses.replace(settings, run_path=run_path)
        played = play(chosen, trace, Overrides(), quiet=quiet, through=recorded.seen)
        return recorded.agreement(played.run.decisions())


def show(report: ComparisonReport | None, agreement: FreeRunAgreement | None, output: str) -> None:
    """Print the findings as a table (wide: all findings with a text), JSON or YAML."""
    if output in DATA:
        echo_data(_mapping(report, agreement), output)
        return
    if report is not None:
        _print(report, wide=output == "wide")
    if agreement is not None:
        _print_agreement(agreement)


def _mapping(report: ComparisonReport | None, agreement: FreeRunAgreement | None) -> dict[str, Any]:
    mapping = report.to_mapping() if report is not None else {}
    return mapping if agreement is None else {**mapping, "free_run": agreement.to_mapping()}


def _print(report: ComparisonReport, *, wide: bool) -> None:
    version = report.kubernetes_version or "an unknown version"
    echo(f"Recorded: {version}. Rules: {report.rules}. Decisions in order of {report.order}.")
    echo()
    _table(
        ("DECISION", *(outcome.value.upper() for outcome in FindingOutcome)),
        [
            (kind.value, *(f"{report.outcomes[kind, outcome]:,}" for outcome in FindingOutcome))
            for kind in DecisionKind
        ],
    )
    _table(
        ("AGREES", "BY", "COUNT"),
        [(k.value, g.value, f"{count:,}") for (k, g), count in report.matches.most_common()],
    )
    if report.reasons:
        _table(
            ("OUTCOME", "OWED TO", "COUNT"),
            [(o.value, r.value, f"{count:,}") for (o, r), count in report.reasons.most_common()],
        )
    _print_findings(report, wide=wide)
    _print_notes(report, wide=wide)
    sole = report.sole
    total = sum(sole.values())
    echo(
        f"Bindings with one feasible or a unique best node: {sole[FindingOutcome.AGREES]:,} of "
        f"{total:,} agree, {sole[FindingOutcome.EXPLAINED]:,} are explained."
    )
    if report.logged:
        echo(
            f"As many feasible nodes as the recording's log has: {report.same_feasible:,} of "
            f"{report.logged:,} bindings."
        )
    total = sum(report.outcomes.values())
    agree, explained, differ, not_judged = (f"{report.of(outcome):,}" for outcome in FindingOutcome)
    echo(
        f"{total:,} decisions: {agree} agree, {explained} explained, {differ} differ, "
        f"{not_judged} not judged"
    )


def _print_findings(report: ComparisonReport, *, wide: bool) -> None:
    """Print the decisions that differ; with `wide`, also those that have an explanation."""
    findings = [
        finding for finding in report.notable if wide or finding.outcome is FindingOutcome.DIFFERS
    ]
    for finding in findings if wide else findings[:_SHOWN_MAX]:
        _print_finding(finding)
    if not wide and len(findings) > _SHOWN_MAX:
        echo(f"{len(findings) - _SHOWN_MAX:,} more differ: -o wide or json prints all", "")


def _print_notes(report: ComparisonReport, *, wide: bool) -> None:
    """Print notes about estimated times, gaps and partial data; with `wide`, all import notes."""
    notes = [note for note in report.notes if wide or note.startswith(_ALWAYS_SHOWN)]
    for note in notes:
        echo(f"note: {note}")
    if notes:
        echo()


def _print_finding(finding: Finding) -> None:
    decision = finding.decision
    pod = f"{decision.pod.namespace}/{decision.pod.name}"
    at = f", resourceVersion {decision.version}" if decision.version else ""
    echo(f"{finding.outcome.value}: {decision.kind.value} of {pod}{at}")
    if finding.verdict.expected:
        echo(f"  expected {_short(finding.verdict.expected)}")
        echo(f"  got      {_short(finding.verdict.got)}")
    if finding.explanation:
        echo(f"  {finding.explanation.reason.value}: {finding.explanation.text}")
    echo()


def _print_agreement(agreement: FreeRunAgreement) -> None:
    """Print how far a free run agrees with the recording."""
    landed = agreement.bindings
    total = landed.total()
    share = f" ({landed[BindingMatch.SAME] / total:.1%})" if total else ""
    echo()
    echo(
        "A free run makes its own decisions (its first difference may cause the others, so that "
        "this judges no rule):"
    )
    echo()
    _table(
        ("RECORDED BINDINGS", "COUNT"),
        [(match.value, f"{landed[match]:,}") for match in BindingMatch if landed[match]],
    )
    _table(
        ("PODS", "IN BOTH", "RECORDED ONLY", "IN THE RUN ONLY"),
        [
            (name, f"{lots.both:,}", f"{lots.recorded_only:,}", f"{lots.run_only:,}")
            for name, lots in (("preempted", agreement.preempted), ("evicted", agreement.evicted))
        ],
    )
    echo(
        f"Free run: {landed[BindingMatch.SAME]:,} of {total:,} recorded bindings{share} to the "
        f"recorded node; {agreement.run_only:,} bindings in the run only."
    )


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    TableWriter(head, write).rows(rows)
    echo()
