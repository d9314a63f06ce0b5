"""`reprieve spare`: which nodes can go, in a named order, while checks hold."""

from __future__ import annotations

from pathlib import Path

import click

from replay.cli.checks import no_effect_option
from replay.cli.errors import refusing
from replay.cli.parameters import html_option, output_option, quiet_option
from replay.cli.searching import (
    SearchOptions,
    Shown,
    asked,
    conclude,
    conducted,
    inventory_of,
    runs_for,
    with_options,
)
from replay.errors import RunError
from replay.options import ParsedParam, takes
from replay.overrides.errors import OverrideError
from replay.overrides.nodes import ORDERS
from replay.search.answer import KnobSearch
from replay.search.nodes import NOBODY_WAITS, pool_of, spare_sentences
from replay.whatif.assertions import Assertion, FigureError, parse_assertion
from replay.whatif.sweep import GridError


@click.command(name="spare")
@click.argument("replay", metavar="TRACE...|RUN [-- REPLAY OPTIONS]", nargs=-1, required=True)
@click.option(
    "--pool",
    "selector",
    default="",
    metavar="SELECTOR",
    help="Let nodes of this pool go, such as pool=gpu. Default: of all nodes.",
)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default="least-used",
    show_default=True,
    help="Which nodes go first: the least used ones, by name, the youngest ones, or by a hash.",
)
@click.option(
    "--until",
    "assertions",
    multiple=True,
    type=ParsedParam("CHECK", parse_assertion),
    help="What must hold without the nodes, in place of the default: than with all nodes, no more "
    "pods are without a node at the end, the waits until bindings are no longer in total, and no "
    "more pods are preempted. Repeatable.",
)
@click.option("--exhaustive", is_flag=True, help="Try every number of nodes.")
@takes("options", SearchOptions)
@no_effect_option
@output_option("table", "json", "yaml", meaning="For people or for programs.")
@html_option
@quiet_option
@refusing(GridError, RunError, FigureError, OverrideError)
def command(
    *,
    replay: tuple[str, ...],
    selector: str,
    order: str,
    assertions: tuple[Assertion, ...],
    exhaustive: bool,
    options: SearchOptions,
    allows_no_effect: bool,
    output: str,
    html: Path | None,
    quiet: bool,
) -> None:
    """Find which nodes can go from the beginning, one after the other in an order.

    The nodes that go are removed from the trace, as by --scale-nodes pool=gpu:-2: pods on them
    are created without a node. Each number is a replay; the answer has the two at the border.

    \b
    Examples:
      reprieve spare cluster.yaml
      reprieve spare cluster.yaml --pool pool=gpu --order youngest
      reprieve spare today.ktr --until 'longest_wait <= 60' --html spare.html
    """
    checks = assertions or tuple(map(parse_assertion, NOBODY_WAITS))
    question = asked("spare", replay, checks, allows_no_effect=allows_no_effect)
    question = with_options(question, "--scale-order", order)
    inventory = inventory_of(question)
    pool = pool_of(selector, f"--pool {selector}", inventory)
    knob = pool.fewer(min(pool.count, len(inventory.nodes) - 1))
    runs = runs_for(question, [knob], options)
    search = KnobSearch([knob], exhaustive=exhaustive)
    answer = conducted(search, runs, options, quiet=quiet)
    conclude(
        answer,
        runs,
        options,
        Shown(kind="spare nodes", output=output, html=html, quiet=quiet),
        sentences=[*spare_sentences(answer, pool), *list(answer.sentences())[-1:]],
        more={
            "spare": list(
                answer.border.holds.removed if answer.border else answer.tried[-1].removed
            )
        },
    )
