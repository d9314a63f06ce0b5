"""Explains why a decision differs: searches for events that, if unseen, make the decision agree.

A recording has the time at which a decision was written. It does not have the events that the
scheduler had seen by then, nor the order of decisions about pods bound within a second of each
other. A `Visibility` is one assumption about both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from replay.compare.recorded import (
    ClusterView,
    DecisionKind,
    LoggedScores,
    RecordedDecision,
    RecordedEvent,
    RecordedState,
    Recording,
    Visibility,
)
from replay.compare.verdict import compare_decision
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.pod import TERMINAL_PHASES
from services.kube.time import SECOND_NS

WINDOW_NS = SECOND_NS
"""Bindings within this time of a decision are concurrent with it."""
_LATE_MAX = 24
_CONFIRMED = "as many nodes fit there, with the same best score, as logged"
_GREEDY_MAX = 12
LAG_NS = SECOND_NS
"""The scheduler may not have seen changes recorded within this time before a decision."""
_ENDS_MAX = 48


class DifferenceReason(Enum):
    """The reason for a difference, or for an agreement that depends on more than the recording.

    ORDER: concurrent decisions were made in another order. LATE: changes recorded before the
    decision had not been seen yet. CHANGE: a rule differs in the recorded version. MISSING: objects
    on which the decision depended were not recorded. GAP: the decision's state is unknown, so it is
    not compared.
    """

    ORDER = "order of decisions"
    LATE = "events not seen yet"
    CHANGE = "changed in the recorded version"
    MISSING = "missing data"
    GAP = "a gap of the recording"


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceExplanation:
    """Why a decision differs without a difference in the scheduler's rules."""

    reason: DifferenceReason
    text: str


class PodEvaluator(Protocol):
    """A scheduler that evaluates a pod in a given cluster, apart from its session's state."""

    def evaluate_in(self, cluster: ClusterView, at_ns: int) -> scheduler_pb2.Evaluation:
        """Return the evaluation of the cluster's pod."""


class VisibilityExplainer:
    """Searches for a visibility in which a recorded decision agrees with its evaluation."""

    def __init__(self, recording: Recording, state: RecordedState, evaluator: PodEvaluator) -> None:
        self._state = state
        self._events = recording.events
        self._evaluator = evaluator
        self._binds = [
            decision for decision in recording.decisions if decision.kind is DecisionKind.BIND
        ]
        self._came: dict[str, int] = {}
        for place, event in enumerate(recording.events):
            if event.ref.kind == "Pod":
                self._came.setdefault(event.ref.uid, place)

    def explain(
        self, decision: RecordedDecision, decided: dict[str, str]
    ) -> DifferenceExplanation | None:
        """Return the explanation of a difference; None if no visibility explains it.

        `decided` has the nodes of earlier bindings by pod UID. A visibility with the number of
        feasible nodes and the best score of the recording's log is preferred.
        """
        first: DifferenceExplanation | None = None
        for reason, text, visibility in self._visibilities(decision, decided):
            seen = self._seen(decision, visibility)
            if seen is None or not compare_decision(decision, seen[0], seen[1].terminating).agrees:
                continue
            if decision.scored is None:
                return DifferenceExplanation(reason=reason, text=text)
            if _as_logged(decision.scored, seen[0]):
                return DifferenceExplanation(reason=reason, text=f"{text}; {_CONFIRMED}")
            first = first or DifferenceExplanation(reason=reason, text=text)
        return first or self._greedy(decision, decided)

    def agrees(self, decision: RecordedDecision, visibility: Visibility) -> bool:
        """Return whether a decision agrees with its evaluation in a visibility."""
        seen = self._seen(decision, visibility)
        return seen is not None and compare_decision(decision, seen[0], seen[1].terminating).agrees

    def _seen(
        self, decision: RecordedDecision, visibility: Visibility
    ) -> tuple[scheduler_pb2.Evaluation, ClusterView] | None:
        cluster = self._state.cluster(decision.pod.uid, visibility)
        if cluster is None:
            return None
        return self._evaluator.evaluate_in(cluster, decision.at_ns), cluster

    def _visibilities(
        self, decision: RecordedDecision, decided: dict[str, str]
    ) -> Iterator[tuple[DifferenceReason, str, Visibility]]:
        here = decision.position
        near = self._concurrent(decision)
        before = [bind for bind in near if bind.pod.uid in decided]
        after = [bind for bind in near if bind.pod.uid not in decided]
        if near:
            key = self._queue_key(decision)
            first = [bind for bind in after if self._queue_key(bind) < key]
            last = frozenset(e.pod.uid for e in before if self._queue_key(e) > key)
            if first or last:
                text = "agrees where the pods bound within 1 s were decided in the queue's order"
                assumed = {**decided, **{bind.pod.uid: bind.node for bind in first}}
                yield (
                    DifferenceReason.ORDER,
                    text,
                    Visibility(position=here, assumed=assumed, undecided=last),
                )
        until_ns = moment_ns(self._events, decision)
        for count, late in enumerate(self._late(decision), 1):
            text = f"agrees before {named(self._events[late], until_ns)} was seen"
            if count > 1:
                text += f", and {count - 1} later ones"
            yield DifferenceReason.LATE, text, Visibility(position=late, assumed=decided)
        assumed = dict(decided)
        for bind in after[:_GREEDY_MAX]:
            assumed[bind.pod.uid] = bind.node
            text = f"agrees where pods bound after it, up to {bind.pod.name}, were decided before"
            yield DifferenceReason.ORDER, text, Visibility(position=here, assumed=dict(assumed))
        for bind in reversed(before[-_GREEDY_MAX:]):
            text = f"agrees where {bind.pod.name}, bound before it, was decided after"
            undecided = frozenset({bind.pod.uid})
            yield (
                DifferenceReason.ORDER,
                text,
                Visibility(position=here, assumed=decided, undecided=undecided),
            )
        for node, ends in unseen_ends(self._events, decision):
            names = ", ".join(named(self._events[place], until_ns) for place in ends)
            text = f"agrees where on node {node} was not seen yet: {names}"
            yield (
                DifferenceReason.LATE,
                text,
                Visibility(position=here, assumed=decided, unseen=ends),
            )

    def _greedy(
        self, decision: RecordedDecision, decided: dict[str, str]
    ) -> DifferenceExplanation | None:
        """Assume concurrent bindings to the best nodes, repeatedly, until the decision agrees."""
        if decision.kind is not DecisionKind.BIND:
            return None
        near = self._concurrent(decision)
        assumed, taken = dict(decided), list[str]()
        for _ in range(_GREEDY_MAX):
            visibility = Visibility(position=decision.position, assumed=assumed)
            seen = self._seen(decision, visibility)
            if seen is None:
                return None
            evaluation, cluster = seen
            if compare_decision(decision, evaluation, cluster.terminating).agrees:
                text = f"agrees where {', '.join(taken)} were decided before it"
                return DifferenceExplanation(reason=DifferenceReason.ORDER, text=text)
            best = set(evaluation.best_nodes) - {decision.node}
            more = [e for e in near if e.pod.uid not in assumed and e.node in best]
            if not more:
                return None
            for bind in more:
                assumed[bind.pod.uid] = bind.node
                taken.append(bind.pod.name)
        return None

    def _concurrent(self, decision: RecordedDecision) -> Sequence[RecordedDecision]:
        """Return the bindings of other existing pods within WINDOW_NS, in recorded order."""
        return [
            bind
            for bind in self._binds
            if abs(bind.at_ns - decision.at_ns) <= WINDOW_NS
            and bind.pod.uid != decision.pod.uid
            and self._came.get(bind.pod.uid, decision.position) < decision.position
        ]

    def _late(self, decision: RecordedDecision) -> Iterator[int]:
        """Yield ever earlier positions; each one leaves one more relevant change unseen."""
        came = self._came.get(decision.pod.uid, 0)
        until_ns = moment_ns(self._events, decision)
        count = 0
        for place in range(decision.position - 1, came, -1):
            event = self._events[place]
            if until_ns - event.at_ns > LAG_NS or count == _LATE_MAX:
                return
            if event.matters:
                count += 1
                yield place

    def _queue_key(self, decision: RecordedDecision) -> tuple[int, int]:
        uid = decision.pod.uid
        return -self._state.priority(uid), self._came.get(uid, 0)


def _as_logged(scored: LoggedScores, evaluation: scheduler_pb2.Evaluation) -> bool:
    """Return whether the number of feasible nodes and the best score are as logged."""
    if evaluation.fast_path == scheduler_pb2.FAST_PATH_NOMINATED_NODE:
        return True
    same = evaluation.feasible_nodes == scored.feasible
    return same and (scored.top < 0 or evaluation.nodes[0].total == scored.top)


def moment_ns(events: Sequence[RecordedEvent], decision: RecordedDecision) -> int:
    """Return the latest possible time of a decision, ns."""
    return min(decision.at_ns, events[decision.position].at_ns)


def unseen_ends(
    events: Sequence[RecordedEvent], decision: RecordedDecision
) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield (node, positions): ends of pods on the node that may all be unseen at the decision.

    A scheduler sees the end of a pod through a watch, with a delay, but its own decisions at once.
    So the end of a pod can be unseen when later bindings and nominations have been seen.
    Source: kubernetes v1.34 pkg/scheduler/eventhandlers.go, addAllEventHandlers (handlers of one
    informer, each with a queue of its own); pkg/scheduler/backend/cache/cache.go, AssumePod.

    For each node, the ends within LAG_NS before the decision are tried in growing sets: the last
    one, then the last two, and so on. A failed attempt may depend on any node, the victims of a
    preemption only on their own node.
    """
    if decision.kind not in {DecisionKind.FAILURE, DecisionKind.PREEMPTION}:
        return
    until_ns = moment_ns(events, decision)
    ends: dict[str, list[int]] = {}
    count = 0
    for place in range(decision.position - 1, -1, -1):
        event = events[place]
        if until_ns - event.at_ns > LAG_NS or count == _ENDS_MAX:
            return
        node = _ends_on(event)
        if node and (decision.kind is DecisionKind.FAILURE or node == decision.node):
            count += 1
            ends.setdefault(node, []).append(place)
            yield node, tuple(ends[node])


def named(event: RecordedEvent, until_ns: int) -> str:
    """Describe a change: its kind, its object, and how long before the decision it happened."""
    reference = event.ref
    key = f"{reference.namespace}/{reference.name}".lstrip("/")
    before_ms = max(0, until_ns - event.at_ns) / 1e6
    version = f"resourceVersion {event.version}, " if event.version else ""
    return f"{_what(event)} of {reference.kind} {key} ({version}{before_ms:.0f} ms before)"


def _ends_on(event: RecordedEvent) -> str:
    """Return the node of the pod whose end or deletion a change records; "" for other changes."""
    if event.ref.kind != "Pod" or event.old is None:
        return ""
    old = event.old.pod
    return old.spec.node_name if _what(event) != _CHANGE and not _has_ended(old) else ""


_CHANGE = "the change"


def _what(event: RecordedEvent) -> str:
    if event.old is None:
        return "the addition"
    if event.new is None:
        return "the removal"
    if event.ref.kind == "Pod":
        old, new = event.old.pod, event.new.pod
        if _has_ended(new) and not _has_ended(old):
            return "the end"
        if _is_ending(new) and not _is_ending(old):
            return "the deletion request"
    return _CHANGE


def _has_ended(pod: Pod) -> bool:
    return pod.status.phase in TERMINAL_PHASES


def _is_ending(pod: Pod) -> bool:
    return pod.metadata.HasField("deletion_timestamp")
