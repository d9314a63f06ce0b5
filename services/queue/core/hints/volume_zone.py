"""VolumeZone: the pod's claim, a class that waits, or a volume's zone.

Source: kubernetes v1.34 plugins/volumezone/volume_zone.go,
isSchedulableAfterPersistentVolumeClaimChange, isSchedulableAfterStorageClassAdded,
isSchedulableAfterPersistentVolumeChange, getPVTopologies.
"""

from __future__ import annotations

from services.kube.node import (
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
)
from services.kube.storage import (
    BindingMode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from services.queue.core.happening import Happening
from services.queue.core.hints import claims
from services.queue.core.hints.objects import objects
from services.queue.core.pod import QueuedPod

_TOPOLOGY = (LABEL_ZONE_BETA, LABEL_REGION_BETA, LABEL_ZONE, LABEL_REGION)
_ZONES_BETWEEN = "__"


def after_claim_change(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where a volume of the pod names the claim."""
    known = objects(happening, PersistentVolumeClaim)
    return known is None or claims.names(pod, known[1])


def after_class_added(_pod: QueuedPod, happening: Happening) -> bool:
    """Queue for a class that waits for the first consumer."""
    known = objects(happening, StorageClass)
    if known is None or known[1] is None:
        return True
    return known[1].binding_mode is BindingMode.WAIT_FOR_FIRST_CONSUMER


def after_volume_change(_pod: QueuedPod, happening: Happening) -> bool:
    """Queue for a new volume, and for one that is somewhere else now."""
    known = objects(happening, PersistentVolume)
    if known is None or known[0] is None or known[1] is None:
        return True
    return _zones(known[0]) != _zones(known[1])


def _zones(volume: PersistentVolume) -> list[tuple[str, frozenset[str]]]:
    """Return the places by label; a label that names an empty place is passed over."""
    found: list[tuple[str, frozenset[str]]] = []
    for key in _TOPOLOGY:
        places = frozenset(
            place.strip() for place in volume.labels.get(key, "").split(_ZONES_BETWEEN)
        )
        if "" not in places:
            found.append((key, places))
    return found
