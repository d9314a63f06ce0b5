"""How much of its cores, memory and GPUs the cluster may lose before it is at its minimum.

What one node of a group has, the first that is looked at, is taken for all nodes of the group.

Source: kubernetes/autoscaler 1.36 resourcequotas/factory.go, NewMinQuotasTracker; tracker.go,
ConsumeQuota; cache.go; core/utils/utils.go, GetNodeCoresAndMemory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.autoscaler.core.gpu import VENDOR_RESOURCES, allocatable_gpus
from services.autoscaler.core.groups import Cloud, NodeGroup
from services.autoscaler.core.objects import ClusterNode
from services.autoscaler.core.options import Options
from services.kube.node import Node
from services.kube.requests import CPU, MEMORY

_CORE_MILLI = 1000


@dataclass(slots=True, kw_only=True)
class ResourceMinimum:
    """What the cluster may still lose, by resource (cores, bytes, or GPUs of a type)."""

    cloud: Cloud
    spare: dict[str, int]
    by_group: dict[str, Mapping[str, int]] = field(default_factory=dict)

    @staticmethod
    def of(nodes: Iterable[ClusterNode], cloud: Cloud, options: Options) -> ResourceMinimum:
        """Return what a cluster of those nodes may lose."""
        minimum = ResourceMinimum(cloud=cloud, spare={})
        total: dict[str, int] = {}
        for node in nodes:
            for resource, amount in minimum.resources(node).items():
                total[resource] = total.get(resource, 0) + amount
        bounds = {CPU: options.cores_total, MEMORY: options.memory_total, **options.gpu_total}
        minimum.spare = {
            resource: max(total.get(resource, 0) - bound.least, 0)
            for resource, bound in bounds.items()
        }
        return minimum

    def take(self, node: ClusterNode) -> bool:
        """Take a node off what may be lost, unless that is too little of anything."""
        needed = {
            resource: amount
            for resource, amount in self.resources(node).items()
            if amount > 0 and resource in self.spare
        }
        if any(amount > self.spare[resource] for resource, amount in needed.items()):
            return False
        for resource, amount in needed.items():
            self.spare[resource] -= amount
        return True

    def resources(self, node: ClusterNode) -> Mapping[str, int]:
        """Return what counts of a node: what the first node of its group has."""
        group = self.cloud.group_of(node.provider_id)
        if group is None:
            return self._resources(node.node, None)
        if group.name not in self.by_group:
            self.by_group[group.name] = self._resources(node.node, group)
        return self.by_group[group.name]

    def _resources(self, node: Node, group: NodeGroup | None) -> Mapping[str, int]:
        cores = -(-node.capacity.get(CPU, 0) // _CORE_MILLI)
        resources = {CPU: cores, MEMORY: node.capacity.get(MEMORY, 0)}
        gpu_type = node.labels.get(self.cloud.gpu_label)
        if gpu_type is not None:
            gpus = allocatable_gpus(node) or (_template_gpus(group) if group is not None else 0)
            resources[gpu_type] = gpus
        return resources


def _template_gpus(group: NodeGroup) -> int:
    """Return the GPUs that a node of the group will have once its driver is installed."""
    capacity = group.template.node.capacity
    return next((capacity[name] for name in VENDOR_RESOURCES if name in capacity), 0)
