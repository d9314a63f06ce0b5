"""Devices: slices that offer them, classes and claims that request them, and what was allocated.

Amounts are texts of quantities, as they came: what is allocated is written back unchanged, and
`services.kube.quantity.parse` keeps each text's value.

Source: kubernetes v1.36 staging/src/k8s.io/api/resource/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from services.kube.pod import EMPTY, OwnerReference
from services.kube.selector import NodeSelector

FINALIZER = "resource.kubernetes.io/delete-protection"
"""Keeps an allocated claim from being deleted."""
EXTENDED_RESOURCE_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
"""Marks a claim that the scheduler made for a pod's extended resources."""
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
"""Which claim of its pod a claim was made for, by the name in the pod."""
RESULTS_MAX = 32
"""Devices that one claim can have at most (AllocationResultsMaxSize)."""
IMPLICIT_EXTENDED_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Together with the name of a class: the extended resource that every class serves."""


class SelectorError(Exception):
    """An expression that cannot be compiled or evaluated for a device; the text says why."""


class MatchDevice(Protocol):
    """Evaluates the expressions of selectors."""

    def __call__(self, expression: str, device: Device, driver: str) -> bool:
        """Return whether a device of `driver` meets an expression. Raises SelectorError."""


@dataclass(frozen=True, slots=True)
class Version:
    """The value of an attribute that is a semantic version."""

    text: str


AttributeValue = bool | int | str | Version | None
"""An attribute's value; None for a kind of value that is not known."""


class AllocationMode(Enum):
    """The number of devices that a request wants: a count, or all."""

    EXACT_COUNT = "ExactCount"
    ALL = "All"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolicy:
    """The amounts of a capacity that a claim may consume: `values`, ascending, or from `low` on.

    default: for requests without an amount. low, high, step: of the valid range; None: no range, no
    bound, any amount. `has_range` says whether there is a range at all.
    """

    default: str | None = None
    values: tuple[str, ...] = ()
    has_range: bool = False
    low: str | None = None
    high: str | None = None
    step: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCapacity:
    """An amount that a device has, and what one claim may consume of it."""

    value: str
    policy: RequestPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTaint:
    """Keeps claims without a toleration off a device; `effect` is a word of upstream's."""

    key: str
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceToleration:
    """Tolerates taints of devices; `operator` "" is Equal."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Return whether the toleration matches a taint, whose effect the caller has judged.

        Source: kubernetes v1.36 dynamic-resource-allocation/resourceclaim/devicetoleration.go,
        ToleratesTaint.
        """
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        return self.operator == "Exists" or (
            self.operator in {"", "Equal"} and self.value == taint.value
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChoice:
    """The nodes that can access a device or a pool: one by name, those of a selector, or all."""

    node_name: str = ""
    selector: NodeSelector | None = None
    all_nodes: bool = False

    @property
    def is_given(self) -> bool:
        """Return whether anything is set; otherwise no node reaches it."""
        return bool(self.node_name) or self.all_nodes or self.selector is not None

    def reaches(self, node_name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node is among them."""
        if self.node_name:
            return self.node_name == node_name
        if self.all_nodes:
            return True
        return self.selector is not None and self.selector.matches(labels, node_name)


CounterSets = Mapping[str, Mapping[str, str]]
"""Amounts by counter, by counter set."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Device:
    """One device of a slice; compared by identity, since its slice holds it.

    nodes: which nodes reach it where devices name their nodes. consumes: what it takes of each
    counter set, in the order of the slice.
    """

    name: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=lambda: MappingProxyType({}))
    capacity: Mapping[str, DeviceCapacity] = field(default_factory=lambda: MappingProxyType({}))
    consumes: tuple[tuple[str, Mapping[str, str]], ...] = ()
    nodes: NodeChoice = NodeChoice()
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allows_multiple: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResourceSlice:
    """A slice of a pool: devices, or the counter sets that the pool's devices consume.

    nodes: which nodes reach the devices, unless `per_device` leaves that to each device.
    """

    name: str
    driver: str
    pool: str
    generation: int = 0
    slice_count: int = 0
    nodes: NodeChoice = NodeChoice()
    per_device: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[tuple[str, Mapping[str, str]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueConfiguration:
    """A driver's own parameters; `parameters` is JSON text."""

    driver: str
    parameters: str = ""


Selectors = tuple[str | None, ...]
"""Expressions, all of which a device must meet; None is a kind of selector that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """A kind of devices; `extended_resource_name` None: it serves its implicit name alone."""

    name: str
    selectors: Selectors = ()
    config: tuple[OpaqueConfiguration | None, ...] = ()
    extended_resource_name: str | None = None
    creation_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDetail:
    """The devices that an exact request or one alternative wants.

    mode: "ExactCount", "All", or a word that is not known. admin_access: None where it is not set.
    capacity: requested amounts by name; None where the request has no capacities.
    """

    name: str
    class_name: str
    selectors: Selectors = ()
    mode: str = AllocationMode.EXACT_COUNT.value
    count: int = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """A request: `exactly` one detail, or the first of several that can be met.

    With neither it is of a kind that is not known.
    """

    name: str
    exactly: RequestDetail | None = None
    first_available: tuple[RequestDetail, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConstraint:
    """A constraint across the devices of `requests`; if empty, across all of the claim."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimConfiguration:
    """Configuration for the devices of `requests` (all of the claim where empty)."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSpec:
    """The spec of a claim."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[ClaimConfiguration, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class DeviceId:
    """Identifies a device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedDevice:
    """A device of a claim; `request` is "REQUEST/SUBREQUEST" for an alternative.

    share_id: set where several claims may share the device; `consumed` are then the amounts of its
    capacities, by name.
    """

    request: str
    id: DeviceId
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = None
    consumed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedConfiguration:
    """Configuration that an allocation brings; `source` is "FromClass" or "FromClaim"."""

    source: str
    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A claim's devices, in the order of its requests; without a selector, usable on every node."""

    devices: tuple[AllocatedDevice, ...] = ()
    config: tuple[AllocatedConfiguration, ...] = ()
    node_selector: NodeSelector | None = None
    time_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """An object that may use a claim."""

    name: str
    uid: str
    resource: str = "pods"
    api_group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCondition:
    """A condition that a driver reports about one device of a claim."""

    device: DeviceId
    type: str
    status: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceClaim:
    """A claim of devices; `allocation` None: nothing is allocated."""

    namespace: str
    name: str
    uid: str = ""
    spec: ClaimSpec = ClaimSpec()
    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()
    conditions: tuple[DeviceCondition, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    owners: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    generate_name: str = ""
    deletion_ns: int | None = None
    resource_version: str = ""

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"

    def is_reserved_for(self, uid: str) -> bool:
        """Return whether the object of that UID may use the claim."""
        return any(consumer.uid == uid for consumer in self.reserved_for)

    def is_controlled_by(self, uid: str) -> bool:
        """Return whether the object of that UID is the claim's controller."""
        return any(owner.controller and owner.uid == uid for owner in self.owners)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimChanges:
    """The changes of a pod's claims by a binding; `claims` and `created` are as they are after it.

    mappings: for each container and extended resource the request of `created` that serves it.
    waits: whether drivers have to make devices ready before the pod is bound.
    """

    claims: tuple[ResourceClaim, ...] = ()
    created: ResourceClaim | None = None
    mappings: tuple[tuple[str, str, str], ...] = ()
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedClaims:
    """Claims to deallocate, "namespace/name", since their pod fits on no node with them."""

    deallocated: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
