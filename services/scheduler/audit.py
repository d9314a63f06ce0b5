"""The audit: each decision of another scheduler, judged in the state that it had been sent.

A scheduler that forgets a rule finds room on full nodes, and looks better for it. So what it
decides is held against the filters of ours. The audit receives the rounds and outcomes that pass
between a replay and that scheduler, in order. It keeps the cluster as a session of ours would:
the events that were sent, the pods that the scheduler's earlier outcomes have bound, and the
answers to them. In that state the filters of the pod's profile judge the one node of a binding, and
the victims of a preemption. No node is chosen, no queue is kept, and nothing is sent.

Pods of a scheduler's name that is not the session's are judged by the first profile; that they were
bound at all is a fault of its own. What the API server refuses (a pod with gates, one that
terminates or has a node, an unknown node) is a refusal and is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.framework.runtime.guard import PluginFailed
from services.framework.status import Status
from services.kube.pod import Pod
from services.rpc.errors import FieldError, RefusalError
from services.scheduler.cluster_events import PatchPod
from services.scheduler.configuration import options_of, queue_config_of, read_configuration
from services.scheduler.core.cycle import placement
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.intake import Intake
from services.scheduler.out_of_tree import registry_with


class Violation(NamedTuple):
    """A rule that a decision breaks: whose it is, such as a plugin's, and how."""

    cause: str
    message: str


Decided = tuple[str, int]
"""A decision by its pop: the pod's UID and the cycle."""
_NONE: Mapping[Decided, tuple[Violation, ...]] = {}


class PlacementAudit:
    """Judges the decisions of one session with a scheduler.

    `config` is that of the session, whose extenders are not called, and `scheduler_names` are those
    whose pods the scheduler takes; one that no profile has is served by the first. `plugins` names
    out-of-tree plugins as MODULE:NAME. `stopped` is why nothing is judged any more, "" while it is:
    an object that our scheduler refuses, or a plugin that fails, must not end a run. Raises
    FieldError for a configuration that our scheduler refuses.
    """

    stopped: str

    def __init__(
        self,
        config: scheduler_pb2.SchedulerConfig,
        scheduler_names: Iterable[str],
        plugins: Sequence[str] = (),
    ) -> None:
        registry = registry_with(plugins)
        file = read_configuration(config, registry)
        options = options_of(config, file, queue_config_of(config, file))
        profiles = options.profiles or (options.rules.profile,)
        by_name = {profile.scheduler_name: profile for profile in profiles}
        served = tuple(
            by_name.get(name) or replace(profiles[0], scheduler_name=name)
            for name in sorted(scheduler_names)
        )
        self._core = Scheduler(replace(options, profiles=served), registry=registry)
        self._snapshot = self._core.snapshot
        self._intake = Intake(self._core, queue=options.queue)
        self._last_ns = 0
        self._unanswered: dict[str, int] = {}
        self.stopped = ""

    def catch_up(
        self, rounds: Iterable[scheduler_pb2.Round], nodes_of_pods: Mapping[str, str]
    ) -> None:
        """Take the rounds that a resumed run has sent, of which nothing is judged again.

        `nodes_of_pods` are the nodes of the pods that are bound by now, by UID: a binding may not
        have been confirmed to the scheduler yet.
        """
        try:
            for round_ in rounds:
                self._receive(round_)
        except (FieldError, RefusalError, PluginFailed) as error:
            self.stopped = str(error)
            return
        for uid, node_name in nodes_of_pods.items():
            pod = self._core.pods.get(uid)
            if pod is not None and not pod.node_name:
                self._count(pod, node_name)

    def judge(
        self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes
    ) -> Mapping[Decided, tuple[Violation, ...]]:
        """Take a round and its outcomes; return the decisions that are wrong, and why."""
        if self.stopped:
            return _NONE
        try:
            self._receive(round_)
            violations_by_pop: dict[Decided, tuple[Violation, ...]] = {}
            for outcome in outcomes.outcomes:
                if violations := tuple(self._outcome(outcome)):
                    violations_by_pop[outcome.pop.uid, outcome.pop.cycle] = violations
        except (FieldError, RefusalError, PluginFailed) as error:
            self.stopped = str(error)
            return _NONE
        return violations_by_pop

    def _receive(self, round_: scheduler_pb2.Round) -> None:
        """Apply a round's answers, then its events."""
        brought = self._intake.read_round(round_, self._last_ns)
        self._last_ns = round_.time_ns
        for answer in round_.answers:
            row = self._unanswered.pop(answer.pop.uid, None)
            if row is not None and answer.refused == scheduler_pb2.REFUSAL_STAGE_BIND:
                self._release(answer.pop.uid, row)
        for _, change in brought.changes:
            if isinstance(change, PatchPod) and change.patch.node_name:
                pod = self._core.pods.get(change.patch.pod.uid)
                if pod is not None and not pod.node_name:
                    self._count(pod, change.patch.node_name)
            self._intake.apply(change)

    def _outcome(self, outcome: scheduler_pb2.Outcome) -> Iterator[Violation]:
        pod = self._core.pods.get(outcome.pop.uid)
        if pod is None or pod.node_name or pod.is_terminating:
            return
        match outcome.WhichOneof("decision"):
            case "bind":
                yield from self._bind(pod, outcome.bind.node_name)
            case "unschedulable":
                yield from self._unschedulable(pod, outcome.unschedulable)

    def _bind(self, pod: Pod, node_name: str) -> Iterator[Violation]:
        """Judge a binding, and count the pod on its node from now on."""
        row = self._snapshot.row(node_name)
        is_counted = self._snapshot.pod(pod.uid) is not None
        if row is None or pod.spec.scheduling_gates or is_counted:
            return
        if not self._core.serves(pod):
            name = pod.spec.scheduler_name
            yield Violation("schedulerName", f'the pod is of scheduler "{name}"')
        refused = placement.refusal(self._core.framework_of(pod), pod, row)
        if refused is not None:
            yield _violation(refused)
        self._count(pod, node_name)

    def _count(self, pod: Pod, node_name: str) -> None:
        """Count a pod on the node to which it is bound, and what it takes there.

        It may be counted already: what is left then is the confirmation.
        """
        self._snapshot.nominations.drop(pod.uid)
        if self._snapshot.pod(pod.uid) is not None:
            return
        self._snapshot.assume(pod, node_name)
        row = self._snapshot.row(node_name)
        if row is not None:
            self._unanswered[pod.uid] = row
            self._core.framework_of(pod).reserve(pod, row)

    def _unschedulable(self, pod: Pod, verdict: scheduler_pb2.Unschedulable) -> Iterator[Violation]:
        preemption = verdict.preemption
        row = self._snapshot.row(preemption.node_name)
        if verdict.HasField("preemption") and row is not None:
            on_node = {victim.uid: victim for victim in self._snapshot.pods_on(row)}
            named = [victim.pod.uid for victim in preemption.victims]
            victims = [on_node[uid] for uid in dict.fromkeys(named) if uid in on_node]
            framework = self._core.framework_of(pod)
            for fault in placement.preemption_faults(framework, pod, row, victims):
                yield _violation(fault)
        if verdict.HasField("nominated_node_name"):
            self._nominate(pod, verdict.nominated_node_name)

    def _nominate(self, pod: Pod, node_name: str) -> None:
        """Keep a nomination, or its end (""), which the pods tried after this one must see."""
        if node_name:
            self._snapshot.nominations.put(pod, node_name)
        else:
            self._snapshot.nominations.drop(pod.uid)

    def _release(self, uid: str, row: int) -> None:
        """Free the room of a binding to the node of `row` that was refused."""
        pod = self._snapshot.pod(uid)
        if pod is not None and self._snapshot.is_assumed(uid):
            self._core.framework_of(pod).unreserve(pod, row)
            self._snapshot.forget(uid)


def _violation(status: Status) -> Violation:
    return Violation(status.plugin, status.message)
