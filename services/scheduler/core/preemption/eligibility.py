"""Whether a pod may preempt others at all."""

from __future__ import annotations

from services.kube.pod import Pod, PreemptionPolicy
from services.scheduler.core.preemption.rules import PreemptionRules
from services.scheduler.core.preemption.view import FailedCycle
from services.scheduler.core.status import Code

POLICY_NEVER = "not eligible due to preemptionPolicy=Never."
VICTIM_TERMINATING = "not eligible due to a terminating pod on the nominated node."


def why_not_eligible(pod: Pod, cycle: FailedCycle, rules: PreemptionRules) -> str:
    """Return why `pod` may not preempt, in upstream's words; "" where it may.

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
