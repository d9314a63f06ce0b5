"""Options of a run: overrides of its trace and configuration, and checks of its figures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import click

from replay.cli.errors import FAILED, ExitError, refusing
from replay.cli.parameters import Parsed
from replay.overrides.assignment import OverrideError
from replay.overrides.overrides import Overrides
from replay.whatif.facts import RunFacts
from replay.whatif.figures import Assertion, failures, parse_assertion


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


def assert_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --assert; the command receives one argument, `assertions`."""
    option = click.option(
        "--assert",
        "assertions",
        type=Parsed("CHECK", parse_assertion),
        multiple=True,
        help="End with exit code 1 unless a figure is as it should be: "
        "'preempted{priority<1000} == 0', 'waited_p99{class=web} <= 30' (seconds). Can be given "
        "again; docs/what-if.md has the figures.",
    )
    return option(command)


def check_all(
    assertions: Iterable[Assertion], run: RunFacts, other: RunFacts | None = None
) -> None:
    """Raise ExitError with a sentence for each check that failed; raises FigureError."""
    failed = failures(assertions, run, other)
    if failed:
        raise ExitError(FAILED, "\n".join(each.sentence for each in failed))
