"""The lifecycle of nodes: added, cordoned, silent, unreachable, reporting again, deleted.

The pods of a silent node stay as they are: its kubelet's actions are held back until it reports
again. After `node_grace_ns` the node is tainted, and the taint manager deletes its pods
(pod_deletion.py), which are terminating for as long as the node is silent. The pods of a deleted
node are collected after `pod_gc_ns`. Upstream taints failing nodes one after the other, and stops
where most of a zone fails; here each is tainted when its own grace period is over.

Drains, which cordon nodes, are in drains.py.

Source: kubernetes v1.34 pkg/controller/nodelifecycle/node_lifecycle_controller.go,
monitorNodeHealth, nodeConditionToTaintKeyStatusMap, doNoScheduleTaintingPass,
processTaintBaseEviction, tryUpdateNodeHealth; pkg/controller/podgc/gc_controller.go, gcOrphaned (a
quarantine of 40 s, checked every 20 s).
"""

from __future__ import annotations

from replay.world.api.conditions import remove_taints, set_node_condition, set_pod_condition
from replay.world.api.pod_record import PodRecord
from replay.world.controllers.pod_deletion import NOT_READY, UNREACHABLE
from replay.world.kubelet.annotations import node_actions
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.kubelet.pressure import NodePressure
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.kube.v1beta1 import node_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.kube.codec import node_from_message
from services.rpc.kube.fields import set_time

_ACTION_KINDS = {
    trace_pb2.NODE_ACTION_TYPE_DRAIN: ActionKind.DRAIN,
    trace_pb2.NODE_ACTION_TYPE_FAIL: ActionKind.SILENT,
    trace_pb2.NODE_ACTION_TYPE_RECOVER: ActionKind.BACK,
}
NODE_ACTION_KINDS = frozenset({*_ACTION_KINDS.values(), ActionKind.UNREACHABLE, ActionKind.COLLECT})
"""The kinds of actions of a node, except those of its eviction manager."""
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class NodeLifecycle:
    """Drives every node of a cluster through its life."""

    def __init__(self, state: WorldState, lifecycle: PodLifecycle, pressure: NodePressure) -> None:
        self._cluster = state.cluster
        self._timeline = state.timeline
        self._models = state.models
        self._journal = state.journal
        self._lifecycle = lifecycle
        self._pressure = pressure
        self._held_back: dict[str, dict[Action, None]] = {}
        self._cordoned: dict[str, None] = {}

    def put(self, now_ns: int, node: node_pb2.Node) -> None:
        """Add or replace a node. Raises FieldError for one that cannot be decoded."""
        name = node.metadata.name
        node_from_message(node)
        is_new = name not in self._cluster.nodes
        actions = node_actions(node.metadata.annotations) if is_new else []
        self._pressure.keep_own(node)
        if is_new and self.is_silent(name):
            self._resume(now_ns, name)
        elif self.is_silent(name) and not self._is_within_grace(name):
            mark_unknown(node, now_ns)
        if name in self._cordoned:
            node.spec.unschedulable = True
        taint_by_conditions(node, now_ns)
        self._cluster.put_node(now_ns, node)
        self._pressure.node_changed(now_ns, name)
        for after_ns, action in actions:
            self._timeline.plan(now_ns + after_ns, _ACTION_KINDS[action], name)

    def remove(self, now_ns: int, name: str) -> None:
        """Delete a node; its pods are collected later. An unknown one is accepted."""
        if name not in self._cluster.nodes:
            return
        self._pressure.forget(name)
        self._lifecycle.images.forget(name)
        for kind in NODE_ACTION_KINDS:
            self._timeline.cancel(kind, name)
        self._cordoned.pop(name, None)
        self._cluster.remove_node(now_ns, name)
        self._held_back.setdefault(name, {})
        if self._models.pod_gc_ns:
            self._timeline.plan(now_ns + self._models.pod_gc_ns, ActionKind.COLLECT, name)
        else:
            self._collect(now_ns, name)

    def apply(self, now_ns: int, action: trace_pb2.NodeAction) -> str:
        """Apply a node action of the trace, but a drain; return why it is refused, "" if not."""
        kind = _ACTION_KINDS.get(action.type)
        if kind is None:
            return f"node {action.node_name}: a node action of an unknown type"
        if action.node_name not in self._cluster.nodes:
            return f"node {action.node_name} does not exist: it cannot fail or recover"
        self.act(now_ns, kind, action.node_name)
        return ""

    def act(self, now_ns: int, kind: ActionKind, name: str) -> None:
        """Carry out a planned action of a node."""
        match kind:
            case ActionKind.COLLECT:
                self._collect(now_ns, name)
            case _ if name not in self._cluster.nodes:
                return
            case ActionKind.SILENT:
                self._fall_silent(now_ns, name)
            case ActionKind.UNREACHABLE:
                self._mark_unreachable(now_ns, name)
            case ActionKind.BACK:
                self._report_again(now_ns, name)

    def holds_back(self, action: Action, pod: PodRecord) -> bool:
        """Return whether a pod's kubelet is silent, and keep the action for later if it is."""
        held_back = self._held_back.get(pod.node_name)
        if held_back is None or not pod.node_name or action.kind is ActionKind.TAINT:
            return False
        held_back[action] = None
        return True

    @property
    def all_report(self) -> bool:
        """Return whether no node is silent."""
        return not self._held_back

    def is_silent(self, name: str) -> bool:
        """Return whether a node's kubelet does not report, or the node was just deleted."""
        return name in self._held_back

    def cordon(self, now_ns: int, name: str) -> bool:
        """Make a node unschedulable, and return whether it was not.

        The trace's later versions of it are changed in the same way, until `uncordon`.
        """
        node = self._cluster.nodes[name]
        self._cordoned[name] = None
        if node.spec.unschedulable:
            return False
        node.spec.unschedulable = True
        taint_by_conditions(node, now_ns)
        self._cluster.put_node(now_ns, node)
        return True

    def uncordon(self, now_ns: int, name: str) -> None:
        """Make a node schedulable again."""
        node = self._cluster.nodes[name]
        self._cordoned.pop(name, None)
        node.spec.unschedulable = False
        remove_taints(node, UNSCHEDULABLE)
        self._cluster.put_node(now_ns, node)

    # Silence

    def _fall_silent(self, now_ns: int, name: str) -> None:
        if name not in self._held_back:
            self._held_back[name] = {}
            self._timeline.plan(now_ns + self._models.node_grace_ns, ActionKind.UNREACHABLE, name)

    def _is_within_grace(self, name: str) -> bool:
        """Return whether a silent node has not become unreachable yet."""
        return self._timeline.planned_ns(ActionKind.UNREACHABLE, name) is not None

    def _mark_unreachable(self, now_ns: int, name: str) -> None:
        """Mark a silent node as unreachable and its pods as not ready.

        Source: kubernetes v1.34 pkg/controller/util/node/controller_utils.go, MarkPodsNotReady.
        """
        node = self._cluster.nodes[name]
        mark_unknown(node, now_ns)
        taint_by_conditions(node, now_ns)
        self._cluster.put_node(now_ns, node)
        self._journal.condition_changed(now_ns, name, "Ready", "Unknown")
        for pod in list(self._cluster.active_by_node.get(name, {}).values()):
            if pod.is_ready:
                set_pod_condition(pod.message.status, "Ready", "False", now_ns, "NodeNotReady")
                self._cluster.status_changed(now_ns, pod)

    def _report_again(self, now_ns: int, name: str) -> None:
        if not self.is_silent(name):
            return
        was_unreachable = not self._is_within_grace(name)
        self._timeline.cancel(ActionKind.UNREACHABLE, name)
        if was_unreachable:
            node = self._cluster.nodes[name]
            mark_reporting(node, now_ns)
            self._cluster.put_node(now_ns, node)
            self._journal.condition_changed(now_ns, name, "Ready", "True")
            for pod in list(self._cluster.active_by_node.get(name, {}).values()):
                is_held = pod.running_ns is None or pod.awaits_ready
                if not is_held and not pod.is_ready:
                    set_pod_condition(pod.message.status, "Ready", "True", now_ns)
                    self._cluster.status_changed(now_ns, pod)
        self._resume(now_ns, name)
        self._pressure.node_changed(now_ns, name)

    def _resume(self, now_ns: int, name: str) -> None:
        """Plan the actions that a silent kubelet has missed for now."""
        self._timeline.cancel(ActionKind.COLLECT, name)
        for action in self._held_back.pop(name):
            if action.key in self._cluster.pods:
                self._timeline.plan(now_ns, action.kind, action.key)

    def _collect(self, now_ns: int, name: str) -> None:
        """Remove the pods of a node that was deleted and not added again."""
        self._held_back.pop(name, None)
        for pod in list(self._cluster.pods_by_node.get(name, {}).values()):
            self._lifecycle.lose(now_ns, pod)


def taint_by_conditions(node: node_pb2.Node, now_ns: int) -> None:
    """Add the taints of a node's conditions and of a cordoned node.

    Those of pressure are set with the conditions (api/conditions.py, mark_pressure).
    """
    present = {(each.key, each.effect) for each in node.spec.taints}
    for key, effect in _wanted(node):
        if (key, effect) not in present:
            taint = node.spec.taints.add(key=key, effect=effect)
            set_time(taint.time_added, now_ns)


def mark_unknown(node: node_pb2.Node, now_ns: int) -> None:
    """Set the conditions that a kubelet reports, and Ready in any case, to Unknown."""
    shown = {each.type for each in node.status.conditions} | {"Ready"}
    message = "Kubelet stopped posting node status."
    for type_ in _REPORTED:
        if type_ in shown:
            set_node_condition(node.status, type_, "Unknown", now_ns, "NodeStatusUnknown", message)


def mark_reporting(node: node_pb2.Node, now_ns: int) -> None:
    """Set Unknown conditions to those of a healthy node, and remove the taints of silence."""
    remove_taints(node, NOT_READY, UNREACHABLE)
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
