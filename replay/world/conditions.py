"""Conditions of pods and nodes: set one, and say whether anything changed.

Source: kubernetes v1.34 pkg/api/v1/pod/util.go, UpdatePodCondition;
pkg/controller/nodelifecycle/node_lifecycle_controller.go, nodeConditionToTaintKeyStatusMap.
"""

from __future__ import annotations

from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from services.rpc.kube_fields import set_time, time_ns

TAINTS = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
}
"""The taint that the node lifecycle controller makes of each pressure condition."""


def set_pod_condition(
    status: pod_pb2.PodStatus,
    type_: str,
    value: str,
    now_ns: int,
    reason: str = "",
    message: str = "",
) -> bool:
    """Set a pod's condition; False where it stood so already.

    The transition time moves only when the condition's status does.
    """
    for condition in status.conditions:
        if condition.type == type_:
            break
    else:
        condition = status.conditions.add()
        condition.type = type_
    stood = condition.status
    if stood == value and condition.reason == reason and condition.message == message:
        return False
    if stood != value:
        condition.status = value
        set_time(condition.last_transition_time, now_ns)
    condition.reason = reason
    condition.message = message
    return True


def mark_disrupted(status: pod_pb2.PodStatus, now_ns: int, reason: str, message: str) -> None:
    """Write who ends a pod, and why."""
    set_pod_condition(status, "DisruptionTarget", "True", now_ns, reason, message)


def ready_since_ns(status: pod_pb2.PodStatus) -> int:
    """Return since when a pod whose condition Ready holds is ready, ns since the Unix epoch."""
    return next(
        time_ns(each.last_transition_time)
        for each in status.conditions
        if each.type == "Ready" and each.status == "True"
    )


def set_node_condition(
    status: node_pb2.NodeStatus, type_: str, value: str, now_ns: int, reason: str, message: str
) -> bool:
    """Set a node's condition; False where its status stood so already."""
    condition = next((each for each in status.conditions if each.type == type_), None)
    if condition is None:
        condition = status.conditions.add(type=type_)
    if condition.status == value:
        return False
    condition.status, condition.reason, condition.message = value, reason, message
    set_time(condition.last_transition_time, now_ns)
    return True


def mark_pressure(node: node_pb2.Node, shown: node_pb2.NodeCondition, now_ns: int) -> None:
    """Write a pressure condition, and its taint while it holds."""
    set_node_condition(node.status, shown.type, shown.status, now_ns, shown.reason, shown.message)
    kept = [taint for taint in node.spec.taints if taint.key != TAINTS[shown.type]]
    del node.spec.taints[:]
    node.spec.taints.extend(kept)
    if shown.status == "True":
        taint = node.spec.taints.add(key=TAINTS[shown.type], effect="NoSchedule")
        set_time(taint.time_added, now_ns)
