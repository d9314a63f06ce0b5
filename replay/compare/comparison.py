"""The comparison: each decision judged in the recorded state, and what was found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from replay.compare.evictions import judged_eviction
from replay.compare.explain import Asked, Explainer, Explanation, Missing, Reason
from replay.compare.recorded import (
    Kind,
    RecordedDecision,
    RecordedEvent,
    RecordedState,
    Recording,
    Sight,
)
from replay.compare.verdict import Ground, Verdict, judged
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.scheduler.v1beta1 import scheduler_pb2

EXPLAINED_MAX = 2_000
"""How many differences an explanation is looked for; each takes up to some dozens of verdicts."""
_VERSION = re.compile(r"v(\d+)\.(\d+)")
RULES = "v1.34"
"""The rules that the changes below are changes of."""

CHANGED_RULES = "v1.36"
_CHANGED_IN = (1, 36)
CHANGE = (
    "NodeResourcesBalancedAllocation scores the change of a node's balance "
    "(v1.36, kubernetes#135573)"
)


class Judge(Asked, Protocol):
    """A scheduler that receives a state and is asked about pods."""

    def report(self, at_ns: int, events: Sequence[scheduler_pb2.Event]) -> None:
        """Take what happened."""

    def judge(self, pod: ObjectReference) -> scheduler_pb2.Evaluation:
        """Return the verdicts about a pending pod as things stand."""


class Comparison:
    """Goes through a recording once.

    `changed` judges by the rules of the recorded version where those differ from `judge`'s; what
    agrees by them alone is explained.
    """

    def __init__(self, recording: Recording, judge: Judge, changed: Judge | None = None) -> None:
        self._recording = recording
        self._judge, self._changed = judge, changed
        self._state = RecordedState(recording.events)
        self._own = Explainer(recording, self._state, judge)
        self._latest = Explainer(recording, self._state, changed) if changed else self._own
        self._missing = Missing(changed or judge, recording.kinds)
        self._assumed: dict[str, int] = {}
        self._decided: dict[str, str] = {}
        self._outcomes: list[scheduler_pb2.Event] = []
        self._at_ns = 0
        self._explained = 0

    def findings(self) -> Iterator[Finding]:
        """Judge every decision, in order. Raises BackendError."""
        for decision in self._recording.decisions:
            self._advance(decision.position)
            yield self._find(decision)
            self._apply(decision)

    def _find(self, decision: RecordedDecision) -> Finding:
        if decision.kind is Kind.EVICTION:
            return self._find_eviction(decision)
        if not self._state.is_pending(decision.pod.uid) or decision.pod.uid in self._assumed:
            return _not_judged(decision)
        found = self._judge.judge(decision.pod)
        verdict = judged(decision, found, self._state.terminating)
        explanation: Explanation | None
        if verdict.agrees:
            explanation = self._owed_to_order(decision, self._own)
        else:
            explanation = self._by_change(decision) or self._explain(decision)
        return Finding(
            decision=decision,
            verdict=verdict,
            explanation=explanation,
            feasible=found.feasible_nodes,
        )

    def _find_eviction(self, decision: RecordedDecision) -> Finding:
        pod = self._state.pod(decision.pod.uid)
        if pod is None or not pod.spec.node_name:
            return _not_judged(decision)
        neighbours = self._state.neighbours(pod)
        verdict, explanation = judged_eviction(pod, neighbours, decision.message)
        return Finding(decision=decision, verdict=verdict, explanation=explanation)

    def _by_change(self, decision: RecordedDecision) -> Explanation | None:
        if self._changed is None:
            return None
        found = self._changed.judge(decision.pod)
        if not judged(decision, found, self._state.terminating).agrees:
            return None
        order = self._owed_to_order(decision, self._latest)
        text = f"{CHANGE}; {order.text}" if order else CHANGE
        return Explanation(reason=Reason.CHANGE, text=text)

    def _explain(self, decision: RecordedDecision) -> Explanation | None:
        self._explained += 1
        if self._explained > EXPLAINED_MAX:
            return None
        here = Sight(position=decision.position, assumed=self._decided)
        return self._latest.explain(decision, self._decided) or self._missing.explain(
            decision, self._state.cluster(decision.pod.uid, here)
        )

    def _owed_to_order(
        self, decision: RecordedDecision, explainer: Explainer
    ) -> Explanation | None:
        """Tell whether an agreement needs the log's order: it fails by resourceVersion alone."""
        written = decision.written
        outstanding = any(place >= written for place in self._assumed.values())
        if decision.scored is None or (decision.position == written and not outstanding):
            return None
        sight = Sight(position=written, assumed={})
        if explainer.agrees(decision, sight):
            return None
        text = "agrees in the log's order of decisions, not in that of resourceVersion"
        return Explanation(reason=Reason.ORDER, text=text)

    def _advance(self, position: int) -> None:
        told, self._outcomes = self._outcomes, []
        for place in range(self._state.position, position):
            event = self._recording.events[place]
            self._at_ns = max(self._at_ns, event.at_ns)
            if event.new is not None and self._assumed.get(event.ref.uid, place) > place:
                # An assumed pod's own changes do not take it off its node.
                continue
            self._assumed.pop(event.ref.uid, None)
            told.append(_event(event, self._at_ns))
        if told:
            self._tell(told)
        self._state.advance(position)

    def _apply(self, decision: RecordedDecision) -> None:
        """Let the recorded outcome count from now on, as a scheduler's own cache does."""
        event = scheduler_pb2.Event(at_ns=self._at_ns)
        match decision.kind:
            case Kind.BIND:
                self._assumed[decision.pod.uid] = decision.written
                self._decided[decision.pod.uid] = decision.node
                event.patch.pod.uid = decision.pod.uid
                event.patch.node_name = decision.node
            case Kind.PREEMPTION if decision.written > decision.position:
                written = self._recording.events[decision.written].new
                if written is None:
                    return
                event.update.CopyFrom(written)
            case _:
                return
        self._outcomes.append(event)

    def _tell(self, events: Sequence[scheduler_pb2.Event]) -> None:
        self._judge.report(self._at_ns, events)
        if self._changed is not None:
            self._changed.report(self._at_ns, events)


def _not_judged(decision: RecordedDecision) -> Finding:
    verdict = Verdict(ground=Ground.NOT_PENDING, expected="", got="")
    return Finding(decision=decision, verdict=verdict)


def _event(recorded: RecordedEvent, at_ns: int) -> scheduler_pb2.Event:
    if recorded.new is None:
        return scheduler_pb2.Event(at_ns=at_ns, remove=recorded.ref)
    if recorded.old is None:
        return scheduler_pb2.Event(at_ns=at_ns, add=recorded.new)
    return scheduler_pb2.Event(at_ns=at_ns, update=recorded.new)


def changed_rules(kubernetes_version: str, rules: str) -> str:
    """Return the rules that a recording of that version is also judged by, "" for none."""
    match = _VERSION.match(kubernetes_version)
    if match is None or rules not in {"", RULES}:
        return ""
    return CHANGED_RULES if (int(match[1]), int(match[2])) >= _CHANGED_IN else ""


class Outcome(Enum):
    """What became of a decision in the comparison."""

    AGREES = "agrees"
    EXPLAINED = "explained"
    DIFFERS = "differs"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A decision and how it was judged.

    An `explanation` of an agreement says what it is owed to. `feasible` is the number of nodes
    that fit, -1 where nothing was judged.
    """

    decision: RecordedDecision
    verdict: Verdict
    explanation: Explanation | None = None
    feasible: int = -1

    @property
    def outcome(self) -> Outcome:
        """Return what became of the decision."""
        if self.verdict.ground is Ground.NOT_PENDING:
            return Outcome.NOT_JUDGED
        if self.verdict.agrees:
            return Outcome.AGREES
        return Outcome.DIFFERS if self.explanation is None else Outcome.EXPLAINED

    def to_mapping(self) -> dict[str, Any]:
        """Return what is told of it."""
        decision, explanation = self.decision, self.explanation
        return {
            "decision": decision.kind.value,
            "pod": f"{decision.pod.namespace}/{decision.pod.name}",
            "uid": decision.pod.uid,
            "resource_version": decision.version,
            "at_ns": decision.at_ns,
            "outcome": self.outcome.value,
            "expected": self.verdict.expected,
            "got": self.verdict.got,
            "reason": explanation.reason.value if explanation else "",
            "explanation": explanation.text if explanation else "",
        }


@dataclass(slots=True, kw_only=True)
class Report:
    """All findings, counted; `told` are those that agree for no other reason left out.

    `sole` counts bindings with one feasible node or a unique best one, as the recording's own log
    of scores has them where there is one; `same_feasible` are those of the logged ones in which
    as many nodes fit.
    """

    rules: str
    kubernetes_version: str
    order: str
    notes: Sequence[str]
    outcomes: Counter[tuple[Kind, Outcome]] = field(default_factory=Counter)
    grounds: Counter[tuple[Kind, Ground]] = field(default_factory=Counter)
    reasons: Counter[tuple[Outcome, Reason]] = field(default_factory=Counter)
    sole: Counter[Outcome] = field(default_factory=Counter)
    logged: int = 0
    same_feasible: int = 0
    told: list[Finding] = field(default_factory=list)

    def add(self, findings: Iterable[Finding]) -> None:
        """Count findings."""
        for finding in findings:
            self._count(finding)

    def of(self, outcome: Outcome) -> int:
        """Return how many decisions had an outcome."""
        return sum(count for (_, each), count in self.outcomes.items() if each is outcome)

    def to_mapping(self) -> dict[str, Any]:
        """Return the report for programs."""
        return {
            "rules": self.rules,
            "kubernetes_version": self.kubernetes_version,
            "order": self.order,
            "decisions": {
                kind.value: {each.value: self.outcomes[kind, each] for each in Outcome}
                for kind in Kind
            },
            "agreements": {
                f"{kind.value}: {ground.value}": count
                for (kind, ground), count in self.grounds.items()
            },
            "reasons": {
                f"{outcome.value}: {reason.value}": count
                for (outcome, reason), count in self.reasons.items()
            },
            "one_feasible_or_unique_best": {each.value: self.sole[each] for each in Outcome},
            "logged_bindings": self.logged,
            "logged_bindings_with_as_many_feasible_nodes": self.same_feasible,
            "findings": [each.to_mapping() for each in self.told],
            "notes": list(self.notes),
        }

    def _count(self, finding: Finding) -> None:
        kind, outcome = finding.decision.kind, finding.outcome
        self.outcomes[kind, outcome] += 1
        if outcome is Outcome.AGREES:
            self.grounds[kind, finding.verdict.ground] += 1
        if finding.explanation is not None:
            self.reasons[outcome, finding.explanation.reason] += 1
        if outcome is not Outcome.AGREES or finding.explanation is not None:
            self.told.append(finding)
        if kind is Kind.BIND:
            self._count_bind(finding)

    def _count_bind(self, finding: Finding) -> None:
        scored = finding.decision.scored
        if scored is not None and scored.feasible >= 0:
            self.logged += 1
            self.same_feasible += scored.feasible == finding.feasible
            sole = scored.feasible == 1 or len(scored.tied_nodes) == 1
        else:
            sole = finding.verdict.ground in {Ground.ONE_NODE, Ground.UNIQUE_BEST}
        if sole:
            self.sole[finding.outcome] += 1
