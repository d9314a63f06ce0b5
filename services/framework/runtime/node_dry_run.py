"""The evaluation of one node over the kept verdicts of a class, with pods put on it or taken off.

It runs only the filters that pods can change, in plain Python, since calling a kernel for one node
costs more than it computes.

Source: kubernetes v1.34 pkg/scheduler/framework/runtime/framework.go,
RunFilterPluginsWithNominatedPods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from services.framework.plugin import ClusterFilterPlugin, PodColumnsPlugin, Scope, Trial
from services.framework.runtime.plugin_columns import FilterColumn
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Status
from services.kube.pod import Pod

_Check = tuple[FilterColumn, int, Trial | None]


class DryRunFilters:
    """The filters of one equivalence class, as dry runs of single rows use them."""

    __slots__ = ("_columns", "counters")

    def __init__(self, columns: Iterable[FilterColumn]) -> None:
        self._columns = tuple(
            (column, column.plugin if isinstance(column.plugin, ClusterFilterPlugin) else None)
            for column in columns
        )
        plugins = [column.plugin for column, _ in self._columns]
        self.counters = [plugin for plugin in plugins if isinstance(plugin, PodColumnsPlugin)]

    def checks(self, row: int, snapshot: Snapshot) -> list[_Check]:
        """Return the filters that may refuse a row, with the code of those that pods do not change.

        The code is 0 for the others, of which some have a trial of the row; a refusal that pods
        cannot change is the last.
        """
        checks: list[_Check] = []
        for column, plugin in self._columns:
            if plugin is not None:
                checks.append((column, 0, plugin.trial(column.pre.data, snapshot, row)))
            elif column.plugin.scope is Scope.PODS:
                checks.append((column, 0, None))
            elif code := int(column.values[row]):
                checks.append((column, code, None))
                break
        return checks


class NodeDryRun:
    """A DryRun of the row of a live node, for a pod whose equivalence class is up to date."""

    __slots__ = ("_checks", "_counters", "_nominated", "_pods", "_trials", "_view")

    def __init__(self, pod: Pod, row: int, filters: DryRunFilters, snapshot: Snapshot) -> None:
        self._checks = filters.checks(row, snapshot)
        self._trials = [trial for _, _, trial in self._checks if trial is not None]
        self._counters = filters.counters
        self._view = NodeView.of(snapshot, row)
        self._pods = list(snapshot.pods_on(row))
        self._nominated = snapshot.nominations.counted(snapshot.name(row), pod)

    def pods(self) -> Sequence[Pod]:
        """Return the node's current pods; see DryRun."""
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
        for column, cached_code, trial in self._checks:
            code = cached_code
            if trial is not None:
                code = trial.code()
            elif not cached_code:
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
