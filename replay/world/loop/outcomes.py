"""Carrying out what the scheduler decided, and answering whether it could be.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, handleSchedulingFailure, bindingCycle;
framework/preemption/preemption.go, prepareCandidate; pkg/registry/core/pod/storage/storage.go,
BindingREST.setPodNodeAndMetadata (what makes a binding fail). Upstream's API server also binds to a
node that has gone, whose pod the garbage collector then takes; here such a binding is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from replay.world.api.cluster import Cluster
from replay.world.api.conditions import mark_disrupted, set_pod_condition
from replay.world.api.pod_record import PodRecord
from replay.world.journal import Journal
from replay.world.kubelet.pod_lifecycle import Lives
from replay.world.models import Models
from replay.world.timeline import Kind, Timeline
from reprieve.kube.v1beta1 import meta_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.pod import DEFAULT_SCHEDULER

_PREEMPTING = "preempting to accommodate a higher priority pod"


class Outcomes:
    """The API server's side of a scheduling cycle.

    `last_refusal` says what was refused last, for whoever reads why a moment does not end.
    """

    def __init__(self, cluster: Cluster, lives: Lives, journal: Journal) -> None:
        self._cluster = cluster
        self._lives = lives
        self._journal = journal
        self.last_refusal = ""

    def apply(
        self, now_ns: int, outcomes: Iterable[scheduler_pb2.Outcome]
    ) -> list[scheduler_pb2.Answer]:
        """Carry out outcomes in their order; answer each that could be refused."""
        answers: list[scheduler_pb2.Answer] = []
        for outcome in outcomes:
            if outcome.HasField("refusals"):
                self._refusals(now_ns, outcome.refusals)
            else:
                answer = self._apply(now_ns, outcome)
                answers.append(answer)
                if answer.refused:
                    self.last_refusal = f"; the last refusal: {answer.message}"
        self._journal.flush()
        return answers

    def _apply(self, now_ns: int, outcome: scheduler_pb2.Outcome) -> scheduler_pb2.Answer:
        answer = scheduler_pb2.Answer(pop=outcome.pop)
        pod = self._cluster.pods.get(outcome.pop.uid)
        match outcome.WhichOneof("outcome"):
            case "bind":
                self._bind(now_ns, pod, outcome, answer)
            case "unschedulable":
                self._unschedulable(now_ns, pod, outcome, answer)
            case "failure":
                self._failure(now_ns, pod, outcome)
        return answer

    def _bind(
        self,
        now_ns: int,
        pod: PodRecord | None,
        outcome: scheduler_pb2.Outcome,
        answer: scheduler_pb2.Answer,
    ) -> None:
        refusal = self._why_not_bound(pod, outcome)
        if refusal:
            answer.refused = scheduler_pb2.REFUSAL_STAGE_BIND
            answer.message = refusal
            if pod is not None:
                self._journal.scheduled(now_ns, pod, outcome, refusal)
            return
        assert pod is not None  # noqa: S101 - _why_not_bound answers otherwise
        self._cluster.bind(now_ns, pod, outcome.bind.node_name)
        self._journal.scheduled(now_ns, pod, outcome)
        self._lives.bound(now_ns, pod)

    def _why_not_bound(self, pod: PodRecord | None, outcome: scheduler_pb2.Outcome) -> str:
        if pod is None:
            return _gone(outcome)
        name = pod.message.metadata.name
        if pod.is_terminating:
            return f"pod {name} is being deleted, cannot be assigned to a host"
        if pod.node_name:
            return f"pod {name} is already assigned to node {pod.node_name!r}"
        if pod.message.spec.scheduling_gates:
            return f"pod {name} has non-empty .spec.schedulingGates"
        if outcome.bind.node_name not in self._cluster.nodes:
            return f'nodes "{outcome.bind.node_name}" not found'
        return ""

    def _refusals(self, now_ns: int, refusals: scheduler_pb2.Refusals) -> None:
        reasons = [(verdict.message, _nominated(verdict)) for verdict in refusals.verdicts]
        pods = self._cluster.pods
        attempted = zip(refusals.uids, refusals.attempts, refusals.refused_by, strict=True)
        for uid, attempts, place in attempted:
            pod = pods.get(uid)
            if pod is not None:
                self._not_bound(now_ns, pod, attempts, "Unschedulable", *reasons[place])

    def _unschedulable(
        self,
        now_ns: int,
        pod: PodRecord | None,
        outcome: scheduler_pb2.Outcome,
        answer: scheduler_pb2.Answer,
    ) -> None:
        verdict = outcome.unschedulable
        if pod is None:
            if verdict.HasField("preemption"):
                answer.refused = scheduler_pb2.REFUSAL_STAGE_NOMINATE
                answer.message = _gone(outcome)
            return
        nominated, attempts = _nominated(verdict), outcome.attempts
        self._not_bound(now_ns, pod, attempts, "Unschedulable", verdict.message, nominated)
        if verdict.HasField("preemption"):
            self._preempt(now_ns, pod, verdict.preemption, answer)

    def _failure(self, now_ns: int, pod: PodRecord | None, outcome: scheduler_pb2.Outcome) -> None:
        if pod is None:
            return
        failure, attempts = outcome.failure, outcome.attempts
        nominated = _nominated(failure)
        self._not_bound(now_ns, pod, attempts, "SchedulerError", failure.message, nominated)

    def _not_bound(
        self,
        now_ns: int,
        pod: PodRecord,
        attempts: int,
        reason: str,
        message: str,
        nominated: str | None,
    ) -> None:
        """Enter the attempt and patch the pod's status, where anything differs."""
        self._cluster.tried_now(pod)
        self._journal.failed(now_ns, pod, attempts, reason, message)
        status = pod.message.status
        changed = set_pod_condition(status, "PodScheduled", "False", now_ns, reason, message)
        ended = False
        if nominated is not None and status.nominated_node_name != nominated:
            ended = bool(status.nominated_node_name)
            if not nominated:
                self._journal.nominated(now_ns, pod, None)
            status.nominated_node_name = nominated
            changed = True
        if changed:
            self._cluster.status_changed(now_ns, pod, nomination_ended=ended)

    def _preempt(
        self,
        now_ns: int,
        pod: PodRecord,
        preemption: scheduler_pb2.Preemption,
        answer: scheduler_pb2.Answer,
    ) -> None:
        self._journal.nominated(now_ns, pod, preemption)
        if preemption.clears_last:
            self._delete_victims(now_ns, pod, preemption, answer)
        for ref in preemption.cleared_nominations:
            self._clear_nomination(now_ns, ref)
        if not preemption.clears_last:
            self._delete_victims(now_ns, pod, preemption, answer)

    def _clear_nomination(self, now_ns: int, ref: meta_pb2.ObjectReference) -> None:
        other = self._cluster.pods.get(ref.uid)
        if other is not None and other.message.status.nominated_node_name:
            other.message.status.nominated_node_name = ""
            self._journal.nominated(now_ns, other, None)
            self._cluster.status_changed(now_ns, other, nomination_ended=True)

    def _delete_victims(
        self,
        now_ns: int,
        pod: PodRecord,
        preemption: scheduler_pb2.Preemption,
        answer: scheduler_pb2.Answer,
    ) -> None:
        """Delete victims in order, as far as they are on the preemption's node."""
        for victim in preemption.victims:
            doomed = self._cluster.pods.get(victim.pod.uid)
            if doomed is None:
                continue
            if doomed.node_name != preemption.node_name:
                name, node = doomed.message.metadata.name, doomed.node_name or "no node"
                answer.refused = scheduler_pb2.REFUSAL_STAGE_DELETE_VICTIM
                answer.message = f"pod {name} is on {node}, not on {preemption.node_name}"
                answer.victim.CopyFrom(victim.pod)
                return
            self._delete_victim(now_ns, doomed, pod, violates=victim.violates_budget)

    def _delete_victim(
        self, now_ns: int, victim: PodRecord, preemptor: PodRecord, *, violates: bool
    ) -> None:
        """Mark and delete a victim; one that is terminating already is left alone."""
        if victim.is_terminating:
            return
        scheduler_name = preemptor.message.spec.scheduler_name or DEFAULT_SCHEDULER
        why = f"{scheduler_name}: {_PREEMPTING}"
        mark_disrupted(victim.message.status, now_ns, "PreemptionByScheduler", why)
        self._journal.preempted(now_ns, victim, preemptor, violates=violates)
        self._lives.delete(now_ns, victim, None, "preempted")


def _nominated(verdict: scheduler_pb2.Unschedulable | scheduler_pb2.Failure) -> str | None:
    """Return status.nominatedNodeName to write: "" clears it, None leaves it alone."""
    return verdict.nominated_node_name if verdict.HasField("nominated_node_name") else None


class Costs:
    """What cycles and bindings cost in simulated time: outcomes wait until theirs has come.

    With a cost of cycles the scheduler takes one pod at a time: what happens while it is at it is
    told when the cycle is over, and so is what the cycle decided. A binding is carried out a
    binding's cost after its cycle, while the next cycles go on, as upstream's bindings do beside
    the cycles. Decisions are then those of a scheduler that is as slow, whatever the size of its
    batches.

    Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, ScheduleOne (cycles one after the other,
    each binding in a goroutine of its own).
    """

    def __init__(self, timeline: Timeline, models: Models) -> None:
        self._timeline = timeline
        self._cycle_ns = models.cycle_cost_ns
        self._bind_ns = models.bind_cost_ns
        self._held: dict[str, scheduler_pb2.Outcome] = {}
        self._count = 0
        self._busy_until_ns = 0

    @property
    def one_by_one(self) -> bool:
        """Tell whether the scheduler is to take one pod at a time."""
        return self._cycle_ns > 0

    def is_busy(self, now_ns: int) -> bool:
        """Tell whether the scheduler is still at a cycle."""
        return now_ns < self._busy_until_ns

    def next_ns(self, wakeup_ns: int | None) -> int | None:
        """Return when a scheduler can next be woken that asked for `wakeup_ns` (None: never)."""
        return None if wakeup_ns is None else max(wakeup_ns, self._busy_until_ns)

    def ready(
        self, now_ns: int, outcomes: Iterable[scheduler_pb2.Outcome]
    ) -> list[scheduler_pb2.Outcome]:
        """Return the outcomes of a round that are carried out now, and keep the others."""
        now = []
        for outcome in outcomes:
            pods = len(outcome.refusals.uids) or 1
            self._busy_until_ns = max(now_ns, self._busy_until_ns) + self._cycle_ns * pods
            binds = outcome.HasField("bind")
            at_ns = self._busy_until_ns + (self._bind_ns if binds else 0)
            if self._cycle_ns:
                self._plan(self._busy_until_ns)
            if at_ns > now_ns:
                self._held[self._plan(at_ns)] = outcome
            else:
                now.append(outcome)
        return now

    def due(self, key: str) -> list[scheduler_pb2.Outcome]:
        """Return the outcome that is carried out with an action, none for a cycle's end alone."""
        held = self._held.pop(key, None)
        return [] if held is None else [held]

    def _plan(self, at_ns: int) -> str:
        self._count += 1
        key = str(self._count)
        self._timeline.plan(at_ns, Kind.CYCLE, key)
        return key


def _gone(outcome: scheduler_pb2.Outcome) -> str:
    return f'no pod has the uid "{outcome.pop.uid}"'
