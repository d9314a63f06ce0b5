"""Label selectors and node selectors.

A selector is a conjunction of requirements. A label selector that is absent
(None) matches nothing and an empty one everything; a node selector is a
disjunction of terms, and an empty term matches nothing.

Source: kubernetes v1.34 apimachinery pkg/labels/selector.go, Requirement.Matches;
component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

_INT64 = re.compile(r"[+-]?[0-9]{1,4000}")  # int() reads no more digits than 4,300
_INT64_LIMIT = 2**63


class Operator(Enum):
    """How a requirement compares a label with its values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One condition on the label `key`.

    `values` is empty for Exists and DoesNotExist and holds one integer's text for Gt and Lt.
    """

    key: str = ""
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` meet the requirement; NotIn is met by an absent key."""
        actual = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return actual is not None and actual in self.values
            case Operator.NOT_IN:
                return actual is None or actual not in self.values
            case Operator.EXISTS:
                return actual is not None
            case Operator.DOES_NOT_EXIST:
                return actual is None
            case Operator.GT | Operator.LT:
                return self._compares(actual)

    def _compares(self, actual: str | None) -> bool:
        if actual is None or len(self.values) != 1:
            return False
        left, right = as_int64(actual), as_int64(self.values[0])
        if left is None or right is None:
            return False
        return left > right if self.operator is Operator.GT else left < right


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """All of `requirements`; none matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` meet every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelectorTerm:
    """Conditions on a node's labels and, by `match_fields`, on its metadata.name."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        """Tell whether a node meets every condition; a term without any matches nothing."""
        if not self.match_expressions and not self.match_fields:
            return False
        fields = {"metadata.name": node_name}
        return all(requirement.matches(labels) for requirement in self.match_expressions) and all(
            requirement.matches(fields) for requirement in self.match_fields
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelector:
    """Any of `terms`; none matches nothing."""

    terms: tuple[NodeSelectorTerm, ...] = ()

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        """Tell whether a node meets one of the terms."""
        return any(term.matches(labels, node_name) for term in self.terms)


def as_int64(text: str) -> int | None:
    """Return the decimal int64 that `text` holds, or None where it holds none."""
    if not _INT64.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64_LIMIT <= number < _INT64_LIMIT else None
