"""`reprieve conform`: runs golden vectors, or checks of the contract, against services."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import click
from click.core import ParameterSource
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from replay.cli.console import TerminalConsole
from replay.cli.errors import DIFFERS, REFUSED, ExitError, refusing
from replay.cli.parameters import DATA, echo_data, output_option, quiet_option, write
from replay.cli.progress import counted as bar
from replay.conform.contract.autoscaler.contract import AUTOSCALER
from replay.conform.contract.checks import (
    CHECK_TIMEOUTS,
    FAILED,
    CheckResult,
    ContractReport,
    run_checks,
)
from replay.conform.contract.eviction import EVICTION
from replay.conform.contract.queue import QUEUE
from replay.conform.contract.scheduler.contract import SCHEDULER
from replay.conform.vectors.run import Endpoints, FileConformance, files_of, play
from replay.conform.vectors.vectors import VectorError, read_lines, recorded_files
from replay.results.kubectl.rows import TableWriter
from services.rpc.access import ClientTls
from services.rpc.client import channel, tls_options
from services.terminal import counted, echo

CONTRACTS = {contract.service: contract for contract in (SCHEDULER, QUEUE, EVICTION, AUTOSCALER)}
_OF_VECTORS = ("scheduler", "queue", "eviction", "autoscaler", "rules", "stream", "only", "show")
_WHY_LENGTH = 200
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(name="conform")
@click.argument("names", nargs=-1, metavar="[FILE...|ADDRESS]")
@click.option(
    "--contract",
    "service",
    type=click.Choice(sorted(CONTRACTS)),
    help="Check the service at ADDRESS against the contract instead, without vectors.",
)
@click.option(
    "--level",
    default=1,
    show_default=True,
    type=click.IntRange(1, 5),
    help="The level of --contract that must be reached.",
)
@click.option("--scheduler", default="", metavar="HOST:PORT", help="A running scheduler.")
@click.option("--queue", default="", metavar="HOST:PORT", help="A running scheduling queue.")
@click.option("--eviction", default="", metavar="HOST:PORT", help="A running eviction service.")
@click.option("--autoscaler", default="", metavar="HOST:PORT", help="A running autoscaler.")
@tls_options("", "those services", timeouts=CHECK_TIMEOUTS)
@click.option(
    "--rules",
    default="",
    metavar="vX.Y",
    help="The Kubernetes version whose rules the vectors are judged by. Default: the version that "
    "a file's vectors show; where they show none, that in its name.",
)
@click.option("--stream", is_flag=True, help="Play the queue's scripts over its stream.")
@click.option("--only", metavar="TEXT", default="", help="Play vectors whose id contains this.")
@click.option(
    "--show",
    default=3,
    show_default=True,
    type=click.IntRange(0),
    help="The number of differences to print of each file.",
)
@output_option(
    *("table", "json", "yaml"),
    meaning="table: for people; json and yaml: for programs, all differences.",
)
@quiet_option
@refusing(VectorError)
@click.pass_context
def command(
    context: click.Context,
    *,
    names: tuple[str, ...],
    service: str | None,
    level: int,
    scheduler: str,
    queue: str,
    eviction: str,
    autoscaler: str,
    tls: ClientTls,
    rules: str,
    stream: bool,
    only: str,
    show: int,
    output: str,
    quiet: bool,
) -> None:
    """Compare services with what upstream's own code did, or with the contract.

    FILE... has golden vectors, one JSON object a line, gzipped or not: scheduling scenarios, or
    scripts of the scheduling queue, the eviction manager or the cluster autoscaler. Without FILE,
    all vectors that come with Reprieve are played. The services are started as child processes,
    unless addresses are given, such as those of your own services. Vectors of the autoscaler's
    estimates and expanders are always played with our own code, since no RPC has them. A vector
    that cannot be read counts as failed.

    With --contract, ADDRESS is that of any service. These checks need no vectors and accept any of
    several equal nodes; a table shows the level of the contract that the service reaches, and what
    that level is enough for (docs/conformance.md). The exit code is 1 below --level.

    \b
    Examples:
      reprieve conform
      reprieve conform queue-v1.34.jsonl.gz scheduling.jsonl.gz
      reprieve conform scheduling.jsonl.gz --scheduler 127.0.0.1:50052 -o json
      reprieve conform --contract scheduler 127.0.0.1:50052
      reprieve conform --contract queue 127.0.0.1:50051 --level 3 -o json
    """
    if service is not None:
        _refuse(context, _OF_VECTORS, "is for vectors; leave it out with --contract")
        if len(names) != 1:
            raise ExitError(REFUSED, "--contract: give one ADDRESS, such as 127.0.0.1:50052")
        _contract(service, names[0], tls, level, output, quiet=quiet)
        return
    _refuse(context, ["level"], "needs --contract")
    files = [_FILE.convert(name, None, context) for name in names]
    if rules and not files:
        raise ExitError(REFUSED, "--rules: give FILE; the bundled vectors have several versions")
    addresses = {
        "scheduler": scheduler,
        "queue": queue,
        "eviction": eviction,
        "autoscaler": autoscaler,
    }
    endpoints = Endpoints(addresses={k: v for k, v in addresses.items() if v}, tls=tls)
    played = files_of(files or recorded_files(), rules)
    with _Bar(played, quiet=quiet) as bar:
        play(played, endpoints, stream=stream, wanted=lambda id_: only in id_, progress=bar.step)
    if not any(file.vectors for file in played):
        raise ExitError(REFUSED, f"--only {only}: no vector has an id that contains it")
    if output in DATA:
        echo_data([file.to_mapping() for file in played], output)
    else:
        _print(played, show, quiet=quiet)
    failed = sum(file.failed for file in played)
    if failed:
        raise ExitError(DIFFERS, f"{counted(failed, 'vector')} failed")


def _refuse(context: click.Context, options: Iterable[str], why: str) -> None:
    """Refuse options of the command line that have no effect here."""
    for name in options:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise ExitError(REFUSED, f"--{name} {why}")


def _contract(
    service: str, address: str, tls: ClientTls, level: int, output: str, *, quiet: bool
) -> None:
    """Check a service against its contract and print the report."""
    with contextlib.closing(channel(address, tls)) as opened, bar("checks", quiet=quiet) as step:
        report = run_checks(CONTRACTS[service], opened, address, tls.timeouts, step)
    if output in DATA:
        echo_data(report.to_mapping(), output)
    elif not quiet or report.level < level:
        _print_report(report)
    if report.level < level:
        raise ExitError(DIFFERS, f"level {level} is not reached")


def _print_report(report: ContractReport) -> None:
    """Print a row for each check, then the level that the service reaches."""
    table = TableWriter(("LEVEL", "RULE", "CHECK", "RESULT"), write)
    first_checks: dict[str, str] = {}
    rows = []
    for result in report.results:
        first = first_checks.setdefault(result.why, result.check)
        why = result.why if first == result.check else f"the same text as of {first!r}"
        shown = _result(result, _one_line(why))
        rows.append((str(result.level), result.rule, result.check, shown))
    table.rows(rows)
    if any(why != _one_line(why) for why in first_checks):
        echo("", "Reasons are shortened here; -o json has them whole")
    echo("", report.sentence)


def _result(check: CheckResult, why: str) -> str:
    return f"{check.result}: {why}" if check.result == FAILED else check.result


def _one_line(text: str) -> str:
    """Return the first line of a text, shortened to the length of a table's cell."""
    line = text.partition("\n")[0].strip()
    return text if line == text and len(line) <= _WHY_LENGTH else f"{line[:_WHY_LENGTH]} ..."


def _print(files: list[FileConformance], show: int, *, quiet: bool) -> None:
    """Print a table and differences for each file; if `quiet`, only for files that failed."""
    for file in files:
        if quiet and not file.failed:
            continue
        counts = f"{file.passed} passed, {file.failed} failed"
        by = "" if file.service else " (this installation's own code: no RPC has it)"
        echo(f"{file.path.name}: {file.kind.value} {file.version}{by}, {counts}")
        table = TableWriter(("TOPIC", "PASSED", "FAILED"), write)
        table.rows(
            [
                (name or "-", f"{topic.passed:,}", f"{topic.failed:,}")
                for name, topic in sorted(file.topics.items())
            ]
        )
        for difference in file.differences[:show]:
            echo("", f"{difference.id} ({', '.join(difference.tags)})", f"  {difference.text}")
        if show and file.failed > show:
            echo("", f"{file.failed - show:,} more: --show {file.failed} prints all")
        echo()
    if quiet:
        return
    passed, failed = (sum(getattr(file, name) for file in files) for name in ("passed", "failed"))
    echo(f"{passed} passed, {failed} failed")


class _Bar:
    """Progress bars on standard error, only on a terminal."""

    def __init__(self, files: list[FileConformance], *, quiet: bool) -> None:
        console = TerminalConsole(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._tasks = {
            id(file): self._progress.add_task(file.path.name, total=self._lines(file.path))
            for file in files
        }

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def _lines(self, path: Path) -> int | None:
        return None if self._progress.disable else sum(1 for _ in read_lines(path))

    def step(self, file: FileConformance) -> None:
        """Show the vectors that a file has completed."""
        self._progress.update(self._tasks[id(file)], completed=file.vectors)
