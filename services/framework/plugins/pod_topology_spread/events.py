"""PodTopologySpread: a counted pod is added, deleted or changes; a node joins or leaves a domain.

A pod without constraints of its own has its profile's defaults, for the pods that its services and
its controller select. The scheduler sends that selector; where it did not, any pod may be counted.

Source: kubernetes v1.34 plugins/podtopologyspread/plugin.go, EventsToRegister,
isSchedulableAfterPodChange, isSchedulableAfterNodeChange, involvedInTopologySpreading,
getConstraints; common.go. v1.36: kubernetes#135392.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from services.framework.cluster_event import AnyPod, PendingPod
from services.framework.hints import (
    HintProfiles,
    PluginEvents,
    events_of,
    frees_a_node,
    on_with_profiles,
    profile_of,
    spec_of,
)
from services.kube.node import Node
from services.kube.selector import (
    NodeInclusionPolicy,
    TopologySpreadConstraint,
    UnsatisfiableAction,
)

_Constraints = tuple[TopologySpreadConstraint, ...]


def after_pod_change(
    pod: PendingPod, old: AnyPod | None, new: AnyPod | None, *, profiles: HintProfiles
) -> bool:
    """Return Queue (true) if the constraints start or stop to count a pod of the namespace."""
    if any(not version.node_name for version in _others(pod, old, new)):
        return False
    return _changes_counts(pod, old, new, profiles)


def after_pod_change_since_v1_36(
    pod: PendingPod, old: AnyPod | None, new: AnyPod | None, *, profiles: HintProfiles
) -> bool:
    """Return the hint of `after_pod_change`; a pod nominated to a node counts as one on it."""
    if any(not frees_a_node(version) for version in _others(pod, old, new)):
        return False
    return _changes_counts(pod, old, new, profiles)


def _others(pod: PendingPod, *versions: AnyPod | None) -> Iterator[AnyPod]:
    """Yield the versions that are not the pod's own."""
    for version in versions:
        if version is not None and version.uid != pod.uid:
            yield version


def _changes_counts(
    pod: PendingPod, old: AnyPod | None, new: AnyPod | None, profiles: HintProfiles
) -> bool:
    if any(version.namespace != pod.namespace for version in _others(pod, old, new)):
        return False
    hard = _hard_constraints(pod, profiles)
    if hard and not spec_of(pod).topology_spread_constraints and pod.spread_selector is None:
        return True
    if old is None or new is None:
        present = new if new is not None else old
        return present is not None and any(
            _counts(constraint, present.labels) for constraint in hard
        )
    if new.uid == pod.uid and _tolerations_differ(old, new) and _honours_taints(hard):
        return True
    return any(
        _counts(constraint, old.labels) != _counts(constraint, new.labels) for constraint in hard
    )


def after_node_change(
    pod: PendingPod, old: Node | None, new: Node | None, *, profiles: HintProfiles
) -> bool:
    """Return Queue (true) if a node with all keys comes, goes, or changes domain or taints."""
    hard = _hard_constraints(pod, profiles)
    if old is None or new is None:
        present = new if new is not None else old
        return present is not None and _has_keys(present, hard)
    if _has_keys(old, hard) != _has_keys(new, hard):
        return True
    return _has_keys(new, hard) and (
        old.taints != new.taints
        or any(old.labels.get(c.topology_key) != new.labels.get(c.topology_key) for c in hard)
    )


def _hard_constraints(pod: PendingPod, profiles: HintProfiles) -> _Constraints:
    constraints = spec_of(pod).topology_spread_constraints
    hard = tuple(
        constraint
        for constraint in constraints or profile_of(pod, profiles).default_constraints
        if constraint.when_unsatisfiable is UnsatisfiableAction.DO_NOT_SCHEDULE
    )
    if constraints:
        return tuple(
            replace(constraint, selector=constraint.selector_for(pod.labels)) for constraint in hard
        )
    return tuple(replace(constraint, selector=pod.spread_selector) for constraint in hard)


def _counts(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> bool:
    return constraint.selector is not None and constraint.selector.matches(labels)


def _has_keys(node: Node, constraints: _Constraints) -> bool:
    return all(constraint.topology_key in node.labels for constraint in constraints)


def _tolerations_differ(old: AnyPod, new: AnyPod) -> bool:
    return spec_of(old).tolerations != spec_of(new).tolerations


def _honours_taints(constraints: _Constraints) -> bool:
    return any(
        constraint.node_taints_policy is NodeInclusionPolicy.HONOR for constraint in constraints
    )


def _events(pod_hint: Callable[..., bool]) -> PluginEvents:
    return events_of(
        "PodTopologySpread",
        on_with_profiles("PodAdd", pod_hint),
        on_with_profiles("PodDelete", pod_hint),
        on_with_profiles("PodLabelChange", pod_hint),
        on_with_profiles("PodTolerationChange", pod_hint),
        on_with_profiles("NodeAdd", after_node_change),
        on_with_profiles("NodeDelete", after_node_change),
        on_with_profiles("NodeLabelChange", after_node_change),
        on_with_profiles("NodeTaintChange", after_node_change),
        counts_pods_of_namespace=True,
    )


EVENTS = _events(after_pod_change)
EVENTS_V1_36 = _events(after_pod_change_since_v1_36)
