"""pluginConfig: the arguments of each in-tree plugin as the file has them, and their validation.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go,
pkg/scheduler/apis/config/v1/defaults.go, pkg/scheduler/apis/config/validation/
validation_pluginargs.go; staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity/
nodeaffinity.go (node selectors).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from services.config.strict import Int64, check_name, checked, within
from services.framework.plugins.args import (
    DEFAULT_RESOURCES,
    DefaultingType,
    DefaultPreemptionArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ResourceWeight,
    ScoringType,
    ShapePoint,
    VolumeBindingArgs,
)
from services.kube.pod import NodeAffinity, PreferredSchedulingTerm
from services.kube.selector import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Operator,
    Requirement,
    TopologySpreadConstraint,
    as_int64,
)
from services.typed import DataError, Read, Reading

_WEIGHT_MAX = 100
_UTILIZATION_MAX = 100
_SCORE_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ratio:
    shape: tuple[ShapePoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Strategy:
    type: ScoringType
    resources: tuple[ResourceWeight, ...] = ()
    requested_to_capacity_ratio: _Ratio | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: _Strategy = _Strategy(type=ScoringType.LEAST_ALLOCATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeAffinity:
    added_affinity: NodeAffinity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _VolumeBinding:
    bind_timeout_seconds: Int64 = 600
    shape: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _DynamicResources:
    filter_timeout: str = ""


KINDS: Mapping[str, type] = MappingProxyType(
    {
        "NodeResourcesFit": _Fit,
        "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
        "NodeAffinity": _NodeAffinity,
        "InterPodAffinity": InterPodAffinityArgs,
        "PodTopologySpread": PodTopologySpreadArgs,
        "DefaultPreemption": DefaultPreemptionArgs,
        "VolumeBinding": _VolumeBinding,
        "DynamicResources": _DynamicResources,
    }
)
"""What the arguments of a plugin are read as; `checked` makes the plugin's own arguments of it."""


@checked.register
def _(args: _Fit) -> NodeResourcesFitArgs:
    for index, resource in enumerate(args.ignored_resources):
        check_name(resource, f"ignoredResources[{index}]")
    for index, group in enumerate(args.ignored_resource_groups):
        path = f"ignoredResourceGroups[{index}]"
        if "/" in group:
            raise DataError(path, "resource group name can't contain '/'")
        check_name(group, path)
    strategy = args.scoring_strategy
    ratio = strategy.requested_to_capacity_ratio
    return NodeResourcesFitArgs(
        ignored_resources=frozenset(args.ignored_resources),
        ignored_groups=frozenset(args.ignored_resource_groups),
        scoring=strategy.type,
        resources=strategy.resources or DEFAULT_RESOURCES,
        shape=() if ratio is None else ratio.shape,
    )


@checked.register
def _(strategy: _Strategy) -> _Strategy:
    ratio, by_ratio = "requestedToCapacityRatio", ScoringType.REQUESTED_TO_CAPACITY_RATIO
    if strategy.requested_to_capacity_ratio is None:
        if strategy.type is by_ratio:
            raise DataError(ratio, "must be specified when type is RequestedToCapacityRatio")
    elif strategy.type is not by_ratio:
        raise DataError(ratio, "must be nil when type is not RequestedToCapacityRatio")
    return strategy


@checked.register
def _(resource: ResourceWeight) -> ResourceWeight:
    weight = resource.weight or 1
    text = f"resource weight of {resource.name} not in valid range (0, {_WEIGHT_MAX}]"
    within("weight", weight, 1, _WEIGHT_MAX, text)
    return replace(resource, weight=weight)


@checked.register
def _(ratio: _Ratio) -> _Ratio:
    if not ratio.shape:
        raise DataError("shape", "at least one point must be specified")
    for index, point in enumerate(ratio.shape):
        path = f"shape[{index}]"
        if index and ratio.shape[index - 1].utilization >= point.utilization:
            text = "values must be sorted in increasing order"
            raise DataError(f"{path}.utilization", text)
        for name, value, most in (
            ("utilization", point.utilization, _UTILIZATION_MAX),
            ("score", point.score, _SCORE_MAX),
        ):
            within(f"{path}.{name}", value, 0, most, f"not in valid range [0-{most}]")
    return ratio


@checked.register
def _(args: NodeResourcesBalancedAllocationArgs) -> NodeResourcesBalancedAllocationArgs:
    names: set[str] = set()
    for index, resource in enumerate(args.resources):
        path = f"resources[{index}]"
        if resource.name in names:
            raise DataError(f"{path}.name", f'"{resource.name}" comes twice')
        within(f"{path}.weight", resource.weight, 1, 1, "must be 1")
        names.add(resource.name)
    return args if args.resources else NodeResourcesBalancedAllocationArgs()


@checked.register
def _(args: _NodeAffinity) -> NodeAffinityArgs:
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


@checked.register
def _(args: InterPodAffinityArgs) -> InterPodAffinityArgs:
    weight, text = args.hard_pod_affinity_weight, f"not in valid range [0-{_WEIGHT_MAX}]"
    within("hardPodAffinityWeight", weight, 0, _WEIGHT_MAX, text)
    return args


@checked.register
def _(args: PodTopologySpreadArgs) -> PodTopologySpreadArgs:
    seen: set[tuple[str, object]] = set()
    for index, each in enumerate(args.default_constraints):
        same = (each.topology_key, each.when_unsatisfiable)
        if same in seen:
            text = "another constraint has the same key and action"
            raise DataError(f"defaultConstraints[{index}]", text)
        seen.add(same)
    if args.defaulting_type is DefaultingType.SYSTEM and args.default_constraints:
        raise DataError("defaultingType", "must be List when .defaultConstraints are not empty")
    return args


@checked.register
def _(constraint: TopologySpreadConstraint) -> TopologySpreadConstraint:
    if constraint.max_skew <= 0:
        raise DataError("maxSkew", "not in valid range (0, inf)")
    if not constraint.topology_key:
        raise DataError("topologyKey", "can not be empty")
    check_name(constraint.topology_key, "topologyKey")
    return replace(constraint, min_domains=constraint.min_domains or 1)


@checked.register
def _(args: DefaultPreemptionArgs) -> DefaultPreemptionArgs:
    share, number = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    within("minCandidateNodesPercentage", share, 0, 100, "not in valid range [0, 100]")
    if number < 0:
        raise DataError("minCandidateNodesAbsolute", "not in valid range [0, inf)")
    if share == number == 0:
        text = "cannot be zero at the same time as minCandidateNodesAbsolute"
        raise DataError("minCandidateNodesPercentage", text)
    return args


@checked.register
def _(args: _VolumeBinding) -> VolumeBindingArgs:
    if args.shape is not None:
        text = (
            "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        )
        raise DataError("shape", text)
    if args.bind_timeout_seconds < 0:
        text = "invalid BindTimeoutSeconds, should not be a negative value"
        raise DataError("bindTimeoutSeconds", text)
    return VolumeBindingArgs(bind_timeout_seconds=args.bind_timeout_seconds)


@checked.register
def _(_args: _DynamicResources) -> None:
    """Nothing of them is served."""


def _no_selector(_data: object) -> LabelSelector:
    raise DataError("", "constraint must not define a selector, as they deduced for each pod")


def _defaulting(data: object) -> DefaultingType:
    return DefaultingType.SYSTEM if data == "" else Reading().read(DefaultingType, data)


HOOKS: Mapping[Any, Read] = MappingProxyType(
    {LabelSelector: _no_selector, DefaultingType: _defaulting}
)
NAMES: Mapping[tuple[type, str], str] = MappingProxyType(
    {
        (NodeAffinity, "required"): "requiredDuringSchedulingIgnoredDuringExecution",
        (NodeAffinity, "preferred"): "preferredDuringSchedulingIgnoredDuringExecution",
        (NodeSelector, "terms"): "nodeSelectorTerms",
        (PreferredSchedulingTerm, "term"): "preference",
        (TopologySpreadConstraint, "selector"): "labelSelector",
    }
)
