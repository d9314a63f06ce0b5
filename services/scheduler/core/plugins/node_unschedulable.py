"""NodeUnschedulable: a cordoned node takes only pods that tolerate its taint.

Source: kubernetes v1.34 plugins/nodeunschedulable/node_unschedulable.go.
"""

from __future__ import annotations

from collections.abc import Hashable

from services.kube.pod import Pod
from services.kube.taints import Taint, TaintEffect, tolerated
from services.scheduler.core.columns import Int64s
from services.scheduler.core.node_view import NodeView
from services.scheduler.core.plugin import FilterPlugin, PreFiltered, Scope
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Code, Status

_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=TaintEffect.NO_SCHEDULE)


class NodeUnschedulable(FilterPlugin[bool]):
    """Filters by spec.unschedulable; its data tells whether the pod tolerates that."""

    name = "NodeUnschedulable"
    scope = Scope.NODE
    has_pre_filter = False

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return whether the pod tolerates cordoned nodes."""
        return tolerated(_TAINT, pod.spec.tolerations)

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[bool]:  # noqa: ARG002 - unused
        """Return whether the pod tolerates cordoned nodes."""
        return PreFiltered(data=tolerated(_TAINT, pod.spec.tolerations))

    def filter_node(self, data: bool, view: NodeView) -> int:
        """Refuse a cordoned node."""
        return int(view.node.unschedulable and not data)

    def filter(self, data: bool, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        """Refuse cordoned rows."""
        codes[rows] = 0 if data else snapshot.columns.unschedulable[rows]

    def filter_status(self, data: bool, code: int) -> Status:  # noqa: ARG002 - one status only
        """Return the only refusal."""
        reason = "node(s) were unschedulable"
        code_ = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code_, plugin=self.name, reasons=(reason,))
