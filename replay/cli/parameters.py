"""Parameter types and options of several commands, and functions that print their results."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import click
import orjson

from replay.durations import duration_ns
from replay.importers.records import Moment
from replay.kube.changes import time_ns
from replay.options import ParsedParam
from replay.results.run.directory import RunDirectory
from services.kube.yaml_scalars import written
from services.terminal import echo, json_text


def _moment(text: str) -> Moment:
    """Return a moment of a recording: a duration since its start, or a time."""
    at_ns = time_ns(text)
    if at_ns is not None:
        return Moment(text=text, at_ns=at_ns)
    try:
        return Moment(text=text, since_start_ns=duration_ns(text))
    except ValueError:
        problem = f"{text!r} is not a duration or a time; write 90s or 2026-01-31T12:00:00Z"
        raise ValueError(problem) from None


class TraceFile(click.Path):
    """The path of a new trace, whose suffix selects a form of the native format."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        """Return the path; fail for any other suffix."""
        from replay.trace.writer import SUFFIXES  # noqa: PLC0415 - loaded when needed

        path = Path(os.fsdecode(value))
        super().convert(path, param, ctx)
        if not path.name.endswith(SUFFIXES):
            problem = f"{str(path)!r} has no suffix of a trace; write {' or '.join(SUFFIXES)}"
            self.fail(problem, param, ctx)
        return path


MOMENT = ParsedParam("DURATION|TIME", _moment)
TRACE_FILE = TraceFile()
run_argument = click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
write = functools.partial(click.echo, nl=False)
"""Writes a text to standard output without a newline."""


class RunMoment(TypedDict):
    """The arguments of RunDirectory.moment_ns; both None: the end of the run."""

    offset_ns: int | None
    at_ns: int | None


def of_run(moment: Moment | None) -> RunMoment:
    """Convert a parsed MOMENT to the arguments of RunDirectory.moment_ns."""
    if moment is None:
        return RunMoment(offset_ns=None, at_ns=None)
    offset_ns = moment.since_start_ns
    return RunMoment(offset_ns=offset_ns, at_ns=moment.at_ns if offset_ns is None else None)


def at_option(meaning: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option --at, a moment of a run; the command receives it as `moment`."""
    return click.option(
        "--at",
        "moment",
        type=MOMENT,
        help=f"{meaning}: a duration from the run's beginning, or a time of the run's clock. "
        "Default: the run's end.",
    )


def output_option(
    *choices: str, meaning: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option --output, whose default is "table"."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(choices),
        default="table",
        show_default=True,
        help=meaning,
    )


html_option = click.option(
    "--html",
    "html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the result to this file as one HTML page, which opens without a network.",
)
DATA = frozenset({"json", "yaml"})
"""Outputs for programs."""
quiet_option = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Print nothing but failures, warnings and what -o json or yaml asks for.",
)


def shows(output: str, *, quiet: bool) -> bool:
    """Return whether a result is printed in this format; with --quiet, only data formats are."""
    return not quiet or output in DATA


def open_run(path: Path) -> RunDirectory:
    """Open a run to read it; a line on standard error reports an incomplete run."""
    run = RunDirectory.open(path)
    state = str(run.state())
    if state:
        echo(f"Warning: {path}: {state}", err=True)
    return run


def echo_data(value: object, output: str) -> None:
    """Print a value for programs: as YAML for "yaml", else as indented JSON."""
    if output == "yaml":
        plain = orjson.loads(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS))
        write(written(plain))
    else:
        click.echo(json_text(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()))
