"""The lives of nodes: they come and go, are drained, fall silent and come back.

A node that is silent keeps its pods as they are: what its kubelet would do is held back until it
reports again. After `node_grace_ns` it is tainted, and the taint manager takes its pods
(taint_eviction.py), which terminate for as long as the node is silent. Pods of a node that has gone
are collected after `pod_gc_ns`. Upstream taints failing nodes one after the other, and stops where
most of a zone fails; here each is tainted when its own time has come.

A drain that cannot go on is no reason for a replay to go on: what is refused is tried every 5 s,
but counts as something to come only once a budget allows it.

Source: kubernetes v1.34 pkg/controller/nodelifecycle/node_lifecycle_controller.go,
monitorNodeHealth, nodeConditionToTaintKeyStatusMap, doNoScheduleTaintingPass,
processTaintBaseEviction, tryUpdateNodeHealth; pkg/controller/podgc/gc_controller.go, gcOrphaned (a
quarantine of 40 s, looked at every 20 s); kubectl pkg/drain/drain.go, evictPods, filters.go.
"""

from __future__ import annotations

from replay.world.api.cluster import Cluster
from replay.world.api.conditions import set_node_condition, set_pod_condition
from replay.world.api.pod_record import PodRecord
from replay.world.controllers.controllers import Controllers
from replay.world.controllers.disruption import Evictions
from replay.world.controllers.taint_eviction import NOT_READY, UNREACHABLE
from replay.world.journal import Journal
from replay.world.kubelet.annotations import node_actions
from replay.world.kubelet.pod_lifecycle import Lives
from replay.world.kubelet.pressure import Pressure
from replay.world.models import SECOND_NS, Models
from replay.world.timeline import Action, Kind, Timeline
from reprieve.kube.v1beta1 import node_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.kube.codec import node_from_message
from services.rpc.kube.fields import set_time

DRAIN_RETRY_NS = 5 * SECOND_NS
_MIRROR = "kubernetes.io/config.mirror"
_KINDS = {
    trace_pb2.NODE_ACTION_TYPE_DRAIN: Kind.DRAIN,
    trace_pb2.NODE_ACTION_TYPE_FAIL: Kind.SILENT,
    trace_pb2.NODE_ACTION_TYPE_RECOVER: Kind.BACK,
}
NODE_KINDS = frozenset({*_KINDS.values(), Kind.UNREACHABLE, Kind.COLLECT})
"""The kinds of actions that are a node's and none of its kubelet's eviction manager."""
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class NodeLives:
    """Drives every node of a cluster through its life."""

    def __init__(
        self,
        cluster: Cluster,
        timeline: Timeline,
        lives: Lives,
        controllers: Controllers,
        pressure: Pressure,
        evictions: Evictions,
        *,
        models: Models,
        journal: Journal,
    ) -> None:
        self._cluster = cluster
        self._timeline = timeline
        self._lives = lives
        self._controllers = controllers
        self._pressure = pressure
        self._evictions = evictions
        self._models = models
        self._journal = journal
        self._held: dict[str, dict[Action, None]] = {}
        self._draining: dict[str, list[PodRecord]] = {}

    def put(self, now_ns: int, node: node_pb2.Node) -> None:
        """Add or replace a node. Raises FieldError for one that cannot be read."""
        name = node.metadata.name
        node_from_message(node)
        actions = node_actions(node.metadata.annotations) if name not in self._cluster.nodes else []
        self._pressure.keep_own(node)
        known = self._cluster.nodes.get(name)
        if known is None and name in self._held:
            self._hear(now_ns, name)
        elif name in self._held and not self._awaits_silence(name):
            stop_reporting(node, now_ns)
        if self._draining.get(name):
            node.spec.unschedulable = True
        taint_by_conditions(node, now_ns)
        self._cluster.put_node(now_ns, node)
        self._pressure.node_changed(now_ns, name)
        for after_ns, action in actions:
            self._timeline.plan(now_ns + after_ns, _KINDS[action], name)

    def remove(self, now_ns: int, name: str) -> None:
        """Take a node out; its pods are collected later. An unknown one is accepted."""
        if name not in self._cluster.nodes:
            return
        self._pressure.forget(name)
        self._lives.images.forget(name)
        for kind in NODE_KINDS:
            self._timeline.cancel(kind, name)
        self._draining.pop(name, None)
        self._cluster.remove_node(now_ns, name)
        self._held.setdefault(name, {})
        if self._models.pod_gc_ns:
            self._timeline.plan(now_ns + self._models.pod_gc_ns, Kind.COLLECT, name)
        else:
            self._collect(now_ns, name)

    def told(self, now_ns: int, action: trace_pb2.NodeAction) -> str:
        """Do what the trace tells of a node; answer why that is refused, "" where it is not."""
        kind = _KINDS.get(action.type)
        if kind is None:
            return f"node {action.node_name}: a node action of an unknown type"
        if action.node_name not in self._cluster.nodes:
            return f"node {action.node_name} is not there: it cannot be drained, fail or recover"
        self.act(now_ns, kind, action.node_name)
        return ""

    def act(self, now_ns: int, kind: Kind, name: str) -> None:
        """Carry out a planned action of a node."""
        match kind:
            case Kind.COLLECT:
                self._collect(now_ns, name)
            case _ if name not in self._cluster.nodes:
                return
            case Kind.DRAIN:
                self._drain(now_ns, name)
            case Kind.SILENT:
                self._fall_silent(now_ns, name)
            case Kind.UNREACHABLE:
                self._give_up(now_ns, name)
            case Kind.BACK:
                self._come_back(now_ns, name)

    def holds_back(self, action: Action, pod: PodRecord) -> bool:
        """Tell whether a pod's kubelet is not there to act, and keep the action for it if so."""
        held = self._held.get(pod.node_name)
        if held is None or not pod.node_name or action.kind is Kind.TAINT:
            return False
        held[action] = None
        return True

    @property
    def all_report(self) -> bool:
        """Tell whether each kubelet does what is to be done."""
        return not self._held

    def is_silent(self, name: str) -> bool:
        """Tell whether a node's kubelet does nothing now."""
        return name in self._held

    def reconcile(self) -> None:
        """Let a drain be waited for as soon as a budget allows it to go on."""
        for name, refused in self._draining.items():
            at_ns = self._timeline.planned_ns(Kind.DRAIN, name)
            if at_ns is not None and any(self._could_go(pod) for pod in refused):
                self._timeline.plan(at_ns, Kind.DRAIN, name)

    # Drains

    def _drain(self, now_ns: int, name: str) -> None:
        """Cordon a node and evict what is on it, but for daemon and mirror pods."""
        node = self._cluster.nodes[name]
        if not node.spec.unschedulable:
            node.spec.unschedulable = True
            taint_by_conditions(node, now_ns)
            self._cluster.put_node(now_ns, node)
        refused = []
        for pod in list(self._cluster.pods_by_node.get(name, {}).values()):
            meta = pod.message.metadata
            spared = _MIRROR in meta.annotations or self._controllers.is_daemon(pod.message)
            if pod.is_terminating or spared:
                continue
            refusal = self._evictions.evict(now_ns, pod, "drained")
            if refusal:
                self._journal.note("drain", f"pod {pod.key}: {refusal}")
                refused.append(pod)
        self._draining[name] = refused
        if refused:
            self._timeline.plan(now_ns + DRAIN_RETRY_NS, Kind.DRAIN, name, idle=True)

    def _could_go(self, pod: PodRecord) -> bool:
        return pod.uid in self._cluster.pods and not self._evictions.refusal(pod)

    # Silence

    def _fall_silent(self, now_ns: int, name: str) -> None:
        if name not in self._held:
            self._held[name] = {}
            self._timeline.plan(now_ns + self._models.node_grace_ns, Kind.UNREACHABLE, name)

    def _awaits_silence(self, name: str) -> bool:
        """Tell whether nobody has noticed yet that a node is silent."""
        return self._timeline.planned_ns(Kind.UNREACHABLE, name) is not None

    def _give_up(self, now_ns: int, name: str) -> None:
        """Mark a silent node and its pods; upstream's MarkPodsNotReady."""
        node = self._cluster.nodes[name]
        stop_reporting(node, now_ns)
        taint_by_conditions(node, now_ns)
        self._cluster.put_node(now_ns, node)
        self._journal.condition_changed(now_ns, name, "Ready", "Unknown")
        for pod in list(self._cluster.active_by_node.get(name, {}).values()):
            if pod.is_ready:
                set_pod_condition(pod.message.status, "Ready", "False", now_ns, "NodeNotReady")
                self._cluster.status_changed(now_ns, pod)

    def _come_back(self, now_ns: int, name: str) -> None:
        if name not in self._held:
            return
        was_noticed = not self._awaits_silence(name)
        self._timeline.cancel(Kind.UNREACHABLE, name)
        if was_noticed:
            node = self._cluster.nodes[name]
            report_again(node, now_ns)
            self._cluster.put_node(now_ns, node)
            self._journal.condition_changed(now_ns, name, "Ready", "True")
            for pod in list(self._cluster.active_by_node.get(name, {}).values()):
                if pod.running_ns is not None and not pod.is_ready:
                    set_pod_condition(pod.message.status, "Ready", "True", now_ns)
                    self._cluster.status_changed(now_ns, pod)
        self._hear(now_ns, name)
        self._pressure.node_changed(now_ns, name)

    def _hear(self, now_ns: int, name: str) -> None:
        """Let a kubelet do what it has missed."""
        self._timeline.cancel(Kind.COLLECT, name)
        for action in self._held.pop(name):
            if action.key in self._cluster.pods:
                self._timeline.plan(now_ns, action.kind, action.key)

    def _collect(self, now_ns: int, name: str) -> None:
        """Remove the pods of a node that has not come back."""
        self._held.pop(name, None)
        for pod in list(self._cluster.pods_by_node.get(name, {}).values()):
            self._lives.lose(now_ns, pod)


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
