"""Priority classes.

Source: kubernetes v1.34 api/scheduling/v1/types.go, pkg/apis/scheduling/types.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.kube.pod import PreemptionPolicy

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_CRITICAL_PRIORITY = 2 * HIGHEST_USER_PRIORITY
SYSTEM_PREFIX = "system-"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A name for a priority `value`; one at most is the global default."""

    name: str
    value: int
    global_default: bool = False
    preemption_policy: PreemptionPolicy = PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    description: str = ""


SYSTEM_CLASSES = (
    PriorityClass(name="system-cluster-critical", value=SYSTEM_CRITICAL_PRIORITY),
    PriorityClass(name="system-node-critical", value=SYSTEM_CRITICAL_PRIORITY + 1000),
)
