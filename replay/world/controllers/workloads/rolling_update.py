"""Computes the next sizes of a Deployment's ReplicaSets: the rules of a rollout.

One step at a time, as the Deployment controller takes them: it changes sizes, the ReplicaSets
follow, and it looks again. A rolling update first lets the ReplicaSet of the current template grow,
up to `replicas + maxSurge` pods in all, and shrinks the others by what is available above `replicas
- maxUnavailable`; pods of old templates that are not available go first, and a new pod that is not
available yet counts against the room. Where a user scales a Deployment during a rollout, all of its
ReplicaSets get a share of the change, in proportion to their sizes.

Source: kubernetes v1.34 pkg/controller/deployment/rolling.go, reconcileNewReplicaSet,
reconcileOldReplicaSets, cleanupUnhealthyReplicas, scaleDownOldReplicaSetsForRollingUpdate; sync.go,
scale; util/deployment_util.go, NewRSNewReplicas, ResolveFenceposts, FindActiveOrLatest,
IsSaturated, GetReplicaSetProportion, getReplicaSetFraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replay.world.api.cluster import replicas
from reprieve.kube.v1beta1 import workloads_pb2
from services.kube.time import SECOND_NS
from services.kube.workloads import IntOrPercent
from services.rpc.kube import fields

PROGRESS_DEADLINE_S = 600
"""The default of progressDeadlineSeconds.

Source: kubernetes v1.34 pkg/apis/apps/v1/defaults.go, SetDefaults_Deployment.
"""
RECREATE = "Recreate"
DEFAULT_BOUND = IntOrPercent(amount=25, percent=True)
"""maxSurge and maxUnavailable where they are absent.

Source: kubernetes v1.34 pkg/apis/apps/v1/defaults.go, SetDefaults_Deployment.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The desired replicas of a Deployment, and by how many pods a rollout may leave them."""

    desired: int
    max_surge: int = 0
    max_unavailable: int = 0

    @property
    def most(self) -> int:
        """Return the largest number of pods during a rollout."""
        return self.desired + self.max_surge

    @property
    def least_available(self) -> int:
        """Return the number of available pods that a rollout leaves."""
        return self.desired - self.max_unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedSet:
    """A ReplicaSet: spec.replicas, its available pods, and what the last scaling noted on it.

    `desired` and `most` are the annotations with the Deployment's replicas, and those with
    maxSurge, when this set was last scaled; None if it lacks them.
    """

    uid: str
    replicas: int
    available: int = 0
    desired: int | None = None
    most: int | None = None


def bounds_of(spec: workloads_pb2.DeploymentSpec) -> Bounds:
    """Return a Deployment's bounds; a surge rounds up, the unavailable pods round down.

    Where both are 0, one pod may be unavailable. Raises FieldError for a bad value.
    """
    desired = replicas(spec)
    if spec.strategy.type == RECREATE:
        return Bounds(desired=desired)
    rolling, where = spec.strategy.rolling_update, "spec.strategy.rollingUpdate"
    surge = unavailable = DEFAULT_BOUND
    if rolling.HasField("max_surge"):
        surge = fields.int_or_percent(rolling.max_surge, f"{where}.maxSurge")
    if rolling.HasField("max_unavailable"):
        unavailable = fields.int_or_percent(rolling.max_unavailable, f"{where}.maxUnavailable")
    max_surge = scaled(surge, desired, rounds_up=True)
    max_unavailable = scaled(unavailable, desired, rounds_up=False)
    if not max_surge and not max_unavailable:
        max_unavailable = 1
    return Bounds(
        desired=desired, max_surge=max_surge, max_unavailable=min(max_unavailable, desired)
    )


def deadline_ns(deployment: workloads_pb2.Deployment) -> int:
    """Return how long a rollout may go without progress, ns."""
    spec = deployment.spec
    if spec.HasField("progress_deadline_seconds"):
        return spec.progress_deadline_seconds * SECOND_NS
    return PROGRESS_DEADLINE_S * SECOND_NS


def scaled(value: IntOrPercent, total: int, *, rounds_up: bool) -> int:
    """Return a count, or a percentage of `total` as a count.

    Source: kubernetes v1.34 apimachinery pkg/util/intstr, GetScaledValueFromIntOrPercent.
    """
    if not value.percent:
        return value.amount
    return -(-total * value.amount // 100) if rounds_up else total * value.amount // 100


def first_size(bounds: Bounds, old: Sequence[SizedSet]) -> int:
    """Return the replicas that a new ReplicaSet is created with."""
    return _grown(bounds, 0, sum(sized.replicas for sized in old))


def rolled(bounds: Bounds, new: SizedSet, old: Sequence[SizedSet]) -> dict[str, int]:
    """Return the sizes that the next step of a rolling update changes, by UID; {} for none.

    `old` are the other ReplicaSets, the oldest first.
    """
    total = new.replicas + sum(sized.replicas for sized in old)
    size = bounds.desired
    if new.replicas < size:
        size = _grown(bounds, new.replicas, total)
    if size != new.replicas:
        return {new.uid: size}
    active = [sized for sized in old if sized.replicas]
    room = total - bounds.least_available - (new.replicas - new.available)
    if not active or room <= 0:
        return {}
    sizes = {sized.uid: sized.replicas for sized in active}
    for sized in active:
        shed = min(room, max(0, sized.replicas - sized.available))
        sizes[sized.uid] -= shed
        room -= shed
    spare = new.available + sum(sized.available for sized in active) - bounds.least_available
    for sized in active:
        shed = min(max(0, spare), sizes[sized.uid])
        sizes[sized.uid] -= shed
        spare -= shed
    return {sized.uid: sizes[sized.uid] for sized in active if sizes[sized.uid] != sized.replicas}


def _grown(bounds: Bounds, size: int, total: int) -> int:
    """Return a smaller set's next size, where all sets have `total` replicas."""
    return size + max(0, min(bounds.most - total, bounds.desired - size))


def is_scaled(bounds: Bounds, sets: Sequence[SizedSet]) -> bool:
    """Return whether the Deployment's replicas have changed since its sets were last scaled."""
    return any(
        sized.replicas and sized.desired is not None and sized.desired != bounds.desired
        for sized in sets
    )


def rescaled(
    bounds: Bounds, new: SizedSet | None, old: Sequence[SizedSet], *, rolls: bool, pods: int
) -> dict[str, int]:
    """Return the sizes after a user's scaling, by UID, of all ReplicaSets that it concerns.

    `old` are the other ReplicaSets, the oldest first; `rolls`: the strategy is RollingUpdate.
    `pods` are the pods of the Deployment's last status. A set whose size stays is among them, too,
    so that its annotations follow.
    """
    sets = [*old, *([new] if new is not None else [])]
    active = [sized for sized in sets if sized.replicas]
    if len(active) < 2:
        only = active[0] if active else (new or next(reversed(old), None))
        return {} if only is None else {only.uid: bounds.desired}
    if new is not None and _is_saturated(bounds, new):
        return {sized.uid: 0 for sized in old if sized.replicas}
    if not rolls:
        return {sized.uid: sized.replicas for sized in active}
    return _shared(bounds, active, pods)


def _is_saturated(bounds: Bounds, new: SizedSet) -> bool:
    return new.replicas == new.desired == new.available == bounds.desired


def _shared(bounds: Bounds, active: Sequence[SizedSet], pods: int) -> dict[str, int]:
    """Share a change of the replicas among the active sets, in proportion to their sizes.

    The largest set goes first, and gets what rounding leaves. Of equal ones it is the newest that
    grows first, and the oldest that shrinks first.
    """
    allowed = bounds.most if bounds.desired else 0
    change = allowed - sum(sized.replicas for sized in active)
    order = sorted(reversed(active) if change > 0 else active, key=lambda sized: -sized.replicas)
    sizes, rest = {sized.uid: sized.replicas for sized in order}, change
    for sized in order:
        share = _share(bounds, sized, pods)
        share = min(share, rest) if change > 0 else max(share, rest)
        if rest:
            sizes[sized.uid] += share
            rest -= share
    sizes[order[0].uid] = max(0, sizes[order[0].uid] + rest)
    return sizes


def _share(bounds: Bounds, sized: SizedSet, pods: int) -> int:
    """Return by how much a set would change, to keep its part of the Deployment's pods."""
    if not bounds.desired:
        return -sized.replicas
    before = sized.most or pods
    if not before:
        return 0
    size = sized.replicas * bounds.most / before
    return int(size + 0.5) - sized.replicas
