"""`reprieve export`: a run for Perfetto, or its rounds for a scheduler's author."""

from __future__ import annotations

import contextlib
import gzip
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

import click
import orjson
from click.core import ParameterSource
from google.protobuf.message import Message

from replay.cli.errors import refusing
from replay.cli.parameters import MOMENT, of_run, open_run, run_argument
from replay.errors import RunError
from replay.explain.target import pods_named
from replay.importers.records import Moment
from replay.options import ParsedParam
from replay.results.run.directory import RunDirectory
from replay.results.run.requests import SESSION_ID, RoundsQuery, request, select
from replay.results.spans.chrome_trace import TraceEvent, trace_events
from replay.results.tables.query import RunTables
from replay.settings import ReplaySettings
from reprieve.scheduler.v1beta1.scheduler_service_pb2 import CreateSessionRequest
from services.folder import replacing
from services.rpc.kube import json_codec
from services.terminal import counted, echo, json_text

_EVENTS_PER_WRITE = 2000
_OF_ROUNDS = ("numbers", "moment", "pod", "namespace", "with_earlier", "session_id")
"""Parameters that select rounds."""


def _numbers(text: str) -> range:
    """Return the numbers of "17", "3-17" or "3-"."""
    match = re.fullmatch(r"([0-9]{1,18})(-([0-9]{1,18})?)?", text)
    if match is None:
        raise ValueError(f"{text!r} is not a number or a range; write 17, 3-17 or 3-")
    first = int(match[1])
    last = int(match[3]) if match[3] else sys.maxsize if match[2] else first
    if not first:
        raise ValueError(f"{text!r} is not a request's number; the first one is 1")
    if last < first:
        raise ValueError(f"{text!r} ends before it begins")
    return range(first, last + 1)


@click.command(name="export")
@run_argument
@click.option(
    "--format",
    "_format",
    type=click.Choice(["chrome-trace"]),
    default="chrome-trace",
    show_default=True,
    help="chrome-trace: JSON that Perfetto and chrome://tracing open.",
)
@click.option(
    "--rounds",
    is_flag=True,
    help="Export the rounds as the scheduler received them instead: a RunRoundRequest a line, in "
    "proto3 JSON.",
)
@click.option(
    "--request",
    "numbers",
    type=ParsedParam("N|N-M", _numbers),
    help="With --rounds: the request with this number, from 1, or a range of them.",
)
@click.option(
    "--at",
    "moment",
    type=MOMENT,
    help="With --rounds: the requests of the last moment until then: a duration from the run's "
    "beginning, or a time of the run's clock.",
)
@click.option(
    "--pod",
    metavar="POD",
    help="With --rounds: requests with an event or an answer about this pod, and those of the "
    "moments of its decisions.",
)
@click.option("-n", "--namespace", default="", help="The pod's namespace.")
@click.option(
    "--with-earlier",
    is_flag=True,
    help="With --rounds: also all requests before the selected ones, which a new session needs.",
)
@click.option(
    "--session-id",
    metavar="ID",
    default=SESSION_ID,
    show_default=True,
    help="With --rounds: the session in every request, as CreateSession has returned it.",
)
@click.option(
    "--create-session",
    is_flag=True,
    help="Export the CreateSessionRequest, with the run's configuration, instead.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write; compressed where its name ends in .gz. Default, with --rounds or "
    "--create-session only: standard output.",
)
@refusing(RunError, OSError)
def command(
    *,
    run: Path,
    _format: str,
    rounds: bool,
    numbers: range | None,
    moment: Moment | None,
    pod: str | None,
    namespace: str,
    with_earlier: bool,
    session_id: str,
    create_session: bool,
    output: Path | None,
) -> None:
    """Export a run over simulated time, or what its scheduler received.

    By default: each node with its pods, and the pending pods. Nodes are processes, pods are slices
    in them, preemptions and evictions are instants; pending pods are counters of the cluster: not
    tried yet, refused, nominated.

    With --rounds: each round that the scheduler received, as a request that can be sent to a
    scheduler of your own (docs/write-a-scheduler.md). Options select rounds; several ones select
    those that meet all of them.

    \b
    Examples:
      reprieve export runs/today -o today.json.gz
      reprieve export runs/today --rounds -o rounds.jsonl
      reprieve export runs/today --rounds --pod web-0 --at 90s
      reprieve export runs/today --rounds --request 17 --with-earlier
    """
    _check(rounds=rounds, create_session=create_session, output=output)
    directory = open_run(run)
    if create_session:
        config = ReplaySettings.of(directory.manifest()).scheduler
        _write_lines([CreateSessionRequest(config=config)], output)
        return
    if rounds:
        query = _query(directory, numbers, moment, pod, namespace, with_earlier=with_earlier)
        selected = select(directory.rounds, query)
        first = next(selected, None)
        if first is None:
            count = sum(1 for _ in directory.rounds())
            raise RunError(f"{run} has no such request; it has {count:,} requests")
        requests = (request(numbered, session_id) for numbered in chain([first], selected))
        count = _write_lines(requests, output)
        if output is not None:
            echo(f"{output}: {counted(count, 'request')}", err=True)
        return
    assert output is not None  # noqa: S101 - checked above
    with RunTables(directory) as tables, _opened(output) as file:
        count = _write_events(file, trace_events(tables))
    echo(f"{output}: {counted(count, 'trace event')}", err=True)


def _check(*, rounds: bool, create_session: bool, output: Path | None) -> None:
    """Refuse options that would have no effect."""
    context = click.get_current_context()
    given = {
        str(param.name): param.opts[-1]
        for param in context.command.params
        if context.get_parameter_source(str(param.name)) is not ParameterSource.DEFAULT
    }
    if rounds and create_session:
        raise click.UsageError("--rounds and --create-session cannot be combined")
    for name, flag in given.items():
        if name in _OF_ROUNDS and not rounds:
            raise click.UsageError(f"{flag} has no effect without --rounds")
    if (rounds or create_session) and "_format" in given:
        raise click.UsageError("--format has no effect on requests")
    if output is None and not (rounds or create_session):
        raise click.UsageError("name the file to write: -o FILE")


def _query(
    run: RunDirectory,
    numbers: range | None,
    moment: Moment | None,
    pod: str | None,
    namespace: str,
    *,
    with_earlier: bool,
) -> RoundsQuery:
    uids: set[str] | None = None
    times_ns: set[int] = set()
    if pod is not None:
        uids = {life.uid for life in pods_named(run, pod, namespace)}
        times_ns = {entry.time_ns for uid in uids for entry, _ in run.entries(uid)}
    until_ns = None if moment is None else run.moment_ns(**of_run(moment))
    return RoundsQuery(
        numbers=numbers, uids=uids, times_ns=times_ns, until_ns=until_ns, with_earlier=with_earlier
    )


@contextlib.contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    """Open the output file, or standard output; a file is replaced when it is complete."""
    if output is None:
        yield sys.stdout.buffer
        return
    with replacing(output) as file:
        if output.name.endswith(".gz"):
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=3) as compressed:
                yield cast("BinaryIO", compressed)
        else:
            yield file


def _write_lines(messages: Iterable[Message], output: Path | None) -> int:
    """Write each message as a line; return the number of messages."""
    count = 0
    with _opened(output) as file:
        for message in messages:
            text = orjson.dumps(json_codec.to_proto3_json(message)).decode()
            file.write(f"{json_text(text)}\n".encode())
            count += 1
    return count


def _write_events(file: BinaryIO, events: Iterable[TraceEvent]) -> int:
    count, lines = 0, bytearray(b'{"displayTimeUnit":"ms","traceEvents":[')
    for event in events:
        lines += b",\n" if count else b"\n"
        lines += orjson.dumps(event)
        count += 1
        if count % _EVENTS_PER_WRITE == 0:
            file.write(lines)
            lines.clear()
    file.write(lines + b"\n]}\n")
    return count
