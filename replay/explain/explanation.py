"""An explanation as values: what people are shown, and what -o json holds.

Lists that grow with the cluster are cut to what was asked for, and say beside them how many there
were. Times are ns since the Unix epoch; `offset_ns` from the run's first event on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.kube.v1beta1 import meta_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2

_CODES = {
    scheduler_pb2.VERDICT_CODE_ERROR: "Error",
    scheduler_pb2.VERDICT_CODE_UNSCHEDULABLE: "Unschedulable",
    scheduler_pb2.VERDICT_CODE_UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    scheduler_pb2.VERDICT_CODE_PENDING: "Pending",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What one plugin gave a node: as it came, from 0 to 100, and times the plugin's weight."""

    raw: int
    normalized: int
    weighted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that fits, with its total and each plugin's score."""

    name: str
    total: int
    scores: Mapping[str, Score]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """The best node that was not taken, and by how much it lost (0: the tie-break decided).

    `lost_by_plugin` is the taken node's weighted score less its own, where they differ.
    """

    name: str
    total: int
    lost_by: int
    lost_by_plugin: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedNodes:
    """Nodes that one plugin was the first to refuse for the same reasons; `nodes` are the first."""

    plugin: str
    code: str
    reasons: tuple[str, ...]
    count: int
    nodes: tuple[str, ...]
    by_pre_filter: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A pod that makes room."""

    pod: str
    priority: int
    violates_budget: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node where deleting pods lets the pod in, and what it is judged by.

    `reprieved` pods of lower priority may stay: with each of them back, most important first and
    those whose deletion violates a budget before all, the pod still fits. `sum_priorities` is
    upstream's criterion, which adds 2^31 to each victim's priority.
    """

    node: str
    victims: tuple[Victim, ...]
    reprieved: tuple[str, ...]
    budget_violations: int
    highest_priority: int
    sum_priorities: int
    earliest_start_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """What the preemptor found; `ineligible` is why the pod may not preempt.

    `candidates` are the best ones of `candidate_count`, the picked one first.
    """

    disabled: bool = False
    ineligible: str = ""
    message: str = ""
    picked: str = ""
    decided_by: str = ""
    tied: int = 0
    potential_nodes: int = 0
    candidate_count: int = 0
    candidates: tuple[Candidate, ...] = ()
    no_candidates: tuple[RefusedNodes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Where the pod stands in the queue at `at_ns`, and what moves it on.

    until_ns: end of the backoff; None where it waits for no time. leftover_ns: when the queue
    moves it even without an event; None where it stands elsewhere. fits_now: nodes that fit now.
    """

    at_ns: int
    sub_queue: str
    since_ns: int
    attempts: int
    until_ns: int | None
    leftover_ns: int | None
    plugins: tuple[str, ...]
    events: Mapping[str, tuple[str, ...]]
    gates: tuple[str, ...]
    fits_now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Afterwards:
    """Something that befell the pod later in the run."""

    at_ns: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPod:
    """A pod's place in the order of eviction.

    usage: of the scarce resource (bytes, inodes or process ids), None without statistics.
    """

    pod: str
    priority: int
    usage: int | None
    request: int
    exceeds_request: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """Why the pod's kubelet evicted it.

    signal: "" where a limit on local storage was exceeded; there is no threshold, observation or
    rank then. available and capacity: what was observed, None where unknown. rank: from 1 among
    `ranked_pods`, critical ones included; `ranking` are the first of them.
    """

    at_ns: int
    node: str
    signal: str
    threshold: str
    available: int | None
    capacity: int | None
    grace_period_s: int | None
    message: str
    rank: int
    ranked_pods: int
    ranking: tuple[RankedPod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why it came as it did.

    decision: "scheduled", "nominated", "unschedulable", "failed", "not tried", or "came bound",
    where only an eviction is explained. node: where to.
    message: kube-scheduler's words. refused_binding: why the cluster did not carry a binding out.
    gates: scheduling gates that hold the pod back where it was not tried.
    evaluated_nodes: those that the attempt looked at; 0 where no node was taken.
    """

    run: str
    start_ns: int
    pod: str
    uid: str
    at_ns: int
    decision: str
    node: str
    attempt: int = 0
    attempts: int = 0
    message: str = ""
    refused_binding: str = ""
    gates: tuple[str, ...] = ()
    profile: str = ""
    nodes: int = 0
    feasible_nodes: int = 0
    evaluated_nodes: int = 0
    tied_nodes: int = 0
    fast_path: str = ""
    weights: Mapping[str, int] = field(default_factory=dict)
    filter_order: tuple[str, ...] = ()
    skipped_filters: tuple[str, ...] = ()
    skipped_scores: tuple[str, ...] = ()
    best: tuple[Node, ...] = ()
    runner_up: RunnerUp | None = None
    refused: tuple[RefusedNodes, ...] = ()
    refused_groups: int = 0
    preemption: Preemption | None = None
    waiting: Waiting | None = None
    eviction: Eviction | None = None
    afterwards: tuple[Afterwards, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def offset_ns(self) -> int:
        """Return when it was, from the run's first event on."""
        return self.at_ns - self.start_ns

    def to_mapping(self) -> dict[str, Any]:
        """Return what JSON holds."""
        return {**dataclasses.asdict(self), "offset_ns": self.offset_ns}


def eviction_of(entry: trace_pb2.Decision, top: int) -> Eviction:
    """Return what an `evicted` entry of the log holds, with the first `top` of the ranking."""
    evicted = entry.observed.evicted
    return Eviction(
        at_ns=entry.at_ns,
        node=evicted.node_name,
        signal=evicted.signal,
        threshold=evicted.threshold,
        available=evicted.available if evicted.HasField("available") else None,
        capacity=evicted.capacity if evicted.HasField("capacity") else None,
        grace_period_s=evicted.grace_period_seconds
        if evicted.HasField("grace_period_seconds")
        else None,
        message=evicted.message,
        rank=evicted.rank,
        ranked_pods=evicted.ranked_pods,
        ranking=tuple(map(_ranked, evicted.ranking[:top])),
    )


def _ranked(place: eviction_pb2.RankedPod) -> RankedPod:
    return RankedPod(
        pod=f"{place.pod.namespace}/{place.pod.name}",
        priority=place.priority,
        usage=place.usage if place.HasField("usage") else None,
        request=place.request,
        exceeds_request=place.exceeds_request,
    )


def refused_nodes(
    refusals: Iterable[tuple[str, scheduler_pb2.Refusal]], top: int
) -> tuple[RefusedNodes, ...]:
    """Return the nodes by who refused them first and why, the largest group first.

    Each group names its first `top` nodes.
    """
    groups: dict[tuple[str, int, tuple[str, ...], bool], list[str]] = {}
    for node_name, refusal in refusals:
        key = (refusal.plugin, refusal.code, tuple(refusal.reasons), refusal.pre_filter)
        groups.setdefault(key, []).append(node_name)
    return tuple(
        RefusedNodes(
            plugin=plugin,
            code=_CODES.get(code, ""),  # type: ignore[call-overload] # an enum is an int
            reasons=reasons,
            count=len(names),
            nodes=tuple(names[:top]),
            by_pre_filter=by_pre_filter,
        )
        for (plugin, code, reasons, by_pre_filter), names in sorted(
            groups.items(), key=lambda each: (-len(each[1]), each[0])
        )
    )


def preemption_of(found: scheduler_pb2.PreemptionEvaluation, top: int) -> Preemption:
    """Return what the preemptor found, with its `top` candidates."""
    if found.disabled:
        return Preemption(disabled=True)
    candidates = [each for each in found.candidates if not each.HasField("refusal")]
    candidates.sort(key=lambda each: (each.node_name != found.picked, *_judged_by(each)))
    refused = [
        (each.node_name, each.refusal) for each in found.candidates if each.HasField("refusal")
    ]
    return Preemption(
        ineligible=found.reason if not found.eligible else "",
        message=found.message,
        picked=found.picked,
        decided_by=found.decided_by,
        tied=len(found.picked_ties),
        potential_nodes=len(found.potential_nodes),
        candidate_count=len(candidates),
        candidates=tuple(_candidate(each) for each in candidates[:top]),
        no_candidates=refused_nodes(refused, top)[:top],
    )


def _judged_by(candidate: scheduler_pb2.CandidateVerdict) -> tuple[int, int, int, int, int, str]:
    """Return upstream's criteria in their order, less being better."""
    return (
        candidate.budget_violations,
        candidate.highest_priority,
        candidate.sum_priorities,
        len(candidate.victims),
        -candidate.earliest_start_ns,
        candidate.node_name,
    )


def _candidate(found: scheduler_pb2.CandidateVerdict) -> Candidate:
    return Candidate(
        node=found.node_name,
        victims=tuple(
            Victim(pod=_key(each.pod), priority=each.priority, violates_budget=each.violates_budget)
            for each in found.victims
        ),
        reprieved=tuple(map(_key, found.reprieved)),
        budget_violations=found.budget_violations,
        highest_priority=found.highest_priority,
        sum_priorities=found.sum_priorities,
        earliest_start_ns=(
            found.earliest_start_ns if found.HasField("earliest_start_ns") else None
        ),
    )


def _key(pod: meta_pb2.ObjectReference) -> str:
    return f"{pod.namespace}/{pod.name}"
