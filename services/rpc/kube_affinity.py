"""Pod affinity and topology spread constraints: messages to values."""

from __future__ import annotations

from collections.abc import Iterable

from reprieve.kube.v1beta1 import affinity_pb2
from services.kube.affinity import PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
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
        selector=kube_fields.optional_selector(message, "label_selector", f"{field}.labelSelector"),
        namespaces=tuple(message.namespaces),
        namespace_selector=kube_fields.optional_selector(
            message, "namespace_selector", f"{field}.namespaceSelector"
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
        selector=kube_fields.optional_selector(message, "label_selector", f"{field}.labelSelector"),
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
