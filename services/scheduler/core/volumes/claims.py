"""The claims that a pod's volumes use, by name or made for the pod, and who uses them.

Source: kubernetes v1.34 component-helpers/storage/ephemeral/ephemeral.go, VolumeIsForPod;
component-helpers/storage/volume/pv_helpers.go, IsDelayBindingMode.
"""

from __future__ import annotations

from collections.abc import Hashable

from services.kube.pod import Pod
from services.kube.storage import BindingMode, PersistentVolumeClaim
from services.kube.volumes import EphemeralSource, claim_names
from services.scheduler.core.catalog import Catalog
from services.scheduler.core.snapshot import Snapshot

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
_USES = "ClaimUses"


def base_key(pod: Pod, snapshot: Snapshot) -> Hashable:
    """Return what everything about a pod's volumes follows from, but for pods and nodes."""
    named = any(isinstance(volume.source, EphemeralSource) for volume in pod.spec.volumes)
    own = (pod.name, pod.uid) if named else ()
    return (pod.spec, pod.namespace, snapshot.catalog.storage_epoch, *own)


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


class ClaimUses:
    """How many pods on nodes use each claim, by "namespace/name"; kept while pods come and go.

    Claims that are made for one pod do not count.
    Source: kubernetes v1.34 pkg/scheduler/framework/types.go, NodeInfo.updatePVCRefCounts.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    @classmethod
    def of(cls, snapshot: Snapshot) -> ClaimUses:
        """Return the snapshot's counts, which it keeps from the first call on."""
        known = snapshot.follower(_USES)
        if isinstance(known, ClaimUses):
            return known
        made = cls()
        snapshot.follow(_USES, made)
        return made

    def used(self, key: str) -> bool:
        """Tell whether a pod on a node uses the claim."""
        return key in self._counts

    def pod_came(self, pod: Pod, row: int, snapshot: Snapshot) -> None:  # noqa: ARG002 - anywhere
        """Count a pod's claims."""
        for key in _used_by(pod):
            self._counts[key] = self._counts.get(key, 0) + 1

    def pod_went(self, pod: Pod, row: int, snapshot: Snapshot) -> None:  # noqa: ARG002 - anywhere
        """Take them out again."""
        for key in _used_by(pod):
            left = self._counts[key] - 1
            if left:
                self._counts[key] = left
            else:
                del self._counts[key]


def _used_by(pod: Pod) -> list[str]:
    named = claim_names(pod.name, pod.spec.volumes)
    return [f"{pod.namespace}/{name}" for name, is_made in named if not is_made]
