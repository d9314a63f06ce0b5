"""Matches volumes to claims on a node, and tracks the volumes and claims that are reserved.

Source: kubernetes v1.34 component-helpers/storage/volume/pv_helpers.go, FindMatchingVolume;
pkg/scheduler/framework/plugins/volumebinding/binder.go, checkVolumeProvisions, hasEnoughCapacity;
pkg/apis/core/v1/helper/helpers.go, MatchTopologySelectorTerms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from services.framework.plugin import Plain
from services.framework.snapshot.catalog import Catalog
from services.kube.node import Node
from services.kube.selector import NodeSelector
from services.kube.storage import (
    CLASS_ANNOTATION_BETA,
    NO_PROVISIONER,
    ClaimRef,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologyTerm,
    VolumePhase,
)


class Provision(Enum):
    """The result of a check whether a volume can be provisioned."""

    POSSIBLE = "possible"
    IMPOSSIBLE = "impossible"
    NO_SPACE = "no space"


def class_of(volume: PersistentVolume) -> str:
    """Return a volume's class, the old annotation first."""
    return volume.annotations.get(CLASS_ANNOTATION_BETA, volume.storage_class_name)


def is_of(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether a volume is meant for a claim, or bound to it."""
    ref = volume.claim_ref
    if ref is None or (ref.name, ref.namespace) != (claim.name, claim.namespace):
        return False
    return ref.uid in {"", claim.uid}


def reaches(affinity: NodeSelector | None, node: Node) -> bool:
    """Return whether a volume's affinity admits a node; it reads the node's labels only."""
    return affinity is None or affinity.matches(node.labels, "")


def matching_volume(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    node: Node,
    chosen: Collection[str],
) -> PersistentVolume | None:
    """Return the volume meant for a claim if the node reaches it, else the smallest that fits.

    `chosen` are the names of volumes that other claims of the pod get. Of equal volumes upstream
    takes any; here it is the first of `volumes`.
    """
    smallest: PersistentVolume | None = None
    for volume in volumes:
        if volume.name in chosen or not _qualifies(volume, claim):
            continue
        reached = reaches(volume.node_affinity, node)
        if is_of(volume, claim):
            return volume if reached else None
        if not reached or not _is_free(volume, claim):
            continue
        if smallest is None or smallest.capacity_bytes > volume.capacity_bytes:
            smallest = volume
    return smallest


def _qualifies(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    if volume.claim_ref is not None and not is_of(volume, claim):
        return False
    return (
        volume.capacity_bytes >= claim.request_bytes
        and volume.volume_mode is claim.volume_mode
        and (volume.volume_attributes_class_name or "")
        == (claim.volume_attributes_class_name or "")
        and volume.deletion_ns is None
    )


def _is_free(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        volume.phase is VolumePhase.AVAILABLE
        and (claim.selector is None or claim.selector.matches(volume.labels))
        and class_of(volume) == claim.class_name
        and set(claim.access_modes) <= set(volume.access_modes)
    )


def provision(claim: PersistentVolumeClaim, node: Node, catalog: Catalog) -> Provision:
    """Return whether a claim's class can make its volume for a node."""
    storage_class = catalog.classes.get(claim.class_name)
    assert storage_class is not None, "only claims of a class that is there wait for a consumer"
    if storage_class.provisioner in {"", NO_PROVISIONER}:
        return Provision.IMPOSSIBLE
    if not _admits(storage_class.allowed_topologies, node.labels):
        return Provision.IMPOSSIBLE
    if not _has_space(claim, storage_class, node, catalog):
        return Provision.NO_SPACE
    return Provision.POSSIBLE


def _admits(terms: tuple[TopologyTerm, ...], labels: Mapping[str, str]) -> bool:
    return not terms or any(
        bool(term)
        and all(labels.get(requirement.key) in requirement.values for requirement in term)
        for term in terms
    )


def _has_space(
    claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node, catalog: Catalog
) -> bool:
    if not claim.request_bytes:
        return True
    driver = catalog.csi_drivers.get(storage_class.provisioner)
    if driver is None or not driver.storage_capacity:
        return True
    return any(
        capacity.storage_class_name == storage_class.name
        and _limit(capacity) >= claim.request_bytes
        and capacity.node_topology is not None
        and capacity.node_topology.matches(node.labels)
        for capacity in catalog.capacities.values()
    )


def _limit(capacity: CsiStorageCapacity) -> int:
    """Return the size of the largest volume that can be provisioned, -1 if not published."""
    largest = capacity.maximum_volume_size_bytes
    if largest is None:
        largest = capacity.capacity_bytes
    return -1 if largest is None else largest


_VOLUME, _CLAIM = "volume", "claim"


@dataclass(frozen=True, slots=True)
class ReservedObject:
    """The object that was in the catalog before a reservation, and the one that replaced it.

    They differ in a volume's claim, or in a claim's annotations, and in nothing else.
    """

    before: PersistentVolume | PersistentVolumeClaim
    after: PersistentVolume | PersistentVolumeClaim


def stands(reserved: ReservedObject, catalog: Catalog) -> bool:
    """Return whether the object has not changed since it was reserved."""
    after = reserved.after
    held: object = (
        catalog.volumes.get(after.name)
        if isinstance(after, PersistentVolume)
        else catalog.claims.get(after.key)
    )
    return held is after


def to_plain(reserved: ReservedObject) -> Plain:
    """Return the object's name and what differs, as plain values."""
    before, after = reserved.before, reserved.after
    if isinstance(after, PersistentVolume):
        assert isinstance(before, PersistentVolume)
        return [_VOLUME, after.name, _ref_to_plain(before), _ref_to_plain(after)]
    assert isinstance(before, PersistentVolumeClaim)
    return [_CLAIM, after.key, dict(before.annotations), dict(after.annotations)]


def from_plain(plain: Plain, catalog: Catalog) -> ReservedObject:
    """Return the value that `to_plain` wrote, of the object in `catalog`.

    Raises KeyError, TypeError or ValueError for what it never writes.
    """
    kind, key, before, after = rows_of(plain)
    if kind == _VOLUME:
        volume = catalog.volumes[key]
        taken = _ref_from_plain(after)
        return ReservedObject(
            replace(volume, claim_ref=_ref_from_plain(before)),
            volume if volume.claim_ref == taken else replace(volume, claim_ref=taken),
        )
    claim = catalog.claims[key]
    return ReservedObject(
        replace(claim, annotations=before),
        claim if claim.annotations == after else replace(claim, annotations=after),
    )


def rows_of(plain: Plain) -> list[Any]:
    """Return the items of a list. Raises TypeError for anything else."""
    if not isinstance(plain, list):
        raise TypeError(f"{plain!r} is not a list")
    return plain


def _ref_to_plain(volume: PersistentVolume) -> Plain:
    ref = volume.claim_ref
    return None if ref is None else [ref.namespace, ref.name, ref.uid]


def _ref_from_plain(plain: Plain) -> ClaimRef | None:
    if plain is None:
        return None
    namespace, name, uid = rows_of(plain)
    return ClaimRef(namespace=namespace, name=name, uid=uid)
