"""The nodes on which a DaemonSet's pods should run, and the nodes on which they run.

Source: kubernetes v1.34 pkg/controller/daemon/daemon_controller.go, updateDaemonSetStatus.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from replay.results.workloads.workload import OwnedPod
from replay.world.controllers.workloads.daemon_sets import NodeShouldRun
from reprieve.kube.v1beta1 import node_pb2
from services.kube.daemon_pods import ShouldRun


@dataclass(slots=True)
class DaemonNodes:
    """The nodes on which a DaemonSet's pods should run, and its pods on them.

    desired: the number of nodes that should have a pod, or have a pod that may stay. ready_nodes:
    the number of these nodes that have a ready pod.
    """

    _should_run: NodeShouldRun
    _nodes: dict[str, ShouldRun] = field(default_factory=dict)
    _parts: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    pods: Counter[str] = field(default_factory=Counter)
    ready: Counter[str] = field(default_factory=Counter)
    desired: int = 0
    ready_nodes: int = 0

    def put(self, node: node_pb2.Node) -> bool:
        """Add or replace a node; return whether `desired` or `ready_nodes` changed."""
        self._nodes[node.metadata.name] = self._should_run.on(node)
        return self._recount(node.metadata.name)

    def remove(self, name: str) -> bool:
        """Remove a node; return whether `desired` or `ready_nodes` changed."""
        self._nodes.pop(name, None)
        return self._recount(name)

    def count(self, pod: OwnedPod, sign: int) -> None:
        """Add (`sign` 1) or subtract (-1) a pod that has not ended."""
        for counter, amount in ((self.pods, 1), (self.ready, int(pod.is_ready))):
            counter[pod.node_name] += sign * amount
            if not counter[pod.node_name]:
                del counter[pod.node_name]
        self._recount(pod.node_name)

    def _recount(self, name: str) -> bool:
        should_run = self._nodes.get(name, ShouldRun.NO)
        stays = should_run is ShouldRun.CONTINUE and name in self.pods
        is_desired = should_run is ShouldRun.YES or stays
        was = self._parts.get(name, (False, False))
        now = is_desired, is_desired and name in self.ready
        if was == now:
            return False
        self.desired += now[0] - was[0]
        self.ready_nodes += now[1] - was[1]
        if any(now):
            self._parts[name] = now
        else:
            del self._parts[name]
        return True
