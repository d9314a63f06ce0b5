"""Arguments of NodeAffinity: an affinity that every pod of the profile has beside its own.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go,
pkg/scheduler/apis/config/v1/defaults.go, pkg/scheduler/apis/config/validation/
validation_pluginargs.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.config.strict import check_name, checked
from services.framework.arguments import Arguments
from services.kube.pod import NodeAffinity, PreferredSchedulingTerm
from services.kube.selector import NodeSelector, NodeSelectorTerm, Operator, Requirement, as_int64
from services.typed import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAffinityArgs:
    """Affinity that every pod of the profile has beside its own; None and () add nothing."""

    added_required: NodeSelector | None = None
    added_preferred: tuple[PreferredSchedulingTerm, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    added_affinity: NodeAffinity | None = None


@checked.register
def _(args: _Fields) -> NodeAffinityArgs:
    added = args.added_affinity or NodeAffinity()
    return NodeAffinityArgs(added_required=added.required, added_preferred=added.preferred)


@checked.register
def _(term: NodeSelectorTerm) -> NodeSelectorTerm:
    for index, expression in enumerate(term.match_expressions):
        _check_expression(expression, f"matchExpressions[{index}]")
    for index, by_field in enumerate(term.match_fields):
        path = f"matchFields[{index}]"
        if by_field.operator not in {Operator.IN, Operator.NOT_IN}:
            raise DataError(f"{path}.operator", 'unsupported value: use "In", "NotIn"')
        if len(by_field.values) != 1:
            raise DataError(f"{path}.values", "must have one element")
    return term


def _check_expression(requirement: Requirement, path: str) -> None:
    check_name(requirement.key, f"{path}.key")
    values, problem = requirement.values, ""
    match requirement.operator:
        case Operator.IN | Operator.NOT_IN if not values:
            problem = "for 'in', 'notin' operators, values set can't be empty"
        case Operator.EXISTS | Operator.DOES_NOT_EXIST if values:
            problem = "values set must be empty for exists and does not exist"
        case Operator.GT | Operator.LT if len(values) != 1:
            problem = "for 'Gt', 'Lt' operators, exactly one value is required"
        case Operator.GT | Operator.LT if as_int64(values[0]) is None:
            problem = "for 'Gt', 'Lt' operators, the value must be an integer"
    if problem:
        raise DataError(f"{path}.values", problem)


ARGUMENTS = Arguments(
    kind=_Fields,
    names={
        (NodeAffinity, "required"): "requiredDuringSchedulingIgnoredDuringExecution",
        (NodeAffinity, "preferred"): "preferredDuringSchedulingIgnoredDuringExecution",
        (NodeSelector, "terms"): "nodeSelectorTerms",
        (PreferredSchedulingTerm, "term"): "preference",
    },
)
