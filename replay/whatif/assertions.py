"""Checks of a run's figures: FIGURE{LABEL OP VALUE, ...} OP NUMBER.

`preempted{priority<1000} == 0`, `waited_p99{class=web} <= 30`, `allocated{resource=cpu} > 60`. In a
text "*" stands for any text, and "#" for a number: `pending{name=web-*} == 0`. Times are seconds,
shares percent. Where two runs are compared, B is checked; `preempted.change` is B's figure less
A's. replay.results.summary.figures has the figures. A check of a figure that has no value, such as
a wait where no pod was bound, fails: it would otherwise hold when all is lost.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne

from replay.overrides.names import closest
from replay.results.summary.figures import FIGURES, GROUP, LOCAL_STORAGE, RESOURCE, SIGNALS
from replay.whatif.facts import Described, RunFacts

EXACT_LABELS = frozenset({"signal", RESOURCE, GROUP})
"""Labels that choose a signal, a resource or a node group in place of pods."""
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "==": eq,
    "!=": ne,
    "<=": le,
    ">=": ge,
    "<": lt,
    ">": gt,
}
_CHECK = re.compile(
    r"\s*(?P<figure>[a-z_0-9]+)\s*(?:\{(?P<labels>[^{}]*)\})?(?:\.(?P<change>change))?\s*"
    r"(?P<operator>==|!=|<=|>=|<|>)\s*(?P<number>-?\d+(?:\.\d+)?)\s*"
)
_WILD: Mapping[str, str] = {"*": ".*", "#": "[0-9]+"}
"""Characters that stand for others in the value of a label; a name of Kubernetes has none."""
_LABEL = re.compile(
    r"\s*(?P<label>[a-z]+)\s*(?P<operator>==|!=|<=|>=|=|<|>)\s*(?P<value>[^,]*?)\s*"
)


class FigureError(ValueError):
    """A figure, a label or a check that is not valid; the text says which are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCondition:
    """A condition on a label: its name, one of OPERATORS, and a value as text."""

    label: str
    operator: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """A check; `text` as it was written, `is_change` where B's figure less A's is checked."""

    text: str
    figure: str
    conditions: tuple[LabelCondition, ...]
    operator: str
    number: float
    is_change: bool = False

    @property
    def measured(self) -> str:
        """Return the figure of one run that is checked, with its conditions, as text."""
        conditions = (f"{one.label}{one.operator}{one.value}" for one in self.conditions)
        return f"{self.figure}{{{', '.join(conditions)}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedAssertion:
    """A check with the figure's value; None, for the reason in `missing`, where it has none."""

    assertion: Assertion
    value: float | None
    holds: bool
    missing: str = ""

    @property
    def sentence(self) -> str:
        """Return the result for users."""
        return self.sentence_at("")

    def sentence_at(self, place: str) -> str:
        """Return the result for users, with the place of a grid where one is named."""
        result = "holds" if self.holds else "failed"
        at = f" at {place}" if place else ""
        return f"{result}{at}: {self.assertion.text} ({self.found})"

    @property
    def found(self) -> str:
        """Return "it is" and the value with its unit, or why it has no value."""
        if self.value is None:
            return f"it has no value: {self.missing}"
        unit = FIGURES[self.assertion.figure].unit
        unit = unit.removesuffix("s") if unit == "pods" and self.value == 1 else unit
        return f"it is {self.value:,.6g}{' ' + unit if unit else ''}"


def parse_assertion(text: str) -> Assertion:
    """Return a check. Raises FigureError if `text` is not a valid check."""
    match = _CHECK.fullmatch(text)
    if match is None:
        raise FigureError(f"{text!r} is not a check; write preempted{{priority<1000}} == 0")
    assertion = Assertion(
        text=text.strip(),
        figure=match["figure"],
        conditions=tuple(_conditions(text, match["labels"] or "")),
        operator=match["operator"],
        number=float(match["number"]),
        is_change=bool(match["change"]),
    )
    _validate(assertion)
    return assertion


def _conditions(text: str, labels: str) -> Iterator[LabelCondition]:
    for part in labels.split(",") if labels.strip() else ():
        match = _LABEL.fullmatch(part)
        if match is None:
            raise FigureError(f"{text!r}: {part.strip()!r} is not a condition; write priority<1000")
        operator = "==" if match["operator"] == "=" else match["operator"]
        yield LabelCondition(
            label=match["label"], operator=operator, value=match["value"].strip('"')
        )


def unknown_figure(name: str, known: Iterable[str]) -> str:
    """Return the message that a name is not that of a figure, with the one most like it."""
    known = list(known)
    return f"{name!r} is not a figure{closest(name, known)}; figures are {', '.join(known)}"


def _validate(assertion: Assertion) -> None:
    """Raise FigureError for an unknown figure or label."""
    figure = FIGURES.get(assertion.figure)
    if figure is None:
        raise FigureError(f"{assertion.text}: {unknown_figure(assertion.figure, FIGURES)}")
    for condition in assertion.conditions:
        if condition.label not in figure.labels:
            raise FigureError(
                f"{assertion.text}: {assertion.figure} has no label {condition.label!r}; "
                f"its labels are {', '.join(figure.labels)}"
            )
        _validate_condition(assertion, condition)


def _validate_condition(assertion: Assertion, condition: LabelCondition) -> None:
    """Raise FigureError for an operator or a value that the label does not take."""
    label, operator = condition.label, condition.operator
    if label == "priority":
        try:
            int(condition.value)
        except ValueError:
            problem = f"priority {condition.value!r} is not a whole number"
            raise FigureError(f"{assertion.text}: {problem}") from None
    elif label in EXACT_LABELS and operator != "==":
        raise FigureError(f"{assertion.text}: {label} takes only =")
    elif operator not in ("==", "!="):
        raise FigureError(f"{assertion.text}: {label} takes only = and !=")
    if label == "signal" and condition.value not in (*SIGNALS, LOCAL_STORAGE):
        raise FigureError(
            f"{assertion.text}: {condition.value!r} is not a signal; "
            f"signals are {', '.join(SIGNALS)}, {LOCAL_STORAGE}"
        )


def check(assertion: Assertion, run: RunFacts, other: RunFacts | None = None) -> CheckedAssertion:
    """Check a run; `other` is A where two are compared.

    Raises FigureError for a change without `other`, and for a resource that no node has.
    """
    value, before = figure_value(run, assertion.figure, assertion.conditions), None
    if assertion.is_change:
        if other is None:
            raise FigureError(f"{assertion.text}: .change needs two runs: use it with compare")
        before = figure_value(other, assertion.figure, assertion.conditions)
    return judged(assertion, value, before)


def judged(assertion: Assertion, value: float | None, before: float | None) -> CheckedAssertion:
    """Return the result of a check by the figure's values in a run and, of a change, in A."""
    missing = FIGURES[assertion.figure].missing
    if assertion.is_change:
        missing += " in the run that it is compared with" if before is None else ""
        value = None if value is None or before is None else value - before
    holds = value is not None and OPERATORS[assertion.operator](value, assertion.number)
    return CheckedAssertion(assertion=assertion, value=value, holds=holds, missing=missing)


def figure_value(
    run: RunFacts, name: str, conditions: Sequence[LabelCondition] = ()
) -> float | None:
    """Return a figure, one of FIGURES, of the pods that meet all conditions.

    None is a figure without a value. Raises FigureError for a resource that no node has, and for an
    unknown node group.
    """
    chosen = (
        [condition.value for condition in conditions if condition.label in EXACT_LABELS] or [""]
    )[-1]
    filters = [condition for condition in conditions if condition.label not in EXACT_LABELS]
    if RESOURCE in FIGURES[name].labels:
        _check_resource(run, name, chosen)
    if GROUP in FIGURES[name].labels and chosen and chosen not in run.scaling.names:
        groups = ", ".join(run.scaling.names) or "none"
        raise FigureError(f"{name}: there is no node group {chosen!r}; there are {groups}")
    population = run.population(lambda one: all(meets(one, condition) for condition in filters))
    value = FIGURES[name].of(population, chosen)
    return None if value is None else float(value)


def _check_resource(run: RunFacts, name: str, resource: str) -> None:
    if not run.resources[resource]:
        resources = ", ".join(sorted(resource for resource, n in run.resources.items() if n))
        raise FigureError(f"{name} needs a resource of the nodes: {resources}")


def label_value(one: Described, label: str) -> str | int:
    """Return the value of a label, one of POD_LABELS; "" if there is none."""
    value: str | int = getattr(one, "priority_class" if label == "class" else label)
    return value


def meets(one: Described, condition: LabelCondition) -> bool:
    """Return whether a pod or a workload meets a condition on a label of POD_LABELS."""
    actual = label_value(one, condition.label)
    if isinstance(actual, int):
        return OPERATORS[condition.operator](actual, int(condition.value))
    return matches(actual, condition.value) == (condition.operator == "==")


def matches(actual: str, value: str) -> bool:
    """Return whether a label's value is `value`, in which characters of _WILD stand for others."""
    return actual == value or _pattern(value).fullmatch(actual) is not None


@functools.cache
def _pattern(value: str) -> re.Pattern[str]:
    return re.compile("".join(_WILD.get(char) or re.escape(char) for char in value), re.DOTALL)
