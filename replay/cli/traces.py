"""Options that every command which reads a trace takes, and how one is written."""

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

from replay.cli.errors import refusing_traces
from replay.cli.parameters import DURATION, QOS_PRIORITY, TIME, Parsed
from replay.importers.records import OPENB_PRIORITIES, ImportOptions
from reprieve.trace.v1beta1 import trace_pb2
from services.kube import quantity

_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9./-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceArguments:
    """Which trace to read, and how."""

    paths: tuple[Path, ...]
    format: str | None = None
    options: ImportOptions = ImportOptions()  # noqa: RUF009 - a frozen value

    def records(self, scheduler_names: Sequence[str] = ()) -> Iterator[trace_pb2.Record]:
        """Yield the trace's records. Raises ExitError where it cannot be read.

        `scheduler_names` are those whose pods are scheduled; none: default-scheduler's.
        """
        from replay.importers.registry import open_trace  # noqa: PLC0415 - loaded when needed

        options = self.options
        if scheduler_names:
            options = dataclasses.replace(options, scheduler_names=tuple(scheduler_names))
        with refusing_traces():
            yield from open_trace(self.paths, format=self.format, options=options)


def trace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add TRACE... and the importers' options; the command receives one argument, `trace`.

    Any option that is named as a field of ImportOptions is one of the trace's.
    """

    def with_trace(paths: Sequence[Path], trace_format: str | None, **given: Any) -> Any:
        options = ImportOptions(**{name: given.pop(name) for name in _FIELDS & given.keys()})
        trace = TraceArguments(paths=tuple(paths), format=trace_format, options=options)
        return command(trace=trace, **given)

    functools.update_wrapper(with_trace, command)
    for option in reversed(_OPTIONS):
        with_trace = option(with_trace)
    return with_trace


def write_trace(output: Path, records: Iterable[trace_pb2.Record]) -> None:
    """Write a whole trace or leave `output` as it was; say how many records it has.

    Raises ExitError where it cannot be written.
    """
    from replay.trace.writer import write  # noqa: PLC0415 - loaded when needed

    partial = output.with_name(f".partial.{output.name}")
    with refusing_traces():
        try:
            count = write(partial, records)
            partial.replace(output)
        finally:
            partial.unlink(missing_ok=True)
    click.echo(f"{output}: {count} records", err=True)


def _setting(text: str) -> tuple[str, object]:
    """Return the name and the value of a workload's parameter, read as YAML reads it."""
    name, sign, value = text.partition("=")
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError:
        read = None
    if not name or not sign or not isinstance(read, int | float | str | bool):
        raise ValueError(f"{text!r} is no parameter; write initNodes=5000")
    return name, read


def _amounts(text: str) -> Mapping[str, str]:
    """Return what a node has, quantities by resource."""
    result = {}
    for each in filter(None, text.split(",")):
        resource, _, amount = each.strip().partition("=")
        if _value(amount) is None:
            raise ValueError(f"{each!r} is no amount; write cpu=96,memory=768Gi")
        if not _RESOURCE.fullmatch(resource):
            raise ValueError(f"{resource!r} is no resource's name")
        result[resource] = amount
    return result


def _bytes(text: str) -> int:
    number = _value(text)
    if not number:
        raise ValueError(f"{text!r} is no size; write 256Gi")
    return number


def _value(text: str) -> int | None:
    """Return a quantity's value; None where the text is none, or is below 0."""
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
        "openb_priorities",
        type=QOS_PRIORITY,
        multiple=True,
        callback=lambda _ctx, _param, given: {**OPENB_PRIORITIES, **dict(given)},
        help="OpenB: the priority of a qos, such as LS=1000; once for each. [default: Guaranteed "
        "and LS 1000, Burstable 100, BE 0]",
    ),
    click.option(
        "--now",
        "now_ns",
        type=TIME,
        help="Manifests: when they begin. [default: the latest time of something that has happened "
        "to one of the objects; a manifest that was never in a cluster begins at 0]",
    ),
    click.option(
        "--openb-jobs",
        is_flag=True,
        help="OpenB: make each pod a Job's, which makes it again where it is preempted.",
    ),
    click.option(
        "--workload",
        default="",
        metavar="TESTCASE/WORKLOAD",
        help="scheduler_perf: which workload of the performance-config file. TESTCASE alone, where "
        "--param gives all that it asks for.",
    ),
    click.option(
        "--param",
        "params",
        type=Parsed("NAME=VALUE", _setting),
        multiple=True,
        callback=lambda _ctx, _param, given: dict(given),
        help="scheduler_perf: a parameter of the workload, such as initNodes=5000; once for each.",
    ),
    click.option(
        "--wait",
        "wait_ns",
        type=DURATION,
        default="10s",
        show_default=True,
        help="scheduler_perf: simulated time that waiting for pods to be scheduled takes.",
    ),
    click.option(
        "--made-nodes",
        default=0,
        type=click.IntRange(0, 1_000_000),
        help="Nodes to make for a trace that has none.",
    ),
    click.option(
        "--nodes-from",
        type=click.Path(exists=True, path_type=Path),
        help="Take the nodes of another trace, such as `kubectl get nodes -o yaml`.",
    ),
    click.option(
        "--node-size",
        "node_amounts",
        type=Parsed("RESOURCE=QUANTITY,...", _amounts),
        default="",
        help="What each made node has, such as cpu=96,memory=768Gi,pods=110. What is not named has "
        "the format's default.",
    ),
    click.option(
        "--unit-cpu",
        "unit_cpu_milli",
        type=click.IntRange(1, 100_000),
        default=64,
        callback=lambda _ctx, _param, cores: 1000 * cores,
        show_default=True,
        help="Google's and Alibaba's traces in shares of a machine: cores that 1.0 stands for.",
    ),
    click.option(
        "--unit-memory",
        "unit_memory_bytes",
        type=Parsed("QUANTITY", _bytes),
        default="256Gi",
        show_default=True,
        help="The same: memory that 1.0 stands for.",
    ),
    click.option(
        "--allocatable",
        "allocatable_percent",
        type=click.IntRange(1, 10_000),
        default=100,
        show_default=True,
        metavar="PERCENT",
        help="The same: what may be requested of a node, in percent of its capacity. Borg admits "
        "more than 100.",
    ),
    click.option(
        "--machine",
        default="",
        metavar="ID",
        help="Azure packing: the machineId to replay for.",
    ),
)
