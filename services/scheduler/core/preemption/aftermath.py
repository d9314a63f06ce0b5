"""What is left when a step after a nomination is refused.

The steps and their order are `PreemptionRules.effects`. In v1.34 that order is the one of its
asynchronous preemption, the default: the attempt is recorded and the pod nominated first, then
lower nominations are cleared and victims deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.kube.pod import Pod
from services.scheduler.core.preemption.outcome import Nominate
from services.scheduler.core.preemption.rules import Effect, PreemptionRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """What the caller does after a refusal.

    `forget_nomination` takes the nomination back from the queue; the status is never changed
    back. `deletions` are the victims to delete nevertheless, `kept` those whose deletion is not
    asked for any more, `stays_deleted` those that are gone already. `clear_nominations` tells
    whether lower nominations are (or were) cleared. `activate` moves the pod to activeQ at once,
    since no victim's deletion may ever wake it.
    """

    forget_nomination: bool
    deletions: tuple[Pod, ...]
    kept: tuple[Pod, ...]
    stays_deleted: tuple[Pod, ...]
    clear_nominations: bool
    activate: bool


def after_status_refused(nominate: Nominate, rules: PreemptionRules) -> Aftermath:
    """Return what to do when writing status.nominatedNodeName was refused.

    v1.16 forgets the nomination and goes no further: no victim is deleted and no lower
    nomination cleared. v1.34 logs the error; its queue keeps the nomination, and the deletions
    go on, since nothing ties them to the status.
    Source: kubernetes v1.16 pkg/scheduler/scheduler.go, preempt; v1.34
    pkg/scheduler/schedule_one.go, handleSchedulingFailure, and prepareCandidateAsync.
    """
    goes_on = rules.survives_status_refusal
    return Aftermath(
        forget_nomination=not goes_on,
        deletions=nominate.deletions if goes_on else (),
        kept=() if goes_on else nominate.deletions,
        stays_deleted=(),
        clear_nominations=goes_on,
        activate=False,
    )


def after_deletion_refused(nominate: Nominate, index: int, rules: PreemptionRules) -> Aftermath:
    """Return what to do when deleting `nominate.deletions[index]` was refused.

    Those before it have gone through. A victim that is gone already is no refusal. The
    nomination stays, in the queue and in the status, and later victims are spared. v1.34 has
    cleared the lower nominations by then and activates the pod; v1.16 never comes to clear them
    and leaves the pod where it is.
    (v1.34 deletes all victims but the last in parallel and stops handing out deletions at the
    first error; we delete in order, which is one of its outcomes.)
    Source: kubernetes v1.34 framework/preemption/preemption.go, prepareCandidateAsync; v1.16
    pkg/scheduler/scheduler.go, preempt.
    """
    assert 0 <= index < len(nominate.deletions)
    effects = rules.effects
    cleared = effects.index(Effect.CLEAR_NOMINATIONS) < effects.index(Effect.DELETE_VICTIMS)
    return Aftermath(
        forget_nomination=False,
        deletions=(),
        kept=nominate.deletions[index:],
        stays_deleted=nominate.deletions[:index],
        clear_nominations=cleared,
        activate=rules.activates_after_refused_deletion,
    )
