"""`reprieve replay --compare-recorded`: what is compared of which trace, and its exit code."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import click
import yaml

from replay.cli.errors import DIFFERS, ExitError, refusing_traces
from replay.cli.parameters import echo_json, write
from replay.cli.progress import counted, play, profile_names
from replay.cli.traces import TraceArguments
from replay.compare.comparison import Finding, Outcome, Report
from replay.compare.recorded import Kind
from replay.compare.run import (
    Agreement,
    CompareSettings,
    Kept,
    Landed,
    RecordedOutcomes,
    compare_recorded,
    has_outcomes,
    kept,
    without_outcomes,
)
from replay.overrides.overrides import Overrides
from replay.results.kubectl.rows import TableWriter
from replay.runner import Settings

_TEXT_MAX = 300
_SHOWN_MAX = 20
_GUESSED = "guessed-time"


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
    with refusing_traces(), counted("judging", quiet=quiet) as shown:
        return compare_recorded(compared, shown)


def _played(settings: Settings, trace: TraceArguments, *, quiet: bool) -> Agreement:
    """Replay the trace freely; without a path for the run, no run is left behind."""
    recorded = RecordedOutcomes()
    with tempfile.TemporaryDirectory(prefix="reprieve-") as folder:
        run_path = settings.run_path or Path(folder) / "run"
        chosen = dataclasses.replace(settings, run_path=run_path)
        played = play(chosen, trace, Overrides(), quiet=quiet, through=recorded.seen)
        return recorded.agreement(played.run.decisions())


def show(report: Report | None, agreement: Agreement | None, output: str) -> None:
    """Print what was found as a table (wide: every finding that is told), JSON or YAML."""
    match output:
        case "json":
            echo_json(_mapping(report, agreement))
        case "yaml":
            told = _mapping(report, agreement)
            click.echo(yaml.safe_dump(told, sort_keys=False, allow_unicode=True))
        case _:
            if report is not None:
                _print(report, wide=output == "wide")
            if agreement is not None:
                _print_agreement(agreement)


def _mapping(report: Report | None, agreement: Agreement | None) -> dict[str, Any]:
    told = report.to_mapping() if report is not None else {}
    return told if agreement is None else {**told, "free_run": agreement.to_mapping()}


def _print(report: Report, *, wide: bool) -> None:
    version = report.kubernetes_version or "an unknown version"
    click.echo(f"Recorded: {version}. Rules: {report.rules}. Decisions in order of {report.order}.")
    click.echo()
    _table(
        ("DECISION", *(each.value.upper() for each in Outcome)),
        [(kind.value, *(f"{report.outcomes[kind, each]:,}" for each in Outcome)) for kind in Kind],
    )
    _table(
        ("AGREES", "BY", "COUNT"),
        [(k.value, g.value, f"{count:,}") for (k, g), count in report.grounds.most_common()],
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
    click.echo(
        f"Bindings with one feasible or a unique best node: {sole[Outcome.AGREES]:,} of "
        f"{total:,} agree, {sole[Outcome.EXPLAINED]:,} are explained."
    )
    if report.logged:
        click.echo(
            f"As many feasible nodes as the recording's log has: {report.same_feasible:,} of "
            f"{report.logged:,} bindings."
        )
    click.echo(
        f"{sum(report.outcomes.values()):,} decisions: {report.of(Outcome.AGREES):,} agree, "
        f"{report.of(Outcome.EXPLAINED):,} explained, {report.of(Outcome.DIFFERS):,} differ, "
        f"{report.of(Outcome.NOT_JUDGED):,} not judged"
    )


def _print_findings(report: Report, *, wide: bool) -> None:
    """Print what differs; with `wide` also what is explained or owed to something."""
    told = [each for each in report.told if wide or each.outcome is Outcome.DIFFERS]
    for finding in told if wide else told[:_SHOWN_MAX]:
        _print_finding(finding)
    if not wide and len(told) > _SHOWN_MAX:
        click.echo(f"{len(told) - _SHOWN_MAX:,} more differ: -o wide or json tells all\n")


def _print_notes(report: Report, *, wide: bool) -> None:
    """Print what times were guessed; with `wide` all that could not be read as it stands."""
    told = [each for each in report.notes if wide or each.startswith(_GUESSED)]
    for note in told:
        click.echo(f"note: {note}")
    if told:
        click.echo()


def _print_finding(finding: Finding) -> None:
    decision = finding.decision
    pod = f"{decision.pod.namespace}/{decision.pod.name}"
    at = f", resourceVersion {decision.version}" if decision.version else ""
    click.echo(f"{finding.outcome.value}: {decision.kind.value} of {pod}{at}")
    if finding.verdict.expected:
        click.echo(f"  expected {_short(finding.verdict.expected)}")
        click.echo(f"  got      {_short(finding.verdict.got)}")
    if finding.explanation:
        click.echo(f"  {finding.explanation.reason.value}: {finding.explanation.text}")
    click.echo()


def _print_agreement(agreement: Agreement) -> None:
    """Print how far a free run went the way of the recording."""
    landed = agreement.landed
    total = landed.total()
    share = f" ({landed[Landed.SAME] / total:.1%})" if total else ""
    click.echo()
    click.echo(
        "A free run, which decides anew (its first difference may bring about the others, so that "
        "this judges no rule):"
    )
    click.echo()
    _table(
        ("RECORDED BINDINGS", "COUNT"),
        [(each.value, f"{landed[each]:,}") for each in Landed if landed[each]],
    )
    _table(
        ("PODS", "IN BOTH", "RECORDED ONLY", "IN THE RUN ONLY"),
        [
            (name, f"{lots.both:,}", f"{lots.recorded_only:,}", f"{lots.run_only:,}")
            for name, lots in (("preempted", agreement.preempted), ("evicted", agreement.evicted))
        ],
    )
    click.echo(
        f"Free run: {landed[Landed.SAME]:,} of {total:,} recorded bindings{share} to the recorded "
        f"node; {agreement.run_only:,} bindings in the run only."
    )


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    TableWriter(head, write).rows(rows)
    click.echo()
