"""Volumes and their sources: messages to values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from reprieve.kube.v1beta1 import storage_pb2, volume_pb2
from services.kube import volumes
from services.kube.volumes import DiskSource, Volume

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
"""The sources that have a value, by their field in a pod's volume."""


def pod_volumes(messages: Iterable[volume_pb2.Volume]) -> tuple[Volume, ...]:
    """Return those of a pod's volumes that a scheduler's plugin reads."""
    if not messages:
        return ()
    found = ((each.name, _pod_source(each)) for each in messages)
    return tuple(Volume(name=name, source=source) for name, source in found if source is not None)


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
    """Return a persistent volume's source, None for those that no plugin reads."""
    for field, kind in _DISKS.items():
        if message.HasField(field):  # type: ignore[arg-type] # both messages have all of them
            return _read(kind, getattr(message, field))
    return None


def _read(kind: type[_S], message: Any) -> _S:
    """Return a source, whose fields are those of its message; what is not set has its default."""
    held: dict[str, Any] = {}
    for field in fields(kind):
        known = message.DESCRIPTOR.fields_by_name.get(field.name)
        if known is not None and (not known.has_presence or message.HasField(field.name)):
            value = getattr(message, field.name)
            held[field.name] = tuple(value) if known.is_repeated else value
    return kind(**held)
