"""Compares each recorded decision with the scheduler's evaluation in the recorded state."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from replay.compare.evictions import compare_eviction
from replay.compare.explain import (
    DifferenceExplanation,
    DifferenceReason,
    PodEvaluator,
    VisibilityExplainer,
)
from replay.compare.missing_data import MissingDataExplainer
from replay.compare.recorded import (
    DecisionKind,
    RecordedDecision,
    RecordedEvent,
    RecordedState,
    Recording,
    Visibility,
)
from replay.compare.verdict import NOT_JUDGED, DecisionVerdict, Match, compare_decision
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.scheduler.v1beta1 import scheduler_pb2

EXPLAINED_MAX = 2_000
"""Limit for the differences that are explained; one explanation takes up to dozens of evaluations.
"""
_VERSION = re.compile(r"v(\d+)\.(\d+)")
RULES = "v1.34"
"""The rules for recordings of versions older than those in CHANGED_RULES."""

CHANGED_RULES = "v1.36"
_CHANGED_IN = (1, 36)
CHANGE = "the rules of v1.36 decide as recorded, those of v1.34 do not"


class EvaluationSession(PodEvaluator, Protocol):
    """A scheduler that receives the recorded state and evaluates pods in it."""

    def report(self, at_ns: int, events: Sequence[scheduler_pb2.Event]) -> None:
        """Receive the events up to `at_ns`."""

    def evaluate_pod(self, pod: ObjectReference) -> scheduler_pb2.Evaluation:
        """Return the evaluation of a pending pod in the current state."""


class Comparison:
    """Compares the decisions of a recording in one pass.

    `changed` is a session with the rules of the recorded version, if they differ from those of
    `session`. A decision that agrees only with `changed` counts as explained.
    """

    def __init__(
        self,
        recording: Recording,
        session: EvaluationSession,
        changed: EvaluationSession | None = None,
    ) -> None:
        self._recording = recording
        self._session, self._changed = session, changed
        self._state = RecordedState(recording.events, recording.decisions)
        self._own = VisibilityExplainer(recording, self._state, session)
        self._latest = (
            VisibilityExplainer(recording, self._state, changed) if changed else self._own
        )
        self._missing = MissingDataExplainer(changed or session, recording.kinds)
        self._assumed: dict[str, int] = {}
        self._decided: dict[str, str] = {}
        self._outcomes: list[scheduler_pb2.Event] = []
        self._at_ns = 0
        self._explained = 0

    def findings(self) -> Iterator[Finding]:
        """Compare every decision, in order. Raises BackendError."""
        for decision in self._recording.decisions:
            self._advance(decision.position)
            yield self._find(decision)
            self._apply(decision)

    def _find(self, decision: RecordedDecision) -> Finding:
        if decision.unknown:
            return _in_gap(decision)
        if decision.kind is DecisionKind.EVICTION:
            return self._find_eviction(decision)
        if not self._state.is_pending(decision.pod.uid) or decision.pod.uid in self._assumed:
            return _not_judged(decision)
        evaluation = self._session.evaluate_pod(decision.pod)
        verdict = compare_decision(decision, evaluation, self._state.terminating)
        explanation: DifferenceExplanation | None
        if verdict.agrees:
            explanation = self._needs_order(decision, self._own)
        else:
            explanation = self._by_change(decision) or self._explain(decision)
        return Finding(
            decision=decision,
            verdict=verdict,
            explanation=explanation,
            feasible=evaluation.feasible_nodes,
        )

    def _find_eviction(self, decision: RecordedDecision) -> Finding:
        pod = self._state.pod(decision.pod.uid)
        if pod is None or not pod.spec.node_name:
            return _not_judged(decision)
        neighbours = self._state.neighbours(pod)
        verdict, explanation = compare_eviction(pod, neighbours, decision.message)
        return Finding(decision=decision, verdict=verdict, explanation=explanation)

    def _by_change(self, decision: RecordedDecision) -> DifferenceExplanation | None:
        if self._changed is None:
            return None
        evaluation = self._changed.evaluate_pod(decision.pod)
        if not compare_decision(decision, evaluation, self._state.terminating).agrees:
            return None
        order = self._needs_order(decision, self._latest)
        text = f"{CHANGE}; {order.text}" if order else CHANGE
        return DifferenceExplanation(reason=DifferenceReason.CHANGE, text=text)

    def _explain(self, decision: RecordedDecision) -> DifferenceExplanation | None:
        self._explained += 1
        if self._explained > EXPLAINED_MAX:
            return None
        here = Visibility(position=decision.position, assumed=self._decided)
        return self._latest.explain(decision, self._decided) or self._missing.explain(
            decision, self._state.cluster(decision.pod.uid, here)
        )

    def _needs_order(
        self, decision: RecordedDecision, explainer: VisibilityExplainer
    ) -> DifferenceExplanation | None:
        """Return the explanation ORDER if a decision agrees only in the log's order, else None."""
        written = decision.written
        outstanding = any(place >= written for place in self._assumed.values())
        if decision.scored is None or (decision.position == written and not outstanding):
            return None
        visibility = Visibility(position=written, assumed={})
        if explainer.agrees(decision, visibility):
            return None
        text = "agrees in the log's order of decisions, not in that of resourceVersion"
        return DifferenceExplanation(reason=DifferenceReason.ORDER, text=text)

    def _advance(self, position: int) -> None:
        events, self._outcomes = self._outcomes, []
        for place in range(self._state.position, position):
            event = self._recording.events[place]
            self._at_ns = max(self._at_ns, event.at_ns)
            if event.new is not None and self._assumed.get(event.ref.uid, place) > place:
                # Changes of an assumed pod itself do not remove it from its node.
                continue
            self._assumed.pop(event.ref.uid, None)
            events.append(_event(event, self._at_ns))
        if events:
            self._report(events)
        self._state.advance(position)

    def _apply(self, decision: RecordedDecision) -> None:
        """Assume the recorded outcome from now on, as a scheduler's cache does."""
        event = scheduler_pb2.Event(time_ns=self._at_ns)
        match decision.kind:
            case DecisionKind.BIND:
                for place in decision.writes:
                    claim = self._recording.events[place]
                    self._assumed[claim.ref.uid] = place
                    self._outcomes.append(_event(claim, self._at_ns))
                self._assumed[decision.pod.uid] = decision.written
                self._decided[decision.pod.uid] = decision.node
                event.patch.pod.uid = decision.pod.uid
                event.patch.node_name = decision.node
            case DecisionKind.PREEMPTION if decision.written > decision.position:
                written = self._recording.events[decision.written].new
                if written is None:
                    return
                event.update.CopyFrom(written)
            case _:
                return
        self._outcomes.append(event)

    def _report(self, events: Sequence[scheduler_pb2.Event]) -> None:
        self._session.report(self._at_ns, events)
        if self._changed is not None:
            self._changed.report(self._at_ns, events)


def _not_judged(decision: RecordedDecision) -> Finding:
    verdict = DecisionVerdict(match=Match.NOT_PENDING, expected="", got="")
    return Finding(decision=decision, verdict=verdict)


def _in_gap(decision: RecordedDecision) -> Finding:
    verdict = DecisionVerdict(match=Match.GAP, expected="", got="")
    text = f"changes before it may be missing of {decision.unknown}"
    explanation = DifferenceExplanation(reason=DifferenceReason.GAP, text=text)
    return Finding(decision=decision, verdict=verdict, explanation=explanation)


def _event(recorded: RecordedEvent, at_ns: int) -> scheduler_pb2.Event:
    if recorded.new is None:
        return scheduler_pb2.Event(time_ns=at_ns, remove=recorded.ref)
    if recorded.old is None:
        return scheduler_pb2.Event(time_ns=at_ns, add=recorded.new)
    return scheduler_pb2.Event(time_ns=at_ns, update=recorded.new)


def changed_rules(kubernetes_version: str, rules: str) -> str:
    """Return the rules with which a recording of that version is also evaluated; "" for none."""
    match = _VERSION.match(kubernetes_version)
    if match is None or rules not in {"", RULES}:
        return ""
    return CHANGED_RULES if (int(match[1]), int(match[2])) >= _CHANGED_IN else ""


class FindingOutcome(Enum):
    """The result of comparing a decision."""

    AGREES = "agrees"
    EXPLAINED = "explained"
    DIFFERS = "differs"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A compared decision.

    explanation: why a decision differs; of an agreement, what the agreement depends on. feasible:
    the number of feasible nodes, -1 if the decision was not compared.
    """

    decision: RecordedDecision
    verdict: DecisionVerdict
    explanation: DifferenceExplanation | None = None
    feasible: int = -1

    @property
    def outcome(self) -> FindingOutcome:
        """Return the outcome that verdict and explanation lead to."""
        if self.verdict.match in NOT_JUDGED:
            return FindingOutcome.NOT_JUDGED
        if self.verdict.agrees:
            return FindingOutcome.AGREES
        return FindingOutcome.DIFFERS if self.explanation is None else FindingOutcome.EXPLAINED

    def to_mapping(self) -> dict[str, Any]:
        """Return the finding as an entry of the report's JSON."""
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
class ComparisonReport:
    """The counts of all findings; `notable` lists findings that differ or have an explanation.

    `sole` counts bindings with one feasible node or one best node, by the recording's log of scores
    if it has one. `same_feasible` counts logged bindings with the logged number of feasible nodes.
    """

    rules: str
    kubernetes_version: str
    order: str
    notes: Sequence[str]
    outcomes: Counter[tuple[DecisionKind, FindingOutcome]] = field(default_factory=Counter)
    matches: Counter[tuple[DecisionKind, Match]] = field(default_factory=Counter)
    reasons: Counter[tuple[FindingOutcome, DifferenceReason]] = field(default_factory=Counter)
    sole: Counter[FindingOutcome] = field(default_factory=Counter)
    logged: int = 0
    same_feasible: int = 0
    notable: list[Finding] = field(default_factory=list)

    def add(self, findings: Iterable[Finding]) -> None:
        """Count findings."""
        for finding in findings:
            self._count(finding)

    def of(self, outcome: FindingOutcome) -> int:
        """Return the number of decisions with an outcome."""
        return sum(count for (_, counted), count in self.outcomes.items() if counted is outcome)

    def to_mapping(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {
            "rules": self.rules,
            "kubernetes_version": self.kubernetes_version,
            "order": self.order,
            "decisions": {
                kind.value: {
                    outcome.value: self.outcomes[kind, outcome] for outcome in FindingOutcome
                }
                for kind in DecisionKind
            },
            "agreements": {
                f"{kind.value}: {match.value}": count
                for (kind, match), count in self.matches.items()
            },
            "reasons": {
                f"{outcome.value}: {reason.value}": count
                for (outcome, reason), count in self.reasons.items()
            },
            "one_feasible_or_unique_best": {
                outcome.value: self.sole[outcome] for outcome in FindingOutcome
            },
            "logged_bindings": self.logged,
            "logged_bindings_with_as_many_feasible_nodes": self.same_feasible,
            "findings": [finding.to_mapping() for finding in self.notable],
            "notes": list(self.notes),
        }

    def _count(self, finding: Finding) -> None:
        kind, outcome = finding.decision.kind, finding.outcome
        self.outcomes[kind, outcome] += 1
        if outcome is FindingOutcome.AGREES:
            self.matches[kind, finding.verdict.match] += 1
        if finding.explanation is not None:
            self.reasons[outcome, finding.explanation.reason] += 1
        if outcome is not FindingOutcome.AGREES or finding.explanation is not None:
            self.notable.append(finding)
        if kind is DecisionKind.BIND:
            self._count_bind(finding)

    def _count_bind(self, finding: Finding) -> None:
        scored = finding.decision.scored
        if scored is not None and scored.feasible >= 0:
            self.logged += 1
            self.same_feasible += scored.feasible == finding.feasible
            sole = scored.feasible == 1 or len(scored.tied_nodes) == 1
        else:
            sole = finding.verdict.match in {Match.ONE_NODE, Match.UNIQUE_BEST}
        if sole:
            self.sole[finding.outcome] += 1
