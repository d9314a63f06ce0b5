"""Node-pressure eviction: when each node's eviction manager is stepped, and its decisions applied.

A node is stepped every 10 s, as upstream's loop runs, from the first change of what it observes
until the service answers that no later step would change anything. Its next step is then on that
loop's schedule again. A node that the service calls calm is looked at, not stepped, until less is
available than `calm` requires. Nodes without recorded usage are never stepped.

- With kernelMemcgNotification a node is also stepped at each crossing, besides its loop.
- An eviction delays its node's loop until the pod has stopped (within its grace period, and so
  before the kill's timeout) and for one poll of 1 s, which finds it cleaned up.
- Steps under a pressure that nothing relieves are idle: a replay does not go on for them, nor for
  growing pods that replace evicted ones.

Source: kubernetes v1.32 pkg/kubelet/eviction/eviction_manager.go, Start, waitForPodsCleanup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from replay.world.api.conditions import TAINTS, mark_pressure
from replay.world.api.pod_record import PodRecord
from replay.world.controller import Controller, Ending
from replay.world.kubelet.admission import Rejection
from replay.world.kubelet.annotations import UsageRule
from replay.world.kubelet.eviction_look_ahead import EvictionLookAhead
from replay.world.kubelet.memory_kills import REPEATED
from replay.world.kubelet.memory_limits import DEFAULT_KUBELET, KubeletMemory
from replay.world.kubelet.node_memory import NodeMemory
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.kubelet.usage import UsageProfiles
from replay.world.models import OomKill
from replay.world.response_checks import check_results
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.eviction.v1beta1 import eviction_pb2, eviction_service_pb2
from reprieve.kube.v1beta1 import node_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from services.rpc.kube.fields import time_ns

INTERVAL_NS = 10 * SECOND_NS
CLEANUP_POLL_NS = SECOND_NS
"""The wait from the return of a kill to the loop's first check that the pod is cleaned up."""

_RECORDED = (
    "node {} has the condition {} in the trace: it and its taint stay, whatever pods use, until an "
    "update of the node ends them"
)
_GROWING_REPLACEMENTS = (
    "the growing usage of pods that replace evicted ones does not keep a replay running; "
    "use --until to replay it"
)


class EvictionBackend(Protocol):
    """A service that decides evictions."""

    def apply(
        self, operations: Sequence[eviction_service_pb2.Operation]
    ) -> Sequence[eviction_service_pb2.OperationResult]:
        """Apply operations; return one result for each except removals, in order."""


@dataclass(slots=True, kw_only=True)
class _EvictionManager:
    """One node's eviction manager.

    `stepped_ns` is the last step of its loop (None: no step yet), `sent` the pods that the service
    has of it (None: the service does not have the node), `under` the conditions that hold.
    """

    stepped_ns: int | None = None
    sent: frozenset[str] | None = None
    under: frozenset[str] = frozenset()


class NodePressure(Controller):
    """Steps the nodes of a cluster and applies their evictions and conditions.

    With `backend` None, and where the models switch eviction off, nothing is stepped.
    """

    reads = frozenset({"usage"})
    actions = frozenset({ActionKind.STEP, ActionKind.USAGE, ActionKind.NODE_MEMORY})
    _nodes: dict[str, _EvictionManager]
    _due: dict[str, None]
    _may_have_crossed: dict[str, None]
    _evicts_replacements: set[str]

    def __init__(
        self,
        state: WorldState,
        lifecycle: PodLifecycle,
        backend: EvictionBackend | None,
        rules: Sequence[UsageRule] = (),
        kubelet: KubeletMemory = DEFAULT_KUBELET,
    ) -> None:
        super().__init__(state)
        self._lifecycle = lifecycle
        self._silent = lifecycle.silent
        self._backend = backend if state.models.eviction else None
        has_limits = state.models.oom_kill is not OomKill.OFF
        self._profiles = UsageProfiles(rules, kubelet, has_limits=has_limits)
        self._look_ahead = EvictionLookAhead(state, self._profiles, self._active)
        since_ns = self._look_ahead.since_ns
        self.memory = NodeMemory(state, lifecycle, self._profiles, self._active, since_ns, kubelet)
        self._due = {}
        self._may_have_crossed = {}
        lifecycle.usage_changed = self.usage_changed
        lifecycle.under_pressure = self.rejection
        lifecycle.resources_changed = self.resources_changed

    def read(self, now_ns: int, record: trace_pb2.Record) -> None:
        """Add a usage profile of the trace."""
        profile = record.usage
        self._profiles.add(profile)
        if profile.node_name in self._cluster.nodes:
            self.node_changed(now_ns, profile.node_name)

    def act(self, now_ns: int, action: Action) -> None:
        """Look at a node, or note that its step is due, unless its kubelet is silent."""
        if action.key in self._silent:
            return
        match action.kind:
            case ActionKind.STEP:
                self._take_due(action.key)
            case ActionKind.USAGE:
                self._look(now_ns, action.key)
            case ActionKind.NODE_MEMORY:
                self.memory.check(now_ns, action.key)

    def conclude(self, ending: Ending) -> None:
        """Note what does not keep a replay running, and why no eviction could be decided."""
        if ending.is_finished and self._profiles.has_replacements:
            self._journal.note("usage", _GROWING_REPLACEMENTS)
        if ending.is_finished and self.memory.repeats:
            self._journal.note("usage", REPEATED)
        if self._backend is not None and not self._profiles.has_memory_or_storage:
            self._journal.eviction_not_judged = "no usage is recorded (--usage)"
        for name, node in self._cluster.nodes.items():
            for condition in node.status.conditions:
                is_recorded = condition.type in TAINTS and condition.status == "True"
                if is_recorded and condition.type not in self.conditions_of(name):
                    self._journal.note("pressure", _RECORDED.format(name, condition.type))

    def usage_changed(self, now_ns: int, pod: PodRecord) -> None:
        """Plan a step for the node of a pod that starts or ends now, and the next OOM kills."""
        self._profiles.started(now_ns, pod)
        if not self._profiles.has_any:
            return
        if self._profiles.has_usage(pod):
            self.memory.usage_changed(now_ns, pod)
        if self._backend is not None and pod.node_name in self._cluster.nodes:
            self._changed(now_ns, pod.node_name, has_usage=self._profiles.has_usage(pod))
        if pod.is_terminal or pod.uid not in self._cluster.pods:
            self._profiles.forget(pod)

    def resources_changed(self, pod: PodRecord) -> None:
        """Send a pod anew with the next step of its node."""
        node = self._nodes.get(pod.node_name)
        if node is not None and node.sent is not None:
            node.sent -= {pod.uid}

    def concerns(self, pod: PodRecord) -> bool:
        """Return whether the pod may cause a step of its node, or an OOM kill of its containers."""
        is_judged = self._backend is not None or self.memory.is_on
        return is_judged and self._profiles.may_have_usage(pod)

    def rejection(self, pod: PodRecord) -> Rejection | None:
        """Return why a kubelet whose node is under pressure rejects a pod, None if it does not.

        A node that is not under pressure admits every pod.
        Source: kubernetes v1.32 pkg/kubelet/eviction/eviction_manager.go, Admit.
        """
        node = self._nodes.get(pod.node_name)
        if self._backend is None or node is None or not node.under:
            return None
        operation = eviction_service_pb2.Operation()
        operation.admit.node_name = pod.node_name
        operation.admit.pod.CopyFrom(pod.message)
        (result,) = _apply(self._backend, [operation])
        answer = result.admission
        return None if answer.admit else Rejection(answer.reason, answer.message)

    def node_changed(self, now_ns: int, node_name: str) -> None:
        """Plan a step for a node that was added or changed, or whose own usage was added."""
        if self._profiles.has_any:
            self.memory.changed(now_ns, node_name)
        if self._backend is None or node_name not in self._cluster.nodes:
            return
        has_usage = any(map(self._profiles.has_usage, self._active(node_name)))
        self._changed(now_ns, node_name, has_usage=has_usage)

    def _look(self, now_ns: int, node_name: str) -> None:
        """Look at a node whose usage may matter now, and plan a step if it does."""
        if node_name not in self._cluster.nodes:
            return
        if self._look_ahead.matters(now_ns, node_name):
            self._plan(now_ns, node_name, has_usage=True)
            self._check_crossing(now_ns, node_name)
        else:
            self._look_ahead.plan(now_ns, node_name)

    def settle(self, now_ns: int) -> bool:
        """Kill what exceeds a limit; else step the nodes that are due or have a crossing.

        Limits come first: the nodes are stepped in a later round, then.
        """
        if self.memory.has_due:
            self.memory.take_due(now_ns)
            return True
        if not (self._due or self._may_have_crossed):
            return False
        self._step(now_ns)
        return True

    def _take_due(self, node_name: str) -> None:
        """Note that a node's step is due; it is taken when the instant's rounds are over."""
        self._due[node_name] = None

    def _step(self, now_ns: int) -> None:
        """Step the nodes that are due or have a crossing, by name, all in one exchange."""
        assert self._backend is not None  # noqa: S101 - steps are planned only with a backend
        by_loop = {name for name in self._due if self._acts(name)}
        notified = {
            name
            for name in self._may_have_crossed
            if name not in by_loop
            and self._acts(name)
            and self._look_ahead.has_crossed(now_ns, name)
        }
        self._due.clear()
        self._may_have_crossed.clear()
        names = sorted(by_loop | notified)
        if not names:
            return
        results = _apply(self._backend, [self._step_of(now_ns, name) for name in names])
        reclaiming = [result.node_name for result in results if result.HasField("need_reclaim")]
        if reclaiming:
            resumed = _apply(self._backend, [self._resume(now_ns, name) for name in reclaiming])
            by_name = {result.node_name: result for result in resumed}
            results = [by_name.get(result.node_name, result) for result in results]
        for result in results:
            name = result.node_name
            self._carry_out(now_ns, name, result.step, by_loop=name in by_loop)

    def conditions_of(self, node_name: str) -> frozenset[str]:
        """Return the types of the pressure conditions that hold on a node."""
        manager = self._nodes.get(node_name)
        return frozenset() if manager is None else manager.under

    def keep_own(self, node: node_pb2.Node) -> None:
        """Copy the pressure conditions and taints that hold onto a user's version of a node."""
        stored = self._cluster.nodes.get(node.metadata.name)
        manager = self._nodes.get(node.metadata.name)
        if stored is None or manager is None:
            return
        for condition in stored.status.conditions:
            if condition.type in manager.under:
                mark_pressure(node, condition, time_ns(condition.last_transition_time))

    def forget(self, node_name: str) -> None:
        """Drop a node that was deleted."""
        self.memory.forget(node_name)
        self._due.pop(node_name, None)
        self._may_have_crossed.pop(node_name, None)
        self._timeline.cancel(ActionKind.STEP, node_name)
        self._look_ahead.forget(node_name)
        manager = self._nodes.pop(node_name, None)
        if self._backend is not None and manager is not None and manager.sent is not None:
            _apply(self._backend, [eviction_service_pb2.Operation(remove_node=node_name)])

    # Steps

    def _node(self, node_name: str) -> _EvictionManager:
        node = self._nodes.get(node_name)
        if node is None:
            node = self._nodes[node_name] = _EvictionManager()
        return node

    def _acts(self, node_name: str) -> bool:
        return node_name in self._cluster.nodes and node_name not in self._silent

    def _changed(self, now_ns: int, node_name: str, *, has_usage: bool) -> None:
        """Plan a step for a node on which usage has begun or ended."""
        if node_name in self._silent:
            return
        self._look_ahead.changed(now_ns, node_name)
        self._plan(now_ns, node_name, has_usage=has_usage)
        self._check_crossing(now_ns, node_name)

    def _plan(self, now_ns: int, node_name: str, *, has_usage: bool) -> None:
        """Plan the next step, unless one is due now; a planned one is no longer idle.

        A step at this very instant is due with all others of it, so that their order does not
        depend on the look-ahead.
        """
        if node_name in self._due:
            return
        planned_ns = self._timeline.planned_ns(ActionKind.STEP, node_name)
        matters = has_usage or self._profiles.has_overhead(node_name) or self._node(node_name).under
        if planned_ns is not None:
            self._timeline.plan(planned_ns, ActionKind.STEP, node_name)
        elif matters:
            at_ns = self._next_step_ns(now_ns, node_name)
            if at_ns == now_ns:
                self._take_due(node_name)
            else:
                self._timeline.plan(at_ns, ActionKind.STEP, node_name)

    def _check_crossing(self, now_ns: int, node_name: str) -> None:
        """Check for a crossing at this instant's end, and plan the next look."""
        if self._look_ahead.has_notifications(node_name):
            self._may_have_crossed[node_name] = None
            self._look_ahead.plan(now_ns, node_name)

    def _next_step_ns(self, now_ns: int, node_name: str) -> int:
        """Return the next time of the node's loop of 10 s, counted from its last step.

        A node's first step is at a whole multiple of 10 s.
        """
        stepped_ns = self._node(node_name).stepped_ns
        if stepped_ns is None:
            return -(-now_ns // INTERVAL_NS) * INTERVAL_NS
        return stepped_ns + max(1, -(-(now_ns - stepped_ns) // INTERVAL_NS)) * INTERVAL_NS

    def _active(self, node_name: str) -> list[PodRecord]:
        """Return the pods that the kubelet runs, in the order of their binding."""
        pods = self._cluster.active_by_node.get(node_name, {}).values()
        return [
            pod
            for pod in pods
            if pod.running_ns is not None or pod.message.status.HasField("start_time")
        ]

    def _step_of(self, now_ns: int, node_name: str) -> eviction_service_pb2.Operation:
        """Return a node's step; it names pods by UID if the service has them all."""
        pods = self._active(node_name)
        operation = eviction_service_pb2.Operation()
        step = operation.step
        step.node_name = node_name
        step.time_ns = now_ns
        step.observations.CopyFrom(self._observe(now_ns, node_name, pods))
        node = self._node(node_name)
        uids = frozenset(pod.uid for pod in pods)
        if uids <= (node.sent or frozenset()):
            step.active_uids.extend(pod.uid for pod in pods)
        else:
            step.pods.extend(pod.kubelet_message for pod in pods)
        node.sent = uids
        return operation

    def _resume(self, now_ns: int, node_name: str) -> eviction_service_pb2.Operation:
        """Return the end of a node's collection: a replay has no dead containers or images."""
        operation = eviction_service_pb2.Operation()
        operation.resume.node_name = node_name
        observations = self._observe(now_ns, node_name, self._active(node_name))
        operation.resume.observations.CopyFrom(observations)
        return operation

    def _observe(
        self, now_ns: int, node_name: str, pods: list[PodRecord]
    ) -> eviction_pb2.Observations:
        since_ns = self._look_ahead.since_ns(now_ns, node_name)
        return self._profiles.observe(self._cluster.nodes[node_name], since_ns, pods, now_ns)

    # Results

    def _carry_out(
        self, now_ns: int, node_name: str, result: eviction_pb2.StepResult, *, by_loop: bool
    ) -> None:
        if by_loop:
            self._node(node_name).stepped_ns = now_ns
        if not result.quiet:
            self._apply_conditions(now_ns, node_name, result.conditions)
        stopped_ns = [
            self._evict(now_ns, eviction, result.ranking)
            for eviction in result.evictions
            if eviction.pod.uid in self._cluster.pods
        ]
        if stopped_ns and by_loop:
            at_ns = max(stopped_ns) + CLEANUP_POLL_NS
            self._timeline.plan(at_ns, ActionKind.STEP, node_name)
        elif (
            not (result.quiet or result.HasField("calm"))
            and self._timeline.planned_ns(ActionKind.STEP, node_name) is None
        ):
            at_ns = max(result.next_step_time_ns, now_ns + SECOND_NS)
            if not by_loop:
                at_ns = self._next_step_ns(now_ns, node_name)
            is_idle = _would_repeat(now_ns, result) or node_name in self._evicts_replacements
            self._timeline.plan(at_ns, ActionKind.STEP, node_name, idle=is_idle)
        self._look_ahead.stepped(now_ns, node_name, result)
        if not stopped_ns:
            self.memory.stepped(now_ns, node_name)

    def _evict(
        self,
        now_ns: int,
        eviction: eviction_pb2.Eviction,
        ranking: Sequence[eviction_pb2.RankedPod],
    ) -> int:
        """Kill a pod and return when it will have stopped, ns."""
        pod = self._cluster.pods[eviction.pod.uid]
        if self._profiles.replaces(pod):
            self._evicts_replacements.add(pod.node_name)
        self._profiles.evicted(pod)
        if pod.eviction is None:
            self._journal.evicted(now_ns, pod, eviction, ranking)
        return self._lifecycle.evict(now_ns, pod, eviction)

    def _apply_conditions(
        self, now_ns: int, node_name: str, shown: Sequence[node_pb2.NodeCondition]
    ) -> None:
        """Write conditions that have changed, and the node lifecycle controller's taints."""
        manager = self._node(node_name)
        before = manager.under
        now = frozenset(condition.type for condition in shown if condition.status == "True")
        if now == before:
            return
        manager.under = now
        node = self._cluster.nodes[node_name]
        for condition in shown:
            if condition.type in now ^ before:
                mark_pressure(node, condition, now_ns)
                self._journal.condition_changed(now_ns, node_name, condition.type, condition.status)
        self._cluster.put_node(now_ns, node)


def _apply(
    backend: EvictionBackend, operations: Sequence[eviction_service_pb2.Operation]
) -> Sequence[eviction_service_pb2.OperationResult]:
    """Return the checked results of operations. Raises ContractError."""
    results = backend.apply(operations)
    check_results(results, operations)
    return results


def _would_repeat(now_ns: int, result: eviction_pb2.StepResult) -> bool:
    """Return whether steps would repeat for ever while the node observes the same.

    They do where no pod was evicted although each threshold met was met for its grace period, and
    each condition that holds was observed just now.
    """
    observed_ns = {
        condition.name: condition.time_ns for condition in result.condition_last_observed
    }
    holding = [condition.type for condition in result.conditions if condition.status == "True"]
    return (
        not result.evictions
        and len(result.first_observed) == len(result.thresholds_met)
        and bool(holding)
        and all(observed_ns.get(name) == now_ns for name in holding)
    )
