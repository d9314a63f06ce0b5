"""The cloud as the autoscaler sees it: node groups, their sizes, and their instances.

A group's target size is what the cloud was asked for. Its instances are what the cloud lists; an
instance may have no node yet, or no longer.

Source: kubernetes/autoscaler 1.36 cloudprovider/cloud_provider.go, NodeGroup, Instance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from services.autoscaler.core.objects import ClusterNode
from services.autoscaler.core.options import GroupOptions


class InstanceState(Enum):
    """The state of an instance in the cloud."""

    RUNNING = "Running"
    CREATING = "Creating"
    DELETING = "Deleting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance; `error_code` "" unless it cannot be created."""

    provider_id: str
    state: InstanceState = InstanceState.RUNNING
    error_class: str = ""
    error_code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """A group of nodes that are made from one template.

    `price` is that of one node for an hour, None if unknown. `options` are those that hold for the
    group: its own, and the flags' where it has none.
    """

    name: str
    min_size: int
    max_size: int
    target: int
    template: ClusterNode
    options: GroupOptions = field(default_factory=GroupOptions)
    instances: tuple[Instance, ...] = ()
    price: float | None = None


@dataclass(slots=True)
class Cloud:
    """The node groups by name, in the order of names, and which group an instance is of.

    `gpu_label` is the label that the cloud gives nodes with GPUs, "" if it has none.
    """

    gpu_label: str = ""
    by_name: dict[str, NodeGroup] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)

    def put(self, group: NodeGroup) -> None:
        """Add or replace a group."""
        last = self.by_name.get(group.name)
        for instance in () if last is None else last.instances:
            self.homes.pop(instance.provider_id, None)
        for instance in group.instances:
            self.homes[instance.provider_id] = group.name
        self.by_name[group.name] = group
        if last is None:
            self.by_name = dict(sorted(self.by_name.items()))

    def remove(self, name: str) -> None:
        """Remove a group; its nodes are of no group then."""
        group = self.by_name.pop(name, None)
        for instance in () if group is None else group.instances:
            self.homes.pop(instance.provider_id, None)

    def groups(self) -> list[NodeGroup]:
        """Return the groups by name."""
        return list(self.by_name.values())

    def group_of(self, provider_id: str) -> NodeGroup | None:
        """Return the group of an instance, None if no group lists it."""
        name = self.homes.get(provider_id)
        return None if name is None else self.by_name[name]

    def has_instance(self, node: ClusterNode) -> bool:
        """Return whether the instance of a node still exists; a node of no group counts as there.

        Nobody can say of a node of no group, and such a node is not in deletion.
        """
        return not node.provider_id or node.provider_id in self.homes
