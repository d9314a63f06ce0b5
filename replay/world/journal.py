"""The decision log's entries, in order, objects of no service, and the notes of the summary.

An entry is a function of (trace, configuration, seed, version) only: it holds virtual time and its
number, never wall time, and nothing about when events were sent to the scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from replay.trace.criteria import criterion_in_logs
from replay.world.api.pod_record import PodRecord
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.kube.v1beta1 import meta_pb2, object_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS

DecisionSink = Callable[[trace_pb2.Decision], None]


class AttemptFailure(NamedTuple):
    """Why an attempt bound nothing, and what had moved its pod since the attempt before.

    attempts: its number. requeue: None for a first attempt, or where the scheduler does not say it.
    """

    attempts: int
    reason: str
    message: str
    requeue: session_pb2.Requeue | None = None

    def write(self, entry: trace_pb2.FailedScheduling) -> None:
        """Write it into an empty entry of the log."""
        entry.message, entry.attempts, entry.reason = self.message, self.attempts, self.reason
        if self.requeue is not None:
            entry.requeue.CopyFrom(self.requeue)


class FailedAttempt(NamedTuple):
    """A scheduling attempt that bound nothing: the fields of its decision."""

    at_ns: int
    sequence: int
    pod: meta_pb2.ObjectReference
    failure: AttemptFailure

    def decision(self) -> trace_pb2.Decision:
        """Return it as an entry of the log."""
        entry = trace_pb2.Decision(time_ns=self.at_ns, sequence=self.sequence)
        entry.observed.object.CopyFrom(self.pod)
        self.failure.write(entry.observed.failed_scheduling)
        return entry


class Mistake(StrEnum):
    """The mistake of a scheduler for which a decision is refused, as the log names it.

    NONE: something had changed that the scheduler had not been sent.
    """

    NONE = ""
    UNKNOWN_POD = "unknown pod"
    UNKNOWN_NODE = "unknown node"
    ASSIGNED_POD = "assigned pod"
    TERMINATING_POD = "terminating pod"
    GATED_POD = "gated pod"
    DECIDED_TWICE = "decided twice"
    VICTIM_ELSEWHERE = "victim elsewhere"
    UNKNOWN_VICTIM = "unknown victim"
    UNKNOWN_CLAIM = "unknown claim"


class Refusal(NamedTuple):
    """The refusal of a decision: the API server's message, and the scheduler's mistake."""

    message: str
    cause: Mistake = Mistake.NONE


CARRIED_OUT = Refusal("")
FailedAttemptSink = Callable[[Sequence[FailedAttempt]], None]
ObjectSink = Callable[[scheduler_pb2.Event], None]
"""Receives the changes of objects that no service reads in full, such as Deployments."""


class Journal:
    """Numbers the entries of the log and passes them to `sink` (`RunRecorder.decided` in a replay).

    Failed attempts go to `failed`, many at a time; where it is None, each goes to `sink`, too.
    Changes of objects go to `objects`, if there is one; they are not entries of the log.
    `eviction_not_judged` is why no eviction could be decided, "" if one could.
    """

    _failed: list[FailedAttempt]
    _sequence: int
    notes: Counter[tuple[str, str]]
    eviction_not_judged: str

    def __init__(
        self,
        sink: DecisionSink,
        failed: FailedAttemptSink | None = None,
        objects: ObjectSink | None = None,
    ) -> None:
        self._sink = sink
        self._objects = objects
        self._failed_sink = failed or self._sink_each
        self._failed = []
        self._sequence = 0
        self.notes = Counter()
        self.eviction_not_judged = ""

    def note(self, kind: str, text: str) -> None:
        """Count a note for the summary, on which no decision depends."""
        self.notes[kind, text] += 1

    def object_put(
        self, now_ns: int, message: object_pb2.KubernetesObject, *, is_new: bool
    ) -> None:
        """Pass on an object that was added or replaced."""
        if self._objects is not None:
            event = scheduler_pb2.Event(time_ns=now_ns)
            (event.add if is_new else event.update).CopyFrom(message)
            self._objects(event)

    def object_removed(self, now_ns: int, ref: meta_pb2.ObjectReference) -> None:
        """Pass on an object's removal."""
        if self._objects is not None:
            self._objects(scheduler_pb2.Event(time_ns=now_ns, remove=ref))

    def scheduled(
        self,
        now_ns: int,
        pod: meta_pb2.ObjectReference,
        outcome: scheduler_pb2.Outcome,
        *,
        waited_ns: int = 0,
        refusal: Refusal = CARRIED_OUT,
    ) -> None:
        """Record a binding that was applied or refused.

        Attempts, nodes and score are the scheduler's word, as in every other entry.
        """
        bind = outcome.bind
        entry = self._entry(now_ns, pod, refusal)
        scheduled = entry.observed.scheduled
        scheduled.node_name = bind.node_name
        scheduled.attempts = outcome.attempts
        scheduled.waited_duration_ns = waited_ns
        if bind.feasible_nodes:
            scheduled.feasible_nodes = bind.feasible_nodes
        if bind.tied_nodes:
            scheduled.tied_nodes = bind.tied_nodes
        if bind.HasField("score"):
            scheduled.score = bind.score
        scheduled.took_duration_ns = now_ns - outcome.time_ns
        if outcome.HasField("requeue"):
            scheduled.requeue.CopyFrom(outcome.requeue)
        self._sink(entry)

    def failed(self, now_ns: int, pod: PodRecord, failure: AttemptFailure) -> None:
        """Record an attempt that bound nothing; the next entry or `flush` passes it on."""
        self._sequence += 1
        self._failed.append(FailedAttempt(now_ns, self._sequence, pod.object_ref(), failure))

    def attempt_refused(
        self, now_ns: int, pod: meta_pb2.ObjectReference, failure: AttemptFailure, refusal: Refusal
    ) -> None:
        """Record a failed attempt that could not be written to the pod's status."""
        entry = self._entry(now_ns, pod, refusal)
        failure.write(entry.observed.failed_scheduling)
        self._sink(entry)

    def flush(self) -> None:
        """Pass on the failed attempts since the last entry."""
        if self._failed:
            failed, self._failed = self._failed, []
            self._failed_sink(failed)

    def _sink_each(self, failed: Iterable[FailedAttempt]) -> None:
        for attempt in failed:
            self._sink(attempt.decision())

    def nominated(
        self,
        now_ns: int,
        pod: meta_pb2.ObjectReference,
        preemption: scheduler_pb2.Preemption | None,
        victims: Iterable[meta_pb2.ObjectReference] = (),
    ) -> None:
        """Record a nomination with its victims; `preemption` None: it was cleared.

        The criterion, the candidates and the number of violated budgets are the scheduler's word.
        """
        entry = self._entry(now_ns, pod)
        nominated = entry.observed.nominated
        nominated.SetInParent()
        if preemption is not None:
            nominated.node_name = preemption.node_name
            nominated.decided_by = criterion_in_logs(preemption.decided_by)
            if preemption.candidates:
                nominated.candidates = preemption.candidates
            nominated.budget_violations = preemption.budget_violations
            nominated.victims.extend(victims)
        self._sink(entry)

    def expected(self, now_ns: int, pod: meta_pb2.ObjectReference, node_name: str) -> None:
        """Record that a pod was nominated to the node on which it waits for its binding."""
        entry = self._entry(now_ns, pod)
        entry.observed.nominated.node_name = node_name
        entry.observed.nominated.expected = True
        self._sink(entry)

    def preempted(
        self, now_ns: int, victim: PodRecord, by: meta_pb2.ObjectReference, *, violates: bool
    ) -> None:
        """Record the deletion of a victim; `violates`: its budget did not allow it."""
        entry = self._preempted(now_ns, victim.object_ref(), by, victim.node_name, CARRIED_OUT)
        entry.observed.preempted.violates_budget = violates
        self._sink(entry)

    def deletion_refused(
        self,
        now_ns: int,
        victim: meta_pb2.ObjectReference,
        by: meta_pb2.ObjectReference,
        node_name: str,
        refusal: Refusal,
    ) -> None:
        """Record that a victim was not deleted; `node_name` is that of the preemption."""
        self._sink(self._preempted(now_ns, victim, by, node_name, refusal))

    def _preempted(
        self,
        now_ns: int,
        victim: meta_pb2.ObjectReference,
        by: meta_pb2.ObjectReference,
        node_name: str,
        refusal: Refusal,
    ) -> trace_pb2.Decision:
        entry = self._entry(now_ns, victim, refusal)
        entry.observed.preempted.by.CopyFrom(by)
        entry.observed.preempted.node_name = node_name
        return entry

    def evicted(
        self,
        now_ns: int,
        pod: PodRecord,
        eviction: eviction_pb2.Eviction,
        ranking: Sequence[eviction_pb2.RankedPod],
    ) -> None:
        """Record a kubelet's eviction, with the first pods of its ranking."""
        entry = self._entry(now_ns, pod.object_ref())
        evicted = entry.observed.evicted
        evicted.node_name = pod.node_name
        evicted.signal, evicted.threshold = eviction.signal, eviction.threshold
        evicted.message = eviction.message
        if eviction.HasField("grace_period_override_duration_ns"):
            grace_ns = eviction.grace_period_override_duration_ns
            evicted.grace_period_seconds = grace_ns // SECOND_NS
        if eviction.HasField("available"):
            evicted.available, evicted.capacity = eviction.available, eviction.capacity
        evicted.ranked_pods = eviction.ranked_pods
        if eviction.HasField("rank"):
            evicted.rank = eviction.rank
        if eviction.signal:
            evicted.ranking.extend(map(_ranked, ranking))
        self._sink(entry)

    def oom_killed(self, now_ns: int, pod: PodRecord, killed: trace_pb2.OomKilled) -> None:
        """Record that the kernel killed a container; `killed` names it and the limit."""
        entry = self._entry(now_ns, pod.object_ref())
        entry.observed.oom_killed.CopyFrom(killed)
        self._sink(entry)

    def made(
        self,
        now_ns: int,
        pod: meta_pb2.ObjectReference,
        owner: meta_pb2.ObjectReference,
        ordinal: int,
    ) -> None:
        """Record a pod that a controller has made, the owner's pod `ordinal`, from 0."""
        entry = self._entry(now_ns, pod)
        entry.observed.created.owner.CopyFrom(owner)
        entry.observed.created.ordinal = ordinal
        self._sink(entry)

    def refused(
        self,
        now_ns: int,
        pod: meta_pb2.ObjectReference,
        message: str,
        *,
        owner: meta_pb2.ObjectReference | None = None,
        pods: int = 1,
    ) -> None:
        """Record a pod that admission refused, and how many pods were not created for it.

        `owner` is the controller that requested it, None if the trace did.
        """
        entry = self._entry(now_ns, pod)
        entry.observed.refused.message, entry.observed.refused.pods = message, pods
        if owner is not None:
            entry.observed.refused.owner.CopyFrom(owner)
        self._sink(entry)

    def invalid(
        self,
        now_ns: int,
        pod: PodRecord,
        node_name: str,
        violations: Iterable[tuple[str, str]],
        *,
        found_by: str = "audit",
        is_preemption: bool = False,
    ) -> None:
        """Record that a scheduler's decision breaks rules: causes, each with a message."""
        entry = self._entry(now_ns, pod.object_ref())
        observed = entry.observed
        invalid = observed.invalid_preemption if is_preemption else observed.invalid_placement
        invalid.node_name, invalid.found_by = node_name, found_by
        for cause, message in violations:
            invalid.violations.add(cause=cause, message=message)
        self._sink(entry)

    def rejected(self, now_ns: int, pod: PodRecord, reason: str, message: str) -> None:
        """Record that a kubelet does not admit a pod."""
        entry = self._entry(now_ns, pod.object_ref())
        rejected = entry.observed.rejected
        rejected.node_name, rejected.reason, rejected.message = pod.node_name, reason, message
        self._sink(entry)

    def started(self, now_ns: int, pod: PodRecord) -> None:
        """Record that a pod's containers run."""
        entry = self._entry(now_ns, pod.object_ref())
        entry.observed.started.node_name = pod.node_name
        self._sink(entry)

    def finished(self, now_ns: int, pod: PodRecord) -> None:
        """Record that a pod has ended, with its phase."""
        entry = self._entry(now_ns, pod.object_ref())
        entry.observed.finished.phase = pod.message.status.phase
        entry.observed.finished.reason = pod.message.status.reason
        self._sink(entry)

    def removed(self, now_ns: int, pod: PodRecord) -> None:
        """Record that a pod was removed from the API server, with the cause."""
        entry = self._entry(now_ns, pod.object_ref())
        entry.observed.removed.cause = pod.removal or "finished"
        self._sink(entry)

    def condition_changed(self, now_ns: int, node_name: str, type_: str, value: str) -> None:
        """Record the new status of a node's condition."""
        node = meta_pb2.ObjectReference(kind="Node", name=node_name)
        entry = self._entry(now_ns, node)
        entry.observed.condition_changed.type = type_
        entry.observed.condition_changed.status = value
        self._sink(entry)

    def node_drain(
        self,
        now_ns: int,
        node_name: str,
        step: str,
        took_ns: int = 0,
        evicted: int = 0,
        message: str = "",
    ) -> None:
        """Record a step of a node's drain, as trace_pb2.NodeDrain has it."""
        entry = self._entry(now_ns, meta_pb2.ObjectReference(kind="Node", name=node_name))
        drain = entry.observed.node_drain
        drain.step, drain.elapsed_duration_ns, drain.evicted, drain.message = (
            step,
            took_ns,
            evicted,
            message,
        )
        self._sink(entry)

    def scaled_up(
        self,
        now_ns: int,
        group: str,
        sizes: tuple[int, int],
        *,
        nodes: Iterable[str] = (),
        pods: Iterable[meta_pb2.ObjectReference] = (),
        refused: str = "",
    ) -> None:
        """Record an increase of a group of nodes, from the first size to the second."""
        ref = meta_pb2.ObjectReference(kind="NodeGroup", name=group)
        entry = self._entry(now_ns, ref, Refusal(refused))
        scaled_up = entry.observed.scaled_up
        scaled_up.from_size, scaled_up.to_size = sizes
        scaled_up.node_names.extend(nodes)
        scaled_up.pods.extend(pods)
        self._sink(entry)

    def node_provisioned(
        self, now_ns: int, node_name: str, group: str, took_ns: int, message: str = ""
    ) -> None:
        """Record a node that was made, or with `message` why it could not be."""
        entry = self._entry(now_ns, meta_pb2.ObjectReference(kind="Node", name=node_name))
        provisioned = entry.observed.node_provisioned
        provisioned.group, provisioned.message = group, message
        provisioned.elapsed_duration_ns = took_ns
        self._sink(entry)

    def node_removal(
        self,
        now_ns: int,
        node_name: str,
        step: str,
        group: str,
        *,
        since_ns: int | None = None,
        pods: Iterable[meta_pb2.ObjectReference] = (),
        message: str = "",
    ) -> None:
        """Record a step of a node's removal, as trace_pb2.NodeRemoval has it."""
        entry = self._entry(now_ns, meta_pb2.ObjectReference(kind="Node", name=node_name))
        removal = entry.observed.node_removal
        removal.step, removal.group, removal.message = step, group, message
        if since_ns is not None:
            removal.unneeded_since_time_ns = since_ns
        removal.pods.extend(pods)
        self._sink(entry)

    def no_scale_up(
        self, now_ns: int, pod: meta_pb2.ObjectReference, message: trace_pb2.NoScaleUp
    ) -> None:
        """Record why no group was scaled up for a pod."""
        entry = self._entry(now_ns, pod)
        entry.observed.no_scale_up.CopyFrom(message)
        self._sink(entry)

    def _entry(
        self, now_ns: int, ref: meta_pb2.ObjectReference, refusal: Refusal = CARRIED_OUT
    ) -> trace_pb2.Decision:
        self.flush()
        self._sequence += 1
        entry = trace_pb2.Decision(
            time_ns=now_ns,
            sequence=self._sequence,
            refused=refusal.message,
            refusal_cause=refusal.cause,
        )
        entry.observed.object.CopyFrom(ref)
        return entry


def _ranked(place: eviction_pb2.RankedPod) -> eviction_pb2.RankedPod:
    ranked = eviction_pb2.RankedPod()
    ranked.CopyFrom(place)
    ranked.pod.kind = "Pod"
    return ranked
