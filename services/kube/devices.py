"""Devices: slices that offer them, classes and claims that request them, and allocations.

Amounts are the unparsed texts of quantities, because an allocation is written back unchanged;
`services.kube.quantity.parse` caches the value of each text.

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
from services.kube.time import SECOND_NS

FINALIZER = "resource.kubernetes.io/delete-protection"
"""The finalizer that prevents the deletion of an allocated claim."""
EXTENDED_RESOURCE_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
"""Marks a claim that the scheduler created for a pod's extended resources."""
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
"""Which claim of its pod a claim was made for, by the name in the pod."""
RESULTS_MAX = 32
"""The largest number of devices of one claim (AllocationResultsMaxSize)."""
BINDING_TIMEOUT_NS = 600 * SECOND_NS
"""How long drivers have to make devices ready for a binding (BindingTimeoutDefaultSeconds)."""
BINDING_TIMEOUT = "device binding timeout"
"""Why a binding failed whose drivers took longer."""
IMPLICIT_EXTENDED_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Prefix of the implicit extended resource of a class; the class's name follows."""


class SelectorError(Exception):
    """An expression that cannot be compiled or evaluated for a device; the message says why."""


class MatchDevice(Protocol):
    """Evaluates the expressions of selectors."""

    def __call__(self, expression: str, device: Device, driver: str) -> bool:
        """Return whether a device of `driver` meets an expression. Raises SelectorError."""


@dataclass(frozen=True, slots=True)
class Version:
    """The value of an attribute that is a semantic version."""

    text: str


AttributeValue = bool | int | str | Version | None
"""An attribute's value; None for an unknown type of value."""


class AllocationMode(Enum):
    """Whether a request asks for a number of devices, or for all."""

    EXACT_COUNT = "ExactCount"
    ALL = "All"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolicy:
    """The amounts of a capacity that a claim may consume: `values` (ascending), or a range.

    default: the amount for requests without an amount. low, high, step: of the valid range; None
    means no range, no upper bound, and any amount. `has_range`: whether there is a range.
    """

    default: str | None = None
    values: tuple[str, ...] = ()
    has_range: bool = False
    low: str | None = None
    high: str | None = None
    step: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCapacity:
    """An amount that a device has, and the amounts of it that one claim may consume."""

    value: str
    policy: RequestPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTaint:
    """A taint that keeps claims without a toleration off a device; `effect` as in upstream."""

    key: str
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceToleration:
    """A toleration of taints of devices; the operator "" means Equal."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Return whether the toleration matches a taint; the caller has checked the taint's effect.

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
    """The nodes that can access a device or a pool: a named node, a selector's nodes, or all."""

    node_name: str = ""
    selector: NodeSelector | None = None
    all_nodes: bool = False

    @property
    def is_given(self) -> bool:
        """Return whether any field is set; if none is, no node has access."""
        return bool(self.node_name) or self.all_nodes or self.selector is not None

    def reaches(self, node_name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node has access."""
        if self.node_name:
            return self.node_name == node_name
        if self.all_nodes:
            return True
        return self.selector is not None and self.selector.matches(labels, node_name)


CounterSets = Mapping[str, Mapping[str, str]]
"""Amounts by counter, by counter set."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Device:
    """One device of a slice; devices are compared by identity.

    nodes: the nodes with access, if each device of the slice names its nodes. consumes: the amounts
    that it takes from each counter set, in the order of the slice.
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

    nodes: the nodes with access to the devices, unless `per_device` is set and each device has its
    own nodes.
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
    """Parameters for a driver; `parameters` is JSON text."""

    driver: str
    parameters: str = ""


Selectors = tuple[str | None, ...]
"""Expressions that a device must all meet; None stands for an unknown kind of selector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """A class of devices; `extended_resource_name` None: it has only its implicit resource name."""

    name: str
    selectors: Selectors = ()
    config: tuple[OpaqueConfiguration | None, ...] = ()
    extended_resource_name: str | None = None
    creation_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDetail:
    """The devices that an exact request, or one alternative of a request, asks for.

    mode: "ExactCount", "All", or an unknown word. admin_access: None if it is not set. capacity:
    requested amounts by name; None if the request has no capacities.
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
    """A request: `exactly` one detail, or several alternatives of which the first possible is used.

    A request with neither is of an unknown kind.
    """

    name: str
    exactly: RequestDetail | None = None
    first_available: tuple[RequestDetail, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConstraint:
    """A constraint across the devices of `requests`; if empty, across all devices of the claim."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimConfiguration:
    """Configuration for the devices of `requests`; if empty, for all devices of the claim."""

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

    share_id: set if several claims may share the device; then `consumed` has the amounts of its
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
    """Configuration in an allocation; `source` is "FromClass" or "FromClaim"."""

    source: str
    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A claim's devices, in the order of its requests.

    Without a selector, every node can use the devices.
    """

    devices: tuple[AllocatedDevice, ...] = ()
    config: tuple[AllocatedConfiguration, ...] = ()
    node_selector: NodeSelector | None = None
    time_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """An object for which a claim is reserved."""

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
    """A claim of devices; `allocation` is None if it is not allocated."""

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
    """The changes of a pod's claims by a binding; `claims` and `created` have the state after it.

    mappings: for each container and extended resource, the request of `created` that provides it.
    waits: whether drivers must prepare devices before the pod is bound.
    """

    claims: tuple[ResourceClaim, ...] = ()
    created: ResourceClaim | None = None
    mappings: tuple[tuple[str, str, str], ...] = ()
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedClaims:
    """Claims to deallocate, "namespace/name", because no node fits their pod with them."""

    deallocated: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
