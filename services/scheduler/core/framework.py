"""A profile's plugins at work: each extension point as one call.

Source: kubernetes v1.34 pkg/scheduler/framework/runtime/framework.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from services.kube.pod import Pod, PodSpec
from services.scheduler.core.cached_columns import CachedColumns
from services.scheduler.core.node_dry_run import NodeDryRun
from services.scheduler.core.plugin import (
    AnyFilter,
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PodColumnsPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    QueueSortPlugin,
    ReservePlugin,
    Scope,
    ScorePlugin,
)
from services.scheduler.core.preemption.outcome import CannotHelp, Nominate
from services.scheduler.core.preemption.pick import TieBreak
from services.scheduler.core.preemption.view import FailedCycle
from services.scheduler.core.profile import DEFAULT_PROFILE, Profile
from services.scheduler.core.registry import SERVED, Registry
from services.scheduler.core.shape import Shape, WeightedScore
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Code, Status

_OF_ONE_NODE = (Scope.NODE, Scope.PODS)
_CELLS_MAX = 2 * 1024 * 1024
_SHAPES_LEAST = 64


class Framework:
    """The plugins of one profile over one snapshot.

    Verdicts are kept for the latest `shapes_max` shapes of pods, and fewer on large clusters.
    """

    def __init__(
        self, snapshot: Snapshot, profile: Profile = DEFAULT_PROFILE, registry: Registry = SERVED
    ) -> None:
        self.snapshot = snapshot
        self.profile = profile
        served = [each for each in profile.plugins if each.name in registry]
        self.plugins: tuple[Plugin, ...] = tuple(registry[each.name]() for each in served)
        self._filters: list[AnyFilter] = [p for p in self.plugins if isinstance(p, FilterPlugin)]
        self._scores = [
            WeightedScore(plugin, setting.weight)
            for setting, plugin in zip(served, self.plugins, strict=True)
            if isinstance(plugin, ScorePlugin) and setting.scores
        ]
        self.weights: Mapping[str, int] = {e.plugin.name: e.weight for e in self._scores}
        self.post_filters = [p for p in self.plugins if isinstance(p, PostFilterPlugin)]
        self._gates = [p for p in self.plugins if isinstance(p, PreEnqueuePlugin)]
        self._sorts = [p for p in self.plugins if isinstance(p, QueueSortPlugin)]
        self._reserves = [p for p in self.plugins if isinstance(p, ReservePlugin)]
        self._permits = [p for p in self.plugins if isinstance(p, PermitPlugin)]
        self._pre_binds = [p for p in self.plugins if isinstance(p, PreBindPlugin)]
        self._binds = [p for p in self.plugins if isinstance(p, BindPlugin)]
        self._post_binds = [p for p in self.plugins if isinstance(p, PostBindPlugin)]
        self.shapes_max = 4096
        self._cache = CachedColumns(snapshot)
        self._shapes: dict[PodSpec | tuple[PodSpec, str], Shape] = {}
        for plugin in self.plugins:
            if isinstance(plugin, PodColumnsPlugin):
                snapshot.follow(plugin.name, plugin)

    def pre_enqueue(self, pod: Pod) -> Status | None:
        """Return why a pod must stay out of activeQ, None where it need not."""
        return next((s for s in (gate.pre_enqueue(pod) for gate in self._gates) if s), None)

    def sort_key(self, pod: Pod, queued_ns: int) -> tuple[int, int]:
        """Return a pod's key in activeQ, the least first; `queued_ns` is its queue time."""
        assert len(self._sorts) == 1, "a profile has one QueueSort plugin"
        return self._sorts[0].sort_key(pod, queued_ns)

    def shape(self, pod: Pod) -> Shape:
        """Return the verdicts about pods of that shape, up to date; PreFilter to Score."""
        shape, _ = self.pre_filtered(pod)
        if shape.pre_filter.refusal is None:
            shape.sync()
        return shape

    def pre_filtered(self, pod: Pod) -> tuple[Shape, bool]:
        """Return the shape before `sync`, and whether PreFilter ran for it now."""
        key = (pod.spec, pod.node_name) if pod.node_name else pod.spec
        known = self._shapes.pop(key, None)
        if known is None:
            self._make_room()
        shape = known or Shape(pod, self._filters, self._scores, self._cache, self.snapshot)
        self._shapes[key] = shape
        return shape, known is None

    def dry_run(self, pod: Pod, row: int) -> NodeDryRun:
        """Return one node to be changed hypothetically for `pod`."""
        return NodeDryRun(pod, row, self.shape(pod), self.snapshot)

    def fit_only(self, pod: Pod) -> bool:
        """Tell whether NodeResourcesFit is the one filter that leaving pods can satisfy."""
        return self.shape(pod).fit_only

    def waits_for_pods(self, pod: Pod) -> bool:
        """Tell whether a pod that comes to a node may make `pod` fit there or elsewhere.

        That takes a filter which looks beyond single nodes.
        """
        return any(
            plugin.scope not in _OF_ONE_NODE and plugin.filter_key(pod, self.snapshot) is not None
            for plugin in self._filters
        )

    def post_filter(
        self, pod: Pod, cycle: FailedCycle, *, tie_break: TieBreak, now_ns: int
    ) -> Nominate | CannotHelp | None:
        """Run PostFilter until a plugin makes room or fails; None where there is no plugin.

        Otherwise they have all refused: the last one's answer, with what each of them said.
        """
        refused: list[CannotHelp] = []
        for plugin in self.post_filters:
            outcome = plugin.post_filter(pod, cycle, tie_break=tie_break, now_ns=now_ns)
            if isinstance(outcome, Nominate) or outcome.is_error:
                return outcome
            refused.append(outcome)
        return _together(refused) if refused else None

    def reserve(self, pod: Pod, row: int) -> Status | None:
        """Run Reserve; where a plugin refuses, all are unreserved and its status is returned."""
        for plugin in self._reserves:
            status = plugin.reserve(pod, row, self.snapshot)
            if status is not None:
                self.unreserve(pod, row)
                return status
        return None

    def unreserve(self, pod: Pod, row: int) -> None:
        """Run Unreserve, the last plugin first."""
        for plugin in reversed(self._reserves):
            plugin.unreserve(pod, row, self.snapshot)

    def permit(self, pod: Pod, row: int) -> Status | None:
        """Run Permit: a refusal at once, else WAIT where one plugin wants it, else None."""
        waiting: Status | None = None
        for plugin in self._permits:
            status = plugin.permit(pod, row, self.snapshot)
            if status is not None and status.code is not Code.WAIT:
                return status
            waiting = waiting or status
        return waiting

    def pre_bind(self, pod: Pod, node_name: str) -> Status | None:
        """Run PreBind; the first refusal, or None."""
        answers = (plugin.pre_bind(pod, node_name) for plugin in self._pre_binds)
        return next((status for status in answers if status is not None), None)

    def bind(self, pod: Pod, node_name: str) -> Status:
        """Run Bind: the answer of the first plugin that does not skip."""
        answers = (plugin.bind(pod, node_name) for plugin in self._binds)
        skipped = Status(code=Code.SKIP)
        return next((status for status in answers if status.code is not Code.SKIP), skipped)

    def post_bind(self, pod: Pod, node_name: str) -> None:
        """Run PostBind."""
        for plugin in self._post_binds:
            plugin.post_bind(pod, node_name)

    def _make_room(self) -> None:
        by_cells = max(_SHAPES_LEAST, _CELLS_MAX // self.snapshot.columns.capacity)
        while len(self._shapes) >= min(by_cells, self.shapes_max):
            del self._shapes[next(iter(self._shapes))]


def _together(refused: Sequence[CannotHelp]) -> CannotHelp:
    return replace(
        refused[-1],
        message=", ".join(each.message for each in refused if each.message),
        clear_nomination=any(each.clear_nomination for each in refused),
    )
