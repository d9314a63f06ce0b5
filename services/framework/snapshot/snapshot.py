"""The scheduler's view of the cluster: nodes as rows, with the pods on them.

A pod counts on its node from the moment it is assumed. A deleted node that still has pods, and a
node whose pods arrive first, keep a row that is not alive until the last pod is gone. Each change
notes its row, so that derived values are recomputed for changed rows only: `node_log` notes changes
of nodes, `pod_log` changes of pods and nodes that a verdict may follow from, and `row_log` all that
a dry run may read: those, any change of a row's list of pods, and the pods nominated to it.

Source: kubernetes v1.34 pkg/scheduler/backend/cache/cache.go; framework/types.go, NodeInfo.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from services.framework.columns import kernels
from services.framework.columns.columns import ChangeLog, Columns, Int64s, RowLayout, Rows
from services.framework.snapshot.catalog import Catalog
from services.framework.snapshot.devices import PoolName
from services.framework.snapshot.node_indexes import Images, NodeTree, TaintClasses, Topologies
from services.framework.snapshot.nominations import Nominations
from services.framework.snapshot.pod_classes import ClassCountsByKey, PodClasses
from services.framework.snapshot.pod_load import PodLoad, PodLoads
from services.kube.node import Node
from services.kube.pod import Pod, PodSpec
from services.kube.requests import PODS, HostPort, hold, is_counted, is_resize_infeasible, release
from services.kube.workloads import PodDisruptionBudget


class PodFollower(Protocol):
    """Receives the pods that are added and removed (`plugin.PodColumnsPlugin`)."""

    def pod_came(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Count a pod on the node of `row`."""

    def pod_went(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Stop counting a pod on the node of `row`."""


class Snapshot:
    """The cluster in the scheduler's view; see the module's docstring.

    `now_ns` is the time of the attempt, ns since the Unix epoch, for what ends after a time.
    `affine_pods` counts the assigned and assumed pods with pod affinity or anti-affinity. With
    `pod_level_resizes` the requests of a pod as a whole follow a resize in place, as in v1.36.
    """

    def __init__(self, *, pod_level_resizes: bool = False) -> None:
        self.columns = Columns()
        self.node_log = ChangeLog()
        self.pod_log = ChangeLog()
        self.row_log = ChangeLog()
        self.images = Images()
        self.catalog = Catalog()
        self.catalog.devices.changed = self._note_devices
        self.now_ns = 0
        self.nominations = Nominations(self._note_nomination)
        self.taints = TaintClasses()
        self.affine_pods = 0
        self.budgets: dict[str, PodDisruptionBudget] = {}
        self.budget_changes = 0
        self._tree = NodeTree()
        self._nodes: list[Node | None] = [None] * self.columns.capacity
        self.topologies = Topologies(self._nodes, self.columns, self.node_log)
        self._pods: list[list[Pod]] = [[] for _ in range(self.columns.capacity)]
        self._ports: list[dict[HostPort, int]] = [{} for _ in range(self.columns.capacity)]
        self._rows = Rows(self.columns)
        self._loads = PodLoads(self.columns, pod_level_resizes=pod_level_resizes)
        self._place: dict[str, tuple[Pod, int]] = {}
        self._assumed: set[str] = set()
        self._listed: tuple[int, Int64s] = (-1, self.columns.rows)
        self._followers: dict[str, PodFollower] = {}
        self._classes: PodClasses | None = None
        self._class_counts: ClassCountsByKey | None = None
        self.node_count = 0

    @property
    def pod_classes(self) -> PodClasses:
        """Return the pods by class, which are followed from the first call on."""
        if self._classes is None:
            rows = self.columns.rows.tolist()
            self._classes = PodClasses((pod, row) for row in rows for pod in self._pods[row])
        return self._classes

    @property
    def has_pod_classes(self) -> bool:
        """Return whether the pods are followed by class."""
        return self._classes is not None

    @property
    def class_counts(self) -> ClassCountsByKey:
        """Return the counts of pods by class on each row."""
        if self._class_counts is None:
            self._class_counts = ClassCountsByKey(self.pod_classes, self.columns)
        return self._class_counts

    @property
    def changes(self) -> tuple[int, ...]:
        """Return a version that differs whenever a decision about the same pod may differ."""
        catalog = self.catalog
        return (
            self.node_log.end,
            self.pod_log.end,
            self.row_log.end,
            self.nominations.epoch,
            self.budget_changes,
            catalog.namespace_epoch,
            catalog.workload_epoch,
            catalog.storage_epoch,
            catalog.devices.version,
        )

    @property
    def row_count(self) -> int:
        """The number of rows: nodes, and those removed whose row is not used again yet."""
        return len(self._nodes)

    @property
    def pod_count(self) -> int:
        """The number of assigned and assumed pods."""
        return len(self._place)

    def node(self, row: int) -> Node:
        """Return the node of a live row."""
        node = self._nodes[row]
        assert node is not None, f"row {row} is not a node"
        return node

    def name(self, row: int) -> str:
        """Return the name of a row's node, which may be removed already."""
        return self._rows.names[row]

    def row(self, name: str) -> int | None:
        """Return the row of a node, None where there is none of that name."""
        row = self._rows.by_name.get(name)
        return row if row is not None and self.columns.alive[row] else None

    def listed_rows(self) -> Sequence[int]:
        """Return the rows of all nodes in upstream's order, one of each zone in turn."""
        rows: list[int] = self.rows_in_order().tolist()
        return rows

    def rows_in_order(self) -> Int64s:
        """Return the same as an array, int64[nodes], which must not be changed."""
        if self._listed[0] != self.node_log.end:
            rows = [self._rows.by_name[name] for name in self._tree.names()]
            self._listed = (self.node_log.end, np.array(rows, dtype=np.int64))
        return self._listed[1]

    def pods_on(self, row: int) -> Sequence[Pod]:
        """Return the assigned and assumed pods of a row, in upstream's order."""
        return self._pods[row]

    def ports_on(self, row: int) -> dict[HostPort, int]:
        """Return the host ports held on a row, with the number of their holders."""
        return self._ports[row]

    def load(self, spec: PodSpec) -> PodLoad:
        """Return the load of a pending pod with that spec, by column."""
        return self._loads.of(spec)

    def spec_in_force(self, pod: Pod) -> PodSpec:
        """Return the spec that an assigned pod counts with, which a resize may make another one."""
        return self._loads.spec_in_force(pod)

    def set_node(self, node: Node) -> None:
        """Add or replace a node."""
        row = self._rows.by_name.get(node.name)
        if row is None:
            row = self._take_row(node.name)
        old = self._nodes[row]
        if old is not None and _same_to_plugins(old, node):
            self._nodes[row] = node
            return
        if old is None:
            self.node_count += 1
        if old is None or old.images != node.images:
            self.images.release(row, () if old is None else old.images)
            self.images.hold(row, node.images)
        self._nodes[row] = node
        self._tree.put(node.name, node.zone_key)
        self._fill(row, node)
        self._note_node(row)

    def remove_node(self, name: str) -> None:
        """Remove a node; its row stays while pods are on it. An unknown name is ignored."""
        row = self.row(name)
        if row is None:
            return
        self.images.release(row, self.node(row).images)
        self._tree.drop(name)
        self._nodes[row] = None
        self.node_count -= 1
        self.columns.alive[row] = False
        self._note_node(row)
        self._give_back(row)

    def pod(self, uid: str) -> Pod | None:
        """Return an assigned or assumed pod."""
        held = self._place.get(uid)
        return held[0] if held is not None else None

    def is_assumed(self, uid: str) -> bool:
        """Return whether a pod is assumed and not yet confirmed."""
        return uid in self._assumed

    def set_pod(self, pod: Pod) -> None:
        """Add or replace an assigned pod, or confirm an assumed one.

        As upstream, a pod that is replaced goes to the end of its node's pods. A pod that has
        finished is removed.
        """
        assert pod.node_name, f"{pod.key} is not assigned"
        held = self._place.get(pod.uid)
        if held is not None and self._is_same_to_plugins(held, pod):
            row = held[1]
            self._take_out(pod.uid, row)
            self._assumed.discard(pod.uid)
            self._append(pod, row)
            return
        self.remove_pod(pod.uid)
        if not pod.is_terminal:
            self._put(pod, pod.node_name)

    def remove_pod(self, uid: str) -> None:
        """Remove a pod; an unknown one is ignored."""
        held = self._place.pop(uid, None)
        if held is None:
            return
        self._assumed.discard(uid)
        pod, row = held
        self._take_out(uid, row)
        self._count(pod, row, -1)
        self._give_back(row)

    def assume(self, pod: Pod, node_name: str) -> None:
        """Count a pending pod on a node before its binding is confirmed; `forget` undoes it."""
        assert pod.uid not in self._place, f"{pod.key} is on a node already"
        self._put(pod, node_name)
        self._assumed.add(pod.uid)

    def forget(self, uid: str) -> None:
        """Remove an assumed pod from its node; the latest assumed pod leaves no trace."""
        assert uid in self._assumed, f"{uid} is not assumed"
        self.remove_pod(uid)

    def set_budget(self, budget: PodDisruptionBudget) -> None:
        """Add or replace a disruption budget."""
        self.budgets[f"{budget.namespace}/{budget.name}"] = budget
        self.budget_changes += 1

    def remove_budget(self, namespace: str, name: str) -> None:
        """Remove a disruption budget, if it is there."""
        self.budgets.pop(f"{namespace}/{name}", None)
        self.budget_changes += 1

    def layout(self) -> RowLayout:
        """Return the owners of rows and columns."""
        return self._rows.layout()

    def lay_out(self, layout: RowLayout) -> None:
        """Adopt the row numbers of another snapshot, before any node or pod is added.

        Raises ValueError for a layout that no snapshot can have.
        """
        self._rows.lay_out(layout)
        self._widen()

    def follow(self, name: str, follower: PodFollower) -> None:
        """Call `follower` with all assigned pods, now and later; once for each `name`."""
        if name in self._followers:
            return
        self._followers[name] = follower
        for pod, row in self._place.values():
            follower.pod_came(pod, row, self)
            self.touch(row)

    def follower(self, name: str) -> PodFollower | None:
        """Return the follower of a name, None without one."""
        return self._followers.get(name)

    def touch(self, row: int) -> None:
        """Note that a plugin changed its own column in `row`."""
        self.pod_log.note(row)
        self.row_log.note(row)

    def _put(self, pod: Pod, node_name: str) -> None:
        row = self._rows.by_name.get(node_name)
        if row is None:
            row = self._take_row(node_name)
        self._append(pod, row)
        self._count(pod, row, 1)

    def _append(self, pod: Pod, row: int) -> None:
        self._pods[row].append(pod)
        self._place[pod.uid] = (pod, row)
        self.row_log.note(row)

    def _take_out(self, uid: str, row: int) -> None:
        pods = self._pods[row]
        last = pods.pop()
        if last.uid != uid:
            index = [pod.uid for pod in pods].index(uid)
            pods[index] = last
        self.row_log.note(row)

    def _is_same_to_plugins(self, held: tuple[Pod, int], pod: Pod) -> bool:
        """Return whether no verdict depends on the change of a pod on a node."""
        old, row = held
        return (
            old.spec is pod.spec
            and self._rows.names[row] == pod.node_name
            and old.labels == pod.labels
            and old.container_resources == pod.container_resources
            and old.pod_resources == pod.pod_resources
            and (
                not pod.reports_resources or is_resize_infeasible(old) == is_resize_infeasible(pod)
            )
            and old.is_terminating == pod.is_terminating
            and not pod.is_terminal
        )

    def _count(self, pod: Pod, row: int, sign: int) -> None:
        load = self._loads.of(self.spec_in_force(pod) if pod.reports_resources else pod.spec)
        columns = self.columns
        is_full = kernels.count(
            load.amounts,
            row,
            sign,
            load.non_zero,
            columns.requested,
            columns.non_zero_requested,
            columns.pod_count,
        )
        if is_full:
            self._add_up(row)
        if load.ports:
            (hold if sign > 0 else release)(self._ports[row], load.ports)
        if load.is_affine:
            self.affine_pods += sign
        if self._classes is not None:
            (self._classes.came if sign > 0 else self._classes.went)(pod, row)
        for follower in self._followers.values():
            (follower.pod_came if sign > 0 else follower.pod_went)(pod, row, self)
        self.pod_log.note(row)

    def _add_up(self, row: int) -> None:
        """Set a row's sums from its pods, where one is too large to be counted up and down."""
        loads = [self._loads.of(self.spec_in_force(pod)) for pod in self._pods[row]]
        columns = self.columns
        kernels.add_up(columns.requested, row, (load.amounts for load in loads))
        kernels.add_up(columns.non_zero_requested, row, (load.non_zero for load in loads))

    def _fill(self, row: int, node: Node) -> None:
        columns = self.columns
        counted = {name: amount for name, amount in node.allocatable.items() if is_counted(name)}
        indexes = dict(zip(columns.places(counted), counted.values(), strict=True))
        columns.allocatable[row] = 0
        for index, amount in indexes.items():
            columns.allocatable[row, index] = amount
        columns.pods_max[row] = node.allocatable.get(PODS, 0)
        columns.unschedulable[row] = node.unschedulable
        columns.taint_class[row] = self.taints.of(node.taints)
        columns.alive[row] = True

    def _note_node(self, row: int) -> None:
        self.node_log.note(row)
        self.touch(row)

    def _note_nomination(self, node_name: str) -> None:
        row = self._rows.by_name.get(node_name)
        if row is not None:
            self.row_log.note(row)

    def _note_devices(self, pool: PoolName | None) -> None:
        """Mark the nodes that can access a pool as changed, as if their pods had changed."""
        name = None if pool is None else self.catalog.devices.slices.node_of_pool(pool)
        if name is None:
            self.pod_log.note_all()
            self.row_log.note_all()
        elif (row := self.row(name)) is not None:
            self.touch(row)

    def _take_row(self, name: str) -> int:
        row = self._rows.take(name)
        if self.columns.capacity > len(self._nodes):
            self._widen()
            self._note_node(row)
        return row

    def _give_back(self, row: int) -> None:
        """Free a row without a node, once no pods are left on it."""
        if self._nodes[row] is None and not self._pods[row]:
            self._rows.give_back(row)
            self._note_node(row)

    def _widen(self) -> None:
        """Grow the per-row lists to the capacity of the columns."""
        added = self.columns.capacity - len(self._nodes)
        self._nodes.extend([None] * added)
        self._pods.extend([] for _ in range(added))
        self._ports.extend({} for _ in range(added))


def _same_to_plugins(old: Node, new: Node) -> bool:
    return (
        old.labels == new.labels
        and old.allocatable == new.allocatable
        and old.taints == new.taints
        and old.unschedulable == new.unschedulable
        and old.images == new.images
        and old.declared_features == new.declared_features
    )
