"""The what-if options, of the commands that replay a trace."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from replay.cli.errors import refusing
from replay.overrides.assignment import OverrideError
from replay.overrides.nodes import ORDERS
from replay.overrides.overrides import Overrides


def override_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command receives one argument, `overrides`."""

    def with_overrides(**given: Any) -> Any:
        with refusing(OverrideError):
            overrides = Overrides.parse(**{name: given.pop(name) for name in OVERRIDES})
        return command(overrides=overrides, **given)

    functools.update_wrapper(with_overrides, command)
    for option in reversed(_OPTIONS):
        with_overrides = option(with_overrides)
    return with_overrides


OVERRIDES = (
    "sets",
    "drop_nodes",
    "scale_nodes",
    "scale_order",
    "drain",
    "fail",
    "apply",
    "arrivals",
    "usage",
    "allows_no_effect",
)
"""The parameters of the what-if options, as Overrides.parse receives them."""
_OPTIONS: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
    click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override one value: deployment.prod/web.replicas=30, "
        "deployment.prod/web.priorityClassName=high, priorityClass.batch.value=50, "
        "pdb.prod/web.minAvailable=2 (a new budget of the workload prod/web, if there is none), "
        "evictionHard.memory.available=500Mi, podMaxBackoffSeconds=60, "
        "plugin.NodeResourcesFit.weight=5. Repeatable.",
    ),
    click.option(
        "--drop-nodes",
        default="",
        metavar="NODE|SELECTOR",
        help="Remove nodes from the beginning: one or more by name, or those that a label selector "
        "matches: zone=a, gpu in (a, b), !spot.",
    ),
    click.option(
        "--scale-nodes",
        multiple=True,
        metavar="[SELECTOR:]FACTOR|+N|-N|=N",
        help="Change the number of nodes: times 0.8 or 1.5, 10 more (+10), or exactly 5 (=5); of a "
        "pool as pool=gpu:-1. Repeatable.",
    ),
    click.option(
        "--scale-order",
        type=click.Choice(ORDERS),
        default=ORDERS[0],
        show_default=True,
        help="Which nodes --scale-nodes removes first: by a hash of their names, the least used "
        "ones, by name, or the youngest ones.",
    ),
    click.option(
        "--drain",
        multiple=True,
        metavar="NODE|SELECTOR[,OPTION...]",
        help="Drain nodes as kubectl drain does, one after the other. Options: at=10m, parallel=2, "
        "order=name|least-used|youngest, force=false, delete-emptydir-data=false; with "
        "uncordon-after=5m each node returns before the next is drained, as in an upgrade. "
        "Repeatable.",
    ),
    click.option(
        "--fail",
        multiple=True,
        metavar="NODE|SELECTOR[,at=TIME][,for=TIME]",
        help="Let nodes stop reporting at a time (default: the beginning), for ever or for some "
        "time: zone=a,at=10m,for=30m. Repeatable.",
    ),
    click.option(
        "--apply",
        multiple=True,
        metavar="PATH[,at=TIME]",
        help="Apply manifests, a file or a folder, to the objects of the trace, as kubectl apply "
        "does: release/,at=10m. Default: at the beginning. Repeatable.",
    ),
    click.option(
        "--arrivals",
        default="",
        metavar="RESOURCE=RATIO",
        help="Create all pods at the beginning, in an order that follows from the seed, and never "
        "end them: as many (repeated, or fewer) as request RATIO times the nodes' allocatable of "
        "a resource.",
    ),
    click.option(
        "--usage",
        multiple=True,
        metavar="'SELECTOR RESOURCE VALUE'",
        help="Usage of the pods with these labels (or of one, as NAMESPACE/NAME), of memory or "
        "ephemeral-storage: 200Mi, +50Mi/m on top of their recorded usage, or 200Mi+50Mi/m. "
        "Repeatable.",
    ),
    click.option(
        "--allow-no-effect",
        "allows_no_effect",
        is_flag=True,
        help="Allow overrides that change nothing in this trace, and checks whose conditions no "
        "pod and no workload meets; by default they are refused.",
    ),
)
