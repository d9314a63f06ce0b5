"""DefaultPreemption: a pod that fits nowhere tries to make room for itself.

It checks that the pod is eligible, finds the nodes where deleting pods may help, and dry-runs each
of them for its victims; one node is picked, and pods of lower priority that were nominated to it
lose their nomination. Nothing is changed here: the outcome says what should happen.

There are two ways to the same decision. The batch dry run (`FailedCycle.batch_dry_run`) judges all
nodes at once by compiled kernels, and victims are selected for the picked node alone. It has often
run before PostFilter: `FitError.key_after_dry_run` needs its result to look up a kept refusal.
Where there is no batch (see `preemption.batch_dry_run`), with extenders, which may narrow the
candidates, and for `explain`, nodes are tried one after the other by `select_victims`. Both pick by
`pick_one_node`; property tests hold the two equal.

Source: kubernetes v1.34 pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go,
PostFilter; pkg/scheduler/framework/preemption/preemption.go, Evaluator.Preempt and
DryRunPreemption; v1.16 pkg/scheduler/core/generic_scheduler.go, Preempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from services.framework.plugin import Preemptor, PreEnqueuePlugin
from services.framework.plugins.default_preemption.arguments import ARGUMENTS
from services.framework.preemption.batch_dry_run import CandidateSampling
from services.framework.preemption.candidates import (
    Candidate,
    NonCandidate,
    Picked,
    TieBreak,
    criteria_columns,
    criteria_of,
    pick_one_node,
    select_victims,
)
from services.framework.preemption.outcome import (
    CannotHelp,
    Cause,
    ExtenderError,
    FailedCycle,
    JudgedCandidate,
    NarrowCandidates,
    Nomination,
    PreemptionEvaluation,
)
from services.framework.preemption.rules import PreemptionRules
from services.framework.status import Code, Status
from services.kube.pod import Pod, PreemptionPolicy

NOT_HELPFUL = "Preemption is not helpful for scheduling"
POLICY_NEVER = "not eligible due to preemptionPolicy=Never."
PREEMPTION_RUNS = "waiting for the preemption for this pod to be finished"
VICTIM_TERMINATING = "not eligible due to a terminating pod on the nominated node."


class DefaultPreemption(PreEnqueuePlugin, Preemptor):
    """Preempts by one version's rules; without `sampling` it tries all nodes.

    `narrow` leaves out candidates that extenders do not accept.
    """

    name = "DefaultPreemption"
    arguments = ARGUMENTS
    follows_from_class = True

    def __init__(
        self,
        *,
        rules: PreemptionRules,
        sampling: CandidateSampling | None = None,
        narrow: NarrowCandidates | None = None,
    ) -> None:
        self.rules = rules
        self.sampling = sampling
        self.narrow = narrow
        self._preempting: set[str] = set()

    def pre_enqueue(self, pod: Pod) -> Status | None:
        """Hold a pod while the deletions of its victims are on their way.

        Source: kubernetes v1.34 default_preemption.go, PreEnqueue; framework/preemption
        /preemption.go, IsPodRunningPreemption.
        """
        if pod.uid not in self._preempting:
            return None
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code, plugin=self.name, reasons=(PREEMPTION_RUNS,))

    def preemption_began(self, pod: Pod) -> None:
        """Hold the pod from now on."""
        self._preempting.add(pod.uid)

    def preemption_ended(self, pod: Pod) -> None:
        """Let the pod in again; the deletion of a victim is the event that moves it."""
        self._preempting.discard(pod.uid)

    def post_filter(
        self, pod: Pod, cycle: FailedCycle, *, tie_break: TieBreak, now_ns: int
    ) -> Nomination | CannotHelp:
        """Preempt for the latest version of `pod`, for which its `cycle` found no node."""
        refused = self._refused_before_dry_runs(pod, cycle)
        if refused is not None:
            return refused
        batch = cycle.batch_dry_run(now_ns) if self.narrow is None else None
        if batch is None:
            return self.evaluate(pod, cycle, tie_break=tie_break, now_ns=now_ns).outcome
        if not len(batch.rows):
            return self._no_candidate(cycle, batch.refusals)
        if self.sampling is not None:
            batch = self.sampling.narrowed(batch, cycle.potential_nodes(), tie_break)
        chosen = pick_one_node(batch.criteria, batch.names, rules=self.rules, tie_break=tie_break)
        node = batch.name(int(batch.rows[chosen.place]))
        judged = self._select_victims(pod, cycle, node, now_ns)
        assert isinstance(judged, Candidate), f"{node} was a candidate in the batch"
        picked = Picked(candidate=judged, decided_by=chosen.decided_by, ties=chosen.ties)
        return self._outcome(pod, cycle, picked, len(batch.rows))

    def evaluate(
        self, pod: Pod, cycle: FailedCycle, *, tie_break: TieBreak, now_ns: int
    ) -> PreemptionEvaluation:
        """Preempt as `post_filter` does, but node by node, and return the whole evaluation."""
        potential = tuple(cycle.potential_nodes())
        refused = self._refused_before_dry_runs(pod, cycle)
        if refused is not None:
            ineligible = refused.reason if refused.cause is Cause.NOT_ELIGIBLE else ""
            return _nothing_tried(refused, potential, ineligible)
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

    def _refused_before_dry_runs(self, pod: Pod, cycle: FailedCycle) -> CannotHelp | None:
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
        accepted = candidates if self.narrow is None else self.narrow(pod, candidates)
        if isinstance(accepted, ExtenderError):
            return None, self._cannot(Cause.EXTENDER, accepted.message, clear=False, is_error=True)
        if not accepted:
            text = "no candidate node for preemption"
            return None, self._cannot(Cause.EXTENDER, text, clear=False)
        criteria = criteria_columns(criteria_of(candidate, now_ns=now_ns) for candidate in accepted)
        names = [candidate.node for candidate in accepted]
        chosen = pick_one_node(
            criteria,
            lambda places: tuple(names[place] for place in places.tolist()),
            rules=self.rules,
            tie_break=tie_break,
        )
        picked = Picked(
            candidate=accepted[chosen.place], decided_by=chosen.decided_by, ties=chosen.ties
        )
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
