"""Decodes ResourceSlices, DeviceClasses and ResourceClaims; encodes allocations and claims.

Functions with a parameter `field`, the message's path, raise FieldError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from reprieve.kube.v1beta1 import affinity_pb2, device_pb2, meta_pb2
from services.kube import devices
from services.kube.selector import NodeSelector, Requirement
from services.rpc.kube import fields

_SPECS_MAX = 1024
"""Specs of claims that are kept; claims of one template have the same."""


def resource_slice_from_message(
    message: device_pb2.ResourceSlice, field: str = "resource_slice"
) -> devices.ResourceSlice:
    """Return the slice."""
    spec, path = message.spec, f"{field}.spec"
    return devices.ResourceSlice(
        name=message.metadata.name,
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slice_count=spec.pool.resource_slice_count,
        nodes=_nodes(spec, path),
        per_device=fields.optional(spec, "per_device_node_selection"),
        devices=tuple(
            _device(device, f"{path}.devices[{index}]") for index, device in enumerate(spec.devices)
        ),
        shared_counters=tuple(
            (counters.name, _counters(counters.counters, f"{path}.sharedCounters[{index}]"))
            for index, counters in enumerate(spec.shared_counters)
        ),
    )


def _nodes(
    message: device_pb2.ResourceSliceSpec | device_pb2.Device, field: str
) -> devices.NodeChoice:
    return devices.NodeChoice(
        node_name=message.node_name,
        selector=fields.optional_part(
            message, "node_selector", fields.node_selector, f"{field}.nodeSelector"
        ),
        all_nodes=message.all_nodes,
    )


def _device(message: device_pb2.Device, field: str) -> devices.Device:
    return devices.Device(
        name=message.name,
        attributes={name: _attribute(message.attributes[name]) for name in message.attributes},
        capacity={
            name: _capacity(message.capacity[name], f"{field}.capacity[{name}]")
            for name in sorted(message.capacity)
        },
        consumes=tuple(
            (consumed.counter_set, _counters(consumed.counters, f"{field}.consumesCounters"))
            for consumed in message.consumes_counters
        ),
        nodes=_nodes(message, field),
        taints=tuple(
            devices.DeviceTaint(key=taint.key, value=taint.value, effect=taint.effect)
            for taint in message.taints
        ),
        binds_to_node=message.binds_to_node,
        binding_conditions=tuple(message.binding_conditions),
        binding_failure_conditions=tuple(message.binding_failure_conditions),
        allows_multiple=message.allow_multiple_allocations,
    )


def _attribute(message: device_pb2.DeviceAttribute) -> devices.AttributeValue:
    if message.HasField("int_value"):
        return message.int_value
    if message.HasField("bool_value"):
        return message.bool_value
    if message.HasField("string_value"):
        return message.string_value
    if message.HasField("version_value"):
        return devices.Version(message.version_value)
    return None


def _capacity(message: device_pb2.DeviceCapacity, field: str) -> devices.DeviceCapacity:
    value = _amount(message.value, f"{field}.value")
    if not message.HasField("request_policy"):
        return devices.DeviceCapacity(value=value)
    policy, path = message.request_policy, f"{field}.requestPolicy"
    valid = policy.valid_range
    return devices.DeviceCapacity(
        value=value,
        policy=devices.RequestPolicy(
            default=fields.optional_part(policy, "default", _amount, f"{path}.default"),
            values=tuple(_amount(text, f"{path}.validValues") for text in policy.valid_values),
            has_range=policy.HasField("valid_range"),
            low=fields.optional_part(valid, "min", _amount, f"{path}.validRange.min"),
            high=fields.optional_part(valid, "max", _amount, f"{path}.validRange.max"),
            step=fields.optional_part(valid, "step", _amount, f"{path}.validRange.step"),
        ),
    )


def _amount(text: str, field: str) -> str:
    fields.quantity(text, field)
    return text


def _counters(messages: Mapping[str, device_pb2.Counter], field: str) -> Mapping[str, str]:
    return {
        name: _amount(messages[name].value, f"{field}.counters[{name}].value")
        for name in sorted(messages)
    }


def device_class_from_message(
    message: device_pb2.DeviceClass, _field: str = "device_class"
) -> devices.DeviceClass:
    """Return the class; every message is valid."""
    spec = message.spec
    return devices.DeviceClass(
        name=message.metadata.name,
        selectors=_selectors(spec.selectors),
        config=tuple(_opaque(config) for config in spec.config),
        extended_resource_name=fields.optional(spec, "extended_resource_name"),
        creation_ns=fields.time_ns(message.metadata.creation_timestamp),
    )


def _selectors(messages: Iterable[device_pb2.DeviceSelector]) -> devices.Selectors:
    return tuple(
        selector.cel.expression if selector.HasField("cel") else None for selector in messages
    )


def _opaque(
    message: (
        device_pb2.DeviceClassConfiguration
        | device_pb2.DeviceClaimConfiguration
        | device_pb2.DeviceAllocationConfiguration
    ),
) -> devices.OpaqueConfiguration | None:
    if not message.HasField("opaque"):
        return None
    opaque = message.opaque
    return devices.OpaqueConfiguration(driver=opaque.driver, parameters=opaque.parameters.raw)


def resource_claim_from_message(
    message: device_pb2.DeviceClaims.ResourceClaim, field: str = "resource_claim"
) -> devices.ResourceClaim:
    """Return the claim."""
    meta, status = message.metadata, message.status
    return devices.ResourceClaim(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        spec=claim_spec_from_message(message.spec, f"{field}.spec"),
        allocation=fields.optional_part(
            status, "allocation", allocation_from_message, f"{field}.status.allocation"
        ),
        reserved_for=tuple(
            devices.Consumer(
                name=consumer.name,
                uid=consumer.uid,
                resource=consumer.resource,
                api_group=consumer.api_group,
            )
            for consumer in status.reserved_for
        ),
        conditions=tuple(
            devices.DeviceCondition(
                device=devices.DeviceId(device.driver, device.pool, device.device),
                type=condition.type,
                status=condition.status,
                reason=condition.reason,
                message=condition.message,
            )
            for device in status.devices
            for condition in device.conditions
        ),
        annotations=fields.strings(meta.annotations),
        owners=fields.owners(meta.owner_references),
        finalizers=tuple(meta.finalizers),
        generate_name=meta.generate_name,
        deletion_ns=fields.optional_time_ns(meta, "deletion_timestamp"),
        resource_version=meta.resource_version,
    )


def claim_spec_from_message(message: device_pb2.ResourceClaimSpec, field: str) -> devices.ClaimSpec:
    """Return the spec of a claim; claims of one template share it, as does each of their versions.

    Measured with a claim for each of 1,500 pods: 10,500 versions of claims have one spec.
    """
    return _claim_spec(message.SerializeToString(deterministic=True), field)


@lru_cache(maxsize=_SPECS_MAX)
def _claim_spec(data: bytes, field: str) -> devices.ClaimSpec:
    message = device_pb2.ResourceClaimSpec.FromString(data)
    claim, path = message.devices, f"{field}.devices"
    return devices.ClaimSpec(
        requests=tuple(
            _request(request, f"{path}.requests[{index}]")
            for index, request in enumerate(claim.requests)
        ),
        constraints=tuple(
            devices.DeviceConstraint(
                requests=tuple(constraint.requests),
                match_attribute=fields.optional(constraint, "match_attribute"),
                distinct_attribute=fields.optional(constraint, "distinct_attribute"),
            )
            for constraint in claim.constraints
        ),
        config=tuple(
            devices.ClaimConfiguration(requests=tuple(config.requests), opaque=_opaque(config))
            for config in claim.config
        ),
    )


def _request(message: device_pb2.DeviceRequest, field: str) -> devices.DeviceRequest:
    exactly = None
    if message.HasField("exactly"):
        exactly = _detail(message.name, message.exactly, f"{field}.exactly")
    return devices.DeviceRequest(
        name=message.name,
        exactly=exactly,
        first_available=tuple(
            _detail(alternative.name, alternative, f"{field}.firstAvailable[{index}]")
            for index, alternative in enumerate(message.first_available)
        ),
    )


def _detail(
    name: str, message: device_pb2.ExactDeviceRequest | device_pb2.DeviceSubRequest, field: str
) -> devices.RequestDetail:
    admin = None
    if isinstance(message, device_pb2.ExactDeviceRequest):
        admin = fields.optional(message, "admin_access")
    capacity = None
    if message.HasField("capacity"):
        requests = message.capacity.requests
        capacity = tuple(
            (key, _amount(text, f"{field}.capacity.requests[{key}]"))
            for key, text in sorted(requests.items())
        )
    return devices.RequestDetail(
        name=name,
        class_name=message.device_class_name,
        selectors=_selectors(message.selectors),
        mode=message.allocation_mode or devices.AllocationMode.EXACT_COUNT.value,
        count=message.count,
        admin_access=admin,
        tolerations=tolerations_from_messages(message.tolerations),
        capacity=capacity,
    )


def tolerations_from_messages(
    messages: Iterable[device_pb2.DeviceToleration],
) -> tuple[devices.DeviceToleration, ...]:
    """Return tolerations of taints of devices."""
    return tuple(
        devices.DeviceToleration(
            key=toleration.key,
            operator=toleration.operator,
            value=toleration.value,
            effect=toleration.effect,
            seconds=fields.optional(toleration, "toleration_seconds"),
        )
        for toleration in messages
    )


def allocation_from_message(message: device_pb2.AllocationResult, field: str) -> devices.Allocation:
    """Return the allocation of a claim."""
    return devices.Allocation(
        devices=tuple(
            devices.AllocatedDevice(
                request=result.request,
                id=devices.DeviceId(result.driver, result.pool, result.device),
                admin_access=fields.optional(result, "admin_access"),
                tolerations=tolerations_from_messages(result.tolerations),
                binding_conditions=tuple(result.binding_conditions),
                binding_failure_conditions=tuple(result.binding_failure_conditions),
                share_id=fields.optional(result, "share_id"),
                consumed=tuple(
                    (name, _amount(text, f"{field}.devices.results[{index}].consumedCapacity"))
                    for name, text in sorted(result.consumed_capacity.items())
                ),
            )
            for index, result in enumerate(message.devices.results)
        ),
        config=tuple(
            devices.AllocatedConfiguration(
                source=config.source, requests=tuple(config.requests), opaque=_opaque(config)
            )
            for config in message.devices.config
        ),
        node_selector=fields.optional_part(
            message, "node_selector", fields.node_selector, f"{field}.nodeSelector"
        ),
        time_ns=fields.optional_time_ns(message, "allocation_timestamp"),
    )


def allocation_to_message(allocation: devices.Allocation) -> device_pb2.AllocationResult:
    """Return the allocation as a message."""
    message = device_pb2.AllocationResult()
    for device in allocation.devices:
        result = message.devices.results.add(
            request=device.request,
            driver=device.id.driver,
            pool=device.id.pool,
            device=device.id.device,
            admin_access=device.admin_access,
            binding_conditions=device.binding_conditions,
            binding_failure_conditions=device.binding_failure_conditions,
            share_id=device.share_id,
            consumed_capacity=dict(device.consumed),
        )
        for toleration in device.tolerations:
            result.tolerations.add(
                key=toleration.key,
                operator=toleration.operator,
                value=toleration.value,
                effect=toleration.effect,
                toleration_seconds=toleration.seconds,
            )
    for config in allocation.config:
        added = message.devices.config.add(source=config.source, requests=config.requests)
        if config.opaque is not None:
            added.opaque.driver = config.opaque.driver
            added.opaque.parameters.raw = config.opaque.parameters
    if allocation.node_selector is not None:
        message.node_selector.CopyFrom(_node_selector(allocation.node_selector))
    if allocation.time_ns is not None:
        fields.set_time(message.allocation_timestamp, allocation.time_ns)
    return message


def _node_selector(selector: NodeSelector) -> affinity_pb2.NodeSelector:
    message = affinity_pb2.NodeSelector()
    for term in selector.terms:
        added = message.node_selector_terms.add()
        _add_requirements(term.match_expressions, added.match_expressions)
        _add_requirements(term.match_fields, added.match_fields)
    return message


def _add_requirements(requirements: Iterable[Requirement], added: object) -> None:
    for requirement in requirements:
        added.add(  # type: ignore[attr-defined] # a repeated field
            key=requirement.key, operator=requirement.operator.value, values=requirement.values
        )


def resource_claim_to_message(
    claim: devices.ResourceClaim,
) -> device_pb2.DeviceClaims.ResourceClaim:
    """Return a claim that the scheduler created or changed, as a message."""
    message = device_pb2.DeviceClaims.ResourceClaim()
    message.metadata.CopyFrom(
        meta_pb2.ObjectMeta(
            namespace=claim.namespace,
            name=claim.name,
            uid=claim.uid,
            generate_name=claim.generate_name,
            annotations=dict(claim.annotations),
            finalizers=claim.finalizers,
            resource_version=claim.resource_version,
        )
    )
    for owner in claim.owners:
        message.metadata.owner_references.add(
            api_version=owner.api_version,
            kind=owner.kind,
            name=owner.name,
            uid=owner.uid,
            controller=owner.controller or None,
        )
    for request in claim.spec.requests:
        added = message.spec.devices.requests.add(name=request.name)
        if request.exactly is not None:
            added.exactly.device_class_name = request.exactly.class_name
            added.exactly.allocation_mode = request.exactly.mode
            added.exactly.count = request.exactly.count
    if claim.allocation is not None:
        message.status.allocation.CopyFrom(allocation_to_message(claim.allocation))
    for consumer in claim.reserved_for:
        message.status.reserved_for.add(
            api_group=consumer.api_group,
            resource=consumer.resource,
            name=consumer.name,
            uid=consumer.uid,
        )
    return message


def observed_claim_to_message(
    claim: devices.ResourceClaim,
) -> device_pb2.DeviceClaims.ResourceClaim:
    """Return a claim as a message, with what drivers report of its devices."""
    message = resource_claim_to_message(claim)
    by_device: dict[devices.DeviceId, device_pb2.AllocatedDeviceStatus] = {}
    for condition in claim.conditions:
        reported = by_device.get(condition.device)
        if reported is None:
            driver, pool, device = (
                condition.device.driver,
                condition.device.pool,
                condition.device.device,
            )
            reported = message.status.devices.add(driver=driver, pool=pool, device=device)
            by_device[condition.device] = reported
        reported.conditions.add(
            type=condition.type,
            status=condition.status,
            reason=condition.reason,
            message=condition.message,
        )
    return message
