"""InterPodAffinity: an assigned pod newly matches the affinity, or no longer the anti-affinity.

A term that selects namespaces is evaluated with the labels of the other pod's namespace. Upstream's
hint leaves them out, so that its pods wait for the leftover flush; here the term's meaning decides.

Source: kubernetes v1.34 plugins/interpodaffinity/plugin.go, EventsToRegister,
isSchedulableAfterPodChange, isSchedulableAfterNodeChange; filtering.go, podMatchesAllAffinityTerms;
framework/types.go, AffinityTerm.Matches.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.framework.cluster_event import AnyPod, ObjectEvent, PendingPod
from services.framework.hints import events_of, on, on_event, pods, spec_of
from services.kube.node import Node
from services.kube.selector import PodAffinity, PodAffinityTerm

_Terms = tuple[PodAffinityTerm, ...]


def after_pod_change(pod: PendingPod, object_event: ObjectEvent) -> bool:
    """Queue where an assigned pod newly matches the affinity, or no longer the anti-affinity."""
    old, new = pods(object_event)
    if old is None and new is None:
        return True
    if any(version is not None and not version.node_name for version in (old, new)):
        return False
    spaces = object_event.namespace_labels
    near, away = _terms(pod, spec_of(pod).pod_affinity), _terms(pod, spec_of(pod).pod_anti_affinity)
    was_near, is_near = _matches(near, pod, old, spaces), _matches(near, pod, new, spaces)
    was_away, is_away = _matches(away, pod, old, spaces), _matches(away, pod, new, spaces)
    return (is_near and not was_near) or (was_away and not is_away)


def after_node_change(pod: PendingPod, old: Node | None, new: Node | None) -> bool:
    """Queue where a node joins a domain of the affinity, or leaves one of the anti-affinity."""
    if new is None:
        return True
    spec = spec_of(pod)
    near, away = _terms(pod, spec.pod_affinity), _terms(pod, spec.pod_anti_affinity)
    if old is None:
        return bool(away) or any(term.topology_key in new.labels for term in near)
    return any(_differs(term, old, new) and term.topology_key in new.labels for term in near) or (
        any(_differs(term, old, new) and term.topology_key in old.labels for term in away)
    )


def _terms(pod: PendingPod, affinity: PodAffinity | None) -> _Terms:
    return () if affinity is None else tuple(term.keyed(pod.labels) for term in affinity.required)


def _differs(term: PodAffinityTerm, old: Node, new: Node) -> bool:
    return old.labels.get(term.topology_key) != new.labels.get(term.topology_key)


def _matches(
    terms: _Terms, pod: PendingPod, other: AnyPod | None, namespace_labels: Mapping[str, str]
) -> bool:
    """Return whether `other` matches all terms; without terms, or without a pod, it does not."""
    if other is None or not terms:
        return False
    return all(_matches_one(term, pod, other, namespace_labels) for term in terms)


def _matches_one(
    term: PodAffinityTerm, pod: PendingPod, other: AnyPod, namespace_labels: Mapping[str, str]
) -> bool:
    selects = term.namespace_selector
    named = term.namespaces or ((pod.namespace,) if selects is None else ())
    if other.namespace not in named and (selects is None or not selects.matches(namespace_labels)):
        return False
    return term.selector is not None and term.selector.matches(other.labels)


EVENTS = events_of(
    "InterPodAffinity",
    on_event("PodAdd", after_pod_change),
    on_event("PodDelete", after_pod_change),
    on_event("PodLabelChange", after_pod_change),
    on("NodeAdd", after_node_change),
    on("NodeLabelChange", after_node_change),
)
