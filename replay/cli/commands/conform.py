"""`reprieve conform`: golden vectors, or checks of the contract, against running services."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from replay.cli.errors import DIFFERS, REFUSED, ExitError, refusing
from replay.cli.parameters import echo_json, output_option, write
from replay.conform.contract.checks import Report, run_checks
from replay.conform.contract.eviction import EVICTION
from replay.conform.contract.queue import QUEUE
from replay.conform.contract.scheduler import SCHEDULER
from replay.conform.vectors.run import Conformance, Endpoints, files_of, play
from replay.conform.vectors.vectors import VectorError, read_lines, recorded_files
from replay.results.kubectl.rows import TableWriter
from services.rpc.client import ClientTls, channel, tls_options

CONTRACTS = {each.service: each for each in (SCHEDULER, QUEUE, EVICTION)}
_OF_VECTORS = ("scheduler", "queue", "eviction", "version", "stream", "only", "show")
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
    help="Which level of --contract must be reached.",
)
@click.option("--scheduler", default="", metavar="HOST:PORT", help="A scheduler elsewhere.")
@click.option("--queue", default="", metavar="HOST:PORT", help="A scheduling queue elsewhere.")
@click.option("--eviction", default="", metavar="HOST:PORT", help="An eviction service elsewhere.")
@tls_options("", "those services")
@click.option(
    "--version",
    default="",
    metavar="vX.Y",
    help="Whose rules the vectors are of. Default: what a file's name tells.",
)
@click.option("--stream", is_flag=True, help="Play the queue's scripts by its stream.")
@click.option("--only", metavar="TEXT", default="", help="Vectors whose id holds this text.")
@click.option(
    "--show",
    default=3,
    show_default=True,
    type=click.IntRange(0),
    help="How many differences of each file to tell.",
)
@output_option("table", "json", meaning="For people or for programs; json tells every difference.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
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
    tls: ClientTls,
    version: str,
    stream: bool,
    only: str,
    show: int,
    output: str,
    quiet: bool,
) -> None:
    """Play what upstream's own code did through running services, and report what differs.

    FILE... holds golden vectors, one JSON object a line, gzipped or not: scheduling scenarios, or
    scripts of the scheduling queue or of the eviction manager. Without FILE, all vectors that come
    with Reprieve are played. The services are started as child processes, unless addresses are
    given: so a service of your own can be checked as well. A vector that cannot be read counts as
    failed.

    With --contract, ADDRESS is where a service listens that may be anybody's. Its checks need no
    vectors and demand no particular one of several nodes; a table says which level of the contract
    it reaches, and what of Reprieve that is enough for (docs/conformance.md). The exit code is 1
    where that is less than --level.

    \b
    Examples:
      reprieve conform
      reprieve conform queue-v1.34.jsonl.gz scheduling.jsonl.gz
      reprieve conform scheduling.jsonl.gz --scheduler 127.0.0.1:50052 -o json
      reprieve conform --contract scheduler 127.0.0.1:50052
      reprieve conform --contract queue 127.0.0.1:50051 --level 3 -o json
    """
    if service is not None:
        _refuse(context, _OF_VECTORS, "is for vectors, not for --contract")
        if len(names) != 1:
            raise ExitError(REFUSED, "--contract needs one ADDRESS, such as 127.0.0.1:50052")
        _contract(service, names[0], tls, level, output)
        return
    _refuse(context, ["level"], "needs --contract")
    files = [_FILE.convert(name, None, context) for name in names]
    if version and not files:
        raise ExitError(REFUSED, "--version needs FILE: the recorded vectors are of several")
    given = {"scheduler": scheduler, "queue": queue, "eviction": eviction}
    endpoints = Endpoints(addresses={k: v for k, v in given.items() if v}, tls=tls)
    found = files_of(files or recorded_files(), version)
    with _Bar(found, quiet=quiet) as bar:
        play(found, endpoints, stream=stream, wanted=lambda id_: only in id_, progress=bar.step)
    if not any(each.vectors for each in found):
        raise ExitError(REFUSED, f"no vector's id holds {only!r}")
    if output == "json":
        echo_json([each.to_mapping() for each in found])
    else:
        _print(found, show)
    failed = sum(each.failed for each in found)
    if failed:
        raise ExitError(DIFFERS, f"{failed:,} vectors failed")


def _refuse(context: click.Context, options: Iterable[str], why: str) -> None:
    """Refuse options that were given and have no meaning here."""
    for name in options:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise ExitError(REFUSED, f"--{name} {why}")


def _contract(service: str, address: str, tls: ClientTls, level: int, output: str) -> None:
    """Check a service against its contract and print what became of it."""
    with contextlib.closing(channel(address, tls)) as opened:
        report = run_checks(CONTRACTS[service], opened, address)
    if output == "json":
        echo_json(report.to_mapping())
    else:
        _print_report(report)
    if report.level < level:
        raise ExitError(DIFFERS, f"level {level} is not reached")


def _print_report(report: Report) -> None:
    """Print a row for each check, then the line that says what they come to."""
    table = TableWriter(("LEVEL", "CHECK", "RESULT"), write)
    table.rows([(str(each.level), each.check, each.text) for each in report.results])
    click.echo(f"\n{report.sentence}")


def _print(found: list[Conformance], show: int) -> None:
    """Print the topics of each file, then differences, then the line that counts all."""
    for each in found:
        counts = f"{each.passed} passed, {each.failed} failed"
        click.echo(f"{each.path.name}: {each.kind.value} {each.version}, {counts}")
        table = TableWriter(("TOPIC", "PASSED", "FAILED"), write)
        table.rows(
            [
                (name or "-", f"{topic.passed:,}", f"{topic.failed:,}")
                for name, topic in sorted(each.topics.items())
            ]
        )
        for difference in each.differences[:show]:
            click.echo(f"\n{difference.id} ({', '.join(difference.tags)})\n  {difference.text}")
        if show and each.failed > show:
            click.echo(f"\n{each.failed - show:,} more: --show {each.failed} tells all")
        click.echo()
    passed, failed = (sum(getattr(each, name) for each in found) for name in ("passed", "failed"))
    click.echo(f"{passed} passed, {failed} failed")


class _Bar:
    """A bar on a terminal's standard error, nothing elsewhere."""

    def __init__(self, files: list[Conformance], *, quiet: bool) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._tasks = {
            id(each): self._progress.add_task(each.path.name, total=self._lines(each.path))
            for each in files
        }

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def _lines(self, path: Path) -> int | None:
        return None if self._progress.disable else sum(1 for _ in read_lines(path))

    def step(self, file: Conformance) -> None:
        """Note one vector more."""
        self._progress.update(self._tasks[id(file)], completed=file.vectors)
