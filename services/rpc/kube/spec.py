"""Decodes pod specs; all pods made from one template share one value.

Separate functions read pod affinity and topology spread constraints.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprieve.kube.v1beta1 import affinity_pb2, pod_pb2
from services.kube.pod import (
    DEFAULT_SCHEDULER,
    Container,
    ContainerPort,
    NodeAffinity,
    PodClaim,
    PodSpec,
    PreferredSchedulingTerm,
)
from services.kube.selector import (
    NodeInclusionPolicy,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    UnsatisfiableAction,
    WeightedPodAffinityTerm,
)
from services.rpc.errors import FieldError
from services.rpc.kube import fields, storage

_PORT_MAX = 65535


RESOURCES_MAX = 60
"""Limit for the number of resources that a pod requests: a refusal has 64 bits, one for each."""


class PodSpecInterner:
    """Returns one PodSpec for equal specs, so that pods can be compared by `is`.

    Two specs are equal if their messages are equal, apart from the node's name and projected
    volumes, whose names an API server generates for each pod. At most `limit` specs are kept, and
    the oldest one is dropped first; if a dropped spec occurs again, a second object is created,
    which does not change results.
    """

    __slots__ = ("_limit", "_specs")

    def __init__(self, *, limit: int = 65536) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        self._limit = limit
        self._specs: dict[bytes, PodSpec] = {}

    @property
    def size(self) -> int:
        """The number of specs that are kept."""
        return len(self._specs)

    def spec(self, message: pod_pb2.PodSpec, *, field: str = "pod.spec") -> PodSpec:
        """Return the shared spec of `message`. Raises FieldError."""
        key = _key(message)
        spec = self._specs.get(key)
        if spec is None:
            spec = spec_from_message(message, field=field)
            if len(self._specs) >= self._limit:
                del self._specs[next(iter(self._specs))]
            self._specs[key] = spec
        return spec


def _key(message: pod_pb2.PodSpec) -> bytes:
    if message.node_name or message.volumes:
        bare = pod_pb2.PodSpec()
        bare.CopyFrom(message)
        bare.node_name = ""
        kept = [volume for volume in bare.volumes if not volume.HasField("projected")]
        if len(kept) != len(bare.volumes):
            del bare.volumes[:]
            bare.volumes.extend(kept)
        message = bare
    return message.SerializeToString(deterministic=True)


def spec_from_message(message: pod_pb2.PodSpec, *, field: str = "pod.spec") -> PodSpec:
    """Return the spec's value, not interned.

    Raises FieldError, with a path below `field`, for invalid and negative quantities, unknown
    operators, effects and policies, ports out of range, and requests of more than RESOURCES_MAX
    resources.
    """
    affinity = message.affinity
    policy = fields.preemption_policy(message.preemption_policy, f"{field}.preemptionPolicy")
    containers = _containers(message.containers, f"{field}.containers")
    init_containers = _containers(message.init_containers, f"{field}.initContainers")
    _check_resources((*containers, *init_containers), f"{field}.containers")
    return PodSpec(
        containers=containers,
        init_containers=init_containers,
        overhead=fields.resources(message.overhead, f"{field}.overhead"),
        resources=(
            fields.resources(message.resources.requests, f"{field}.resources.requests")
            if message.HasField("resources")
            else None
        ),
        node_selector=fields.strings(message.node_selector),
        node_affinity=fields.optional_part(
            affinity, "node_affinity", _node_affinity, f"{field}.affinity.nodeAffinity"
        ),
        pod_affinity=fields.optional_part(
            affinity, "pod_affinity", pod_affinity, f"{field}.affinity.podAffinity"
        ),
        pod_anti_affinity=fields.optional_part(
            affinity, "pod_anti_affinity", pod_affinity, f"{field}.affinity.podAntiAffinity"
        ),
        topology_spread_constraints=spread_constraints(
            message.topology_spread_constraints, f"{field}.topologySpreadConstraints"
        ),
        volumes=storage.pod_volumes(message.volumes),
        tolerations=fields.tolerations(message.tolerations, f"{field}.tolerations"),
        priority=message.priority,
        priority_class_name=message.priority_class_name,
        preemption_policy=policy,
        scheduler_name=message.scheduler_name or DEFAULT_SCHEDULER,
        scheduling_gates=tuple(gate.name for gate in message.scheduling_gates),
        termination_grace_period_s=fields.optional(message, "termination_grace_period_seconds"),
        host_network=message.host_network,
        host_users=fields.optional(message, "host_users"),
        device_claims=tuple(
            PodClaim(
                name=claim.name,
                claim_name=fields.optional(claim, "resource_claim_name"),
                from_template=claim.HasField("resource_claim_template_name"),
            )
            for claim in message.resource_claims
        ),
    )


def _check_resources(containers: Iterable[Container], field: str) -> None:
    named = {name for container in containers for name in container.requests}
    if len(named) > RESOURCES_MAX:
        raise FieldError(
            field, f"{len(named)} resources are requested: request at most {RESOURCES_MAX}"
        )


def _containers(messages: Iterable[pod_pb2.Container], field: str) -> tuple[Container, ...]:
    return tuple(
        _container(container, f"{field}[{index}]") for index, container in enumerate(messages)
    )


def _container(message: pod_pb2.Container, field: str) -> Container:
    resources = message.resources
    return Container(
        name=message.name,
        image=message.image,
        requests=fields.resources(resources.requests, f"{field}.resources.requests"),
        limits=fields.resources(resources.limits, f"{field}.resources.limits"),
        ports=tuple(
            _port(port, f"{field}.ports[{index}]") for index, port in enumerate(message.ports)
        ),
        restart_policy=message.restart_policy,
        restart_actions=tuple(rule.action for rule in message.restart_policy_rules),
    )


def _port(message: pod_pb2.ContainerPort, field: str) -> ContainerPort:
    for name, port in (("containerPort", message.container_port), ("hostPort", message.host_port)):
        if not 0 <= port <= _PORT_MAX:
            raise FieldError(f"{field}.{name}", f"{port} is not a port: use 0 to {_PORT_MAX}")
    return ContainerPort(
        container_port=message.container_port,
        host_port=message.host_port,
        host_ip=message.host_ip,
        protocol=message.protocol or "TCP",
    )


def _node_affinity(message: affinity_pb2.NodeAffinity, field: str) -> NodeAffinity:
    preferred = message.preferred_during_scheduling_ignored_during_execution
    preferred_name = "preferredDuringSchedulingIgnoredDuringExecution"
    return NodeAffinity(
        required=fields.optional_part(
            message,
            "required_during_scheduling_ignored_during_execution",
            fields.node_selector,
            f"{field}.requiredDuringSchedulingIgnoredDuringExecution",
        ),
        preferred=tuple(
            PreferredSchedulingTerm(
                weight=term.weight,
                term=fields.node_selector_term(
                    term.preference, f"{field}.{preferred_name}[{index}].preference"
                ),
            )
            for index, term in enumerate(preferred)
        ),
    )


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
            _term(term, f"{field}.{_REQUIRED}[{index}]") for index, term in enumerate(required)
        ),
        preferred=tuple(
            WeightedPodAffinityTerm(
                weight=term.weight,
                term=_term(
                    term.pod_affinity_term, f"{field}.{_PREFERRED}[{index}].podAffinityTerm"
                ),
            )
            for index, term in enumerate(preferred)
        ),
    )


def _term(message: affinity_pb2.PodAffinityTerm, field: str) -> PodAffinityTerm:
    return PodAffinityTerm(
        topology_key=message.topology_key,
        selector=fields.optional_selector(message, "label_selector", f"{field}.labelSelector"),
        namespaces=tuple(message.namespaces),
        namespace_selector=fields.optional_selector(
            message, "namespace_selector", f"{field}.namespaceSelector"
        ),
        match_label_keys=tuple(message.match_label_keys),
        mismatch_label_keys=tuple(message.mismatch_label_keys),
    )


def spread_constraints(
    messages: Iterable[affinity_pb2.TopologySpreadConstraint], field: str
) -> tuple[TopologySpreadConstraint, ...]:
    """Return a pod's constraints; raises FieldError for a skew or a number of domains below 1."""
    return tuple(
        spread_constraint(constraint, f"{field}[{index}]")
        for index, constraint in enumerate(messages)
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
        when_unsatisfiable=fields.choice(
            UnsatisfiableAction, message.when_unsatisfiable, f"{field}.whenUnsatisfiable"
        ),
        selector=fields.optional_selector(message, "label_selector", f"{field}.labelSelector"),
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
    return fields.choice(NodeInclusionPolicy, text, field) if text else default
