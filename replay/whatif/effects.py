"""The first effect of a changed cluster that a user would notice, and its reasons.

Where an override changes the cluster itself (nodes that go, fail, are drained or cloned, manifests
that are applied), the first decision that differs is often one of order: a pod that fits nowhere in
both runs is tried later in one. So the fates of workloads and pods are compared instead, in the
order of EFFECTS. Of several workloads with the same effect the worst one is chosen, as the table of
workloads has them, of several pods the one with the earliest effect, then that of the highest
priority. DaemonSets come last, since their pods come and go with their nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from replay.results.durations import simulated
from replay.results.workloads.verdict import Shortfall, WorkloadVerdict, worst_first
from replay.whatif.causes import Moment, given_differences, moment_of
from replay.whatif.decisions import identity, sentence_of
from replay.whatif.divergence import ComparedRun, Divergence, divergence_reasons
from replay.whatif.facts import PodFacts, missing_pods
from replay.whatif.inputs import override_differences
from replay.whatif.policy import policy_differences
from replay.world.api.conditions import is_ready
from reprieve.trace.v1beta1 import trace_pb2

CLUSTER_OVERRIDES = ("drop_nodes", "scale_nodes", "drain", "fail", "apply")
"""Overrides that change the nodes or the objects of a cluster, as the manifest names them."""

BELOW_BUDGET, UNAVAILABLE = "below budget", "unavailable"
WITHOUT_NODE, DISRUPTED = "without a node", "disrupted"
BELOW_DESIRED, LOST_NODE = "below desired", "lost its node"
MOVED, ONLY_IN_ONE = "moved", "only in one run"
EFFECTS = (
    *(BELOW_BUDGET, UNAVAILABLE, WITHOUT_NODE, DISRUPTED),
    *(BELOW_DESIRED, LOST_NODE, MOVED, ONLY_IN_ONE),
)
"""The effects, the one that a person notices most first.

below budget, below desired: a workload, at some time of one run alone. unavailable: a workload with
more missing pods at the end of one run. without a node: a pod, when the first run is stopped.
disrupted: a pod that was preempted, evicted by its kubelet or OOM-killed. lost its node: a pod that
ran at the beginning, or when it was created, and was removed or bound elsewhere.
"""
_DISRUPTIONS = ("preempted", "evicted", "oom_killed")
_DECISIONS = {
    WITHOUT_NODE: ("scheduled", "failed_scheduling", *_DISRUPTIONS, "removed"),
    DISRUPTED: _DISRUPTIONS,
    LOST_NODE: ("scheduled", "removed"),
    MOVED: ("scheduled",),
}
"""The decisions about a pod in which each effect shows first."""
_LOSSES = ("failed_scheduling", "removed", "oom_killed", "evicted", "preempted")
"""Decisions that explain that a workload lacks a pod; the last ones say most."""
_WORSE: dict[str, Callable[[WorkloadVerdict], int]] = {
    BELOW_BUDGET: lambda verdict: bool(verdict.below_budget.times),
    UNAVAILABLE: lambda verdict: verdict.unavailable,
    BELOW_DESIRED: lambda verdict: bool(verdict.below.times),
}
"""How bad a workload's verdict is, for the effects on workloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The fate of a workload or a pod in A and in B.

    kind: one of EFFECTS. subject: such as "pod shop/web-0" or "Deployment shop/web". offset_ns:
    since the runs' beginnings. text_a, text_b: sentences without their subject, the run. reasons:
    sentences, the most relevant first.
    """

    kind: str
    subject: str
    offset_ns: int
    text_a: str
    text_b: str
    reasons: tuple[str, ...] = ()

    @property
    def moment(self) -> str:
        """Return the headline."""
        return f"Runs diverge at {simulated(self.offset_ns)}, in {self.subject}:"

    def to_mapping(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "offset_ns": self.offset_ns,
            "a": self.text_a,
            "b": self.text_b,
        }


def changes_cluster(a: ComparedRun, b: ComparedRun) -> bool:
    """Return whether the runs differ in an override that changes the cluster itself."""
    return any(override_differences(a.run.manifest(), b.run.manifest(), CLUSTER_OVERRIDES))


def first_effect(a: ComparedRun, b: ComparedRun, *, explains: bool) -> Effect | None:
    """Return the effect to name first, None if no workload and no pod has one.

    Reasons are left out unless `explains`. Raises BackendError if the services that explain
    cannot be started or reached.
    """
    return _EffectSearch(a, b, explains).first()


class _EffectSearch:
    def __init__(self, a: ComparedRun, b: ComparedRun, explains: bool) -> None:
        self._a, self._b, self._explains = a, b, explains
        self._one_policy = not any(policy_differences(a.run.manifest(), b.run.manifest()))
        self._end_ns = min(a.facts.length_ns, b.facts.length_ns)

    def first(self) -> Effect | None:
        pods = self._pods_by_effect()
        for kind in EFFECTS:
            effect = self._workload(kind) if kind in _WORSE else self._pod(kind, pods.get(kind, []))
            if effect is not None:
                return effect
        return None

    # Workloads

    def _workload(self, kind: str) -> Effect | None:
        all_a, all_b = self._a.facts.workloads, self._b.facts.workloads
        worse = _WORSE[kind]
        worst = worst_first(workload.verdict for workload in (all_a | all_b).values())
        for verdict in sorted(worst, key=lambda judged: judged.kind == "DaemonSet"):
            one, other = (
                held[verdict.key].verdict if verdict.key in held else None
                for held in (all_a, all_b)
            )
            levels = [worse(held) if held else 0 for held in (one, other)]
            if levels[0] != levels[1]:
                is_b = levels[1] > levels[0]
                return self._workload_effect(kind, one, other, is_b=is_b)
        return None

    def _workload_effect(
        self, kind: str, one: WorkloadVerdict | None, other: WorkloadVerdict | None, *, is_b: bool
    ) -> Effect:
        side, verdict = (self._b, other) if is_b else (self._a, one)
        assert verdict is not None  # noqa: S101 - the worse run has the workload
        beside = self._a if is_b else self._b
        offset_ns = _since_ns(kind, verdict, side, beside)
        texts = [
            f"has {verdict_of.sentence(run.facts.start_ns)}"
            if verdict_of
            else f"has no {verdict.key}"
            for run, verdict_of in ((self._a, one), (self._b, other))
        ]
        reasons = self._why_short(verdict, side, offset_ns) if self._explains else ()
        return Effect(
            kind=kind,
            subject=f"the ready pods of {verdict.key}",
            offset_ns=offset_ns,
            text_a=texts[0],
            text_b=texts[1],
            reasons=tuple(reasons),
        )

    def _why_short(self, verdict: WorkloadVerdict, side: ComparedRun, at: int) -> Iterator[str]:
        """Yield which pod of a workload is missing in run `side`, and why."""
        moments = self._moments(at)
        here, there = moments if side is self._a else moments[::-1]
        keys = [
            key
            for key, pod in self._all_pods().items()
            if (pod.kind, pod.namespace, pod.workload)
            == (verdict.kind, verdict.namespace, verdict.name)
        ]
        lost = [key for key in keys if _is_ready(there, key) and not _is_ready(here, key)]
        # Where the other run lacks as many, what waits here is looked at.
        lost = lost or [key for key in keys if here.pod(key) and not _is_ready(here, key)]
        losses = _last_losses(side, lost, at)
        if not lost:
            yield from self._without_pods(verdict, moments)
            return
        key = max(lost, key=lambda key: _LOSSES.index(_kind(losses[key])) if key in losses else -1)
        if key in losses:
            at_ns = losses[key].time_ns - side.facts.start_ns
            since = f"At {simulated(at_ns)} {side.name}" if at_ns != at else side.name
            yield f"{since} {_decided(losses[key])}."
        else:
            yield f"{side.name} {_state(here, key)}; {there.name} {_state(there, key)}."
        yield from self._because(key, side, losses.get(key), moments)

    def _without_pods(
        self, verdict: WorkloadVerdict, moments: tuple[Moment, Moment]
    ) -> Iterator[str]:
        """Yield why controllers could not create pods, and what differs about the workload."""
        for moment in moments:
            for owner, message in moment.refused_by_owner.items():
                if owner[1] == verdict.namespace and owner[2].startswith(verdict.name):
                    text = f"admission refused pods of {owner[0]} {owner[1]}/{owner[2]}: {message}"
                    yield f"In {moment.name} {text}."
        yield from self._overrides()

    # Pods

    def _all_pods(self) -> dict[str, PodFacts]:
        return self._a.facts.pods | self._b.facts.pods

    def _pods_by_effect(self) -> dict[str, list[str]]:
        keys: dict[str, list[str]] = {}
        for key in self._all_pods():
            for kind in self._kinds_of(key):
                keys.setdefault(kind, []).append(key)
        return keys

    def _kinds_of(self, key: str) -> Iterator[str]:
        """Yield the effects on a pod."""
        one, other = (run.facts.pods.get(key) for run in (self._a, self._b))
        waits = [
            pod is not None and run.facts.waits(pod, self._end_ns)
            for run, pod in ((self._a, one), (self._b, other))
        ]
        if waits[0] != waits[1]:
            yield WITHOUT_NODE
        if one is None or other is None:
            yield ONLY_IN_ONE
            return
        mine, theirs = one.counts.decisions, other.counts.decisions
        if any(mine[name] != theirs[name] for name in _DECISIONS[DISRUPTED]):
            yield DISRUPTED
        is_moved = self._one_policy and one.node != other.node
        if is_moved or any(mine[n] != theirs[n] for n in _DECISIONS[LOST_NODE]):
            yield LOST_NODE if one.ran_on or other.ran_on else MOVED

    def _pod(self, kind: str, keys: list[str]) -> Effect | None:
        """Return the earliest effect of a kind on one of these pods."""
        if not keys:
            return None
        if kind == ONLY_IN_ONE:
            return self._only_pod(keys)
        decisions = _DECISIONS[kind]
        for offset_ns, of_a, of_b in _instants(self._a, self._b, set(keys), decisions):
            if offset_ns > self._end_ns:
                return None
            changed = [
                key
                for key in dict.fromkeys([*of_a, *of_b])
                if [identity(decision, self._a.facts.start_ns) for decision in of_a.get(key, ())]
                != [identity(decision, self._b.facts.start_ns) for decision in of_b.get(key, ())]
            ]
            if changed:
                key = min(changed, key=self._order)
                one, other = (next(iter(held.get(key, ())), None) for held in (of_a, of_b))
                return self._pod_effect(kind, key, offset_ns, one, other)
        return None

    def _only_pod(self, keys: list[str]) -> Effect:
        def since_ns(key: str) -> int:
            side = self._a if key in self._a.facts.pods else self._b
            return side.facts.pods[key].created_ns - side.facts.start_ns

        key = min(keys, key=lambda key: (self._order(key)[0], since_ns(key), self._order(key)))
        return self._pod_effect(ONLY_IN_ONE, key, since_ns(key), None, None)

    def _order(self, key: str) -> tuple[bool, int, str]:
        pod = self._all_pods()[key]
        return pod.kind == "DaemonSet", -pod.priority, key

    def _pod_effect(
        self,
        kind: str,
        key: str,
        offset_ns: int,
        one: trace_pb2.Decision | None,
        other: trace_pb2.Decision | None,
    ) -> Effect:
        moments = self._moments(offset_ns)
        texts = [
            _decided(decision) if decision is not None else _state(moment, key)
            for moment, decision in zip(moments, (one, other), strict=True)
        ]
        reasons: Iterable[str] = ()
        if self._explains and one is not None and other is not None:
            reasons = self._explained(one, other, key, moments)
        elif self._explains:
            side = self._a if one is not None else self._b
            reasons = self._because(key, side, one or other, moments)
        return Effect(
            kind=kind,
            subject=f"pod {key}",
            offset_ns=offset_ns,
            text_a=texts[0],
            text_b=texts[1],
            reasons=tuple(reasons),
        )

    # Causes

    def _moments(self, offset_ns: int) -> tuple[Moment, Moment]:
        one, other = (
            moment_of(side.name, side.run, side.facts.start_ns, offset_ns)
            for side in (self._a, self._b)
        )
        return one, other

    def _explained(
        self,
        one: trace_pb2.Decision,
        other: trace_pb2.Decision,
        key: str,
        moments: tuple[Moment, Moment],
    ) -> Iterator[str]:
        """Yield why both runs decided otherwise about one pod at one time."""
        reasons = list(given_differences(*moments, key))
        if not reasons:
            a, b = replace(self._a, decision=one), replace(self._b, decision=other)
            reasons = divergence_reasons(Divergence(a=one, b=other, same=0), a, b)
        yield from reasons
        yield from (override for override in self._overrides() if override not in reasons)

    def _because(
        self,
        key: str,
        side: ComparedRun,
        loss: trace_pb2.Decision | None,
        moments: tuple[Moment, Moment],
    ) -> Iterator[str]:
        """Yield what differs about a pod that run `side` lost, or about its preemptor or node."""
        reasons: list[str] = []
        if loss is not None and _kind(loss) in ("evicted", "oom_killed"):
            reasons += self._of_usage(side, loss)
        if loss is not None and loss.observed.HasField("preempted"):
            by = loss.observed.preempted.by
            reasons += self._of_preemptor(f"{by.namespace}/{by.name}", moments)
        yield from reasons or given_differences(*moments, key)
        yield from self._overrides()

    def _of_usage(self, side: ComparedRun, loss: trace_pb2.Decision) -> list[str]:
        one, other = (loss if side is run else None for run in (self._a, self._b))
        a, b = replace(self._a, decision=one), replace(self._b, decision=other)
        return divergence_reasons(Divergence(a=one, b=other, same=0), a, b)

    def _of_preemptor(self, key: str, moments: tuple[Moment, Moment]) -> Iterator[str]:
        """Yield why a pod preempts in one run alone: what differs about it."""
        one, other = (moment.pod(key) for moment in moments)
        if one is None or other is None:
            yield f"Only {'B' if one is None else 'A'} has pod {key} at this time."
        elif one.spec.node_name != other.spec.node_name:
            places = (held.spec.node_name or "no node" for held in (one, other))
            yield "{} has {} in A and {} in B at this time.".format(key, *places)
        yield from given_differences(*moments, key)

    def _overrides(self) -> Iterator[str]:
        manifests = self._a.run.manifest(), self._b.run.manifest()
        yield from override_differences(*manifests, CLUSTER_OVERRIDES)


def _since_ns(kind: str, verdict: WorkloadVerdict, side: ComparedRun, beside: ComparedRun) -> int:
    """Return since when a workload is worse in run `side` than in the other, ns since the start."""
    if kind == UNAVAILABLE:
        return _lacks_more_since_ns(verdict.key, side, beside)
    times: Shortfall = verdict.below_budget if kind == BELOW_BUDGET else verdict.below
    return times.longest_from_ns - side.facts.start_ns


def _lacks_more_since_ns(key: str, side: ComparedRun, beside: ComparedRun) -> int:
    """Return since when a workload lacks more pods in a run than in the other, to the end.

    Both may lack pods before, for a reason that they share: it does not explain the difference.
    """
    missing, fewer = (missing_pods(run.run, key, run.facts.length_ns) for run in (side, beside))
    since_ns, here, there = None, 0, 0
    for offset_ns in sorted(missing | fewer):
        here, there = missing.get(offset_ns, here), fewer.get(offset_ns, there)
        if here <= there:
            since_ns = None
        elif since_ns is None:
            since_ns = offset_ns
    return side.facts.length_ns if since_ns is None else since_ns


def _is_ready(moment: Moment, key: str) -> bool:
    pod = moment.pod(key)
    return (
        pod is not None and not pod.metadata.HasField("deletion_timestamp") and is_ready(pod.status)
    )


def _state(moment: Moment, key: str) -> str:
    """Return the state of a pod in a run, as the end of a sentence that begins with the run."""
    pod = moment.pod(key)
    if pod is None:
        return f"has no pod {key}"
    if not pod.spec.node_name:
        return f"has {key} without a node"
    text = f"has {key} on {pod.spec.node_name}"
    if pod.metadata.HasField("deletion_timestamp"):
        return f"{text}, terminating"
    return text if _is_ready(moment, key) else f"{text}, not ready"


def _decided(decision: trace_pb2.Decision) -> str:
    """Return a decision as the end of a sentence, with the scheduler's reason where it failed."""
    message = decision.observed.failed_scheduling.message.split(" no new claims")[0]
    text = sentence_of(decision)
    return f"{text} ({message.rstrip('.')})" if message else text


def _kind(decision: trace_pb2.Decision) -> str:
    return decision.observed.WhichOneof("observed") or ""


def _key(decision: trace_pb2.Decision) -> str:
    return f"{decision.observed.object.namespace}/{decision.observed.object.name}"


def _last_losses(
    side: ComparedRun, keys: list[str], offset_ns: int
) -> dict[str, trace_pb2.Decision]:
    """Return the decision up to a moment that says most about the loss of each pod."""
    chosen, last_losses = set(keys), dict[str, trace_pb2.Decision]()
    for decision in side.run.decisions():
        if decision.time_ns > side.facts.start_ns + offset_ns:
            break
        key, kind = _key(decision), _kind(decision)
        if key in chosen and kind in _LOSSES and not decision.refused:
            before = last_losses.get(key)
            if before is None or _LOSSES.index(kind) >= _LOSSES.index(_kind(before)):
                last_losses[key] = decision
    return last_losses


_ByPod = dict[str, list[trace_pb2.Decision]]


def _instants(
    a: ComparedRun, b: ComparedRun, keys: set[str], kinds: tuple[str, ...]
) -> Iterator[tuple[int, _ByPod, _ByPod]]:
    """Yield the decisions of these kinds about pods, by pod, of each moment in both runs."""
    following = _moments_of(a, keys, kinds), _moments_of(b, keys, kinds)
    heads = [next(moments, None) for moments in following]
    while any(heads):
        offset_ns = min(head[0] for head in heads if head is not None)
        both: list[_ByPod] = []
        for number, head in enumerate(heads):
            if head is not None and head[0] == offset_ns:
                both.append(head[1])
                heads[number] = next(following[number], None)
            else:
                both.append({})
        yield offset_ns, both[0], both[1]


def _moments_of(
    side: ComparedRun, keys: set[str], kinds: tuple[str, ...]
) -> Iterator[tuple[int, _ByPod]]:
    chosen = (
        decision
        for decision in side.run.decisions()
        if _kind(decision) in kinds and not decision.refused and _key(decision) in keys
    )
    for at_ns, decisions in groupby(chosen, key=lambda decision: decision.time_ns):
        by_pod: _ByPod = {}
        for decision in decisions:
            by_pod.setdefault(_key(decision), []).append(decision)
        yield at_ns - side.facts.start_ns, by_pod
