"""The first decision in which two runs part, and what flipped it: plugin, criterion or threshold.

Both runs are told again up to the decision (replay.explain), and what was said of the nodes in
question is laid side by side.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from replay.errors import RunError
from replay.explain.explain import explain
from replay.explain.explanation import Candidate, Explanation, Preemption
from replay.explain.target import Wish, attempt_of
from replay.results.durations import simulated
from replay.results.run.directory import RunDirectory
from replay.whatif.facts import RunFacts
from reprieve.trace.v1beta1 import trace_pb2
from services.config.kubelet import read_kubelet_configuration
from services.typed import DataError

_ALL = 100_000
"""Nodes and groups of an explanation that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One run: where it is, what befell its pods, and its decision at the parting."""

    name: str
    run: RunDirectory
    facts: RunFacts
    decision: trace_pb2.Decision | None


def flipped_by(divergence: Divergence, a: Side, b: Side) -> list[str]:
    """Return what flipped the decision, as sentences, the most telling first.

    Raises BackendError where the services that explain cannot be had.
    """
    one, other = divergence.a, divergence.b
    pivot = _only_preemption(one, other)
    if pivot is not None:
        return list(_told_twice(a, b, pivot))
    if any(
        each is not None and each.observed.HasField("condition_changed") for each in (one, other)
    ):
        apart = [*_thresholds_apart(a, b), *_usage_apart(a, b)]
        return apart or ["Their thresholds are the same; usage is not."]
    if one is None or other is None:
        ended, goes_on = ("A", "B") if one is None else ("B", "A")
        return [f"{ended} has no further decision, {goes_on} goes on."]
    for side, decision in ((a, one), (b, other)):
        if decision.observed.HasField("evicted"):
            return list(_eviction(side, b if side is a else a, decision))
    if _key(one) != _key(other):
        keys = _key(one), _key(other)
        apart = [text for key in keys for text in _order_of(a, b, key)]
        return [f"A comes to {keys[0]} there, and B to {keys[1]}.", *apart]
    later_ns = (other.at_ns - b.facts.start_ns) - (one.at_ns - a.facts.start_ns)
    if later_ns:
        sooner = "later" if later_ns > 0 else "sooner"
        return [f"B comes to this pod {simulated(abs(later_ns))} {sooner} than A."]
    try:
        said_a, said_b = _explained(a, one), _explained(b, other)
    except RunError as error:
        return [f"It cannot be explained: {error}."]
    return list(_scheduling(said_a, said_b))


def _only_preemption(
    one: trace_pb2.Decision | None, other: trace_pb2.Decision | None
) -> trace_pb2.Decision | None:
    """Return the nomination that only one run has after the same failed attempt."""
    for decision, beside in ((one, other), (other, one)):
        if decision is None or not decision.observed.nominated.node_name:
            continue
        if beside is None or _key(beside) != _key(decision):
            return decision
    return None


def _told_twice(a: Side, b: Side, pivot: trace_pb2.Decision) -> Iterator[str]:
    """Tell what preemption came to for one pod in both runs."""
    found = []
    for side in (a, b):
        offset_ns = max(0, pivot.at_ns - start_ns(side.run))
        try:
            found.append(explain(side.run, Wish(pod=_key(pivot), offset_ns=offset_ns), top=_ALL))
        except RunError as error:
            yield f"It cannot be explained in {side.name}: {error}."
            return
    yield from _order_of(a, b, _key(pivot))
    yield from preemptions_apart(found[0].preemption, found[1].preemption)


def _explained(side: Side, decision: trace_pb2.Decision) -> Explanation:
    uid, attempt = decision.observed.object.uid, attempt_of(decision)
    offset_ns = None if attempt else decision.at_ns - start_ns(side.run)
    wish = Wish(pod=uid, attempt=attempt, offset_ns=offset_ns)
    return explain(side.run, wish, top=_ALL)


def _scheduling(a: Explanation, b: Explanation) -> Iterator[str]:
    if a.node and b.node and a.node != b.node and a.decision == b.decision == "scheduled":
        found = [_missing(a.node, b, "B"), _missing(b.node, a, "A")]
        told = [each for each in found if each]
        yield from told or _scores(a, b)
        return
    if a.decision == "scheduled" or b.decision == "scheduled":
        bound, other, name = (a, b, "B") if a.decision == "scheduled" else (b, a, "A")
        yield _missing(bound.node, other, name) or (
            f"In {name} node {bound.node} fitted too, but was not taken: {other.message}"
        )
        return
    yield from preemptions_apart(a.preemption, b.preemption)


def _missing(node: str, said: Explanation, name: str) -> str:
    """Return why a run did not take a node, "" where the node fitted."""
    if any(each.name == node for each in said.best):
        return ""
    for group in said.refused:
        if node in group.nodes:
            reasons = "; ".join(group.reasons)
            return f"In {name} plugin {group.plugin} refused node {node}: {reasons}."
    return f"In {name} there is no node {node}."


def _scores(a: Explanation, b: Explanation) -> Iterator[str]:
    """Tell whose score changed in favour of the other node."""
    nodes_a = {each.name: each for each in a.best}
    nodes_b = {each.name: each for each in b.best}
    changes: list[tuple[float, str]] = []
    plugins = dict.fromkeys([*nodes_a[a.node].scores, *nodes_b[b.node].scores])
    for plugin in plugins:
        leads = []
        for nodes in (nodes_a, nodes_b):
            taken, left = nodes[a.node].scores.get(plugin), nodes[b.node].scores.get(plugin)
            leads.append((taken.weighted if taken else 0) - (left.weighted if left else 0))
        if leads[0] != leads[1]:
            text = (
                f"Plugin {plugin} scored {a.node} {leads[0]:+,} against {b.node} in A and "
                f"{leads[1]:+,} in B."
            )
            changes.append((abs(leads[0] - leads[1]), text))
    for _, text in sorted(changes, reverse=True):
        yield text
    if not changes:
        yield (
            f"Each run scored the two nodes alike: {a.tied_nodes} nodes tie in A and "
            f"{b.tied_nodes} in B, and the tie-break decides among them."
        )


def preemptions_apart(a: Preemption | None, b: Preemption | None) -> Iterator[str]:
    """Tell by what two preemptions for one pod differ."""
    if a is None or b is None or a.disabled or b.disabled:
        able = "B" if a is None or a.disabled else "A"
        yield f"Only in {able} was preemption tried."
        return
    if a.ineligible != b.ineligible:
        mine, theirs = ((each.ineligible or "yes").rstrip(".") for each in (a, b))
        yield f"Whether the pod may preempt: A {mine}; B {theirs}."
        return
    by_a = {each.node: each for each in a.candidates}
    by_b = {each.node: each for each in b.candidates}
    for picked, other, name in ((a.picked, by_b, "B"), (b.picked, by_a, "A")):
        if picked and picked not in other:
            refusals = (b if name == "B" else a).no_candidates
            why = next(("; ".join(g.reasons) for g in refusals if picked in g.nodes), "it is none")
            yield f"In {name} node {picked} is no candidate: {why}."
    for node in dict.fromkeys(each for each in (a.picked, b.picked) if each):
        if node in by_a and node in by_b:
            yield from _candidates(node, by_a[node], by_b[node])
    if a.decided_by != b.decided_by:
        yield f"The criterion that picked: A {a.decided_by or 'none'}, B {b.decided_by or 'none'}."


def _candidates(node: str, a: Candidate, b: Candidate) -> Iterator[str]:
    one, other = a.budget_violations, b.budget_violations
    if one != other:
        yield f"On {node} the number of budget violations is {one:,} in A and {other:,} in B."
    mine, theirs = (Counter(each.priority for each in found.victims) for found in (a, b))
    if mine != theirs:
        told = f"{_by_priority(mine)} in A and {_by_priority(theirs)} in B"
        yield f"On {node} the victims are {told}."


def _by_priority(victims: Counter[int]) -> str:
    """Return how many victims there are of each priority, the highest first."""
    counts = [f"{count:,} of {priority:,}" for priority, count in sorted(victims.items())[::-1]]
    return " and ".join(counts) or "none"


def _order_of(a: Side, b: Side, key: str) -> Iterator[str]:
    """Tell whether a pod has another priority, or is missing."""
    one, other = a.facts.pods.get(key), b.facts.pods.get(key)
    if one is None or other is None:
        yield f"Only {'B' if one is None else 'A'} has the pod {key}."
    elif one.priority != other.priority:
        yield f"The priority of {key} is {one.priority:,} in A and {other.priority:,} in B."


def _eviction(side: Side, other: Side, decision: trace_pb2.Decision) -> Iterator[str]:
    evicted = decision.observed.evicted
    signal = evicted.signal or "a limit on local storage"
    seen = f", {evicted.available:,} available" if evicted.HasField("available") else ""
    yield f"{side.name} met the threshold {evicted.threshold or signal}{seen}."
    if not evicted.signal:
        return
    yield from _thresholds_apart(side, other, evicted.signal)
    yield from _usage_apart(side, other)


def _thresholds_apart(side: Side, other: Side, signal: str = "") -> Iterator[str]:
    """Tell the thresholds that differ, of one signal or of all."""
    for name, field in (("hard", "evictionHard"), ("soft", "evictionSoft")):
        mine, theirs = _thresholds(side.run, name), _thresholds(other.run, name)
        for each in [signal] if signal else sorted({*mine, *theirs}):
            if mine.get(each) != theirs.get(each):
                yield (
                    f"{field} of {each} is {mine.get(each, 'not set')} in {side.name} and "
                    f"{theirs.get(each, 'not set')} in {other.name}."
                )


def _usage_apart(side: Side, other: Side) -> Iterator[str]:
    """Tell what pods use in one run alone, by an override."""
    for each, beside in ((side, other), (other, side)):
        shared = _usage(beside.run)
        for text in _usage(each.run):
            if text not in shared:
                yield f"Only {each.name} has --usage '{text}'."


def _usage(run: RunDirectory) -> list[str]:
    overrides = run.manifest().configuration.get("overrides", {})
    return [str(each) for each in overrides.get("usage", ())]


def _thresholds(run: RunDirectory, name: str) -> dict[str, str]:
    text = str(run.manifest().configuration.get("kubelet_configuration", ""))
    default = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    try:
        eviction = read_kubelet_configuration(text or default).eviction
    except DataError:
        return {}
    return dict(eviction.hard if name == "hard" else eviction.soft)


def _key(decision: trace_pb2.Decision) -> str:
    return f"{decision.observed.object.namespace}/{decision.observed.object.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where two runs part; None where a run has no further decision. same: equal ones before."""

    a: trace_pb2.Decision | None
    b: trace_pb2.Decision | None
    same: int


def first_divergence(a: RunDirectory, b: RunDirectory) -> Divergence | None:
    """Return where the runs part, None where they decided the same.

    Decisions are the same where the same befell the same pod (by namespace and name) at the same
    time since the run's beginning. Words that count nodes are no decision, and neither are scores
    and ties.
    """
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
