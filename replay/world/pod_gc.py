"""The garbage collection of pods that have ended: a cluster keeps so many of them and no more.

Every 20 s those beyond the threshold are deleted at once: evicted ones first, then the oldest. The
look is on whole multiples of 20 s, and planned only while there are too many. Upstream sends the
deletions side by side; here they go in their order.

Source: kubernetes v1.34 pkg/controller/podgc/gc_controller.go, gcTerminated,
byEvictionAndCreationTimestamp; pkg/kubelet/eviction/eviction_manager.go, PodIsEvicted;
cmd/kube-controller-manager, --terminated-pod-gc-threshold.
"""

from __future__ import annotations

import heapq

from replay.world.cluster import Cluster
from replay.world.lives import Lives
from replay.world.models import SECOND_NS
from replay.world.pod_record import PodRecord
from replay.world.timeline import Kind, Timeline

INTERVAL_NS = 20 * SECOND_NS
NEVER_NS = 2**63
_CAUSE = "collected"


class PodGarbageCollection:
    """Keeps at most `threshold` ended pods of a cluster; with 0 it keeps all."""

    def __init__(self, cluster: Cluster, lives: Lives, timeline: Timeline, threshold: int) -> None:
        self._cluster = cluster
        self._lives = lives
        self._timeline = timeline
        self._threshold = threshold

    def reconcile(self, now_ns: int) -> None:
        """Plan the next look if there are too many ended pods and none is planned."""
        if not self._excess() or self._timeline.planned_ns(Kind.POD_GC, "") is not None:
            return
        self._timeline.plan(_next_look_ns(now_ns), Kind.POD_GC, "")

    def collects_ns(self, now_ns: int, more: int) -> int:
        """Return when pods are collected where at `now_ns` so many more than now have ended."""
        return _next_look_ns(now_ns) if self._excess(more) else NEVER_NS

    def collect(self, now_ns: int) -> None:
        """Delete what is too many."""
        excess = self._excess()
        for pod in heapq.nsmallest(excess, self._cluster.ended.values(), key=_place):
            self._lives.delete(now_ns, pod, 0, _CAUSE)

    def _excess(self, more: int = 0) -> int:
        ended = len(self._cluster.ended) + more
        return max(0, ended - self._threshold) if self._threshold else 0


def _next_look_ns(now_ns: int) -> int:
    return -(-now_ns // INTERVAL_NS) * INTERVAL_NS


def _place(pod: PodRecord) -> tuple[bool, int, str, str]:
    """Return what orders ended pods: API servers keep whole seconds, and names settle the rest."""
    meta, status = pod.message.metadata, pod.message.status
    is_evicted = status.phase == "Failed" and status.reason == "Evicted"
    return (not is_evicted, meta.creation_timestamp.seconds, meta.name, pod.key)
