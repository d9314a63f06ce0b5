"""A profile's plugins at work: each extension point as one call.

Source: kubernetes v1.34 pkg/scheduler/framework/runtime/framework.go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from services.kube.pod import Pod
from services.scheduler.core.framework.active_plugins import VerdictPlugins, WeightedScore
from services.scheduler.core.framework.cached_attempt import NodeDryRun, Outlook
from services.scheduler.core.framework.cached_columns import CachedColumns
from services.scheduler.core.framework.equivalence_class import Shape
from services.scheduler.core.framework.guard import raisers
from services.scheduler.core.framework.profile import DEFAULT_PROFILE, Point, Profile, expanded
from services.scheduler.core.framework.registry import IN_TREE, SERVED, Registry, made, takes_part
from services.scheduler.core.plugin_api.plugin import (
    BindPlugin,
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
)
from services.scheduler.core.preemption.outcome import CannotHelp, FailedCycle, Nominate
from services.scheduler.core.preemption.pick import TieBreak
from services.scheduler.core.snapshot.snapshot import Snapshot
from services.scheduler.core.status import SKIPPED, SUCCESS, Code, Status

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
        plugins = made(profile, registry)
        self.plugins: tuple[Plugin, ...] = tuple(plugins.values())
        points = expanded(
            profile, lambda name, at: name in plugins and takes_part(plugins[name], at)
        )

        def at(point: Point) -> list[Any]:
            return [plugins[name] for name in points.names[point]]

        self._verdicts = VerdictPlugins(
            pre_filters=tuple(at(Point.PRE_FILTER)),
            filters=tuple(at(Point.FILTER)),
            pre_scores=tuple(at(Point.PRE_SCORE)),
            scores=tuple(
                WeightedScore(plugin, points.weights[plugin.name]) for plugin in at(Point.SCORE)
            ),
        )
        self.weights: Mapping[str, int] = points.weights
        self.filter_order = points.names[Point.FILTER]
        self.post_filters: list[PostFilterPlugin] = at(Point.POST_FILTER)
        self._gates: list[PreEnqueuePlugin] = at(Point.PRE_ENQUEUE)
        self._sorts: list[QueueSortPlugin] = at(Point.QUEUE_SORT)
        self._reserves: list[ReservePlugin] = at(Point.RESERVE)
        self._permits: list[PermitPlugin] = at(Point.PERMIT)
        self._pre_binds: list[PreBindPlugin] = at(Point.PRE_BIND)
        self._binds: list[BindPlugin] = at(Point.BIND)
        self._post_binds: list[PostBindPlugin] = at(Point.POST_BIND)
        self._raise_kept = raisers(self.plugins)
        self._has_foreign = any(plugin.name not in IN_TREE for plugin in self.plugins)
        beyond = [each for each in self._verdicts.filters if each.scope not in _OF_ONE_NODE]
        self._beyond_nodes = frozenset(plugin.name for plugin in beyond)
        self._beyond_keys = tuple(plugin.filter_key for plugin in beyond)
        self.shapes_max = 4096
        self._cache = CachedColumns(snapshot)
        self._outlooks: dict[Hashable, Outlook] = {}
        self._asked = _asked_for_each_pod(self._verdicts, volumes=False)
        self._asked_with_volumes = _asked_for_each_pod(self._verdicts, volumes=True)
        for plugin in self.plugins:
            if isinstance(plugin, PodColumnsPlugin):
                snapshot.follow(plugin.name, plugin)

    def pre_enqueue(self, pod: Pod) -> Status | None:
        """Return why a pod must stay out of activeQ, None where it need not."""
        for gate in self._gates:
            status = gate.pre_enqueue(pod)
            if status is not None:
                return status
        return None

    def sort_key(self, pod: Pod) -> bytes:
        """Return a pod's key in activeQ, the least first; empty: by priority."""
        return self._sorts[0].sort_key(pod) if self._sorts else b""

    def outlook(self, pod: Pod) -> Outlook:
        """Return what an attempt of `pod` comes to, up to date; PreFilter to Score."""
        outlook, _ = self.pre_filtered(pod)
        if outlook.shape.pre_filter.refusal is None:
            outlook.sync(pod)
        return outlook

    def shape(self, pod: Pod) -> Shape:
        """Return the verdicts about pods of that shape, up to date."""
        return self.outlook(pod).shape

    def pre_filtered(self, pod: Pod) -> tuple[Outlook, bool]:
        """Return the outlook before `sync`, and whether PreFilter ran for it now."""
        for raise_kept in self._raise_kept:
            raise_kept()
        key = self._key(pod)
        known = self._outlooks.pop(key, None)
        if known is not None:
            self._outlooks[key] = known
            return known, False
        self._make_room()
        shape = Shape(pod, self._verdicts, self._cache, self.snapshot)
        found = Outlook(shape, self.snapshot, has_foreign=self._has_foreign)
        self._outlooks[key] = found
        return found, True

    def _key(self, pod: Pod) -> Hashable:
        """Return what all verdicts about a pod follow from, the cluster's pods and nodes apart."""
        snapshot = self.snapshot
        asks = self._asked_with_volumes if pod.spec.volumes else self._asked
        asked = [ask(pod, snapshot) for ask in asks]
        if asked.count(None) != len(asked):
            return (pod.spec, pod.node_name, *asked)
        return (pod.spec, pod.node_name) if pod.node_name else pod.spec

    def dry_run(self, pod: Pod, row: int) -> NodeDryRun:
        """Return one node to be changed hypothetically for `pod`."""
        return NodeDryRun(pod, row, self.shape(pod), self.snapshot)

    def waits_for_pods(self, pod: Pod) -> bool:
        """Tell whether a pod that comes to a node may make `pod` fit there or elsewhere.

        That takes a filter which looks beyond single nodes, or a plugin of a user's own, of which
        the queue knows no hint.
        """
        if self._has_foreign:
            return True
        keys = [filter_key(pod, self.snapshot) for filter_key in self._beyond_keys]
        return keys.count(None) != len(keys)

    def is_refused_for_pods(self, plugins: Iterable[str]) -> bool:
        """Tell whether one of `plugins`, which refused a pod, looks beyond single nodes."""
        return not self._beyond_nodes.isdisjoint(plugins)

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
        for plugin in self._pre_binds:
            status = plugin.pre_bind(pod, node_name)
            if status is not None:
                return status
        return None

    def bind(self, pod: Pod, node_name: str) -> Status:
        """Run Bind: the answer of the first plugin that does not skip; success without any."""
        for plugin in self._binds:
            status = plugin.bind(pod, node_name)
            if status.code is not Code.SKIP:
                return status
        return SKIPPED if self._binds else SUCCESS

    def post_bind(self, pod: Pod, node_name: str) -> None:
        """Run PostBind."""
        for plugin in self._post_binds:
            plugin.post_bind(pod, node_name)

    def _make_room(self) -> None:
        by_cells = max(_SHAPES_LEAST, _CELLS_MAX // self.snapshot.columns.capacity)
        while len(self._outlooks) >= min(by_cells, self.shapes_max):
            del self._outlooks[next(iter(self._outlooks))]


def _asked_for_each_pod(
    plugins: VerdictPlugins, *, volumes: bool
) -> tuple[Callable[[Pod, Snapshot], Hashable | None], ...]:
    """Return the keys that follow from more than a pod's spec, as functions of the pod.

    `volumes` tells that the pod has some.
    """

    def is_asked(plugin: Plugin) -> bool:
        return plugin.keys_follow_pod and (volumes or not plugin.keys_need_volumes)

    filters = {each.name: each for each in (*plugins.pre_filters, *plugins.filters)}
    weighted = [each.plugin for each in plugins.scores]
    scores = {each.name: each for each in (*plugins.pre_scores, *weighted)}
    return (
        *(each.filter_key for each in filters.values() if is_asked(each)),
        *(each.score_key for each in scores.values() if is_asked(each)),
    )


def _together(refused: Sequence[CannotHelp]) -> CannotHelp:
    return replace(
        refused[-1],
        message=", ".join(each.message for each in refused if each.message),
        clear_nomination=any(each.clear_nomination for each in refused),
    )
