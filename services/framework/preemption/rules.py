"""The differences between the versions' preemptors, also after a refused nomination or deletion.

`V1_34` is the default. `V1_16` is what the documentation of that version describes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.framework.preemption.budgets import BY_STATUS, USED_UP, BudgetRule
from services.kube.pod import Pod

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionRules:
    """One version's rules.

    `blocks` says whether a lower-priority pod on the nominated node makes the pod wait;
    `retries_unresolvable` lets a pod preempt again whose nominated node cannot be cured.
    `budgets` parts the potential victims by their budgets.
    `needs_victims` refuses a node where nothing is to be deleted; without it, the first such
    node wins at once. `sorts_victims` puts the victims in order of importance at the end.
    `takes_first` breaks the last tie by the nodes' order instead of the caller's choice.
    `clears_without_candidates` clears the nomination where nodes were tried and none will do.
    `skips_terminating` requests no deletion of a victim that is already being deleted.
    `survives_status_refusal` continues where the nomination cannot be written to the status;
    `activates_after_refused_deletion` tries the pod at once where a victim cannot be deleted.
    `requires_node` refuses a picked node that the snapshot does not have.
    `no_nodes_text` is the error where there are no nodes. `message_prefix` precedes
    preemption's part of the pod's message; None where there is no such part.
    `clears_nominations_last` deletes the victims before lower nominations are cleared.
    `samples_candidates` supports trying only a part of the nodes.
    """

    name: str
    blocks: Callable[[Pod], bool]
    retries_unresolvable: bool
    budgets: BudgetRule
    needs_victims: bool
    sorts_victims: bool
    takes_first: bool
    clears_without_candidates: bool
    skips_terminating: bool
    survives_status_refusal: bool
    activates_after_refused_deletion: bool
    requires_node: bool
    no_nodes_text: str
    message_prefix: str | None
    clears_nominations_last: bool
    samples_candidates: bool

    def message(self, text: str) -> str:
        """Return preemption's part of the pod's message."""
        return "" if self.message_prefix is None else self.message_prefix + text


def terminating(pod: Pod) -> bool:
    """Return whether the pod is being deleted, for whatever reason.

    Source: kubernetes v1.16 pkg/scheduler/core/generic_scheduler.go, podEligibleToPreemptOthers.
    """
    return pod.is_terminating


def terminating_by_preemption(pod: Pod) -> bool:
    """Return whether the pod is being deleted because a scheduler preempted it.

    Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go,
    podTerminatingByPreemption.
    """
    if not pod.is_terminating:
        return False
    target = pod.condition(DISRUPTION_TARGET)
    return (
        target is not None and target.status == "True" and target.reason == PREEMPTION_BY_SCHEDULER
    )


V1_34 = PreemptionRules(
    name="v1.34",
    blocks=terminating_by_preemption,
    retries_unresolvable=True,
    budgets=USED_UP,
    needs_victims=True,
    sorts_victims=True,
    takes_first=False,
    clears_without_candidates=True,
    skips_terminating=True,
    survives_status_refusal=True,
    activates_after_refused_deletion=True,
    requires_node=False,
    no_nodes_text="no nodes available",
    message_prefix="preemption: ",
    clears_nominations_last=False,
    samples_candidates=True,
)

V1_16 = PreemptionRules(
    name="v1.16",
    blocks=terminating,
    retries_unresolvable=False,
    budgets=BY_STATUS,
    needs_victims=False,
    sorts_victims=False,
    takes_first=True,
    clears_without_candidates=False,
    skips_terminating=False,
    survives_status_refusal=False,
    activates_after_refused_deletion=False,
    requires_node=True,
    no_nodes_text="no nodes available to schedule pods",
    message_prefix=None,
    clears_nominations_last=True,
    samples_candidates=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterRefusal:
    """The scheduler's reaction when the API server refuses a step of a preemption.

    `forget_nomination` takes the nomination back from the queue; the status is never changed
    back. `activate` moves the pod to activeQ at once, since no victim's deletion may ever wake it.
    """

    forget_nomination: bool = False
    activate: bool = False


def after_status_refused(rules: PreemptionRules) -> AfterRefusal:
    """Return the reaction when writing status.nominatedNodeName was refused.

    v1.16 forgets the nomination. v1.34 logs the error; its queue keeps the nomination.
    Source: kubernetes v1.16 pkg/scheduler/scheduler.go, preempt; v1.34
    pkg/scheduler/schedule_one.go, handleSchedulingFailure.
    """
    return AfterRefusal(forget_nomination=not rules.survives_status_refusal)


def after_deletion_refused(rules: PreemptionRules) -> AfterRefusal:
    """Return the reaction when deleting a victim was refused; those before it are deleted.

    The nomination stays, in the queue and in the status, and later victims are spared. v1.34
    activates the pod, v1.16 leaves it where it is. A victim that is gone already does not count as
    a refusal. (v1.34 deletes all victims but the last in parallel and stops handing out deletions
    at the first error; we delete in order, which is one of its outcomes.) Source: kubernetes v1.34
    framework/preemption/preemption.go, prepareCandidateAsync; v1.16 pkg/scheduler/scheduler.go,
    preempt.
    """
    return AfterRefusal(activate=rules.activates_after_refused_deletion)
