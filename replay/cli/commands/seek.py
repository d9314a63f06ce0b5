"""`reprieve seek`: the values of knobs up to which checks hold, and from which they fail."""

from __future__ import annotations

from pathlib import Path

import click

from replay.cli.checks import no_effect_option
from replay.cli.errors import refusing
from replay.cli.parameters import html_option, output_option, quiet_option
from replay.cli.searching import SearchOptions, Shown, asked, conclude, conducted, runs_for
from replay.errors import RunError
from replay.options import ParsedParam, takes
from replay.search.answer import KnobSearch
from replay.search.knobs import Knob, KnobError, parse_knob
from replay.whatif.assertions import Assertion, FigureError, parse_assertion
from replay.whatif.sweep import GridError


def _knob(text: str) -> Knob:
    from replay.cli.commands.replay import command as replay_command  # noqa: PLC0415 - when needed

    names = {
        name.removeprefix("--")
        for parameter in replay_command.params
        for name in parameter.opts
        if name.startswith("--")
    }
    return parse_knob(text, names)


@click.command(name="seek")
@click.argument("replay", metavar="TRACE...|RUN [-- REPLAY OPTIONS]", nargs=-1, required=True)
@click.option(
    "--vary",
    "knobs",
    required=True,
    multiple=True,
    type=ParsedParam("KNOB=RANGE", _knob),
    help="What is varied, and its values: an override of --set (deployment.web.replicas=1..50, "
    "nodeGroup.web.max=2..20/2, plugin.NodeResourcesFit.weight=1,2,5) or an option of replay "
    "(scale-nodes=pool=gpu:-0..-3). Repeatable: several are searched together.",
)
@click.option(
    "--until",
    "assertions",
    required=True,
    multiple=True,
    type=ParsedParam("CHECK", parse_assertion),
    help="The check whose border is looked for, as of --assert: 'pending == 0', "
    "'waited_p99{class=web}.change <= 30'. Of several, all must hold.",
)
@click.option(
    "--minimise",
    "objectives",
    multiple=True,
    metavar="FIGURE",
    help="Look for the smallest figure among the values that hold, such as cost. Of several, and "
    "of several knobs, the Pareto front.",
)
@click.option("--exhaustive", is_flag=True, help="Try every value.")
@click.option(
    "--at",
    "moment",
    default="",
    metavar="DURATION|TIME",
    help="Let what is varied begin at this moment of the trace.",
)
@takes("options", SearchOptions)
@no_effect_option
@output_option("table", "json", "yaml", meaning="For people or for programs.")
@html_option
@quiet_option
@refusing(GridError, KnobError, RunError, FigureError)
def command(
    *,
    replay: tuple[str, ...],
    knobs: tuple[Knob, ...],
    assertions: tuple[Assertion, ...],
    objectives: tuple[str, ...],
    exhaustive: bool,
    moment: str,
    options: SearchOptions,
    allows_no_effect: bool,
    output: str,
    html: Path | None,
    quiet: bool,
) -> None:
    """Find the values up to which checks hold, with the two runs that show it.

    One knob: a coarse grid, then bisection between values with different outcomes, then their
    neighbours. Several: boxes whose corners differ are halved. Nothing is claimed of values that
    were not tried; --exhaustive tries all. Options after `--` are passed to each replay. With the
    same --run the search continues. RUN in place of TRACE repeats the command of a run, from its
    states.

    \b
    Examples:
      reprieve seek cluster.yaml --vary deployment.shop/web.replicas=1..50 \\
          --until 'pending == 0'
      reprieve seek cluster.yaml --vary scale-nodes=pool=gpu:-0..-3 \\
          --until 'preempted.change <= 0'
      reprieve seek cluster.yaml --vary 'pods(app=web).requests*=0.5..1.5/0.1' \\
          --until 'pending == 0'
      reprieve seek today.ktr --vary nodeGroup.web.max=1..20 \\
          --until 'waited_p99 <= 60' --minimise cost -- --autoscaler groups.yaml
      reprieve seek cluster.yaml --vary scale-nodes=pool=a:=1..=9 \\
          --vary scale-nodes=pool=b:=1..=4 --until 'pending == 0'
    """
    question = asked("seek", replay, assertions, moment=moment, allows_no_effect=allows_no_effect)
    runs = runs_for(question, knobs, options, objectives)
    search = KnobSearch(knobs, exhaustive=exhaustive, objectives=objectives)
    answer = conducted(search, runs, options, quiet=quiet)
    conclude(answer, runs, options, Shown(kind="search", output=output, html=html, quiet=quiet))
