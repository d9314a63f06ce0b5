"""NodePorts: the host ports that a pod asks for must be free.

Source: kubernetes v1.34 plugins/nodeports/node_ports.go.
"""

from __future__ import annotations

from collections.abc import Hashable

from services.kube.host_ports import HostPort, conflicts, host_ports
from services.kube.pod import Pod
from services.scheduler.core.columns import Int64s
from services.scheduler.core.node_view import NodeView
from services.scheduler.core.plugin import FilterPlugin, PreFiltered, Scope
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Code, Status

Ports = tuple[HostPort, ...]


class NodePorts(FilterPlugin[Ports]):
    """Filters by free host ports."""

    name = "NodePorts"
    scope = Scope.PODS
    needs_pre_filter = True

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return the host ports, None where the pod asks for none."""
        return host_ports(pod.spec) or None

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[Ports]:  # noqa: ARG002 - unused
        """Return the host ports."""
        return PreFiltered(data=host_ports(pod.spec))

    def filter_node(self, data: Ports, view: NodeView) -> int:
        """Refuse a node where a port is held."""
        return int(conflicts(data, view.ports))

    def filter(self, data: Ports, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        """Refuse the rows where a port is held."""
        for row in rows.tolist():
            held = snapshot.ports_on(row)
            codes[row] = bool(held) and conflicts(data, held)

    def filter_status(self, data: Ports, code: int) -> Status:  # noqa: ARG002 - one status only
        """Return the only refusal."""
        reason = "node(s) didn't have free ports for the requested pod ports"
        return Status(code=Code.UNSCHEDULABLE, plugin=self.name, reasons=(reason,))
