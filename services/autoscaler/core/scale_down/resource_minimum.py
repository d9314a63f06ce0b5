"""Limits scale-downs by the cluster's minimum of cores, memory and GPUs.

Source: kubernetes/autoscaler 1.36 resourcequotas/factory.go, NewMinQuotasTracker; tracker.go,
ConsumeQuota.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from services.autoscaler.core.groups import Cloud
from services.autoscaler.core.node_resources import NodeResources
from services.autoscaler.core.objects import ClusterNode
from services.autoscaler.core.options import Options
from services.kube.requests import CPU, MEMORY


@dataclass(slots=True, kw_only=True)
class ResourceMinimum:
    """The amount of each resource by which the cluster may still shrink."""

    node_resources: NodeResources
    spare: dict[str, int]

    @staticmethod
    def of(nodes: Iterable[ClusterNode], cloud: Cloud, options: Options) -> ResourceMinimum:
        """Return the amounts by which a cluster of those nodes may shrink."""
        node_resources = NodeResources(cloud=cloud)
        total = node_resources.total(nodes)
        bounds = {CPU: options.cores_total, MEMORY: options.memory_total, **options.gpu_total}
        spare = {
            resource: max(total.get(resource, 0) - bound.least, 0)
            for resource, bound in bounds.items()
        }
        return ResourceMinimum(node_resources=node_resources, spare=spare)

    def take(self, node: ClusterNode) -> bool:
        """Subtract a node from the amounts, unless one of them is too small."""
        needed = {
            resource: amount
            for resource, amount in self.node_resources.of(node).items()
            if amount > 0 and resource in self.spare
        }
        if any(amount > self.spare[resource] for resource, amount in needed.items()):
            return False
        for resource, amount in needed.items():
            self.spare[resource] -= amount
        return True
