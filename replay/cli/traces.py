"""The options of commands that read a trace, and a function that writes one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from replay.bounds import Bounds, set_bounds
from replay.cli.errors import refusing_traces
from replay.importers.records import ImportOptions, Moment
from replay.options import takes
from reprieve.trace.v1beta1 import trace_pb2
from services.terminal import counted, echo


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceArguments:
    """The files of a trace, their format and the options of its importer."""

    paths: tuple[Path, ...]
    format: str | None = None
    options: ImportOptions = ImportOptions()  # noqa: RUF009 - a frozen value

    def records(self, scheduler_names: Sequence[str] = ()) -> Iterator[trace_pb2.Record]:
        """Yield the trace's records. Raises ExitError if it cannot be read.

        `scheduler_names` are the schedulers whose pods the replay schedules; () is
        default-scheduler.
        """
        from replay.importers.registry import open_trace  # noqa: PLC0415 - loaded when needed

        options = self.options
        if scheduler_names:
            options = dataclasses.replace(options, scheduler_names=tuple(scheduler_names))
        with refusing_traces():
            yield from open_trace(self.paths, format=self.format, options=options)


def trace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add TRACE..., the importers' options and bounds; the command receives one argument, `trace`.

    It includes the command's own `follow_until`.
    """

    def with_trace(
        paths: Sequence[Path],
        trace_format: str | None,
        options: ImportOptions,
        follow_until: Moment | None = None,
        **values: Any,
    ) -> Any:
        options = dataclasses.replace(options, follow_until=follow_until)
        trace = TraceArguments(paths=tuple(paths), format=trace_format, options=options)
        return command(trace=trace, **values)

    functools.update_wrapper(with_trace, command)
    return _PATHS(_FORMAT(takes("options", ImportOptions)(bound_options(with_trace))))


def bound_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each bound on input; the options set the bounds of this process."""

    def with_bounds(bounds_on_reading: Bounds, **values: Any) -> Any:
        set_bounds(bounds_on_reading)
        return command(**values)

    functools.update_wrapper(with_bounds, command)
    return takes("bounds_on_reading", Bounds)(with_bounds)


def write_trace(output: Path, records: Iterable[trace_pb2.Record]) -> None:
    """Write a whole trace atomically; print the number of its records.

    Raises ExitError if it cannot be written.
    """
    from replay.trace.writer import write  # noqa: PLC0415 - loaded when needed

    with refusing_traces():
        count = write(output, records)
    echo(f"{output}: {counted(count, 'record')}", err=True)


FORMATS = (
    "native",
    "watch",
    "audit",
    "recorder",
    "simkube",
    "kwok",
    "scheduler-perf",
    "openb",
    "dlrm",
    "spot-gpu",
    "google-2011",
    "google-2019",
    "azure-packing",
    "alibaba-2017",
    "manifests",
)
"""The values of --format: the names of replay.importers.registry.IMPORTERS, in that order.

They are copied here so that --help need not import all importers.
"""

_PATHS = click.argument(
    "paths",
    metavar="TRACE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, path_type=Path),
)
_FORMAT = click.option(
    "--format",
    "trace_format",
    type=click.Choice(FORMATS),
    metavar="FORMAT",
    help=f"The format, where it is not recognised: {', '.join(FORMATS)}.",
)
