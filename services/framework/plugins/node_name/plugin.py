"""NodeName: a pod with spec.nodeName fits no other node.

Source: kubernetes v1.34 plugins/nodename/node_name.go.
"""

from __future__ import annotations

from collections.abc import Hashable

from services.framework.columns.columns import Int64s
from services.framework.plugin import FilterPlugin, PreFiltered, Scope
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.pod import Pod


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
