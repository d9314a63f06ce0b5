"""Arguments of NodeResourcesFit and NodeResourcesBalancedAllocation.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go,
pkg/scheduler/apis/config/v1/defaults.go, pkg/scheduler/apis/config/validation/
validation_pluginargs.go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from services.config.strict import check_name, checked, within
from services.framework.arguments import Arguments
from services.typed import DataError

_WEIGHT_MAX = 100
_UTILIZATION_MAX = 100
_SCORE_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceWeight:
    """A resource that a score reads, and its weight, 1 to 100."""

    name: str = ""
    weight: int = 1


DEFAULT_RESOURCES = (ResourceWeight(name="cpu"), ResourceWeight(name="memory"))


class ScoringType(Enum):
    """The scoring strategy of NodeResourcesFit."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapePoint:
    """A point of a broken line: a utilization, 0 to 100 %, and its score, 0 to 10."""

    utilization: int = 0
    score: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResourcesFitArgs:
    """`ignored_resources` and `ignored_groups` (the part before "/") are ignored by the filter.

    `shape` is that of RequestedToCapacityRatio, by rising utilization.
    """

    ignored_resources: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()
    scoring: ScoringType = ScoringType.LEAST_ALLOCATED
    resources: tuple[ResourceWeight, ...] = DEFAULT_RESOURCES
    shape: tuple[ShapePoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResourcesBalancedAllocationArgs:
    """The resources whose evenness counts."""

    resources: tuple[ResourceWeight, ...] = DEFAULT_RESOURCES


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


FIT_ARGUMENTS = Arguments(kind=_Fit)
BALANCED_ALLOCATION_ARGUMENTS = Arguments(kind=NodeResourcesBalancedAllocationArgs)
