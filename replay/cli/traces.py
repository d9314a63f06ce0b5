"""Options that every command which reads a trace takes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from replay.cli.errors import refusing_traces
from replay.cli.import_options import IMPORT_OPTIONS, import_values
from replay.cli.parameters import DURATION, QOS_PRIORITY
from replay.importers.options import Moment
from reprieve.trace.v1alpha1 import trace_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceArguments:
    """Which trace to read, and how; `others` are further fields of ImportOptions."""

    paths: tuple[Path, ...]
    format: str | None
    every_ns: int | None
    openb_timed: bool
    openb_gpu: bool
    qos_priorities: tuple[tuple[str, int], ...]
    others: Mapping[str, Any] = field(default_factory=dict)

    def following(self, until: Moment | None) -> TraceArguments:
        """Return the same, where a recording is followed until a moment; None: it is not."""
        return dataclasses.replace(self, others={**self.others, "follow_until": until})

    def records(self, scheduler_names: Sequence[str] = ()) -> Iterator[trace_pb2.Record]:
        """Yield the trace's records. Raises ExitError where it cannot be read.

        `scheduler_names` are those whose pods are scheduled; none: default-scheduler's.
        """
        from replay.importers import options, registry  # noqa: PLC0415 - loaded when needed

        chosen = options.ImportOptions(
            every_ns=self.every_ns,
            openb_timed=self.openb_timed,
            openb_gpu=self.openb_gpu,
            openb_priorities={**options.OPENB_PRIORITIES, **dict(self.qos_priorities)},
            **self.others,
        )
        if scheduler_names:
            chosen = dataclasses.replace(chosen, scheduler_names=tuple(scheduler_names))
        with refusing_traces():
            yield from registry.open_trace(self.paths, format=self.format, options=chosen)


def trace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add TRACE... and the importers' options; the command receives one argument, `trace`."""

    def with_trace(
        paths: Sequence[Path],
        trace_format: str | None,
        every_ns: int | None,
        openb_timed: bool,
        openb_gpu: bool,
        qos_priorities: Sequence[tuple[str, int]],
        **rest: Any,
    ) -> Any:
        trace = TraceArguments(
            paths=tuple(paths),
            format=trace_format,
            every_ns=every_ns,
            openb_timed=openb_timed,
            openb_gpu=openb_gpu,
            qos_priorities=tuple(qos_priorities),
            others=import_values(rest),
        )
        return command(trace=trace, **rest)

    functools.update_wrapper(with_trace, command)
    for option in reversed(_OPTIONS):
        with_trace = option(with_trace)
    return with_trace


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
    "google-2011",
    "google-2019",
    "azure-packing",
    "alibaba-2017",
    "manifests",
)
"""What --format takes; the names of replay.importers.registry, which is loaded when needed."""

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
        type=click.Choice(FORMATS),
        help="The format, where it is not recognised.",
    ),
    click.option(
        "--every",
        "every_ns",
        type=DURATION,
        help="Space the workloads of manifests, and the pods that scheduler_perf creates, by this "
        "time; 0s: all come at once. [default: manifests 0s, scheduler_perf 200us]",
    ),
    click.option("--openb-timed", is_flag=True, help="OpenB: keep the data set's own times."),
    click.option(
        "--openb-gpu/--no-openb-gpu",
        default=True,
        show_default=True,
        help="OpenB: make GPUs extended resources.",
    ),
    click.option(
        "--qos-priority",
        "qos_priorities",
        type=QOS_PRIORITY,
        multiple=True,
        help="OpenB: the priority of a qos, such as LS=1000; once for each. [default: Guaranteed "
        "and LS 1000, Burstable 100, BE 0]",
    ),
    *IMPORT_OPTIONS,
)
