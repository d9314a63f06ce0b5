"""Checks of a run's figures: FIGURE{LABEL OP VALUE, ...} OP NUMBER.

`preempted{priority<1000} == 0`, `waited_p99{class=web} <= 30`, `allocated{resource=cpu} > 60`.
Times are seconds, shares percent. Of two runs B is checked; `preempted.change` is what B has more
than A.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from replay.whatif.facts import RunFacts
from replay.whatif.figures import FIGURES, OPERATORS, Condition, FigureError, figure_value

CHANGE = "change"
_CHECK = re.compile(
    r"\s*(?P<figure>[a-z_0-9]+)\s*(?:\{(?P<labels>[^{}]*)\})?(?:\.(?P<change>change))?\s*"
    r"(?P<operator>==|!=|<=|>=|<|>)\s*(?P<number>-?\d+(?:\.\d+)?)\s*"
)
_LABEL = re.compile(
    r"\s*(?P<label>[a-z]+)\s*(?P<operator>==|!=|<=|>=|=|<|>)\s*(?P<value>[^,]*?)\s*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """One check, as given and taken apart; `is_change` tells that B less A is meant."""

    text: str
    figure: str
    conditions: tuple[Condition, ...]
    operator: str
    number: float
    is_change: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a check came to."""

    assertion: Assertion
    value: float
    holds: bool

    @property
    def sentence(self) -> str:
        """Return what was found, for people."""
        unit = FIGURES[self.assertion.figure].unit
        found = f"{self.value:,.6g}{' ' + unit if unit else ''}"
        return f"{'holds' if self.holds else 'failed'}: {self.assertion.text} (it is {found})"


def parse_assertion(text: str) -> Assertion:
    """Return a check. Raises FigureError for what is none."""
    match = _CHECK.fullmatch(text)
    if match is None:
        raise FigureError(f"{text!r} is no check; write preempted{{priority<1000}} == 0")
    assertion = Assertion(
        text=text.strip(),
        figure=match["figure"],
        conditions=tuple(_conditions(text, match["labels"] or "")),
        operator=match["operator"],
        number=float(match["number"]),
        is_change=bool(match["change"]),
    )
    _probe(assertion)
    return assertion


def check(assertion: Assertion, run: RunFacts, other: RunFacts | None = None) -> Verdict:
    """Check a run; `other` is A where two are compared. Raises FigureError."""
    value = figure_value(run, assertion.figure, assertion.conditions)
    if assertion.is_change:
        if other is None:
            raise FigureError(f"{assertion.text}: a change is one between two runs")
        value -= figure_value(other, assertion.figure, assertion.conditions)
    holds = OPERATORS[assertion.operator](value, assertion.number)
    return Verdict(assertion=assertion, value=value, holds=holds)


def failures(
    assertions: Iterable[Assertion], run: RunFacts, other: RunFacts | None = None
) -> list[Verdict]:
    """Return the checks that failed, in their order."""
    return [v for v in (check(each, run, other) for each in assertions) if not v.holds]


def _conditions(text: str, labels: str) -> Iterable[Condition]:
    for part in labels.split(",") if labels.strip() else ():
        match = _LABEL.fullmatch(part)
        if match is None:
            raise FigureError(f"{text!r}: {part.strip()!r} is no condition; write priority<1000")
        operator = "==" if match["operator"] == "=" else match["operator"]
        yield Condition(label=match["label"], operator=operator, value=match["value"].strip('"'))


def _probe(assertion: Assertion) -> None:
    """Refuse unknown figures and labels before a run is made."""
    figure = FIGURES.get(assertion.figure)
    if figure is None:
        raise FigureError(
            f"{assertion.text}: {assertion.figure!r} is no figure; there are {', '.join(FIGURES)}"
        )
    for condition in assertion.conditions:
        if condition.label not in figure.labels:
            raise FigureError(
                f"{assertion.text}: {assertion.figure} has no label {condition.label!r}; "
                f"it has {', '.join(figure.labels)}"
            )
