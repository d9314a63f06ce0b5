"""Decodes persistent volumes, claims, storage classes, CSI objects and pods' volumes.

Functions with a parameter `field`, the message's path, raise FieldError.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from reprieve.kube.v1beta1 import storage_pb2, volume_pb2
from services.kube import storage, volumes
from services.kube.volumes import DiskSource, Volume
from services.rpc.kube import fields


def persistent_volume_from_message(
    message: storage_pb2.PersistentVolume, field: str = "persistent_volume"
) -> storage.PersistentVolume:
    """Return the volume; without a node affinity every node can use it."""
    meta, spec = message.metadata, message.spec
    return storage.PersistentVolume(
        name=meta.name,
        uid=meta.uid,
        labels=fields.strings(meta.labels),
        annotations=fields.strings(meta.annotations),
        capacity_bytes=_size(spec.capacity.get("storage"), f"{field}.spec.capacity") or 0,
        access_modes=tuple(spec.access_modes),
        claim_ref=(
            storage.ClaimRef(
                namespace=spec.claim_ref.namespace, name=spec.claim_ref.name, uid=spec.claim_ref.uid
            )
            if spec.HasField("claim_ref")
            else None
        ),
        storage_class_name=spec.storage_class_name,
        volume_mode=_volume_mode(spec.volume_mode, f"{field}.spec.volumeMode"),
        node_affinity=fields.optional_part(
            spec.node_affinity,
            "required",
            fields.node_selector,
            f"{field}.spec.nodeAffinity.required",
        ),
        volume_attributes_class_name=fields.optional(spec, "volume_attributes_class_name"),
        source=persistent_source(spec),
        phase=fields.choice(storage.VolumePhase, message.status.phase, f"{field}.status.phase"),
        deletion_ns=fields.optional_time_ns(meta, "deletion_timestamp"),
        resource_version=meta.resource_version,
    )


def claim_from_message(
    message: storage_pb2.PersistentVolumeClaim, field: str = "persistent_volume_claim"
) -> storage.PersistentVolumeClaim:
    """Return the claim; an absent class is None."""
    meta, spec = message.metadata, message.spec
    requests = spec.resources.requests
    return storage.PersistentVolumeClaim(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        labels=fields.strings(meta.labels),
        annotations=fields.strings(meta.annotations),
        owners=fields.owners(meta.owner_references),
        access_modes=tuple(spec.access_modes),
        selector=fields.optional_selector(spec, "selector", f"{field}.spec.selector"),
        request_bytes=_size(requests.get("storage"), f"{field}.spec.resources.requests") or 0,
        volume_name=spec.volume_name,
        storage_class_name=fields.optional(spec, "storage_class_name"),
        volume_mode=_volume_mode(spec.volume_mode, f"{field}.spec.volumeMode"),
        volume_attributes_class_name=fields.optional(spec, "volume_attributes_class_name"),
        phase=fields.choice(storage.ClaimPhase, message.status.phase, f"{field}.status.phase"),
        deletion_ns=fields.optional_time_ns(meta, "deletion_timestamp"),
        resource_version=meta.resource_version,
    )


def storage_class_from_message(
    message: storage_pb2.StorageClass, field: str = "storage_class"
) -> storage.StorageClass:
    """Return the class; an absent binding mode is Immediate."""
    meta = message.metadata
    mode = message.volume_binding_mode or storage.BindingMode.IMMEDIATE.value
    return storage.StorageClass(
        name=meta.name,
        provisioner=message.provisioner,
        parameters=fields.strings(message.parameters),
        annotations=fields.strings(meta.annotations),
        binding_mode=fields.choice(storage.BindingMode, mode, f"{field}.volumeBindingMode"),
        allowed_topologies=_topologies(message.allowed_topologies),
        creation_ns=fields.time_ns(meta.creation_timestamp),
    )


def csi_node_from_message(message: storage_pb2.CSINode, _field: str = "") -> storage.CsiNode:
    """Return a node's drivers; a driver without a count has no limit."""
    return storage.CsiNode(
        name=message.metadata.name,
        annotations=fields.strings(message.metadata.annotations),
        drivers=tuple(
            storage.CsiNodeDriver(
                name=driver.name,
                node_id=driver.node_id,
                topology_keys=tuple(driver.topology_keys),
                allocatable_count=fields.optional(driver.allocatable, "count"),
            )
            for driver in message.spec.drivers
        ),
    )


def volume_attachment_from_message(
    message: storage_pb2.VolumeAttachment, _field: str = ""
) -> storage.VolumeAttachment:
    """Return the attachment; every message is valid."""
    spec = message.spec
    source = spec.source
    return storage.VolumeAttachment(
        name=message.metadata.name,
        attacher=spec.attacher,
        node_name=spec.node_name,
        persistent_volume_name=fields.optional(source, "persistent_volume_name"),
        inline=persistent_source(source.inline_volume_spec),
        attached=message.status.attached,
    )


def csi_driver_from_message(message: storage_pb2.CSIDriver, _field: str = "") -> storage.CsiDriver:
    """Return the driver; an absent attachRequired is true."""
    spec = message.spec
    return storage.CsiDriver(
        name=message.metadata.name,
        attach_required=spec.attach_required if spec.HasField("attach_required") else True,
        storage_capacity=spec.storage_capacity,
    )


def csi_storage_capacity_from_message(
    message: storage_pb2.CSIStorageCapacity, field: str = "csi_storage_capacity"
) -> storage.CsiStorageCapacity:
    """Return the capacity; an absent topology is None."""
    return storage.CsiStorageCapacity(
        namespace=message.metadata.namespace,
        name=message.metadata.name,
        node_topology=fields.optional_selector(message, "node_topology", f"{field}.nodeTopology"),
        storage_class_name=message.storage_class_name,
        capacity_bytes=fields.optional_part(message, "capacity", _size, f"{field}.capacity"),
        maximum_volume_size_bytes=fields.optional_part(
            message, "maximum_volume_size", _size, f"{field}.maximumVolumeSize"
        ),
    )


def _topologies(
    messages: Iterable[storage_pb2.TopologySelectorTerm],
) -> tuple[storage.TopologyTerm, ...]:
    return tuple(
        tuple(
            storage.TopologyRequirement(key=requirement.key, values=tuple(requirement.values))
            for requirement in term.match_label_expressions
        )
        for term in messages
    )


def _volume_mode(text: str, field: str) -> storage.VolumeMode:
    if not text:
        return storage.VolumeMode.FILESYSTEM
    return fields.choice(storage.VolumeMode, text, field)


def _size(text: str | None, field: str) -> int | None:
    return None if text is None else fields.quantity(text, field).value()


_S = TypeVar("_S", volumes.ClaimSource, DiskSource)

_DISKS: Mapping[str, type[DiskSource]] = {
    "csi": volumes.CsiSource,
    "gce_persistent_disk": volumes.GcePersistentDisk,
    "aws_elastic_block_store": volumes.AwsElasticBlockStore,
    "iscsi": volumes.IscsiDisk,
    "rbd": volumes.RbdImage,
    "azure_disk": volumes.AzureDisk,
    "azure_file": volumes.AzureFile,
    "cinder": volumes.CinderDisk,
    "vsphere_volume": volumes.VsphereDisk,
    "portworx_volume": volumes.PortworxVolume,
}

SOURCES: Mapping[str, type] = {
    "persistent_volume_claim": volumes.ClaimSource,
    "ephemeral": volumes.EphemeralSource,
    **_DISKS,
}
"""The volume sources that are decoded, by their field name in a pod's volume."""


def pod_volumes(messages: Iterable[volume_pb2.Volume]) -> tuple[Volume, ...]:
    """Return the volumes that a scheduler's plugin reads."""
    if not messages:
        return ()
    sources = ((message.name, _pod_source(message)) for message in messages)
    return tuple(Volume(name=name, source=source) for name, source in sources if source is not None)


def _pod_source(
    message: volume_pb2.Volume,
) -> volumes.ClaimSource | volumes.EphemeralSource | DiskSource | None:
    if message.HasField("persistent_volume_claim"):
        return _read(volumes.ClaimSource, message.persistent_volume_claim)
    if message.HasField("ephemeral"):
        spec = message.ephemeral.volume_claim_template.spec
        named = spec.HasField("storage_class_name")
        return volumes.EphemeralSource(
            storage_class_name=spec.storage_class_name if named else None
        )
    return persistent_source(message)


def persistent_source(
    message: volume_pb2.Volume | storage_pb2.PersistentVolumeSpec,
) -> DiskSource | None:
    """Return the source of a volume; None for a kind of source that no plugin reads."""
    for field, kind in _DISKS.items():
        if message.HasField(field):  # type: ignore[arg-type] # both messages have all of them
            return _read(kind, getattr(message, field))
    return None


def _read(kind: type[_S], message: Any) -> _S:
    """Return a source with the set fields of its message."""
    held: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        there = message.DESCRIPTOR.fields_by_name.get(field.name)
        if there is not None and (not there.has_presence or message.HasField(field.name)):
            value = getattr(message, field.name)
            held[field.name] = tuple(value) if there.is_repeated else value
    return kind(**held)
