"""Node-pressure eviction in the world: who is stepped when, and what becomes of the answers.

A node is stepped every 10 s, as upstream's loop runs, from the first moment at which something that
it observes has changed until the service answers that nothing would change again; its next step is
then when that loop would have come round.
Steps under a pressure that nothing relieves go on, idly: a replay does not go on for their sake.
Nodes whose usage the trace does not tell are never stepped.

Source: kubernetes v1.32 pkg/kubelet/eviction/eviction_manager.go, Start, waitForPodsCleanup;
pkg/controller/nodelifecycle/node_lifecycle_controller.go, nodeConditionToTaintKeyStatusMap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from replay.world.cluster import Cluster
from replay.world.conditions import nanoseconds, set_node_condition, timestamp
from replay.world.journal import Journal
from replay.world.lives import Lives
from replay.world.models import SECOND_NS
from replay.world.pod_record import PodRecord
from replay.world.timeline import Kind, Timeline
from replay.world.usage import UsageProfiles
from reprieve.eviction.v1alpha1 import eviction_pb2, eviction_service_pb2
from reprieve.kube.v1alpha1 import node_pb2
from reprieve.trace.v1alpha1 import trace_pb2

INTERVAL_NS = 10 * SECOND_NS
CLEANUP_NS_MAX = 30 * SECOND_NS
TAINTS = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
}


class EvictionBackend(Protocol):
    """Whoever decides evictions: a service behind a stream."""

    def step(
        self, operations: Sequence[eviction_service_pb2.NodeOperation]
    ) -> Sequence[eviction_service_pb2.StepAnswer]:
        """Carry out a batch; one answer for each step, in order."""


class Pressure:
    """Steps the nodes of a cluster and carries out their evictions."""

    def __init__(
        self,
        cluster: Cluster,
        timeline: Timeline,
        lives: Lives,
        journal: Journal,
        backend: EvictionBackend | None,
    ) -> None:
        self._cluster = cluster
        self._timeline = timeline
        self._lives = lives
        self._journal = journal
        self._backend = backend
        self._profiles = UsageProfiles()
        self._due: dict[str, None] = {}
        self._since_ns: dict[str, int] = {}
        self._stepped_ns: dict[str, int] = {}
        self._sent: dict[str, frozenset[str]] = {}
        self._under: dict[str, frozenset[str]] = {}
        lives.usage_changed = self.usage_changed

    def add_profile(self, now_ns: int, profile: trace_pb2.UsageProfile) -> None:
        """Take a usage profile from the trace."""
        self._profiles.add(profile)
        if profile.node_name in self._cluster.nodes:
            self.node_changed(now_ns, profile.node_name)

    def profile_of(self, template_id: int) -> int:
        """Return the number of a template's profile, 0 for none."""
        return self._profiles.of_template(template_id)

    def usage_changed(self, now_ns: int, pod: PodRecord) -> None:
        """Plan a step for the node of a pod that runs or ends from now on."""
        if self._backend is not None and pod.node_name in self._cluster.nodes:
            self._look(now_ns, pod.node_name, is_known=self._profiles.is_known(pod))

    def node_changed(self, now_ns: int, node_name: str) -> None:
        """Plan a step for a node that came, changed, or whose own usage is told."""
        if self._backend is None or node_name not in self._cluster.nodes:
            return
        self._since_ns.setdefault(node_name, now_ns)
        self._look(now_ns, node_name, is_known=False)

    def look(self, now_ns: int, node_name: str) -> None:
        """Plan a step for a node whose usage has come to matter."""
        if node_name in self._cluster.nodes:
            self._look(now_ns, node_name, is_known=True)

    @property
    def has_due(self) -> bool:
        """Tell whether a node's step is due in this moment."""
        return bool(self._due)

    def take_due(self, node_name: str) -> None:
        """Note that a node's step is due; it is taken when all else of the moment is over."""
        self._due[node_name] = None

    def step(self, now_ns: int) -> None:
        """Step the nodes that are due, by name, all in one exchange."""
        assert self._backend is not None  # noqa: S101 - steps are planned only with a backend
        names = sorted(name for name in self._due if name in self._cluster.nodes)
        self._due.clear()
        if not names:
            return
        answers = self._backend.step([self._operation(now_ns, name) for name in names])
        waiting = [answer.node_name for answer in answers if answer.HasField("need_reclaim")]
        if waiting:
            resumed = self._backend.step([self._resumption(now_ns, name) for name in waiting])
            by_name = {answer.node_name: answer for answer in resumed}
            answers = [by_name.get(answer.node_name, answer) for answer in answers]
        for answer in answers:
            self._stepped_ns[answer.node_name] = now_ns
            self._apply(now_ns, answer.node_name, answer.result)

    def keep_own(self, node: node_pb2.Node) -> None:
        """Put the conditions and taints that this world has set onto a user's version of a node."""
        known = self._cluster.nodes.get(node.metadata.name)
        if known is None:
            return
        for condition in known.status.conditions:
            if condition.type in self._under.get(node.metadata.name, ()):
                _mark(node, condition, nanoseconds(condition.last_transition_time))

    def forget(self, node_name: str) -> None:
        """Drop what is known of a node that has gone."""
        self._due.pop(node_name, None)
        self._timeline.cancel(Kind.STEP, node_name)
        self._timeline.cancel(Kind.USAGE, node_name)
        self._since_ns.pop(node_name, None)
        self._stepped_ns.pop(node_name, None)
        self._under.pop(node_name, None)
        if self._backend is not None and self._sent.pop(node_name, None) is not None:
            operation = eviction_service_pb2.NodeOperation(forget=node_name)
            self._backend.step([operation])

    # Steps

    def _look(self, now_ns: int, node_name: str, *, is_known: bool) -> None:
        """Plan the next step, unless one is due now; one that is planned is no longer idle."""
        if node_name in self._due:
            return
        planned_ns = self._timeline.planned_ns(Kind.STEP, node_name)
        if planned_ns is not None:
            self._timeline.plan(planned_ns, Kind.STEP, node_name)
        elif is_known or self._profiles.has_overhead(node_name) or self._under.get(node_name):
            self._timeline.plan(self._next_step_ns(now_ns, node_name), Kind.STEP, node_name)

    def _next_step_ns(self, now_ns: int, node_name: str) -> int:
        """Return when a loop of 10 s comes round again that began with the node's last step.

        The first step of a node is on whole multiples of 10 s.
        """
        stepped_ns = self._stepped_ns.get(node_name)
        if stepped_ns is None:
            return -(-now_ns // INTERVAL_NS) * INTERVAL_NS
        return stepped_ns + max(1, -(-(now_ns - stepped_ns) // INTERVAL_NS)) * INTERVAL_NS

    def _active(self, node_name: str) -> list[PodRecord]:
        """Return the pods that the kubelet runs, in the order in which it was given them."""
        pods = self._cluster.active_by_node.get(node_name, {}).values()
        return [
            pod
            for pod in pods
            if pod.running_ns is not None or pod.message.status.HasField("start_time")
        ]

    def _operation(self, now_ns: int, node_name: str) -> eviction_service_pb2.NodeOperation:
        pods = self._active(node_name)
        operation = eviction_service_pb2.NodeOperation()
        step = operation.step
        step.node_name = node_name
        step.at_ns = now_ns
        step.observations.CopyFrom(self._observe(now_ns, node_name, pods))
        sent = self._sent.get(node_name, frozenset())
        known = all(pod.uid in sent for pod in pods)
        for pod in pods:
            if known:
                step.active_uids.append(pod.uid)
            else:
                step.pods.add().CopyFrom(pod.message)
        self._sent[node_name] = frozenset(pod.uid for pod in pods)
        return operation

    def _resumption(self, now_ns: int, node_name: str) -> eviction_service_pb2.NodeOperation:
        """Let the node collect: a replay knows of no dead containers or unused images."""
        operation = eviction_service_pb2.NodeOperation()
        operation.resume.node_name = node_name
        observations = self._observe(now_ns, node_name, self._active(node_name))
        operation.resume.observations.CopyFrom(observations)
        return operation

    def _observe(
        self, now_ns: int, node_name: str, pods: list[PodRecord]
    ) -> eviction_pb2.Observations:
        since_ns = self._since_ns.get(node_name, now_ns)
        return self._profiles.observe(self._cluster.nodes[node_name], since_ns, pods, now_ns)

    # Answers

    def _apply(self, now_ns: int, node_name: str, result: eviction_pb2.StepResult) -> None:
        if not result.quiet:
            self._apply_conditions(now_ns, node_name, result.node_conditions)
        stopped_ns = [
            self._evict(now_ns, eviction)
            for eviction in result.evictions
            if eviction.pod.uid in self._cluster.pods
        ]
        if stopped_ns:
            wait_ns = min(max(stopped_ns) - now_ns, CLEANUP_NS_MAX)
            polls = max(1, -(-wait_ns // SECOND_NS))
            self._timeline.plan(now_ns + polls * SECOND_NS, Kind.STEP, node_name)
        elif not result.quiet and self._timeline.planned_ns(Kind.STEP, node_name) is None:
            at_ns = max(result.next_step_ns, now_ns + SECOND_NS)
            is_idle = _would_repeat(now_ns, result)
            self._timeline.plan(at_ns, Kind.STEP, node_name, idle=is_idle)

        self._foresee(now_ns, node_name, result)

    def _foresee(self, now_ns: int, node_name: str, result: eviction_pb2.StepResult) -> None:
        """Plan to look again when usage next changes or, on a calm node, when that will matter."""
        least = None
        if result.HasField("calm"):
            least = {each.signal: each.amount for each in result.calm.least}
        node, since_ns = self._cluster.nodes[node_name], self._since_ns.get(node_name, now_ns)
        pods = self._active(node_name)
        at_ns = self._profiles.matters_ns(node, since_ns, pods, now_ns, least)
        if at_ns is None:
            self._timeline.cancel(Kind.USAGE, node_name)
        else:
            self._timeline.plan(at_ns, Kind.USAGE, node_name)

    def _evict(self, now_ns: int, eviction: eviction_pb2.Eviction) -> int:
        """Kill a pod and answer when it will have stopped."""
        pod = self._cluster.pods[eviction.pod.uid]
        if pod.eviction is None:
            self._journal.evicted(now_ns, pod, eviction)
        return self._lives.evict(now_ns, pod, eviction)

    def _apply_conditions(
        self, now_ns: int, node_name: str, shown: Sequence[node_pb2.NodeCondition]
    ) -> None:
        """Write conditions, and the taints that the node lifecycle controller makes of them."""
        before = self._under.get(node_name, frozenset())
        now = frozenset(each.type for each in shown if each.status == "True")
        if now == before:
            return
        self._under[node_name] = now
        node = self._cluster.nodes[node_name]
        for condition in shown:
            if condition.type in now ^ before:
                _mark(node, condition, now_ns)
                self._journal.condition_changed(now_ns, node_name, condition.type, condition.status)
        self._cluster.put_node(now_ns, node)


def _would_repeat(now_ns: int, result: eviction_pb2.StepResult) -> bool:
    """Tell whether a step would be the same for ever while the node observes the same.

    So it is where nobody was evicted though each threshold that is met was met for its grace
    period, and where each condition that holds was observed just now.
    """
    observed_ns = {each.name: each.at_ns for each in result.condition_last_observed}
    return (
        not result.evictions
        and len(result.first_observed) == len(result.thresholds_met)
        and bool(result.conditions)
        and all(observed_ns.get(name) == now_ns for name in result.conditions)
    )


def _mark(node: node_pb2.Node, shown: node_pb2.NodeCondition, now_ns: int) -> None:
    """Write a condition, and its taint while it holds."""
    set_node_condition(node.status, shown.type, shown.status, now_ns, shown.reason, shown.message)
    kept = [taint for taint in node.spec.taints if taint.key != TAINTS[shown.type]]
    del node.spec.taints[:]
    node.spec.taints.extend(kept)
    if shown.status == "True":
        taint = node.spec.taints.add(key=TAINTS[shown.type], effect="NoSchedule")
        taint.time_added.CopyFrom(timestamp(now_ns))
