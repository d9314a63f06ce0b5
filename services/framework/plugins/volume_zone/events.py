"""VolumeZone: the pod's claims, and classes, volumes and nodes whose zones come or change.

Source: kubernetes v1.34 plugins/volumezone/volume_zone.go, EventsToRegister and the
isSchedulableAfter functions.
"""

from __future__ import annotations

from services.framework.cluster_event import PendingPod
from services.framework.hints import events_of, on
from services.framework.volumes.claim_hints import claim_named
from services.kube.storage import BindingMode, PersistentVolume, StorageClass


def class_waits(_pod: PendingPod, _old: StorageClass | None, new: StorageClass | None) -> bool:
    """Return Queue (true) for a class that waits for the first consumer."""
    return new is None or new.binding_mode is BindingMode.WAIT_FOR_FIRST_CONSUMER


def volume_moved(
    _pod: PendingPod, old: PersistentVolume | None, new: PersistentVolume | None
) -> bool:
    """Return Queue (true) for a new volume, and where its zones have changed."""
    return old is None or new is None or old.zones != new.zones


EVENTS = events_of(
    "VolumeZone",
    on("StorageClassAdd", class_waits),
    on("NodeAdd"),
    on("NodeLabelChange"),
    on("PersistentVolumeClaimAdd", claim_named),
    on("PersistentVolumeClaimUpdate", claim_named),
    on("PersistentVolumeAdd", volume_moved),
    on("PersistentVolumeUpdate", volume_moved),
)
