"""Node selectors in a configuration file (NodeAffinityArgs.addedAffinity).

Source: kubernetes v1.34 staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity/
nodeaffinity.go, NewNodeSelector, NewPreferredSchedulingTerms.
"""

from __future__ import annotations

from collections.abc import Iterator

from services.config.names import qualified_name_problem
from services.config.strict import ConfigError, Fields
from services.kube.pod import PreferredSchedulingTerm
from services.kube.selector import (
    NodeSelector,
    NodeSelectorTerm,
    Operator,
    Requirement,
    as_int64,
)

_OPERATORS = {each.value: each for each in Operator}


def required_selector(fields: Fields) -> NodeSelector:
    """Return a NodeSelector. Raises ConfigError."""
    terms = tuple(_term(term) for term in fields.each("nodeSelectorTerms"))
    fields.end()
    return NodeSelector(terms=terms)


def preferred_terms(fields: Fields, name: str) -> Iterator[PreferredSchedulingTerm]:
    """Yield the preferences of a list. Raises ConfigError."""
    for each in fields.each(name):
        weight = each.integer("weight") or 0
        preference = each.fields("preference")
        each.end()
        term = NodeSelectorTerm() if preference is None else _term(preference)
        yield PreferredSchedulingTerm(weight=weight, term=term)


def _term(fields: Fields) -> NodeSelectorTerm:
    expressions = tuple(_expression(each) for each in fields.each("matchExpressions"))
    by_field = tuple(_field(each) for each in fields.each("matchFields"))
    fields.end()
    return NodeSelectorTerm(match_expressions=expressions, match_fields=by_field)


def _expression(fields: Fields) -> Requirement:
    requirement = _requirement(fields)
    values, operator = requirement.values, requirement.operator
    path = fields.at("values")
    problem = qualified_name_problem(requirement.key)
    if problem:
        raise ConfigError(fields.at("key"), f'"{requirement.key}": {problem}')
    match operator:
        case Operator.IN | Operator.NOT_IN:
            if not values:
                raise ConfigError(path, "for 'in', 'notin' operators, values set can't be empty")
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            if values:
                raise ConfigError(path, "values set must be empty for exists and does not exist")
        case Operator.GT | Operator.LT:
            if len(values) != 1:
                raise ConfigError(path, "for 'Gt', 'Lt' operators, exactly one value is required")
            if as_int64(values[0]) is None:
                raise ConfigError(path, "for 'Gt', 'Lt' operators, the value must be an integer")
    return requirement


def _field(fields: Fields) -> Requirement:
    requirement = _requirement(fields)
    if requirement.operator not in {Operator.IN, Operator.NOT_IN}:
        raise ConfigError(fields.at("operator"), 'unsupported value: use "In", "NotIn"')
    if len(requirement.values) != 1:
        raise ConfigError(fields.at("values"), "must have one element")
    return requirement


def _requirement(fields: Fields) -> Requirement:
    key = fields.text("key") or ""
    text = fields.text("operator") or ""
    values = fields.texts("values")
    fields.end()
    operator = _OPERATORS.get(text)
    if operator is None:
        raise ConfigError(fields.at("operator"), f'"{text}" is not a valid label selector operator')
    return Requirement(key=key, operator=operator, values=values)
