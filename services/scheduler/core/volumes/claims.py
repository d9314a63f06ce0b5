"""The claims that a pod's volumes use, by name or made for the pod.

Source: kubernetes v1.34 component-helpers/storage/ephemeral/ephemeral.go, VolumeClaimName,
VolumeIsForPod; component-helpers/storage/volume/pv_helpers.go, IsDelayBindingMode.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from services.kube.pod import Pod
from services.kube.storage import BindingMode, PersistentVolumeClaim
from services.kube.volumes import ClaimSource, EphemeralSource
from services.scheduler.core.catalog import Catalog
from services.scheduler.core.snapshot import Snapshot

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


def base_key(pod: Pod, snapshot: Snapshot) -> Hashable:
    """Return what everything about a pod's volumes follows from, but for pods and nodes."""
    named = any(isinstance(volume.source, EphemeralSource) for volume in pod.spec.volumes)
    own = (pod.name, pod.uid) if named else ()
    return (pod.spec, pod.namespace, snapshot.catalog.storage_epoch, *own)


def claim_names(pod: Pod) -> Iterator[tuple[str, bool]]:
    """Yield the name of each claim in the order of the volumes, and whether it is made for it."""
    for volume in pod.spec.volumes:
        if isinstance(volume.source, ClaimSource):
            yield volume.source.claim_name, False
        elif isinstance(volume.source, EphemeralSource):
            yield f"{pod.name}-{volume.name}", True


def claim_of(pod: Pod, name: str, catalog: Catalog) -> PersistentVolumeClaim | None:
    """Return a claim in the pod's namespace."""
    return catalog.claims.get(f"{pod.namespace}/{name}")


def not_found(name: str) -> str:
    """Return what is said of a claim that is not there."""
    return f'persistentvolumeclaim "{name}" not found'


def not_owned(pod: Pod, claim: PersistentVolumeClaim) -> str:
    """Return why an ephemeral volume's claim is not the pod's, "" where it is."""
    if any(owner.controller and owner.uid == pod.uid for owner in claim.owners):
        return ""
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Tell whether a claim is bound for good."""
    return claim.volume_name != "" and BIND_COMPLETED in claim.annotations


def waits_for_consumer(claim: PersistentVolumeClaim, catalog: Catalog) -> bool:
    """Tell whether a claim is bound only when a pod that uses it is scheduled."""
    storage_class = catalog.classes.get(claim.class_name)
    if storage_class is None:
        return False
    return storage_class.binding_mode is BindingMode.WAIT_FOR_FIRST_CONSUMER
