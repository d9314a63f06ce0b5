"""The pod garbage collector: pods that have ended, or that no kubelet will ever finish.

It runs every 20 s, at whole multiples of 20 s, and only while there is something to collect.

- Of more than `ended_pods_max` ended pods the rest is deleted: evicted pods first, then the oldest.
  Upstream sends the deletions in parallel; here they are in order.
- Terminating pods are removed from a node that is not ready and has the taint
  node.kubernetes.io/out-of-service.
- Terminating pods without a node are removed; those that finalizers hold become Failed.

The pods of nodes that do not exist are collected by node_lifecycle.py, whose quarantine is a model.

Source: kubernetes v1.34 pkg/controller/podgc/gc_controller.go, gcTerminated, gcTerminating,
gcUnscheduledTerminating, byEvictionAndCreationTimestamp, markFailedAndDeletePodWithCondition;
pkg/kubelet/eviction/eviction_manager.go, PodIsEvicted; cmd/kube-controller-manager,
--terminated-pod-gc-threshold.
"""

from __future__ import annotations

import heapq

from replay.world.api.cluster import Changed
from replay.world.api.node_health import has_taint, ready_status
from replay.world.api.pod_record import PodRecord
from replay.world.controller import NEVER_NS, Controller
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from services.kube.taints import OUT_OF_SERVICE
from services.kube.time import SECOND_NS

INTERVAL_NS = 20 * SECOND_NS


class PodGarbageCollection(Controller):
    """Keeps at most the model's `ended_pods_max` ended pods (0: all), and removes stuck ones."""

    actions = frozenset({ActionKind.POD_GC})
    _out_of_service: dict[str, None]
    _without_node: dict[str, None]

    def __init__(self, state: WorldState, lifecycle: PodLifecycle) -> None:
        super().__init__(state)
        self._threshold = state.models.ended_pods_max
        self._lifecycle = lifecycle
        self._out_of_service = {}
        self._without_node = {}

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Plan the next collection if there is something to collect and none is planned."""
        for name in changed.nodes:
            node = self._cluster.nodes.get(name)
            if (
                node is not None
                and ready_status(node) != "True"
                and has_taint(node, OUT_OF_SERVICE)
            ):
                self._out_of_service[name] = None
            else:
                self._out_of_service.pop(name, None)
        for uid, message in changed.pods.items():
            if not message.spec.node_name and message.metadata.HasField("deletion_timestamp"):
                self._without_node[uid] = None
        if self._timeline.planned_ns(ActionKind.POD_GC, "") is not None:
            return
        if self._excess() or self._stuck():
            self._timeline.plan(_next_collection_ns(now_ns), ActionKind.POD_GC, "")

    def wakeup_ns(self, now_ns: int, ended: int) -> int:
        """Return when pods would be collected if so many more had ended at `now_ns`."""
        return _next_collection_ns(now_ns) if self._excess(ended) else NEVER_NS

    def act(self, now_ns: int, _action: Action) -> None:
        """Delete the ended pods beyond the threshold, and those that no kubelet will finish."""
        excess = self._excess()
        for pod in heapq.nsmallest(excess, self._cluster.ended.values(), key=_rank):
            self._lifecycle.delete(now_ns, pod, 0, "collected")
        for pod in self._stuck():
            self._lifecycle.give_up(now_ns, pod)
        self._without_node = {uid: None for uid in self._without_node if uid in self._cluster.pods}

    def _stuck(self) -> list[PodRecord]:
        """Return the terminating pods that no kubelet will finish.

        Of those that have ended finalizers hold what is left.
        """
        if not (self._out_of_service or self._without_node):
            return []
        by_node = self._cluster.pods_by_node
        pods = [pod for name in self._out_of_service for pod in by_node.get(name, {}).values()]
        pods += [pod for uid in self._without_node if (pod := self._cluster.pods.get(uid))]
        return [
            pod for pod in pods if pod.is_terminating and not (pod.is_terminal and pod.finalizers)
        ]

    def _excess(self, more: int = 0) -> int:
        ended = len(self._cluster.ended) + more
        return max(0, ended - self._threshold) if self._threshold else 0


def _next_collection_ns(now_ns: int) -> int:
    return -(-now_ns // INTERVAL_NS) * INTERVAL_NS


def _rank(pod: PodRecord) -> tuple[bool, int, str, str]:
    """Return the order of ended pods; creation counts in whole seconds, as API servers keep it."""
    meta, status = pod.message.metadata, pod.message.status
    is_evicted = status.phase == "Failed" and status.reason == "Evicted"
    return (not is_evicted, meta.creation_timestamp.seconds, meta.name, pod.key)
