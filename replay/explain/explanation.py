"""An explanation as values: what people are shown, and what -o json holds.

Lists that grow with the cluster are cut to what was asked for, and say beside them how many there
were. Times are ns since the Unix epoch; `offset_ns` from the run's first event on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
