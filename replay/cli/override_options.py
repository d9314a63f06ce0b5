"""Options that change a trace and its configuration without editing files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from replay.cli.errors import refusing
from replay.overrides.assignment import OverrideError
from replay.overrides.overrides import Overrides


def override_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command receives one argument, `overrides`."""

    def with_overrides(**given: Any) -> Any:
        with refusing(OverrideError):
            overrides = Overrides.parse(*(given.pop(name) for name in _NAMES))
        return command(overrides=overrides, **given)

    functools.update_wrapper(with_overrides, command)
    for option in reversed(_OPTIONS):
        with_overrides = option(with_overrides)
    return with_overrides


_NAMES = ("sets", "drop_nodes", "scale_nodes", "arrivals", "usage")
_OPTIONS: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
    click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change one thing: priorityClass.batch.value=50, pdb.prod/web.minAvailable=2, "
        "evictionHard.memory.available=500Mi, podMaxBackoffSeconds=60, "
        "plugin.NodeResourcesFit.weight=5. Can be given again.",
    ),
    click.option(
        "--drop-nodes",
        default="",
        metavar="SELECTOR",
        help="Take off the nodes that a label selector matches: zone=a, gpu in (a, b), !spot.",
    ),
    click.option(
        "--scale-nodes",
        default="",
        metavar="FACTOR|+N|-N|=N",
        help="Have 0.8 or 1.5 times as many nodes, or 10 more, or exactly 5 (=5). Which ones go or "
        "are cloned follows from their names.",
    ),
    click.option(
        "--arrivals",
        default="",
        metavar="RESOURCE=RATIO",
        help="Let all pods come at the beginning and stay, in an order of the seed, as many of "
        "them (again, or fewer) as ask for RATIO times what the nodes have of a resource.",
    ),
    click.option(
        "--usage",
        multiple=True,
        metavar="'SELECTOR RESOURCE VALUE'",
        help="What the pods with these labels (or one, as NAMESPACE/NAME) use of memory or "
        "ephemeral-storage: 200Mi, +50Mi/m on what is known of them, or 200Mi+50Mi/m. Can be given "
        "again.",
    ),
)
