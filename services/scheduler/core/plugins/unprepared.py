"""Stand-ins for plugins whose PreFilter or PreScore a profile switches off."""

from __future__ import annotations

from collections.abc import Hashable

from services.kube.pod import Pod
from services.scheduler.core.columns import Int64s
from services.scheduler.core.node_view import NodeView
from services.scheduler.core.plugin import FilterPlugin, PreFiltered, Scope, ScorePlugin
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Code, Status


class UnpreparedFilter(FilterPlugin[None]):
    """Fails on every node, for want of what PreFilter should have prepared."""

    name = ""
    scope = Scope.NODE
    can_fail = True

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]  # each stands in for another plugin

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return that every pod is alike."""
        return ""

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[None]:  # noqa: ARG002 - unused
        """Return nothing."""
        return PreFiltered(data=None)

    def filter_node(self, data: None, view: NodeView) -> int:  # noqa: ARG002 - every node
        """Fail."""
        return 1

    def filter(self, data: None, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:  # noqa: ARG002 - every row
        """Fail on all rows."""
        codes[rows] = 1

    def filter_status(self, data: None, code: int) -> Status:  # noqa: ARG002 - one status only
        """Return the failure."""
        reason = f'error reading "PreFilter{self.name}" from cycleState: not found'
        return Status(code=Code.ERROR, plugin=self.name, reasons=(reason,))


class NothingToScore(ScorePlugin[None]):
    """Scores 0, where PreScore would have said Skip."""

    name = ""
    scope = Scope.NODE

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]  # each stands in for another plugin

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return that every pod is alike."""
        return ""

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> None:
        """Prepare nothing."""

    def score(self, data: None, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:  # noqa: ARG002 - every row
        """Write 0."""
        scores[rows] = 0
