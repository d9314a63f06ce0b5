"""`--assert`: checks of a run's figures, with an exit code for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from replay.cli.errors import FAILED, ExitError
from replay.cli.parameters import Parsed
from replay.whatif.facts import RunFacts
from replay.whatif.figures import Assertion, failures, parse_assertion


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
