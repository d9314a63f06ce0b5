"""Two plugins for Reprieve's scheduler: one for all nodes at once, one for one node at a time.

docs/plugins.md describes each method.
"""

# ruff: noqa: ARG002 - a plugin's methods have the arguments that they have

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from services.scheduler.core.plugin_api import (
    Code,
    FilterPlugin,
    Int64s,
    NodeView,
    Normalization,
    Pod,
    PreFiltered,
    Scope,
    ScorePlugin,
    Snapshot,
    Status,
)


class PodDensity(FilterPlugin[None], ScorePlugin[None]):
    """Keeps nodes from filling up with pods: none above `maxPods`, and the emptiest are best.

    Vectorised: `filter` and `score` do all the rows that changed with a few numpy operations.
    """

    name = "PodDensity"
    scope = Scope.PODS
    normalization = Normalization.REVERSE

    def __init__(self, args: Mapping[str, object]) -> None:
        most = args.get("maxPods", 100)
        if not isinstance(most, int) or most <= 0:
            raise ValueError("maxPods must be a whole number above 0")
        self._most = most

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return one key for all pods, which share one column."""
        return ""

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[None]:
        """Read nothing: all that counts is on the node."""
        return PreFiltered(data=None)

    def filter(self, data: None, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        """Refuse rows that are full."""
        codes[rows] = snapshot.columns.pod_count[rows] >= self._most

    def filter_node(self, data: None, view: NodeView) -> int:
        """Do the same for one node, which a preemption empties and fills."""
        return int(view.pod_count >= self._most)

    def filter_status(self, data: None, code: int) -> Status:
        """Return the only refusal; deleting pods helps."""
        reason = f"node(s) had {self._most} pods already"
        return Status(code=Code.UNSCHEDULABLE, plugin=self.name, reasons=(reason,))

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return one key for all pods."""
        return ""

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> None:
        """Read nothing: all that counts is on the node."""

    def score(self, data: None, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        """Write the number of pods; REVERSE makes the most of them 0 and none 100."""
        scores[rows] = snapshot.columns.pod_count[rows].astype(np.int64)


class OneOfEach(FilterPlugin[str]):
    """Lets a node have one pod of each value of a label (args: `label`, default "app").

    The slow path: `filter_node` alone, called for each row that changed. That is enough where
    clusters are small or the rule is hard to put into columns.
    """

    name = "OneOfEach"
    scope = Scope.PODS
    keys_follow_pod = True  # the key follows from labels, not from the spec alone

    def __init__(self, args: Mapping[str, object]) -> None:
        self._label = str(args.get("label", "app"))

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the label's value; None, which skips the filter, without one."""
        return pod.labels.get(self._label) or None

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[str]:
        """Read the label once for all nodes."""
        return PreFiltered(data=pod.labels[self._label])

    def filter_node(self, data: str, view: NodeView) -> int:
        """Refuse a node with such a pod."""
        return int(any(pod.labels.get(self._label) == data for pod in view.pods()))

    def filter_status(self, data: str, code: int) -> Status:
        """Return the only refusal."""
        reason = f"node(s) had a pod of {self._label}={data} already"
        return Status(code=Code.UNSCHEDULABLE, plugin=self.name, reasons=(reason,))
