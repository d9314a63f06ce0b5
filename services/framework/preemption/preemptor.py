"""The preemptor: a pod that fits nowhere tries to make room for itself.

It checks that the pod is eligible, finds the nodes where deleting pods may help, and dry-runs each
of them for its victims; one node is picked, and pods of lower priority that were nominated to it
lose their nomination. Nothing is changed here: the outcome says what should happen.

There are two ways to the same decision. The batch dry run (`FailedCycle.batch_dry_run`) judges all
nodes at once by compiled kernels; `pick_from_batch` picks, and victims are selected for the picked
node alone. Where there is no batch (see `cycle.batch_dry_run`), with extenders, which may narrow
the candidates, and for `explain`, nodes are tried one after the other by `select_victims`, and
`pick_one_node` picks. Property tests hold the two equal.

Source: kubernetes v1.34 pkg/scheduler/framework/preemption/preemption.go, Evaluator.Preempt and
DryRunPreemption, plugins/defaultpreemption/default_preemption.go, PostFilter; v1.16
pkg/scheduler/core/generic_scheduler.go, Preempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from services.framework.preemption.batch_dry_run import (
    BatchDryRunResult,
    CandidateSampling,
    pick_from_batch,
)
from services.framework.preemption.candidates import (
    Candidate,
    Criteria,
    DecidedBy,
    DryRun,
    NonCandidate,
    Picked,
    TieBreak,
    criteria_of,
    pick_one_node,
    select_victims,
)
from services.framework.preemption.rules import PreemptionRules
from services.framework.status import Code, Status
from services.kube.pod import Pod, PreemptionPolicy
from services.kube.workloads import PodDisruptionBudget

NOT_HELPFUL = "Preemption is not helpful for scheduling"
POLICY_NEVER = "not eligible due to preemptionPolicy=Never."
VICTIM_TERMINATING = "not eligible due to a terminating pod on the nominated node."


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderError:
    """An extender that may not be ignored failed, with this text."""

    message: str


NarrowCandidates = Callable[[Pod, tuple[Candidate, ...]], tuple[Candidate, ...] | ExtenderError]
"""Narrows the candidates of a pod as its extenders want it."""


def no_extenders(pod: Pod, candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Leave the candidates as they are."""
    del pod
    return candidates


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCandidate:
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

    def node_count(self) -> int:
        """Return how many nodes the snapshot has."""

    def has_node(self, node: str) -> bool:
        """Return whether the snapshot has the node."""

    def code(self, node: str) -> Code:
        """Return how the filters refused the pod on `node`.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemptor:
    """The preemptor under one version's rules; without `sampling` it tries all nodes."""

    rules: PreemptionRules
    sampling: CandidateSampling | None = None
    extenders: NarrowCandidates = no_extenders

    def preempt(
        self, pod: Pod, cycle: FailedCycle, *, tie_break: TieBreak, now_ns: int
    ) -> Nomination | CannotHelp:
        """Decide for `pod`, in its latest version, after its `cycle` found no node.

        `tie_break` decides what the criteria leave open (`candidates.hashed_tie_break`).
        """
        refused = self._refused_at_once(pod, cycle)
        if refused is not None:
            return refused
        batch = cycle.batch_dry_run(now_ns) if self.extenders is no_extenders else None
        if batch is None:
            return self.evaluate(pod, cycle, tie_break=tie_break, now_ns=now_ns).outcome
        if not len(batch.rows):
            return self._no_candidate(cycle, batch.refusals)
        if self.sampling is not None:
            batch = self.sampling.narrowed(batch, cycle.potential_nodes(), tie_break)
        chosen = pick_from_batch(batch, rules=self.rules, tie_break=tie_break)
        judged = self._select_victims(pod, cycle, chosen.node, now_ns)
        assert isinstance(judged, Candidate), f"{chosen.node} was a candidate in the batch"
        picked = Picked(candidate=judged, decided_by=chosen.decided_by, ties=chosen.ties)
        return self._outcome(pod, cycle, picked, len(batch.rows))

    def evaluate(
        self, pod: Pod, cycle: FailedCycle, *, tie_break: TieBreak, now_ns: int
    ) -> PreemptionEvaluation:
        """Decide as `preempt` does, one node after the other, and return all that was found."""
        potential = tuple(cycle.potential_nodes())
        at_once = self._refused_at_once(pod, cycle)
        if at_once is not None:
            ineligible = at_once.reason if at_once.cause is Cause.NOT_ELIGIBLE else ""
            return _nothing_tried(at_once, potential, ineligible)
        candidates, non_candidates = self._dry_run(pod, cycle, potential, tie_break, now_ns)
        picked, outcome = self._choose(
            pod, cycle, candidates, non_candidates, tie_break=tie_break, now_ns=now_ns
        )
        return PreemptionEvaluation(
            ineligible="",
            potential_nodes=potential,
            candidates=tuple(
                JudgedCandidate(candidate=candidate, criteria=criteria_of(candidate, now_ns=now_ns))
                for candidate in candidates
            ),
            non_candidates=non_candidates,
            picked=picked,
            outcome=outcome,
        )

    def _refused_at_once(self, pod: Pod, cycle: FailedCycle) -> CannotHelp | None:
        ineligible = why_not_eligible(pod, cycle, self.rules)
        if ineligible:
            return self._cannot(Cause.NOT_ELIGIBLE, ineligible, clear=False)
        if not cycle.node_count():
            text = self.rules.no_nodes_text
            return self._cannot(Cause.NO_NODES, text, clear=False, is_error=True)
        return None

    def _select_victims(
        self, pod: Pod, cycle: FailedCycle, node: str, now_ns: int
    ) -> Candidate | NonCandidate:
        return select_victims(
            pod, node, cycle.dry_run(node), cycle.budgets(), rules=self.rules, now_ns=now_ns
        )

    def _dry_run(
        self,
        pod: Pod,
        cycle: FailedCycle,
        potential: Sequence[str],
        tie_break: TieBreak,
        now_ns: int,
    ) -> tuple[tuple[Candidate, ...], tuple[NonCandidate, ...]]:
        non_violating: list[Candidate] = []
        violating: list[Candidate] = []
        refused: list[NonCandidate] = []
        offset, enough = 0, len(potential)
        if self.sampling is not None:
            offset = self.sampling.first(potential, tie_break)
            enough = self.sampling.enough(len(potential))
        for step in range(len(potential)):
            node = potential[(offset + step) % len(potential)]
            judged = self._select_victims(pod, cycle, node, now_ns)
            if isinstance(judged, NonCandidate):
                refused.append(judged)
                continue
            (violating if judged.violations else non_violating).append(judged)
            if non_violating and len(non_violating) + len(violating) >= enough:
                break
        return (*non_violating[:enough], *violating[:enough]), tuple(refused)

    def _choose(
        self,
        pod: Pod,
        cycle: FailedCycle,
        candidates: tuple[Candidate, ...],
        non_candidates: tuple[NonCandidate, ...],
        *,
        tie_break: TieBreak,
        now_ns: int,
    ) -> tuple[Picked | None, Nomination | CannotHelp]:
        if not candidates:
            return None, self._no_candidate(
                cycle, [(refused.refusal, 1) for refused in non_candidates]
            )
        accepted = self.extenders(pod, candidates)
        if isinstance(accepted, ExtenderError):
            return None, self._cannot(Cause.EXTENDER, accepted.message, clear=False, is_error=True)
        picked = pick_one_node(accepted, rules=self.rules, tie_break=tie_break, now_ns=now_ns)
        if picked is None:
            text = "no candidate node for preemption"
            return None, self._cannot(Cause.EXTENDER, text, clear=False)
        return picked, self._outcome(pod, cycle, picked, len(accepted))

    def _outcome(
        self, pod: Pod, cycle: FailedCycle, picked: Picked, candidates: int
    ) -> Nomination | CannotHelp:
        node = picked.candidate.node
        if self.rules.requires_node and not cycle.has_node(node):
            text = (
                f"preemption failed: the target node {node} has been deleted from scheduler cache"
            )
            return self._cannot(Cause.NODE_GONE, text, clear=False, is_error=True)
        return self._nominate(pod, cycle, picked, candidates)

    def _no_candidate(
        self, cycle: FailedCycle, refusals: Sequence[tuple[Status, int]]
    ) -> CannotHelp:
        errors = errors_text(refusals)
        if errors:
            return self._cannot(Cause.ERROR, errors, clear=False, is_error=True)
        text = not_helpful_text(cycle.node_count(), refusals)
        clear = self.rules.clears_without_candidates or not refusals
        return self._cannot(Cause.NO_CANDIDATE, text, clear=clear)

    def _nominate(
        self, pod: Pod, cycle: FailedCycle, picked: Picked, candidates: int
    ) -> Nomination:
        chosen = picked.candidate
        skips = self.rules.skips_terminating
        deletions = tuple(
            victim for victim in chosen.victims if not (skips and victim.is_terminating)
        )
        lower = tuple(
            nominated
            for nominated in cycle.nominated_on(chosen.node)
            if nominated.priority < pod.priority
        )
        if skips and not deletions:
            lower = ()
        return Nomination(
            node=chosen.node,
            victims=chosen.victims,
            deletions=deletions,
            violating=chosen.violating,
            decided_by=picked.decided_by,
            ties=picked.ties,
            candidates=candidates,
            cleared_nominations=lower,
            clears_last=self.rules.clears_nominations_last,
            reprieved=chosen.reprieved,
        )

    def _cannot(
        self, cause: Cause, text: str, *, clear: bool, is_error: bool = False
    ) -> CannotHelp:
        return CannotHelp(
            cause=cause,
            reason=text,
            message=self.rules.message(text),
            clear_nomination=clear,
            is_error=is_error,
        )


def _nothing_tried(
    refused: CannotHelp, potential: tuple[str, ...], ineligible: str = ""
) -> PreemptionEvaluation:
    return PreemptionEvaluation(
        ineligible=ineligible,
        potential_nodes=potential,
        candidates=(),
        non_candidates=(),
        picked=None,
        outcome=refused,
    )


def why_not_eligible(pod: Pod, cycle: FailedCycle, rules: PreemptionRules) -> str:
    """Return why `pod` may not preempt, in upstream's wording; "" where it may.

    A pod that has made room on its nominated node waits for its victims to go. In the rules of
    v1.34 it need not wait where the nominated node can no longer be cured by deleting pods
    (which includes a node that has gone).
    Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go,
    PodEligibleToPreemptOthers; v1.16 pkg/scheduler/core/generic_scheduler.go,
    podEligibleToPreemptOthers (whose check of the policy was behind a feature gate, on here).
    """
    if pod.spec.preemption_policy is PreemptionPolicy.NEVER:
        return POLICY_NEVER
    nominated = pod.nominated_node_name
    if not nominated:
        return ""
    if rules.retries_unresolvable and (
        cycle.code(nominated) is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    ):
        return ""
    if any(
        other.priority < pod.priority and rules.blocks(other) for other in cycle.pods_on(nominated)
    ):
        return VICTIM_TERMINATING
    return ""


def not_helpful_text(node_count: int, refused: Sequence[tuple[Status, int]]) -> str:
    """Count the reasons of `refused`, each with its number of nodes.

    Every other node counts as one that cannot be cured. Sorted as texts, number first, as
    upstream sorts them.
    Source: kubernetes v1.34 pkg/scheduler/framework/types.go, FitError.Error.
    """
    counts: Counter[str] = Counter()
    for status, nodes in refused:
        for reason in status.reasons:
            counts[reason] += nodes
    untried = node_count - sum(nodes for _, nodes in refused)
    if untried > 0:
        counts[NOT_HELPFUL] += untried
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    text = f"0/{node_count} nodes are available:"
    return f"{text} {listed}." if listed else text


def errors_text(refused: Sequence[tuple[Status, int]]) -> str:
    """Return the errors of dry runs as one text, each once; "" without any.

    Source: kubernetes v1.34 apimachinery pkg/util/errors/errors.go, aggregate.Error.
    """
    errors = [status for status, _ in refused if status.code is Code.ERROR]
    texts = list(dict.fromkeys(error.message for error in errors))
    return f"[{', '.join(texts)}]" if len(texts) > 1 else "".join(texts)
