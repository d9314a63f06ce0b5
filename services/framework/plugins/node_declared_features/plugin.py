"""NodeDeclaredFeatures: a node must declare every feature that the pod requires.

Source: kubernetes v1.36 plugins/nodedeclaredfeatures/nodedeclaredfeatures.go, PreFilter, Filter.
"""

from __future__ import annotations

from collections.abc import Hashable

from services.framework.plugin import FilterPlugin, PreFiltered, Scope
from services.framework.plugins.node_declared_features.features import required_features
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.pod import Pod


class NodeDeclaredFeatures(FilterPlugin[frozenset[str]]):
    """Filters by status.declaredFeatures; its data are the features that the pod requires."""

    name = "NodeDeclaredFeatures"
    scope = Scope.NODE
    needs_pre_filter = True

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        return required_features(pod.spec) or None

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[frozenset[str]]:  # noqa: ARG002 - unused
        return PreFiltered(data=required_features(pod.spec))

    def filter_node(self, data: frozenset[str], view: NodeView) -> int:
        return int(not data.issubset(view.node.declared_features))

    def filter_status(self, data: frozenset[str], code: int) -> Status:  # noqa: ARG002 - one status only
        reason = "node(s) didn't match Pod's required features"
        code_ = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code_, plugin=self.name, reasons=(reason,))
