"""What the scheduler does when a step after a nomination is refused."""

from __future__ import annotations

from dataclasses import dataclass

from services.scheduler.core.preemption.rules import PreemptionRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """What the scheduler does after a refusal.

    `forget_nomination` takes the nomination back from the queue; the status is never changed
    back. `activate` moves the pod to activeQ at once, since no victim's deletion may ever wake it.
    """

    forget_nomination: bool = False
    activate: bool = False


def after_status_refused(rules: PreemptionRules) -> Aftermath:
    """Return what to do when writing status.nominatedNodeName was refused.

    v1.16 forgets the nomination. v1.34 logs the error; its queue keeps the nomination.
    Source: kubernetes v1.16 pkg/scheduler/scheduler.go, preempt; v1.34
    pkg/scheduler/schedule_one.go, handleSchedulingFailure.
    """
    return Aftermath(forget_nomination=not rules.survives_status_refusal)


def after_deletion_refused(rules: PreemptionRules) -> Aftermath:
    """Return what to do when deleting a victim was refused; those before it are gone.

    The nomination stays, in the queue and in the status, and later victims are spared. v1.34
    activates the pod, v1.16 leaves it where it is. A victim that has gone already is no refusal.
    (v1.34 deletes all victims but the last in parallel and stops handing out deletions at the
    first error; we delete in order, which is one of its outcomes.)
    Source: kubernetes v1.34 framework/preemption/preemption.go, prepareCandidateAsync; v1.16
    pkg/scheduler/scheduler.go, preempt.
    """
    return Aftermath(activate=rules.activates_after_refused_deletion)
