"""Carries out preemptions: clears the nominations of others and deletes the victims.

Where no time passes between a decision and its calls to the API server, a preemption is carried out
with its outcome. With the model `preemption_delay_ns` the calls arrive that much later, as those of
upstream's background deletions do, and only then is the outcome answered: until the answer the
scheduler keeps the preemptor out of activeQ. Meanwhile the victims run, nobody has noticed them,
and other pods may take the room. A preemption goes on where its preemptor has gone, since upstream
does not follow the preemptor while it deletes.

Source: kubernetes v1.36 pkg/scheduler/framework/preemption/executor.go, prepareCandidateAsync;
v1.34 framework/preemption/preemption.go, prepareCandidate, prepareCandidateAsync.
"""

from __future__ import annotations

from dataclasses import dataclass

from replay.world.api.conditions import mark_disrupted
from replay.world.api.pod_record import PodRecord, object_ref
from replay.world.journal import Mistake, Refusal
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.loop.refusals import RefusalRules, at_decision
from replay.world.state import WorldState
from replay.world.timeline import ActionKind
from reprieve.kube.v1beta1 import meta_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from services.kube.pod import DEFAULT_SCHEDULER

_PREEMPTING = "preempting to accommodate a higher priority pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedPreemption:
    """A preemption as it was decided; `by` is the preemptor, which may be gone by then."""

    pop: session_pb2.PopId
    preemption: scheduler_pb2.Preemption
    by: meta_pb2.ObjectReference
    scheduler_name: str


class PreemptionExecutor:
    """The API server's side of preemptions; those under way are kept by the key of their action."""

    _under_way: dict[str, DecidedPreemption]
    _count: int

    def __init__(self, state: WorldState, lifecycle: PodLifecycle, rules: RefusalRules) -> None:
        self._cluster = state.cluster
        self._journal = state.journal
        self._timeline = state.timeline
        self._lifecycle = lifecycle
        self._rules = rules
        self._delay_ns = state.models.preemption_delay_ns
        self._under_way = {}
        self._count = 0

    def begin(
        self,
        now_ns: int,
        pod: PodRecord,
        outcome: scheduler_pb2.Outcome,
        answer: scheduler_pb2.Answer,
        mistake: Mistake | None,
    ) -> bool:
        """Carry out the preemption of an outcome, or plan it.

        Return whether it has been carried out, and `answer` says what was refused of it.
        `mistake` is that of an outcome which was decided at an earlier time, None for others.
        """
        preemption = outcome.unschedulable.preemption
        victims = (self.named(victim.pod.uid, victim.pod) for victim in preemption.victims)
        self._journal.nominated(now_ns, pod.object_ref(), preemption, victims)
        decided = DecidedPreemption(
            pop=outcome.pop,
            preemption=preemption,
            by=pod.object_ref(),
            scheduler_name=pod.message.spec.scheduler_name or DEFAULT_SCHEDULER,
        )
        refused = self._first_refused(preemption, mistake)
        if refused is not None or not self._delay_ns or not self._has_calls(preemption):
            self._carry_out(now_ns, decided, refused, answer)
            return True
        self._count += 1
        key = str(self._count)
        self._under_way[key] = decided
        self._timeline.plan(now_ns + self._delay_ns, ActionKind.PREEMPTION, key)
        return False

    def forget(self) -> None:
        """Forget the preemptions under way: the scheduler that makes their calls is gone."""
        self._under_way.clear()

    def due(self, now_ns: int, key: str) -> scheduler_pb2.Answer | None:
        """Carry out the preemption that is due with a PREEMPTION action; return its answer.

        Returns None for one that has been forgotten.

        A victim that has gone meanwhile counts as deleted. (A victim is known by its UID here;
        upstream would delete a new pod of its name.)
        """
        decided = self._under_way.pop(key, None)
        if decided is None:
            return None
        answer = scheduler_pb2.Answer(pop=decided.pop)
        self._carry_out(now_ns, decided, None, answer)
        return answer

    def named(
        self, uid: str, named: meta_pb2.ObjectReference | None = None
    ) -> meta_pb2.ObjectReference:
        """Return a pod's reference for the log; `named` is used for a pod that was removed."""
        pod = self._cluster.pods.get(uid)
        if pod is not None:
            return pod.object_ref()
        return object_ref("Pod", named or meta_pb2.ObjectReference(uid=uid))

    def _has_calls(self, preemption: scheduler_pb2.Preemption) -> bool:
        """Return whether there is a victim to delete; without one upstream starts nothing."""
        victims = (self._cluster.pods.get(victim.pod.uid) for victim in preemption.victims)
        return any(victim is None or not victim.is_terminating for victim in victims)

    def _first_refused(
        self, preemption: scheduler_pb2.Preemption, mistake: Mistake | None
    ) -> tuple[int, Refusal] | None:
        """Return the first victim whose deletion is refused, by its place, with the reason."""
        for place, victim in enumerate(preemption.victims):
            refusal = self._rules.deletion(victim.pod.uid, preemption.node_name)
            refusal = at_decision(refusal, mistake)
            if refusal is not None and refusal.cause:
                return place, refusal
        return None

    def _carry_out(
        self,
        now_ns: int,
        decided: DecidedPreemption,
        refused: tuple[int, Refusal] | None,
        answer: scheduler_pb2.Answer,
    ) -> None:
        if decided.preemption.clears_last:
            self._delete_victims(now_ns, decided, refused, answer)
        for ref in decided.preemption.cleared_nominations:
            self._clear_nomination(now_ns, ref)
        if not decided.preemption.clears_last:
            self._delete_victims(now_ns, decided, refused, answer)

    def _clear_nomination(self, now_ns: int, ref: meta_pb2.ObjectReference) -> None:
        other = self._cluster.pods.get(ref.uid)
        if other is not None and other.message.status.nominated_node_name:
            other.message.status.nominated_node_name = ""
            self._journal.nominated(now_ns, other.object_ref(), None)
            self._cluster.status_changed(now_ns, other, nomination_ended=True)

    def _delete_victims(
        self,
        now_ns: int,
        decided: DecidedPreemption,
        refused: tuple[int, Refusal] | None,
        answer: scheduler_pb2.Answer,
    ) -> None:
        """Delete victims that exist, in order, up to one whose deletion is refused."""
        victims = decided.preemption.victims
        for victim in victims if refused is None else victims[: refused[0]]:
            pod = self._cluster.pods.get(victim.pod.uid)
            if pod is not None:
                self._delete_victim(now_ns, pod, decided)
        if refused is None:
            return
        place, refusal = refused
        spared, node_name = victims[place].pod, decided.preemption.node_name
        ref = self.named(spared.uid, spared)
        self._journal.deletion_refused(now_ns, ref, decided.by, node_name, refusal)
        answer.refused = scheduler_pb2.REFUSAL_STAGE_DELETE_VICTIM
        answer.message = refusal.message
        answer.victim.CopyFrom(spared)

    def _delete_victim(self, now_ns: int, victim: PodRecord, decided: DecidedPreemption) -> None:
        """Mark and delete a victim, unless it is terminating already."""
        if victim.is_terminating:
            return
        why = f"{decided.scheduler_name}: {_PREEMPTING}"
        mark_disrupted(victim.message.status, now_ns, "PreemptionByScheduler", why)
        violates = self._cluster.preempted(victim)
        self._journal.preempted(now_ns, victim, decided.by, violates=violates)
        self._lifecycle.delete(now_ns, victim, None, "preempted")
