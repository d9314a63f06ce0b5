"""The first decision in which two runs part: both logs are read side by side, once.

Decisions are the same where the same befell the same pod (by namespace and name) at the same time
since the run's beginning. Words that count nodes are no decision, and neither are scores and ties.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from replay.results.run_directory import RunDirectory
from reprieve.trace.v1alpha1 import trace_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where two runs part; None where a run has no further decision. same: equal ones before."""

    a: trace_pb2.Decision | None
    b: trace_pb2.Decision | None
    same: int


def first_divergence(a: RunDirectory, b: RunDirectory) -> Divergence | None:
    """Return where the runs part, None where they decided the same."""
    pairs = itertools.zip_longest(_identified(a), _identified(b), fillvalue=(None, None))
    for same, ((what_a, one), (what_b, other)) in enumerate(pairs):
        if what_a != what_b:
            return Divergence(a=one, b=other, same=same)
    return None


def start_ns(run: RunDirectory) -> int:
    """Return when a run's history begins, 0 for an empty one."""
    return next((round_.at_ns for round_ in run.rounds()), 0)


def told(decision: trace_pb2.Decision) -> str:
    """Return a decision as a sentence's end, such as "bound default/web-0 to node-1"."""
    observed = decision.observed
    key = f"{observed.object.namespace}/{observed.object.name}".lstrip("/")
    match observed.WhichOneof("observed"):
        case "scheduled":
            text = f"bound {key} to {observed.scheduled.node_name}"
        case "nominated":
            victims = [f"{each.namespace}/{each.name}" for each in observed.nominated.victims]
            node = observed.nominated.node_name
            text = f"nominated {key} for {node}" if node else f"cleared the nomination of {key}"
            text += f", to preempt {', '.join(victims)}" if victims else ""
        case "preempted":
            by = observed.preempted.by
            text = f"preempted {key} for {by.namespace}/{by.name}"
        case "evicted":
            text = f"evicted {key} on {observed.evicted.node_name}"
        case "failed_scheduling":
            text = f"found no node for {key}"
        case "condition_changed":
            change = observed.condition_changed
            text = f"set {change.type} of node {key} to {change.status}"
        case case:
            text = f"had {key} {(case or 'changed').replace('_', ' ')}"
    return f"{text} (refused: {decision.refused})" if decision.refused else text


def _identified(run: RunDirectory) -> Iterator[tuple[Hashable, trace_pb2.Decision]]:
    begin_ns = start_ns(run)
    for decision in run.decisions():
        yield _identity(decision, begin_ns), decision


def _identity(decision: trace_pb2.Decision, begin_ns: int) -> Hashable:
    observed = decision.observed
    case = observed.WhichOneof("observed")
    named = (observed.object.kind, observed.object.namespace, observed.object.name)
    return (decision.at_ns - begin_ns, case, named, _detail(observed, case), bool(decision.refused))


def _detail(observed: trace_pb2.Observed, case: str | None) -> Hashable:
    match case:
        case "scheduled":
            return observed.scheduled.node_name
        case "nominated":
            victims = tuple((v.namespace, v.name) for v in observed.nominated.victims)
            return observed.nominated.node_name, victims
        case "preempted":
            return observed.preempted.node_name, observed.preempted.by.name
        case "evicted":
            return observed.evicted.node_name, observed.evicted.signal
        case "finished":
            return observed.finished.phase
        case "condition_changed":
            return observed.condition_changed.type, observed.condition_changed.status
    return ""
