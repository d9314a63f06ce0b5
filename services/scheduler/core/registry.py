"""The plugins that are served, by name.

A profile may name others; those are passed over until they are built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from services.scheduler.core.plugin import Plugin
from services.scheduler.core.plugins.default_binder import DefaultBinder
from services.scheduler.core.plugins.image_locality import ImageLocality
from services.scheduler.core.plugins.node_affinity import NodeAffinity
from services.scheduler.core.plugins.node_name import NodeName
from services.scheduler.core.plugins.node_ports import NodePorts
from services.scheduler.core.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from services.scheduler.core.plugins.node_resources_fit import NodeResourcesFit
from services.scheduler.core.plugins.node_unschedulable import NodeUnschedulable
from services.scheduler.core.plugins.priority_sort import PrioritySort
from services.scheduler.core.plugins.scheduling_gates import SchedulingGates
from services.scheduler.core.plugins.taint_toleration import TaintToleration

Registry = Mapping[str, Callable[[], Plugin]]

SERVED: Registry = MappingProxyType(
    {
        SchedulingGates.name: SchedulingGates,
        PrioritySort.name: PrioritySort,
        NodeUnschedulable.name: NodeUnschedulable,
        NodeName.name: NodeName,
        TaintToleration.name: TaintToleration,
        NodeAffinity.name: NodeAffinity,
        NodePorts.name: NodePorts,
        NodeResourcesFit.name: NodeResourcesFit,
        NodeResourcesBalancedAllocation.name: NodeResourcesBalancedAllocation,
        ImageLocality.name: ImageLocality,
        DefaultBinder.name: DefaultBinder,
    }
)
