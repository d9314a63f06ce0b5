"""Decides whether a node may be drained: the first rule that applies to a pod decides about it.

First come pods that no longer matter, then the check that the controller would recreate the pod
(which even an annotation does not override), then what lets a pod go, and then what blocks. A pod
that no rule speaks about may be moved.

Source: kubernetes/autoscaler 1.36 simulator/drainability/rules, one folder a rule;
simulator/drain.go, GetPodsToMove; utils/drain/drain.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterPod, ReplicaController
from services.autoscaler.core.options import Options
from services.autoscaler.core.scale_down.disruptions import RemainingBudgets
from services.kube.pod import PodPhase
from services.kube.time import SECOND_NS

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
ON_COMPLETION = "on-completion"
SAFE_LOCAL_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
LONG_TERMINATING_NS = 30 * SECOND_NS
"""How long after its grace period a terminating pod still counts."""
DEFAULT_GRACE_S = 30
_SYSTEM_NAMESPACE = "kube-system"
_REPLICATED = {"ReplicationController", "Job", "ReplicaSet", "StatefulSet"}


class Blocking(Enum):
    """The reason for which a pod blocks the drain of its node, by upstream's names."""

    CONTROLLER_NOT_FOUND = "ControllerNotFound"
    MIN_REPLICAS_REACHED = "MinReplicasReached"
    NOT_REPLICATED = "NotReplicated"
    LOCAL_STORAGE_REQUESTED = "LocalStorageRequested"
    NOT_SAFE_TO_EVICT_ANNOTATION = "NotSafeToEvictAnnotation"
    UNMOVABLE_KUBE_SYSTEM_POD = "UnmovableKubeSystemPod"
    NOT_ENOUGH_PDB = "NotEnoughPdb"


class Fate(Enum):
    """The treatment of a pod that does not block the drain."""

    IGNORED = "ignored"
    MOVES = "moves"
    COMPLETES = "completes"


Verdict = Fate | Blocking | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """The controllers that exist: daemon sets by key, others by kind and key.

    `changes` counts their changes.
    """

    daemon_sets: frozenset[str] = frozenset()
    by_kind: Mapping[tuple[str, str], ReplicaController] = field(default_factory=dict)
    changes: int = 0

    def get(self, kind: str, namespace: str, name: str) -> ReplicaController | None:
        """Return a controller, None for an unknown one."""
        return self.by_kind.get((kind, f"{namespace}/{name}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining:
    """The input of the rules beside the pod.

    `controllers` None: controllers are not asked for, as when a node counts as empty already.
    """

    now: Now
    options: Options
    budgets: RemainingBudgets = field(default_factory=RemainingBudgets)
    controllers: Controllers | None = None


@dataclass(slots=True)
class PodsToMove:
    """The pods of a node by their treatment, or the first one that blocks."""

    pods: list[ClusterPod] = field(default_factory=list)
    daemon_pods: list[ClusterPod] = field(default_factory=list)
    on_completion: list[ClusterPod] = field(default_factory=list)
    blocking: tuple[ClusterPod, Blocking] | None = None
    _unassigned: list[ClusterPod] = field(default_factory=list)

    def unassigned(self) -> Iterator[ClusterPod]:
        """Yield `pods` without their node, to be scheduled again; the same objects each time."""
        for place, pod in enumerate(self.pods):
            if place == len(self._unassigned):
                self._unassigned.append(replace(pod, pod=replace(pod.pod, node_name="")))
            yield self._unassigned[place]


def pods_to_move(pods: Iterable[ClusterPod], draining: Draining) -> PodsToMove:
    """Divide a node's pods by their treatment, up to the first one that blocks."""
    moved = PodsToMove()
    for pod in pods:
        match verdict(pod, draining):
            case Fate.IGNORED:
                pass
            case Fate.COMPLETES:
                moved.on_completion.append(pod)
            case Fate.MOVES if pod.is_daemon:
                moved.daemon_pods.append(pod)
            case Fate.MOVES:
                moved.pods.append(pod)
            case Blocking() as reason:
                moved.blocking = pod, reason
                break
    return moved


def verdict(pod: ClusterPod, draining: Draining) -> Fate | Blocking:
    """Return the verdict of the first rule that decides about the pod."""
    for rule in RULES:
        decided = rule(pod, draining)
        if decided is not None:
            return decided
    return Fate.MOVES


def is_long_terminating(pod: ClusterPod, now: Now) -> bool:
    """Return whether the pod's deletion is overdue by 30 s.

    Source: IsPodLongTerminating. The time of deletion already has the grace period in it.
    """
    deletion_ns = pod.pod.deletion_ns
    if deletion_ns is None:
        return False
    grace_s = pod.pod.spec.termination_grace_period_s
    grace_ns = (DEFAULT_GRACE_S if grace_s is None else grace_s) * SECOND_NS
    return now.is_after(deletion_ns + grace_ns + LONG_TERMINATING_NS)


def _mirror(pod: ClusterPod, _draining: Draining) -> Verdict:
    return Fate.IGNORED if pod.is_mirror else None


def _long_terminating(pod: ClusterPod, draining: Draining) -> Verdict:
    return Fate.IGNORED if is_long_terminating(pod, draining.now) else None


def _replica_count(pod: ClusterPod, draining: Draining) -> Verdict:
    """Block if the controller is missing, or has too few replicas. Source: replicacount/rule.go.

    An API group that the autoscaler does not watch is not looked up.
    """
    owner, controllers = pod.controller, draining.controllers
    asks = draining.options.skip_nodes_with_custom_controller_pods
    if owner is None or controllers is None or not asks or owner.api_version.count("/") > 1:
        return None
    group = owner.api_version.rpartition("/")[0]
    kind, key = owner.kind, f"{pod.pod.namespace}/{owner.name}"
    if pod.is_daemon and kind != "ReplicationController":
        watched = group == "apps" and kind == "DaemonSet"
        known = not watched or key in controllers.daemon_sets
        return None if known else Blocking.CONTROLLER_NOT_FOUND
    if kind not in _REPLICATED or (kind == "StatefulSet" and group != "apps"):
        return None
    controller = controllers.get(kind, pod.pod.namespace, owner.name)
    if controller is None:
        return Blocking.CONTROLLER_NOT_FOUND
    counted = kind in {"ReplicationController", "ReplicaSet"}
    if counted and controller.desired < draining.options.min_replica_count:
        return Blocking.MIN_REPLICAS_REACHED
    return None


def _daemon_set(pod: ClusterPod, _draining: Draining) -> Verdict:
    return Fate.MOVES if pod.is_daemon else None


def _safe_to_evict(pod: ClusterPod, _draining: Draining) -> Verdict:
    return Fate.MOVES if pod.pod.annotations.get(SAFE_TO_EVICT) == "true" else None


def _terminal(pod: ClusterPod, _draining: Draining) -> Verdict:
    """Let finished pods go; one that succeeded is not finished if it is restarted always."""
    phase = pod.pod.phase
    ended = phase is PodPhase.SUCCEEDED and pod.restart_policy in {"Never", "OnFailure"}
    return Fate.MOVES if ended or phase is PodPhase.FAILED else None


def _on_completion(pod: ClusterPod, _draining: Draining) -> Verdict:
    waits = pod.pod.annotations.get(SAFE_TO_EVICT) == ON_COMPLETION
    return Fate.COMPLETES if waits else None


def _replicated(pod: ClusterPod, draining: Draining) -> Verdict:
    owner = pod.controller
    custom = not draining.options.skip_nodes_with_custom_controller_pods
    if owner is not None and (custom or owner.kind in _REPLICATED):
        return None
    return Blocking.NOT_REPLICATED


def _system(pod: ClusterPod, draining: Draining) -> Verdict:
    """Block for pods of kube-system that no budget selects, until they are old enough to go."""
    options = draining.options
    if not options.skip_nodes_with_system_pods or pod.pod.namespace != _SYSTEM_NAMESPACE:
        return None
    if draining.budgets.matching(pod):
        return None
    created_ns = pod.pod.creation_ns
    if created_ns and draining.now.is_after(created_ns + options.blocking_system_pod_disruption_ns):
        return Fate.MOVES
    return Blocking.UNMOVABLE_KUBE_SYSTEM_POD


def _not_safe_to_evict(pod: ClusterPod, _draining: Draining) -> Verdict:
    refuses = pod.pod.annotations.get(SAFE_TO_EVICT) == "false"
    return Blocking.NOT_SAFE_TO_EVICT_ANNOTATION if refuses else None


def _local_storage(pod: ClusterPod, draining: Draining) -> Verdict:
    if not draining.options.skip_nodes_with_local_storage:
        return None
    safe = pod.pod.annotations.get(SAFE_LOCAL_VOLUMES, "").split(",")
    kept = any(volume not in safe for volume in pod.local_volumes)
    return Blocking.LOCAL_STORAGE_REQUESTED if kept else None


def _disruption_budget(pod: ClusterPod, draining: Draining) -> Verdict:
    exhausted = any(remaining < 1 for remaining in draining.budgets.matching(pod))
    return Blocking.NOT_ENOUGH_PDB if exhausted else None


RULES: tuple[Callable[[ClusterPod, Draining], Verdict], ...] = (
    _mirror,
    _long_terminating,
    _replica_count,
    _daemon_set,
    _safe_to_evict,
    _terminal,
    _on_completion,
    _replicated,
    _system,
    _not_safe_to_evict,
    _local_storage,
    _disruption_budget,
)
"""The rules in their order. Source: rules.go, Default."""
