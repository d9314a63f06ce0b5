"""Two controllers that delete pods: the taint manager and the pod garbage collector.

The taint manager deletes the pods of nodes with NoExecute taints that they do not tolerate, or no
longer. A pod without tolerations of not-ready and unreachable tolerates each for `toleration_s`, as
the default admission adds it to every pod.

The garbage collector deletes ended pods beyond a threshold: every 20 s, at whole multiples of 20 s
(planned only while there are too many), evicted pods first, then the oldest. Upstream sends the
deletions in parallel; here they are in order.

Source: kubernetes v1.34 pkg/controller/tainteviction/taint_eviction.go, processPodOnNode,
getMinTolerationTime, addConditionAndDeletePod; plugin/pkg/admission/defaulttolerationseconds;
pkg/controller/podgc/gc_controller.go, gcTerminated, byEvictionAndCreationTimestamp;
pkg/kubelet/eviction/eviction_manager.go, PodIsEvicted; cmd/kube-controller-manager,
--terminated-pod-gc-threshold.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from replay.world.api.cluster import Changed
from replay.world.api.conditions import mark_disrupted
from replay.world.api.pod_record import PodRecord
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.models import SECOND_NS
from replay.world.state import WorldState
from replay.world.timeline import ActionKind
from reprieve.kube.v1beta1 import node_pb2
from services.kube.taints import Taint, TaintEffect, Toleration
from services.rpc.kube import fields

INTERVAL_NS = 20 * SECOND_NS
NEVER_NS = 2**63
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
_DEFAULTED = (NOT_READY, UNREACHABLE)


class TaintEviction:
    """The taint manager; with the model's `toleration_s` None it deletes no pods."""

    def __init__(self, state: WorldState, lifecycle: PodLifecycle) -> None:
        self._cluster = state.cluster
        self._timeline = state.timeline
        self._toleration_s = state.models.toleration_s
        self._lifecycle = lifecycle
        self._tainted: dict[str, tuple[Taint, ...]] = {}

    @property
    def is_idle(self) -> bool:
        """Return whether no node has a NoExecute taint."""
        return not self._tainted

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Process pods of nodes whose taints have changed, and changed pods of tainted nodes."""
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
                self._process(now_ns, pod, taints)
        for uid in list(changed.pods) if self._tainted else ():
            changed_pod = self._cluster.pods.get(uid)
            if changed_pod is None or changed_pod.is_terminal:
                continue
            if changed_pod.node_name in self._tainted:
                self._process(now_ns, changed_pod, self._tainted[changed_pod.node_name])

    def act(self, now_ns: int, pod: PodRecord) -> None:
        """Delete a pod that no longer tolerates its node's taints."""
        if not pod.is_active:
            return
        why = "Taint manager: deleting due to NoExecute taint"
        mark_disrupted(pod.message.status, now_ns, "DeletionByTaintManager", why)
        self._lifecycle.delete(now_ns, pod, None, "taint")

    def _process(self, now_ns: int, pod: PodRecord, taints: tuple[Taint, ...]) -> None:
        if pod.is_terminating:
            return
        tolerated_ns = self._tolerated_ns(pod, taints)
        if tolerated_ns is None:
            self._timeline.cancel(ActionKind.TAINT, pod.uid)
        elif tolerated_ns == 0:
            self.act(now_ns, pod)
        elif self._timeline.planned_ns(ActionKind.TAINT, pod.uid) is None:
            self._timeline.plan(now_ns + tolerated_ns, ActionKind.TAINT, pod.uid)

    def _tolerated_ns(self, pod: PodRecord, taints: tuple[Taint, ...]) -> int | None:
        """Return how long a pod tolerates the taints, ns, None for ever."""
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
        """Return the tolerations that admission adds: of each key that has none yet."""
        own = [each for each in tolerations if each.effect in (None, TaintEffect.NO_EXECUTE)]
        return tuple(
            Toleration(
                key=key,
                operator="Exists",
                effect=TaintEffect.NO_EXECUTE,
                seconds=self._toleration_s,
            )
            for key in _DEFAULTED
            if not any(each.key in ("", key) for each in own)
        )


def _no_execute(node: node_pb2.Node | None) -> tuple[Taint, ...]:
    if node is None:
        return ()
    return tuple(
        Taint(key=each.key, value=each.value, effect=TaintEffect.NO_EXECUTE)
        for each in node.spec.taints
        if each.effect == "NoExecute"
    )


class PodGarbageCollection:
    """Keeps at most the model's `ended_pods_max` ended pods; with 0 it keeps all."""

    def __init__(self, state: WorldState, lifecycle: PodLifecycle) -> None:
        self._cluster = state.cluster
        self._timeline = state.timeline
        self._threshold = state.models.ended_pods_max
        self._lifecycle = lifecycle

    def reconcile(self, now_ns: int) -> None:
        """Plan the next collection if there are too many ended pods and none is planned."""
        if not self._excess() or self._timeline.planned_ns(ActionKind.POD_GC, "") is not None:
            return
        self._timeline.plan(_next_collection_ns(now_ns), ActionKind.POD_GC, "")

    def collects_ns(self, now_ns: int, more: int) -> int:
        """Return when pods would be collected if `more` had ended at `now_ns`; NEVER_NS: never."""
        return _next_collection_ns(now_ns) if self._excess(more) else NEVER_NS

    def collect(self, now_ns: int) -> None:
        """Delete the ended pods beyond the threshold."""
        excess = self._excess()
        for pod in heapq.nsmallest(excess, self._cluster.ended.values(), key=_rank):
            self._lifecycle.delete(now_ns, pod, 0, "collected")

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
