"""Knobs: what a search varies, an option of replay or an override, with its values in order.

`KNOB=RANGE`: `deployment.shop/web.replicas=1..50`, `scale-nodes=pool=gpu:-0..-3`,
`nodeGroup.web.max=2..20/2`, `evictionHard.memory.available=100Mi..1000Mi/100Mi`,
`plugin.NodeResourcesFit.weight=1,2,5`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal

from replay.whatif.sweep import SweepAxis

_NODES = "scale-nodes"
SET = "set:"
"""Prefix of the axis of an override of --set."""
_VALUES_MAX = 100_000
_FREE_STEPS = 100
"""The steps of a range of fractions that names no step."""
_NUMBER = r"\d+(?:\.\d+)?"
_RANGE = re.compile(
    rf"(?P<head>.*:)?(?P<sign>[-+=]?)(?P<first>{_NUMBER})(?P<unit>[A-Za-z]*|%)"
    rf"\.\.(?P<last_sign>[-+=]?)(?P<last>{_NUMBER})(?P<last_unit>[A-Za-z]*|%)"
    rf"(?:/(?P<step>{_NUMBER})(?P<step_unit>[A-Za-z]*|%))?"
)


class KnobError(ValueError):
    """A knob that is not valid; the text is for users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """What is varied, as a replay's command line names it, and its values in order.

    axis: an option's long name, or SET and the key of an override. label: its name in answers.
    values: the texts of the command line. shown: the same for people, such as "3" for
    "pool=gpu:-3". is_ordered: whether the values are numbers, ascending in size.
    """

    axis: str
    label: str
    values: Sequence[str]
    shown: Sequence[str]
    is_ordered: bool = True

    def arguments(self, position: int) -> tuple[str, ...]:
        """Return the arguments of a replay for the value at a position."""
        return self.at(position).arguments(self.values[position])

    def at(self, *positions: int) -> SweepAxis:
        """Return the axis with the values at some positions."""
        return SweepAxis(name=self.axis, values=tuple(self.values[place] for place in positions))


def parse_knob(text: str, options: Collection[str]) -> Knob:
    """Return a knob; `options` are the long names of replay's options. Raises KnobError."""
    name, equals, values = text.partition("=")
    if name not in options:
        # An override's key may have "=" in no part of it, an option's value may.
        name, equals, values = text.rpartition("=")
        name = name.removeprefix(SET)
    if not equals or not name or not values:
        raise KnobError(f"--vary {text}: write deployment.web.replicas=1..50 or seed=1,2,3")
    axis = name if name in options else SET + name
    match = _RANGE.fullmatch(values)
    if match is None:
        return _listed(text, axis, name, values)
    head = match["head"] or ""
    amounts, sign = _amounts(text, match)
    selector = head.removesuffix(":")
    label = name if not selector else f"{name}={selector}"
    label = f"nodes of {selector}" if name == _NODES and selector else label
    return Knob(
        axis=axis,
        label=label,
        values=[f"{head}{sign}{amount}" for amount in amounts],
        shown=[f"{sign if sign != '=' else ''}{amount}" for amount in amounts],
    )


def _listed(text: str, axis: str, name: str, values: str) -> Knob:
    texts = values.split(",")
    if "" in texts:
        raise KnobError(f"--vary {text}: a value is empty")
    if len(set(texts)) != len(texts):
        raise KnobError(f"--vary {text}: a value is given twice")
    if len(texts) == 1:
        raise KnobError(f"--vary {text}: a single value is no range; write 1..50, or 1,2,5")
    return Knob(axis=axis, label=name, values=texts, shown=texts, is_ordered=False)


def _amounts(text: str, match: re.Match[str]) -> tuple[list[str], str]:
    """Return the numbers of a range with their units, and the sign before each."""
    first, last = Decimal(match["first"]), Decimal(match["last"])
    sign, last_sign = match["sign"], match["last_sign"]
    if sign == last_sign and (sign in {"+", "="} or (sign == "-" and first < last)):
        pass  # -0..-3: the sign is part of each value, which grows in size.
    else:
        if {sign, last_sign} & {"+", "="}:
            raise KnobError(f"--vary {text}: both ends need the same sign, as in =1..=9")
        first, last, sign = _signed(sign, first), _signed(last_sign, last), ""
    unit = match["unit"] or match["last_unit"]
    if unit != match["last_unit"] or (match["step"] and match["step_unit"] not in {"", unit}):
        raise KnobError(f"--vary {text}: write both ends, and the step, in one unit: 1Gi..8Gi/1Gi")
    if first >= last:
        raise KnobError(f"--vary {text}: write the smaller number first")
    is_whole = first == first.to_integral_value() and last == last.to_integral_value()
    default = Decimal(1) if is_whole else (last - first) / _FREE_STEPS
    step = default if match["step"] is None else Decimal(match["step"])
    if step <= 0:
        raise KnobError(f"--vary {text}: the step must be above 0")
    count = int((last - first) / step) + 1
    if count > _VALUES_MAX:
        raise KnobError(
            f"--vary {text}: {count:,} values; at most {_VALUES_MAX:,}: add a step, /10"
        )
    numbers = [first + step * place for place in range(count)]
    if numbers[-1] != last:
        numbers.append(last)
    return [f"{_plain(number)}{unit}" for number in numbers], sign


def _signed(sign: str, number: Decimal) -> Decimal:
    return -number if sign == "-" else number


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
