"""TaintToleration: untolerated taints refuse a node or lower its score.

Tolerations are tested once per class of nodes with equal taints.

Source: kubernetes v1.34 plugins/tainttoleration/taint_toleration.go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from services.framework.columns.columns import Int64s
from services.framework.plugin import FilterPlugin, Normalization, PreFiltered, Scope, ScorePlugin
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.pod import Pod
from services.kube.taints import Taint, TaintEffect, Toleration, repels, tolerated


class Tolerance:
    """A pod's tolerations, and their result for each class of taints seen so far.

    `texts` are the untolerated taints that were met, by code; code 0 is none.
    """

    __slots__ = ("_codes", "_dislikes", "_tolerations", "texts")

    def __init__(self, tolerations: tuple[Toleration, ...]) -> None:
        self._tolerations = tolerations
        self._codes: list[int] = []
        self._dislikes: list[int] = []
        self.texts: list[str] = [""]

    def code(self, taints: tuple[Taint, ...]) -> int:
        """Return the code of the first taint that keeps the pod off a node, 0 for none."""
        for taint in taints:
            if repels(taint, self._tolerations):
                return self._numbered(str(taint))
        return 0

    def dislikes(self, taints: tuple[Taint, ...]) -> int:
        """Return how many PreferNoSchedule taints the pod does not tolerate."""
        return sum(
            taint.effect is TaintEffect.PREFER_NO_SCHEDULE
            and not tolerated(taint, self._tolerations)
            for taint in taints
        )

    def codes(self, snapshot: Snapshot) -> Int64s:
        """Return the codes of all classes of taints."""
        return _extended(self._codes, self.code, snapshot)

    def all_dislikes(self, snapshot: Snapshot) -> Int64s:
        """Return `dislikes` of all classes of taints."""
        return _extended(self._dislikes, self.dislikes, snapshot)

    def _numbered(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text)


class TaintToleration(FilterPlugin[Tolerance], ScorePlugin[Tolerance]):
    """Filters by NoSchedule and NoExecute taints, scores by PreferNoSchedule ones."""

    name = "TaintToleration"
    scope = Scope.NODE
    has_pre_filter = False
    needs_pre_score = True
    normalization = Normalization.REVERSE

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        return pod.spec.tolerations

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[Tolerance]:  # noqa: ARG002 - unused
        return PreFiltered(data=Tolerance(pod.spec.tolerations))

    def filter_node(self, data: Tolerance, view: NodeView) -> int:
        return data.code(view.node.taints)

    def filter(self, data: Tolerance, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        codes[rows] = data.codes(snapshot)[snapshot.columns.taint_class[rows]]

    def filter_status(self, data: Tolerance, code: int) -> Status:
        reason = f"node(s) had untolerated taint {data.texts[code]}"
        code_ = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code_, plugin=self.name, reasons=(reason,))

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return the tolerations; the score never returns Skip, as upstream's."""
        return pod.spec.tolerations

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> Tolerance:  # noqa: ARG002 - unused
        return Tolerance(pod.spec.tolerations)

    def score(self, data: Tolerance, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        scores[rows] = data.all_dislikes(snapshot)[snapshot.columns.taint_class[rows]]


class UnnamedTaintToleration(TaintToleration):
    """TaintToleration since v1.36, whose refusal does not name the taint.

    Source: kubernetes v1.36 plugins/tainttoleration/taint_toleration.go, Filter.
    """

    def filter_status(self, data: Tolerance, code: int) -> Status:  # noqa: ARG002 - one status only
        reason = "node(s) had untolerated taint(s)"
        code_ = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code_, plugin=self.name, reasons=(reason,))


def _extended(
    values: list[int], judge: Callable[[tuple[Taint, ...]], int], snapshot: Snapshot
) -> Int64s:
    values.extend(judge(taints) for taints in snapshot.taints.all()[len(values) :])
    return np.array(values, dtype=np.int64)
