"""The candidates of a preemption: which pods must go from a node, and which node is picked.

**The victims on a node.** Every pod of lower priority goes at first. If the pending pod fits then,
they come back one by one, and each that still leaves room is reprieved: those whose deletion
violates a budget have the first chance, then the others, the more important ones first in both. So
a pod of high priority may go to spare one of low priority that a budget guards.

**The node.** The criteria apply in turn, each to the nodes that the one before left, until a single
node is left:
1. fewest violations of disruption budgets; 2. lowest priority of the most important victim; 3.
smallest sum of the victims' priorities; 4. fewest victims; 5. latest start of the victims of the
highest priority, by their earliest; 6. a tie-break. The batch and the search node by node both pick
by `pick_one_node`.

Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode;
pkg/scheduler/framework/preemption/preemption.go, SelectCandidate and pickOneNodeForPreemption;
v1.16 pkg/scheduler/core/generic_scheduler.go, selectVictimsOnNode, pickOneNodeForPreemption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from typing import NamedTuple, Protocol

import numpy as np

from services.framework.columns import kernels
from services.framework.columns.columns import Int64s
from services.framework.columns.hashing import all_mixed, attempt_hash
from services.framework.preemption.rules import PreemptionRules
from services.framework.status import Code, Status
from services.kube.pod import Pod
from services.kube.workloads import PodDisruptionBudget

NO_VICTIMS_FOUND = Status(
    code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    reasons=("No preemption victims found for incoming pod",),
)
"""The refusal of a node without a pod of lower priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node where the pending pod fits after `victims` are removed.

    `victims` are in the order in which they are deleted. `violating` are those of them whose
    deletion violates a budget. `reprieved` are the pods that were spared, in the order in which
    that was found out. `stated_violations` is the number that an extender returned,
    which counts instead; None where no extender changed the candidate.
    """

    node: str
    victims: tuple[Pod, ...]
    violating: tuple[Pod, ...] = ()
    reprieved: tuple[Pod, ...] = ()
    stated_violations: int | None = None

    @property
    def violations(self) -> int:
        """Return how many victims violate a budget."""
        return len(self.violating) if self.stated_violations is None else self.stated_violations


@dataclass(frozen=True, slots=True, kw_only=True)
class NonCandidate:
    """A node where deleting pods does not help, and why."""

    node: str
    refusal: Status


class DryRun(Protocol):
    """The pending pod's view of one node while potential victims are removed and added.

    A dry run begins with the node's state in the snapshot. Pods taken from it or put on it change
    the dry run only, never the snapshot, and `refusal` says whether the pending pod would fit then.
    Source: kubernetes v1.34 pkg/scheduler/framework/preemption/preemption.go and
    plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode (removePod, addPod).
    """

    def pods(self) -> Sequence[Pod]:
        """Return the node's current assigned and assumed pods, in upstream's order.

        Upstream appends a pod that comes and moves the last one into the gap of one that goes.
        """

    def remove(self, pod: Pod) -> None:
        """Take `pod`, found by its UID, off the node; it must be there."""

    def add(self, pod: Pod) -> None:
        """Put `pod` on the node, after all others."""

    def refusal(self) -> Status | None:
        """Run the filters; None where the pending pod fits.

        As upstream does, the filters run with the node's nominated pods of equal or higher
        priority added, and then again without them.
        """


def _named(refusal: Status) -> Status:
    """Return a filter's refusal; an error names its plugin, as upstream's framework writes it."""
    if refusal.code is not Code.ERROR:
        return refusal
    reason = f'running "{refusal.plugin}" filter plugin: {refusal.message}'
    return replace(refusal, reasons=(reason,))


def select_victims(
    pod: Pod,
    node: str,
    dry_run: DryRun,
    budgets: Sequence[PodDisruptionBudget],
    *,
    rules: PreemptionRules,
    now_ns: int,
) -> Candidate | NonCandidate:
    """Find the victims on one node; `now_ns` replaces a missing start time.

    Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go,
    SelectVictimsOnNode; framework/preemption/preemption.go, DryRunPreemption; v1.16
    pkg/scheduler/core/generic_scheduler.go, selectVictimsOnNode.
    """
    potential = [victim for victim in dry_run.pods() if victim.priority < pod.priority]
    for victim in potential:
        dry_run.remove(victim)
    if not potential and rules.needs_victims:
        return NonCandidate(node=node, refusal=NO_VICTIMS_FOUND)
    refusal = dry_run.refusal()
    if refusal is not None:
        return NonCandidate(node=node, refusal=_named(refusal))
    ranked = most_important_first(potential, now_ns=now_ns)
    split = rules.budgets.split(ranked, budgets)
    violating, spared = _reprieve(dry_run, split.violating)
    others, spared_later = _reprieve(dry_run, split.others)
    victims = [*violating, *others]
    if not victims and rules.needs_victims:
        reason = f'expected at least one victim pod on node "{node}"'
        return NonCandidate(node=node, refusal=Status(code=Code.ERROR, reasons=(reason,)))
    if rules.sorts_victims:
        victims = most_important_first(victims, now_ns=now_ns)
    return Candidate(
        node=node,
        victims=tuple(victims),
        violating=tuple(violating),
        reprieved=(*spared, *spared_later),
    )


def _reprieve(dry_run: DryRun, pods: Iterable[Pod]) -> tuple[list[Pod], list[Pod]]:
    victims: list[Pod] = []
    spared: list[Pod] = []
    for pod in pods:
        dry_run.add(pod)
        if dry_run.refusal() is None:
            spared.append(pod)
        else:
            dry_run.remove(pod)
            victims.append(pod)
    return victims, spared


def start_ns(pod: Pod, *, now_ns: int) -> int:
    """Return the start time of the pod, ns since the Unix epoch; now if it has not started.

    Source: kubernetes v1.34 pkg/scheduler/util/utils.go, GetPodStartTime.
    """
    return now_ns if pod.start_time_ns is None else pod.start_time_ns


def most_important_first(pods: Iterable[Pod], *, now_ns: int) -> list[Pod]:
    """Return `pods` in falling importance: by priority, then those that have run for longer.

    Equal ones keep their order. Upstream's sort is not stable and reads the clock again for each
    missing start, so equal pods may be in any order there.
    Source: kubernetes v1.34 pkg/scheduler/util/utils.go, MoreImportantPod.
    """
    return sorted(pods, key=lambda pod: (-pod.priority, start_ns(pod, now_ns=now_ns)))


def earliest_start_ns(pods: Sequence[Pod], *, now_ns: int) -> int:
    """Return the earliest start among the pods of the highest priority; there must be one.

    Source: kubernetes v1.34 pkg/scheduler/util/utils.go, GetEarliestPodStartTime.
    """
    highest = max(pod.priority for pod in pods)
    return min(start_ns(pod, now_ns=now_ns) for pod in pods if pod.priority == highest)


PRIORITY_SHIFT = 1 << 31
"""Added to each victim's priority in a sum, so that no term is negative."""

TieBreak = Callable[[Sequence[str]], str]
"""Chooses one of several node names that are equally good."""


class DecidedBy(StrEnum):
    """The criterion that decided between candidates, one of the contract's PreemptionCriterion."""

    ONLY_CANDIDATE = auto()
    NO_VICTIMS = auto()
    BUDGET_VIOLATIONS = auto()
    HIGHEST_PRIORITY = auto()
    SUM_PRIORITIES = auto()
    NUM_VICTIMS = auto()
    LATEST_START = auto()
    TIE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """The criteria by which candidates are compared.

    `sum_priorities` adds 2^31 to each priority. `earliest_start_ns` is the earliest start among
    the victims of the highest priority, in ns since the Unix epoch.
    """

    violations: int
    highest_priority: int
    sum_priorities: int
    num_victims: int
    earliest_start_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """The chosen candidate, what decided, and the nodes that were left when it did.

    `ties` is a single node unless `decided_by` is TIE.
    """

    candidate: Candidate
    decided_by: DecidedBy
    ties: tuple[str, ...]


CRITERIA_ORDER = (
    DecidedBy.BUDGET_VIOLATIONS,
    DecidedBy.HIGHEST_PRIORITY,
    DecidedBy.SUM_PRIORITIES,
    DecidedBy.NUM_VICTIMS,
    DecidedBy.LATEST_START,
)
"""The criteria in the order in which they apply."""

VIOLATIONS, HIGHEST, SUM, VICTIMS, EARLIEST = range(len(CRITERIA_ORDER))
"""The columns of criteria, int64[candidates, 5]: less is better; the earliest start is negated."""


def hashed_tie_break(*, seed: int, uid: str, attempt_number: int) -> TieBreak:
    """Return the tie-break that host selection uses, for one attempt to schedule one pod."""
    attempt_bits = attempt_hash(seed, uid, attempt_number)

    def choose(nodes: Sequence[str]) -> str:
        ranks = all_mixed(nodes, attempt_bits)
        return min(nodes[place] for place in np.flatnonzero(ranks == ranks.min()).tolist())

    return choose


def criteria_of(candidate: Candidate, *, now_ns: int) -> Criteria | None:
    """Return the criteria of a candidate; None without victims.

    The highest priority is the first victim's, as upstream takes it. The rules of v1.34 have
    the victims in order of importance; those of v1.16 put budget violations first, so that a
    later victim may have a higher priority.
    """
    victims = candidate.victims
    if not victims:
        return None
    return Criteria(
        violations=candidate.violations,
        highest_priority=victims[0].priority,
        sum_priorities=sum(victim.priority + PRIORITY_SHIFT for victim in victims),
        num_victims=len(victims),
        earliest_start_ns=earliest_start_ns(victims, now_ns=now_ns),
    )


def criteria_columns(judged: Iterable[Criteria | None]) -> Int64s:
    """Return the criteria as int64[candidates, 5]; zeros for a candidate without victims."""
    rows = [
        (0, 0, 0, 0, 0)
        if criteria is None
        else (
            criteria.violations,
            criteria.highest_priority,
            criteria.sum_priorities,
            criteria.num_victims,
            -criteria.earliest_start_ns,
        )
        for criteria in judged
    ]
    return np.array(rows, dtype=np.int64)


class Choice(NamedTuple):
    """The place of the chosen candidate, what decided, and the nodes that were left when it did."""

    place: int
    decided_by: DecidedBy
    ties: tuple[str, ...]


def pick_one_node(
    criteria: Int64s,
    names: Callable[[Int64s], tuple[str, ...]],
    *,
    rules: PreemptionRules,
    tie_break: TieBreak,
) -> Choice:
    """Return the best of the candidates, which are in the nodes' order; there must be one.

    criteria: int64[candidates, 5]; `names` are those of the candidates at some places. The first
    candidate without victims is taken at once; only the rules of v1.16 have such.
    """
    places = np.arange(len(criteria))
    if len(places) == 1:
        return Choice(0, DecidedBy.ONLY_CANDIDATE, names(places))
    without_victims = np.flatnonzero(criteria[:, VICTIMS] == 0)
    if len(without_victims):
        return Choice(int(without_victims[0]), DecidedBy.NO_VICTIMS, names(without_victims[:1]))
    number, column = kernels.least(criteria, places)
    places = places[:number]
    ties = names(places)
    if number == 1:
        return Choice(int(places[0]), CRITERIA_ORDER[column], ties)
    chosen = ties[0] if rules.takes_first else tie_break(ties)
    return Choice(int(places[ties.index(chosen)]), DecidedBy.TIE, ties)
