"""`reprieve size`: the cheapest numbers of nodes by pool for which nothing waits too long."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
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
from replay.options import DURATION, ParsedParam, takes
from replay.overrides.errors import OverrideError
from replay.search.answer import Answer, KnobSearch
from replay.search.front import FrontSearch, Point
from replay.search.line import Outcome
from replay.search.nodes import Pool, numbers_at, pool_of, price_of, size_sentences
from replay.search.runs import Tried
from replay.whatif.assertions import Assertion, FigureError, parse_assertion
from replay.whatif.sweep import GridError
from services.kube.time import SECOND_NS

_POOL = re.compile(r"(?P<selector>.+?)(?::(?P<least>\d{1,5})\.\.(?P<most>\d{1,5}))?")
_TIMES = 2
"""The default range of a pool ends at so many times its nodes."""


def _pool(text: str) -> tuple[str, range | None]:
    match = _POOL.fullmatch(text)
    if match is None or (match["least"] and int(match["least"]) > int(match["most"])):
        raise ValueError(f"{text!r} is not a pool; write pool=gpu, or pool=gpu:1..8")
    if match["least"] is None:
        return match["selector"], None
    return match["selector"], range(int(match["least"]), int(match["most"]) + 1)


def _price(text: str) -> tuple[str, float]:
    selector, _, price = text.rpartition("=")
    try:
        amount = float(price)
    except ValueError:
        amount = -1.0
    if not selector or not 0 <= amount < float("inf"):
        raise ValueError(f"{text!r} is not a price; write pool=gpu=2.5, of a node for an hour")
    return selector, amount


class _WithNodes(KnobSearch):
    """A search that knows without a replay that checks fail where no node is left."""

    has_others = False

    def ask(self) -> list[Point]:
        """Return the points to try next, each of which leaves a node."""
        while points := super().ask():
            kept = [point for point in points if self.has_others or any(self.numbers(point))]
            for point in points:
                if point not in kept:
                    self.tell(point, Outcome(holds=False))
            if kept:
                return kept
        return []

    def answer(self, tried: Mapping[Point, Tried]) -> Answer:
        """Return the answer, whose points all leave a node."""
        answer = super().answer(tried)
        is_one_without = not self.has_others and all("0" in knob.shown for knob in self.knobs)
        return replace(answer, size=answer.size - is_one_without)

    def numbers(self, point: Point) -> list[int]:
        """Return the numbers of nodes at a point."""
        return numbers_at(self.knobs, point)


@click.command(name="size")
@click.argument("replay", metavar="TRACE...|RUN [-- REPLAY OPTIONS]", nargs=-1, required=True)
@click.option(
    "--pool",
    "pools",
    required=True,
    multiple=True,
    type=ParsedParam("SELECTOR[:MIN..MAX]", _pool),
    help="A pool of nodes and the numbers to look at: pool=gpu:1..8. Default: from none to twice "
    "as many as there are. Repeatable.",
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    type=ParsedParam("SELECTOR=PRICE", _price),
    help="What a node of a pool costs an hour: pool=gpu=2.5. Default: 1, so that the fewest nodes "
    "are the cheapest. Repeatable.",
)
@click.option(
    "--longest-wait",
    "wait_ns",
    type=DURATION,
    default="1m",
    show_default=True,
    help="No pod may wait longer for a node, and no more pods than now may be without one at the "
    "end.",
)
@click.option(
    "--until",
    "assertions",
    multiple=True,
    type=ParsedParam("CHECK", parse_assertion),
    help="What must hold, in place of --longest-wait. Repeatable.",
)
@click.option("--exhaustive", is_flag=True, help="Try all numbers.")
@takes("options", SearchOptions)
@no_effect_option
@output_option("table", "json", "yaml", meaning="For people or for programs.")
@html_option
@quiet_option
@refusing(GridError, RunError, FigureError, OverrideError)
def command(
    *,
    replay: tuple[str, ...],
    pools: tuple[tuple[str, range | None], ...],
    prices: tuple[tuple[str, float], ...],
    wait_ns: int,
    assertions: tuple[Assertion, ...],
    exhaustive: bool,
    options: SearchOptions,
    allows_no_effect: bool,
    output: str,
    html: Path | None,
    quiet: bool,
) -> None:
    """Find the cheapest numbers of nodes by pool for which nothing waits too long.

    Pools change from the beginning, as by --scale-nodes pool=gpu:=3: nodes are removed, the least
    used first, or cloned. Numbers that cannot be cheaper than what holds already are not tried. Of
    the cheapest that holds, each pool with one node fewer is tried, too.

    \b
    Examples:
      reprieve size cluster.yaml --pool pool=gpu --pool pool=general
      reprieve size today.ktr --pool pool=gpu:1..8 --pool pool=general:2..20 \\
          --price pool=gpu=2.5 --price pool=general=0.2 --longest-wait 5m
    """
    limits = (
        f"longest_wait <= {wait_ns / SECOND_NS:.9f}".rstrip("0").rstrip("."),
        "pending.change <= 0",
    )
    checks = assertions or tuple(map(parse_assertion, limits))
    question = asked("size", replay, checks, allows_no_effect=allows_no_effect)
    question = with_options(question, "--scale-order", "least-used")
    inventory = inventory_of(question)
    by_selector = _prices(prices, [selector for selector, _ in pools])
    chosen: list[Pool] = []
    knobs = []
    for selector, numbers in pools:
        pool = pool_of(selector, f"--pool {selector}", inventory, by_selector.get(selector, 1.0))
        chosen.append(pool)
        knobs.append(pool.exactly(numbers or range(_TIMES * pool.count + 1)))
    front = FrontSearch(
        [len(knob.values) for knob in knobs],
        exhaustive=exhaustive,
        tighter=[-1] * len(knobs),
        price=lambda point: price_of(chosen, numbers_at(knobs, point)),
    )
    search = _WithNodes(knobs, front=front)
    search.has_others = sum(pool.count for pool in chosen) < len(inventory.nodes)
    runs = runs_for(question, knobs, options)
    answer = conducted(search, runs, options, quiet=quiet)
    sentences = [*size_sentences(answer, chosen), *list(answer.sentences())[-1:]]
    best = None if answer.best is None else numbers_at(knobs, answer.best.point)
    size = {
        "nodes": None
        if best is None
        else dict(zip((p.selector for p in chosen), best, strict=True)),
        "price": None if best is None else price_of(chosen, best),
        "now": {pool.selector: pool.count for pool in chosen},
        "price_now": price_of(chosen, [pool.count for pool in chosen]),
    }
    shown = Shown(kind="numbers of nodes", output=output, html=html, quiet=quiet)
    conclude(answer, runs, options, shown, sentences=sentences, more={"size": size})


def _prices(prices: tuple[tuple[str, float], ...], selectors: list[str]) -> Mapping[str, float]:
    for selector, _ in prices:
        if selector not in selectors:
            known = ", ".join(selectors)
            raise click.UsageError(f"--price {selector}: no --pool is {selector}; they are {known}")
    return dict(prices)
