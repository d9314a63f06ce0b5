"""pluginConfig: the arguments of each in-tree plugin, decoded, defaulted and validated.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go,
pkg/scheduler/apis/config/v1/defaults.go, pkg/scheduler/apis/config/validation/
validation_pluginargs.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import TypeVar

from services.config.names import qualified_name_problem
from services.config.node_selectors import preferred_terms, required_selector
from services.config.strict import ConfigError, Fields
from services.kube.spread import NodeInclusionPolicy, TopologySpreadConstraint, UnsatisfiableAction
from services.scheduler.core.plugin_args import (
    DEFAULT_RESOURCES,
    DefaultingType,
    DefaultPreemptionArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PluginArgs,
    PodTopologySpreadArgs,
    ResourceWeight,
    ScoringType,
    ShapePoint,
    VolumeBindingArgs,
)

API_VERSION = "kubescheduler.config.k8s.io/v1"
_WEIGHT_MAX = 100
_UTILIZATION_MAX = 100
_SCORE_MAX = 10

_E = TypeVar("_E", bound=Enum)


def plugin_args(name: str, args: Fields) -> PluginArgs | None:
    """Return the arguments of plugin `name`, None where nothing of them is served.

    Raises ConfigError, also where the plugin takes none.
    """
    read = _READERS.get(name)
    if read is None:
        raise ConfigError(args.path, f'plugin "{name}" takes no arguments')
    kind = f"{name}Args"
    for field, expected in (("apiVersion", API_VERSION), ("kind", kind)):
        given = args.text(field)
        if given not in {None, "", expected}:
            raise ConfigError(args.at(field), f'must be "{expected}", not "{given}"')
    found = read(args)
    args.end()
    return found


def _fit(args: Fields) -> NodeResourcesFitArgs:
    ignored = args.texts("ignoredResources")
    for index, resource in enumerate(ignored):
        _check_name(resource, f"{args.at('ignoredResources')}[{index}]")
    groups = args.texts("ignoredResourceGroups")
    for index, group in enumerate(groups):
        path = f"{args.at('ignoredResourceGroups')}[{index}]"
        if "/" in group:
            raise ConfigError(path, "resource group name can't contain '/'")
        _check_name(group, path)
    scoring, resources, shape = _strategy(args.fields("scoringStrategy"))
    return NodeResourcesFitArgs(
        ignored_resources=frozenset(ignored),
        ignored_groups=frozenset(groups),
        scoring=scoring,
        resources=resources,
        shape=shape,
    )


def _strategy(
    strategy: Fields | None,
) -> tuple[ScoringType, tuple[ResourceWeight, ...], tuple[ShapePoint, ...]]:
    if strategy is None:
        return ScoringType.LEAST_ALLOCATED, DEFAULT_RESOURCES, ()
    scoring = _choice(strategy, "type", ScoringType)
    resources = tuple(_resources(strategy))
    ratio = strategy.fields("requestedToCapacityRatio")
    strategy.end()
    path = strategy.at("requestedToCapacityRatio")
    if scoring is not ScoringType.REQUESTED_TO_CAPACITY_RATIO:
        if ratio is not None:
            text = "must be nil when type is not RequestedToCapacityRatio"
            raise ConfigError(path, text)
        return scoring, resources or DEFAULT_RESOURCES, ()
    if ratio is None:
        raise ConfigError(path, "must be specified when type is RequestedToCapacityRatio")
    return scoring, resources or DEFAULT_RESOURCES, _shape(ratio)


def _resources(fields: Fields) -> Iterator[ResourceWeight]:
    for resource in fields.each("resources"):
        name = resource.text("name") or ""
        weight = resource.integer("weight", wide=True) or 1
        resource.end()
        if not 0 < weight <= _WEIGHT_MAX:
            text = f"resource weight of {name} not in valid range (0, {_WEIGHT_MAX}]"
            raise ConfigError(resource.at("weight"), text)
        yield ResourceWeight(name=name, weight=weight)


def _shape(ratio: Fields) -> tuple[ShapePoint, ...]:
    points: list[ShapePoint] = []
    for point in ratio.each("shape"):
        utilization = point.integer("utilization") or 0
        score = point.integer("score") or 0
        point.end()
        if points and points[-1].utilization >= utilization:
            text = "values must be sorted in increasing order"
            raise ConfigError(point.at("utilization"), text)
        if not 0 <= utilization <= _UTILIZATION_MAX:
            text = f"not in valid range [0-{_UTILIZATION_MAX}]"
            raise ConfigError(point.at("utilization"), text)
        if not 0 <= score <= _SCORE_MAX:
            raise ConfigError(point.at("score"), f"not in valid range [0-{_SCORE_MAX}]")
        points.append(ShapePoint(utilization=utilization, score=score))
    ratio.end()
    if not points:
        raise ConfigError(ratio.at("shape"), "at least one point must be specified")
    return tuple(points)


def _balanced(args: Fields) -> NodeResourcesBalancedAllocationArgs:
    resources: list[ResourceWeight] = []
    for index, resource in enumerate(_resources(args)):
        path = f"{args.at('resources')}[{index}]"
        if any(resource.name == other.name for other in resources):
            raise ConfigError(f"{path}.name", f'"{resource.name}" comes twice')
        if resource.weight != 1:
            raise ConfigError(f"{path}.weight", "must be 1")
        resources.append(resource)
    return NodeResourcesBalancedAllocationArgs(resources=tuple(resources) or DEFAULT_RESOURCES)


def _node_affinity(args: Fields) -> NodeAffinityArgs:
    added = args.fields("addedAffinity")
    if added is None:
        return NodeAffinityArgs()
    required = added.fields("requiredDuringSchedulingIgnoredDuringExecution")
    preferred = tuple(preferred_terms(added, "preferredDuringSchedulingIgnoredDuringExecution"))
    added.end()
    return NodeAffinityArgs(
        added_required=None if required is None else required_selector(required),
        added_preferred=preferred,
    )


def _inter_pod_affinity(args: Fields) -> InterPodAffinityArgs:
    weight = args.integer("hardPodAffinityWeight")
    ignore = args.flag("ignorePreferredTermsOfExistingPods") or False
    if weight is not None and not 0 <= weight <= _WEIGHT_MAX:
        path = args.at("hardPodAffinityWeight")
        raise ConfigError(path, f"not in valid range [0-{_WEIGHT_MAX}]")
    return InterPodAffinityArgs(
        hard_pod_affinity_weight=1 if weight is None else weight,
        ignore_preferred_terms_of_existing_pods=ignore,
    )


def _spread(args: Fields) -> PodTopologySpreadArgs:
    defaulting = DefaultingType.SYSTEM
    if args.text("defaultingType"):
        defaulting = _choice(args, "defaultingType", DefaultingType)
    constraints: list[TopologySpreadConstraint] = []
    for each in args.each("defaultConstraints"):
        constraint = _constraint(each)
        same = (constraint.topology_key, constraint.when_unsatisfiable)
        if any(same == (other.topology_key, other.when_unsatisfiable) for other in constraints):
            raise ConfigError(each.path, "another constraint has the same key and action")
        constraints.append(constraint)
    if defaulting is DefaultingType.SYSTEM and constraints:
        text = "must be List when .defaultConstraints are not empty"
        raise ConfigError(args.at("defaultingType"), text)
    return PodTopologySpreadArgs(default_constraints=tuple(constraints), defaulting_type=defaulting)


def _constraint(fields: Fields) -> TopologySpreadConstraint:
    max_skew = fields.integer("maxSkew") or 0
    key = fields.text("topologyKey") or ""
    when = _choice(fields, "whenUnsatisfiable", UnsatisfiableAction)
    if fields.has("labelSelector"):
        text = "constraint must not define a selector, as they deduced for each pod"
        raise ConfigError(fields.at("labelSelector"), text)
    if max_skew <= 0:
        raise ConfigError(fields.at("maxSkew"), "not in valid range (0, inf)")
    if not key:
        raise ConfigError(fields.at("topologyKey"), "can not be empty")
    _check_name(key, fields.at("topologyKey"))
    constraint = TopologySpreadConstraint(
        max_skew=max_skew,
        topology_key=key,
        when_unsatisfiable=when,
        min_domains=fields.integer("minDomains") or 1,
        node_affinity_policy=_policy(fields, "nodeAffinityPolicy", NodeInclusionPolicy.HONOR),
        node_taints_policy=_policy(fields, "nodeTaintsPolicy", NodeInclusionPolicy.IGNORE),
        match_label_keys=fields.texts("matchLabelKeys"),
    )
    fields.text("labelSelector")
    fields.end()
    return constraint


def _policy(fields: Fields, name: str, default: NodeInclusionPolicy) -> NodeInclusionPolicy:
    return _choice(fields, name, NodeInclusionPolicy) if fields.has(name) else default


def _preemption(args: Fields) -> DefaultPreemptionArgs:
    percentage = args.integer("minCandidateNodesPercentage")
    absolute = args.integer("minCandidateNodesAbsolute")
    percentage = 10 if percentage is None else percentage
    absolute = 100 if absolute is None else absolute
    path = args.at("minCandidateNodesPercentage")
    if not 0 <= percentage <= 100:
        raise ConfigError(path, "not in valid range [0, 100]")
    if absolute < 0:
        path = args.at("minCandidateNodesAbsolute")
        raise ConfigError(path, "not in valid range [0, inf)")
    if percentage == 0 and absolute == 0:
        raise ConfigError(path, "cannot be zero at the same time as minCandidateNodesAbsolute")
    return DefaultPreemptionArgs(
        min_candidate_nodes_percentage=percentage, min_candidate_nodes_absolute=absolute
    )


def _volume_binding(args: Fields) -> VolumeBindingArgs:
    seconds = args.integer("bindTimeoutSeconds", wide=True)
    if args.has("shape"):
        text = (
            "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        )
        raise ConfigError(args.at("shape"), text)
    args.text("shape")
    if seconds is not None and seconds < 0:
        text = "invalid BindTimeoutSeconds, should not be a negative value"
        raise ConfigError(args.at("bindTimeoutSeconds"), text)
    return VolumeBindingArgs(bind_timeout_seconds=600 if seconds is None else seconds)


def _dynamic_resources(args: Fields) -> None:
    args.text("filterTimeout")


def _choice(fields: Fields, name: str, kind: type[_E]) -> _E:
    text = fields.text(name) or ""
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(f'"{each.value}"' for each in kind)
        raise ConfigError(fields.at(name), f'unsupported value "{text}": use {known}') from None


def _check_name(name: str, path: str) -> None:
    problem = qualified_name_problem(name)
    if problem:
        raise ConfigError(path, f'"{name}": {problem}')


_READERS: Mapping[str, Callable[[Fields], PluginArgs | None]] = {
    "NodeResourcesFit": _fit,
    "NodeResourcesBalancedAllocation": _balanced,
    "NodeAffinity": _node_affinity,
    "InterPodAffinity": _inter_pod_affinity,
    "PodTopologySpread": _spread,
    "DefaultPreemption": _preemption,
    "VolumeBinding": _volume_binding,
    "DynamicResources": _dynamic_resources,
}
