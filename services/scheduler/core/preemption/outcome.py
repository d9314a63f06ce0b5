"""What the preemptor decided."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from services.kube.pod import Pod
from services.scheduler.core.preemption.pick import Criteria, DecidedBy, Picked
from services.scheduler.core.preemption.victims import Candidate, NonCandidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Nominate:
    """Nominate the pod to `node` and make room for it there.

    `victims` stand in the order in which they are deleted; `deletions` are those whose deletion
    is still to be asked for. `violating` are the victims whose deletion violates a budget; `ties`
    are the nodes among which a tie was broken (one otherwise); `candidates`
    counts the nodes that could have been picked. `cleared_nominations` are the pods of lower
    priority that lose their nomination to the node (v1.34: none where no deletion is asked
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

    @property
    def budget_violations(self) -> int:
        """Return how many victims violate a budget."""
        return len(self.violating)


class Cause(Enum):
    """Why preemption cannot help."""

    NOT_ELIGIBLE = "not eligible"
    NO_NODES = "no nodes"
    NO_CANDIDATE = "no candidate"
    EXTENDER = "extender"
    NODE_GONE = "node gone"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class CannotHelp:
    """Leave the cluster as it is.

    `reason` explains it in upstream's words; `message` is what the pod's own message says of it,
    after what the filters said ("" where the version says nothing). `clear_nomination` tells to
    clear status.nominatedNodeName; otherwise it is left alone. `is_error` marks what upstream
    reports as an error rather than as unschedulable; the attempt is unschedulable either way.
    """

    cause: Cause
    reason: str
    message: str
    clear_nomination: bool
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A candidate and what it is judged by (None without victims)."""

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
    candidates: tuple[Judged, ...]
    non_candidates: tuple[NonCandidate, ...]
    picked: Picked | None
    outcome: Nominate | CannotHelp
