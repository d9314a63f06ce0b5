"""NodeName: a pod that names its node fits no other.

Source: kubernetes v1.34 plugins/nodename/node_name.go.
"""

from __future__ import annotations

from collections.abc import Hashable

from services.kube.pod import Pod
from services.scheduler.core.columns import Int64s
from services.scheduler.core.node_view import NodeView
from services.scheduler.core.plugin import FilterPlugin, PreFiltered, Scope
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Code, Status


class NodeName(FilterPlugin[str]):
    """Filters by spec.nodeName."""

    name = "NodeName"
    scope = Scope.NODE
    has_pre_filter = False

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return the node asked for, "" for any."""
        return pod.node_name

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[str]:  # noqa: ARG002 - unused
        """Return the node asked for."""
        return PreFiltered(data=pod.node_name)

    def filter_node(self, data: str, view: NodeView) -> int:
        """Refuse a node of another name."""
        return int(data not in {"", view.node.name})

    def filter(self, data: str, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        """Refuse all rows but that of the named node."""
        codes[rows] = int(data != "")
        row = snapshot.row(data)
        if row is not None:
            codes[row] = 0

    def filter_status(self, data: str, code: int) -> Status:  # noqa: ARG002 - one status only
        """Return the only refusal."""
        reason = "node(s) didn't match the requested node name"
        code_ = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code_, plugin=self.name, reasons=(reason,))
