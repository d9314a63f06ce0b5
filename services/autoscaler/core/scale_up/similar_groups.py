"""Groups like each other, between which a scale-up is spread (`balance-similar-node-groups`).

Groups are alike if their nodes have the same labels, but for name, zone and region, the same
capacity (memory nearly so), and nearly the same allocatable and free amounts. With
`balancing-label` only those labels count. Nodes go one by one to the smallest group.

Source: kubernetes/autoscaler 1.36 processors/nodegroupset/compare_nodegroups.go;
label_nodegroups.go; balancing_processor.go, BalanceScaleUpBetweenGroups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.autoscaler.core.groups import NodeGroup
from services.autoscaler.core.options import Options
from services.autoscaler.core.simulator.templates import NodeTemplate
from services.kube.node import (
    LABEL_HOSTNAME,
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
)
from services.kube.requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, pod_requests

_OF_ONE_NODE = frozenset(
    {
        LABEL_HOSTNAME,
        LABEL_ZONE,
        LABEL_ZONE_BETA,
        LABEL_REGION,
        LABEL_REGION_BETA,
        "beta.kubernetes.io/fluentd-ds-ready",
        "kops.k8s.io/instancegroup",
    }
)
_MILLI = 1000
_ALWAYS = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)


def are_similar(one: NodeTemplate, other: NodeTemplate, options: Options) -> bool:
    """Return whether the nodes of two groups are similar enough to replace each other."""
    labels = one.node.node.labels, other.node.node.labels
    if options.balancing_labels:
        return all(
            label in labels[0] and labels[0][label] == labels[1].get(label)
            for label in options.balancing_labels
        )
    return (
        _have_like_capacity(one, other, options.memory_difference_ratio)
        and _are_within(
            one.node.node.allocatable,
            other.node.node.allocatable,
            options.max_allocatable_difference_ratio,
        )
        and _are_within(_free(one), _free(other), options.max_free_difference_ratio)
        and _compared(labels[0], options) == _compared(labels[1], options)
    )


def _have_like_capacity(one: NodeTemplate, other: NodeTemplate, memory_ratio: float) -> bool:
    capacities = one.node.node.capacity, other.node.node.capacity
    if capacities[0].keys() != capacities[1].keys():
        return False
    return all(
        _is_within(amount, capacities[1][name], memory_ratio)
        if name == MEMORY
        else amount == capacities[1][name]
        for name, amount in capacities[0].items()
    )


def _are_within(one: Mapping[str, int], other: Mapping[str, int], ratio: float) -> bool:
    return one.keys() == other.keys() and all(
        _is_within(_in_milli(name, amount), _in_milli(name, other[name]), ratio)
        for name, amount in one.items()
    )


def _is_within(one: int, other: int, ratio: float) -> bool:
    larger, smaller = float(max(one, other)), float(min(one, other))
    return larger - smaller <= larger * ratio


def _in_milli(name: str, amount: int) -> int:
    return amount if name == CPU else amount * _MILLI


def _free(template: NodeTemplate) -> dict[str, int]:
    """Return the allocatable resources of a template that its own pods leave free."""
    requested: dict[str, int] = dict.fromkeys(_ALWAYS, 0)
    for pod in template.pods:
        for name, amount in pod_requests(pod.pod.spec).items():
            requested[name] = requested.get(name, 0) + amount
    allocatable = template.node.node.allocatable
    return {name: allocatable.get(name, 0) - amount for name, amount in requested.items()}


def _compared(labels: Mapping[str, str], options: Options) -> dict[str, str]:
    ignored = _OF_ONE_NODE.union(options.balancing_ignore_labels)
    return {name: value for name, value in labels.items() if name not in ignored}


@dataclass(slots=True)
class GroupChange:
    """A group that is to grow from `from_size` to `to_size`."""

    group: NodeGroup
    from_size: int
    to_size: int


def balanced(groups: Iterable[NodeGroup], count: int) -> list[GroupChange]:
    """Return how the groups grow by `count` nodes together, as far as their maxima allow.

    Each node goes to the smallest group, the first of equals.
    """
    changes = [
        GroupChange(group, group.target, group.target)
        for group in groups
        if group.target != group.max_size
    ]
    changes.sort(key=lambda change: change.from_size)
    number = min(count, sum(max(change.group.max_size - change.from_size, 0) for change in changes))
    _distribute(changes, number)
    return [change for change in changes if change.to_size != change.from_size]


def _distribute(changes: list[GroupChange], count: int) -> None:
    """Give `count` nodes to the groups, which are sorted by size, in upstream's order.

    Up to `at` from `start` all groups have one size; those before `start` are full.
    """
    start = at = 0
    while count:
        change = changes[at]
        if change.to_size < change.group.max_size:
            change.to_size += 1
            count -= 1
        else:
            changes[start], changes[at] = changes[at], changes[start]
            start += 1
        if at < len(changes) - 1 and changes[at].to_size > changes[at + 1].to_size:
            at += 1
        else:
            at = start
