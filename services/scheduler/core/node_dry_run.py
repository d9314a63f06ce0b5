"""The dry run of one node over the cached verdicts.

Only filters that pods can change run again, in plain Python, since one node is too little to
call a kernel for.

Source: kubernetes v1.34 framework/runtime/framework.go, RunFilterPluginsWithNominatedPods.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.kube.pod import Pod
from services.scheduler.core.cached_columns import FilterColumn
from services.scheduler.core.node_view import NodeView
from services.scheduler.core.plugin import Scope
from services.scheduler.core.shape import Shape
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Status


class NodeDryRun:
    """A DryRun of the row of a live node, for a pod whose `shape` is up to date."""

    __slots__ = ("_checks", "_nominated", "_pods", "_view")

    def __init__(self, pod: Pod, row: int, shape: Shape, snapshot: Snapshot) -> None:
        self._checks = _checks(shape, row)
        self._view = NodeView.of(snapshot, row)
        self._pods = list(snapshot.pods_on(row))
        self._nominated = snapshot.nominations.counted(snapshot.name(row), pod)

    def pods(self) -> Sequence[Pod]:
        """Return the node's pods as they stand now; see DryRun."""
        return self._pods

    def remove(self, pod: Pod) -> None:
        """Take `pod` off the node; see DryRun."""
        for index, held in enumerate(self._pods):
            if held.uid == pod.uid:
                self._pods[index] = self._pods[-1]
                self._pods.pop()
                self._view.remove(held)
                return
        raise AssertionError(f"{pod.key} is not on the node")

    def add(self, pod: Pod) -> None:
        """Put `pod` on the node; see DryRun."""
        self._pods.append(pod)
        self._view.add(pod)

    def refusal(self) -> Status | None:
        """Run the filters; see DryRun."""
        if self._nominated:
            for pod in self._nominated:
                self._view.add(pod)
            refused = self._filtered()
            for pod in self._nominated:
                self._view.remove(pod)
            if refused is not None:
                return refused
        return self._filtered()

    def _filtered(self) -> Status | None:
        for column, known in self._checks:
            code = known or column.plugin.filter_node(column.pre.data, self._view)
            if code:
                return column.status(code)
        return None


def _checks(shape: Shape, row: int) -> list[tuple[FilterColumn, int]]:
    """Return the filters that may refuse the row, with the code of those that pods cannot change.

    The code is 0 for the others; nothing comes after a refusal that stands.
    """
    checks: list[tuple[FilterColumn, int]] = []
    for _, column in shape.filters:
        if column.plugin.scope is Scope.PODS:
            checks.append((column, 0))
        elif code := int(column.codes[row]):
            checks.append((column, code))
            break
    return checks
