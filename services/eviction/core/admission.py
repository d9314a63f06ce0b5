"""Admission: which pods a node under pressure still takes.

Critical pods always. Under memory pressure alone, pods that ask for anything, and best-effort
pods that tolerate the memory-pressure taint. Under any other pressure, none.

Source: kubernetes v1.32 pkg/kubelet/eviction/eviction_manager.go, Admit.
"""

from __future__ import annotations

from services.eviction.core.decisions import EVICTED_REASON, Admission
from services.eviction.core.pod import EvictionPod
from services.eviction.core.resources import is_best_effort
from services.eviction.core.signals import ConditionType
from services.kube.taints import Taint, TaintEffect, tolerated

_MEMORY_PRESSURE_TAINT = Taint(
    key="node.kubernetes.io/memory-pressure", effect=TaintEffect.NO_SCHEDULE
)
_ADMITTED = Admission(admit=True)


def admit(pod: EvictionPod, conditions: tuple[ConditionType, ...]) -> Admission:
    """Decide on `pod` under the node's present pressure `conditions`."""
    if not conditions or pod.is_critical:
        return _ADMITTED
    if conditions == (ConditionType.MEMORY_PRESSURE,) and (
        not is_best_effort(pod) or tolerated(_MEMORY_PRESSURE_TAINT, pod.tolerations)
    ):
        return _ADMITTED
    listed = " ".join(each.value for each in conditions)
    return Admission(
        admit=False, reason=EVICTED_REASON, message=f"The node had condition: [{listed}]. "
    )
