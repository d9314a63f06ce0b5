"""DynamicResources for pods without resource claims; claims for devices are not supported.

Every pod is treated as one without claims: PreFilter skips it. PostFilter runs before preemption's
and has nothing to deallocate; it fails where an earlier plugin refused the pod before this plugin's
PreFilter ran, and then preemption does not run. From v1.36 on it scores, too: 0 for every node
where no alternative of a request was chosen.

Source: kubernetes v1.34 plugins/dynamicresources/dynamicresources.go, PreFilter, PostFilter; v1.36
the same file, Score.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from services.config.strict import checked
from services.framework.arguments import Arguments
from services.framework.columns.columns import Int64s
from services.framework.plugin import (
    FilterPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFiltered,
    ReservePlugin,
    Scope,
    ScorePlugin,
)
from services.framework.preemption.candidates import TieBreak
from services.framework.preemption.outcome import CannotHelp, Cause, FailedCycle
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.pod import Pod

NOTHING_TO_DEALLOCATE = "no new claims to deallocate"
NOT_PREPARED = "not found"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    filter_timeout: str = ""


@checked.register
def _(_args: _Fields) -> None:
    """Nothing of them is served."""


class DynamicResources(
    PreEnqueuePlugin, FilterPlugin[None], PostFilterPlugin, ReservePlugin, PreBindPlugin
):
    """Lets every pod pass."""

    name = "DynamicResources"
    arguments = Arguments(kind=_Fields, has_effect=False)
    scope = Scope.NODE
    needs_pre_filter = True
    follows_from_class = True

    def pre_enqueue(self, pod: Pod) -> Status | None:  # noqa: ARG002 - no claims
        return None

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        return None

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[None]:  # noqa: ARG002 - unused
        return PreFiltered(data=None)

    def filter_node(self, data: None, view: NodeView) -> int:  # noqa: ARG002 - every node
        return 0

    def filter(self, data: None, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:  # noqa: ARG002 - every row
        codes[rows] = 0

    def filter_status(self, data: None, code: int) -> Status:  # noqa: ARG002 - never refuses
        return Status(code=Code.SUCCESS, plugin=self.name)

    def post_filter(
        self,
        pod: Pod,  # noqa: ARG002 - no claims
        cycle: FailedCycle,
        *,
        tie_break: TieBreak,  # noqa: ARG002 - nothing to choose
        now_ns: int,  # noqa: ARG002 - nothing to time
    ) -> CannotHelp:
        """Return that there is nothing to deallocate, or that PreFilter never ran."""
        prepared = cycle.prepared(self.name)
        text = NOTHING_TO_DEALLOCATE if prepared else NOT_PREPARED
        return CannotHelp(
            cause=Cause.NO_CANDIDATE if prepared else Cause.ERROR,
            reason=text,
            message=text,
            clear_nomination=False,
            is_error=not prepared,
        )

    def reserve(self, pod: Pod, row: int, snapshot: Snapshot) -> Status | None:  # noqa: ARG002 - no claims
        return None

    def unreserve(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Give nothing back."""

    def pre_bind(self, pod: Pod, node_name: str) -> Status | None:  # noqa: ARG002 - no claims
        return None


class ScoredDynamicResources(DynamicResources, ScorePlugin[None]):
    """DynamicResources from v1.36 on, which scores without a PreScore of its own."""

    has_pre_score = False

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - no claims
        return ""

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> None:
        """Prepare nothing: no request has alternatives."""

    def score(self, data: None, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:  # noqa: ARG002 - every row
        scores[rows] = 0
