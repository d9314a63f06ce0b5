"""A profile's plugins at work: each extension point as one call.

Source: kubernetes v1.34 pkg/scheduler/framework/runtime/framework.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from services.framework.plugin import (
    NOTHING_PLANNED,
    BindPlugin,
    PermitPlugin,
    PlannedClaims,
    Plugin,
    PodColumnsPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    Preemptor,
    PreEnqueuePlugin,
    QueueSortPlugin,
    ReservePlugin,
    Scope,
    SnapshotPlugin,
)
from services.framework.plugins.in_tree import DEFAULT_PROFILE, IN_TREE, SERVED, Registry
from services.framework.preemption.candidates import TieBreak
from services.framework.preemption.outcome import CannotHelp, FailedCycle, Nomination
from services.framework.profile import ExtensionPoint, Profile
from services.framework.runtime.guard import raisers
from services.framework.runtime.profile_plugins import (
    ConfiguredPlugins,
    PluginsBySpec,
    WeightedScore,
    expand_plugins,
    implements,
    make_plugins,
)
from services.framework.runtime.verdicts import Verdicts
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import SKIPPED, SUCCESS, Code, Status
from services.framework.waiting_pods import Wait, WaitingPods
from services.kube.devices import ClaimChanges, FreedClaims
from services.kube.pod import Pod
from services.kube.selector import LabelSelector

_OF_ONE_NODE = (Scope.NODE, Scope.PODS)


class NotBound(NamedTuple):
    """The status of the plugin that refused an assumed pod; `in_binding`: PreBind or Bind did."""

    status: Status
    in_binding: bool


class BoundPod(NamedTuple):
    """An assumed pod may be bound, which changes `claims` for devices; None: it changes none."""

    claims: ClaimChanges | None


class Held(NamedTuple):
    """An assumed pod that Permit plugins hold, with their time-outs, ns."""

    waits: Mapping[str, int]


BindByExtender = Callable[[Pod, str], Status | None]
"""Binds a pod to a node by an extender; None if none does it."""


class Framework:
    """The plugins of one profile over one snapshot; `verdicts` are those of filters and scores.

    preemptor: the first of the PostFilter plugins that is one, None without any.
    refuses_by_class: whether PostFilter has the same outcome for equivalent pods while nothing
    changes.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        profile: Profile = DEFAULT_PROFILE,
        registry: Registry = SERVED,
        waiting: WaitingPods | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.profile = profile
        plugins = make_plugins(profile, registry)
        self.plugins: tuple[Plugin, ...] = tuple(plugins.values())
        points = expand_plugins(
            profile, lambda name, at: name in plugins and implements(plugins[name], at)
        )

        def at(point: ExtensionPoint) -> list[Any]:
            return [plugins[name] for name in points.names[point]]

        configured = ConfiguredPlugins(
            pre_filters=tuple(at(ExtensionPoint.PRE_FILTER)),
            filters=tuple(at(ExtensionPoint.FILTER)),
            pre_scores=tuple(at(ExtensionPoint.PRE_SCORE)),
            scores=tuple(
                WeightedScore(plugin, points.weights[plugin.name])
                for plugin in at(ExtensionPoint.SCORE)
            ),
        )
        self._filters_by_name = {plugin.name: plugin for plugin in configured.filters}
        self.weights: Mapping[str, int] = points.weights
        self.filter_order = points.names[ExtensionPoint.FILTER]
        self.post_filters: list[PostFilterPlugin] = at(ExtensionPoint.POST_FILTER)
        self.preemptor = next(
            (plugin for plugin in self.post_filters if isinstance(plugin, Preemptor)), None
        )
        self.refuses_by_class = all(plugin.follows_from_class for plugin in self.post_filters)
        self._gates: list[PreEnqueuePlugin] = at(ExtensionPoint.PRE_ENQUEUE)
        self._object_gates = [gate for gate in self._gates if gate.gate_kinds]
        self._sorts: list[QueueSortPlugin] = at(ExtensionPoint.QUEUE_SORT)
        self._reserves: list[ReservePlugin] = at(ExtensionPoint.RESERVE)
        self._permits: list[PermitPlugin] = at(ExtensionPoint.PERMIT)
        for permit in self._permits:
            permit.waiting = WaitingPods() if waiting is None else waiting
        self._binds: list[BindPlugin] = at(ExtensionPoint.BIND)
        self._post_binds: list[PostBindPlugin] = at(ExtensionPoint.POST_BIND)
        beyond = [plugin for plugin in configured.filters if plugin.scope not in _OF_ONE_NODE]
        out_of_tree = {plugin.name for plugin in self.plugins if plugin.name not in IN_TREE}
        self.has_out_of_tree = bool(out_of_tree)
        self._beyond_nodes = frozenset(plugin.name for plugin in beyond) | out_of_tree
        self._beyond_keys = tuple(plugin.filter_key for plugin in beyond)
        self._by_spec = PluginsBySpec(
            configured, reserves=self._reserves, pre_binds=at(ExtensionPoint.PRE_BIND)
        )
        self.verdicts = Verdicts(
            configured,
            self._by_spec,
            snapshot,
            has_out_of_tree=self.has_out_of_tree,
            checks=raisers(self.plugins),
        )
        for plugin in self.plugins:
            if isinstance(plugin, SnapshotPlugin):
                plugin.begin(snapshot)
            if isinstance(plugin, PodColumnsPlugin):
                snapshot.follow(plugin.name, plugin)

    def pre_enqueue(self, pod: Pod) -> Status | None:
        """Return why a pod must not enter activeQ, None if it may."""
        for gate in self._gates:
            status = gate.pre_enqueue(pod)
            if status is not None:
                return status
        return None

    @property
    def gate_kinds(self) -> frozenset[str]:
        """The kinds of the objects that gates read."""
        return frozenset[str]().union(*(gate.gate_kinds for gate in self._object_gates))

    def gate_names(self, pod: Pod) -> Collection[str] | None:
        """Return the names of the objects, of any gate's kinds, that the pod's gates may read.

        They are in the pod's namespace. None: any of them.
        """
        names: list[str] = []
        for gate in self._object_gates:
            of_gate = gate.gate_names(pod)
            if of_gate is None:
                return None
            names += of_gate
        return names

    def sort_key(self, pod: Pod) -> bytes:
        """Return a pod's key in activeQ, the smallest first; empty: by priority."""
        return self._sorts[0].sort_key(pod) if self._sorts else b""

    def waits_for_pods(self, pod: Pod) -> bool:
        """Return whether a pod that is added to a node may make `pod` fit on that or another node.

        That requires a filter which reads beyond single nodes, or an out-of-tree plugin: the queue
        has no hints for it.
        """
        if self.has_out_of_tree:
            return True
        keys = [filter_key(pod, self.snapshot) for filter_key in self._beyond_keys]
        return keys.count(None) != len(keys)

    def any_reads_beyond_nodes(self, plugins: Iterable[str]) -> bool:
        """Return whether one of `plugins`, which refused a pod, reads beyond single nodes.

        An out-of-tree plugin may.
        """
        return not self._beyond_nodes.isdisjoint(plugins)

    def post_filter(
        self, pod: Pod, cycle: FailedCycle, *, tie_break: TieBreak, now_ns: int
    ) -> Nomination | CannotHelp | None:
        """Run PostFilter until a plugin makes room or fails; None where there is no plugin.

        Otherwise all have refused: the last one's outcome, with the messages of all.
        """
        refused: list[CannotHelp] = []
        freed: FreedClaims | None = None
        for plugin in self.post_filters:
            outcome = plugin.post_filter(pod, cycle, tie_break=tie_break, now_ns=now_ns)
            freed = freed or outcome.freed
            if isinstance(outcome, Nomination) or outcome.is_error:
                return replace(outcome, freed=freed)
            refused.append(outcome)
        return replace(_together(refused), freed=freed) if refused else None

    def selector_for_hints(self, pod: Pod, plugins: Iterable[str]) -> LabelSelector | None:
        """Return the selector of the pod that the hints of `plugins`, which refused it, need."""
        for name in plugins:
            plugin = self._filters_by_name.get(name)
            selector = None if plugin is None else plugin.selector_for_hints(pod, self.snapshot)
            if selector is not None:
                return selector
        return None

    def reserve_and_bind(
        self, pod: Pod, row: int, node_name: str, bind_by_extender: BindByExtender | None
    ) -> BoundPod | NotBound | Held:
        """Run Reserve, Permit, PreBind and Bind for an assumed pod.

        Where one of them refuses, everything is unreserved when this returns. A pod that Permit
        holds stays reserved.
        """
        refused = self.reserve(pod, row)
        permitted = self.permit(pod, row) if refused is None else refused
        if isinstance(permitted, Held):
            return permitted
        if permitted is None:
            result = self.pre_bind_and_bind(pod, node_name, bind_by_extender)
        else:
            result = NotBound(permitted, in_binding=False)
        if isinstance(result, NotBound):
            self.unreserve(pod, row)
        return result

    def pre_bind_and_bind(
        self, pod: Pod, node_name: str, bind_by_extender: BindByExtender | None
    ) -> BoundPod | NotBound:
        """Run PreBind and Bind for a permitted pod; an extender that binds comes before plugins."""
        status = self.pre_bind(pod, node_name)
        if status is None:
            by_extender = bind_by_extender(pod, node_name) if bind_by_extender else None
            bound = by_extender or self.bind(pod, node_name)
            status = None if bound.code is Code.SUCCESS else bound
        if status is not None:
            return NotBound(status, in_binding=True)
        return BoundPod(self._claim_changes(pod))

    @property
    def has_permits(self) -> bool:
        """Return whether a plugin may hold pods."""
        return bool(self._permits)

    def planned_claims(self, pod: Pod, row: int) -> PlannedClaims | None:
        """Return the changes of the pod's device claims by a binding; None: it has no claims."""
        for plugin in self._by_spec[pod.spec].claims:
            planned = plugin.planned(pod, row, self.snapshot)
            if planned != NOTHING_PLANNED:
                return planned
        return None

    def _claim_changes(self, pod: Pod) -> ClaimChanges | None:
        for plugin in self._by_spec[pod.spec].claims:
            changes = plugin.changed(pod)
            if changes is not None:
                return changes
        return None

    def reserve(self, pod: Pod, row: int) -> Status | None:
        """Run Reserve; the first refusal, or None."""
        for plugin in self._by_spec[pod.spec].reserves:
            status = plugin.reserve(pod, row, self.snapshot)
            if status is not None:
                return status
        return None

    def unreserve(self, pod: Pod, row: int) -> None:
        """Run Unreserve, the last plugin first."""
        for plugin in reversed(self._reserves):
            plugin.unreserve(pod, row, self.snapshot)

    def permit(self, pod: Pod, row: int) -> Status | Held | None:
        """Run Permit: a refusal at once, else Held where plugins want that, else None."""
        waits: dict[str, int] = {}
        for plugin in self._permits:
            answer = plugin.permit(pod, row, self.snapshot)
            if isinstance(answer, Wait):
                waits[plugin.name] = answer.timeout_ns
            elif answer is not None:
                return answer
        return Held(waits) if waits else None

    def pre_bind(self, pod: Pod, node_name: str) -> Status | None:
        """Run PreBind; the first refusal, or None."""
        for plugin in self._by_spec[pod.spec].pre_binds:
            status = plugin.pre_bind(pod, node_name)
            if status is not None:
                return status
        return None

    def bind(self, pod: Pod, node_name: str) -> Status:
        """Run Bind: the status of the first plugin that does not skip; success without plugins."""
        for plugin in self._binds:
            status = plugin.bind(pod, node_name)
            if status.code is not Code.SKIP:
                return status
        return SKIPPED if self._binds else SUCCESS

    def post_bind(self, pod: Pod, node_name: str) -> None:
        """Run PostBind."""
        for plugin in self._post_binds:
            plugin.post_bind(pod, node_name)


def _together(refused: Sequence[CannotHelp]) -> CannotHelp:
    return replace(
        refused[-1],
        message=", ".join(outcome.message for outcome in refused if outcome.message),
        clear_nomination=any(outcome.clear_nomination for outcome in refused),
    )
