"""What flipped a decision: the plugin, criterion or threshold by which two runs part.

Both runs are told again up to the decision (replay.explain), and what was said of the nodes in
question is laid side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from replay.explain.explain import explain
from replay.explain.explanation import Candidate, Explanation, Preemption
from replay.explain.target import Wish, attempt_of
from replay.results.durations import simulated
from replay.results.errors import RunError
from replay.results.run_directory import RunDirectory
from replay.whatif.divergence import Divergence, start_ns
from replay.whatif.facts import PodFacts, RunFacts
from reprieve.trace.v1alpha1 import trace_pb2
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
        return list(_order(a, b, _key(one), _key(other)))
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
            f"All scores are the same: {a.tied_nodes} nodes tie in A and {b.tied_nodes} in B, and "
            "the seed decides among them."
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


def _order(a: Side, b: Side, key_a: str, key_b: str) -> Iterator[str]:
    """Tell why the runs come to different pods at the same place of their logs."""
    yield f"A comes to {key_a} there, and B to {key_b}."
    for key in (key_a, key_b):
        yield from _order_of(a, b, key)


def _order_of(a: Side, b: Side, key: str) -> Iterator[str]:
    """Tell whether a pod has another priority, or is missing."""
    one, other = a.facts.pods.get(key), b.facts.pods.get(key)
    if one is None or other is None:
        yield f"Only {'B' if one is None else 'A'} has the pod {key}."
    elif one.priority != other.priority:
        yield f"The priority of {key} is {_priority(one)} in A and {_priority(other)} in B."


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


def _priority(pod: PodFacts) -> str:
    return f"{pod.priority:,}"
