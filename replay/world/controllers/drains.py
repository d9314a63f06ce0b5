"""Drains of nodes: a node is cordoned, and its pods are evicted as their budgets allow.

A blocked drain is retried every 5 s; the retry is idle, so that it does not keep a replay running,
until a budget allows an eviction.

Source: kubernetes v1.34 kubectl pkg/drain/drain.go, evictPods, filters.go.
"""

from __future__ import annotations

from replay.world.api.pod_record import PodRecord
from replay.world.controllers.controllers import Controllers
from replay.world.controllers.disruption import EvictionApi
from replay.world.controllers.node_lifecycle import NodeLifecycle
from replay.world.models import SECOND_NS
from replay.world.state import WorldState
from replay.world.timeline import ActionKind

RETRY_NS = 5 * SECOND_NS
_MIRROR = "kubernetes.io/config.mirror"


class Drains:
    """Drives the drains of a cluster."""

    def __init__(
        self,
        state: WorldState,
        nodes: NodeLifecycle,
        controllers: Controllers,
        eviction_api: EvictionApi,
    ) -> None:
        self._cluster = state.cluster
        self._timeline = state.timeline
        self._journal = state.journal
        self._nodes = nodes
        self._controllers = controllers
        self._eviction_api = eviction_api
        self._refused: dict[str, list[PodRecord]] = {}

    def act(self, now_ns: int, name: str) -> None:
        """Begin a node's drain, or retry it: evict its pods, except daemon and mirror pods."""
        self._refused.pop(name, None)
        if name not in self._cluster.nodes:
            return
        self._nodes.cordon(now_ns, name)
        refused = []
        for pod in list(self._cluster.pods_by_node.get(name, {}).values()):
            meta = pod.message.metadata
            is_kept = _MIRROR in meta.annotations or self._controllers.is_daemon(pod.message)
            if pod.is_terminating or is_kept:
                continue
            refusal = self._eviction_api.evict(now_ns, pod, "drained")
            if refusal:
                self._journal.note("drain", f"pod {pod.key}: {refusal}")
                refused.append(pod)
        if refused:
            self._refused[name] = refused
            self._timeline.plan(now_ns + RETRY_NS, ActionKind.DRAIN, name, idle=True)

    def reconcile(self, _now_ns: int) -> None:
        """Make the retry of a drain count (not idle) as soon as a budget allows an eviction."""
        for name, refused in self._refused.items():
            at_ns = self._timeline.planned_ns(ActionKind.DRAIN, name)
            if at_ns is not None and any(map(self._is_evictable, refused)):
                self._timeline.plan(at_ns, ActionKind.DRAIN, name)

    def _is_evictable(self, pod: PodRecord) -> bool:
        return pod.uid in self._cluster.pods and not self._eviction_api.refusal(pod)
