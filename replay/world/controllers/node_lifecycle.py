"""The lives of nodes: added, cordoned, silent, reporting again, deleted.

A node's kubelet does not act while the trace says that it does not (Ready is Unknown, or False:
kubelet/silence.py), and from when the run lets it fail until it recovers; what a trace says of a
node's readiness meanwhile does not end a failure that the run has caused. The pods of a silent node
stay as they are; those that are deleted are terminating until the node reports again, or the pod
garbage collector removes them (pod_gc.py). No pod of a node that is Unknown is ready.

The pods of a deleted node are collected after `pod_gc_ns`. Pods of a node that the trace never had
run as they are: a list without it is likelier than a trace that begins within its minute. Drains,
which cordon nodes, are in drains.py; what the node lifecycle controller does is in node_monitor.py.

Source: kubernetes v1.34 pkg/controller/nodelifecycle/node_lifecycle_controller.go, processPod;
pkg/controller/podgc/gc_controller.go, gcOrphaned (a quarantine of 40 s, checked every 20 s);
pkg/kubelet/kubelet_pods.go, generateAPIPodStatus.
"""

from __future__ import annotations

from replay.world.api.cluster import Changed
from replay.world.api.conditions import remove_taints, set_pod_condition
from replay.world.api.node_health import (
    NO_EXECUTE,
    NO_SCHEDULE,
    READY_TAINTS,
    drop_taints,
    has_taint,
    mark_reporting,
    mark_unknown,
    ready_condition,
    ready_status,
    taint_by_conditions,
)
from replay.world.api.pod_record import PodRecord
from replay.world.controller import Controller, Ending
from replay.world.controllers.node_monitor import NodeMonitor
from replay.world.controllers.node_notes import NodeNotes
from replay.world.kubelet.annotations import node_actions
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.kubelet.pressure import NodePressure
from replay.world.kubelet.silence import Hold, hold_by_condition
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, object_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.taints import UNSCHEDULABLE
from services.rpc.kube.codec import node_from_message

_ACTION_KINDS = {
    trace_pb2.NODE_ACTION_TYPE_DRAIN: ActionKind.DRAIN,
    trace_pb2.NODE_ACTION_TYPE_FAIL: ActionKind.SILENT,
    trace_pb2.NODE_ACTION_TYPE_RECOVER: ActionKind.BACK,
}


class NodeLifecycle(Controller):
    """Drives every node of a cluster through its life."""

    keeps = frozenset({"Node"})
    reads = frozenset({"node_action"})
    actions = frozenset({ActionKind.SILENT, ActionKind.BACK, ActionKind.COLLECT})
    _failed: dict[str, None]
    _missing: dict[str, None]
    _cordoned: dict[str, None]
    _marks: dict[str, dict[str, node_pb2.Taint]]
    _retired: dict[str, None]

    def __init__(
        self,
        state: WorldState,
        lifecycle: PodLifecycle,
        pressure: NodePressure,
        monitor: NodeMonitor,
    ) -> None:
        super().__init__(state)
        self._lifecycle = lifecycle
        self._pressure = pressure
        self._silent = lifecycle.silent
        self._monitor = monitor
        self._failed = {}
        self._missing = {}
        self._cordoned = {}
        self._marks = {}
        self._retired = {}
        self._notes = NodeNotes()

    def put(self, now_ns: int, message: object_pb2.KubernetesObject) -> None:
        """Add or replace a node. Raises FieldError for one that cannot be decoded.

        Versions of a node that was retired are left out.
        """
        node = message.node
        name = node.metadata.name
        if name in self._retired:
            return
        node_from_message(node)
        is_new = name not in self._cluster.nodes
        actions = node_actions(node.metadata.annotations) if is_new else []
        self._pressure.keep_own(node)
        if name in self._failed and not self._monitor.waits_for(name):
            self._keep_unknown(now_ns, node)
        if name in self._cordoned:
            node.spec.unschedulable = True
        for taint in self._marks.get(name, {}).values():
            _add(node, taint)
        taint_by_conditions(node, now_ns)
        self._cluster.put_node(now_ns, node)
        if is_new:
            self._timeline.cancel(ActionKind.COLLECT, name)
            self._missing.pop(name, None)
        self._listen(now_ns, name)
        self._pressure.node_changed(now_ns, name)
        for after_ns, action in actions:
            self._timeline.plan(now_ns + after_ns, _ACTION_KINDS[action], name)

    def remove(self, now_ns: int, ref: meta_pb2.ObjectReference) -> None:
        """Delete a node; its pods are collected later."""
        name = ref.name
        if name not in self._cluster.nodes:
            return
        self._pressure.forget(name)
        self._lifecycle.images.forget(name)
        for kind in self.actions | {ActionKind.DRAIN}:
            self._timeline.cancel(kind, name)
        self._cordoned.pop(name, None)
        self._marks.pop(name, None)
        self._failed.pop(name, None)
        self._monitor.reports(name)
        self._cluster.remove_node(now_ns, name)
        self._missing[name] = None
        self._silent.set(now_ns, name, Hold.ALL)
        if self._models.pod_gc_ns:
            self._timeline.plan(now_ns + self._models.pod_gc_ns, ActionKind.COLLECT, name)
        else:
            self._collect(now_ns, name)

    def retire(self, now_ns: int, name: str) -> None:
        """Delete a node permanently: later records of it in the trace do not add it again."""
        self._retired[name] = None
        self.remove(now_ns, meta_pb2.ObjectReference(kind="Node", name=name))

    def read(self, now_ns: int, record: trace_pb2.Record) -> None:
        """Let a node fail or recover; drains are another controller's."""
        action = record.node_action
        name, kind = action.node_name, _ACTION_KINDS.get(action.type)
        if kind is None:
            self._journal.note("refused", f"node {name}: a node action of an unknown type")
        elif kind is ActionKind.DRAIN:
            return
        elif name not in self._cluster.nodes:
            self._journal.note("refused", f"node {name} does not exist: it cannot fail or recover")
        else:
            self.act(now_ns, Action(kind, name))

    def act(self, now_ns: int, action: Action) -> None:
        """Carry out a planned action of a node."""
        name = action.key
        match action.kind:
            case ActionKind.COLLECT:
                self._collect(now_ns, name)
            case _ if name not in self._cluster.nodes:
                return
            case ActionKind.SILENT:
                self._fall_silent(now_ns, name)
            case ActionKind.BACK:
                self._report_again(now_ns, name)

    def concerns(self, _pod: PodRecord) -> bool:
        """Return whether any kubelet is silent: the pod may be on its node later."""
        return bool(len(self._silent))

    def conclude(self, _ending: Ending) -> None:
        """Note the nodes with silent kubelets, and nodes that do not exist."""
        self._notes.write(self._journal.notes, self._silent.stuck)

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Process changed pods of nodes that are Unknown or not in the trace."""
        for uid, message in list(changed.pods.items()):
            name = message.spec.node_name
            if not name:
                continue
            node = self._cluster.nodes.get(name)
            if node is None:
                self._note_missing(name)
            elif name in self._silent and ready_status(node) == "Unknown":
                pod = self._cluster.pods.get(uid)
                if pod is not None:
                    self._monitor.mark_not_ready(now_ns, pod)

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
        drop_taints(node, (UNSCHEDULABLE,), NO_SCHEDULE)
        self._cluster.put_node(now_ns, node)

    def mark(self, now_ns: int, name: str, taint: node_pb2.Taint, *, cordon: bool) -> None:
        """Add a taint to a node that has none of its key, and cordon it then.

        The trace's later versions of it are changed in the same way, until `unmark`.
        """
        node = self._cluster.nodes[name]
        if has_taint(node, taint.key):
            return
        kept = node_pb2.Taint()
        kept.CopyFrom(taint)
        self._marks.setdefault(name, {})[taint.key] = kept
        _add(node, kept)
        if not (cordon and self.cordon(now_ns, name)):
            self._cluster.put_node(now_ns, node)

    def unmark(self, now_ns: int, name: str, key: str, *, uncordon: bool) -> None:
        """Remove a node's taints of a key, and uncordon it if there were any."""
        node = self._cluster.nodes[name]
        if not has_taint(node, key):
            return
        self._marks.get(name, {}).pop(key, None)
        remove_taints(node, key)
        if uncordon:
            self.uncordon(now_ns, name)
        else:
            self._cluster.put_node(now_ns, node)

    # Silence

    def _fall_silent(self, now_ns: int, name: str) -> None:
        if name in self._failed:
            return
        self._failed[name] = None
        self._listen(now_ns, name)
        if ready_status(self._cluster.nodes[name]) != "Unknown":
            self._monitor.fell_silent(now_ns, name)

    def _report_again(self, now_ns: int, name: str) -> None:
        """Let a node report, one too that is not ready in the trace."""
        node = self._cluster.nodes[name]
        self._failed.pop(name, None)
        self._monitor.reports(name)
        if ready_status(node) != "True":
            mark_reporting(node, now_ns, self._pressure.conditions_of(name))
            self._cluster.put_node(now_ns, node)
            self._journal.condition_changed(now_ns, name, "Ready", "True")
        self._listen(now_ns, name)

    def _keep_unknown(self, now_ns: int, node: node_pb2.Node) -> None:
        """Keep a failed node's conditions and taints in a version of the trace."""
        stored = self._cluster.nodes[node.metadata.name]
        mark_unknown(node, now_ns)
        for effect in (NO_SCHEDULE, NO_EXECUTE):
            drop_taints(node, READY_TAINTS.values(), effect)
        kept = [taint for taint in stored.spec.taints if taint.key in READY_TAINTS.values()]
        node.spec.taints.extend(kept)
        was, ready = ready_condition(stored), ready_condition(node)
        if was is not None and ready is not None:
            ready.CopyFrom(was)

    def _listen(self, now_ns: int, name: str) -> None:
        """Apply a change of a kubelet's silence to the waiting actions and the pods of its node."""
        node = self._cluster.nodes[name]
        hold = Hold.ALL if name in self._failed else hold_by_condition(node)
        was = self._silent.hold_of(name)
        self._silent.set(now_ns, name, hold)
        if hold is not None and hold is not was and name not in self._failed:
            self._notes.not_ready[hold][name] = None
        pods = list(self._cluster.active_by_node.get(name, {}).values())
        if hold is Hold.ALL and ready_status(node) == "Unknown":
            for pod in pods:
                self._monitor.mark_not_ready(now_ns, pod)
        elif was is Hold.ALL and hold is not Hold.ALL:
            for pod in pods:
                self._report_ready(now_ns, pod)
            self._pressure.node_changed(now_ns, name)

    def _report_ready(self, now_ns: int, pod: PodRecord) -> None:
        """Report a running pod as ready again, if all of its containers are."""
        message = pod.message
        if pod.running_ns is None or pod.is_ready or pod.awaits_ready:
            return
        if all(container.ready for container in message.status.container_statuses):
            set_pod_condition(message.status, "Ready", "True", now_ns)
            self._cluster.status_changed(now_ns, pod)

    # Nodes that do not exist

    def _note_missing(self, name: str) -> None:
        """Note once that pods are on a node that was never there."""
        if name not in self._missing:
            self._missing[name] = None
            self._notes.missing[name] = None

    def _collect(self, now_ns: int, name: str) -> None:
        """Remove the pods of a node that was deleted and not added again."""
        self._silent.drop(name)
        for pod in list(self._cluster.pods_by_node.get(name, {}).values()):
            self._lifecycle.lose(now_ns, pod)


def _add(node: node_pb2.Node, taint: node_pb2.Taint) -> None:
    if not has_taint(node, taint.key):
        node.spec.taints.append(taint)
