"""Which pods must go from one node for the pending pod to fit.

Every pod of lower priority goes at first. If the pending pod fits then, they come back one by
one, and each that still leaves room is reprieved: those whose deletion violates a budget have
the first chance, then the others, the more important ones first in both. So a pod of high
priority may go to spare one of low priority that a budget guards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

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
    """A node where the pending pod fits once `victims` are gone.

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
    """The pending pod's view of one node while candidates for victims come and go.

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
    potential = [each for each in dry_run.pods() if each.priority < pod.priority]
    for each in potential:
        dry_run.remove(each)
    if not potential and rules.needs_victims:
        return NonCandidate(node=node, refusal=NO_VICTIMS_FOUND)
    refusal = dry_run.refusal()
    if refusal is not None:
        return NonCandidate(node=node, refusal=refusal)
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
    """Return when the pod started, in ns since the Unix epoch; now where it has not yet.

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
