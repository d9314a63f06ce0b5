"""Pod affinity and topology spread constraints: messages to values and back."""

from __future__ import annotations

from collections.abc import Iterable

from reprieve.kube.v1alpha1 import affinity_pb2, meta_pb2
from services.kube.affinity import PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from services.kube.selector import LabelSelector
from services.kube.spread import (
    NodeInclusionPolicy,
    TopologySpreadConstraint,
    UnsatisfiableAction,
)
from services.rpc import kube_fields
from services.rpc.errors import FieldError

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod_affinity(
    message: affinity_pb2.PodAffinity | affinity_pb2.PodAntiAffinity, field: str
) -> PodAffinity:
    """Return the terms of an affinity or an anti-affinity. Raises FieldError."""
    required = message.required_during_scheduling_ignored_during_execution
    preferred = message.preferred_during_scheduling_ignored_during_execution
    return PodAffinity(
        required=tuple(
            _term(each, f"{field}.{_REQUIRED}[{index}]") for index, each in enumerate(required)
        ),
        preferred=tuple(
            WeightedPodAffinityTerm(
                weight=each.weight,
                term=_term(
                    each.pod_affinity_term, f"{field}.{_PREFERRED}[{index}].podAffinityTerm"
                ),
            )
            for index, each in enumerate(preferred)
        ),
    )


def _term(message: affinity_pb2.PodAffinityTerm, field: str) -> PodAffinityTerm:
    return PodAffinityTerm(
        topology_key=message.topology_key,
        selector=(
            kube_fields.label_selector(message.label_selector, f"{field}.labelSelector")
            if message.HasField("label_selector")
            else None
        ),
        namespaces=tuple(message.namespaces),
        namespace_selector=(
            kube_fields.label_selector(message.namespace_selector, f"{field}.namespaceSelector")
            if message.HasField("namespace_selector")
            else None
        ),
        match_label_keys=tuple(message.match_label_keys),
        mismatch_label_keys=tuple(message.mismatch_label_keys),
    )


def spread_constraints(
    messages: Iterable[affinity_pb2.TopologySpreadConstraint], field: str
) -> tuple[TopologySpreadConstraint, ...]:
    """Return a pod's constraints; a skew or a number of domains below 1 is refused."""
    return tuple(
        spread_constraint(each, f"{field}[{index}]") for index, each in enumerate(messages)
    )


def spread_constraint(
    message: affinity_pb2.TopologySpreadConstraint, field: str
) -> TopologySpreadConstraint:
    """Return one constraint. Raises FieldError."""
    if message.max_skew < 1:
        raise FieldError(f"{field}.maxSkew", f"{message.max_skew} is too small: use 1 or more")
    min_domains = message.min_domains if message.HasField("min_domains") else 1
    if min_domains < 1:
        raise FieldError(f"{field}.minDomains", f"{min_domains} is too small: use 1 or more")
    return TopologySpreadConstraint(
        max_skew=message.max_skew,
        topology_key=message.topology_key,
        when_unsatisfiable=kube_fields.choice(
            UnsatisfiableAction, message.when_unsatisfiable, f"{field}.whenUnsatisfiable"
        ),
        selector=(
            kube_fields.label_selector(message.label_selector, f"{field}.labelSelector")
            if message.HasField("label_selector")
            else None
        ),
        min_domains=min_domains,
        node_affinity_policy=_policy(
            message.node_affinity_policy, NodeInclusionPolicy.HONOR, f"{field}.nodeAffinityPolicy"
        ),
        node_taints_policy=_policy(
            message.node_taints_policy, NodeInclusionPolicy.IGNORE, f"{field}.nodeTaintsPolicy"
        ),
        match_label_keys=tuple(message.match_label_keys),
    )


def _policy(text: str, default: NodeInclusionPolicy, field: str) -> NodeInclusionPolicy:
    return kube_fields.choice(NodeInclusionPolicy, text, field) if text else default


def pod_affinity_to_message(affinity: PodAffinity | None) -> affinity_pb2.PodAffinity | None:
    """Return the affinity as a message."""
    if affinity is None:
        return None
    return affinity_pb2.PodAffinity(
        required_during_scheduling_ignored_during_execution=map(
            _term_to_message, affinity.required
        ),
        preferred_during_scheduling_ignored_during_execution=map(
            _weighted_to_message, affinity.preferred
        ),
    )


def pod_anti_affinity_to_message(
    affinity: PodAffinity | None,
) -> affinity_pb2.PodAntiAffinity | None:
    """Return the anti-affinity as a message."""
    if affinity is None:
        return None
    return affinity_pb2.PodAntiAffinity(
        required_during_scheduling_ignored_during_execution=map(
            _term_to_message, affinity.required
        ),
        preferred_during_scheduling_ignored_during_execution=map(
            _weighted_to_message, affinity.preferred
        ),
    )


def _weighted_to_message(each: WeightedPodAffinityTerm) -> affinity_pb2.WeightedPodAffinityTerm:
    return affinity_pb2.WeightedPodAffinityTerm(
        weight=each.weight, pod_affinity_term=_term_to_message(each.term)
    )


def _term_to_message(term: PodAffinityTerm) -> affinity_pb2.PodAffinityTerm:
    return affinity_pb2.PodAffinityTerm(
        label_selector=_selector(term.selector),
        namespaces=term.namespaces,
        topology_key=term.topology_key,
        namespace_selector=_selector(term.namespace_selector),
        match_label_keys=term.match_label_keys,
        mismatch_label_keys=term.mismatch_label_keys,
    )


def spread_constraint_to_message(
    constraint: TopologySpreadConstraint,
) -> affinity_pb2.TopologySpreadConstraint:
    """Return the constraint as a message, its defaults spelt out."""
    return affinity_pb2.TopologySpreadConstraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        when_unsatisfiable=constraint.when_unsatisfiable.value,
        label_selector=_selector(constraint.selector),
        min_domains=constraint.min_domains,
        node_affinity_policy=constraint.node_affinity_policy.value,
        node_taints_policy=constraint.node_taints_policy.value,
        match_label_keys=constraint.match_label_keys,
    )


def _selector(selector: LabelSelector | None) -> meta_pb2.LabelSelector | None:
    return None if selector is None else kube_fields.label_selector_to_message(selector)
