"""Parses label selectors in kubectl's syntax: `zone=a,tier!=gold,gpu in (a100, h100),!spot`.

Source: kubernetes v1.34 apimachinery pkg/labels/selector.go, Parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from replay.overrides.errors import OverrideError
from replay.overrides.names import shown_names
from services.config.strict import qualified_name_problem
from services.kube.selector import LabelSelector, Operator, Requirement

_REQUIREMENT = re.compile(
    r"\s*(?:"
    r"(?P<key>[^\s=!,()<>]+)\s*(?:"
    r"(?P<sign>==|!=|=|<|>)\s*(?P<value>[^\s=!,()<>]*)"
    r"|(?P<word>in|notin)\s*\((?P<values>[^()]*)\)"
    r")?"
    r"|!\s*(?P<absent>[^\s=!,()<>]+)"
    r")\s*(?:,|$)"
)
_SIGNS = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GT,
    "<": Operator.LT,
}
_WORDS = {"in": Operator.IN, "notin": Operator.NOT_IN}


def parse_selector(text: str) -> LabelSelector:
    """Return the selector of a text such as `zone=a,tier!=gold,gpu in (a100, h100),!spot`.

    "*" matches everything. Raises OverrideError for any other text.
    Source: kubernetes v1.34 apimachinery pkg/labels/selector.go, Parse.
    """
    if text == "*":
        return LabelSelector()
    requirements, end = [], 0
    while end < len(text):
        match = _REQUIREMENT.match(text, end)
        if match is None or match.end() == end:
            raise OverrideError(
                f"{text!r} is not a label selector: write zone=a, zone!=a, zone in (a, b), zone or "
                "!zone, separated by commas, or * for all"
            )
        requirements.append(_requirement(match, text))
        end = match.end()
    if not requirements:
        raise OverrideError("an empty label selector would match everything: write * for that")
    return LabelSelector(requirements=tuple(requirements))


def _requirement(match: re.Match[str], text: str) -> Requirement:
    key = match["key"] or match["absent"]
    if problem := qualified_name_problem(key):
        raise OverrideError(f"{text!r}: {key!r}: {problem}")
    if match["absent"]:
        return Requirement(key=key, operator=Operator.DOES_NOT_EXIST)
    if match["sign"]:
        return Requirement(key=key, operator=_SIGNS[match["sign"]], values=(match["value"],))
    if match["word"]:
        values = tuple(value.strip() for value in match["values"].split(","))
        return Requirement(key=key, operator=_WORDS[match["word"]], values=values)
    return Requirement(key=key, operator=Operator.EXISTS)


def existing_labels(selector: LabelSelector, labels: Iterable[Mapping[str, str]]) -> str:
    """Return, for a message, the existing values of the selector's labels.

    If no object has any of these labels, return the keys of all labels.
    """
    of_objects = list(labels)
    keys = {requirement.key for requirement in selector.requirements}
    values = {f"{key}={held[key]}" for held in of_objects for key in keys & set(held)}
    if values:
        return shown_names(values, "")
    return f"the labels {shown_names({key for held in of_objects for key in held}, '(none)')}"
