"""The node lifecycle controller: nodes that fail become Unknown, and are tainted zone by zone.

It looks at the nodes every 5 s, at whole multiples of 5 s, and only while there is something to
see. A node that has been silent for `node_grace_ns` becomes Unknown, its pods not ready. A look
later it waits for its NoExecute taint, which evicts its pods (taint_eviction.py), at the pace of
its zone (zones.py); those of one zone follow in the order of their creation. Where all zones have
lost all of their nodes the taints are removed and no more are set: the fault is likely the control
plane's. A node that is ready again loses its NoExecute taints at the next look.

Upstream taints within 100 ms of the look, and nodes of one zone in no particular order. What the
controller had done just before the trace begins is not known: every zone begins with a token.

Source: kubernetes v1.34 pkg/controller/nodelifecycle/node_lifecycle_controller.go,
monitorNodeHealth, tryUpdateNodeHealth, processTaintBaseEviction, doNoExecuteTaintingPass,
handleDisruption, isNodeExcludedFromDisruptionChecks; kube-controller-manager's
--node-monitor-period (5 s); pkg/controller/util/node/controller_utils.go, MarkPodsNotReady.
"""

from __future__ import annotations

from collections import Counter

from replay.world.api.cluster import Changed
from replay.world.api.conditions import set_pod_condition
from replay.world.api.node_health import (
    NO_EXECUTE,
    READY_TAINTS,
    add_taint,
    drop_taints,
    has_taint,
    mark_unknown,
    ready_condition,
    ready_status,
    taint_by_conditions,
)
from replay.world.api.pod_record import PodRecord
from replay.world.controller import Controller
from replay.world.controllers.zones import Zone, ZoneState, period_ns, zone_state
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.kube.v1beta1 import node_pb2
from services.kube.node import Node
from services.kube.time import SECOND_NS

PERIOD_NS = 5 * SECOND_NS
_EXCLUDED = "node.kubernetes.io/exclude-disruption"
_ALL_LOST = (
    "no node of any zone is ready: the node lifecycle controller takes the NoExecute taints away "
    "and evicts no pods until a node is ready"
)


class NodeMonitor(Controller):
    """Monitors the nodes of a cluster, and taints those that fail."""

    actions = frozenset({ActionKind.MONITOR, ActionKind.TAINT_NODE})
    _silent_until_ns: dict[str, int]
    _zones: dict[str, Zone]
    _failing: dict[str, None]
    _looked_ns: int

    def __init__(self, state: WorldState) -> None:
        super().__init__(state)
        self._grace_ns = state.models.node_grace_ns
        self._failing = {}
        self._looked_ns = -1

    def fell_silent(self, now_ns: int, name: str) -> None:
        """Note that a node has stopped reporting."""
        self._silent_until_ns[name] = now_ns + self._grace_ns
        self._plan(now_ns + self._grace_ns)

    def reports(self, name: str) -> None:
        """Note that a node reports, or was deleted."""
        self._silent_until_ns.pop(name, None)

    def waits_for(self, name: str) -> bool:
        """Return whether a node is silent, but not for long enough to be Unknown."""
        return name in self._silent_until_ns

    def act(self, now_ns: int, action: Action) -> None:
        """Look at the nodes, or taint the next one of a zone."""
        if action.kind is ActionKind.MONITOR:
            self._look(now_ns)
        else:
            self._taint_next(now_ns, action.key)

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Plan a check if nodes that are not ready, or others beside such nodes, have changed."""
        for name in changed.nodes:
            node = self._cluster.nodes.get(name)
            fails = node is not None and (ready_status(node) != "True" or _is_tainted(node))
            if fails or self._failing:  # Among failing nodes, healthy ones count for their zones.
                self._plan(now_ns)
            if fails:
                self._failing[name] = None
            else:
                self._failing.pop(name, None)

    def _look(self, now_ns: int) -> None:
        """Check all nodes: update their conditions, and queue those that fail for tainting."""
        self._looked_ns = now_ns
        ready: Counter[str] = Counter()
        unready: Counter[str] = Counter()
        before, self._zones = self._zones, {}
        for zone in before.values():
            zone.waiting.clear()
        for name, node in list(self._cluster.nodes.items()):
            key = _zone_key(node)
            zone = self._zones.setdefault(key, before.get(key) or Zone())
            observed = ready_status(node)
            silent_until_ns = self._silent_until_ns.get(name)
            if silent_until_ns is not None and silent_until_ns <= now_ns:
                del self._silent_until_ns[name]
                self._mark_unknown(now_ns, name, node)
            self._process(now_ns, zone, node, observed)
            if _EXCLUDED not in node.metadata.labels:
                (ready if ready_status(node) == "True" else unready)[key] += 1
        self._handle_disruption(now_ns, ready, unready)
        self._plan_taints(now_ns)
        if self._silent_until_ns:
            self._plan(min(self._silent_until_ns.values()))

    def _taint_next(self, now_ns: int, key: str) -> None:
        """Taint the next failed node of a zone; a removed node uses up its turn, too."""
        zone = self._zones.get(key)
        if zone is None or not zone.waiting or zone.pace.due_ns(now_ns) != now_ns:
            return
        zone.pace.take(now_ns)
        name = next(iter(zone.waiting))
        del zone.waiting[name]
        node = self._cluster.nodes.get(name)
        taint = None if node is None else READY_TAINTS.get(ready_status(node))
        if node is not None and taint is not None:
            add_taint(node, now_ns, taint, NO_EXECUTE)
            self._cluster.put_node(now_ns, node)
        self._plan_taints(now_ns)

    # A look

    def _process(self, now_ns: int, zone: Zone, node: node_pb2.Node, observed: str) -> None:
        """Queue a node that fails, swap its taint, or remove those of one that is ready.

        `observed` is its status before this look.
        """
        key = READY_TAINTS.get(observed)
        if key is None:
            if ready_condition(node) is not None:
                self._clear(now_ns, node)
            return
        if has_taint(node, key, NO_EXECUTE):
            return
        if drop_taints(node, READY_TAINTS.values(), NO_EXECUTE):
            add_taint(node, now_ns, key, NO_EXECUTE)
            self._cluster.put_node(now_ns, node)
        else:
            zone.waiting[node.metadata.name] = None

    def _clear(self, now_ns: int, node: node_pb2.Node) -> None:
        """Remove a node's NoExecute taints of readiness."""
        if drop_taints(node, READY_TAINTS.values(), NO_EXECUTE):
            self._cluster.put_node(now_ns, node)

    def _mark_unknown(self, now_ns: int, name: str, node: node_pb2.Node) -> None:
        """Mark a silent node as Unknown and its pods as not ready."""
        mark_unknown(node, now_ns)
        taint_by_conditions(node, now_ns)
        self._cluster.put_node(now_ns, node)
        self._journal.condition_changed(now_ns, name, "Ready", "Unknown")
        for pod in list(self._cluster.active_by_node.get(name, {}).values()):
            self.mark_not_ready(now_ns, pod)

    def mark_not_ready(self, now_ns: int, pod: PodRecord) -> None:
        """Mark a pod of a node that is Unknown as not ready; its containers stay as reported."""
        if pod.is_ready:
            set_pod_condition(pod.message.status, "Ready", "False", now_ns, "NodeNotReady")
            self._cluster.status_changed(now_ns, pod)

    # Zones

    def _handle_disruption(self, now_ns: int, ready: Counter[str], unready: Counter[str]) -> None:
        """Set the pace of each zone by its new state."""
        counted = {key: zone for key, zone in self._zones.items() if ready[key] or unready[key]}
        states = {key: zone_state(ready[key], unready[key]) for key in counted}
        were_lost = all(zone.state is ZoneState.FULL for zone in counted.values())
        are_lost = all(state is ZoneState.FULL for state in states.values())
        if are_lost and were_lost:
            return
        if are_lost:
            self._journal.note("zones", _ALL_LOST)
            for node in list(self._cluster.nodes.values()):
                self._clear(now_ns, node)
        elif were_lost:
            until_ns = now_ns + self._grace_ns
            self._silent_until_ns = dict.fromkeys(self._silent_until_ns, until_ns)
        for key, zone in counted.items():
            state, nodes = states[key], ready[key] + unready[key]
            if state is zone.state and not (are_lost or were_lost):
                continue
            zone.state = state
            pace_ns = None if are_lost else period_ns(state, nodes)
            zone.pace.swap(now_ns, pace_ns)
            if state is ZoneState.PARTIAL:
                self._note_partial(key, unready[key], nodes, pace_ns)

    def _note_partial(self, key: str, unready: int, nodes: int, pace_ns: int | None) -> None:
        region, _, zone = key.partition(":\x00:")
        where = f"zone {zone or region}" if key else "the cluster, which has no zones,"
        if pace_ns is None:
            effect = "evicts no pods of theirs (--unhealthy-zone-threshold, up to 50 nodes)"
        else:
            effect = "taints one of them every 100 s (--secondary-node-eviction-rate)"
        text = f"{unready} of {nodes} nodes of {where} are not ready"
        self._journal.note("zones", f"{text}: the node lifecycle controller {effect}")

    # When

    def _plan(self, at_ns: int) -> None:
        """Plan the first look at that time or after it, and after the last look."""
        at_ns = max(-(-at_ns // PERIOD_NS) * PERIOD_NS, self._looked_ns + PERIOD_NS)
        self._timeline.plan_earlier(at_ns, ActionKind.MONITOR, "")

    def _plan_taints(self, now_ns: int) -> None:
        for key, zone in self._zones.items():
            due_ns = zone.pace.due_ns(now_ns)
            if zone.waiting and due_ns is not None:
                self._timeline.plan(due_ns, ActionKind.TAINT_NODE, key)
            else:
                self._timeline.cancel(ActionKind.TAINT_NODE, key)


def _is_tainted(node: node_pb2.Node) -> bool:
    """Return whether a node that reports its readiness has a NoExecute taint of it."""
    if ready_condition(node) is None:
        return False
    return any(has_taint(node, key, NO_EXECUTE) for key in READY_TAINTS.values())


def _zone_key(node: node_pb2.Node) -> str:
    return Node(name=node.metadata.name, labels=node.metadata.labels).zone_key
