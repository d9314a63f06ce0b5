"""Parameters that several commands take, and how their results are written."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import click
import orjson

from replay.importers.records import Moment
from replay.world.models import duration_ns
from services.telemetry.span import Sampling

_T = TypeVar("_T")
_INTEGER = re.compile(r"-?\d{1,10}")
_PRIORITY_MIN, _PRIORITY_MAX = -(2**31), 1_000_000_000
"""Kubernetes v1.34 pkg/apis/scheduling/types.go, HighestUserDefinablePriority."""


class Parsed(click.ParamType[_T], Generic[_T]):
    """What a function reads of a text; its ValueError says what is wrong with it."""

    def __init__(self, name: str, read: Callable[[str], _T]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _T:
        """Return what is read; a value that was read already is left as it is."""
        if not isinstance(value, str):
            read: _T = value
            return read
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _moment(text: str) -> Moment:
    """Return a moment of a recording: a length of time since its beginning, or a time."""
    at_ns = _recorded_ns(text)
    if at_ns is not None:
        return Moment(text=text, at_ns=at_ns)
    try:
        return Moment(text=text, since_start_ns=duration_ns(text))
    except ValueError:
        problem = f"{text!r} is no moment; write 90s, 1h30m or 2026-01-31T12:00:00Z"
        raise ValueError(problem) from None


def _time_ns(text: str) -> int:
    at_ns = _recorded_ns(text)
    if at_ns is None:
        raise ValueError(f"{text!r} is not a time; write 2026-01-31T12:00:00Z")
    return at_ns


def _recorded_ns(text: str) -> int | None:
    from replay.kube.changes import time_ns  # noqa: PLC0415 - loaded when needed

    return time_ns(text)


def _qos_priority(text: str) -> tuple[str, int]:
    qos, _, number = text.partition("=")
    if not qos or not _INTEGER.fullmatch(number):
        raise ValueError(f"{text!r} is no priority of a qos; write LS=1000")
    priority = int(number)
    if not _PRIORITY_MIN <= priority <= _PRIORITY_MAX:
        raise ValueError(f"{text!r}: a priority is at most {_PRIORITY_MAX:,}")
    return qos, priority


class TraceFile(click.Path):
    """Where to write a trace: a path whose ending names a form of the native format."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        """Return the path."""
        from replay.trace.writer import SUFFIXES  # noqa: PLC0415 - loaded when needed

        path = Path(os.fsdecode(value))
        super().convert(path, param, ctx)
        if not path.name.endswith(SUFFIXES):
            self.fail(f"{str(path)!r}: a trace's name ends in {', '.join(SUFFIXES)}", param, ctx)
        return path


DURATION = Parsed("duration", duration_ns)
"""A length of time such as "1h30m", "2.5s" or "500ms"; its value is in ns."""
MOMENT = Parsed("DURATION|TIME", _moment)
TIME = Parsed("TIME", _time_ns)
"""A time such as 2026-01-31T12:00:00Z; its value is in ns since 1970."""
SHARE = Parsed("off|all|PERCENT", Sampling.parse)
"""A share of the pods: "off", "all" or a percentage such as "1%"."""
QOS_PRIORITY = Parsed("QOS=PRIORITY", _qos_priority)
"""A priority for a qos of OpenB, such as "LS=1000"; its value is (qos, priority)."""
TRACE_FILE = TraceFile()
FOLDER = click.Path(file_okay=False, path_type=Path)
run_argument = click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
write = functools.partial(click.echo, nl=False)
"""Writes a text to standard output as it is."""


def output_option(
    *choices: str, meaning: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option --output, a table by default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(choices),
        default="table",
        show_default=True,
        help=meaning,
    )


def echo_json(value: object) -> None:
    """Print a value for programs."""
    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2))
