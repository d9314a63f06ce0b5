"""Carries out the scheduler's outcomes, and reports to it which of them were refused.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, handleSchedulingFailure, bindingCycle;
pkg/registry/core/pod/strategy.go, CheckGracefulDelete (a victim whose binding is under way has no
node yet, and is removed at once).
"""

from __future__ import annotations

from collections.abc import Iterable

from replay.world.api.conditions import set_pod_condition
from replay.world.api.pod_record import PodRecord
from replay.world.journal import AttemptFailure, Mistake, Refusal
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.loop.claim_writer import ClaimWriter
from replay.world.loop.device_readiness import DeviceReadiness
from replay.world.loop.preemptions import PreemptionExecutor
from replay.world.loop.refusals import RefusalRules, at_decision, decided_twice
from replay.world.loop.rounds import InvalidOutcomes
from replay.world.loop.scheduling_costs import SchedulingCosts
from replay.world.state import WorldState
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.bindings import binding_failure
from services.kube.devices import BINDING_TIMEOUT

_LATE_NOTE = (
    "bindings failed, as devices were not ready within 10 minutes (--model device-ready-delay); "
    "the second wait of a pod is not followed to its end"
)


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
        self.devices = DeviceReadiness(state)
        self._rules = RefusalRules(
            state.cluster,
            lambda uid: costs.node_of_binding(uid) or self.devices.node_of_binding(uid),
        )
        self.preemptions = PreemptionExecutor(state, lifecycle, self._rules)
        self._claims = ClaimWriter(state.cluster)
        self._mistake: Mistake | None = None
        self.last_refusal = ""
        self._invalid = {}

    def keep_violations(self, invalid: InvalidOutcomes) -> None:
        """Keep the violations of outcomes that will be applied."""
        for pop, violations in invalid.items():
            self._invalid[pop] = tuple((cause, message) for cause, message in violations)

    def _take_violations(self, outcome: scheduler_pb2.Outcome) -> tuple[tuple[str, str], ...]:
        """Return the violations of an outcome, which are not needed any more."""
        pop = (outcome.pop.uid, outcome.pop.cycle)
        return self._invalid.pop(pop, ()) if self._invalid else ()

    def apply(
        self, now_ns: int, outcomes: Iterable[scheduler_pb2.Outcome], mistake: Mistake | None = None
    ) -> list[scheduler_pb2.Answer]:
        """Carry out outcomes in their order; return an answer to each, except refusals of pods.

        A preemption that takes time is answered when it is carried out (`preemption_due`).

        `mistake` is that of outcomes which were decided at an earlier time (`mistake_of`), None for
        those of a response that has just arrived.
        """
        self._mistake = mistake
        answers: list[scheduler_pb2.Answer] = []
        decided: set[tuple[str, int]] = set()
        for outcome in outcomes:
            if outcome.HasField("refusals"):
                self._refusals(now_ns, outcome.refusals)
                continue
            answer = scheduler_pb2.Answer(pop=outcome.pop)
            pop = outcome.pop.uid, outcome.pop.cycle
            repeated = decided_twice(outcome) if pop in decided else None
            decided.add(pop)
            match outcome.WhichOneof("decision"):
                case "bind":
                    if not self._bind(now_ns, outcome, answer, repeated):
                        continue
                case "unschedulable":
                    if not self._unschedulable(now_ns, outcome, answer, repeated):
                        continue
                case "failure":
                    self._failure(now_ns, outcome, repeated)
            answers.append(answer)
            if answer.refused:
                self.last_refusal = f"; the last refusal: {answer.message}"
        self._journal.flush()
        return answers

    def expect(self, now_ns: int, expectations: Iterable[scheduler_pb2.Expectation]) -> None:
        """Nominate pods to the nodes on which they wait for their binding."""
        for expectation in expectations:
            pod = self._cluster.pods.get(expectation.pod.uid)
            if pod is not None and not pod.node_name and not pod.is_terminal:
                self._expect(now_ns, pod, expectation.node_name)

    def _expect(self, now_ns: int, pod: PodRecord, node_name: str) -> None:
        """Nominate a pod to a node, unless it is.

        Source: kubernetes v1.36 pkg/scheduler/schedule_one.go, bindingCycle
        (NominatedNodeNameForExpectation).
        """
        status = pod.message.status
        if status.nominated_node_name != node_name:
            self._journal.expected(now_ns, pod.object_ref(), node_name)
            ended, status.nominated_node_name = bool(status.nominated_node_name), node_name
            self._cluster.status_changed(now_ns, pod, nomination_ended=ended)

    def preemption_due(self, now_ns: int, key: str) -> list[scheduler_pb2.Answer]:
        """Carry out the preemption that is due with a PREEMPTION action; return its answer.

        Returns none where the scheduler that decided it is gone.
        """
        answer = self.preemptions.due(now_ns, key)
        answers = [] if answer is None else [answer]
        self._journal.flush()
        return answers

    def device_wait_ended(self, now_ns: int, uid: str) -> list[scheduler_pb2.Answer]:
        """Bind a pod whose devices are ready, or refuse that as PreBind does; return the answer.

        Returns none where the scheduler that decided it is gone.
        """
        wait = self.devices.ended(now_ns, uid)
        if wait is None:
            return []
        self._mistake = Mistake.NONE
        outcome, refusal = wait.outcome, None if wait.is_ready else Refusal(BINDING_TIMEOUT)
        answer = scheduler_pb2.Answer(pop=outcome.pop)
        self._bind(now_ns, outcome, answer, refusal, has_waited=True)
        pod = self._cluster.pods.get(uid)
        if refusal is not None and pod is not None:
            self._claims.unreserved(now_ns, pod)
            message = binding_failure(refusal.message)
            failure = AttemptFailure(outcome.attempts, "SchedulerError", message)
            self._write_failure(now_ns, pod, failure, "")
            self._journal.note("devices-late", _LATE_NOTE)
        self._journal.flush()
        return [answer]

    def mistake_of(self, outcome: scheduler_pb2.Outcome) -> Mistake:
        """Return the mistake of an outcome that is to be carried out later."""
        return self._rules.mistake(outcome)

    def _bind(
        self,
        now_ns: int,
        outcome: scheduler_pb2.Outcome,
        answer: scheduler_pb2.Answer,
        repeated: Refusal | None,
        *,
        has_waited: bool = False,
    ) -> bool:
        """Carry out a binding; return whether its answer is complete.

        has_waited: its claims were written before, and their devices are ready.
        """
        refusal = repeated or at_decision(self._rules.binding(outcome), self._mistake)
        pod = self._cluster.pods.get(outcome.pop.uid)
        if refusal is None and pod is not None and not has_waited:
            if outcome.bind.HasField("claims"):
                self._claims.bound(now_ns, pod, outcome.bind.claims)
            if self.devices.holds(now_ns, pod, outcome):
                self._expect(now_ns, pod, outcome.bind.node_name)
                return False
        violations = self._take_violations(outcome)
        waited_ns = 0 if pod is None else pod.waited_ns(now_ns)
        if refusal is None and pod is not None:
            self._cluster.bind(now_ns, pod, outcome.bind.node_name)
            self._journal.scheduled(now_ns, pod.object_ref(), outcome, waited_ns=waited_ns)
            pod.placed = not violations
            if violations:
                self._journal.invalid(now_ns, pod, pod.node_name, violations)
            self._lifecycle.bound(now_ns, pod)
            return True
        assert refusal is not None  # noqa: S101 - the rules refuse an unknown pod
        answer.refused = scheduler_pb2.REFUSAL_STAGE_BIND
        answer.message = refusal.message
        if pod is None:
            self._cluster.assumed_pod_gone()
        if pod is not None or refusal.cause:
            ref = self.preemptions.named(outcome.pop.uid)
            self._journal.scheduled(now_ns, ref, outcome, waited_ns=waited_ns, refusal=refusal)
        return True

    def _refusals(self, now_ns: int, refusals: scheduler_pb2.Refusals) -> None:
        reasons = [(verdict.message, _nominated(verdict)) for verdict in refusals.verdicts]
        requeues = (None, *refusals.requeues)
        numbers = refusals.requeue_numbers or [0] * len(refusals.uids)
        attempted = zip(
            refusals.uids, refusals.attempts, refusals.verdict_indexes, numbers, strict=True
        )
        for uid, attempts, place, number in attempted:
            message, nominated = reasons[place]
            failure = AttemptFailure(attempts, "Unschedulable", message, requeues[number])
            self._attempt_failed(now_ns, uid, failure, nominated)

    def _unschedulable(
        self,
        now_ns: int,
        outcome: scheduler_pb2.Outcome,
        answer: scheduler_pb2.Answer,
        repeated: Refusal | None,
    ) -> bool:
        """Carry out a refusal; return whether its answer is complete."""
        verdict, uid = outcome.unschedulable, outcome.pop.uid
        failure = _failure_of(outcome, "Unschedulable", verdict.message)
        refusal = self._attempt_failed(now_ns, uid, failure, _nominated(verdict), repeated)
        if refusal is None and verdict.HasField("freed_claims"):
            self._claims.freed(now_ns, verdict.freed_claims)
        if not verdict.HasField("preemption"):
            return True
        violations = self._take_violations(outcome)
        if refusal is None:
            pod = self._cluster.pods[uid]
            if violations:
                node_name = verdict.preemption.node_name
                self._journal.invalid(now_ns, pod, node_name, violations, is_preemption=True)
            return self.preemptions.begin(now_ns, pod, outcome, answer, self._mistake)
        answer.refused = scheduler_pb2.REFUSAL_STAGE_NOMINATE
        answer.message = refusal.message
        return True

    def _failure(
        self, now_ns: int, outcome: scheduler_pb2.Outcome, repeated: Refusal | None
    ) -> None:
        failure = _failure_of(outcome, "SchedulerError", outcome.failure.message)
        nominated = _nominated(outcome.failure)
        self._attempt_failed(now_ns, outcome.pop.uid, failure, nominated, repeated)

    def _attempt_failed(
        self,
        now_ns: int,
        uid: str,
        failure: AttemptFailure,
        nominated: str | None,
        repeated: Refusal | None = None,
    ) -> Refusal | None:
        """Record a failed attempt; return why its status is not written, if it is not."""
        refusal = repeated or at_decision(self._rules.attempt(uid), self._mistake)
        if refusal is None:
            pod = self._cluster.pods[uid]
            self._cluster.tried_now(pod)
            self._journal.failed(now_ns, pod, failure)
            self._write_failure(now_ns, pod, failure, nominated)
        elif refusal.cause:
            self._journal.attempt_refused(now_ns, self.preemptions.named(uid), failure, refusal)
        return refusal

    def _write_failure(
        self, now_ns: int, pod: PodRecord, failure: AttemptFailure, nominated: str | None
    ) -> None:
        """Patch a pod's status after a failed attempt or binding, where it differs."""
        status = pod.message.status
        changed = set_pod_condition(
            status, "PodScheduled", "False", now_ns, failure.reason, failure.message
        )
        ended = False
        if nominated is not None and status.nominated_node_name != nominated:
            ended = bool(status.nominated_node_name)
            if not nominated:
                self._journal.nominated(now_ns, pod.object_ref(), None)
            status.nominated_node_name = nominated
            changed = True
        if changed:
            self._cluster.status_changed(now_ns, pod, nomination_ended=ended)


def _failure_of(outcome: scheduler_pb2.Outcome, reason: str, message: str) -> AttemptFailure:
    requeue = outcome.requeue if outcome.HasField("requeue") else None
    return AttemptFailure(outcome.attempts, reason, message, requeue)


def _nominated(verdict: scheduler_pb2.Unschedulable | scheduler_pb2.Failure) -> str | None:
    """Return status.nominatedNodeName to write: "" clears it, None leaves it as it is."""
    return verdict.nominated_node_name if verdict.WhichOneof("nomination") else None
