"""The taint manager and the pod garbage collector: pods that controllers delete.

A pod that tolerates neither not-ready nor unreachable puts up with each for `toleration_s`, as
admission gives every pod in a cluster.

Source: kubernetes v1.34 pkg/controller/tainteviction/taint_eviction.go, processPodOnNode,
getMinTolerationTime, addConditionAndDeletePod; plugin/pkg/admission/defaulttolerationseconds.

The garbage collection of pods that have ended: a cluster keeps so many of them and no more.

Every 20 s those beyond the threshold are deleted at once: evicted ones first, then the oldest. The
look is on whole multiples of 20 s, and planned only while there are too many. Upstream sends the
deletions side by side; here they go in their order.

Source: kubernetes v1.34 pkg/controller/podgc/gc_controller.go, gcTerminated,
byEvictionAndCreationTimestamp; pkg/kubelet/eviction/eviction_manager.go, PodIsEvicted;
cmd/kube-controller-manager, --terminated-pod-gc-threshold.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from replay.world.api.cluster import Changed, Cluster
from replay.world.api.conditions import mark_disrupted
from replay.world.api.pod_record import PodRecord
from replay.world.kubelet.pod_lifecycle import Lives
from replay.world.models import SECOND_NS
from replay.world.timeline import Kind, Timeline
from reprieve.kube.v1beta1 import node_pb2
from services.kube.taints import Taint, TaintEffect, Toleration
from services.rpc.kube import fields

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
_DEFAULTED = (NOT_READY, UNREACHABLE)


class TaintEviction:
    """Plans the end of pods on tainted nodes; with `toleration_s` None nobody has to go."""

    def __init__(
        self, cluster: Cluster, lives: Lives, timeline: Timeline, toleration_s: int | None
    ) -> None:
        self._cluster = cluster
        self._lives = lives
        self._timeline = timeline
        self._toleration_s = toleration_s
        self._tainted: dict[str, tuple[Taint, ...]] = {}

    @property
    def is_idle(self) -> bool:
        """Tell whether no node has a taint that pods may have to leave for."""
        return not self._tainted

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Look at the nodes that have changed, and at the pods on tainted nodes that have."""
        if self._toleration_s is None:
            return
        for name in changed.nodes:
            taints = _no_execute(self._cluster.nodes.get(name))
            if taints == self._tainted.get(name, ()):
                continue
            if taints:
                self._tainted[name] = taints
            else:
                self._tainted.pop(name, None)
            for pod in list(self._cluster.active_by_node.get(name, {}).values()):
                self._judge(now_ns, pod, taints)
        if self._tainted:
            self._look_at(now_ns, changed.pods)

    def act(self, now_ns: int, pod: PodRecord) -> None:
        """Delete a pod that has put up with its node's taints for long enough."""
        if pod.is_terminating or pod.is_terminal:
            return
        why = "Taint manager: deleting due to NoExecute taint"
        mark_disrupted(pod.message.status, now_ns, "DeletionByTaintManager", why)
        self._lives.delete(now_ns, pod, None, "taint")

    def _look_at(self, now_ns: int, uids: Iterable[str]) -> None:
        for uid in list(uids):
            pod = self._cluster.pods.get(uid)
            if pod is not None and pod.node_name in self._tainted and not pod.is_terminal:
                self._judge(now_ns, pod, self._tainted[pod.node_name])

    def _judge(self, now_ns: int, pod: PodRecord, taints: tuple[Taint, ...]) -> None:
        if pod.is_terminating:
            return
        stays_ns = self._stays_ns(pod, taints)
        if stays_ns is None:
            self._timeline.cancel(Kind.TAINT, pod.uid)
        elif stays_ns == 0:
            self.act(now_ns, pod)
        elif self._timeline.planned_ns(Kind.TAINT, pod.uid) is None:
            self._timeline.plan(now_ns + stays_ns, Kind.TAINT, pod.uid)

    def _stays_ns(self, pod: PodRecord, taints: tuple[Taint, ...]) -> int | None:
        """Return how long a pod puts up with taints, None for ever."""
        tolerations = fields.tolerations(pod.message.spec.tolerations, "spec.tolerations")
        tolerations += self._defaults(tolerations)
        bounds: list[int] = []
        for taint in taints:
            used = next((each for each in tolerations if each.tolerates(taint)), None)
            if used is None:
                return 0
            if used.seconds is not None:
                bounds.append(max(0, used.seconds) * SECOND_NS)
        return min(bounds, default=None)

    def _defaults(self, tolerations: Iterable[Toleration]) -> tuple[Toleration, ...]:
        """Return what admission adds: a toleration of each key that nothing tolerates yet."""
        given = [each for each in tolerations if each.effect in (None, TaintEffect.NO_EXECUTE)]
        return tuple(
            Toleration(
                key=key,
                operator="Exists",
                effect=TaintEffect.NO_EXECUTE,
                seconds=self._toleration_s,
            )
            for key in _DEFAULTED
            if not any(each.key in ("", key) for each in given)
        )


def _no_execute(node: node_pb2.Node | None) -> tuple[Taint, ...]:
    if node is None:
        return ()
    return tuple(
        Taint(key=each.key, value=each.value, effect=TaintEffect.NO_EXECUTE)
        for each in node.spec.taints
        if each.effect == "NoExecute"
    )


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
