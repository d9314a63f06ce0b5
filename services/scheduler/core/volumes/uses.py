"""How many pods on nodes use each claim, kept while pods come and go.

Source: kubernetes v1.34 pkg/scheduler/framework/types.go, NodeInfo.updatePVCRefCounts.
"""

from __future__ import annotations

from services.kube.pod import Pod
from services.kube.volumes import ClaimSource
from services.scheduler.core.snapshot import Snapshot

_NAME = "ClaimUses"


class ClaimUses:
    """Counts by "namespace/name"; claims that are made for one pod do not count."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    @classmethod
    def of(cls, snapshot: Snapshot) -> ClaimUses:
        """Return the snapshot's counts, which it keeps from the first call on."""
        known = snapshot.follower(_NAME)
        if isinstance(known, ClaimUses):
            return known
        made = cls()
        snapshot.follow(_NAME, made)
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
    return [
        f"{pod.namespace}/{volume.source.claim_name}"
        for volume in pod.spec.volumes
        if isinstance(volume.source, ClaimSource)
    ]
