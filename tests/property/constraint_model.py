"""Pod affinity and topology spread in plain Python: every verdict counted from scratch, pod by pod.

The scheduler's plugins keep columns that follow the pods; this model has no memory and knows no
arrays. It looks at nothing but the objects that it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log

from services.kube.node import LABEL_HOSTNAME, Node
from services.kube.pod import Pod
from services.kube.selector import (
    NodeInclusionPolicy,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    UnsatisfiableAction,
)
from services.kube.taints import TaintEffect, tolerated
from services.kube.workloads import Namespace

NOT_NEAR = "node(s) didn't match pod affinity rules"
NOT_AWAY = "node(s) didn't match pod anti-affinity rules"
KEPT_AWAY = "node(s) didn't satisfy existing pods anti-affinity rules"
SKEWED = "node(s) didn't match pod topology spread constraints"
UNLABELLED = f"{SKEWED} (missing required label)"

Domain = tuple[str, str]
_NONE = PodAffinity()


@dataclass(frozen=True)
class Cluster:
    """Nodes and namespaces by name, and the pods that are on nodes."""

    nodes: Mapping[str, Node]
    pods: Sequence[Pod]
    namespaces: Mapping[str, Namespace]

    def placed(self) -> Iterable[tuple[Pod, Node]]:
        """Yield each pod on a known node, with the node."""
        for pod in self.pods:
            node = self.nodes.get(pod.node_name)
            if node is not None:
                yield pod, node


def affinity_refusal(pod: Pod, node: Node, cluster: Cluster) -> str:
    """Return why pod affinity refuses the node, "" where it does not."""
    near, away = _required(pod.spec.pod_affinity), _required(pod.spec.pod_anti_affinity)
    if near and not _is_near(pod, node, near, cluster):
        return NOT_NEAR
    for other, place in cluster.placed():
        if any(
            _shares(term, node, place) and _wants(pod, term, other, cluster, incoming=True)
            for term in away
        ):
            return NOT_AWAY
    if any(
        _shares(term, node, place) and _wants(other, term, pod, cluster)
        for other, place in cluster.placed()
        for term in _required(other.spec.pod_anti_affinity)
    ):
        return KEPT_AWAY
    return ""


def affinity_is_skipped(pod: Pod, cluster: Cluster) -> bool:
    """Return whether no required term matters to the pod."""
    if _required(pod.spec.pod_affinity) or _required(pod.spec.pod_anti_affinity):
        return False
    return not any(
        term.topology_key in place.labels and _wants(other, term, pod, cluster)
        for other, place in cluster.placed()
        for term in _required(other.spec.pod_anti_affinity)
    )


def affinity_scores(pod: Pod, fitting: Sequence[Node], cluster: Cluster) -> list[int] | None:
    """Return the normalised scores of the nodes that fit, None where no term matches anything."""
    weights: dict[Domain, int] = {}
    for other, place in cluster.placed():
        for term, weight in _weighted(pod, other, cluster):
            if term.topology_key in place.labels:
                domain = (term.topology_key, place.labels[term.topology_key])
                weights[domain] = weights.get(domain, 0) + weight
    if not weights:
        return None
    raw = [sum(weights.get(item, 0) for item in node.labels.items()) for node in fitting]
    least, span = min(raw), max(raw) - min(raw)
    return [int(100.0 * ((score - least) / span)) if span else 0 for score in raw]


def spread_refusal(pod: Pod, node: Node, cluster: Cluster) -> str:
    """Return why topology spread refuses the node, "" where it does not."""
    rules = _rules(pod, UnsatisfiableAction.DO_NOT_SCHEDULE)
    for rule in rules:
        value = node.labels.get(rule.topology_key)
        if value is None:
            return UNLABELLED
        counts: dict[str, int] = {}
        for counted in cluster.nodes.values():
            if all(other.topology_key in counted.labels for other in rules) and _counts(
                pod, rule, counted
            ):
                counts.setdefault(counted.labels[rule.topology_key], 0)
                counts[counted.labels[rule.topology_key]] += _matching(pod, rule, counted, cluster)
        least = min(counts.values(), default=0) if len(counts) >= rule.min_domains else 0
        if counts.get(value, 0) + _picks(pod, rule, pod) - least > rule.max_skew:
            return SKEWED
    return ""


def spread_scores(pod: Pod, fitting: Sequence[Node], cluster: Cluster) -> list[int] | None:
    """Return the normalised scores of the nodes that fit, None where no constraint scores."""
    rules = _rules(pod, UnsatisfiableAction.SCHEDULE_ANYWAY)
    if not rules:
        return None
    keys = [rule.topology_key for rule in rules]
    scored = [node for node in fitting if all(key in node.labels for key in keys)]
    whole = [node for node in cluster.nodes.values() if all(key in node.labels for key in keys)]
    raw: dict[str, int] = {}
    for node in scored:
        total = 0.0
        for rule in rules:
            key = rule.topology_key
            if key == LABEL_HOSTNAME:
                count, size = _matching(pod, rule, node, cluster), len(scored)
            else:
                size = len({node.labels[key] for node in scored})
                count = sum(
                    _matching(pod, rule, other, cluster)
                    for other in whole
                    if other.labels[key] == node.labels[key] and _counts(pod, rule, other)
                )
            total += count * log(size + 2) + (rule.max_skew - 1)
        raw[node.name] = floor(total + 0.5)
    least, highest = min(raw.values(), default=0), max(raw.values(), default=0)
    return [
        0
        if node.name not in raw
        else 100
        if highest == 0
        else 100 * (highest + least - raw[node.name]) // highest
        for node in fitting
    ]


def _required(affinity: PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
    return (affinity or _NONE).required


def _is_near(pod: Pod, node: Node, terms: Sequence[PodAffinityTerm], cluster: Cluster) -> bool:
    if not all(term.topology_key in node.labels for term in terms):
        return False
    kin = [
        place
        for other, place in cluster.placed()
        if all(_wants(pod, term, other, cluster, incoming=True) for term in terms)
    ]
    if all(any(_shares(term, node, place) for place in kin) for term in terms):
        return True
    known = any(term.topology_key in place.labels for place in kin for term in terms)
    return not known and all(_wants(pod, term, pod, cluster, incoming=True) for term in terms)


def _shares(term: PodAffinityTerm, one: Node, other: Node) -> bool:
    value = one.labels.get(term.topology_key)
    return value is not None and other.labels.get(term.topology_key) == value


def _wants(
    owner: Pod, term: PodAffinityTerm, other: Pod, cluster: Cluster, *, incoming: bool = False
) -> bool:
    """Return whether a pod's term selects another pod; the term of an incoming pod has names."""
    if term.selector is None or not term.selector.matches(other.labels):
        return False
    selector = term.namespace_selector
    if not term.namespaces and selector is None:
        return other.namespace == owner.namespace
    if other.namespace in term.namespaces:
        return True
    if selector is None:
        return False
    known = cluster.namespaces.get(other.namespace)
    if incoming and selector.requirements and known is None:
        return False
    return selector.matches(known.labels if known is not None else {})


def _weighted(pod: Pod, other: Pod, cluster: Cluster) -> Iterable[tuple[PodAffinityTerm, int]]:
    for sign, name in ((1, "pod_affinity"), (-1, "pod_anti_affinity")):
        own: PodAffinity = getattr(pod.spec, name) or _NONE
        theirs: PodAffinity = getattr(other.spec, name) or _NONE
        for weighted in own.preferred:
            if _wants(pod, weighted.term, other, cluster, incoming=True):
                yield weighted.term, sign * weighted.weight
        for weighted in theirs.preferred:
            if _wants(other, weighted.term, pod, cluster):
                yield weighted.term, sign * weighted.weight
    for term in _required(other.spec.pod_affinity):
        if _wants(other, term, pod, cluster):
            yield term, 1


def _rules(pod: Pod, action: UnsatisfiableAction) -> list[TopologySpreadConstraint]:
    return [
        constraint
        for constraint in pod.spec.topology_spread_constraints
        if constraint.when_unsatisfiable is action
    ]


def _picks(pod: Pod, rule: TopologySpreadConstraint, other: Pod) -> bool:
    own = {key: pod.labels[key] for key in rule.match_label_keys if key in pod.labels}
    if rule.selector is None and not own:
        return False
    selected = rule.selector is None or rule.selector.matches(other.labels)
    return selected and all(other.labels.get(key) == value for key, value in own.items())


def _matching(pod: Pod, rule: TopologySpreadConstraint, node: Node, cluster: Cluster) -> int:
    asks = (rule.selector is not None and rule.selector.requirements) or any(
        key in pod.labels for key in rule.match_label_keys
    )
    return sum(
        bool(asks)
        and other.node_name == node.name
        and other.namespace == pod.namespace
        and not other.is_terminating
        and _picks(pod, rule, other)
        for other in cluster.pods
    )


def _counts(pod: Pod, rule: TopologySpreadConstraint, node: Node) -> bool:
    if rule.node_affinity_policy is NodeInclusionPolicy.HONOR:
        if any(node.labels.get(key) != value for key, value in pod.spec.node_selector.items()):
            return False
        affinity = pod.spec.node_affinity
        required = affinity.required if affinity is not None else None
        if required is not None and not required.matches(node.labels, node.name):
            return False
    if rule.node_taints_policy is NodeInclusionPolicy.HONOR:
        return all(
            taint.effect is TaintEffect.PREFER_NO_SCHEDULE or tolerated(taint, pod.spec.tolerations)
            for taint in node.taints
        )
    return True
