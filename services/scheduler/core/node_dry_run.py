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
from services.scheduler.core.plugin import Scope, Trial
from services.scheduler.core.shape import Shape
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Status


class NodeDryRun:
    """A DryRun of the row of a live node, for a pod whose `shape` is up to date."""

    __slots__ = ("_checks", "_counters", "_nominated", "_pods", "_trials", "_view")

    def __init__(self, pod: Pod, row: int, shape: Shape, snapshot: Snapshot) -> None:
        self._checks = _checks(shape, row, snapshot)
        self._trials = [trial for _, _, trial in self._checks if trial is not None]
        self._counters = shape.counters
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
                self._take_off(held)
                return
        raise AssertionError(f"{pod.key} is not on the node")

    def add(self, pod: Pod) -> None:
        """Put `pod` on the node; see DryRun."""
        self._pods.append(pod)
        self._put_on(pod)

    def refusal(self) -> Status | None:
        """Run the filters; see DryRun."""
        if self._nominated:
            for pod in self._nominated:
                self._put_on(pod)
            refused = self._filtered()
            for pod in self._nominated:
                self._take_off(pod)
            if refused is not None:
                return refused
        return self._filtered()

    def _filtered(self) -> Status | None:
        for column, known, trial in self._checks:
            code = known
            if trial is not None:
                code = trial.code()
            elif not known:
                code = column.plugin.filter_node(column.pre.data, self._view)
            if code:
                return column.status(code)
        return None

    def _put_on(self, pod: Pod) -> None:
        self._view.add(pod)
        for counter in self._counters:
            counter.came_to_view(pod, self._view)
        for trial in self._trials:
            trial.add(pod)

    def _take_off(self, pod: Pod) -> None:
        self._view.remove(pod)
        for counter in self._counters:
            counter.went_from_view(pod, self._view)
        for trial in self._trials:
            trial.remove(pod)


_Check = tuple[FilterColumn, int, Trial | None]


def _checks(shape: Shape, row: int, snapshot: Snapshot) -> list[_Check]:
    """Return the filters that may refuse the row, with the code of those that pods cannot change.

    The code is 0 for the others, of which some have a trial of the row; nothing comes after a
    refusal that stands.
    """
    checks: list[_Check] = []
    for column, plugin in shape.trials:
        if plugin is not None:
            checks.append((column, 0, plugin.trial(column.pre.data, snapshot, row)))
        elif column.plugin.scope is Scope.PODS:
            checks.append((column, 0, None))
        elif code := int(column.codes[row]):
            checks.append((column, code, None))
            break
    return checks
