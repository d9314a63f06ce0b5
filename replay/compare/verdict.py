"""One recorded decision against what a scheduler would decide in its place. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum

from replay.compare.recorded import Kind, RecordedDecision
from reprieve.scheduler.v1beta1 import scheduler_pb2

_FIT = re.compile(r"0/(\d+) nodes are available: ?(.*)", re.DOTALL)
# A reason may hold commas of its own; what begins with a count begins the next one.
_NEXT = re.compile(r", (?=\d+ )")
_TAINT = re.compile(r"node\(s\) had untolerated taint \{.*\}")
_TAINTS = "node(s) had untolerated taint(s)"
_CLAIMS = re.compile(r"(?:no new claims to deallocate|still not schedulable), ?")
PREEMPTION_MARK = "preemption: "
"""Stands before what a message says of preemption that did not help."""


class Ground(Enum):
    """Why the two agree, or that they differ.

    ONE_NODE: one node was feasible (or the nominated node was taken unscored). UNIQUE_BEST: one
    node scored best. TIED: the recorded node is among several that are exactly equal. VICTIMS: same
    node and victims. NO_NODE: both find none, for the same reasons. ALONE, FIRST, LIMIT: an
    eviction of the only pod that could go, of one that goes first whatever the others use, for a
    limit of the pod's own.
    NOT_PENDING: the recording does not show the pod as pending (of an eviction: on a node) then, so
    nothing was judged.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a recorded decision was judged; `expected` is the recording's, `got` the scheduler's."""

    ground: Ground
    expected: str
    got: str

    @property
    def agrees(self) -> bool:
        """Tell whether they agree."""
        return self.ground not in {Ground.DIFFERS, Ground.NOT_PENDING}


def judged(
    decision: RecordedDecision,
    found: scheduler_pb2.Evaluation,
    terminating: Collection[str] = (),
) -> Verdict:
    """Judge a decision by the verdicts found in its state.

    `terminating` are the UIDs of pods that were being deleted then: a preemption needs them gone,
    but deletes them no more.
    """
    return Verdict(
        ground=_ground(decision, found, terminating),
        expected=_recorded(decision),
        got=_got(found, terminating),
    )


def _ground(
    decision: RecordedDecision, found: scheduler_pb2.Evaluation, terminating: Collection[str]
) -> Ground:
    match decision.kind:
        case Kind.BIND:
            return _bind_ground(decision.node, found)
        case Kind.PREEMPTION:
            agrees = _same_victims(decision, found, terminating)
            if agrees and decision.message:
                agrees = told(decision.message).filters == told(found.fit_error).filters
            return Ground.VICTIMS if agrees else Ground.DIFFERS
        case Kind.FAILURE:
            same = not found.host and told(decision.message) == told(message(found))
            return Ground.NO_NODE if same and not found.preemption.picked else Ground.DIFFERS
        case Kind.EVICTION:
            raise AssertionError("no scheduler decides on evictions")


def _bind_ground(node: str, found: scheduler_pb2.Evaluation) -> Ground:
    if found.fast_path == scheduler_pb2.FAST_PATH_NOMINATED_NODE or found.feasible_nodes == 1:
        return Ground.ONE_NODE if found.host == node else Ground.DIFFERS
    if node not in found.best_nodes:
        return Ground.DIFFERS
    return Ground.UNIQUE_BEST if len(found.best_nodes) == 1 else Ground.TIED


def _same_victims(
    decision: RecordedDecision, found: scheduler_pb2.Evaluation, terminating: Collection[str]
) -> bool:
    preemption = found.preemption
    if decision.node != preemption.picked and decision.node not in preemption.picked_ties:
        return False
    if decision.victims is None:
        return True
    return list(decision.victims) == victims_on(found, decision.node, terminating)


def victims_on(
    found: scheduler_pb2.Evaluation, node: str, terminating: Collection[str]
) -> list[str]:
    """Return the pods, as NAMESPACE/NAME and sorted, whose deletion would be asked for there."""
    return sorted(
        f"{victim.pod.namespace}/{victim.pod.name}"
        for candidate in found.preemption.candidates
        if candidate.node_name == node
        for victim in candidate.victims
        if victim.pod.uid not in terminating
    )


def message(found: scheduler_pb2.Evaluation) -> str:
    """Return what a failed attempt would write, in kube-scheduler's words."""
    text = found.preemption.message
    return f"{found.fit_error} {text}" if text else found.fit_error


def _recorded(decision: RecordedDecision) -> str:
    match decision.kind:
        case Kind.BIND:
            return f"bound to {decision.node}"
        case Kind.PREEMPTION:
            return f"nominated to {decision.node}{_victims(decision.victims)}"
        case Kind.FAILURE | Kind.EVICTION:
            return decision.message


def _got(found: scheduler_pb2.Evaluation, terminating: Collection[str]) -> str:
    preemption = found.preemption
    if found.error:
        return f"error: {found.error}"
    if found.host:
        best = [found.host] if found.fast_path else found.best_nodes
        shown = ", ".join(best[:4]) + (", ..." if len(best) > 4 else "")
        return f"bound to {shown} ({len(best)} best of {found.feasible_nodes} feasible)"
    if preemption.picked:
        names = victims_on(found, preemption.picked, terminating)
        ties = f" ({len(preemption.picked_ties)} equal nodes)" if preemption.picked_ties else ""
        return f"nominated to {preemption.picked}{_victims(names)}{ties}"
    return message(found)


def _victims(names: Collection[str] | None) -> str:
    if names is None:
        return ""
    return f" over {', '.join(names)}" if names else " without a new victim"


@dataclass(frozen=True, slots=True)
class Told:
    """A message: what the filters said (nodes by reason), and what preemption said."""

    filters: frozenset[tuple[str, int]]
    preemption: frozenset[tuple[str, int]]


def told(message: str) -> Told:
    """Return what a failed attempt's message says, whatever the order of its reasons.

    Source: kubernetes v1.34 pkg/scheduler/framework/types.go, FitError.Error: "0/N nodes are
    available: COUNT REASON, ... ." with what PostFilter said behind it.
    Two changes after v1.34 are taken out of both: the texts of single taints are one reason, and
    what DynamicResources says of claims is left out.
    """
    text, mark, rest = message.partition(PREEMPTION_MARK)
    return Told(_reasons(text), _reasons(rest) if mark else frozenset())


def _reasons(text: str) -> frozenset[tuple[str, int]]:
    """Return the nodes by reason, and how many there are in all."""
    found = Counter[str]()
    for reason, nodes in counted_reasons(text):
        found[_TAINTS if _TAINT.fullmatch(reason) else reason] += nodes
    if match := _FIT.match(text.strip()):
        found["nodes"] = int(match[1])
    return frozenset(found.items())


def counted_reasons(text: str) -> Iterator[tuple[str, int]]:
    """Yield the reasons of a fit error with the nodes that each refused.

    What refused no node by itself is a reason of 0 nodes: PreFilter's words, or a text that is no
    fit error. What DynamicResources says of claims is left out.
    """
    text = _CLAIMS.sub("", text).strip().removesuffix(".")
    match = _FIT.fullmatch(text)
    for each in filter(None, [text] if match is None else _NEXT.split(match[2])):
        count, _, reason = each.partition(" ")
        yield (reason, int(count)) if match and count.isdecimal() else (each, 0)
