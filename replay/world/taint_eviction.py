"""The taint manager: pods leave a node whose NoExecute taints they do not put up with.

A pod that tolerates neither not-ready nor unreachable puts up with each for `toleration_s`, as
admission gives every pod in a cluster.

Source: kubernetes v1.34 pkg/controller/tainteviction/taint_eviction.go, processPodOnNode,
getMinTolerationTime, addConditionAndDeletePod; plugin/pkg/admission/defaulttolerationseconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from replay.world.cluster import Changed, Cluster
from replay.world.conditions import mark_disrupted
from replay.world.lives import Lives
from replay.world.models import SECOND_NS
from replay.world.pod_record import PodRecord
from replay.world.timeline import Kind, Timeline
from reprieve.kube.v1beta1 import node_pb2
from services.kube.taints import Taint, TaintEffect, Toleration
from services.rpc import kube_fields

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
        tolerations = kube_fields.tolerations(pod.message.spec.tolerations, "spec.tolerations")
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
