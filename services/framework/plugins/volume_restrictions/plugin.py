"""VolumeRestrictions: disks that two pods cannot share, and claims for one pod alone.

A disk conflicts with the same disk on the node; a ReadWriteOncePod claim that a pod uses anywhere
conflicts on every node. Upstream's dry run of preemption compares those claims' names without the
namespace, which is a bug. For v1.34 the namespace counts here, as documented; v1.36 is served as it
is.

Source: kubernetes v1.34 and v1.36 plugins/volumerestrictions/volume_restrictions.go.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from services.framework.columns.columns import Int64s
from services.framework.plugin import FilterPlugin, PreFiltered, Scope
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.framework.volumes.claims import ClaimUses, base_key, claim_of, not_found
from services.kube.pod import Pod, PodSpec
from services.kube.volumes import (
    AwsElasticBlockStore,
    ClaimSource,
    GcePersistentDisk,
    IscsiDisk,
    RbdImage,
    conflict,
)

ONE_POD = "ReadWriteOncePod"
_DISK, _CLAIM = 1, 2
_REASONS = {
    _DISK: "node(s) had no available disk",
    _CLAIM: (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    ),
}

Disk = AwsElasticBlockStore | GcePersistentDisk | IscsiDisk | RbdImage


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictedVolumes:
    """A pod's unshared disks and claims; `conflicts` of its claims are used by pods on nodes.

    `missing` names a claim that is not there, "" where none is.
    """

    disks: tuple[Disk, ...]
    claims: frozenset[str]
    conflicts: int
    missing: str = ""


class VolumeRestrictions(FilterPlugin[RestrictedVolumes]):
    """Filters by other pods that use the pod's disks and claims."""

    name = "VolumeRestrictions"
    scope = Scope.PODS
    needs_pre_filter = True
    keys_follow_pod = True

    def skips(self, spec: PodSpec) -> bool:
        return not spec.volumes

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the restrictions, None where there is nothing to conflict with."""
        if not pod.spec.volumes:
            return None
        restricted = _restricted(pod, snapshot)
        if not restricted.missing and not restricted.disks and not restricted.conflicts:
            return None
        return (base_key(pod, snapshot), restricted.conflicts)

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[RestrictedVolumes]:
        """Read the pod's claims; refuse the pod for a missing one."""
        restricted = _restricted(pod, snapshot)
        if not restricted.missing:
            return PreFiltered(data=restricted)
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        reasons = (not_found(restricted.missing),)
        return PreFiltered(
            data=restricted, refusal=Status(code=code, plugin=self.name, reasons=reasons)
        )

    def filter_node(self, data: RestrictedVolumes, view: NodeView) -> int:
        if _in_use(data.disks, view.pods()):
            return _DISK
        changed = sum(sign * self.claims_used(data, pod) for pod, sign in view.changes)
        return _CLAIM if data.conflicts + changed > 0 else 0

    def filter(
        self, data: RestrictedVolumes, snapshot: Snapshot, rows: Int64s, codes: Int64s
    ) -> None:
        codes[rows] = _CLAIM if data.conflicts > 0 else 0
        if data.disks:
            for row in rows.tolist():
                if _in_use(data.disks, snapshot.pods_on(row)):
                    codes[row] = _DISK

    def filter_status(self, data: RestrictedVolumes, code: int) -> Status:  # noqa: ARG002 - the code says it
        """Return the refusal of a node, which preemption may resolve."""
        return Status(code=Code.UNSCHEDULABLE, plugin=self.name, reasons=(_REASONS[code],))

    def claims_used(self, data: RestrictedVolumes, pod: Pod) -> int:
        """Return how many volumes of another pod use one of the claims."""
        return sum(f"{pod.namespace}/{name}" in data.claims for name in _claim_names(pod))


class VolumeRestrictionsByName(VolumeRestrictions):
    """VolumeRestrictions of v1.36, whose dry runs compare claims by their names alone."""

    def claims_used(self, data: RestrictedVolumes, pod: Pod) -> int:
        names = {key.partition("/")[2] for key in data.claims}
        return sum(name in names for name in _claim_names(pod))


def _restricted(pod: Pod, snapshot: Snapshot) -> RestrictedVolumes:
    disks: list[Disk] = []
    claims: set[str] = set()
    for volume in pod.spec.volumes:
        source = volume.source
        if isinstance(source, AwsElasticBlockStore | GcePersistentDisk | IscsiDisk | RbdImage):
            disks.append(source)
        elif isinstance(source, ClaimSource):
            claim = claim_of(pod, source.claim_name, snapshot.catalog)
            if claim is None:
                return RestrictedVolumes(
                    disks=(), claims=frozenset(), conflicts=0, missing=source.claim_name
                )
            if ONE_POD in claim.access_modes:
                claims.add(claim.key)
    conflicts = 0
    if claims:
        uses = ClaimUses.of(snapshot)
        conflicts = sum(uses.used(key) for key in claims)
    return RestrictedVolumes(disks=tuple(disks), claims=frozenset(claims), conflicts=conflicts)


def _claim_names(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.volumes:
        if isinstance(volume.source, ClaimSource):
            yield volume.source.claim_name


def _in_use(disks: tuple[Disk, ...], pods: Iterable[Pod]) -> bool:
    if not disks:
        return False
    held = [volume.source for pod in pods for volume in pod.spec.volumes]
    return any(conflict(disk, other) for disk in disks for other in held)
