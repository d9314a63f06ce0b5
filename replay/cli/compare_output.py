"""`reprieve replay --compare-recorded`: the comparison run, shown, and its exit code."""

from __future__ import annotations

import click
import orjson
import yaml

from replay.backends.errors import BackendError, ConfigurationError
from replay.cli.errors import DIFFERS, REFUSED, SERVICE, ExitError, refusing_traces
from replay.cli.progress import counted
from replay.compare.findings import Finding, Outcome, Report
from replay.compare.recorded import Kind
from replay.compare.run import CompareSettings, compare_recorded
from replay.results.table_writer import TableWriter

_TEXT_MAX = 300
_SHOWN_MAX = 20


def compare(settings: CompareSettings, output: str, *, quiet: bool) -> None:
    """Compare, print, and raise ExitError where a decision differs or nothing can be compared."""
    try:
        with refusing_traces():
            report = _run(settings, quiet=quiet)
    except ConfigurationError as error:
        raise ExitError(REFUSED, str(error)) from error
    except BackendError as error:
        raise ExitError(SERVICE, str(error)) from error
    show(report, output)
    if differ := report.of(Outcome.DIFFERS):
        raise ExitError(DIFFERS, f"{differ:,} recorded decisions differ")


def show(report: Report, output: str) -> None:
    """Print a report as a table (wide: every finding that is told), JSON or YAML."""
    match output:
        case "json":
            click.echo(orjson.dumps(report.to_mapping(), option=orjson.OPT_INDENT_2))
        case "yaml":
            click.echo(yaml.safe_dump(report.to_mapping(), sort_keys=False, allow_unicode=True))
        case _:
            _print(report, wide=output == "wide")


def _run(settings: CompareSettings, *, quiet: bool) -> Report:
    with counted("judging", quiet=quiet) as shown:
        return compare_recorded(settings, shown)


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


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    TableWriter(head, _write).rows(rows)
    click.echo()


def _write(text: str) -> None:
    click.echo(text, nl=False)
