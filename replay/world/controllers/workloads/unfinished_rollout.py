"""Notes at the end of a run about rollouts that have not finished."""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.kube.v1beta1 import meta_pb2

ON_DELETE = "OnDelete"
"""The update strategy of a StatefulSet or DaemonSet that replaces pods which a user deletes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedRollout:
    """A workload, its desired pods, and how many are of its template and of older ones."""

    kind: str
    meta: meta_pb2.ObjectMeta
    desired: int
    updated: int
    older: int

    def paused_text(self) -> str:
        """Return the note on a Deployment that is paused."""
        return f"{self._name} is paused: its rollout waits, with {self._pods}"

    def on_delete_text(self) -> str:
        """Return the note on a rollout that waits for a user."""
        return (
            f"{self._name} has the update strategy {ON_DELETE}: its rollout waits until its pods "
            f"are deleted, with {self._pods}"
        )

    def partition_text(self, partition: int) -> str:
        """Return the note on a rollout that all pods from the partition on have."""
        return (
            f"{self._name} has the partition {partition}: its rollout ends there, with {self._pods}"
        )

    def under_way_text(self) -> str:
        """Return the note on a rollout that the end of the run interrupts."""
        return (
            f"{self._name} is still rolling out at the end: {self.updated} of {self.desired} pods "
            f"are updated, {self.older} are of older templates"
        )

    @property
    def _pods(self) -> str:
        return f"{self.updated} of {self.desired} pods updated and {self.older} of older templates"

    @property
    def _name(self) -> str:
        return f"{self.kind} {self.meta.namespace}/{self.meta.name}"
