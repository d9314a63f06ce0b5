"""Computes a node's resources for the cluster's limits: cores, memory, and GPUs by type.

All nodes of a group count as having the resources of the first one that is looked at.

Source: kubernetes/autoscaler 1.36 resourcequotas/cache.go; core/utils/utils.go,
GetNodeCoresAndMemory; processors/customresources/gpu_processor.go, GetNodeResourceTargets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.autoscaler.core.gpu import VENDOR_RESOURCES, allocatable_gpus
from services.autoscaler.core.groups import Cloud, NodeGroup
from services.autoscaler.core.objects import ClusterNode
from services.kube.node import Node
from services.kube.requests import CPU, MEMORY

_CORE_MILLI = 1000


@dataclass(slots=True, kw_only=True)
class NodeResources:
    """The resources of nodes (cores, bytes, GPUs by type); cached by group."""

    cloud: Cloud
    by_group: dict[str, Mapping[str, int]] = field(default_factory=dict)

    def of(self, node: ClusterNode, group: NodeGroup | None = None) -> Mapping[str, int]:
        """Return the resources of a node of `group`, or of the group that lists it."""
        group = group or self.cloud.group_of(node.provider_id)
        if group is None:
            return self._of(node.node, None)
        if group.name not in self.by_group:
            self.by_group[group.name] = self._of(node.node, group)
        return self.by_group[group.name]

    def total(self, nodes: Iterable[ClusterNode]) -> dict[str, int]:
        """Return the sum of the resources of nodes."""
        total: dict[str, int] = {}
        for node in nodes:
            for resource, amount in self.of(node).items():
                total[resource] = total.get(resource, 0) + amount
        return total

    def _of(self, node: Node, group: NodeGroup | None) -> Mapping[str, int]:
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
