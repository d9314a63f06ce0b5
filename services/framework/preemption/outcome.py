"""The input and the outcome of PostFilter: a failed cycle; a nomination, or why none helps.

Nothing is changed by an outcome: it says what should happen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from services.framework.preemption.batch_dry_run import BatchDryRunResult
from services.framework.preemption.candidates import (
    Candidate,
    Criteria,
    DecidedBy,
    DryRun,
    NonCandidate,
    Picked,
)
from services.framework.status import Code
from services.kube.devices import FreedClaims
from services.kube.pod import Pod
from services.kube.workloads import PodDisruptionBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderError:
    """An extender that may not be ignored failed, with this text."""

    message: str


NarrowCandidates = Callable[[Pod, tuple[Candidate, ...]], tuple[Candidate, ...] | ExtenderError]
"""Narrows the candidates of a pod as its extenders want it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination:
    """Nominate the pod to `node` and make room for it there.

    `victims` are in the order in which they are deleted; `deletions` are those whose deletion
    is still to be requested. `violating` are the victims whose deletion violates a budget; `ties`
    are the nodes among which a tie was broken (one otherwise); `candidates`
    counts the nodes that could have been picked. `cleared_nominations` are the pods of lower
    priority that lose their nomination to the node (v1.34: none where no deletion is requested
    for), after the deletions where `clears_last`. `reprieved` are the pods that were spared.
    """

    node: str
    victims: tuple[Pod, ...]
    deletions: tuple[Pod, ...]
    violating: tuple[Pod, ...]
    decided_by: DecidedBy
    ties: tuple[str, ...]
    candidates: int
    cleared_nominations: tuple[Pod, ...]
    clears_last: bool
    reprieved: tuple[Pod, ...]
    freed: FreedClaims | None = None

    @property
    def budget_violations(self) -> int:
        """Return how many victims violate a budget."""
        return len(self.violating)


class Cause(Enum):
    """The reason for which preemption cannot help."""

    NOT_ELIGIBLE = "not eligible"
    NO_NODES = "no nodes"
    NO_CANDIDATE = "no candidate"
    EXTENDER = "extender"
    NODE_GONE = "node gone"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class CannotHelp:
    """Leave the cluster as it is.

    `reason` explains it in upstream's wording; `message` is appended to the pod's own message after
    the filters' part ("" in versions that append nothing). `clear_nomination` is set to clear
    status.nominatedNodeName; otherwise it is left alone. `is_error` marks what upstream
    reports as an error rather than as unschedulable; the attempt is unschedulable either way.
    """

    cause: Cause
    reason: str
    message: str
    clear_nomination: bool
    is_error: bool = False
    freed: FreedClaims | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCandidate:
    """A candidate and its criteria (None without victims)."""

    candidate: Candidate
    criteria: Criteria | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionEvaluation:
    """Everything that the preemptor found about one pod.

    `ineligible` is why the pod may not preempt, "" where it may. `candidates` are those of the
    dry run, those without budget violations first; `picked` is chosen among what the extenders
    left of them.
    """

    ineligible: str
    potential_nodes: tuple[str, ...]
    candidates: tuple[JudgedCandidate, ...]
    non_candidates: tuple[NonCandidate, ...]
    picked: Picked | None
    outcome: Nomination | CannotHelp


class FailedCycle(Protocol):
    """One pod's failed cycle: why each node refused it, and the snapshot that it was tried on.

    Nodes go by their names. Sequences of nodes follow the snapshot's order, which breaks ties
    in the rules of v1.16; budgets follow the order in which they are listed.
    """

    def prepared(self, plugin: str) -> bool:
        """Return whether a plugin's PreFilter ran, or an earlier one had refused the pod before."""

    def refused_by(self, plugin: str, reason: str) -> Sequence[str]:
        """Return the nodes that a plugin refused for that reason alone."""

    def node_count(self) -> int:
        """Return how many nodes the snapshot has."""

    def has_node(self, node: str) -> bool:
        """Return whether the snapshot has the node."""

    def code(self, node: str) -> Code:
        """Return the code with which the filters refused the pod on `node`.

        UNSCHEDULABLE_AND_UNRESOLVABLE for a node that the snapshot does not have.
        Source: kubernetes v1.34 pkg/scheduler/framework/types.go, NodeToStatus.Get.
        """

    def potential_nodes(self) -> Sequence[str]:
        """Return the nodes where removing pods may help: those refused with UNSCHEDULABLE."""

    def batch_dry_run(self, now_ns: int) -> BatchDryRunResult | None:
        """Dry-run all potential nodes at once, None where they have to be tried one by one.

        `now_ns` replaces a missing start time.
        """

    def pods_on(self, node: str) -> Sequence[Pod]:
        """Return the node's assigned and assumed pods; none for an unknown node."""

    def nominated_on(self, node: str) -> Sequence[Pod]:
        """Return the pods nominated to the node, in the order of their nomination."""

    def budgets(self) -> Sequence[PodDisruptionBudget]:
        """Return every disruption budget, with its status as last received."""

    def dry_run(self, node: str) -> DryRun:
        """Begin a dry run of the pod on `node`."""
