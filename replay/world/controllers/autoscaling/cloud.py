"""The cloud: node groups with their instances, which become nodes and are deleted.

A new instance becomes a node that is ready after the group's provisioning delay; DaemonSets then
give it their pods. By the model `node_failures` some instances cannot be made; a keyed hash says
which. What is deleted is gone at once, and its node with it: pods on it are collected as on every
deleted node (node_lifecycle.py). A node of the trace has the provider ID that the trace gives it,
or one that is made of its name.

Source: kubernetes/autoscaler 1.36 cloudprovider/cloud_provider.go, NodeGroup (IncreaseSize,
DecreaseTargetSize, DeleteNodes, ForceDeleteNodes, Nodes); InstanceErrorInfo.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from replay.hashing import KeyedRandom, object_uid
from replay.world.api.cluster import Changed
from replay.world.api.conditions import set_node_condition
from replay.world.controller import Controller, Ending
from replay.world.controllers.autoscaling.node_groups import (
    GROUP_ANNOTATION,
    Autoscaling,
    NodeGroup,
)
from replay.world.controllers.node_lifecycle import NodeLifecycle
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.autoscaler.v1beta1 import autoscaler_pb2
from reprieve.kube.v1beta1 import node_pb2, object_pb2
from services.kube.node import LABEL_HOSTNAME
from services.rpc.kube.fields import set_time

OUT_OF_RESOURCES = "OutOfResourcesErrorClass"
NOT_MADE = "node-failures"
_FIXED = (
    "node groups whose min and max are the same are not scaled; `reprieve node-groups TRACE` "
    "prints groups that can be edited"
)
_PICK_NOTHING = "node groups that begin without a node: none of the trace's first nodes is in them"
_NOT_MADE = "the cloud could not make the instance (--model node-failures)"


@dataclass(slots=True, kw_only=True)
class _Instance:
    """An instance: its node's name, the time of its request (ns), and its state."""

    node_name: str
    asked_ns: int
    is_running: bool = False
    is_failed: bool = False


@dataclass(slots=True, kw_only=True)
class _Size:
    """The state of a group in the cloud: its target size, and its instances by provider ID.

    made: how many instances were asked for since the run began. has_own: whether a node of the
    trace is, or was, in the group.
    """

    target: int = 0
    made: int = 0
    has_own: bool = False
    instances: dict[str, _Instance] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CloudRefusal:
    """The cloud's refusal of a request, which has changed nothing."""

    message: str


class Cloud(Controller):
    """Keeps the groups of a run.

    `_changed` are the groups whose target or instances have changed since `take_changed`.
    """

    actions = frozenset({ActionKind.PROVISION})
    _sizes: dict[str, _Size]
    _group_of: dict[str, str]
    _changed: dict[str, None]
    _last_made_ns: int

    def __init__(self, state: WorldState, nodes: NodeLifecycle, autoscaling: Autoscaling) -> None:
        super().__init__(state)
        self._nodes = nodes
        self._autoscaling = autoscaling
        self._groups = {group.name: group for group in autoscaling.groups}
        self._random = KeyedRandom(autoscaling.config.seed)
        self._sizes = {name: _Size() for name in self._groups}
        self._changed = dict.fromkeys(self._groups)

    # Objects

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Count the trace's nodes that were added, and forget those that were removed."""
        for name in changed.nodes:
            node, home = self._cluster.nodes.get(name), self._group_of.get(name)
            if node is not None and home is None:
                group = self._autoscaling.group_of(node)
                if group is not None:
                    self._join(now_ns, group.name, node)
            elif node is None and home is not None:
                self._leave(home, name)

    def _join(self, now_ns: int, group: str, node: node_pb2.Node) -> None:
        size, name = self._sizes[group], node.metadata.name
        size.instances[provider_id(node)] = _Instance(
            node_name=name, asked_ns=now_ns, is_running=True
        )
        size.target += 1
        size.has_own = True
        self._group_of[name] = group
        self._changed[group] = None

    def _leave(self, group: str, node_name: str) -> None:
        """Forget the instance of a node that was not deleted by the autoscaler."""
        size = self._sizes[group]
        size.instances = {
            key: instance
            for key, instance in size.instances.items()
            if instance.node_name != node_name
        }
        size.target -= 1
        del self._group_of[node_name]
        self._changed[group] = None

    def group_name(self, node_name: str) -> str:
        """Return the name of the group that a node is in, "" for none."""
        return self._group_of.get(node_name, "")

    def target(self, group: str) -> int:
        """Return the target size of a group."""
        return self._sizes[group].target

    def has(self, group: str) -> bool:
        """Return whether there is a group of that name."""
        return group in self._sizes

    def node_names(self, group: str, provider_ids: Iterable[str]) -> list[str]:
        """Return the names of the nodes of a group's instances."""
        instances = self._sizes[group].instances
        return [instances[key].node_name for key in provider_ids if key in instances]

    @property
    def has_upcoming(self) -> bool:
        """Return whether an instance is still being made, or has failed and not been deleted."""
        return any(
            not instance.is_running
            for size in self._sizes.values()
            for instance in size.instances.values()
        )

    @property
    def last_made_ns(self) -> int:
        """Return when the last instance became a node, 0 if none has."""
        return self._last_made_ns

    def conclude(self, _ending: Ending) -> None:
        """Note the groups that could not change, and those that pick no node."""
        fixed = [group.name for group in self._groups.values() if group.min_size == group.max_size]
        if fixed:
            self._journal.note("autoscaler", f"{_FIXED}: {', '.join(fixed)}")
        without = [
            name
            for name, group in self._groups.items()
            if (group.labels or group.names) and not self._sizes[name].has_own
        ]
        if without:
            self._journal.note("autoscaler", f"{_PICK_NOTHING}: {', '.join(without)}")

    def take_changed(self) -> list[autoscaler_pb2.NodeGroup]:
        """Return the groups that have changed since the last call, as the autoscaler sees them."""
        names, self._changed = sorted(self._changed), {}
        return [self._message(self._groups[name], self._sizes[name]) for name in names]

    def _message(self, group: NodeGroup, size: _Size) -> autoscaler_pb2.NodeGroup:
        message = autoscaler_pb2.NodeGroup(
            name=group.name,
            min_size=group.min_size,
            max_size=group.max_size,
            target_size=size.target,
            template=group.template,
            price=group.price,
            options=dict(group.options),
        )
        for key, instance in size.instances.items():
            shown = message.instances.add(provider_id=key)
            shown.state = autoscaler_pb2.INSTANCE_STATE_CREATING
            if instance.is_running:
                shown.state = autoscaler_pb2.INSTANCE_STATE_RUNNING
            if instance.is_failed:
                shown.error_class, shown.error_code = OUT_OF_RESOURCES, NOT_MADE
        return message

    # Requests

    def increase(self, now_ns: int, group: str, delta: int) -> list[str] | CloudRefusal:
        """Request more nodes of a group; return their future names."""
        size, limits = self._sizes[group], self._groups[group]
        if delta < 1:
            return CloudRefusal("size increase must be positive")
        if size.target + delta > limits.max_size:
            return CloudRefusal(
                f"size increase too large: {size.target} + {delta} is above the maximum of "
                f"{limits.max_size}"
            )
        names = []
        for _ in range(delta):
            name = self._new_name(size, group)
            names.append(name)
            size.instances[_made_id(group, name)] = _Instance(node_name=name, asked_ns=now_ns)
            self._group_of[name] = group
            due_ns = now_ns + self._delay_ns(limits, name)
            self._timeline.plan(due_ns, ActionKind.PROVISION, name)
        size.target += delta
        self._changed[group] = None
        return names

    def _delay_ns(self, group: NodeGroup, name: str) -> int:
        delays = group.provisioning_ns or (self._models.provisioning_delay_ns,)
        return delays[int(self._random.share("provisioning-delay", name) * len(delays))]

    def _new_name(self, size: _Size, group: str) -> str:
        while True:
            size.made += 1
            name = f"{group}-new-{size.made}"
            if name not in self._cluster.nodes:
                return name

    def decrease_target(self, group: str, delta: int) -> CloudRefusal | None:
        """Decrease the target size; refuse a size below the number of existing instances."""
        size = self._sizes[group]
        if delta < 1 or size.target - delta < len(size.instances):
            return CloudRefusal(
                f"attempt to delete existing nodes: the target is {size.target}, and the group has "
                f"{len(size.instances)} instances"
            )
        size.target -= delta
        self._changed[group] = None
        return None

    def delete(
        self, now_ns: int, group: str, provider_ids: Iterable[str], *, force: bool
    ) -> CloudRefusal | None:
        """Delete instances, and their nodes permanently."""
        size, limits = self._sizes[group], self._groups[group]
        keys = list(dict.fromkeys(provider_ids))
        unknown = [key for key in keys if key not in size.instances]
        if unknown:
            return CloudRefusal(f"group {group} has no instance {unknown[0]}")
        if size.target - len(keys) < limits.min_size and not force:
            return CloudRefusal(f"min size reached, nodes will not be deleted: {limits.min_size}")
        for key in keys:
            name = size.instances.pop(key).node_name
            del self._group_of[name]
            self._timeline.cancel(ActionKind.PROVISION, name)
            if name in self._cluster.nodes:
                self._nodes.retire(now_ns, name)
        size.target -= len(keys)
        self._changed[group] = None
        return None

    # Instances

    def act(self, now_ns: int, action: Action) -> None:
        """Let an instance become a node, or fail."""
        name = action.key
        group = self._group_of[name]
        key = _made_id(group, name)
        instance = self._sizes[group].instances[key]
        self._changed[group] = None
        took_ns = now_ns - instance.asked_ns
        share = self._models.node_failures_percent / 100
        if share and self._random.share("node-failures", key) < share:
            instance.is_failed = True
            self._journal.node_provisioned(now_ns, name, group, took_ns, _NOT_MADE)
            return
        instance.is_running = True
        self._last_made_ns = now_ns
        self._nodes.put(now_ns, _new_node(now_ns, self._groups[group], name, key))
        self._journal.node_provisioned(now_ns, name, group, took_ns)


def provider_id(node: node_pb2.Node) -> str:
    """Return the ID of a node's instance: spec.providerID, or one made from its name."""
    return node.spec.provider_id or f"reprieve://{node.metadata.name}"


def _made_id(group: str, name: str) -> str:
    return f"reprieve://{group}/{name}"


def _new_node(now_ns: int, group: NodeGroup, name: str, key: str) -> object_pb2.KubernetesObject:
    """Return the node of an instance, which is ready."""
    message = object_pb2.KubernetesObject()
    node = message.node
    node.CopyFrom(group.template)
    meta = node.metadata
    meta.name, meta.uid = name, object_uid("Node", "", name)
    meta.labels[LABEL_HOSTNAME] = name
    meta.annotations[GROUP_ANNOTATION] = group.name
    set_time(meta.creation_timestamp, now_ns)
    node.spec.provider_id = key
    set_node_condition(node.status, "Ready", "True", now_ns, "KubeletReady", "")
    return message
