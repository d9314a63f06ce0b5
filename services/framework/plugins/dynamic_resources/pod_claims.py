"""The claims of one pod, as PreFilter reads them: which are allocated, and what is to be allocated.

Source: kubernetes v1.36 plugins/dynamicresources/dynamicresources.go, foreachPodResourceClaim,
PreFilter, validateDeviceClass; dynamic-resource-allocation/resourceclaim/resourceclaim.go, Name and
IsForPod.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from services.framework.plugins.dynamic_resources.allocator import Chosen
from services.framework.snapshot.devices import Devices
from services.framework.status import Code
from services.kube.devices import (
    BINDING_TIMEOUT_NS,
    AllocatedDevice,
    ClaimSpec,
    DeviceRequest,
    ResourceClaim,
)
from services.kube.pod import Pod, PodSpec
from services.kube.selector import NodeSelector

EXTENDED = "<extended-resources>"
"""The name of the claim for extended resources before it is created."""


class UnusableClaim(Exception):  # noqa: N818 - a refusal of the pod
    """A claim that a pod cannot use; the text is upstream's."""


@dataclass(frozen=True, slots=True)
class ClaimState:
    """The properties of one claim that a pod's verdicts depend on.

    spec: None for an allocated claim; nodes: which nodes reach what it has, None for all. is_late:
    its devices were not made ready in time, or failed. freed: namespace/name of an allocated claim
    that no other pod uses, so that PostFilter may give it back; "" for another one.
    """

    spec: ClaimSpec | None
    nodes: NodeSelector | None = None
    is_late: bool = False
    freed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsKey:
    """The key of a pod's verdicts: all inputs of its claims beside devices and nodes.

    problem: why the pod cannot be scheduled anywhere; is_error: as an error. extended: the spec
    whose extended resources classes serve, None for a pod without such; is_stale: a claim for them
    is left from an earlier attempt, with requests. left_over: its namespace/name, "" for none.
    """

    states: tuple[ClaimState, ...] = ()
    extended: PodSpec | None = None
    is_stale: bool = False
    left_over: str = ""
    class_version: int = 0
    problem: str = ""
    is_error: bool = False


@dataclass(slots=True, kw_only=True)
class NodeResult:
    """The result of Filter on one node: a code, and the allocations of the claims.

    requests, mappings: those of the claim for extended resources on this node; requests None: it
    needs none here.
    """

    code: int = 0
    chosen: Chosen | None = None
    requests: tuple[DeviceRequest, ...] | None = None
    mappings: tuple[tuple[str, str, str], ...] = ()
    score: int = 0


@dataclass(slots=True, kw_only=True, weakref_slot=True)
class PreparedClaims:
    """A key's claims with the results by row; `texts` are the statuses by code, from 1.

    claims: those of the first pod with that key.
    """

    key: ClaimsKey
    claims: tuple[ResourceClaim, ...]
    texts: list[tuple[Code, str]] = field(default_factory=list)
    results: dict[int, NodeResult] = field(default_factory=dict)

    def code_of(self, code: Code, text: str) -> int:
        """Return the number of a status."""
        status = (code, text)
        if status not in self.texts:
            self.texts.append(status)
        return self.texts.index(status) + 1


def claims_of(pod: Pod, devices: Devices, not_owner: str) -> tuple[ResourceClaim, ...]:
    """Return the claims that the pod's spec names, in its order. Raises UnusableClaim.

    `not_owner` is the text for a claim that was made for another pod.
    """
    return tuple(_claims(pod, devices, not_owner))


def _claims(pod: Pod, devices: Devices, not_owner: str) -> Iterator[ResourceClaim]:
    made = dict(pod.claim_names)
    for claim in pod.spec.device_claims:
        name = claim.claim_name
        if name is None and claim.from_template:
            if claim.name not in made:
                raise UnusableClaim(f'pod "{pod.key}": ResourceClaim not created yet')
            name = made[claim.name]
            if name is None:
                continue
        elif name is None:
            raise UnusableClaim(
                f'pod "{pod.key}", spec.resourceClaim "{claim.name}": none of the supported fields '
                "are set"
            )
        key = f"{pod.namespace}/{name}"
        held = devices.claims.get(key)
        if held is None:
            raise UnusableClaim(f'could not find ResourceClaim "{key}"')
        if held.deletion_ns is not None:
            raise UnusableClaim(f'resourceclaim "{name}" is being deleted')
        if claim.claim_name is None and not held.is_controlled_by(pod.uid):
            raise UnusableClaim(not_owner.format(claim=key, pod=pod.key))
        yield held


def problem_of(claim: ResourceClaim, devices: Devices) -> tuple[str, bool]:
    """Return why an unallocated claim cannot be allocated anywhere, and whether it is an error."""
    for request in claim.spec.requests:
        if request.exactly is not None:
            names = [(request.name, request.exactly.class_name)]
        elif request.first_available:
            names = [
                (f"{request.name}/{detail.name}", detail.class_name)
                for detail in request.first_available
            ]
        else:
            text = f"resource claim {claim.key}, request {request.name}: unknown request type"
            return text, False
        for name, class_name in names:
            if not class_name:
                return f"request {name}: unsupported request type", True
            if class_name not in devices.classes:
                return f"request {name}: device class {class_name} does not exist", False
    return "", False


def is_late(claim: ResourceClaim, now_ns: int) -> bool:
    """Return whether an allocated claim's devices failed, or were not made ready in time.

    Source: isClaimReadyForBinding, isClaimTimeout.
    """
    ready = _readiness(claim)
    if ready is not False:
        return ready is None
    allocation = claim.allocation
    return (
        allocation is not None
        and allocation.time_ns is not None
        and any(device.binding_conditions for device in allocation.devices)
        and allocation.time_ns + BINDING_TIMEOUT_NS < now_ns
    )


def is_ready(claim: ResourceClaim) -> bool:
    """Return whether nothing has to be made ready for a pod with the claim."""
    return claim.allocation is None or _readiness(claim) is True


def _readiness(claim: ResourceClaim) -> bool | None:
    """Return whether all binding conditions are true; None where one of failure is."""
    for device in () if claim.allocation is None else claim.allocation.devices:
        if not device.binding_conditions:
            continue
        status = _conditions(claim, device)
        if any(status.get(name) == "True" for name in device.binding_failure_conditions):
            return None
        if any(status.get(name) != "True" for name in device.binding_conditions):
            return False
    return True


def _conditions(claim: ResourceClaim, device: AllocatedDevice) -> dict[str, str]:
    return {
        condition.type: condition.status
        for condition in claim.conditions
        if condition.device == device.id
    }
