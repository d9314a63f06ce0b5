"""The criteria by which preemption picks a node, as decision logs and users name them."""

from __future__ import annotations

from reprieve.scheduler.v1beta1 import scheduler_pb2

_NAMES = {
    scheduler_pb2.PREEMPTION_CRITERION_ONLY_CANDIDATE: "only-candidate",
    scheduler_pb2.PREEMPTION_CRITERION_NO_VICTIMS: "0-no-victims",
    scheduler_pb2.PREEMPTION_CRITERION_BUDGET_VIOLATIONS: "1-pdb-violations",
    scheduler_pb2.PREEMPTION_CRITERION_HIGHEST_PRIORITY: "2-highest-priority",
    scheduler_pb2.PREEMPTION_CRITERION_SUM_PRIORITIES: "3-sum-priorities",
    scheduler_pb2.PREEMPTION_CRITERION_NUM_VICTIMS: "4-num-victims",
    scheduler_pb2.PREEMPTION_CRITERION_LATEST_START: "5-latest-start",
    scheduler_pb2.PREEMPTION_CRITERION_TIE: "6-tie",
}


def criterion_in_logs(criterion: scheduler_pb2.PreemptionCriterion.ValueType) -> str:
    """Return a criterion's name in `Nominated.decided_by`, "" for an unknown one."""
    return _NAMES.get(criterion, "")
