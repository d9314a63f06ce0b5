"""The plugins that read one field of a pod, such as NodeName and SchedulingGates.

NodeName, NodePorts and NodeUnschedulable filter: a pod with spec.nodeName fits no other node, its
host ports must be free, and a cordoned node takes only pods that tolerate its taint.
SchedulingGates, PrioritySort and DefaultBinder read the pod alone.

Source: kubernetes v1.34 plugins/nodename/node_name.go, nodeports/node_ports.go,
nodeunschedulable/node_unschedulable.go, schedulinggates/scheduling_gates.go,
queuesort/priority_sort.go and defaultbinder/default_binder.go.
"""

from __future__ import annotations

from collections.abc import Hashable

from services.framework.columns.columns import Int64s
from services.framework.plugin import (
    BindPlugin,
    FilterPlugin,
    PreEnqueuePlugin,
    PreFiltered,
    QueueSortPlugin,
    Scope,
)
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import SUCCESS, Code, Status
from services.kube.pod import Pod
from services.kube.requests import HostPort, conflicts, host_ports
from services.kube.taints import Taint, TaintEffect, tolerated

_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=TaintEffect.NO_SCHEDULE)
Ports = tuple[HostPort, ...]


class NodeName(FilterPlugin[str]):
    """Filters by spec.nodeName."""

    name = "NodeName"
    scope = Scope.NODE
    has_pre_filter = False

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return the node requested, "" for any."""
        return pod.node_name

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[str]:  # noqa: ARG002 - unused
        return PreFiltered(data=pod.node_name)

    def filter_node(self, data: str, view: NodeView) -> int:
        return int(data not in {"", view.node.name})

    def filter(self, data: str, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        codes[rows] = int(data != "")
        row = snapshot.row(data)
        if row is not None:
            codes[row] = 0

    def filter_status(self, data: str, code: int) -> Status:  # noqa: ARG002 - one status only
        reason = "node(s) didn't match the requested node name"
        code_ = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code_, plugin=self.name, reasons=(reason,))


class NodePorts(FilterPlugin[Ports]):
    """Filters by free host ports."""

    name = "NodePorts"
    scope = Scope.PODS
    needs_pre_filter = True

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return the host ports, None where the pod requests none."""
        return host_ports(pod.spec) or None

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[Ports]:  # noqa: ARG002 - unused
        return PreFiltered(data=host_ports(pod.spec))

    def filter_node(self, data: Ports, view: NodeView) -> int:
        return int(conflicts(data, view.ports))

    def filter(self, data: Ports, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        for row in rows.tolist():
            held = snapshot.ports_on(row)
            codes[row] = bool(held) and conflicts(data, held)

    def filter_status(self, data: Ports, code: int) -> Status:  # noqa: ARG002 - one status only
        reason = "node(s) didn't have free ports for the requested pod ports"
        return Status(code=Code.UNSCHEDULABLE, plugin=self.name, reasons=(reason,))


class NodeUnschedulable(FilterPlugin[bool]):
    """Filters by spec.unschedulable; its data says whether the pod tolerates that."""

    name = "NodeUnschedulable"
    scope = Scope.NODE
    has_pre_filter = False

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        return tolerated(_TAINT, pod.spec.tolerations)

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[bool]:  # noqa: ARG002 - unused
        return PreFiltered(data=tolerated(_TAINT, pod.spec.tolerations))

    def filter_node(self, data: bool, view: NodeView) -> int:
        return int(view.node.unschedulable and not data)

    def filter(self, data: bool, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        codes[rows] = 0 if data else snapshot.columns.unschedulable[rows]

    def filter_status(self, data: bool, code: int) -> Status:  # noqa: ARG002 - one status only
        reason = "node(s) were unschedulable"
        code_ = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code_, plugin=self.name, reasons=(reason,))


class DefaultBinder(BindPlugin):
    """Binds."""

    name = "DefaultBinder"

    def bind(self, pod: Pod, node_name: str) -> Status:  # noqa: ARG002 - every pod, everywhere
        return SUCCESS


class SchedulingGates(PreEnqueuePlugin):
    """Holds gated pods."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Status | None:
        """Refuse while spec.schedulingGates has entries."""
        gates = pod.spec.scheduling_gates
        if not gates:
            return None
        reason = f"waiting for scheduling gates: [{' '.join(gates)}]"
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code, plugin=self.name, reasons=(reason,))


class PrioritySort(QueueSortPlugin):
    """Orders activeQ by priority and queue time."""

    name = "PrioritySort"

    def sort_key(self, pod: Pod) -> bytes:  # noqa: ARG002 - the queue knows the priority
        """Return an empty key: this is the queue's own order."""
        return b""
