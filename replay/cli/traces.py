"""Options that every command which reads a trace takes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from replay.cli.errors import REFUSED, ExitError
from replay.cli.parameters import DURATION
from reprieve.trace.v1alpha1 import trace_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceArguments:
    """Which trace to read, and how."""

    paths: tuple[Path, ...]
    format: str | None
    every_ns: int
    openb_timed: bool
    openb_gpu: bool

    def records(self) -> Iterator[trace_pb2.Record]:
        """Yield the trace's records. Raises ExitError where it cannot be read."""
        from replay.importers.options import ImportOptions  # noqa: PLC0415 - loaded when needed
        from replay.importers.registry import open_trace  # noqa: PLC0415
        from replay.trace.errors import TraceError  # noqa: PLC0415

        options = ImportOptions(
            every_ns=self.every_ns, openb_timed=self.openb_timed, openb_gpu=self.openb_gpu
        )
        try:
            yield from open_trace(self.paths, format=self.format, options=options)
        except TraceError as error:
            raise ExitError(REFUSED, str(error)) from error
        except OSError as error:
            raise ExitError(REFUSED, f"{error.filename}: {error.strerror}") from error


def trace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add TRACE... and the importers' options; the command receives one argument, `trace`."""

    def with_trace(
        paths: Sequence[Path],
        trace_format: str | None,
        every_ns: int,
        openb_timed: bool,
        openb_gpu: bool,
        **rest: Any,
    ) -> Any:
        trace = TraceArguments(
            paths=tuple(paths),
            format=trace_format,
            every_ns=every_ns,
            openb_timed=openb_timed,
            openb_gpu=openb_gpu,
        )
        return command(trace=trace, **rest)

    functools.update_wrapper(with_trace, command)
    for option in reversed(_OPTIONS):
        with_trace = option(with_trace)
    return with_trace


_OPTIONS: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
    click.argument(
        "paths",
        metavar="TRACE...",
        nargs=-1,
        required=True,
        type=click.Path(exists=True, path_type=Path),
    ),
    click.option(
        "--format",
        "trace_format",
        type=click.Choice(["native", "watch", "audit", "openb", "manifests"]),
        help="The format, where it is not recognised.",
    ),
    click.option(
        "--every",
        "every_ns",
        type=DURATION,
        default="0s",
        show_default=True,
        help="Space the workloads of manifests by this time; 0s: all come at once.",
    ),
    click.option("--openb-timed", is_flag=True, help="OpenB: keep the data set's own times."),
    click.option(
        "--openb-gpu/--no-openb-gpu",
        default=True,
        show_default=True,
        help="OpenB: make GPUs extended resources.",
    ),
)
