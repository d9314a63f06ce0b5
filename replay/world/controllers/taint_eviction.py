"""The taint manager: it deletes the pods of nodes with NoExecute taints that they do not tolerate.

A pod that tolerates a taint for some seconds is deleted when they are over. They count from the
later of the taint's `timeAdded` and the pod's binding; a taint without a time, or with a later one
than now, counts from now. Of several such taints the one that counts first decides, as upstream's
manager keeps the deletion that it has planned. Upstream's keeps its plans in memory: after a
restart of the controller manager all of them begin anew, which no trace shows.

A pod without tolerations of not-ready and unreachable tolerates each for `toleration_s`, as the
default admission adds it to every pod.

Source: kubernetes v1.34 pkg/controller/tainteviction/taint_eviction.go, processPodOnNode,
getMinTolerationTime, addConditionAndDeletePod; plugin/pkg/admission/defaulttolerationseconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from replay.world.api.cluster import Changed
from replay.world.api.conditions import bound_since_ns, mark_disrupted
from replay.world.api.pod_record import PodRecord
from replay.world.controller import Controller
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.kube.v1beta1 import node_pb2
from services.kube.taints import NOT_READY, UNREACHABLE, Taint, TaintEffect, Toleration
from services.kube.time import SECOND_NS
from services.rpc.kube import fields

_DEFAULTED = (NOT_READY, UNREACHABLE)


class TaintEviction(Controller):
    """The taint manager; with the model's `toleration_s` None it deletes no pods."""

    actions = frozenset({ActionKind.TAINT})
    _tainted: dict[str, tuple[Taint, ...]]

    def __init__(self, state: WorldState, lifecycle: PodLifecycle) -> None:
        super().__init__(state)
        self._toleration_s = state.models.toleration_s
        self._lifecycle = lifecycle

    def concerns(self, _pod: PodRecord) -> bool:
        """Return whether a node has a NoExecute taint: the pod may come to be on it."""
        return bool(self._tainted)

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

    def act(self, now_ns: int, action: Action) -> None:
        """Delete a pod whose toleration of its node's taints has ended."""
        pod = self._cluster.pods.get(action.key)
        if pod is not None:
            self._evict(now_ns, pod)

    def _evict(self, now_ns: int, pod: PodRecord) -> None:
        if not pod.is_active:
            return
        why = "Taint manager: deleting due to NoExecute taint"
        mark_disrupted(pod.message.status, now_ns, "DeletionByTaintManager", why)
        self._lifecycle.delete(now_ns, pod, None, "taint")

    def _process(self, now_ns: int, pod: PodRecord, taints: tuple[Taint, ...]) -> None:
        if pod.is_terminating:
            return
        due_ns = self._due_ns(now_ns, pod, taints)
        if due_ns is None:
            self._timeline.cancel(ActionKind.TAINT, pod.uid)
        elif due_ns <= now_ns:
            self._evict(now_ns, pod)
        elif self._timeline.planned_ns(ActionKind.TAINT, pod.uid) is None:
            self._timeline.plan(due_ns, ActionKind.TAINT, pod.uid)

    def _due_ns(self, now_ns: int, pod: PodRecord, taints: tuple[Taint, ...]) -> int | None:
        """Return until when a pod tolerates the taints, ns, None for ever."""
        tolerations = fields.tolerations(pod.message.spec.tolerations, "spec.tolerations")
        tolerations += self._defaults(tolerations)
        bound_ns = bound_since_ns(pod.message)
        bounds: list[tuple[int, int]] = []
        for taint in taints:
            used = next(
                (toleration for toleration in tolerations if toleration.tolerates(taint)), None
            )
            if used is None:
                return now_ns
            if used.seconds is not None:
                added_ns = now_ns if taint.time_added_ns is None else taint.time_added_ns
                since_ns = min(now_ns, max(added_ns, bound_ns))
                bounds.append((since_ns, max(0, used.seconds) * SECOND_NS))
        return sum(min(bounds)) if bounds else None

    def _defaults(self, tolerations: Iterable[Toleration]) -> tuple[Toleration, ...]:
        """Return the tolerations that admission adds: of each key that has none yet."""
        present = [
            toleration
            for toleration in tolerations
            if toleration.effect in (None, TaintEffect.NO_EXECUTE)
        ]
        return tuple(
            Toleration(
                key=key,
                operator="Exists",
                effect=TaintEffect.NO_EXECUTE,
                seconds=self._toleration_s,
            )
            for key in _DEFAULTED
            if not any(toleration.key in ("", key) for toleration in present)
        )


def _no_execute(node: node_pb2.Node | None) -> tuple[Taint, ...]:
    if node is None:
        return ()
    taints = fields.taints(node.spec.taints, "spec.taints")
    return tuple(taint for taint in taints if taint.effect is TaintEffect.NO_EXECUTE)
