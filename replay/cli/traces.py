"""The options of all commands that read a trace, and the writer of traces."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

from replay.bounds import NAMES, Bounds, option_name, set_bounds, variable_name, yaml_value
from replay.cli.errors import refusing_traces
from replay.cli.parameters import QOS_PRIORITY, TIME
from replay.importers.records import OPENB_PRIORITIES, ImportOptions
from replay.options import DURATION, ParsedParam
from reprieve.trace.v1beta1 import trace_pb2
from services.kube import quantity
from services.terminal import counted, echo

_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9./-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceArguments:
    """The files of a trace, their format and the options of its importer."""

    paths: tuple[Path, ...]
    format: str | None = None
    options: ImportOptions = ImportOptions()  # noqa: RUF009 - a frozen value

    def records(self, scheduler_names: Sequence[str] = ()) -> Iterator[trace_pb2.Record]:
        """Yield the trace's records. Raises ExitError where it cannot be read.

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
    """Add TRACE... and the importers' options; the command receives one argument, `trace`.

    It includes the command's own options with the name of a field of ImportOptions.
    """

    def with_trace(paths: Sequence[Path], trace_format: str | None, **values: Any) -> Any:
        options = ImportOptions(**{name: values.pop(name) for name in _FIELDS & values.keys()})
        trace = TraceArguments(paths=tuple(paths), format=trace_format, options=options)
        return command(trace=trace, **values)

    functools.update_wrapper(with_trace, command)
    with_trace = bound_options(with_trace)
    for option in reversed(_OPTIONS):
        with_trace = option(with_trace)
    return with_trace


def bound_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each bound on what is read; the bounds of the process are set to them."""

    def with_bounds(**values: Any) -> Any:
        set_bounds(Bounds(**{name: values.pop(f"max_{name}") for name in NAMES}))
        return command(**values)

    functools.update_wrapper(with_bounds, command)
    for name, text in reversed(_BOUND_HELP.items()):
        with_bounds = click.option(
            option_name(name),
            type=click.IntRange(1),
            default=getattr(Bounds(), name),
            envvar=variable_name(name),
            show_envvar=True,
            show_default=True,
            help=text,
        )(with_bounds)
    return with_bounds


def write_trace(output: Path, records: Iterable[trace_pb2.Record]) -> None:
    """Write a whole trace atomically; print the number of its records.

    Raises ExitError where it cannot be written.
    """
    from replay.trace.writer import write  # noqa: PLC0415 - loaded when needed

    with refusing_traces():
        count = write(output, records)
    echo(f"{output}: {counted(count, 'record')}", err=True)


def _setting(text: str) -> tuple[str, object]:
    """Return the name and the value of a workload's parameter, read as YAML reads it."""
    name, sign, value = text.partition("=")
    try:
        read = yaml_value(value, "--param")
    except yaml.YAMLError:
        read = None
    if not name or not sign or not isinstance(read, int | float | str | bool):
        raise ValueError(f"{text!r} is not a parameter; write initNodes=5000")
    return name, read


def _amounts(text: str) -> Mapping[str, str]:
    result = {}
    for each in filter(None, text.split(",")):
        resource, _, amount = each.strip().partition("=")
        if _value(amount) is None:
            raise ValueError(f"{each!r} is not RESOURCE=QUANTITY; write cpu=96,memory=768Gi")
        if not _RESOURCE.fullmatch(resource):
            raise ValueError(f"{resource!r} is not the name of a resource; write cpu=96")
        result[resource] = amount
    return result


def _bytes(text: str) -> int:
    number = _value(text)
    if not number:
        raise ValueError(f"{text!r} is not a size; write 256Gi")
    return number


def _value(text: str) -> int | None:
    """Return a quantity's value; None for a negative quantity or any other text."""
    try:
        number = quantity.value(text)
    except quantity.QuantityError:
        return None
    return number if number >= 0 else None


_FIELDS = frozenset(each.name for each in dataclasses.fields(ImportOptions))
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
"""The values of --format: the names of replay.importers.registry.IMPORTERS, in that order.

A copy, so that help does not wait until all importers are imported.
"""

_BOUND_HELP: dict[str, str] = {
    "depth": "Refuse JSON, YAML and MessagePack that is nested more deeply.",
    "line_bytes": "Refuse a file with a longer line, or a longer record of a .ktr.",
    "object_bytes": "Refuse a file with a larger JSON value or YAML document.",
    "expansion": "Refuse a file that expands to more than so many times its compressed size.",
    "pods_per_object": "Refuse an object that asks for more pods, and an operation or a row that "
    "makes more objects.",
}

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
        metavar="FORMAT",
        help=f"The format, where it is not recognised: {', '.join(FORMATS)}.",
    ),
    click.option(
        "--every",
        "every_ns",
        type=DURATION,
        help="The interval between the workloads of manifests, and between the pods of "
        "scheduler_perf, such as 1s; 0s creates all at once. [default: manifests 0s, "
        "scheduler_perf 200us]",
    ),
    click.option(
        "--openb-timed",
        is_flag=True,
        help="OpenB: use the times of the data set. [default: all pods are created at once]",
    ),
    click.option(
        "--openb-gpu/--no-openb-gpu",
        default=True,
        show_default=True,
        help="OpenB: make GPUs extended resources.",
    ),
    click.option(
        "--qos-priority",
        "openb_priorities",
        type=QOS_PRIORITY,
        multiple=True,
        callback=lambda _ctx, _param, given: {**OPENB_PRIORITIES, **dict(given)},
        help="OpenB: the priority of a qos, such as LS=1000. Repeatable. [default: Guaranteed and "
        "LS 1000, Burstable 100, BE 0]",
    ),
    click.option(
        "--now",
        "now_ns",
        type=TIME,
        help="Manifests: the start of the trace, such as 2026-01-31T12:00:00Z. [default: the "
        "latest time in one of the objects; 0 where they were never in a cluster]",
    ),
    click.option(
        "--openb-jobs",
        is_flag=True,
        help="OpenB: create a Job for each pod, which replaces the pod after a preemption.",
    ),
    click.option(
        "--workload",
        default="",
        metavar="TESTCASE/WORKLOAD",
        help="scheduler_perf: the workload of the performance-config file, such as "
        "PreemptionBasic/1000Nodes. TESTCASE alone needs all its parameters as --param.",
    ),
    click.option(
        "--param",
        "params",
        type=ParsedParam("NAME=VALUE", _setting),
        multiple=True,
        callback=lambda _ctx, _param, given: dict(given),
        help="scheduler_perf: a parameter of the workload, such as initNodes=5000. Repeatable.",
    ),
    click.option(
        "--wait",
        "wait_ns",
        type=DURATION,
        default="10s",
        show_default=True,
        help="scheduler_perf: the simulated time of each wait until pods are scheduled.",
    ),
    click.option(
        "--made-nodes",
        default=0,
        type=click.IntRange(0, 1_000_000),
        help="The number of nodes to create in a trace without nodes, such as 500.",
    ),
    click.option(
        "--nodes-from",
        type=click.Path(exists=True, path_type=Path),
        help="Use the nodes of another trace, such as the output of `kubectl get nodes -o yaml`.",
    ),
    click.option(
        "--node-size",
        "node_amounts",
        type=ParsedParam("RESOURCE=QUANTITY,...", _amounts),
        default="",
        help="The resources of each node of --made-nodes, such as cpu=96,memory=768Gi,pods=110. "
        "Other resources have the default of the format.",
    ),
    click.option(
        "--unit-cpu",
        "unit_cpu_milli",
        type=click.IntRange(1, 100_000),
        default=64,
        callback=lambda _ctx, _param, cores: 1000 * cores,
        show_default=True,
        help="Google's traces, in shares of a machine: the cores of 1.0; also the cores of each "
        "node of --made-nodes.",
    ),
    click.option(
        "--unit-memory",
        "unit_memory_bytes",
        type=ParsedParam("QUANTITY", _bytes),
        default="256Gi",
        show_default=True,
        help="Google's traces and alibaba-2017: the memory of 1.0, such as 512Gi; also the memory "
        "of each node of --made-nodes.",
    ),
    click.option(
        "--allocatable",
        "allocatable_percent",
        type=click.IntRange(1, 10_000),
        default=100,
        show_default=True,
        metavar="PERCENT",
        help="Google's traces and alibaba-2017: a node's allocatable in percent of its capacity. "
        "Borg admits more than 100.",
    ),
    click.option(
        "--machine",
        default="",
        metavar="ID",
        help="Azure packing: the machineId whose sizes are used, such as 16.",
    ),
    click.option(
        "--read-cut-off",
        "reads_cut_off",
        is_flag=True,
        help="Native traces: read what is left of a file that was cut off, up to its last whole "
        "record; the summary notes it. [default: such a file is refused]",
    ),
)
