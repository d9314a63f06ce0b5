"""The plugins that are served, by name.

A profile may name others; those are passed over until they are built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from services.scheduler.core.plugin import Plugin
from services.scheduler.core.plugins.default_binder import DefaultBinder
from services.scheduler.core.plugins.default_preemption import DefaultPreemption
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
from services.scheduler.core.preemption.preemptor import Preemptor

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
"""What needs nothing of its session; `with_preemption` adds the plugin that does."""


def with_preemption(registry: Registry, preemptor: Preemptor | None) -> Registry:
    """Return `registry` with DefaultPreemption by `preemptor`, or without it where that is None.

    A plugin of that name which `registry` brings itself is kept.
    """
    name = DefaultPreemption.name
    if preemptor is None:
        return {each: make for each, make in registry.items() if each != name}
    return {name: lambda: DefaultPreemption(preemptor), **registry}
