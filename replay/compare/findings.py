"""What a comparison found: each decision with its verdict, and all of them counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from replay.compare.explain import Explanation, Reason
from replay.compare.recorded import Kind, RecordedDecision
from replay.compare.verdict import Ground, Verdict


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
