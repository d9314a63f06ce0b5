"""Node-pressure eviction in the world: who is stepped when, and what becomes of the answers.

A node is stepped every 10 s, as upstream's loop runs, from the first moment at which something that
it observes has changed until the service answers that nothing would change again; its next step is
then when that loop would have come round. A node that the service calls calm is looked at, not
stepped, until less is available than that asks for.
Where the kernel tells of crossed amounts (kernelMemcgNotification), a node is stepped at the very
moment of each crossing, too, beside its loop, which goes on as it would.
An eviction holds its node's loop up until the pod has stopped, which it does within its grace
period and so before the kill's timeout, and for one poll of 1 s, which finds it cleaned up.
Steps under a pressure that nothing relieves go on, idly: a replay does not go on for their sake,
nor for pods that grow by a rule in the place of others which were evicted for it.
Nodes whose usage the trace does not tell are never stepped.

Source: kubernetes v1.32 pkg/kubelet/eviction/eviction_manager.go, Start, waitForPodsCleanup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from replay.world.answers import check_results
from replay.world.api.cluster import Cluster
from replay.world.api.conditions import mark_pressure
from replay.world.api.pod_record import PodRecord
from replay.world.journal import Journal
from replay.world.kubelet.annotations import UsageRule
from replay.world.kubelet.next_step import Foresight
from replay.world.kubelet.pod_lifecycle import Lives
from replay.world.kubelet.usage import UsageProfiles
from replay.world.models import SECOND_NS
from replay.world.timeline import Kind, Timeline
from reprieve.eviction.v1beta1 import eviction_pb2, eviction_service_pb2
from reprieve.kube.v1beta1 import node_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.kube.fields import time_ns

INTERVAL_NS = 10 * SECOND_NS
CLEANUP_POLL_NS = SECOND_NS
"""How long after a kill has returned the loop first looks whether the pod is cleaned up."""


class EvictionBackend(Protocol):
    """Whoever decides evictions: a service behind a stream."""

    def apply(
        self, operations: Sequence[eviction_service_pb2.Operation]
    ) -> Sequence[eviction_service_pb2.OperationResult]:
        """Carry out operations; one result for each but removals, in order."""


@dataclass(slots=True, kw_only=True)
class _Kubelet:
    """What is kept of one node.

    `stepped_ns` is when its loop last came round (None: never), `sent` the pods that the service
    knows of it (None: it does not know the node), `under` the conditions that hold.
    """

    stepped_ns: int | None = None
    sent: frozenset[str] | None = None
    under: frozenset[str] = frozenset()


class Pressure:
    """Steps the nodes of a cluster and carries out their evictions."""

    def __init__(
        self,
        cluster: Cluster,
        timeline: Timeline,
        lives: Lives,
        journal: Journal,
        backend: EvictionBackend | None,
        rules: Sequence[UsageRule] = (),
    ) -> None:
        self._cluster = cluster
        self._timeline = timeline
        self._lives = lives
        self._journal = journal
        self._backend = backend
        self._profiles = UsageProfiles(rules)
        self._kubelets: dict[str, _Kubelet] = {}
        self._foresight = Foresight(cluster, timeline, self._profiles, self._active)
        self._due: dict[str, None] = {}
        self._touched: dict[str, None] = {}
        self._circling: set[str] = set()
        lives.usage_changed = self.usage_changed
        lives.refusal = self.refusal

    def add_profile(self, now_ns: int, profile: trace_pb2.UsageProfile) -> None:
        """Take a usage profile from the trace."""
        self._profiles.add(profile)
        if profile.node_name in self._cluster.nodes:
            self.node_changed(now_ns, profile.node_name)

    @property
    def not_judged(self) -> str:
        """Return why no eviction can be decided; "" where one can, or was left out on request."""
        is_wanted = self._backend is not None and not self._profiles.is_told
        return "no usage is known (--usage)" if is_wanted else ""

    def profile_of(self, template_id: int) -> int:
        """Return the number of a template's profile, 0 for none."""
        return self._profiles.of_template(template_id)

    def usage_changed(self, now_ns: int, pod: PodRecord) -> None:
        """Plan a step for the node of a pod that runs or ends from now on."""
        if self._backend is None:
            return
        self._profiles.runs(now_ns, pod)
        if not self._profiles.has_any:
            return
        if pod.node_name in self._cluster.nodes:
            self._changed(now_ns, pod.node_name, is_known=self._profiles.is_known(pod))
        if pod.is_terminal or pod.uid not in self._cluster.pods:
            self._profiles.forget(pod)

    def may_concern(self, pod: PodRecord) -> bool:
        """Tell whether it may come to matter what is used on the pod's node."""
        return self._backend is not None and self._profiles.may_tell(pod)

    def refusal(self, pod: PodRecord) -> eviction_service_pb2.Admission | None:
        """Return why the kubelet of a pod's node does not take it, None where it does.

        A node that is not under pressure takes every pod. Source: kubernetes v1.32
        pkg/kubelet/eviction/eviction_manager.go, Admit.
        """
        kubelet = self._kubelets.get(pod.node_name)
        if self._backend is None or kubelet is None or not kubelet.under:
            return None
        operation = eviction_service_pb2.Operation()
        operation.admit.node_name = pod.node_name
        operation.admit.pod.CopyFrom(pod.message)
        (result,) = self._answered(self._backend, [operation])
        return None if result.admission.admit else result.admission

    def node_changed(self, now_ns: int, node_name: str) -> None:
        """Plan a step for a node that came, changed, or whose own usage is told."""
        if self._backend is None or node_name not in self._cluster.nodes:
            return
        is_known = any(map(self._profiles.is_known, self._active(node_name)))
        self._changed(now_ns, node_name, is_known=is_known)

    def look(self, now_ns: int, node_name: str) -> None:
        """Look at a node whose usage may have come to matter, and plan a step if it has."""
        if node_name not in self._cluster.nodes:
            return
        if self._foresight.matters(now_ns, node_name):
            self._plan(now_ns, node_name, is_known=True)
            self._touch(now_ns, node_name)
        else:
            self._foresight.plan(now_ns, node_name)

    @property
    def goes_round(self) -> bool:
        """Tell whether pods that grow are evicted, replaced, and grow again."""
        return self._profiles.has_replacements

    @property
    def has_due(self) -> bool:
        """Tell whether a node is to be stepped, or looked at for a crossing, in this moment."""
        return bool(self._due or self._touched)

    def take_due(self, node_name: str) -> None:
        """Note that a node's step is due; it is taken when all else of the moment is over."""
        self._due[node_name] = None

    def step(self, now_ns: int) -> None:
        """Step the nodes that are due or told of a crossing, by name, all in one exchange."""
        assert self._backend is not None  # noqa: S101 - steps are planned only with a backend
        by_loop = {name for name in self._due if name in self._cluster.nodes}
        told = {
            name
            for name in self._touched
            if name not in by_loop and self._foresight.has_crossed(now_ns, name)
        }
        self._due.clear()
        self._touched.clear()
        names = sorted(by_loop | told)
        if not names:
            return
        steps = [self._operation(now_ns, name) for name in names]
        answers = self._answered(self._backend, steps)
        waiting = [answer.node_name for answer in answers if answer.HasField("need_reclaim")]
        if waiting:
            resumptions = [self._resumption(now_ns, name) for name in waiting]
            resumed = self._answered(self._backend, resumptions)
            by_name = {answer.node_name: answer for answer in resumed}
            answers = [by_name.get(answer.node_name, answer) for answer in answers]
        for answer in answers:
            name = answer.node_name
            self._apply(now_ns, name, answer.step, by_loop=name in by_loop)

    def _answered(
        self, backend: EvictionBackend, operations: Sequence[eviction_service_pb2.Operation]
    ) -> Sequence[eviction_service_pb2.OperationResult]:
        results = backend.apply(operations)
        check_results(results, operations)
        return results

    def keep_own(self, node: node_pb2.Node) -> None:
        """Put the conditions and taints that this world has set onto a user's version of a node."""
        known = self._cluster.nodes.get(node.metadata.name)
        kubelet = self._kubelets.get(node.metadata.name)
        if known is None or kubelet is None:
            return
        for condition in known.status.conditions:
            if condition.type in kubelet.under:
                mark_pressure(node, condition, time_ns(condition.last_transition_time))

    def forget(self, node_name: str) -> None:
        """Drop what is known of a node that has gone."""
        self._due.pop(node_name, None)
        self._touched.pop(node_name, None)
        self._timeline.cancel(Kind.STEP, node_name)
        self._foresight.forget(node_name)
        kubelet = self._kubelets.pop(node_name, None)
        if self._backend is not None and kubelet is not None and kubelet.sent is not None:
            operation = eviction_service_pb2.Operation(remove_node=node_name)
            self._answered(self._backend, [operation])

    # Steps

    def _kubelet(self, node_name: str) -> _Kubelet:
        kubelet = self._kubelets.get(node_name)
        if kubelet is None:
            kubelet = self._kubelets[node_name] = _Kubelet()
        return kubelet

    def _changed(self, now_ns: int, node_name: str, *, is_known: bool) -> None:
        """Plan a step for a node on which something has begun or ended."""
        self._foresight.changed(now_ns, node_name)
        self._plan(now_ns, node_name, is_known=is_known)
        self._touch(now_ns, node_name)

    def _plan(self, now_ns: int, node_name: str, *, is_known: bool) -> None:
        """Plan the next step, unless one is due now; one that is planned is no longer idle.

        One for this very moment is due with all others of it, so that their order does not hang on
        what was foreseen.
        """
        if node_name in self._due:
            return
        planned_ns = self._timeline.planned_ns(Kind.STEP, node_name)
        matters = (
            is_known or self._profiles.has_overhead(node_name) or self._kubelet(node_name).under
        )
        if planned_ns is not None:
            self._timeline.plan(planned_ns, Kind.STEP, node_name)
        elif matters:
            at_ns = self._next_step_ns(now_ns, node_name)
            if at_ns == now_ns:
                self.take_due(node_name)
            else:
                self._timeline.plan(at_ns, Kind.STEP, node_name)

    def _touch(self, now_ns: int, node_name: str) -> None:
        """Look for a crossing at this moment's end, and on to the next change."""
        if self._foresight.is_told(node_name):
            self._touched[node_name] = None
            self._foresight.plan(now_ns, node_name)

    def _next_step_ns(self, now_ns: int, node_name: str) -> int:
        """Return when a loop of 10 s comes round again that began with the node's last step.

        The first step of a node is on whole multiples of 10 s.
        """
        stepped_ns = self._kubelet(node_name).stepped_ns
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

    def _operation(self, now_ns: int, node_name: str) -> eviction_service_pb2.Operation:
        pods = self._active(node_name)
        operation = eviction_service_pb2.Operation()
        step = operation.step
        step.node_name = node_name
        step.at_ns = now_ns
        step.observations.CopyFrom(self._observe(now_ns, node_name, pods))
        kubelet = self._kubelet(node_name)
        sent = kubelet.sent or frozenset()
        known = all(pod.uid in sent for pod in pods)
        for pod in pods:
            if known:
                step.active_uids.append(pod.uid)
            else:
                step.pods.add().CopyFrom(pod.message)
        kubelet.sent = frozenset(pod.uid for pod in pods)
        return operation

    def _resumption(self, now_ns: int, node_name: str) -> eviction_service_pb2.Operation:
        """Let the node collect: a replay knows of no dead containers or unused images."""
        operation = eviction_service_pb2.Operation()
        operation.resume.node_name = node_name
        observations = self._observe(now_ns, node_name, self._active(node_name))
        operation.resume.observations.CopyFrom(observations)
        return operation

    def _observe(
        self, now_ns: int, node_name: str, pods: list[PodRecord]
    ) -> eviction_pb2.Observations:
        since_ns = self._foresight.since_ns(now_ns, node_name)
        return self._profiles.observe(self._cluster.nodes[node_name], since_ns, pods, now_ns)

    # Answers

    def _apply(
        self, now_ns: int, node_name: str, result: eviction_pb2.StepResult, *, by_loop: bool
    ) -> None:
        if by_loop:
            self._kubelet(node_name).stepped_ns = now_ns
        if not result.quiet:
            self._apply_conditions(now_ns, node_name, result.conditions)
        stopped_ns = [
            self._evict(now_ns, eviction, result.ranking)
            for eviction in result.evictions
            if eviction.pod.uid in self._cluster.pods
        ]
        if stopped_ns and by_loop:
            at_ns = max(stopped_ns) + CLEANUP_POLL_NS
            self._timeline.plan(at_ns, Kind.STEP, node_name)
        elif (
            not (result.quiet or result.HasField("calm"))
            and self._timeline.planned_ns(Kind.STEP, node_name) is None
        ):
            at_ns = max(result.next_step_ns, now_ns + SECOND_NS)
            if not by_loop:
                at_ns = self._next_step_ns(now_ns, node_name)
            is_idle = _would_repeat(now_ns, result) or node_name in self._circling
            self._timeline.plan(at_ns, Kind.STEP, node_name, idle=is_idle)
        self._foresight.learn(now_ns, node_name, result)

    def _evict(
        self,
        now_ns: int,
        eviction: eviction_pb2.Eviction,
        ranking: Sequence[eviction_pb2.RankedPod],
    ) -> int:
        """Kill a pod and answer when it will have stopped."""
        pod = self._cluster.pods[eviction.pod.uid]
        if self._profiles.replaces(pod):
            self._circling.add(pod.node_name)
        self._profiles.evicted(pod)
        if pod.eviction is None:
            self._journal.evicted(now_ns, pod, eviction, ranking)
        return self._lives.evict(now_ns, pod, eviction)

    def _apply_conditions(
        self, now_ns: int, node_name: str, shown: Sequence[node_pb2.NodeCondition]
    ) -> None:
        """Write conditions, and the taints that the node lifecycle controller makes of them."""
        kubelet = self._kubelet(node_name)
        before = kubelet.under
        now = frozenset(each.type for each in shown if each.status == "True")
        if now == before:
            return
        kubelet.under = now
        node = self._cluster.nodes[node_name]
        for condition in shown:
            if condition.type in now ^ before:
                mark_pressure(node, condition, now_ns)
                self._journal.condition_changed(now_ns, node_name, condition.type, condition.status)
        self._cluster.put_node(now_ns, node)


def _would_repeat(now_ns: int, result: eviction_pb2.StepResult) -> bool:
    """Tell whether a step would be the same for ever while the node observes the same.

    So it is where nobody was evicted though each threshold that is met was met for its grace
    period, and where each condition that holds was observed just now.
    """
    observed_ns = {each.name: each.at_ns for each in result.condition_last_observed}
    holding = [each.type for each in result.conditions if each.status == "True"]
    return (
        not result.evictions
        and len(result.first_observed) == len(result.thresholds_met)
        and bool(holding)
        and all(observed_ns.get(name) == now_ns for name in holding)
    )
