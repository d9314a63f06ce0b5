"""The node lifecycle controller's words: a node's conditions as taints.

Source: kubernetes v1.34 pkg/controller/nodelifecycle/node_lifecycle_controller.go,
nodeConditionToTaintKeyStatusMap, doNoScheduleTaintingPass, processTaintBaseEviction,
tryUpdateNodeHealth.
"""

from __future__ import annotations

from replay.world.conditions import set_node_condition
from replay.world.taint_eviction import NOT_READY, UNREACHABLE
from reprieve.kube.v1alpha1 import node_pb2
from services.rpc.kube_fields import set_time

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def taint_by_conditions(node: node_pb2.Node, now_ns: int) -> None:
    """Give a node the taints that follow from its conditions and from being cordoned.

    Pressure is left out: its taints go with the node's own kubelet (conditions.py).
    """
    there = {(each.key, each.effect) for each in node.spec.taints}
    for key, effect in _wanted(node):
        if (key, effect) not in there:
            taint = node.spec.taints.add(key=key, effect=effect)
            set_time(taint.time_added, now_ns)


def stop_reporting(node: node_pb2.Node, now_ns: int) -> None:
    """Write that nobody knows how the node is."""
    shown = {each.type for each in node.status.conditions} | {"Ready"}
    message = "Kubelet stopped posting node status."
    for type_ in _REPORTED:
        if type_ in shown:
            set_node_condition(node.status, type_, "Unknown", now_ns, "NodeStatusUnknown", message)


def report_again(node: node_pb2.Node, now_ns: int) -> None:
    """Write that the node is well, and take away the taints of its silence."""
    kept = [each for each in node.spec.taints if each.key not in (NOT_READY, UNREACHABLE)]
    del node.spec.taints[:]
    node.spec.taints.extend(kept)
    for condition in list(node.status.conditions):
        if condition.type in _REPORTED and condition.status == "Unknown":
            is_ready = condition.type == "Ready"
            value, reason = ("True", "KubeletReady") if is_ready else ("False", "KubeletOk")
            set_node_condition(node.status, condition.type, value, now_ns, reason, "")


def _wanted(node: node_pb2.Node) -> list[tuple[str, str]]:
    states = {each.type: each.status for each in node.status.conditions}
    keys = {"False": NOT_READY, "Unknown": UNREACHABLE}
    wanted = []
    if (key := keys.get(states.get("Ready", ""))) is not None:
        wanted += [(key, "NoSchedule"), (key, "NoExecute")]
    if states.get("NetworkUnavailable") == "True":
        wanted.append((NETWORK_UNAVAILABLE, "NoSchedule"))
    if node.spec.unschedulable:
        wanted.append((UNSCHEDULABLE, "NoSchedule"))
    return wanted
