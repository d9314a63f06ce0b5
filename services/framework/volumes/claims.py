"""The claims that a pod's volumes use, and the volumes that a CSI driver attaches to a node.

Source: kubernetes v1.34 component-helpers/storage/ephemeral/ephemeral.go, VolumeIsForPod;
component-helpers/storage/volume/pv_helpers.go, IsDelayBindingMode;
plugins/nodevolumelimits/csi.go, filterAttachableVolumes, getCSIDriverInfo, getCSIDriverInfoFromSC,
getNodeVolumeAttachmentInfo.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from services.framework.snapshot.catalog import Catalog
from services.framework.snapshot.snapshot import Snapshot
from services.framework.volumes.migration import TranslationError, migrated, migrated_provisioner
from services.kube.pod import Pod
from services.kube.storage import BindingMode, CsiNode, PersistentVolumeClaim
from services.kube.volumes import ClaimSource, CsiSource, EphemeralSource, Volume, claim_names

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
_USES = "ClaimUses"


def base_key(pod: Pod, snapshot: Snapshot) -> Hashable:
    """Return the key of all inputs about a pod's volumes beside pods and nodes."""
    named = any(isinstance(volume.source, EphemeralSource) for volume in pod.spec.volumes)
    identity = (pod.name, pod.uid) if named else ()
    return (pod.spec, pod.namespace, snapshot.catalog.storage_epoch, *identity)


def claim_of(pod: Pod, name: str, catalog: Catalog) -> PersistentVolumeClaim | None:
    """Return a claim in the pod's namespace."""
    return catalog.claims.get(f"{pod.namespace}/{name}")


def not_found(name: str) -> str:
    """Return the reason for a claim that does not exist."""
    return f'persistentvolumeclaim "{name}" not found'


def not_owned(pod: Pod, claim: PersistentVolumeClaim) -> str:
    """Return why an ephemeral volume's claim is not the pod's, "" where it is."""
    if any(owner.controller and owner.uid == pod.uid for owner in claim.owners):
        return ""
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether a claim is fully bound."""
    return claim.volume_name != "" and BIND_COMPLETED in claim.annotations


def waits_for_consumer(claim: PersistentVolumeClaim, catalog: Catalog) -> bool:
    """Return whether a claim is bound only when a pod that uses it is scheduled."""
    storage_class = catalog.classes.get(claim.class_name)
    if storage_class is None:
        return False
    return storage_class.binding_mode is BindingMode.WAIT_FOR_FIRST_CONSUMER


class ClaimUses:
    """The number of pods on nodes that use each claim, by "namespace/name", updated with each pod.

    Claims that are made for one pod do not count.
    Source: kubernetes v1.34 pkg/scheduler/framework/types.go, NodeInfo.updatePVCRefCounts.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    @classmethod
    def of(cls, snapshot: Snapshot) -> ClaimUses:
        """Return the snapshot's counts, which it keeps from the first call on."""
        follower = snapshot.follower(_USES)
        if isinstance(follower, ClaimUses):
            return follower
        uses = cls()
        snapshot.follow(_USES, uses)
        return uses

    def used(self, key: str) -> bool:
        """Return whether a pod on a node uses the claim."""
        return key in self._counts

    def pod_came(self, pod: Pod, row: int, snapshot: Snapshot) -> None:  # noqa: ARG002 - anywhere
        """Count a pod's claims."""
        for key in _used_by(pod):
            self._counts[key] = self._counts.get(key, 0) + 1

    def pod_went(self, pod: Pod, row: int, snapshot: Snapshot) -> None:  # noqa: ARG002 - anywhere
        """Take them out again."""
        for key in _used_by(pod):
            count = self._counts[key] - 1
            if count:
                self._counts[key] = count
            else:
                del self._counts[key]


def _used_by(pod: Pod) -> list[str]:
    named = claim_names(pod.name, pod.spec.volumes)
    return [f"{pod.namespace}/{name}" for name, is_made in named if not is_made]


_TO_BE_MADE = "claim:"
"""Precedes the claim's name in the handle of a volume that does not exist yet."""


class UnusableError(ValueError):
    """A volume that cannot be counted; `lasts` where only a change of the cluster cures it."""

    def __init__(self, text: str, *, lasts: bool) -> None:
        super().__init__(text)
        self.lasts = lasts


@dataclass(frozen=True, slots=True)
class Attachable:
    """A driver's volume."""

    driver: str
    handle: str


def attachable(
    pod: Pod, csi_node: CsiNode | None, catalog: Catalog, *, is_new: bool
) -> set[Attachable]:
    """Return the volumes of a pod on a node, `is_new` for the one to be scheduled.

    Raises UnusableError; a pod that runs may lack claims.
    """
    return set(_each(pod, csi_node, catalog, is_new=is_new))


def _each(
    pod: Pod, csi_node: CsiNode | None, catalog: Catalog, *, is_new: bool
) -> Iterator[Attachable]:
    for volume in pod.spec.volumes:
        source = volume.source
        made_for_pod = isinstance(source, EphemeralSource)
        if isinstance(source, ClaimSource):
            name = source.claim_name
        elif made_for_pod:
            name = f"{pod.name}-{volume.name}"
        else:
            yield from _inline(volume, csi_node)
            continue
        if not name:
            raise UnusableError("PersistentVolumeClaim had no name", lasts=False)
        claim = claim_of(pod, name, catalog)
        if claim is None:
            if is_new:
                text = f"looking up PVC {pod.namespace}/{name}: {not_found(name)}"
                raise UnusableError(text, lasts=True)
            continue
        problem = not_owned(pod, claim) if made_for_pod else ""
        if problem:
            raise UnusableError(problem, lasts=False)
        yield from _claimed(claim, csi_node, catalog)


def _inline(volume: Volume, csi_node: CsiNode | None) -> Iterator[Attachable]:
    plugin = migrated(volume.source)
    if plugin is None or not plugin.is_on(csi_node):
        return
    try:
        yield Attachable(plugin.driver, plugin.handle(volume.source, {}))
    except TranslationError as error:
        text = f"converting volume({volume.name}) from inline to csi: {error}"
        raise UnusableError(text, lasts=False) from None


def _claimed(
    claim: PersistentVolumeClaim, csi_node: CsiNode | None, catalog: Catalog
) -> Iterator[Attachable]:
    held = catalog.volumes.get(claim.volume_name) if claim.volume_name else None
    if held is None:
        yield from _to_be_made(claim, csi_node, catalog)
        return
    if isinstance(held.source, CsiSource):
        if held.source.driver and held.source.volume_handle:
            yield Attachable(held.source.driver, held.source.volume_handle)
        return
    plugin = migrated(held.source)
    if plugin is None or not plugin.is_on(csi_node):
        return
    try:
        handle = plugin.handle(held.source, dict(held.labels))
    except TranslationError:
        return
    if handle:
        yield Attachable(plugin.driver, handle)


def _to_be_made(
    claim: PersistentVolumeClaim, csi_node: CsiNode | None, catalog: Catalog
) -> Iterator[Attachable]:
    storage_class = catalog.classes.get(claim.class_name)
    if storage_class is None:
        return
    driver = storage_class.provisioner
    plugin = migrated_provisioner(driver)
    if plugin is not None:
        if not plugin.is_on(csi_node):
            return
        driver = plugin.driver
    if driver:
        yield Attachable(driver, f"{_TO_BE_MADE}{claim.key}")


def attached(node_name: str, catalog: Catalog) -> set[Attachable]:
    """Return the volumes that VolumeAttachments name on a node."""
    volumes: set[Attachable] = set()
    for attachment in catalog.attachments.values():
        if attachment.node_name != node_name or not attachment.attacher:
            continue
        held = catalog.volumes.get(attachment.persistent_volume_name or "")
        if held is not None and isinstance(held.source, CsiSource):
            volumes.add(Attachable(attachment.attacher, held.source.volume_handle))
    return volumes
