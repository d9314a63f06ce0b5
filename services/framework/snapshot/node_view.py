"""One node in plain Python values, which a dry run may change.

Source: kubernetes v1.34 pkg/scheduler/framework/types.go, NodeInfo.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from services.framework.snapshot.snapshot import Snapshot
from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.requests import HostPort, hold, release


@dataclass(slots=True)
class NodeView:
    """A node and its pods; `allocatable` and `requested` follow the snapshot's columns.

    `changes` are the pods that came (1) and went (-1) since the snapshot, in order.
    """

    snapshot: Snapshot
    row: int
    node: Node
    allocatable: list[int]
    requested: list[int]
    pod_count: int
    pods_max: int
    ports: dict[HostPort, int]
    changes: list[tuple[Pod, int]]
    _owned: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot, row: int) -> NodeView:
        """Return the node of a live row with its state in the snapshot."""
        columns = snapshot.columns
        return cls(
            snapshot=snapshot,
            row=row,
            node=snapshot.node(row),
            allocatable=columns.allocatable[row].tolist(),
            requested=columns.requested[row].tolist(),
            pod_count=int(columns.pod_count[row]),
            pods_max=int(columns.pods_max[row]),
            ports=dict(snapshot.ports_on(row)),
            changes=[],
        )

    def pods(self) -> list[Pod]:
        """Return the current pods on the node."""
        pods = {pod.uid: pod for pod in self.snapshot.pods_on(self.row)}
        for pod, sign in self.changes:
            if sign > 0:
                pods[pod.uid] = pod
            else:
                pods.pop(pod.uid, None)
        return list(pods.values())

    def owned(self, name: str) -> int:
        """Return the node's value in a plugin's own column (`Columns.owned`)."""
        changed = self._owned.get(name)
        return int(self.snapshot.columns.owned(name)[self.row]) if changed is None else changed

    def change_owned(self, name: str, amount: int) -> None:
        """Add to the node's value in a plugin's own column, in this view only."""
        self._owned[name] = self.owned(name) + amount

    def add(self, pod: Pod) -> None:
        """Count a pod on the node."""
        load = self.snapshot.load(self.snapshot.spec_in_force(pod))
        self._widen(len(load.amounts))
        for index, amount in load.taken:
            self.requested[index] += amount
        self.pod_count += 1
        hold(self.ports, load.ports)
        self.changes.append((pod, 1))

    def remove(self, pod: Pod) -> None:
        """Stop counting a pod on the node."""
        load = self.snapshot.load(self.snapshot.spec_in_force(pod))
        for index, amount in load.taken:
            self.requested[index] -= amount
        self.pod_count -= 1
        release(self.ports, load.ports)
        self.changes.append((pod, -1))

    def _widen(self, resources: int) -> None:
        """Follow the snapshot where the pod added a resource column."""
        missing = [0] * (resources - len(self.requested))
        self.requested += missing
        self.allocatable += missing
