"""NodeUnschedulable: a cordoned node takes only pods that tolerate its taint.

Source: kubernetes v1.34 plugins/nodeunschedulable/node_unschedulable.go.
"""

from __future__ import annotations

from collections.abc import Hashable

from services.framework.columns.columns import Int64s
from services.framework.plugin import FilterPlugin, PreFiltered, Scope
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.pod import Pod
from services.kube.taints import CORDON, tolerated


class NodeUnschedulable(FilterPlugin[bool]):
    """Filters by spec.unschedulable; its PreFilter data is whether the pod tolerates the taint."""

    name = "NodeUnschedulable"
    scope = Scope.NODE
    has_pre_filter = False

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        return tolerated(CORDON, pod.spec.tolerations)

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[bool]:  # noqa: ARG002 - unused
        return PreFiltered(data=tolerated(CORDON, pod.spec.tolerations))

    def filter_node(self, data: bool, view: NodeView) -> int:
        return int(view.node.unschedulable and not data)

    def filter(self, data: bool, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        codes[rows] = 0 if data else snapshot.columns.unschedulable[rows]

    def filter_status(self, data: bool, code: int) -> Status:  # noqa: ARG002 - one status only
        reason = "node(s) were unschedulable"
        code_ = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code_, plugin=self.name, reasons=(reason,))
