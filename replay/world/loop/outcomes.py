"""Carries out the scheduler's outcomes, and reports to it which of them were refused.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, handleSchedulingFailure, bindingCycle;
framework/preemption/preemption.go, prepareCandidate; pkg/registry/core/pod/storage/storage.go,
BindingREST.setPodNodeAndMetadata (what makes a binding fail); pkg/registry/core/pod/strategy.go,
CheckGracefulDelete (a victim whose binding is under way has no node yet, and is removed at once).
Upstream's API server also binds to a deleted node, whose pod is garbage collected later; here such
a binding is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from replay.world.api.conditions import mark_disrupted, set_pod_condition
from replay.world.api.pod_record import PodRecord, object_ref
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.loop.rounds import InvalidOutcomes
from replay.world.state import WorldState
from replay.world.timeline import ActionKind
from reprieve.kube.v1beta1 import meta_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.pod import DEFAULT_SCHEDULER

_PREEMPTING = "preempting to accommodate a higher priority pod"


class OutcomeExecutor:
    """The API server's side of a scheduling cycle.

    Invalid decisions are carried out like others, as an API server does, and recorded.

    `last_refusal` is the text of the last refusal, for the error of an instant that does not end.
    """

    last_refusal: str
    _invalid: dict[tuple[str, int], tuple[tuple[str, str], ...]]

    def __init__(self, state: WorldState, lifecycle: PodLifecycle, costs: SchedulingCosts) -> None:
        self._cluster = state.cluster
        self._journal = state.journal
        self._lifecycle = lifecycle
        self._costs = costs
        self.last_refusal = ""
        self._invalid = {}

    def judged(self, invalid: InvalidOutcomes) -> None:
        """Take the violations of outcomes that are to be applied."""
        for pop, violations in invalid.items():
            self._invalid[pop] = tuple((cause, message) for cause, message in violations)

    def _violations(self, outcome: scheduler_pb2.Outcome) -> tuple[tuple[str, str], ...]:
        pop = (outcome.pop.uid, outcome.pop.cycle)
        return self._invalid.pop(pop, ()) if self._invalid else ()

    def apply(
        self, now_ns: int, outcomes: Iterable[scheduler_pb2.Outcome]
    ) -> list[scheduler_pb2.Answer]:
        """Carry out outcomes in their order; return an answer to each, except refusals of pods."""
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
        match outcome.WhichOneof("decision"):
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
        violations = self._violations(outcome)
        if refusal:
            answer.refused = scheduler_pb2.REFUSAL_STAGE_BIND
            answer.message = refusal
            if pod is None:
                self._cluster.assumed_pod_gone()
            else:
                self._journal.scheduled(now_ns, pod, outcome, refusal)
            return
        assert pod is not None  # noqa: S101 - _why_not_bound has a text for it
        self._cluster.bind(now_ns, pod, outcome.bind.node_name)
        self._journal.scheduled(now_ns, pod, outcome)
        pod.placed = not violations
        if violations:
            self._journal.invalid(now_ns, pod, pod.node_name, violations)
        self._lifecycle.bound(now_ns, pod)

    def _why_not_bound(self, pod: PodRecord | None, outcome: scheduler_pb2.Outcome) -> str:
        if pod is None:
            return _unknown_pod(outcome)
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
        attempted = zip(refusals.uids, refusals.attempts, refusals.verdict_indexes, strict=True)
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
                answer.message = _unknown_pod(outcome)
            return
        nominated, attempts = _nominated(verdict), outcome.attempts
        self._not_bound(now_ns, pod, attempts, "Unschedulable", verdict.message, nominated)
        if verdict.HasField("preemption"):
            preemption = verdict.preemption
            if violations := self._violations(outcome):
                node_name = preemption.node_name
                self._journal.invalid(now_ns, pod, node_name, violations, is_preemption=True)
            self._preempt(now_ns, pod, preemption, answer)

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
        """Record the attempt, and patch the pod's status where it differs."""
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
        victims = (self._named(victim.pod) for victim in preemption.victims)
        self._journal.nominated(now_ns, pod, preemption, victims)
        if preemption.clears_last:
            self._delete_victims(now_ns, pod, preemption, answer)
        for ref in preemption.cleared_nominations:
            self._clear_nomination(now_ns, ref)
        if not preemption.clears_last:
            self._delete_victims(now_ns, pod, preemption, answer)

    def _named(self, ref: meta_pb2.ObjectReference) -> meta_pb2.ObjectReference:
        """Return a pod's reference for the log; of an answer's, only the UID counts."""
        pod = self._cluster.pods.get(ref.uid)
        return object_ref("Pod", ref) if pod is None else pod.object_ref()

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
        """Delete victims in order, up to one that is not on the preemption's node."""
        for victim in preemption.victims:
            victim_pod = self._cluster.pods.get(victim.pod.uid)
            if victim_pod is None:
                continue
            node = victim_pod.node_name or self._costs.node_of_binding(victim_pod.uid)
            if node != preemption.node_name:
                name = victim_pod.message.metadata.name
                answer.refused = scheduler_pb2.REFUSAL_STAGE_DELETE_VICTIM
                answer.message = (
                    f"pod {name} is on {node or 'no node'}, not on {preemption.node_name}"
                )
                answer.victim.CopyFrom(victim.pod)
                return
            self._delete_victim(now_ns, victim_pod, pod)

    def _delete_victim(self, now_ns: int, victim: PodRecord, preemptor: PodRecord) -> None:
        """Mark and delete a victim, unless it is terminating already."""
        if victim.is_terminating:
            return
        scheduler_name = preemptor.message.spec.scheduler_name or DEFAULT_SCHEDULER
        why = f"{scheduler_name}: {_PREEMPTING}"
        mark_disrupted(victim.message.status, now_ns, "PreemptionByScheduler", why)
        violates = self._cluster.preempted(victim)
        self._journal.preempted(now_ns, victim, preemptor, violates=violates)
        self._lifecycle.delete(now_ns, victim, None, "preempted")


def _nominated(verdict: scheduler_pb2.Unschedulable | scheduler_pb2.Failure) -> str | None:
    """Return status.nominatedNodeName to write: "" clears it, None leaves it as it is."""
    return verdict.nominated_node_name if verdict.WhichOneof("nomination") else None


def _unknown_pod(outcome: scheduler_pb2.Outcome) -> str:
    return f'no pod has the uid "{outcome.pop.uid}"'


class SchedulingCosts:
    """The simulated durations of cycles and bindings (models cycle-cost and bind-cost).

    With a cycle cost the scheduler takes one pod at a time: events during a cycle are sent at its
    end, which is also when its outcome is carried out. A binding is carried out a bind cost after
    its cycle, while the next cycles run, as upstream's bindings do. Decisions are then those of a
    scheduler of that speed, whatever the size of its batches.

    Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, ScheduleOne (cycles one after the other,
    each binding in a goroutine of its own).
    """

    _waiting: dict[str, scheduler_pb2.Outcome]
    _count: int
    _busy_until_ns: int

    def __init__(self, state: WorldState) -> None:
        self._timeline = state.timeline
        self._cycle_ns = state.models.cycle_cost_ns
        self._bind_ns = state.models.bind_cost_ns
        self._waiting = {}
        self._count = 0
        self._busy_until_ns = 0

    @property
    def one_by_one(self) -> bool:
        """Return whether the scheduler takes one pod at a time."""
        return self._cycle_ns > 0

    def is_busy(self, now_ns: int) -> bool:
        """Return whether a scheduling cycle is running."""
        return now_ns < self._busy_until_ns

    def next_ns(self, wakeup_ns: int | None) -> int | None:
        """Return when the scheduler can be woken that requested `wakeup_ns` (None: no wakeup)."""
        return None if wakeup_ns is None else max(wakeup_ns, self._busy_until_ns)

    def ready(
        self, now_ns: int, outcomes: Iterable[scheduler_pb2.Outcome]
    ) -> list[scheduler_pb2.Outcome]:
        """Return a round's outcomes that are carried out now; plan the others."""
        now = []
        for outcome in outcomes:
            pods = len(outcome.refusals.uids) or 1
            self._busy_until_ns = max(now_ns, self._busy_until_ns) + self._cycle_ns * pods
            binds = outcome.HasField("bind")
            at_ns = self._busy_until_ns + (self._bind_ns if binds else 0)
            if self._cycle_ns:
                self._plan(self._busy_until_ns)
            if at_ns > now_ns:
                self._waiting[self._plan(at_ns)] = outcome
            else:
                now.append(outcome)
        return now

    def node_of_binding(self, uid: str) -> str:
        """Return the node that a pod is being bound to, "" if no binding is under way."""
        for outcome in self._waiting.values():
            if outcome.pop.uid == uid and outcome.HasField("bind"):
                return outcome.bind.node_name
        return ""

    def due(self, key: str) -> list[scheduler_pb2.Outcome]:
        """Return the outcome that is due with a CYCLE action; none for the end of a cycle only."""
        outcome = self._waiting.pop(key, None)
        return [] if outcome is None else [outcome]

    def _plan(self, at_ns: int) -> str:
        self._count += 1
        key = str(self._count)
        self._timeline.plan(at_ns, ActionKind.CYCLE, key)
        return key
