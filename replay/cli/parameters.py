"""Types of options that several commands take."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click

from replay.importers.options import Moment
from replay.world.durations import duration_ns
from services.telemetry.sampling import Sampling

_INTEGER = re.compile(r"-?\d{1,10}")
_PRIORITY_MIN, _PRIORITY_MAX = -(2**31), 1_000_000_000
"""Kubernetes v1.34 pkg/apis/scheduling/types.go, HighestUserDefinablePriority."""


class Duration(click.ParamType[int]):
    """A length of time such as "1h30m", "2.5s" or "500ms"; its value is in ns."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return ns."""
        if isinstance(value, int):
            return value
        try:
            return duration_ns(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class MomentOfRecording(click.ParamType[Moment]):
    """A moment of a recording: a length of time since its beginning, or an RFC 3339 time."""

    name = "DURATION|TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Moment:
        """Return the moment."""
        from replay.importers.recording.change import time_ns  # noqa: PLC0415 - when needed

        if isinstance(value, Moment):
            return value
        at_ns = time_ns(value)
        if at_ns is not None:
            return Moment(text=value, at_ns=at_ns)
        try:
            return Moment(text=value, since_start_ns=duration_ns(value))
        except ValueError:
            problem = f"{value!r} is no moment; write 90s, 1h30m or 2026-01-31T12:00:00Z"
            self.fail(problem, param, ctx)


class Time(click.ParamType[int]):
    """A time such as 2026-01-31T12:00:00Z; its value is in ns since 1970."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return ns since 1970."""
        from replay.importers.recording.change import time_ns  # noqa: PLC0415 - when needed

        at_ns = value if isinstance(value, int) else time_ns(value)
        if at_ns is None:
            self.fail(f"{value!r} is not a time; write 2026-01-31T12:00:00Z", param, ctx)
        return at_ns


class Share(click.ParamType[Sampling]):
    """A share of the pods: "off", "all" or a percentage such as "1%"."""

    name = "off|all|PERCENT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Sampling:
        """Return the share."""
        if isinstance(value, Sampling):
            return value
        try:
            return Sampling.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class QosPriority(click.ParamType[tuple[str, int]]):
    """A priority for a qos of OpenB, such as "LS=1000"; its value is (qos, priority)."""

    name = "QOS=PRIORITY"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Return the qos and its priority."""
        if isinstance(value, tuple):
            return value
        qos, _, number = value.partition("=")
        if not qos or not _INTEGER.fullmatch(number):
            self.fail(f"{value!r} is no priority of a qos; write LS=1000", param, ctx)
        priority = int(number)
        if not _PRIORITY_MIN <= priority <= _PRIORITY_MAX:
            self.fail(f"{value!r}: a priority is at most {_PRIORITY_MAX:,}", param, ctx)
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


DURATION = Duration()
MOMENT = MomentOfRecording()
TIME = Time()
SHARE = Share()
QOS_PRIORITY = QosPriority()
TRACE_FILE = TraceFile()
