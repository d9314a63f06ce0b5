"""Data classes of an explanation, which `explain` prints and `-o json` outputs.

Their values come from the services and the log: a scheduler's Evaluation and Outcome, the queue's
Entry, a kubelet's eviction. This module decides nothing.

Lists that grow with the cluster are cut to the requested length; a separate field counts all
entries. Times are ns since the Unix epoch; `offset_ns` is relative to the run's first event.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from replay.explain.devices import RequestOnNode
from replay.explain.scale_ups import no_scale_up
from replay.trace.criteria import criterion_in_logs
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.kube.v1beta1 import meta_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.framework.plugins.events import moving_events

_SUB_QUEUES = {
    queue_pb2.SUB_QUEUE_ACTIVE: "activeQ",
    queue_pb2.SUB_QUEUE_BACKOFF: "backoffQ",
    queue_pb2.SUB_QUEUE_ERROR_BACKOFF: "backoffQ of errors",
    queue_pb2.SUB_QUEUE_UNSCHEDULABLE: "unschedulable pods",
    queue_pb2.SUB_QUEUE_GATED: "gated pods",
    queue_pb2.SUB_QUEUE_IN_FLIGHT: "in flight",
}
_CODES = {
    scheduler_pb2.VERDICT_CODE_ERROR: "Error",
    scheduler_pb2.VERDICT_CODE_UNSCHEDULABLE: "Unschedulable",
    scheduler_pb2.VERDICT_CODE_UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    scheduler_pb2.VERDICT_CODE_PENDING: "Pending",
}


_STEPS = {
    "started": "started on {0.node_name}",
    "finished": "ended: {0.phase}",
    "removed": "removed: {0.cause}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginScore:
    """A plugin's score of a node: raw, normalized to 0 to 100, and times the plugin's weight."""

    raw: int
    normalized: int
    weighted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredNode:
    """A node that fits, with its total and each plugin's score."""

    name: str
    total: int
    scores: Mapping[str, PluginScore]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """The best node that was not chosen, and by how much it lost (0: the tie-break decided).

    `lost_by_plugin` has the chosen node's weighted score minus this node's, for each plugin whose
    scores differ.
    """

    name: str
    total: int
    lost_by: int
    lost_by_plugin: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedNodes:
    """Nodes that one plugin was the first to refuse, for the same reasons; `nodes` names some."""

    plugin: str
    code: str
    reasons: tuple[str, ...]
    count: int
    nodes: tuple[str, ...]
    by_pre_filter: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionVictim:
    """A pod that preemption deletes."""

    pod: str
    priority: int
    violates_budget: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCandidate:
    """A preemption candidate: a node where deleting pods makes room, with its ranking criteria.

    `reprieved` pods of lower priority stay: added back one by one, those whose deletion violates a
    budget first and then by importance, they leave enough room for the pod. `sum_priorities` is
    upstream's criterion, which adds 2^31 to each victim's priority.
    """

    node: str
    victims: tuple[PreemptionVictim, ...]
    reprieved: tuple[str, ...]
    budget_violations: int
    highest_priority: int
    sum_priorities: int
    earliest_start_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionReason:
    """The evaluation of a preemption; `ineligible` is why the pod may not preempt.

    `candidates` has the best of all `candidate_count` candidates; the picked one comes first.
    """

    disabled: bool = False
    ineligible: str = ""
    message: str = ""
    picked: str = ""
    decided_by: str = ""
    tied: int = 0
    potential_nodes: int = 0
    candidate_count: int = 0
    candidates: tuple[NodeCandidate, ...] = ()
    no_candidates: tuple[RefusedNodes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """The place of the pod in the queue at `at_ns`, and the events that can move it.

    since_ns: when the pod was added or its last attempt failed, whichever is later; a move between
    sub-queues does not change this time. until_ns: when its backoff expires
    (Entry.backoff_until_ns of queue.proto); None outside the backoffQs. leftover_ns: when the queue
    moves the pod even without an event; None if it is not among the unschedulable pods. events: the
    events that can move the pod, by plugin. fits_now: the number of nodes that fit at `at_ns`.
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
class LaterDecision:
    """A decision about the pod later in the run."""

    at_ns: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRank:
    """A pod's place in the order of eviction.

    usage: the pod's usage of the scarce resource (bytes, inodes or process IDs), None if unknown.
    """

    pod: str
    priority: int
    usage: int | None
    request: int
    exceeds_request: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionReason:
    """The reason for which the pod's kubelet evicted it.

    signal: "" if a limit on local storage was exceeded; then there is no threshold, observation or
    rank. available, capacity: the observation, None if unknown. rank: from 1, among all
    `ranked_pods` pods including critical ones; `ranking` has the first of these pods.
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
    ranking: tuple[PodRank, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionReason:
    """Why the kubelet did not admit the pod; the pod has failed permanently.

    owner: kind, namespace and name of the object whose controller created the pod; "" for a bare
    pod, which nothing replaces. replacement: the owner's next pod; "" if the run has none.
    """

    at_ns: int
    node: str
    reason: str
    message: str
    owner: str
    replacement: str
    replaced_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodExplanation:
    """The explanation of an attempt's result.

    decision: "scheduled", "nominated", "unschedulable", "failed", "not tried", or "came bound" for
        a pod that was created with its node and whose eviction or rejection is explained.
    node: the chosen or nominated node. message: kube-scheduler's message.
    refused_binding: why the cluster did not carry out a binding.
    gates: scheduling gates of a pod that was not tried.
    evaluated_nodes: the number of nodes that the attempt filtered; 0 if no node was chosen.
    devices: why the devices of refused nodes do not meet the pod's claims.
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
    best: tuple[ScoredNode, ...] = ()
    runner_up: RunnerUp | None = None
    refused: tuple[RefusedNodes, ...] = ()
    refused_groups: int = 0
    devices: tuple[RequestOnNode, ...] = ()
    preemption: PreemptionReason | None = None
    waiting: QueuePlace | None = None
    eviction: EvictionReason | None = None
    rejection: RejectionReason | None = None
    afterwards: tuple[LaterDecision, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def offset_ns(self) -> int:
        """Return the time of the decision since the run's first event, ns."""
        return self.at_ns - self.start_ns

    def to_mapping(self) -> dict[str, Any]:
        """Return the explanation as JSON has it."""
        return {**dataclasses.asdict(self), "offset_ns": self.offset_ns}


def decided(outcome: scheduler_pb2.Outcome | None) -> tuple[str, str, str]:
    """Return the decision, the node, and kube-scheduler's message."""
    if outcome is None:
        return "not tried", "", ""
    match outcome.WhichOneof("decision"):
        case "bind":
            return "scheduled", outcome.bind.node_name, ""
        case "unschedulable":
            verdict = outcome.unschedulable
            if verdict.HasField("preemption"):
                return "nominated", verdict.preemption.node_name, verdict.message
            return "unschedulable", "", verdict.message
    return "failed", "", outcome.failure.message


def scored_node(verdict: scheduler_pb2.NodeVerdict) -> ScoredNode:
    """Return a node that fits, with its scores."""
    return ScoredNode(
        name=verdict.node_name,
        total=verdict.total,
        scores={
            score.plugin: PluginScore(
                raw=score.raw, normalized=score.normalized, weighted=score.weighted
            )
            for score in verdict.scores
        },
    )


def runner_up_of(fitting: Sequence[scheduler_pb2.NodeVerdict]) -> RunnerUp | None:
    """Return the best node after the chosen one, which comes first; None without scores."""
    if len(fitting) < 2 or not fitting[0].scores:
        return None
    taken, second = scored_node(fitting[0]), scored_node(fitting[1])
    lost = {
        plugin: score.weighted - second.scores[plugin].weighted
        for plugin, score in taken.scores.items()
        if plugin in second.scores
    }
    return RunnerUp(
        name=second.name,
        total=second.total,
        lost_by=taken.total - second.total,
        lost_by_plugin={plugin: points for plugin, points in lost.items() if points},
    )


def refused_nodes(
    verdicts: Iterable[scheduler_pb2.NodeVerdict | scheduler_pb2.CandidateVerdict], top: int
) -> tuple[RefusedNodes, ...]:
    """Group refused nodes by the first refusing plugin and its reasons, the largest group first.

    Each group names its first `top` nodes.
    """
    groups: dict[tuple[str, int, tuple[str, ...], bool], list[str]] = {}
    for verdict in verdicts:
        if verdict.HasField("refusal"):
            refusal = verdict.refusal
            key = (refusal.plugin, refusal.code, tuple(refusal.reasons), refusal.pre_filter)
            groups.setdefault(key, []).append(verdict.node_name)
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
            groups.items(), key=lambda group: (-len(group[1]), group[0])
        )
    )


def preemption_of(preemption: scheduler_pb2.PreemptionEvaluation, top: int) -> PreemptionReason:
    """Convert a preemption's evaluation, with its best `top` candidates."""
    if preemption.disabled:
        return PreemptionReason(disabled=True)
    candidates = [
        candidate for candidate in preemption.candidates if not candidate.HasField("refusal")
    ]
    candidates.sort(
        key=lambda candidate: (candidate.node_name != preemption.picked, *_judged_by(candidate))
    )
    return PreemptionReason(
        ineligible=preemption.reason if not preemption.eligible else "",
        message=preemption.message,
        picked=preemption.picked,
        decided_by=criterion_in_logs(preemption.decided_by),
        tied=len(preemption.picked_ties),
        potential_nodes=len(preemption.potential_nodes),
        candidate_count=len(candidates),
        candidates=tuple(_candidate(candidate) for candidate in candidates[:top]),
        no_candidates=refused_nodes(preemption.candidates, top)[:top],
    )


def _judged_by(candidate: scheduler_pb2.CandidateVerdict) -> tuple[int, int, int, int, int, str]:
    """Return a sort key: upstream's criteria for candidates in their order; lower is better."""
    return (
        candidate.budget_violations,
        candidate.highest_priority,
        candidate.sum_priorities,
        len(candidate.victims),
        -candidate.earliest_start_time_ns,
        candidate.node_name,
    )


def _candidate(candidate: scheduler_pb2.CandidateVerdict) -> NodeCandidate:
    return NodeCandidate(
        node=candidate.node_name,
        victims=tuple(
            PreemptionVictim(
                pod=_key(victim.pod),
                priority=victim.priority,
                violates_budget=victim.violates_budget,
            )
            for victim in candidate.victims
        ),
        reprieved=tuple(map(_key, candidate.reprieved)),
        budget_violations=candidate.budget_violations,
        highest_priority=candidate.highest_priority,
        sum_priorities=candidate.sum_priorities,
        earliest_start_ns=(
            candidate.earliest_start_time_ns
            if candidate.HasField("earliest_start_time_ns")
            else None
        ),
    )


def _key(pod: meta_pb2.ObjectReference) -> str:
    return f"{pod.namespace}/{pod.name}"


def place_in_queue(
    entry: queue_pb2.Entry, queue: queue_pb2.QueueConfig, *, at_ns: int, fits_now: int
) -> QueuePlace:
    """Convert a pod's entry in a queue with the configuration `queue`; see QueuePlace."""
    unschedulable = entry.sub_queue == queue_pb2.SUB_QUEUE_UNSCHEDULABLE
    plugins = tuple(dict.fromkeys([*entry.unschedulable_plugins, *entry.pending_plugins]))
    return QueuePlace(
        at_ns=at_ns,
        sub_queue=_SUB_QUEUES.get(entry.sub_queue, "unknown"),
        since_ns=entry.queued_time_ns,
        attempts=entry.attempts,
        until_ns=entry.backoff_end_time_ns or None,
        leftover_ns=entry.queued_time_ns + queue.max_unschedulable_duration_ns
        if unschedulable
        else None,
        plugins=plugins,
        events=moving_events(queue.rules, plugins) if unschedulable else {},
        gates=tuple(entry.gates),
        fits_now=fits_now,
    )


def eviction_of(entry: trace_pb2.Decision, top: int) -> EvictionReason:
    """Convert an `evicted` entry of the log, with the first `top` pods of the ranking."""
    evicted = entry.observed.evicted
    return EvictionReason(
        at_ns=entry.time_ns,
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


def rejection_of(
    entry: trace_pb2.Decision,
    owner: meta_pb2.ObjectReference | None,
    replacement: trace_pb2.Decision | None,
) -> RejectionReason:
    """Convert a `rejected` entry of the log; `replacement` is the entry of the replacing pod."""
    rejected = entry.observed.rejected
    return RejectionReason(
        at_ns=entry.time_ns,
        node=rejected.node_name,
        reason=rejected.reason,
        message=rejected.message,
        owner=f"{owner.kind} {_key(owner)}" if owner is not None else "",
        replacement=_key(replacement.observed.object) if replacement is not None else "",
        replaced_ns=replacement.time_ns if replacement is not None else None,
    )


def _ranked(place: eviction_pb2.RankedPod) -> PodRank:
    return PodRank(
        pod=f"{place.pod.namespace}/{place.pod.name}",
        priority=place.priority,
        usage=place.usage if place.HasField("usage") else None,
        request=place.request,
        exceeds_request=place.exceeds_request,
    )


def later_decisions(
    entries: Iterable[trace_pb2.Decision],
) -> Iterator[tuple[trace_pb2.Decision, str]]:
    """Yield (entry, sentence) for each of a pod's entries that counts as a later decision."""
    for entry in entries:
        what = _later(entry.observed)
        if what:
            yield entry, what


def _broken(violations: Iterable[trace_pb2.Violation]) -> str:
    return ", ".join(f"{violation.cause}: {violation.message}" for violation in violations)


def _later(observed: trace_pb2.Observed) -> str:
    match observed.WhichOneof("observed"):
        case "preempted":
            by = observed.preempted.by
            return f"preempted by {by.namespace}/{by.name} on {observed.preempted.node_name}"
        case "evicted":
            return f"evicted on {observed.evicted.node_name}: {observed.evicted.message}".strip()
        case "oom_killed":
            killed = observed.oom_killed
            return f"container {killed.container} OOM-killed at the limit of {killed.limit_of}"
        case "nominated" if not observed.nominated.node_name:
            return "its nomination was cleared"
        case "invalid_placement" if observed.invalid_placement.found_by == "kubelet":
            return ""  # the log's entry `rejected` follows
        case "invalid_placement":
            broken = observed.invalid_placement.violations
            return f"its node does not take it: {_broken(broken)}"
        case "invalid_preemption":
            broken = observed.invalid_preemption.violations
            return f"its preemption breaks rules: {_broken(broken)}"
        case "no_scale_up":
            return no_scale_up(observed.no_scale_up)
        case "rejected":
            rejected = observed.rejected
            return f"rejected by the kubelet of {rejected.node_name}: {rejected.message}"
        case "started" | "finished" | "removed" as kind:
            return _STEPS[kind].format(getattr(observed, kind))
    return ""
