"""Why a decision differs: sights that a scheduler can have had, tried until one agrees.

A recording tells when a decision was written, not what its scheduler had seen by then, nor in
which order pods that were bound within moments of each other were decided.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from replay.compare.recorded import (
    Cluster,
    Kind,
    RecordedDecision,
    RecordedEvent,
    RecordedState,
    Recording,
    Scored,
    Sight,
)
from replay.compare.verdict import judged
from replay.importers.recording.survey import TERMINAL
from replay.trace.validate import pod_features
from reprieve.kube.v1beta1.affinity_pb2 import PodAffinityTerm
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1.scheduler_pb2 import Evaluation

WINDOW_NS = 1_000_000_000
"""How far from a decision others count as concurrent."""
_LATE_MAX = 24
_CONFIRMED = "as many nodes fit there, with the same best score, as logged"
_GREEDY_MAX = 12
LAG_NS = 1_000_000_000
"""How long before a decision a change can have been without being seen."""
_ENDS_MAX = 48
_BUDGET, _CLAIM, _NAMESPACE = "PodDisruptionBudget", "PersistentVolumeClaim", "Namespace"
_NOT_SERVED = "DynamicResources is not served: the pod's device claims (resourceClaims) always fit"
_TRIES_MAX = 12
_LABEL = "reprieve.compare/protected"


class Reason(Enum):
    """What explains a difference, or an agreement that the recording alone does not give.

    ORDER: another order of pods that were decided within moments. LATE: changes that were recorded
    before the decision, but not seen yet. CHANGE: a rule that the recorded version changed.
    MISSING: something that the decision followed from is not in the recording. PLUGIN: a plugin
    that is not served had its say.
    """

    ORDER = "order of decisions"
    LATE = "events not seen yet"
    CHANGE = "changed in the recorded version"
    MISSING = "missing data"
    PLUGIN = "a plugin not served"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a difference is none of the rules'."""

    reason: Reason
    text: str


class Asked(Protocol):
    """A scheduler that judges a pod in a cluster of its own."""

    def judge_in(self, cluster: Cluster, at_ns: int) -> scheduler_pb2.Evaluation:
        """Return the verdicts."""


class Explainer:
    """Looks for the sight in which a recorded decision agrees."""

    def __init__(self, recording: Recording, state: RecordedState, asked: Asked) -> None:
        self._state = state
        self._events = recording.events
        self._asked = asked
        self._binds = [each for each in recording.decisions if each.kind is Kind.BIND]
        self._came: dict[str, int] = {}
        for place, event in enumerate(recording.events):
            if event.ref.kind == "Pod":
                self._came.setdefault(event.ref.uid, place)

    def explain(self, decision: RecordedDecision, decided: dict[str, str]) -> Explanation | None:
        """Return what explains a difference, None for nothing. `decided` are earlier bindings.

        A sight in which as many nodes fit, and score as much, as the recording's log has is sought
        first.
        """
        first: Explanation | None = None
        for reason, text, sight in self._sights(decision, decided):
            seen = self._seen(decision, sight)
            if seen is None or not judged(decision, seen[0], seen[1].terminating).agrees:
                continue
            if decision.scored is None:
                return Explanation(reason=reason, text=text)
            if _as_logged(decision.scored, seen[0]):
                return Explanation(reason=reason, text=f"{text}; {_CONFIRMED}")
            first = first or Explanation(reason=reason, text=text)
        return first or self._greedy(decision, decided)

    def agrees(self, decision: RecordedDecision, sight: Sight) -> bool:
        """Tell whether a decision agrees in a sight."""
        seen = self._seen(decision, sight)
        return seen is not None and judged(decision, seen[0], seen[1].terminating).agrees

    def _seen(
        self, decision: RecordedDecision, sight: Sight
    ) -> tuple[scheduler_pb2.Evaluation, Cluster] | None:
        cluster = self._state.cluster(decision.pod.uid, sight)
        if cluster is None:
            return None
        return self._asked.judge_in(cluster, decision.at_ns), cluster

    def _sights(
        self, decision: RecordedDecision, decided: dict[str, str]
    ) -> Iterator[tuple[Reason, str, Sight]]:
        here = decision.position
        near = self._concurrent(decision)
        before = [each for each in near if each.pod.uid in decided]
        after = [each for each in near if each.pod.uid not in decided]
        if near:
            own = self._queue_key(decision)
            first = [each for each in after if self._queue_key(each) < own]
            last = frozenset(e.pod.uid for e in before if self._queue_key(e) > own)
            if first or last:
                text = "agrees where the pods bound within 1 s were decided in the queue's order"
                assumed = {**decided, **{each.pod.uid: each.node for each in first}}
                yield (
                    Reason.ORDER,
                    text,
                    Sight(position=here, assumed=assumed, undecided=last),
                )
        until_ns = moment_ns(self._events, decision)
        for count, late in enumerate(self._late(decision), 1):
            text = f"agrees before {named(self._events[late], until_ns)} was seen"
            if count > 1:
                text += f", and {count - 1} later ones"
            yield Reason.LATE, text, Sight(position=late, assumed=decided)
        assumed = dict(decided)
        for each in after[:_GREEDY_MAX]:
            assumed[each.pod.uid] = each.node
            text = f"agrees where pods bound after it, up to {each.pod.name}, were decided before"
            yield Reason.ORDER, text, Sight(position=here, assumed=dict(assumed))
        for each in reversed(before[-_GREEDY_MAX:]):
            text = f"agrees where {each.pod.name}, bound before it, was decided after"
            undecided = frozenset({each.pod.uid})
            yield Reason.ORDER, text, Sight(position=here, assumed=decided, undecided=undecided)
        for node, ends in unseen_ends(self._events, decision):
            names = ", ".join(named(self._events[place], until_ns) for place in ends)
            text = f"agrees where on node {node} was not seen yet: {names}"
            yield Reason.LATE, text, Sight(position=here, assumed=decided, unseen=ends)

    def _greedy(self, decision: RecordedDecision, decided: dict[str, str]) -> Explanation | None:
        """Let concurrent pods take first what is better than the recorded node."""
        if decision.kind is not Kind.BIND:
            return None
        near = self._concurrent(decision)
        assumed, taken = dict(decided), list[str]()
        for _ in range(_GREEDY_MAX):
            sight = Sight(position=decision.position, assumed=assumed)
            seen = self._seen(decision, sight)
            if seen is None:
                return None
            found, cluster = seen
            if judged(decision, found, cluster.terminating).agrees:
                text = f"agrees where {', '.join(taken)} were decided before it"
                return Explanation(reason=Reason.ORDER, text=text)
            best = set(found.best_nodes) - {decision.node}
            more = [e for e in near if e.pod.uid not in assumed and e.node in best]
            if not more:
                return None
            for each in more:
                assumed[each.pod.uid] = each.node
                taken.append(each.pod.name)
        return None

    def _concurrent(self, decision: RecordedDecision) -> Sequence[RecordedDecision]:
        """Return the bindings of other pods that were there, near a decision, in their order."""
        return [
            each
            for each in self._binds
            if abs(each.at_ns - decision.at_ns) <= WINDOW_NS
            and each.pod.uid != decision.pod.uid
            and self._came.get(each.pod.uid, decision.position) < decision.position
        ]

    def _late(self, decision: RecordedDecision) -> Iterator[int]:
        """Yield positions before the decision's, each one change that matters earlier."""
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


def _as_logged(scored: Scored, found: scheduler_pb2.Evaluation) -> bool:
    """Tell whether as many nodes fit as logged, the best with the logged score."""
    if found.fast_path == scheduler_pb2.FAST_PATH_NOMINATED_NODE:
        return True
    same = found.feasible_nodes == scored.feasible
    return same and (scored.top < 0 or found.nodes[0].total == scored.top)


def moment_ns(events: Sequence[RecordedEvent], decision: RecordedDecision) -> int:
    """Return when a decision can have been taken at the latest."""
    return min(decision.at_ns, events[decision.position].at_ns)


def unseen_ends(
    events: Sequence[RecordedEvent], decision: RecordedDecision
) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield nodes, each with positions of pods' ends there that may all be unseen.

    A scheduler hears of a pod's end by a watch that lags, but knows at once what it has decided
    itself. So the end of a pod can be unseen where later bindings and nominations are known.
    Source: kubernetes v1.34 pkg/scheduler/eventhandlers.go, addAllEventHandlers (handlers of one
    informer, each with a queue of its own); pkg/scheduler/backend/cache/cache.go, AssumePod.

    The ends are those within the lag, the latest first: the last one, then the last two, and so on.
    A failure may follow from any node, a preemption's victims from their own.
    """
    if decision.kind not in {Kind.FAILURE, Kind.PREEMPTION}:
        return
    until_ns = moment_ns(events, decision)
    ends: dict[str, list[int]] = {}
    found = 0
    for place in range(decision.position - 1, -1, -1):
        event = events[place]
        if until_ns - event.at_ns > LAG_NS or found == _ENDS_MAX:
            return
        node = _ends_on(event)
        if node and (decision.kind is Kind.FAILURE or node == decision.node):
            found += 1
            ends.setdefault(node, []).append(place)
            yield node, tuple(ends[node])


def named(event: RecordedEvent, until_ns: int) -> str:
    """Return what happened to what, and how long before the decision."""
    reference = event.ref
    key = f"{reference.namespace}/{reference.name}".lstrip("/")
    before_ms = max(0, until_ns - event.at_ns) / 1e6
    version = f"resourceVersion {event.version}, " if event.version else ""
    return f"{_what(event)} of {reference.kind} {key} ({version}{before_ms:.0f} ms before)"


def _ends_on(event: RecordedEvent) -> str:
    """Return the node on which a change ends a pod, or begins to; "" where it does not."""
    if event.ref.kind != "Pod" or event.old is None:
        return ""
    old = event.old.pod
    return old.spec.node_name if _what(event) != _CHANGE and not _has_ended(old) else ""


_CHANGE = "the change"


def _what(event: RecordedEvent) -> str:
    if event.old is None:
        return "the coming"
    if event.new is None:
        return "the removal"
    if event.ref.kind == "Pod":
        old, new = event.old.pod, event.new.pod
        if _has_ended(new) and not _has_ended(old):
            return "the end"
        if _is_ending(new) and not _is_ending(old):
            return "the begun end"
    return _CHANGE


def _has_ended(pod: Pod) -> bool:
    return pod.status.phase in TERMINAL


def _is_ending(pod: Pod) -> bool:
    return pod.metadata.HasField("deletion_timestamp")


@dataclass(frozen=True, slots=True)
class Missing:
    """Looks for what a decision followed from and the recording, or the services, do not have.

    Disruption budgets that were not recorded are sought as any explanation is: with budgets
    over the pods that would else be victims, the recorded decision has to come out. Of other things
    it is enough that the pod names them and that no object of their kind was recorded. `kinds` are
    those of the recording's objects.
    """

    asked: Asked
    kinds: Set[str]

    def explain(self, decision: RecordedDecision, cluster: Cluster | None) -> Explanation | None:
        """Return what explains a difference in the state of the decision, None for nothing."""
        if cluster is None:
            return None
        if any("resourceClaims" in each for each in pod_features(cluster.pod.spec)):
            return Explanation(reason=Reason.PLUGIN, text=_NOT_SERVED)
        for text in _not_recorded(cluster.pod, self.kinds):
            return Explanation(reason=Reason.MISSING, text=text)
        if decision.kind is Kind.PREEMPTION and _BUDGET not in self.kinds:
            return self._by_budgets(decision, cluster)
        return None

    def _by_budgets(self, decision: RecordedDecision, cluster: Cluster) -> Explanation | None:
        """Protect the pods that would wrongly be victims, until the recorded ones come out."""
        protected: dict[str, str] = {}
        for _ in range(_TRIES_MAX):
            with_budgets = _with_budgets(cluster, protected)
            found = self.asked.judge_in(with_budgets, decision.at_ns)
            if judged(decision, found, cluster.terminating).agrees:
                names = ", ".join(sorted(protected.values()))
                text = f"agrees where disruption budgets, of which none was recorded, hold {names}"
                return Explanation(reason=Reason.MISSING, text=text)
            more = {uid: name for uid, name in _wrong(decision, found) if uid not in protected}
            if not more:
                return None
            protected |= more
        return None


def _wrong(decision: RecordedDecision, found: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield the victims, UID and name, that were not recorded, on the node that is picked."""
    picked = found.preemption.picked
    recorded = set(decision.victims or ()) if picked == decision.node else set()
    for candidate in found.preemption.candidates:
        if candidate.node_name == picked:
            for victim in candidate.victims:
                name = f"{victim.pod.namespace}/{victim.pod.name}"
                if name not in recorded:
                    yield victim.pod.uid, name


def _with_budgets(cluster: Cluster, protected: Container[str]) -> Cluster:
    """Return the cluster with budgets that allow no disruption of the pods of those UIDs."""
    objects, namespaces = list[KubernetesObject](), dict[str, None]()
    for held in cluster.objects:
        if held.pod.metadata.uid not in protected:
            objects.append(held)
            continue
        marked = copy.deepcopy(held)
        marked.pod.metadata.labels[_LABEL] = ""
        objects.append(marked)
        namespaces[held.pod.metadata.namespace] = None
    objects += [_budget(namespace) for namespace in namespaces]
    return replace(cluster, objects=objects)


def _budget(namespace: str) -> KubernetesObject:
    made = KubernetesObject()
    budget = made.pod_disruption_budget
    budget.metadata.namespace, budget.metadata.name = namespace, "not-recorded"
    budget.spec.selector.match_labels[_LABEL] = ""
    budget.status.disruptions_allowed = 0
    return made


def _not_recorded(pod: Pod, kinds: Set[str]) -> Iterator[str]:
    """Yield what the pod names of kinds of which no object was recorded."""
    has_claims = any(each.HasField("persistent_volume_claim") for each in pod.spec.volumes)
    if _CLAIM not in kinds and has_claims:
        yield f"its volumes are claims, and no {_CLAIM} was recorded"
    selects = any(each.HasField("namespace_selector") for each in _terms(pod))
    if _NAMESPACE not in kinds and selects:
        words = "its affinity selects namespaces by their labels"
        yield f"{words}, and no {_NAMESPACE} was recorded"


def _terms(pod: Pod) -> Iterator[PodAffinityTerm]:
    affinity = pod.spec.affinity
    for each in (affinity.pod_affinity, affinity.pod_anti_affinity):
        yield from each.required_during_scheduling_ignored_during_execution
        for weighted in each.preferred_during_scheduling_ignored_during_execution:
            yield weighted.pod_affinity_term
