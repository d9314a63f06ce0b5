"""Limits scale-ups by the cluster's maximum of cores, memory and GPUs.

Source: kubernetes/autoscaler 1.36 resourcequotas/factory.go, NewMaxQuotasTracker; tracker.go,
CheckQuota, ConsumeQuota; core/scaleup/orchestrator/skippedreasons.go, NewMaxResourceLimitReached.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from services.autoscaler.core.groups import Cloud, NodeGroup
from services.autoscaler.core.node_resources import NodeResources
from services.autoscaler.core.objects import ClusterNode
from services.autoscaler.core.options import Options
from services.kube.requests import CPU, MEMORY

_QUOTA = "cluster-wide"


@dataclass(slots=True, kw_only=True)
class ResourceMaximum:
    """The remaining quota, by resource."""

    node_resources: NodeResources
    room: dict[str, int]

    @staticmethod
    def of(nodes: Iterable[ClusterNode], cloud: Cloud, options: Options) -> ResourceMaximum:
        """Return the remaining quota of a cluster with `nodes`."""
        node_resources = NodeResources(cloud=cloud)
        total = node_resources.total(nodes)
        bounds = {CPU: options.cores_total, MEMORY: options.memory_total, **options.gpu_total}
        room = {
            resource: max(bound.most - total.get(resource, 0), 0)
            for resource, bound in bounds.items()
        }
        return ResourceMaximum(node_resources=node_resources, room=room)

    def refusal(self, group: NodeGroup, node: ClusterNode, count: int) -> str:
        """Return why `count` nodes like `node` exceed the quota, "" if they do not."""
        exceeded = [
            resource
            for resource, amount in sorted(self._needed(group, node).items())
            if self.room[resource] < amount * count
        ]
        if not exceeded:
            return ""
        return f'exceeded quota: "{_QUOTA}", resources: {", ".join(exceeded)}'

    def allowed(self, group: NodeGroup, node: ClusterNode, count: int) -> int:
        """Return how many of `count` nodes like `node` may be added."""
        needed = self._needed(group, node).items()
        return min((count, *(self.room[resource] // amount for resource, amount in needed)))

    def take(self, group: NodeGroup, node: ClusterNode, count: int) -> None:
        """Subtract the resources of `count` nodes from the quota.

        The caller has checked `count` by `allowed`. As upstream's, the quota does not become
        negative even if it has not.
        """
        for resource, amount in self._needed(group, node).items():
            self.room[resource] = max(self.room[resource] - amount * count, 0)

    def _needed(self, group: NodeGroup, node: ClusterNode) -> dict[str, int]:
        return {
            resource: amount
            for resource, amount in self.node_resources.of(node, group).items()
            if amount > 0 and resource in self.room
        }
