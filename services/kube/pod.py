"""Pods: the fields that the scheduler, the preemptor and the replay's cluster read.

A PodSpec has the fields that a controller's template sets. The codec interns it, so pods made from
one template share one object, and `is` tells quickly whether two pods are equivalent. Pod has the
fields that differ between such pods, such as node, nomination and times.

Requests have Kubernetes' units: "cpu" in thousandths of a core, everything else in whole
units (bytes, pods, devices).

Source: kubernetes v1.34 api/core/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from services.kube.selector import (
    NodeSelector,
    NodeSelectorTerm,
    PodAffinity,
    TopologySpreadConstraint,
)
from services.kube.taints import Toleration
from services.kube.value import value
from services.kube.volumes import Volume

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_CRITICAL_PRIORITY = 2 * HIGHEST_USER_PRIORITY
SYSTEM_PREFIX = "system-"
EMPTY: Mapping[str, str] = MappingProxyType({})
NO_RESOURCES: Mapping[str, int] = MappingProxyType({})
DEFAULT_SCHEDULER = "default-scheduler"


class PodPhase(Enum):
    """The phase of a pod's life (status.phase)."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


# Constants for members: in Python 3.11 each access to a member of an Enum is a function call.
_SUCCEEDED, _FAILED = PodPhase.SUCCEEDED, PodPhase.FAILED
TERMINAL_PHASES = frozenset({_SUCCEEDED.value, _FAILED.value})
"""The phases (values of status.phase) of pods that have ended and no longer use their nodes."""


class PreemptionPolicy(Enum):
    """Whether a pod may preempt others."""

    PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"
    NEVER = "Never"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPort:
    """A port; `host_port` 0 requests no port of the host."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = ""
    protocol: str = "TCP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container; `requests` and `limits` by resource name, in Kubernetes' units.

    A resource that is missing in `requests` is not requested, which differs from a request of 0.
    `restart_policy` "Always" on an init container makes it a sidecar. `restart_actions` are the
    actions of its restartPolicyRules.
    """

    name: str
    image: str = ""
    requests: Mapping[str, int] = field(default_factory=lambda: NO_RESOURCES)
    limits: Mapping[str, int] = field(default_factory=lambda: NO_RESOURCES)
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    restart_actions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredSchedulingTerm:
    """A node preference with a `weight` from 1 to 100; 0 has no effect."""

    weight: int = 0
    term: NodeSelectorTerm = field(default_factory=NodeSelectorTerm)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAffinity:
    """Node affinity; `required` None requests nothing."""

    required: NodeSelector | None = None
    preferred: tuple[PreferredSchedulingTerm, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClaim:
    """A claim for devices, by its name within the pod's spec.

    The ResourceClaim is `claim_name`, or is created from a template (`from_template`); then the
    pod's status has its name. With neither, the claim is of an unknown kind.
    """

    name: str
    claim_name: str | None = None
    from_template: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodSpec:
    """The spec of a pod; compared by identity, because the codec interns it.

    `resources` are pod-level requests, None if the pod has none. `node_selector` has the labels
    that a node must have. `volumes` has only the volumes that a scheduler's plugin reads.
    `termination_grace_period_s` is None if the pod does not set it; the default is 30 s.
    """

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Mapping[str, int] = field(default_factory=lambda: NO_RESOURCES)
    resources: Mapping[str, int] | None = None
    node_selector: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: PreemptionPolicy = PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    scheduler_name: str = DEFAULT_SCHEDULER
    scheduling_gates: tuple[str, ...] = ()
    termination_grace_period_s: int | None = None
    host_network: bool = False
    device_claims: tuple[PodClaim, ...] = ()
    host_users: bool | None = None

    @property
    def has_pod_affinity(self) -> bool:
        """Return whether the spec has any term of pod affinity or anti-affinity."""
        near, away = self.pod_affinity, self.pod_anti_affinity
        return (near is not None and bool(near.required or near.preferred)) or (
            away is not None and bool(away.required or away.preferred)
        )


@value(kw_only=True)
class Condition:
    """One condition of a pod or a node; `status` is "True", "False" or "Unknown"."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    """An owner of an object; `controller` is set for the owner that manages the object."""

    kind: str
    name: str
    uid: str
    controller: bool = False
    api_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResources:
    """A container's resources in its status; they differ from the spec during a resize in place.

    `name` is "" for pod-level resources. `actual` has the requests in force, `allocated` the
    requests that the node has admitted: amounts by resource name as in a Container, sorted by name.
    """

    name: str
    actual: tuple[tuple[str, int], ...] = ()
    allocated: tuple[tuple[str, int], ...] = ()


@value(kw_only=True)
class Pod:
    """A pod as the API server holds it; times in ns since the Unix epoch.

    container_resources: of containers and sidecars whose status has resources. pod_resources: the
    pod-level resources in the status, None if it has none. claim_names: the ResourceClaims created
    for the pod, by their names in the spec; None for a claim that is not needed. start_time_ns:
    status.startTime, None before the kubelet has seen the pod. deletion_ns:
    metadata.deletionTimestamp (time of the request plus grace period), None unless terminating.
    """

    uid: str
    namespace: str
    name: str
    spec: PodSpec
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    owners: tuple[OwnerReference, ...] = ()
    node_name: str = ""
    nominated_node_name: str = ""
    phase: PodPhase = PodPhase.PENDING
    conditions: tuple[Condition, ...] = field(default=())
    container_resources: tuple[ContainerResources, ...] = ()
    pod_resources: ContainerResources | None = None
    claim_names: tuple[tuple[str, str | None], ...] = ()
    creation_ns: int = 0
    start_time_ns: int | None = None
    deletion_ns: int | None = None
    resource_version: str = ""

    @property
    def key(self) -> str:
        """Return namespace/name, as upstream's queues and messages name a pod."""
        return f"{self.namespace}/{self.name}"

    @property
    def priority(self) -> int:
        """Return spec.priority (0 if it was absent)."""
        return self.spec.priority

    @property
    def reports_resources(self) -> bool:
        """Return whether the status has resources, of a container or pod-level ones."""
        return bool(self.container_resources) or self.pod_resources is not None

    @property
    def is_terminal(self) -> bool:
        """Return whether the pod has ended and no longer uses its node."""
        return self.phase is _SUCCEEDED or self.phase is _FAILED

    @property
    def is_terminating(self) -> bool:
        """Return whether deletion was requested."""
        return self.deletion_ns is not None

    def condition(self, type_: str) -> Condition | None:
        """Return the condition with this type; None if there is none."""
        return next((condition for condition in self.conditions if condition.type == type_), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A named priority `value`; at most one class is the global default."""

    name: str
    value: int
    global_default: bool = False
    preemption_policy: PreemptionPolicy = PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    description: str = ""


SYSTEM_CLASSES = (
    PriorityClass(name="system-cluster-critical", value=SYSTEM_CRITICAL_PRIORITY),
    PriorityClass(name="system-node-critical", value=SYSTEM_CRITICAL_PRIORITY + 1000),
)
