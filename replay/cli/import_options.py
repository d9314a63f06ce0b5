"""Options of single formats, and what they become for an importer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from replay.cli.parameters import DURATION, TIME
from services.kube import quantity

_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9./-]*[a-z0-9])?")


class Setting(click.ParamType[tuple[str, object]]):
    """A workload's parameter, such as "initNodes=5000"; its value is (name, value)."""

    name = "NAME=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, object]:
        """Return the name and its value, read as YAML reads it."""
        if isinstance(value, tuple):
            return value
        name, sign, text = value.partition("=")
        try:
            read = yaml.safe_load(text)
        except yaml.YAMLError:
            read = None
        if not name or not sign or not isinstance(read, int | float | str | bool):
            self.fail(f"{value!r} is no parameter; write initNodes=5000", param, ctx)
        return name, read


class Amounts(click.ParamType[Mapping[str, str]]):
    """What a node has, such as "cpu=96,memory=768Gi"; its value is quantities by resource."""

    name = "RESOURCE=QUANTITY,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Mapping[str, str]:
        """Return the quantities."""
        if isinstance(value, Mapping):
            return value
        result = {}
        for each in filter(None, value.split(",")):
            resource, _, amount = each.strip().partition("=")
            if _value(amount) is None:
                self.fail(f"{each!r} is no amount; write cpu=96,memory=768Gi", param, ctx)
            if not _RESOURCE.fullmatch(resource):
                self.fail(f"{resource!r} is no resource's name", param, ctx)
            result[resource] = amount
        return result


class Bytes(click.ParamType[int]):
    """A quantity of bytes, such as "256Gi"; its value is bytes."""

    name = "QUANTITY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return bytes."""
        if isinstance(value, int):
            return value
        number = _value(value)
        if not number:
            self.fail(f"{value!r} is no size; write 256Gi", param, ctx)
        return number


def _value(text: str) -> int | None:
    """Return a quantity's value; None where the text is none, or is below 0."""
    try:
        number = quantity.value(text)
    except quantity.QuantityError:
        return None
    return number if number >= 0 else None


IMPORT_OPTIONS: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
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
        type=Setting(),
        multiple=True,
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
        type=Amounts(),
        default="",
        help="What each made node has, such as cpu=96,memory=768Gi,pods=110. What is not named has "
        "the format's default.",
    ),
    click.option(
        "--unit-cpu",
        "unit_cpu",
        type=click.IntRange(1, 100_000),
        default=64,
        show_default=True,
        help="Google's and Alibaba's traces in shares of a machine: cores that 1.0 stands for.",
    ),
    click.option(
        "--unit-memory",
        "unit_memory_bytes",
        type=Bytes(),
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


def import_values(given: dict[str, Any]) -> dict[str, Any]:
    """Take the options above out of a command's arguments; return ImportOptions' fields."""
    values = {name: given.pop(name) for name in _NAMES}
    values["params"] = dict(values["params"])
    values["unit_cpu_milli"] = 1000 * values.pop("unit_cpu")
    return values


_NAMES = (
    "now_ns",
    "openb_jobs",
    "workload",
    "params",
    "wait_ns",
    "made_nodes",
    "nodes_from",
    "node_amounts",
    "unit_cpu",
    "unit_memory_bytes",
    "allocatable_percent",
    "machine",
)
