"""Drains of nodes: each is cordoned, and its pods are evicted as their budgets allow.

One drain may be of several nodes: `parallel` at a time. With `uncordon_after_ns` it is an upgrade:
a node is cordoned when its turn comes, and once its pods have gone, and that time has passed, it is
uncordoned and the next node's turn comes. Without it all nodes are cordoned at the beginning. The
pods of a node are listed once. DaemonSets' pods and mirror pods stay. A node whose drain fails (it
has pods that the drain refuses, or a pod under several budgets) stays cordoned, and the next node's
turn comes.

An eviction that a budget refuses is retried every 5 s; the retry is idle, so that it does not keep
a replay running, until a budget allows an eviction. kubectl looks once a second whether a pod has
gone, and here a drain ends when the last one has.

Source: kubernetes v1.34 kubectl pkg/drain/drain.go, evictPods, and filters.go; kubectl
pkg/cmd/drain/drain.go, RunDrain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from replay.world.api.cluster import Changed
from replay.world.api.node_order import NodeOrder, ordered_nodes
from replay.world.api.pod_record import PodRecord, controller_of
from replay.world.controller import Controller, Ending
from replay.world.controllers.disruption import EvictionApi, EvictionRefusal
from replay.world.controllers.node_lifecycle import NodeLifecycle
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS

RETRY_NS = 5 * SECOND_NS
_MIRROR = "kubernetes.io/config.mirror"
_SHOWN = 5
_ORDERS = {
    trace_pb2.DRAIN_ORDER_LEAST_USED: NodeOrder.LEAST_USED,
    trace_pb2.DRAIN_ORDER_YOUNGEST: NodeOrder.YOUNGEST,
}


@dataclass(slots=True, kw_only=True)
class _Drain:
    """A drain of nodes: those whose turn has not come, and those whose turn it is."""

    options: trace_pb2.Drain
    waiting: list[str]
    active: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _NodeDrain:
    """The drain of one node, until it is uncordoned; times in ns.

    pods: UIDs of those that are evicted and have not gone. refused: when the eviction of a pod was
    refused first. recorded: evicted pods and refusals, as last recorded. failed: why the drain
    cannot succeed any more. waited_ns: by budget, how long the last of its pods waited for it.
    is_drained: the node waits until it is uncordoned.
    """

    drain: _Drain
    began_ns: int
    pods: dict[str, None]
    evicted: int = 0
    refused: dict[str, tuple[int, EvictionRefusal]] = field(default_factory=dict)
    recorded: tuple[int, str] = (0, "")
    waited_ns: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    is_drained: bool = False


class Drains(Controller):
    """Drives the drains of a cluster."""

    reads = frozenset({"node_action"})
    actions = frozenset({ActionKind.DRAIN, ActionKind.UNCORDON})
    _asked: list[trace_pb2.NodeAction]
    _drains: list[_Drain]
    _active: dict[str, _NodeDrain]
    _unmanaged: list[str]
    _empty_dir: list[str]

    def __init__(self, state: WorldState, nodes: NodeLifecycle, eviction_api: EvictionApi) -> None:
        super().__init__(state)
        self._nodes = nodes
        self._eviction_api = eviction_api

    def read(self, _now_ns: int, record: trace_pb2.Record) -> None:
        """Begin a drain once the controllers have run: the budgets' status is current then.

        Nodes that do not exist are noted and left out.
        """
        action = record.node_action
        if action.type != trace_pb2.NODE_ACTION_TYPE_DRAIN:
            return
        names = action.drain.node_names or [action.node_name]
        for name in names:
            if name not in self._cluster.nodes:
                self._journal.note("refused", f"node {name} does not exist: it cannot drain")
        if any(name in self._cluster.nodes for name in names):
            self._asked.append(action)

    def _begin(self, now_ns: int, action: trace_pb2.NodeAction) -> None:
        names = []
        for name in action.drain.node_names or [action.node_name]:
            if name in self._active:
                self._journal.note("refused", f"node {name} is being drained already")
            elif name in self._cluster.nodes:
                names.append(name)
        drain = _Drain(options=action.drain, waiting=self._ordered(names, action.drain.order))
        self._drains.append(drain)
        if not drain.options.HasField("uncordon_delay_duration_ns"):
            for name in drain.waiting:
                self._cordon(now_ns, name)
        self._go_on(now_ns, drain)

    def act(self, now_ns: int, action: Action) -> None:
        """Carry out a planned action of a node's drain; for "" begin the requested drains."""
        kind, name = action
        if not name:
            asked, self._asked = self._asked, []
            for requested in asked:
                self._begin(now_ns, requested)
            return
        drained = self._active.get(name)
        if drained is None:
            if kind is ActionKind.DRAIN:
                self._begin(now_ns, trace_pb2.NodeAction(node_name=name))
        elif name not in self._cluster.nodes:
            self._end(now_ns, name)
        elif kind is ActionKind.UNCORDON:
            self._nodes.uncordon(now_ns, name)
            self._journal.node_drain(now_ns, name, "Uncordoned")
            self._end(now_ns, name)
        else:
            self._evict(now_ns, name, drained)

    def reconcile(self, now_ns: int, _changed: Changed) -> None:
        """Plan the next steps of drains: at once if a node's pods, or the node, were deleted.

        The retry of a refused eviction counts (not idle) as soon as a budget allows one.
        """
        if self._asked:
            self._timeline.plan(now_ns, ActionKind.DRAIN, "")
        pods = self._cluster.pods
        for name, drained in self._active.items():
            if name not in self._cluster.nodes:
                self._timeline.plan(now_ns, ActionKind.DRAIN, name)
            elif drained.is_drained:
                continue
            elif not any(uid in pods for uid in drained.pods):
                self._timeline.plan(now_ns, ActionKind.DRAIN, name)
            elif any(map(self._is_evictable, drained.refused)):
                at_ns = self._timeline.planned_ns(ActionKind.DRAIN, name)
                if at_ns is not None:
                    self._timeline.plan(at_ns, ActionKind.DRAIN, name)

    def conclude(self, ending: Ending) -> None:
        """Note the drains that are not finished, and what kubectl would have refused."""
        for name, drained in self._active.items():
            if drained.refused:
                self._note(_blocked_text(name, drained, self._cluster.pods, ending.start_ns))
            elif not drained.is_drained:
                remaining = (self._cluster.pods.get(uid) for uid in drained.pods)
                pods = [pod.key for pod in remaining if pod is not None]
                self._note(f"node {name} is not drained: {_listed(pods)} did not terminate")
        for drain in self._drains:
            if drain.waiting:
                self._note(f"their turn to be drained never came: nodes {_listed(drain.waiting)}")
        if self._unmanaged:
            self._note(
                "evicted pods without a controller, which nothing creates again; kubectl drain "
                f"refuses their nodes without --force: {_listed(self._unmanaged)}"
            )
        if self._empty_dir:
            self._note(
                "evicted pods with emptyDir volumes, whose data is lost; kubectl drain refuses "
                f"their nodes without --delete-emptydir-data: {_listed(self._empty_dir)}"
            )

    def _note(self, text: str) -> None:
        self._journal.notes["drain", text] = 1

    def _ordered(self, names: list[str], order: trace_pb2.DrainOrder.ValueType) -> list[str]:
        if order not in _ORDERS:
            return names
        nodes = {name: self._cluster.nodes[name] for name in names}
        pods = (
            pod.message
            for name in names
            for pod in self._cluster.active_by_node.get(name, {}).values()
        )
        return ordered_nodes(nodes, _ORDERS[order], pods)

    def _go_on(self, now_ns: int, drain: _Drain) -> None:
        """Begin with the next nodes, up to the number that is drained at a time."""
        while drain.waiting and len(drain.active) < max(1, drain.options.parallel):
            name = drain.waiting.pop(0)
            if name in self._cluster.nodes and name not in self._active:
                self._begin_node(now_ns, name, drain)

    def _begin_node(self, now_ns: int, name: str, drain: _Drain) -> None:
        self._cordon(now_ns, name)
        pods = [
            pod for pod in self._cluster.pods_by_node.get(name, {}).values() if not _is_kept(pod)
        ]
        problem = self._refusal(drain.options, pods)
        if problem:
            self._journal.node_drain(now_ns, name, "Failed", message=problem)
            self._journal.note(
                "drain", f"node {name} is not drained, and stays cordoned: {problem}"
            )
            return
        drained = _NodeDrain(drain=drain, began_ns=now_ns, pods={pod.uid: None for pod in pods})
        self._active[name] = drained
        drain.active[name] = None
        self._evict(now_ns, name, drained)

    def _cordon(self, now_ns: int, name: str) -> None:
        if self._nodes.cordon(now_ns, name):
            self._journal.node_drain(now_ns, name, "Cordoned")

    def _refusal(self, options: trace_pb2.Drain, pods: Sequence[PodRecord]) -> str:
        """Return why a node is not drained at all, "" if its pods may be evicted."""
        problems = []
        if options.refuse_unmanaged and (unmanaged := list(filter(_is_unmanaged, pods))):
            problems.append(f"pods without a controller (no force): {_keys(unmanaged)}")
        if options.refuse_empty_dir and (with_empty_dir := list(filter(_has_empty_dir, pods))):
            text = "pods with emptyDir volumes (no delete-emptydir-data)"
            problems.append(f"{text}: {_keys(with_empty_dir)}")
        return "; ".join(problems)

    def _evict(self, now_ns: int, name: str, drained: _NodeDrain) -> None:
        """Evict the pods that were not evicted yet; end the drain where none is left."""
        for uid in list(drained.pods):
            pod = self._cluster.pods.get(uid)
            if pod is None or pod.node_name != name:
                del drained.pods[uid]
                self._allowed(now_ns, uid, drained)
            elif pod.is_terminating:
                # Something else has deleted a refused pod; on a silent node it stays for ever.
                self._allowed(now_ns, uid, drained)
            else:
                self._evict_pod(now_ns, pod, drained)
        if drained.refused:
            self._timeline.plan(now_ns + RETRY_NS, ActionKind.DRAIN, name, idle=True)
            text = _refusals_text(drained, self._cluster.pods)
            if drained.recorded != (drained.evicted, text):
                drained.recorded = (drained.evicted, text)
                took_ns = now_ns - drained.began_ns
                self._journal.node_drain(now_ns, name, "Blocked", took_ns, drained.evicted, text)
        elif not drained.pods:
            self._pods_gone(now_ns, name, drained)

    def _evict_pod(self, now_ns: int, pod: PodRecord, drained: _NodeDrain) -> None:
        refusal = self._eviction_api.evict(now_ns, pod, "drained")
        if refusal is not None:
            self._journal.note("drain", f"pod {pod.key}: {refusal.text}")
            if refusal.is_final:
                drained.failed.append(f"pod {pod.key}: {refusal.text}")
                del drained.pods[pod.uid]
            else:
                since_ns, _ = drained.refused.get(pod.uid, (now_ns, refusal))
                drained.refused[pod.uid] = (since_ns, refusal)
            return
        self._allowed(now_ns, pod.uid, drained)
        drained.evicted += 1
        if drained.drain.options != trace_pb2.Drain():
            if _is_unmanaged(pod):
                self._unmanaged.append(pod.key)
            if _has_empty_dir(pod):
                self._empty_dir.append(pod.key)

    def _allowed(self, now_ns: int, uid: str, drained: _NodeDrain) -> None:
        """Count how long a pod's eviction was refused."""
        if uid in drained.refused:
            since_ns, refusal = drained.refused.pop(uid)
            waited_ns = max(drained.waited_ns.get(refusal.budget, 0), now_ns - since_ns)
            drained.waited_ns[refusal.budget] = waited_ns

    def _pods_gone(self, now_ns: int, name: str, drained: _NodeDrain) -> None:
        took_ns, evicted = now_ns - drained.began_ns, drained.evicted
        if drained.failed:
            text = "; ".join(drained.failed)
            self._journal.node_drain(now_ns, name, "Failed", took_ns, evicted, text)
            self._end(now_ns, name)
            return
        text = ", ".join(
            f"{key} {waited_ns // SECOND_NS}s" for key, waited_ns in drained.waited_ns.items()
        )
        text = f"waited for budgets: {text}" if text else ""
        self._journal.node_drain(now_ns, name, "Drained", took_ns, evicted, text)
        options = drained.drain.options
        if options.HasField("uncordon_delay_duration_ns"):
            drained.is_drained = True
            self._timeline.plan(
                now_ns + options.uncordon_delay_duration_ns, ActionKind.UNCORDON, name
            )
        else:
            self._end(now_ns, name)

    def _end(self, now_ns: int, name: str) -> None:
        """End a node's turn."""
        drain = self._active.pop(name).drain
        del drain.active[name]
        for kind in (ActionKind.DRAIN, ActionKind.UNCORDON):
            self._timeline.cancel(kind, name)
        self._go_on(now_ns, drain)

    def _is_evictable(self, uid: str) -> bool:
        pod = self._cluster.pods.get(uid)
        return pod is not None and self._eviction_api.refusal(pod) is None


def _is_kept(pod: PodRecord) -> bool:
    """Return whether a drain leaves a pod on its node: a DaemonSet's, or a mirror pod.

    A DaemonSet that the trace does not have counts as one that exists.
    """
    meta = pod.message.metadata
    if _MIRROR in meta.annotations:
        return True
    owner = controller_of(meta)
    is_daemon = owner is not None and owner.kind == "DaemonSet"
    return is_daemon and not pod.is_terminal


def _is_unmanaged(pod: PodRecord) -> bool:
    return not pod.owner_uid and not pod.is_terminal


def _has_empty_dir(pod: PodRecord) -> bool:
    volumes = pod.message.spec.volumes
    return not pod.is_terminal and any(volume.HasField("empty_dir") for volume in volumes)


def _blocked_text(
    name: str, drained: _NodeDrain, pods: Mapping[str, PodRecord], start_ns: int
) -> str:
    since_ns = min(since_ns for since_ns, _ in drained.refused.values())
    return (
        f"node {name} is not drained: blocked since {_elapsed(since_ns - start_ns)} after the "
        f"beginning: {_refusals_text(drained, pods)}"
    )


def _refusals_text(drained: _NodeDrain, pods: Mapping[str, PodRecord]) -> str:
    """Return the budgets that refuse evictions, with the pods of each, and the final refusals."""
    keys: dict[str, list[str]] = {}
    for uid, (_, refusal) in drained.refused.items():
        if uid in pods:
            keys.setdefault(refusal.budget, []).append(pods[uid].key)
    refusals = [f"budget {key} refuses {_listed(refused)}" for key, refused in keys.items()]
    return "; ".join([*refusals, *drained.failed])


def _keys(pods: Iterable[PodRecord]) -> str:
    return _listed([pod.key for pod in pods])


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _elapsed(elapsed_ns: int) -> str:
    """Return a time in whole seconds, such as "1h5m0s" or "90s"."""
    seconds = elapsed_ns // SECOND_NS
    if seconds < 2 * 60:
        return f"{seconds}s"
    hours, minutes = divmod(seconds // 60, 60)
    return (f"{hours}h" if hours else "") + f"{minutes}m{seconds % 60}s"
