"""Compares one recorded decision with the scheduler's evaluation of the same pod. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum

from replay.compare.recorded import DecisionKind, RecordedDecision
from reprieve.scheduler.v1beta1 import scheduler_pb2

_FIT = re.compile(r"0/(\d+) nodes are available: ?(.*)", re.DOTALL)
# A reason may contain commas; only a comma followed by a count begins the next reason.
_NEXT = re.compile(r", (?=\d+ )")
_TAINT = re.compile(r"node\(s\) had untolerated taint \{.*\}")
_TAINTS = "node(s) had untolerated taint(s)"
_CLAIMS = re.compile(r"(?:no new claims to deallocate|still not schedulable), ?")
PREEMPTION_MARK = "preemption: "
"""The text before the part of a message that explains why preemption did not help."""


class Match(Enum):
    """The degree to which a decision agrees with the recorded one.

    ONE_NODE: one node was feasible, or the nominated node was chosen without scoring.
    UNIQUE_BEST: one node has the best score.
    TIED: the recorded node is one of several with the best score.
    VICTIMS: node and victims are the same.
    NO_NODE: both find no node, for the same reasons.
    ALONE: the evicted pod is the only one that can be evicted.
    FIRST: the evicted pod ranks first whatever the other pods use.
    LIMIT: the evicted pod exceeded its own limit.
    NOT_PENDING: not compared, because the pod is not pending in the recording at that time (for an
        eviction: not on a node).
    GAP: not compared, because the recording may lack changes before the decision.
    """

    ONE_NODE = "one feasible node"
    UNIQUE_BEST = "a unique best node"
    TIED = "among equal best nodes"
    VICTIMS = "the same node and victims"
    NO_NODE = "the same refusal"
    ALONE = "the only pod that could go"
    FIRST = "first whatever the others used"
    LIMIT = "a limit of its own"
    DIFFERS = "differs"
    NOT_PENDING = "the pod was not pending"
    GAP = "in a gap of the recording"


NOT_JUDGED = frozenset({Match.NOT_PENDING, Match.GAP})
"""The results of decisions that were not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionVerdict:
    """The result of a comparison; `expected` is the recorded decision, `got` the scheduler's."""

    match: Match
    expected: str
    got: str

    @property
    def agrees(self) -> bool:
        """Return whether the decisions agree."""
        return self.match is not Match.DIFFERS and self.match not in NOT_JUDGED


def compare_decision(
    decision: RecordedDecision,
    evaluation: scheduler_pb2.Evaluation,
    terminating: Collection[str] = (),
) -> DecisionVerdict:
    """Compare a decision with the scheduler's evaluation in its state.

    `terminating` has the UIDs of pods that were being deleted at that time; a preemption waits for
    these pods, but does not delete them again.
    """
    return DecisionVerdict(
        match=_match(decision, evaluation, terminating),
        expected=_recorded(decision),
        got=_got(evaluation, terminating),
    )


def _match(
    decision: RecordedDecision, evaluation: scheduler_pb2.Evaluation, terminating: Collection[str]
) -> Match:
    match decision.kind:
        case DecisionKind.BIND:
            return _bind_match(decision.node, evaluation)
        case DecisionKind.PREEMPTION:
            agrees = _same_victims(decision, evaluation, terminating)
            if agrees and decision.message:
                agrees = (
                    message_reasons(decision.message).filters
                    == message_reasons(evaluation.fit_error).filters
                )
            return Match.VICTIMS if agrees else Match.DIFFERS
        case DecisionKind.FAILURE:
            same = not evaluation.host and message_reasons(decision.message) == message_reasons(
                message(evaluation)
            )
            return Match.NO_NODE if same and not evaluation.preemption.picked else Match.DIFFERS
        case DecisionKind.EVICTION:
            raise AssertionError("evictions are not the scheduler's decisions")


def _bind_match(node: str, evaluation: scheduler_pb2.Evaluation) -> Match:
    if (
        evaluation.fast_path == scheduler_pb2.FAST_PATH_NOMINATED_NODE
        or evaluation.feasible_nodes == 1
    ):
        return Match.ONE_NODE if evaluation.host == node else Match.DIFFERS
    if node not in evaluation.best_nodes:
        return Match.DIFFERS
    return Match.UNIQUE_BEST if len(evaluation.best_nodes) == 1 else Match.TIED


def _same_victims(
    decision: RecordedDecision, evaluation: scheduler_pb2.Evaluation, terminating: Collection[str]
) -> bool:
    preemption = evaluation.preemption
    if decision.node != preemption.picked and decision.node not in preemption.picked_ties:
        return False
    if decision.victims is None:
        return True
    return list(decision.victims) == victims_on(evaluation, decision.node, terminating)


def victims_on(
    evaluation: scheduler_pb2.Evaluation, node: str, terminating: Collection[str]
) -> list[str]:
    """Return the pods that would be deleted on that node, as NAMESPACE/NAME, sorted."""
    return sorted(
        f"{victim.pod.namespace}/{victim.pod.name}"
        for candidate in evaluation.preemption.candidates
        if candidate.node_name == node
        for victim in candidate.victims
        if victim.pod.uid not in terminating
    )


def message(evaluation: scheduler_pb2.Evaluation) -> str:
    """Return the message of a failed attempt, as kube-scheduler writes it."""
    text = evaluation.preemption.message
    return f"{evaluation.fit_error} {text}" if text else evaluation.fit_error


def _recorded(decision: RecordedDecision) -> str:
    match decision.kind:
        case DecisionKind.BIND:
            return f"bound to {decision.node}"
        case DecisionKind.PREEMPTION:
            return f"nominated to {decision.node}{_victims(decision.victims)}"
        case DecisionKind.FAILURE | DecisionKind.EVICTION:
            return decision.message


def _got(evaluation: scheduler_pb2.Evaluation, terminating: Collection[str]) -> str:
    preemption = evaluation.preemption
    if evaluation.error:
        return f"error: {evaluation.error}"
    if evaluation.host:
        best = [evaluation.host] if evaluation.fast_path else evaluation.best_nodes
        shown = ", ".join(best[:4]) + (", ..." if len(best) > 4 else "")
        return f"bound to {shown} ({len(best)} best of {evaluation.feasible_nodes} feasible)"
    if preemption.picked:
        names = victims_on(evaluation, preemption.picked, terminating)
        ties = f" ({len(preemption.picked_ties)} equal nodes)" if preemption.picked_ties else ""
        return f"nominated to {preemption.picked}{_victims(names)}{ties}"
    return message(evaluation)


def _victims(names: Collection[str] | None) -> str:
    if names is None:
        return ""
    return f" over {', '.join(names)}" if names else " without a new victim"


@dataclass(frozen=True, slots=True)
class MessageReasons:
    """The reasons in a message with their numbers of nodes: from filters, and from preemption."""

    filters: frozenset[tuple[str, int]]
    preemption: frozenset[tuple[str, int]]


def message_reasons(message: str) -> MessageReasons:
    """Return the reasons in a failed attempt's message; their order does not matter.

    So that messages of different versions compare equal, all reasons about single taints count as
    one reason, and DynamicResources' texts about claims are left out (both changed after v1.34).
    Source: kubernetes v1.34 pkg/scheduler/framework/types.go, FitError.Error: "0/N nodes are
    available: COUNT REASON, ... ." and then PostFilter's message.
    """
    text, mark, rest = message.partition(PREEMPTION_MARK)
    return MessageReasons(_reasons(text), _reasons(rest) if mark else frozenset())


def _reasons(text: str) -> frozenset[tuple[str, int]]:
    """Return the number of nodes by reason, and the total under "nodes"."""
    counts = Counter[str]()
    for reason, nodes in counted_reasons(text):
        counts[_TAINTS if _TAINT.fullmatch(reason) else reason] += nodes
    if match := _FIT.match(text.strip()):
        counts["nodes"] = int(match[1])
    return frozenset(counts.items())


def counted_reasons(text: str) -> Iterator[tuple[str, int]]:
    """Yield the reasons of a fit error, each with its number of nodes.

    A reason that does not concern single nodes has the number 0: PreFilter's message, or a text
    that is not a fit error. DynamicResources' texts about claims are left out.
    """
    text = _CLAIMS.sub("", text).strip().removesuffix(".")
    match = _FIT.fullmatch(text)
    for part in filter(None, [text] if match is None else _NEXT.split(match[2])):
        count, _, reason = part.partition(" ")
        yield (reason, int(count)) if match and count.isdecimal() else (part, 0)
