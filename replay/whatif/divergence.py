"""The first decision in which two runs differ, and why: plugin, criterion or threshold.

Both runs are replayed up to that decision (replay.explain), and the verdicts about the nodes in
question are compared. Where only one run's scheduler can be started again, as with another one at
an address, its rules judge both choices (replay.whatif.rival).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from replay.errors import RunError
from replay.explain.explain import explain
from replay.explain.explanation import NodeCandidate, PodExplanation, PreemptionReason
from replay.explain.target import ExplainQuery, attempt_of
from replay.results.durations import simulated
from replay.results.run.directory import RunDirectory
from replay.whatif.causes import (
    Moment,
    given_differences,
    moment_of,
    node_differences,
    node_pod_differences,
    pod_differences,
)
from replay.whatif.decisions import identity, sentence_of
from replay.whatif.facts import RunFacts
from replay.whatif.inputs import input_changes, override_differences
from replay.whatif.rival import RivalChoice
from replay.whatif.window import start_ns, time_of
from reprieve.trace.v1beta1 import trace_pb2
from services.config.kubelet import read_kubelet_configuration
from services.rpc.local import PREFIX
from services.typed import DataError

_ALL = 100_000
"""Nodes and groups that explanations hold here: in effect all."""

_ABOUT_GROUPS = frozenset({"scaled_up", "node_provisioned", "node_removal", "no_scale_up"})
"""Decisions about node groups, by their fields of Observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first decisions that differ; None if a run has no further one.

    same: the number of equal decisions before.
    """

    a: trace_pb2.Decision | None
    b: trace_pb2.Decision | None
    same: int


def first_divergence(a: RunDirectory, b: RunDirectory) -> Divergence | None:
    """Return the first decisions that differ, None if all are the same.

    Decisions are the same if they are of one kind about one object (by namespace and name) at one
    time since the run's beginning. Messages, scores and ties are not compared.
    """
    pairs = itertools.zip_longest(_identified(a), _identified(b), fillvalue=(None, None))
    for same, ((what_a, one), (what_b, other)) in enumerate(pairs):
        if what_a != what_b:
            return Divergence(a=one, b=other, same=same)
    return None


def _identified(run: RunDirectory) -> Iterator[tuple[Hashable, trace_pb2.Decision]]:
    begin_ns = start_ns(run)
    for decision in run.decisions():
        yield identity(decision, begin_ns), decision


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """One of the two runs, with its facts and its first decision that differs."""

    name: str
    run: RunDirectory
    facts: RunFacts
    decision: trace_pb2.Decision | None


def divergence_reasons(divergence: Divergence, a: ComparedRun, b: ComparedRun) -> list[str]:
    """Return why the decisions differ, as sentences, the most relevant first.

    Raises BackendError if the services that explain cannot be started or reached.
    """
    one, other = divergence.a, divergence.b
    for ended, goes_on in ((a, b), (b, a)):
        if ended.decision is None and (stopped := _stopped_before(ended, goes_on)):
            return [stopped]
    sides = _rivals(a, b)
    if sides is not None:
        reasons = _by_judge(*sides)
        if reasons:
            return reasons
    pivot = _only_preemption(one, other)
    if pivot is not None and sides is None:
        return list(_preemption_in_both(a, b, pivot))
    first = first_of(divergence, a.facts.start_ns, b.facts.start_ns)
    for side, decision in ((a, one), (b, other)):
        if decision is not None and decision is first and decision.observed.HasField("evicted"):
            return _or_unknown(_eviction(side, b if side is a else a, decision), a, b, first)
        if decision is not None and decision is first and decision.observed.HasField("oom_killed"):
            return _or_unknown(_oom_kill(side, b if side is a else a, decision), a, b, first)
    if _is_pressure(first):
        differences = [*_threshold_differences(a, b), *_usage_differences(a, b)]
        return _or_unknown(differences or _of_use(a, b, first), a, b, first)
    if one is not None and other is not None and _are_one_attempt(one, other, a, b):
        try:
            found_a, found_b = _explained(a, one), _explained(b, other)
        except RunError as error:
            return [f"It cannot be explained: {error}."]
        return list(_scheduling(found_a, found_b))
    return [*_context(a, b, one, other), *_or_unknown(_of_objects(a, b, first), a, b, first)]


def _rivals(a: ComparedRun, b: ComparedRun) -> tuple[ComparedRun, ComparedRun] | None:
    """Return the run whose scheduler can be started again, and the other one, whose cannot.

    None where that is so of both or of neither: the run of a scheduler at an address is explained
    there alone.
    """
    addresses = [side.run.manifest().scheduler_address for side in (a, b)]
    elsewhere = [bool(address) and not address.startswith(PREFIX) for address in addresses]
    if elsewhere[0] == elsewhere[1]:
        return None
    return (b, a) if elsewhere[0] else (a, b)


def _by_judge(judge: ComparedRun, rival: ComparedRun) -> list[str]:
    """Return what the judge's rules say of the first decisions that differ; [] where nothing."""
    ours, theirs = judge.decision, rival.decision
    if ours is not None and theirs is not None and _are_one_attempt(ours, theirs, judge, rival):
        try:
            explained = _explained(judge, ours)
        except RunError as error:
            return [f"It cannot be explained: {error}."]
        choice = RivalChoice(
            judge=judge.name, rival=rival.name, explained=explained, decision=theirs
        )
        return list(choice.reasons())
    return [*_other_order(judge, rival), *_attempt_in_other_run(judge, rival)]


def _other_order(judge: ComparedRun, rival: ComparedRun) -> Iterator[str]:
    """Yield which of two pods that are tried at one time the queue's order puts first."""
    ours, theirs = judge.decision, rival.decision
    if ours is None or theirs is None or _kind(ours) not in _ATTEMPTS:
        return
    later_ns = (theirs.time_ns - rival.facts.start_ns) - (ours.time_ns - judge.facts.start_ns)
    if later_ns or _kind(theirs) not in _ATTEMPTS or _key(ours) == _key(theirs):
        return
    yield f"{judge.name} decides about {_key(ours)} then, and {rival.name} about {_key(theirs)}."
    first, second = (judge.facts.pods.get(_key(decision)) for decision in (ours, theirs))
    if first is not None and second is not None and first.priority > second.priority:
        priorities = f"{first.priority:,} and {second.priority:,}"
        yield f"PrioritySort puts the former first: their priorities are {priorities}."


def _attempt_in_other_run(judge: ComparedRun, rival: ComparedRun) -> Iterator[str]:
    """Yield when each run decides about the pod that the other one tries first."""
    for side, other in ((judge, rival), (rival, judge)):
        decision, beside = side.decision, other.decision
        if decision is None or _kind(decision) not in _ATTEMPTS:
            continue
        offset_ns = decision.time_ns - side.facts.start_ns
        if beside is not None and beside.time_ns - other.facts.start_ns < offset_ns:
            continue
        following = _next_attempt(other, decision)
        if following is None:
            yield f"{other.name} does not decide about {_key(decision)} from then on."
        else:
            at = simulated(following.time_ns - other.facts.start_ns)
            yield f"{other.name} {sentence_of(following)} at {at}."


def _next_attempt(side: ComparedRun, before: trace_pb2.Decision) -> trace_pb2.Decision | None:
    """Return a run's first attempt of a pod from its decision that differs on, None without one."""
    since = side.decision.sequence if side.decision is not None else None
    for decision in side.run.decisions():
        is_later = since is not None and decision.sequence >= since
        if is_later and _kind(decision) in _ATTEMPTS and _key(decision) == _key(before):
            return decision
    return None


def _context(
    a: ComparedRun, b: ComparedRun, one: trace_pb2.Decision | None, other: trace_pb2.Decision | None
) -> Iterator[str]:
    """Yield how the two decisions relate to each other."""
    if one is None or other is None:
        return
    later_ns = (other.time_ns - b.facts.start_ns) - (one.time_ns - a.facts.start_ns)
    if _key(one) != _key(other):
        if not later_ns:
            yield f"A decides about {_key(one)} then, and B about {_key(other)}."
    elif later_ns and one.observed.WhichOneof("observed") == other.observed.WhichOneof("observed"):
        sooner = "later" if later_ns > 0 else "earlier"
        yield f"B decides about it {simulated(abs(later_ns))} {sooner} than A."


def first_of(divergence: Divergence, start_a_ns: int, start_b_ns: int) -> trace_pb2.Decision:
    """Return the earlier one of the decisions that differ; A's where both are of one time."""
    one, other = divergence.a, divergence.b
    assert one is not None or other is not None  # noqa: S101 - a divergence has a decision
    if one is None or other is None:
        return one or other  # type: ignore[return-value] # one of them is there
    return other if other.time_ns - start_b_ns < one.time_ns - start_a_ns else one


def _is_pressure(decision: trace_pb2.Decision) -> bool:
    return decision.observed.condition_changed.type.endswith("Pressure")


_ATTEMPTS = ("scheduled", "failed_scheduling", "nominated")


def _are_one_attempt(
    one: trace_pb2.Decision, other: trace_pb2.Decision, a: ComparedRun, b: ComparedRun
) -> bool:
    """Return whether both are scheduling decisions about one pod at one time."""
    kinds = (decision.observed.WhichOneof("observed") for decision in (one, other))
    later_ns = (other.time_ns - b.facts.start_ns) - (one.time_ns - a.facts.start_ns)
    return all(kind in _ATTEMPTS for kind in kinds) and _key(one) == _key(other) and not later_ns


def _of_objects(a: ComparedRun, b: ComparedRun, first: trace_pb2.Decision) -> Iterator[str]:
    """Yield what differs about the object of the first difference, and about that of the other.

    The objects are those just before; where nothing differs then, what changed at that very moment
    and is not the decision's own effect.
    """
    side = a if first is a.decision else b
    offset_ns = first.time_ns - side.facts.start_ns
    is_found = False
    for until_ns, is_before in ((offset_ns - 1, True), (offset_ns, False)):
        moment_a, moment_b = (
            moment_of(run.name, run.run, run.facts.start_ns, until_ns) for run in (a, b)
        )
        for decision in (first, b.decision if side is a else a.decision):
            if decision is None or is_found:
                continue
            ref = decision.observed.object
            if ref.kind == "Node":
                texts = _of_node(a, b, (moment_a, moment_b) if is_before else None, ref.name)
            elif is_before:
                texts = pod_differences(moment_a, moment_b, _key(decision))
            else:
                texts = given_differences(moment_a, moment_b, _key(decision))
            for text in texts:
                is_found = True
                yield text
        if is_found:
            return


def _of_node(
    a: ComparedRun, b: ComparedRun, before: tuple[Moment, Moment] | None, name: str
) -> Iterator[str]:
    """Yield what differs about a node before the difference, or what an override does to nodes."""
    if before is not None:
        yield from node_differences(*before, name)
    else:
        manifests = a.run.manifest(), b.run.manifest()
        yield from override_differences(*manifests, ("fail", "drain", "apply"))


def _of_autoscaler(a: ComparedRun, b: ComparedRun, first: trace_pb2.Decision) -> Iterator[str]:
    """Yield that the node groups differ, where the first difference is a decision about them."""
    if first.observed.WhichOneof("observed") not in _ABOUT_GROUPS:
        return
    files = [run.run.manifest().configuration.get("autoscaler") for run in (a, b)]
    if files[0] != files[1]:
        without = " and ".join(name for name, file in zip("AB", files, strict=True) if not file)
        yield (
            f"{without} has no --autoscaler."
            if without
            else "The node groups, or the autoscaler's flags, differ: A and B have other files of "
            "--autoscaler."
        )


def _or_unknown(
    reasons: Iterable[str], a: ComparedRun, b: ComparedRun, first: trace_pb2.Decision
) -> list[str]:
    """Return reasons; where there are none, that the cause is not known, and what inputs differ."""
    sentences = list(reasons) or list(_of_autoscaler(a, b, first))
    if sentences:
        return sentences
    observed = first.observed
    key = f"{observed.object.namespace}/{observed.object.name}".lstrip("/")
    manifests = a.run.manifest(), b.run.manifest()
    overrides = list(override_differences(*manifests))
    names = [name for name, *_ in input_changes(*manifests) if not name.startswith("overrides ")]
    if names:
        overrides.append(f"Other inputs that differ: {', '.join(names)}.")
    nothing = f"nothing that the runs record of {key} differs before"
    return [f"The cause is not known: {nothing}.", *overrides]


def _stopped_before(run: ComparedRun, other: ComparedRun) -> str:
    """Return when and why a run was stopped, "" if not before the other's next decision."""
    time, decision = time_of(run.run), other.decision
    is_before = decision is not None and time.length_ns < decision.time_ns - other.facts.start_ns
    if not (time.stopped and is_before):
        return ""
    return f"{run.name} ends at {simulated(time.length_ns)}: {time.stopped}."


def _only_preemption(
    one: trace_pb2.Decision | None, other: trace_pb2.Decision | None
) -> trace_pb2.Decision | None:
    """Return the nomination that only one run has after equal failed attempts."""
    for decision, beside in ((one, other), (other, one)):
        if decision is None:
            continue
        nominated = decision.observed.nominated
        if not nominated.node_name or nominated.expected:
            continue
        if beside is None or _key(beside) != _key(decision):
            return decision
    return None


def _preemption_in_both(a: ComparedRun, b: ComparedRun, pivot: trace_pb2.Decision) -> Iterator[str]:
    """Yield how preemption for one pod differs between the runs."""
    explanations = []
    for side in (a, b):
        offset_ns = max(0, pivot.time_ns - side.facts.start_ns)
        try:
            explanations.append(
                explain(side.run, ExplainQuery(pod=_key(pivot), offset_ns=offset_ns), top=_ALL)
            )
        except RunError as error:
            yield f"It cannot be explained in {side.name}: {error}."
            return
    yield from _priority_differences(a, b, _key(pivot))
    yield from preemption_differences(explanations[0].preemption, explanations[1].preemption)


def _explained(side: ComparedRun, decision: trace_pb2.Decision) -> PodExplanation:
    uid, attempt = decision.observed.object.uid, attempt_of(decision)
    offset_ns = None if attempt else decision.time_ns - side.facts.start_ns
    query = ExplainQuery(pod=uid, attempt=attempt, offset_ns=offset_ns)
    return explain(side.run, query, top=_ALL)


def _scheduling(a: PodExplanation, b: PodExplanation) -> Iterator[str]:
    if a.node and b.node and a.node != b.node and a.decision == b.decision == "scheduled":
        sentences = [_missing(a.node, b, "B"), _missing(b.node, a, "A")]
        missing = [sentence for sentence in sentences if sentence]
        yield from missing or _scores(a, b)
        return
    if a.decision == "scheduled" or b.decision == "scheduled":
        bound, other, name = (a, b, "B") if a.decision == "scheduled" else (b, a, "A")
        yield _missing(bound.node, other, name) or (
            f"In {name} node {bound.node} fits too, but was not chosen: {other.message}"
        )
        return
    yield from preemption_differences(a.preemption, b.preemption)


def _missing(node: str, explained: PodExplanation, name: str) -> str:
    """Return why a run did not choose a node, "" if the node fits."""
    if any(candidate.name == node for candidate in explained.best):
        return ""
    for group in explained.refused:
        if node in group.nodes:
            reasons = "; ".join(group.reasons)
            return f"In {name} plugin {group.plugin} refused node {node}: {reasons}."
    return f"{name} has no node {node}."


def _scores(a: PodExplanation, b: PodExplanation) -> Iterator[str]:
    """Yield the plugins whose scores favour the other node."""
    nodes_a = {candidate.name: candidate for candidate in a.best}
    nodes_b = {candidate.name: candidate for candidate in b.best}
    changes: list[tuple[float, str]] = []
    plugins = dict.fromkeys([*nodes_a[a.node].scores, *nodes_b[b.node].scores])
    for plugin in plugins:
        leads = []
        for nodes in (nodes_a, nodes_b):
            taken, rejected = nodes[a.node].scores.get(plugin), nodes[b.node].scores.get(plugin)
            leads.append((taken.weighted if taken else 0) - (rejected.weighted if rejected else 0))
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
            f"Both nodes have equal scores in each run: {a.tied_nodes} nodes tie in A and "
            f"{b.tied_nodes} in B, and the tie-break decides."
        )


def preemption_differences(a: PreemptionReason | None, b: PreemptionReason | None) -> Iterator[str]:
    """Yield how two preemptions for one pod differ."""
    if a is None or b is None or a.disabled or b.disabled:
        able = "B" if a is None or a.disabled else "A"
        yield f"Preemption was tried only in {able}."
        return
    if a.ineligible != b.ineligible:
        mine, theirs = ((side.ineligible or "yes").rstrip(".") for side in (a, b))
        yield f"Eligible to preempt: A {mine}; B {theirs}."
        return
    by_a = {candidate.node: candidate for candidate in a.candidates}
    by_b = {candidate.node: candidate for candidate in b.candidates}
    for picked, other, name in ((a.picked, by_b, "B"), (b.picked, by_a, "A")):
        if picked and picked not in other:
            refusals = (b if name == "B" else a).no_candidates
            why = next(("; ".join(g.reasons) for g in refusals if picked in g.nodes), "unknown")
            yield f"In {name} node {picked} is not a candidate: {why}."
    for node in dict.fromkeys(picked for picked in (a.picked, b.picked) if picked):
        if node in by_a and node in by_b:
            yield from _candidates(node, by_a[node], by_b[node])
    if a.decided_by != b.decided_by:
        yield f"Deciding criterion: A {a.decided_by or 'none'}, B {b.decided_by or 'none'}."


def _candidates(node: str, a: NodeCandidate, b: NodeCandidate) -> Iterator[str]:
    one, other = a.budget_violations, b.budget_violations
    if one != other:
        yield f"On {node} the number of budget violations is {one:,} in A and {other:,} in B."
    mine, theirs = (
        Counter(victim.priority for victim in candidate.victims) for candidate in (a, b)
    )
    if mine != theirs:
        changed = f"{_by_priority(mine)} in A and {_by_priority(theirs)} in B"
        yield f"On {node} the victims are {changed}."


def _by_priority(victims: Counter[int]) -> str:
    counts = [f"{count:,} of {priority:,}" for priority, count in sorted(victims.items())[::-1]]
    return " and ".join(counts) or "none"


def _priority_differences(a: ComparedRun, b: ComparedRun, key: str) -> Iterator[str]:
    """Yield whether a pod has another priority in B, or is missing in a run."""
    one, other = a.facts.pods.get(key), b.facts.pods.get(key)
    if one is None or other is None:
        yield f"Only {'B' if one is None else 'A'} has pod {key}."
    elif one.priority != other.priority:
        yield f"The priority of {key} is {one.priority:,} in A and {other.priority:,} in B."


def _eviction(side: ComparedRun, other: ComparedRun, decision: trace_pb2.Decision) -> Iterator[str]:
    evicted = decision.observed.evicted
    signal = evicted.signal or "a limit on local storage"
    seen = f", {evicted.available:,} available" if evicted.HasField("available") else ""
    yield f"{side.name} met the threshold {evicted.threshold or signal}{seen}."
    differences: list[str] = []
    if evicted.signal:
        differences += _threshold_differences(side, other, evicted.signal)
    differences += _usage_differences(side, other)
    yield from differences or _of_use_or_unknown(side, other, decision)


def _oom_kill(side: ComparedRun, other: ComparedRun, decision: trace_pb2.Decision) -> Iterator[str]:
    killed = decision.observed.oom_killed
    limit = _LIMITS.get(killed.limit_of, "the limit")
    yield (
        f"In {side.name} container {killed.container} used {killed.usage_bytes:,} bytes and "
        f"{limit} is {killed.limit_bytes:,}."
    )
    usage = list(_usage_differences(side, other))
    yield from usage or _of_use_or_unknown(side, other, decision)


_LIMITS = {
    "container": "its limit",
    "pod": "its pod's limit",
    "kubepods": "the limit of all pods of the node",
    "node": "the capacity of the node",
}


def _of_use(side: ComparedRun, other: ComparedRun, decision: trace_pb2.Decision) -> Iterator[str]:
    """Yield what makes a pod or a node use more in one run: limits, requests, pods on the node."""
    a, b = (side, other) if side.name == "A" else (other, side)
    holder = a if decision is a.decision else b
    offset_ns = decision.time_ns - holder.facts.start_ns - 1
    before = [moment_of(run.name, run.run, run.facts.start_ns, offset_ns) for run in (a, b)]
    observed = decision.observed
    if observed.object.kind == "Node":
        yield from node_pod_differences(before[0], before[1], observed.object.name)
        yield from node_differences(before[0], before[1], observed.object.name)
        return
    yield from pod_differences(before[0], before[1], _key(decision))
    name = observed.evicted.node_name or observed.oom_killed.node_name
    yield from node_pod_differences(before[0], before[1], name)


def _of_use_or_unknown(
    side: ComparedRun, other: ComparedRun, decision: trace_pb2.Decision
) -> list[str]:
    unknown = f"Why {other.name} did not is not known: nothing else that the runs record differs."
    return list(_of_use(side, other, decision)) or [unknown]


def _threshold_differences(
    side: ComparedRun, other: ComparedRun, signal: str = ""
) -> Iterator[str]:
    for name, field in (("hard", "evictionHard"), ("soft", "evictionSoft")):
        mine, theirs = _thresholds(side.run, name), _thresholds(other.run, name)
        for named in [signal] if signal else sorted({*mine, *theirs}):
            if mine.get(named) != theirs.get(named):
                yield (
                    f"{field} of {named} is {mine.get(named, 'not set')} in {side.name} and "
                    f"{theirs.get(named, 'not set')} in {other.name}."
                )


def _usage_differences(side: ComparedRun, other: ComparedRun) -> Iterator[str]:
    a, b = (side, other) if side.name == "A" else (other, side)
    yield from override_differences(a.run.manifest(), b.run.manifest(), ("usage",))


def _thresholds(run: RunDirectory, name: str) -> dict[str, str]:
    text = str(run.manifest().configuration.get("kubelet_configuration", ""))
    default = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    try:
        eviction = read_kubelet_configuration(text or default).eviction
    except DataError:
        return {}
    return dict(eviction.hard if name == "hard" else eviction.soft)


def _kind(decision: trace_pb2.Decision) -> str:
    return decision.observed.WhichOneof("observed") or ""


def _key(decision: trace_pb2.Decision) -> str:
    return f"{decision.observed.object.namespace}/{decision.observed.object.name}".lstrip("/")
