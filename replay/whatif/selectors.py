"""The conditions of a check must choose something: a misspelt name would make every check hold.

A condition on a node chooses something where the node exists, since no pod need ever be bound to
it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence

from replay.whatif.assertions import (
    EXACT_LABELS,
    Assertion,
    FigureError,
    LabelCondition,
    label_value,
    matches,
    meets,
)
from replay.whatif.facts import Described, RunFacts

_SHOWN = 8
_NAMED = {
    "namespace": ("no pod is in namespace {value}", "namespaces"),
    "class": ("no pod has the priority class {value}", "classes"),
    "name": ("no pod is named {value}", "pods"),
    "node": ("there is no node {value}", "nodes"),
    "workload": ("no workload is named {value}", "workloads"),
    "kind": ("no workload is of kind {value}", "kinds"),
    "priority": ("no pod has priority{operator}{value}", "priorities"),
}
"""By label, what is wrong with a condition that nothing meets, and what its values are."""


def refuse_unmatched(
    assertion: Assertion, runs: Iterable[RunFacts], labels: Sequence[str] = tuple(_NAMED)
) -> None:
    """Raise FigureError if no pod and no workload of `runs` meets the conditions on `labels`.

    `runs` are read more than once where they have to be.
    """
    conditions = [
        condition
        for condition in assertion.conditions
        if condition.label not in EXACT_LABELS and condition.label in labels
    ]
    runs = list(runs)
    if not conditions or any(_chooses(run, conditions) for run in runs):
        return
    for condition in conditions:
        if not any(_chooses(run, [condition]) for run in runs):
            raise FigureError(f"{assertion.text}: {_problem(condition, runs)}; {ALLOW}")
    text = ", ".join(
        f"{condition.label}{condition.operator}{condition.value}" for condition in conditions
    )
    raise FigureError(f"{assertion.text}: no pod meets {text} together; {ALLOW}")


ALLOW = "--allow-no-effect checks it all the same"


class MatchedChecks:
    """Finds the checks that select something in at least one of several runs, as of a grid."""

    def __init__(self) -> None:
        self._problems: dict[str, FigureError | None] = {}

    def look(self, assertions: Iterable[Assertion], runs: Sequence[RunFacts]) -> None:
        """Evaluate the selectors of the checks on further runs."""
        for assertion in assertions:
            if self._problems.get(assertion.text, _NOT_LOOKED_AT) is None:
                continue
            try:
                refuse_unmatched(assertion, runs)
            except FigureError as error:
                self._problems[assertion.text] = error
            else:
                self._problems[assertion.text] = None

    def refuse(self) -> None:
        """Raise FigureError for the first check that chose nothing in any of the runs."""
        for problem in self._problems.values():
            if problem is not None:
                raise problem


_NOT_LOOKED_AT = FigureError("no run was looked at")


def _chooses(run: RunFacts, conditions: Sequence[LabelCondition]) -> bool:
    nodes = [condition for condition in conditions if condition.label == "node"]
    others = [condition for condition in conditions if condition.label != "node"]
    if not all(_is_node(run, node) for node in nodes):
        return False
    return not others or any(all(meets(one, other) for other in others) for one in run.described())


def _is_node(run: RunFacts, condition: LabelCondition) -> bool:
    return condition.operator != "==" or any(matches(node, condition.value) for node in run.nodes)


def _problem(condition: LabelCondition, runs: Sequence[RunFacts]) -> str:
    """Return what is wrong with a condition, with the values that there are."""
    problem, plural = _NAMED[condition.label]
    text = problem.format(value=condition.value, operator=condition.operator)
    if condition.operator == "!=":
        text = f"nothing has {condition.label}!={condition.value}"
    values = sorted({str(value) for value in _values(condition.label, runs)}, key=_by_size)
    if not values:
        return f"{text}; there are no {plural}"
    close = difflib.get_close_matches(condition.value, values, n=1)
    hint = f"; did you mean {close[0]}?" if close and condition.operator == "==" else ""
    more = f" and {len(values) - _SHOWN:,} more" if len(values) > _SHOWN else ""
    return f"{text}{hint}; {plural}: {', '.join(values[:_SHOWN])}{more}"


def _values(label: str, runs: Iterable[RunFacts]) -> Iterator[object]:
    for run in runs:
        if label == "node":
            yield from run.nodes
        else:
            described: Iterator[Described] = run.described()
            yield from filter(lambda value: value != "", (label_value(o, label) for o in described))


def _by_size(text: str) -> tuple[int, int, str]:
    """Order numbers by their size, and names alphabetically."""
    number = text.removeprefix("-")
    is_number = number.isascii() and number.isdigit()
    return (not is_number, int(text) if is_number else 0, text)
