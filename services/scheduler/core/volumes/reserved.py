"""Volumes and claims as the scheduler reserved them, until they are told anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from services.kube.storage import ClaimRef, PersistentVolume, PersistentVolumeClaim
from services.scheduler.core.catalog import Catalog
from services.scheduler.core.stateful import Plain

_VOLUME, _CLAIM = "volume", "claim"


@dataclass(frozen=True, slots=True)
class Reserved:
    """What stood in the catalog before, and what was put there.

    They differ in a volume's claim, or in a claim's annotations, and in nothing else.
    """

    before: PersistentVolume | PersistentVolumeClaim
    after: PersistentVolume | PersistentVolumeClaim


def stands(reserved: Reserved, catalog: Catalog) -> bool:
    """Tell whether the object has not been told anew since."""
    after = reserved.after
    held: object = (
        catalog.volumes.get(after.name)
        if isinstance(after, PersistentVolume)
        else catalog.claims.get(after.key)
    )
    return held is after


def to_plain(reserved: Reserved) -> Plain:
    """Return the object's name and what differs, as plain values."""
    before, after = reserved.before, reserved.after
    if isinstance(after, PersistentVolume):
        assert isinstance(before, PersistentVolume)
        return [_VOLUME, after.name, _ref_to_plain(before), _ref_to_plain(after)]
    assert isinstance(before, PersistentVolumeClaim)
    return [_CLAIM, after.key, dict(before.annotations), dict(after.annotations)]


def from_plain(plain: Plain, catalog: Catalog) -> Reserved:
    """Return what `to_plain` wrote, of the object that `catalog` holds.

    Raises KeyError, TypeError or ValueError for what it never writes.
    """
    kind, key, before, after = rows_of(plain)
    if kind == _VOLUME:
        volume = catalog.volumes[key]
        taken = _ref_from_plain(after)
        return Reserved(
            replace(volume, claim_ref=_ref_from_plain(before)),
            volume if volume.claim_ref == taken else replace(volume, claim_ref=taken),
        )
    claim = catalog.claims[key]
    return Reserved(
        replace(claim, annotations=before),
        claim if claim.annotations == after else replace(claim, annotations=after),
    )


def rows_of(plain: Plain) -> list[Any]:
    """Return the items of a list. Raises TypeError for anything else."""
    if not isinstance(plain, list):
        raise TypeError(f"{plain!r} is no list")
    return plain


def _ref_to_plain(volume: PersistentVolume) -> Plain:
    ref = volume.claim_ref
    return None if ref is None else [ref.namespace, ref.name, ref.uid]


def _ref_from_plain(plain: Plain) -> ClaimRef | None:
    if plain is None:
        return None
    namespace, name, uid = rows_of(plain)
    return ClaimRef(namespace=namespace, name=name, uid=uid)
