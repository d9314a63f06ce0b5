"""A filter and a score on a label of nodes. docs/plugins.md quotes what follows."""

# ruff: noqa: ARG002, D102 - a plugin's methods have the arguments and meanings of the extension point

from collections.abc import Hashable, Mapping

from services.scheduler.core.plugin_api import (
    Code,
    FilterPlugin,
    Int64s,
    NodeView,
    Pod,
    PreFiltered,
    Scope,
    ScorePlugin,
    Snapshot,
    Status,
)


class NodeTier(FilterPlugin[None], ScorePlugin[None]):
    """Lets pods on nodes whose label has a value in `scores` only, and prefers high scores."""

    name = "NodeTier"
    scope = Scope.NODE  # the codes and scores depend on the node object alone, not on its pods

    def __init__(self, args: Mapping[str, object]) -> None:
        self._label, scores = str(args.get("label", "example.com/tier")), args.get("scores")
        if not isinstance(scores, dict) or not all(s in range(101) for s in scores.values()):
            raise ValueError("scores: must map values of the label to whole numbers up to 100")
        self._scores: dict[str, int] = scores

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        # None skips a pod that selects its tier itself; all other pods share one column of codes.
        return None if self._label in pod.spec.node_selector else ""

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[None]:
        return PreFiltered(data=None)  # `data` is for what the methods below need of the pod

    def filter_node(self, data: None, view: NodeView) -> int:
        return int(view.node.labels.get(self._label, "") not in self._scores)

    def filter_status(self, data: None, code: int) -> Status:
        reason = f"node(s) had no tier in {self._label} that has a score"
        code_ = Code.UNSCHEDULABLE_AND_UNRESOLVABLE  # deleting pods would not help
        return Status(code=code_, plugin=self.name, reasons=(reason,))

    score_key = filter_key

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> None:
        return None

    def score(self, data: None, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        for row in rows[snapshot.columns.alive[rows]].tolist():  # a dead row has no node
            tier = snapshot.node(row).labels.get(self._label, "")
            scores[row] = self._scores.get(tier, 0)  # a node that does not fit is scored, too
