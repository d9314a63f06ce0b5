"""The figures of a run that checks, comparisons and sweeps are about: one table of them.

A figure counts or measures the pods that a filter lets through. A check is written FIGURE{LABEL OP
VALUE, ...} OP NUMBER: `preempted{priority<1000} == 0`, `waited_p99{class=web} <= 30`,
`allocated{resource=cpu} > 60`. Times are seconds, shares percent. Of two runs B is checked;
`preempted.change` is what B has more than A.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne

from replay.whatif.facts import PodFacts, RunFacts

_S = 1e9
ALLOCATED = "allocated"
_EXACT = frozenset({"signal", "resource"})
"""Labels that choose what a figure is of, and not its pods."""
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "==": eq,
    "!=": ne,
    "<=": le,
    ">=": ge,
    "<": lt,
    ">": gt,
}
CHANGE = "change"
_CHECK = re.compile(
    r"\s*(?P<figure>[a-z_0-9]+)\s*(?:\{(?P<labels>[^{}]*)\})?(?:\.(?P<change>change))?\s*"
    r"(?P<operator>==|!=|<=|>=|<|>)\s*(?P<number>-?\d+(?:\.\d+)?)\s*"
)
_LABEL = re.compile(
    r"\s*(?P<label>[a-z]+)\s*(?P<operator>==|!=|<=|>=|=|<|>)\s*(?P<value>[^,]*?)\s*"
)


Measure = Callable[[RunFacts, Sequence[PodFacts], str], float]
"""How a figure follows from a run, the chosen pods, and a signal or a resource."""


class FigureError(ValueError):
    """A figure, a label or a check that is none; the text says what there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition on a label: its name, an operator and a value as text."""

    label: str
    operator: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure: what it means, its unit, and how it follows from a run and the chosen pods."""

    meaning: str
    unit: str
    of: Measure
    labels: tuple[str, ...] = ("priority", "class", "namespace", "name", "node")


def _count(
    value: Callable[[PodFacts], int],
) -> Measure:
    return lambda _run, pods, _label: float(sum(value(pod) for pod in pods))


def _quantile(share: float) -> Measure:
    def of(_run: RunFacts, pods: Sequence[PodFacts], _label: str) -> float:
        waits = sorted(wait for pod in pods for wait in pod.waited_ns)
        if not waits:
            return 0.0
        return waits[min(len(waits) - 1, int(share * len(waits)))] / _S

    return of


def _waited_mean(_run: RunFacts, pods: Sequence[PodFacts], _label: str) -> float:
    return _mean([wait for pod in pods for wait in pod.waited_ns] or [0]) / _S


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _still_waiting(
    summed: Callable[[Sequence[float]], float],
) -> Measure:
    """Return a figure of how long each pod without a node has waited by the end, s."""

    def of(run: RunFacts, pods: Sequence[PodFacts], _label: str) -> float:
        waits = [run.still_waiting_ns(pod) / _S for pod in pods if pod.pending]
        return summed(waits) if waits else 0.0

    return of


def _evicted(_run: RunFacts, pods: Sequence[PodFacts], signal: str) -> float:
    return float(sum(p.evicted[signal] if signal else p.evicted.total() for p in pods))


def _allocated(run: RunFacts, _pods: Sequence[PodFacts], resource: str) -> float:
    whole = run.allocatable[resource]
    return 100.0 * run.allocated[resource] / whole if whole else 0.0


FIGURES: Mapping[str, Figure] = {
    "pods": Figure(meaning="pods that came", unit="pods", of=_count(lambda _: 1)),
    "bound": Figure(
        meaning="pods that got a node", unit="pods", of=_count(lambda pod: bool(pod.waited_ns))
    ),
    "bindings": Figure(
        meaning="bindings, of a pod again each time", unit="", of=_count(lambda p: len(p.waited_ns))
    ),
    "pending": Figure(
        meaning="pods without a node at the end", unit="pods", of=_count(lambda pod: pod.pending)
    ),
    "preempted": Figure(
        meaning="preemptions, by their victims", unit="", of=_count(lambda pod: pod.preempted)
    ),
    "against_budget": Figure(
        meaning="preemptions that violated a disruption budget",
        unit="",
        of=_count(lambda pod: pod.against_budget),
    ),
    "evicted": Figure(
        meaning="evictions by kubelets",
        unit="",
        of=_evicted,
        labels=("priority", "class", "namespace", "name", "node", "signal"),
    ),
    "failed_attempts": Figure(
        meaning="scheduling attempts that bound nothing",
        unit="",
        of=_count(lambda pod: pod.failed_attempts),
    ),
    "succeeded": Figure(
        meaning="pods that ended well", unit="pods", of=_count(lambda pod: pod.ended["Succeeded"])
    ),
    "failed": Figure(
        meaning="pods that ended in failure",
        unit="pods",
        of=_count(lambda pod: pod.ended["Failed"]),
    ),
    "waited_mean": Figure(
        meaning="time in the queue until the binding, on average", unit="s", of=_waited_mean
    ),
    "waited_p50": Figure(meaning="the same, median", unit="s", of=_quantile(0.5)),
    "waited_p90": Figure(meaning="the same, 90th percentile", unit="s", of=_quantile(0.9)),
    "waited_p99": Figure(meaning="the same, 99th percentile", unit="s", of=_quantile(0.99)),
    "waited_max": Figure(meaning="the same, longest", unit="s", of=_quantile(1.0)),
    "still_waiting_mean": Figure(
        meaning="time that pods without a node have waited by the end, on average",
        unit="s",
        of=_still_waiting(_mean),
    ),
    "still_waiting_max": Figure(meaning="the same, longest", unit="s", of=_still_waiting(max)),
    ALLOCATED: Figure(
        meaning="requests of the pods on nodes at the end, of what these have",
        unit="%",
        of=_allocated,
        labels=("resource",),
    ),
}


def figure_value(run: RunFacts, name: str, conditions: Sequence[Condition] = ()) -> float:
    """Return a figure, one of FIGURES, of the pods that meet all conditions.

    Raises FigureError for a condition that its label does not take.
    """
    chosen = ([_exact(each) for each in conditions if each.label in _EXACT] or [""])[-1]
    filters = [each for each in conditions if each.label not in _EXACT]
    if name == ALLOCATED:
        _check_resource(run, chosen)
    pods = [pod for pod in run.pods.values() if all(_meets(pod, each) for each in filters)]
    return FIGURES[name].of(run, pods, chosen)


def all_figures(run: RunFacts) -> dict[str, float]:
    """Return every figure of all pods; `allocated` once for each resource that nodes have."""
    found = {name: figure_value(run, name) for name in FIGURES if name != ALLOCATED}
    for resource in sorted(run.allocatable):
        if run.allocatable[resource]:
            label = Condition(label="resource", operator="==", value=resource)
            found[f"{ALLOCATED}{{resource={resource}}}"] = figure_value(run, ALLOCATED, [label])
    return found


def _exact(condition: Condition) -> str:
    if condition.operator != "==":
        raise FigureError(f"{condition.label} takes = alone")
    return condition.value


def _check_resource(run: RunFacts, resource: str) -> None:
    if not run.allocatable[resource]:
        known = ", ".join(sorted(name for name, n in run.allocatable.items() if n))
        raise FigureError(f"{ALLOCATED} wants a resource that nodes have: {known}")


def _meets(pod: PodFacts, condition: Condition) -> bool:
    if condition.label == "priority":
        try:
            wanted = int(condition.value)
        except ValueError:
            raise FigureError(f"priority {condition.value!r} is no whole number") from None
        return OPERATORS[condition.operator](pod.priority, wanted)
    actual = {
        "class": pod.priority_class,
        "namespace": pod.namespace,
        "name": pod.name,
        "node": pod.node,
    }[condition.label]
    match condition.operator:
        case "==":
            return actual == condition.value
        case "!=":
            return actual != condition.value
    raise FigureError(f"{condition.label} takes = and != alone")


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
