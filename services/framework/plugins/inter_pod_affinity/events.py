"""InterPodAffinity: an assigned pod newly matches the affinity, or no longer the anti-affinity.

A term that selects namespaces is evaluated with the labels of the other pod's namespace. Upstream's
hint leaves them out, so that its pods wait for the leftover flush; here the term's meaning decides.

Since v1.36 a pod that is nominated to a node counts as one on it (kubernetes#135392), a deleted pod
whose own anti-affinity kept the pod away queues it (kubernetes#135325), and so does a change of the
pod's own labels (kubernetes#135394).

Source: kubernetes v1.34 plugins/interpodaffinity/plugin.go, EventsToRegister,
isSchedulableAfterPodChange, isSchedulableAfterNodeChange; filtering.go, podMatchesAllAffinityTerms;
framework/types.go, AffinityTerm.Matches.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.framework.cluster_event import AnyPod, ObjectEvent, PendingPod, QueueingHintFn
from services.framework.hints import (
    PluginEvents,
    events_of,
    frees_a_node,
    on,
    on_event,
    pods,
    spec_of,
)
from services.kube.node import Node
from services.kube.selector import PodAffinity, PodAffinityTerm

_Terms = tuple[PodAffinityTerm, ...]


def after_pod_change(pod: PendingPod, object_event: ObjectEvent) -> bool:
    """Return Queue (true) if an assigned pod now matches affinity, or no longer anti-affinity."""
    old, new = pods(object_event)
    if old is None and new is None:
        return True
    if any(version is not None and not version.node_name for version in (old, new)):
        return False
    return _changes_matches(pod, old, new, object_event.namespace_labels)


def after_pod_change_since_v1_36(pod: PendingPod, object_event: ObjectEvent) -> bool:
    """Return the hint of `after_pod_change`, with the cases that v1.36 added."""
    old, new = pods(object_event)
    if old is None and new is None:
        return True
    if new is not None and new.uid == pod.uid and old is not None and old.labels != new.labels:
        return True
    if any(version is not None and not frees_a_node(version) for version in (old, new)):
        return False
    spaces = object_event.namespace_labels
    if new is None and old is not None and _keeps_away(old, pod, spaces):
        return True
    return _changes_matches(pod, old, new, spaces)


def _keeps_away(other: AnyPod, pod: PendingPod, namespace_labels: Mapping[str, str]) -> bool:
    """Return whether the anti-affinity of `other` matches the pod.

    The event has the labels of the namespace of `other`; where the pod is in another one, a term
    that selects namespaces may mean it.
    """
    terms = _terms(other, spec_of(other).pod_anti_affinity)
    known = namespace_labels if pod.namespace == other.namespace else None
    return _matches(terms, other, pod, known)


def _changes_matches(
    pod: PendingPod, old: AnyPod | None, new: AnyPod | None, spaces: Mapping[str, str]
) -> bool:
    near, away = _terms(pod, spec_of(pod).pod_affinity), _terms(pod, spec_of(pod).pod_anti_affinity)
    was_near, is_near = _matches(near, pod, old, spaces), _matches(near, pod, new, spaces)
    was_away, is_away = _matches(away, pod, old, spaces), _matches(away, pod, new, spaces)
    return (is_near and not was_near) or (was_away and not is_away)


def after_node_change(pod: PendingPod, old: Node | None, new: Node | None) -> bool:
    """Return Queue (true) if a node joins a domain of affinity, or leaves one of anti-affinity."""
    if new is None:
        return True
    spec = spec_of(pod)
    near, away = _terms(pod, spec.pod_affinity), _terms(pod, spec.pod_anti_affinity)
    if old is None:
        return bool(away) or any(term.topology_key in new.labels for term in near)
    return any(_differs(term, old, new) and term.topology_key in new.labels for term in near) or (
        any(_differs(term, old, new) and term.topology_key in old.labels for term in away)
    )


def _terms(pod: AnyPod, affinity: PodAffinity | None) -> _Terms:
    return () if affinity is None else tuple(term.keyed(pod.labels) for term in affinity.required)


def _differs(term: PodAffinityTerm, old: Node, new: Node) -> bool:
    return old.labels.get(term.topology_key) != new.labels.get(term.topology_key)


def _matches(
    terms: _Terms, pod: AnyPod, other: AnyPod | None, namespace_labels: Mapping[str, str] | None
) -> bool:
    """Return whether `other` matches all terms; without terms, or without a pod, it does not.

    `namespace_labels` None: they are unknown, and every selector of namespaces matches.
    """
    if other is None or not terms:
        return False
    return all(_matches_one(term, pod, other, namespace_labels) for term in terms)


def _matches_one(
    term: PodAffinityTerm, pod: AnyPod, other: AnyPod, namespace_labels: Mapping[str, str] | None
) -> bool:
    selects = term.namespace_selector
    named = term.namespaces or ((pod.namespace,) if selects is None else ())
    if other.namespace not in named:
        if selects is None:
            return False
        if namespace_labels is not None and not selects.matches(namespace_labels):
            return False
    return term.selector is not None and term.selector.matches(other.labels)


def _events(pod_hint: QueueingHintFn) -> PluginEvents:
    return events_of(
        "InterPodAffinity",
        on_event("PodAdd", pod_hint),
        on_event("PodDelete", pod_hint),
        on_event("PodLabelChange", pod_hint),
        on("NodeAdd", after_node_change),
        on("NodeLabelChange", after_node_change),
    )


EVENTS = _events(after_pod_change)
EVENTS_V1_36 = _events(after_pod_change_since_v1_36)
