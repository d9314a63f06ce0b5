"""The health of a node in its object: its conditions, and their taints.

A silent node is one whose kubelet does not report; after a while its conditions are Unknown.
A node without a condition Ready counts as ready: manifests leave it out, and a node of a cluster
has it from its first report on.

Source: kubernetes v1.34 pkg/controller/nodelifecycle/node_lifecycle_controller.go,
nodeConditionToTaintKeyStatusMap, doNoScheduleTaintingPass, doNoExecuteTaintingPass,
tryUpdateNodeHealth.
"""

from __future__ import annotations

from collections.abc import Collection

from replay.world.api.conditions import set_node_condition
from reprieve.kube.v1beta1 import node_pb2
from services.kube.taints import NETWORK_UNAVAILABLE, NOT_READY, UNREACHABLE, UNSCHEDULABLE
from services.rpc.kube.fields import set_time

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
READY_TAINTS = {"False": NOT_READY, "Unknown": UNREACHABLE}
"""The key of the taints of a node that is not ready, by the status of its condition Ready."""
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
"""The conditions that a kubelet reports."""


def ready_condition(node: node_pb2.Node) -> node_pb2.NodeCondition | None:
    """Return a node's condition Ready, None if it has none."""
    return next(
        (condition for condition in node.status.conditions if condition.type == "Ready"), None
    )


def ready_status(node: node_pb2.Node) -> str:
    """Return the status of the condition Ready, "True" where the node has no such condition."""
    ready = ready_condition(node)
    return "True" if ready is None else ready.status


def has_taint(node: node_pb2.Node, key: str, effect: str = "") -> bool:
    """Return whether a node has a taint of that key, and of that effect unless it is ""."""
    return any(
        taint.key == key and (not effect or taint.effect == effect) for taint in node.spec.taints
    )


def add_taint(node: node_pb2.Node, now_ns: int, key: str, effect: str) -> None:
    """Add a taint, unless the node has it."""
    if not has_taint(node, key, effect):
        taint = node.spec.taints.add(key=key, effect=effect)
        set_time(taint.time_added, now_ns)


def drop_taints(node: node_pb2.Node, keys: Collection[str], effect: str) -> bool:
    """Remove the taints of any of the keys and of one effect; return whether there were any."""
    kept = [taint for taint in node.spec.taints if taint.key not in keys or taint.effect != effect]
    if len(kept) == len(node.spec.taints):
        return False
    del node.spec.taints[:]
    node.spec.taints.extend(kept)
    return True


def taint_by_conditions(node: node_pb2.Node, now_ns: int) -> None:
    """Add the NoSchedule taints of a node's conditions and of a cordoned node.

    Of the taints of readiness only the one of the current status stays. Those of pressure are set
    with their conditions (conditions.py, mark_pressure).
    """
    status = ready_status(node)
    key = READY_TAINTS.get(status)
    if key is not None:
        drop_taints(node, [other for other in READY_TAINTS.values() if other != key], NO_SCHEDULE)
        add_taint(node, now_ns, key, NO_SCHEDULE)
    network = (
        condition for condition in node.status.conditions if condition.type == "NetworkUnavailable"
    )
    if any(condition.status == "True" for condition in network):
        add_taint(node, now_ns, NETWORK_UNAVAILABLE, NO_SCHEDULE)
    if node.spec.unschedulable:
        add_taint(node, now_ns, UNSCHEDULABLE, NO_SCHEDULE)


def mark_unknown(node: node_pb2.Node, now_ns: int) -> None:
    """Set the conditions that a kubelet reports, and Ready in any case, to Unknown."""
    shown = {condition.type for condition in node.status.conditions} | {"Ready"}
    message = "Kubelet stopped posting node status."
    for type_ in _REPORTED:
        if type_ in shown:
            set_node_condition(node.status, type_, "Unknown", now_ns, "NodeStatusUnknown", message)


def mark_reporting(node: node_pb2.Node, now_ns: int, under: Collection[str]) -> None:
    """Set the conditions of a node that reports again; `under` are the pressures that it reports.

    Its NoSchedule taints not-ready and unreachable are removed, too. Those with NoExecute are
    removed when the node lifecycle controller next looks (controllers/node_monitor.py).
    """
    drop_taints(node, READY_TAINTS.values(), NO_SCHEDULE)
    for condition in list(node.status.conditions):
        type_ = condition.type
        if type_ == "Ready" and condition.status != "True":
            set_node_condition(node.status, type_, "True", now_ns, "KubeletReady", "")
        elif type_ in _REPORTED and condition.status == "Unknown":
            status, reason = ("True", "KubeletHas") if type_ in under else ("False", "KubeletOk")
            set_node_condition(node.status, type_, status, now_ns, reason, "")
