"""What happened, in order: the decision log's entries, and notes that the summary shows.

An entry is a function of (trace, configuration, seed, version) only: it holds virtual time and a
number, never a wall-clock value, and nothing of what was sent to the scheduler when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from replay.world.api.pod_record import PodRecord, object_ref
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.kube.v1beta1 import meta_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2

Sink = Callable[[trace_pb2.Decision], None]


class FailedAttempt(NamedTuple):
    """An attempt that bound nothing: what its decision holds."""

    at_ns: int
    sequence: int
    pod: meta_pb2.ObjectReference
    message: str
    attempts: int
    reason: str

    def decision(self) -> trace_pb2.Decision:
        """Return the decision."""
        entry = trace_pb2.Decision(at_ns=self.at_ns, sequence=self.sequence)
        entry.observed.object.CopyFrom(self.pod)
        failed = entry.observed.failed_scheduling
        failed.message, failed.attempts, failed.reason = self.message, self.attempts, self.reason
        return entry


FailedSink = Callable[[Sequence[FailedAttempt]], None]


class Journal:
    """Numbers what happens and hands it to `sink`.

    Failed attempts go to `failed`, many at a time; None has their decisions go to `sink`, too.
    """

    def __init__(self, sink: Sink, failed: FailedSink | None = None) -> None:
        self._sink = sink
        self._failed_sink = failed or self._sink_each
        self._failed: list[FailedAttempt] = []
        self._sequence = 0
        self.notes: Counter[tuple[str, str]] = Counter()

    def note(self, kind: str, text: str) -> None:
        """Count something that people should know and no decision depends on."""
        self.notes[kind, text] += 1

    def scheduled(
        self, now_ns: int, pod: PodRecord, outcome: scheduler_pb2.Outcome, refused: str = ""
    ) -> None:
        """Enter a binding, or one that was refused."""
        bind = outcome.bind
        entry = self._entry(now_ns, pod.object_ref(), refused)
        scheduled = entry.observed.scheduled
        scheduled.node_name = bind.node_name
        scheduled.attempts = outcome.attempts
        scheduled.waited_ns = now_ns - outcome.first_enqueued_ns
        scheduled.feasible_nodes = bind.feasible_nodes
        scheduled.tied_nodes = bind.tied_nodes
        if bind.HasField("score"):
            scheduled.score = bind.score
        self._sink(entry)

    def failed(self, now_ns: int, pod: PodRecord, attempts: int, reason: str, message: str) -> None:
        """Enter an attempt that bound nothing; it is handed on by the next entry or `flush`."""
        self._sequence += 1
        self._failed.append(
            FailedAttempt(now_ns, self._sequence, pod.object_ref(), message, attempts, reason)
        )

    def flush(self) -> None:
        """Hand on the failed attempts that were entered last."""
        if self._failed:
            failed, self._failed = self._failed, []
            self._failed_sink(failed)

    def _sink_each(self, failed: Iterable[FailedAttempt]) -> None:
        for each in failed:
            self._sink(each.decision())

    def nominated(
        self,
        now_ns: int,
        pod: PodRecord,
        preemption: scheduler_pb2.Preemption | None,
        refused: str = "",
    ) -> None:
        """Enter a nomination with its victims, or (None) that it was cleared."""
        entry = self._entry(now_ns, pod.object_ref(), refused)
        nominated = entry.observed.nominated
        nominated.SetInParent()
        if preemption is not None:
            nominated.node_name = preemption.node_name
            nominated.decided_by = preemption.decided_by
            nominated.candidates = preemption.candidates
            nominated.budget_violations = preemption.budget_violations
            nominated.victims.extend(object_ref("Pod", each.pod) for each in preemption.victims)
        self._sink(entry)

    def preempted(self, now_ns: int, victim: PodRecord, by: PodRecord, *, violates: bool) -> None:
        """Enter a victim's lot."""
        entry = self._entry(now_ns, victim.object_ref())
        entry.observed.preempted.by.CopyFrom(by.object_ref())
        entry.observed.preempted.node_name = victim.node_name
        entry.observed.preempted.violates_budget = violates
        self._sink(entry)

    def evicted(
        self,
        now_ns: int,
        pod: PodRecord,
        eviction: eviction_pb2.Eviction,
        ranking: Sequence[eviction_pb2.RankedPod],
    ) -> None:
        """Enter a kubelet's eviction, with the head of the ranking that it followed from."""
        entry = self._entry(now_ns, pod.object_ref())
        evicted = entry.observed.evicted
        evicted.node_name = pod.node_name
        evicted.signal, evicted.threshold = eviction.signal, eviction.threshold
        evicted.message = eviction.message
        if eviction.HasField("grace_period_override_seconds"):
            evicted.grace_period_seconds = eviction.grace_period_override_seconds
        if eviction.HasField("available"):
            evicted.available, evicted.capacity = eviction.available, eviction.capacity
        evicted.rank, evicted.ranked_pods = eviction.rank, eviction.ranked_pods
        if eviction.signal:
            evicted.ranking.extend(map(_ranked, ranking))
        self._sink(entry)

    def made(
        self, now_ns: int, pod: meta_pb2.ObjectReference, owner: meta_pb2.ObjectReference, born: int
    ) -> None:
        """Enter a pod that a controller has made, its number `born` of them, from 0."""
        entry = self._entry(now_ns, pod)
        entry.observed.made.owner.CopyFrom(owner)
        entry.observed.made.ordinal = born
        self._sink(entry)

    def started(self, now_ns: int, pod: PodRecord) -> None:
        """Enter that a pod runs."""
        entry = self._entry(now_ns, pod.object_ref())
        entry.observed.started.node_name = pod.node_name
        self._sink(entry)

    def finished(self, now_ns: int, pod: PodRecord) -> None:
        """Enter that a pod has ended."""
        entry = self._entry(now_ns, pod.object_ref())
        entry.observed.finished.phase = pod.message.status.phase
        entry.observed.finished.reason = pod.message.status.reason
        self._sink(entry)

    def removed(self, now_ns: int, pod: PodRecord) -> None:
        """Enter that a pod is no more."""
        entry = self._entry(now_ns, pod.object_ref())
        entry.observed.removed.cause = pod.removal or "finished"
        self._sink(entry)

    def condition_changed(self, now_ns: int, node_name: str, type_: str, value: str) -> None:
        """Enter that a node's condition came or went."""
        node = meta_pb2.ObjectReference(kind="Node", name=node_name)
        entry = self._entry(now_ns, node)
        entry.observed.condition_changed.type = type_
        entry.observed.condition_changed.status = value
        self._sink(entry)

    def _entry(
        self, now_ns: int, ref: meta_pb2.ObjectReference, refused: str = ""
    ) -> trace_pb2.Decision:
        self.flush()
        self._sequence += 1
        entry = trace_pb2.Decision(at_ns=now_ns, sequence=self._sequence, refused=refused)
        entry.observed.object.CopyFrom(ref)
        return entry


def _ranked(place: eviction_pb2.RankedPod) -> eviction_pb2.RankedPod:
    ranked = eviction_pb2.RankedPod()
    ranked.CopyFrom(place)
    ranked.pod.kind = "Pod"
    return ranked
