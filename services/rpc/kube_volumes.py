"""Volumes and their sources: messages to values and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from reprieve.kube.v1alpha1 import storage_pb2, volume_pb2
from services.kube import volumes
from services.kube.volumes import DiskSource, Volume

_READERS: dict[str, Callable[[Any], DiskSource]] = {
    "gce_persistent_disk": lambda m: volumes.GcePersistentDisk(
        pd_name=m.pd_name, read_only=m.read_only, partition=m.partition
    ),
    "aws_elastic_block_store": lambda m: volumes.AwsElasticBlockStore(
        volume_id=m.volume_id, read_only=m.read_only, partition=m.partition
    ),
    "iscsi": lambda m: volumes.IscsiDisk(
        target_portal=m.target_portal, iqn=m.iqn, lun=m.lun, read_only=m.read_only
    ),
    "rbd": lambda m: volumes.RbdImage(
        monitors=tuple(m.monitors), image=m.image, pool=m.pool, read_only=m.read_only
    ),
    "azure_disk": lambda m: volumes.AzureDisk(
        disk_name=m.disk_name, disk_uri=m.disk_uri, read_only=m.read_only
    ),
    "azure_file": lambda m: volumes.AzureFile(
        secret_name=m.secret_name,
        share_name=m.share_name,
        read_only=m.read_only,
        secret_namespace=m.secret_namespace if m.HasField("secret_namespace") else None,
    ),
    "cinder": lambda m: volumes.CinderDisk(volume_id=m.volume_id, read_only=m.read_only),
    "vsphere_volume": lambda m: volumes.VsphereDisk(volume_path=m.volume_path),
    "portworx_volume": lambda m: volumes.PortworxVolume(
        volume_id=m.volume_id, read_only=m.read_only
    ),
}

_WRITERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    volumes.GcePersistentDisk: (
        "gce_persistent_disk",
        lambda v: storage_pb2.GCEPersistentDiskVolumeSource(
            pd_name=v.pd_name, read_only=v.read_only, partition=v.partition
        ),
    ),
    volumes.AwsElasticBlockStore: (
        "aws_elastic_block_store",
        lambda v: storage_pb2.AWSElasticBlockStoreVolumeSource(
            volume_id=v.volume_id, read_only=v.read_only, partition=v.partition
        ),
    ),
    volumes.IscsiDisk: (
        "iscsi",
        lambda v: storage_pb2.ISCSIVolumeSource(
            target_portal=v.target_portal, iqn=v.iqn, lun=v.lun, read_only=v.read_only
        ),
    ),
    volumes.RbdImage: (
        "rbd",
        lambda v: storage_pb2.RBDVolumeSource(
            monitors=v.monitors, image=v.image, pool=v.pool, read_only=v.read_only
        ),
    ),
    volumes.AzureDisk: (
        "azure_disk",
        lambda v: storage_pb2.AzureDiskVolumeSource(
            disk_name=v.disk_name, disk_uri=v.disk_uri, read_only=v.read_only
        ),
    ),
    volumes.AzureFile: (
        "azure_file",
        lambda v: storage_pb2.AzureFileVolumeSource(
            secret_name=v.secret_name,
            share_name=v.share_name,
            read_only=v.read_only,
            secret_namespace=v.secret_namespace,
        ),
    ),
    volumes.CinderDisk: (
        "cinder",
        lambda v: storage_pb2.CinderVolumeSource(volume_id=v.volume_id, read_only=v.read_only),
    ),
    volumes.VsphereDisk: (
        "vsphere_volume",
        lambda v: storage_pb2.VsphereVirtualDiskVolumeSource(volume_path=v.volume_path),
    ),
    volumes.PortworxVolume: (
        "portworx_volume",
        lambda v: storage_pb2.PortworxVolumeSource(volume_id=v.volume_id, read_only=v.read_only),
    ),
    volumes.CsiSource: (
        "csi",
        lambda v: volume_pb2.CSIVolumeSource(driver=v.driver, read_only=v.read_only),
    ),
    volumes.ClaimSource: (
        "persistent_volume_claim",
        lambda v: volume_pb2.PersistentVolumeClaimVolumeSource(
            claim_name=v.claim_name, read_only=v.read_only
        ),
    ),
    volumes.EphemeralSource: (
        "ephemeral",
        lambda v: volume_pb2.EphemeralVolumeSource(
            volume_claim_template=volume_pb2.PersistentVolumeClaimTemplate(
                spec=storage_pb2.PersistentVolumeClaimSpec(storage_class_name=v.storage_class_name)
            )
        ),
    ),
}


def pod_volumes(messages: Iterable[volume_pb2.Volume]) -> tuple[Volume, ...]:
    """Return those of a pod's volumes that a scheduler's plugin reads."""
    if not messages:
        return ()
    found = ((each.name, _pod_source(each)) for each in messages)
    return tuple(Volume(name=name, source=source) for name, source in found if source is not None)


def pod_volume_to_message(volume: Volume) -> volume_pb2.Volume:
    """Return a pod's volume as a message; an ephemeral one keeps the class of its template."""
    field, write = _WRITERS[type(volume.source)]
    return volume_pb2.Volume(name=volume.name, **{field: write(volume.source)})


def _pod_source(
    message: volume_pb2.Volume,
) -> volumes.ClaimSource | volumes.EphemeralSource | DiskSource | None:
    if message.HasField("persistent_volume_claim"):
        claim = message.persistent_volume_claim
        return volumes.ClaimSource(claim_name=claim.claim_name, read_only=claim.read_only)
    if message.HasField("ephemeral"):
        spec = message.ephemeral.volume_claim_template.spec
        named = spec.HasField("storage_class_name")
        return volumes.EphemeralSource(
            storage_class_name=spec.storage_class_name if named else None
        )
    if message.HasField("csi"):
        return volumes.CsiSource(driver=message.csi.driver, read_only=message.csi.read_only)
    return _disk(message)


def persistent_source(message: storage_pb2.PersistentVolumeSpec) -> DiskSource | None:
    """Return a persistent volume's source, None for those that no plugin reads."""
    if message.HasField("csi"):
        csi = message.csi
        return volumes.CsiSource(
            driver=csi.driver, volume_handle=csi.volume_handle, read_only=csi.read_only
        )
    return _disk(message)


def _disk(message: volume_pb2.Volume | storage_pb2.PersistentVolumeSpec) -> DiskSource | None:
    for field, read in _READERS.items():
        if message.HasField(field):  # type: ignore[arg-type] # both messages have all of them
            return read(getattr(message, field))
    return None
