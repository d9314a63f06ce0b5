"""One node in plain Python values, which a dry run may change.

Source: kubernetes v1.34 pkg/scheduler/framework/types.go, NodeInfo.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.kube.node import Node
from services.kube.pod import Pod
from services.scheduler.core.host_ports import HostPort, hold, release
from services.scheduler.core.snapshot import Snapshot


@dataclass(slots=True)
class NodeView:
    """A node and what is on it; `allocatable` and `requested` follow the snapshot's columns."""

    snapshot: Snapshot
    node: Node
    allocatable: list[int]
    requested: list[int]
    pod_count: int
    pods_max: int
    ports: dict[HostPort, int]

    @classmethod
    def of(cls, snapshot: Snapshot, row: int) -> NodeView:
        """Return the node of a live row as it stands in the snapshot."""
        columns = snapshot.columns
        return cls(
            snapshot=snapshot,
            node=snapshot.node(row),
            allocatable=columns.allocatable[row].tolist(),
            requested=columns.requested[row].tolist(),
            pod_count=int(columns.pod_count[row]),
            pods_max=int(columns.pods_max[row]),
            ports=dict(snapshot.ports_on(row)),
        )

    def add(self, pod: Pod) -> None:
        """Count a pod on the node."""
        load = self.snapshot.load(pod.spec)
        self._widen(len(load.amounts))
        for index, amount in load.taken:
            self.requested[index] += amount
        self.pod_count += 1
        hold(self.ports, load.ports)

    def remove(self, pod: Pod) -> None:
        """Take a pod's share off the node."""
        load = self.snapshot.load(pod.spec)
        for index, amount in load.taken:
            self.requested[index] -= amount
        self.pod_count -= 1
        release(self.ports, load.ports)

    def _widen(self, resources: int) -> None:
        """Follow the snapshot where the pod brought a resource that was not known before."""
        missing = [0] * (resources - len(self.requested))
        self.requested += missing
        self.allocatable += missing
