"""Deployments: a ReplicaSet for each template, and rollouts from one to the next.

A rollout goes on whenever the pods of a ReplicaSet change, one step at a time (rolling_update.py);
a Deployment that is not rolling out costs nothing then. A template that a ReplicaSet has already,
of a rollout before or of the trace, is rolled out to that one.

A trace that begins in the middle of a rollout continues from the sizes that its ReplicaSets have.
Replicas that differ from the annotation `desired-replicas` of a ReplicaSet are a user's scaling,
which comes before the rollout; where upstream stops at a lone ReplicaSet whose annotation is wrong
though its size is right, the annotation is corrected here.

Source: kubernetes v1.34 pkg/controller/deployment/deployment_controller.go, syncDeployment;
sync.go, sync, getNewReplicaSet, isScalingEvent, scaleReplicaSet, cleanupDeployment; rolling.go,
rolloutRolling; recreate.go, rolloutRecreate, oldPodsRunning; progress.go, syncRolloutStatus;
util/deployment_util.go, FindNewReplicaSet, DeploymentComplete, DeploymentProgressing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from replay.hashing import object_uid
from replay.world.api.admission import defaults
from replay.world.api.cluster import replicas
from replay.world.controllers.workloads import rolling_update
from replay.world.controllers.workloads.pod_control import (
    ControllerRef,
    PodControl,
    shows_template,
    template_hash,
)
from replay.world.controllers.workloads.replica_sets import ReplicaSets
from replay.world.controllers.workloads.rolling_update import (
    RECREATE,
    Bounds,
    SizedSet,
    deadline_ns,
)
from replay.world.controllers.workloads.unfinished_rollout import UnfinishedRollout
from replay.world.state import WorldPart, WorldState
from replay.world.timeline import ActionKind
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2, workloads_pb2
from services.kube.time import SECOND_NS
from services.rpc.kube.fields import set_time, time_ns

HASH_LABEL = "pod-template-hash"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MOST = "deployment.kubernetes.io/max-replicas"
REVISION = "deployment.kubernetes.io/revision"
HISTORY_LIMIT = 10
"""The default of revisionHistoryLimit.

Source: kubernetes v1.34 pkg/apis/apps/v1/defaults.go, SetDefaults_Deployment.
"""
_DIGITS_MAX = 9


@dataclass(slots=True, kw_only=True)
class Progress:
    """The progress of a rollout: the numbers of updated, other, ready and available pods."""

    since_ns: int
    counts: tuple[int, int, int, int] = (0, 0, 0, 0)

    def see(self, now_ns: int, counts: tuple[int, int, int, int]) -> None:
        """Note the counts; more pods, or fewer of old templates, are progress."""
        updated, others, *rest = counts
        before = self.counts
        if updated > before[0] or others < before[1] or any(map(int.__gt__, rest, before[2:])):
            self.since_ns = now_ns
        self.counts = counts


@dataclass(slots=True)
class Step:
    """The changes of one sync of a Deployment: ReplicaSets, and the UIDs of those to delete."""

    changed: list[workloads_pb2.ReplicaSet] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


class Deployments(WorldPart):
    """Keeps the ReplicaSets of each Deployment; `_rollouts` are those that are under way."""

    _rollouts: dict[str, Progress]

    def __init__(self, state: WorldState, sets: ReplicaSets, pod_control: PodControl) -> None:
        super().__init__(state)
        self._sets = sets
        self._pod_control = pod_control

    def put(self, message: workloads_pb2.Deployment) -> None:
        """Add or replace a Deployment. Raises FieldError for bounds that cannot be read."""
        rolling_update.bounds_of(message.spec)
        uid = message.metadata.uid
        self._cluster.deployments[uid] = message
        self._cluster.changed.deployments[uid] = None

    def remove(self, uid: str) -> None:
        """Remove a Deployment; its ReplicaSets are deleted elsewhere."""
        del self._cluster.deployments[uid]
        self._rollouts.pop(uid, None)
        self._timeline.cancel(ActionKind.LOOK, uid)

    def is_rolling_out(self, uid: str) -> bool:
        """Return whether a Deployment must be synced when the pods of its ReplicaSets change."""
        return uid in self._rollouts

    def sync(self, now_ns: int, uid: str) -> Step:
        """Take the next step of a Deployment; an unknown one is accepted.

        After the sets that it returns have been synced, the Deployment must be synced again, until
        nothing is changed.
        """
        deployment = self._cluster.deployments.get(uid)
        if deployment is None:
            return Step()
        view = self._view(now_ns, deployment)
        changed = self._next(now_ns, view)
        step = Step(changed)
        if changed:
            view = self._view(now_ns, deployment)
        if not view.is_settled and not deployment.spec.paused:
            self._rollouts.setdefault(uid, Progress(since_ns=now_ns))
        if uid in self._rollouts:
            self._rollouts[uid].see(now_ns, view.counts)
            self._look_again(now_ns, uid, view)
        if not changed and (view.is_complete or deployment.spec.paused):
            if self._rollouts.pop(uid, None) is not None:
                self._timeline.cancel(ActionKind.LOOK, uid)
            step.removed = self._beyond_history(view)
        return step

    def unfinished(self, now_ns: int) -> Iterator[str]:
        """Yield a text for each rollout that is under way, or waits while paused, for users."""
        for deployment in self._cluster.deployments.values():
            view = self._view(now_ns, deployment) if deployment.spec.paused else None
            if view is not None and not view.is_settled:
                yield view.rollout.paused_text()
        for uid, progress in self._rollouts.items():
            deployment = self._cluster.deployments[uid]
            view = self._view(now_ns, deployment)
            *_, available = view.counts
            late = ""
            if now_ns - progress.since_ns > deadline_ns(deployment):
                late = "; its progress deadline was exceeded (ProgressDeadlineExceeded)"
            text = view.rollout.under_way_text()
            yield f"{text}, {available} are available{late}"

    def _next(self, now_ns: int, view: _View) -> list[workloads_pb2.ReplicaSet]:
        """Create or resize ReplicaSets as the next step, and return them; [] if none is left."""
        deployment, bounds = view.deployment, view.bounds
        recreates = deployment.spec.strategy.type == RECREATE
        if deployment.spec.paused or rolling_update.is_scaled(bounds, view.sets):
            sizes = rolling_update.rescaled(
                bounds, view.new, view.old, rolls=not recreates, pods=view.pods
            )
            changed = self._resize(view, sizes)
            if changed or deployment.spec.paused:
                return changed
        if recreates:
            shrunk = self._resize(
                view, {old_set.uid: 0 for old_set in view.old if old_set.replicas}
            )
            if shrunk or self._old_pods_run(view):
                return shrunk
        if view.new is None:
            size = bounds.desired if recreates else rolling_update.first_size(bounds, view.old)
            return [self._new_set(now_ns, view, size)]
        adopted = self._adopt(view, view.new)
        if recreates:
            sizes = {view.new.uid: bounds.desired}
        else:
            sizes = rolling_update.rolled(bounds, view.new, view.old)
        changed = self._resize(view, sizes)
        return changed or adopted

    def _old_pods_run(self, view: _View) -> bool:
        """Return whether pods of old templates have not ended yet, terminating ones included."""
        return any(
            not pod.is_terminal
            for old_set in view.old
            for pod in self._cluster.pods_by_owner.get(old_set.uid, {}).values()
        )

    def _look_again(self, now_ns: int, uid: str, view: _View) -> None:
        """Plan a sync for when the next ready pod becomes available, else for the deadline.

        The latter changes nothing but what is shown, and does not keep a replay running.
        Source: kubernetes v1.34 deployment/progress.go, requeueStuckDeployment.
        """
        late_ns = self._rollouts[uid].since_ns + deadline_ns(view.deployment) + SECOND_NS
        if view.available_ns is not None:
            self._timeline.plan(view.available_ns, ActionKind.LOOK, uid)
        elif late_ns > now_ns:
            self._timeline.plan(late_ns, ActionKind.LOOK, uid, idle=True)

    # ReplicaSets

    def _view(self, now_ns: int, deployment: workloads_pb2.Deployment) -> _View:
        sets = sorted(self._sets.of(deployment.metadata.uid), key=_age)
        new, old, times = None, [], []
        for replica_set in sets:
            available, next_ns = self._sets.available(now_ns, replica_set)
            if next_ns is not None:
                times.append(next_ns)
            annotations = replica_set.metadata.annotations
            sized = SizedSet(
                uid=replica_set.metadata.uid,
                replicas=replicas(replica_set.spec),
                available=available,
                desired=_number(annotations.get(DESIRED)),
                most=_number(annotations.get(MOST)),
            )
            if new is None and same_template(replica_set, deployment):
                new = sized
            else:
                old.append(sized)
        others = sum(self._sets.pods(sized.uid) for sized in old)
        updated = self._sets.pods(new.uid) if new is not None else 0
        every = [*old, *([new] if new is not None else [])]
        ready = sum(len(self._cluster.owned.ready_ns.get(sized.uid, ())) for sized in every)
        available = sum(sized.available for sized in every)
        return _View(
            deployment=deployment,
            bounds=rolling_update.bounds_of(deployment.spec),
            new=new,
            old=old,
            counts=(updated, others, ready, available),
            available_ns=min(times, default=None),
        )

    def _resize(self, view: _View, sizes: dict[str, int]) -> list[workloads_pb2.ReplicaSet]:
        """Give ReplicaSets their sizes, and the Deployment's figures; return those that changed."""
        changed = []
        for uid, size in sizes.items():
            replica_set = self._cluster.replica_sets[uid]
            if _annotate(replica_set, view.bounds) | (replicas(replica_set.spec) != size):
                replica_set.spec.replicas = size
                self._sets.put(replica_set)
                changed.append(replica_set)
        return changed

    def _adopt(self, view: _View, new: SizedSet) -> list[workloads_pb2.ReplicaSet]:
        """Give the ReplicaSet of the current template the Deployment's settings."""
        replica_set = self._cluster.replica_sets[new.uid]
        wait_s = view.deployment.spec.min_ready_seconds
        revision = self._next_revision(view)
        is_newest = _revision(replica_set) >= revision
        if replica_set.spec.min_ready_seconds == wait_s and (is_newest or not view.old):
            return []
        replica_set.spec.min_ready_seconds = wait_s
        if not is_newest:
            replica_set.metadata.annotations[REVISION] = str(revision)
        self._sets.put(replica_set)
        return [replica_set]

    def _next_revision(self, view: _View) -> int:
        """Return the number after that of the newest of the other ReplicaSets."""
        old = (self._cluster.replica_sets[old_set.uid] for old_set in view.old)
        return 1 + max(map(_revision, old), default=0)

    def _new_set(self, now_ns: int, view: _View, size: int) -> workloads_pb2.ReplicaSet:
        deployment = view.deployment
        owner = ControllerRef("Deployment", deployment.metadata)
        owner_meta = owner.meta
        ordinal = self._cluster.births.get(owner_meta.uid, 0)
        recorded = self._pod_control.recorded(owner, ordinal)
        hash_ = self._hash_of_orphans(deployment) or template_hash(deployment.spec.template)
        made = workloads_pb2.ReplicaSet()
        made.metadata.name = (recorded.name if recorded else "") or f"{owner_meta.name}-{hash_}"
        made.metadata.namespace = owner_meta.namespace
        made.metadata.uid = object_uid(
            "ReplicaSet", owner_meta.namespace, made.metadata.name, owner_meta.uid, ordinal
        )
        set_time(made.metadata.creation_timestamp, now_ns)
        made.metadata.labels.update(deployment.spec.template.metadata.labels)
        made.metadata.labels[HASH_LABEL] = hash_
        made.metadata.annotations[REVISION] = str(self._next_revision(view))
        _annotate(made, view.bounds)
        owner.own(made.metadata)
        made.spec.replicas = size
        made.spec.min_ready_seconds = deployment.spec.min_ready_seconds
        made.spec.selector.CopyFrom(deployment.spec.selector)
        made.spec.selector.match_labels[HASH_LABEL] = hash_
        made.spec.template.CopyFrom(deployment.spec.template)
        made.spec.template.metadata.labels[HASH_LABEL] = hash_
        self._sets.put(made)
        return made

    def _hash_of_orphans(self, deployment: workloads_pb2.Deployment) -> str:
        """Return the pod-template-hash of orphans made from this template; "" without any.

        A template has one hash upstream, so that the ReplicaSet made for a Deployment which exists
        again selects and adopts the pods that the former one's ReplicaSet has left behind. Ours is
        another hash, and theirs is known from their labels.
        Source: kubernetes v1.34 deployment/sync.go, getNewReplicaSet.
        """
        orphans = self._cluster.orphans.get(deployment.metadata.namespace, {}).values()
        return next(
            (
                labels[HASH_LABEL]
                for labels, pod in ((pod.message.metadata.labels, pod) for pod in orphans)
                if HASH_LABEL in labels and shows_template(pod.message, deployment.spec.template)
            ),
            "",
        )

    def _beyond_history(self, view: _View) -> list[str]:
        """Return the UIDs of the empty ReplicaSets above revisionHistoryLimit, the oldest."""
        spec = view.deployment.spec
        is_set = spec.HasField("revision_history_limit")
        limit = spec.revision_history_limit if is_set else HISTORY_LIMIT
        surplus = max(0, len(view.old) - limit)
        replica_sets = self._cluster.replica_sets
        oldest = sorted(view.old, key=lambda sized: _revision(replica_sets[sized.uid]))
        return [
            sized.uid
            for sized in oldest[:surplus]
            if not sized.replicas and not self._sets.pods(sized.uid)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A Deployment and its ReplicaSets at one moment; `old` begins with the oldest.

    `new` is the set of the current template. `counts` are the active pods of that set and of the
    others, the ready and the available ones. `available_ns` is when a ready pod becomes available.
    """

    deployment: workloads_pb2.Deployment
    bounds: Bounds
    new: SizedSet | None
    old: Sequence[SizedSet]
    counts: tuple[int, int, int, int]
    available_ns: int | None

    @property
    def sets(self) -> list[SizedSet]:
        """Return all ReplicaSets."""
        return [*self.old, *([self.new] if self.new is not None else [])]

    @property
    def pods(self) -> int:
        """Return the number of active pods."""
        return self.counts[0] + self.counts[1]

    @property
    def is_settled(self) -> bool:
        """Return whether the ReplicaSets have their final sizes, ready or not."""
        return (
            self.new is not None
            and self.new.replicas == self.bounds.desired
            and not any(old_set.replicas for old_set in self.old)
        )

    @property
    def is_complete(self) -> bool:
        """Return whether all desired pods are of the current template and available."""
        updated, others, _, available = self.counts
        return self.is_settled and updated == available == self.bounds.desired and not others

    @property
    def rollout(self) -> UnfinishedRollout:
        """Return the rollout for a note that it is not finished."""
        updated, others, *_ = self.counts
        return UnfinishedRollout(
            kind="Deployment",
            meta=self.deployment.metadata,
            desired=self.bounds.desired,
            updated=updated,
            older=others,
        )


def same_template(
    replica_set: workloads_pb2.ReplicaSet, deployment: workloads_pb2.Deployment
) -> bool:
    """Return whether a Deployment's current template is that of a ReplicaSet.

    What an API server fills in does not differ: a manifest that was applied again lacks it.
    """
    template, desired = replica_set.spec.template, deployment.spec.template
    metadata = meta_pb2.ObjectMeta()
    metadata.CopyFrom(template.metadata)
    metadata.labels.pop(HASH_LABEL, "")
    if metadata != desired.metadata:
        return False
    return template.spec == desired.spec or _filled_in(template.spec) == _filled_in(desired.spec)


def _filled_in(spec: pod_pb2.PodSpec) -> pod_pb2.PodSpec:
    filled_in = pod_pb2.PodSpec()
    filled_in.CopyFrom(spec)
    defaults.fill_in(filled_in)
    return filled_in


def _annotate(replica_set: workloads_pb2.ReplicaSet, bounds: Bounds) -> bool:
    """Note the Deployment's replicas on a ReplicaSet; return whether they have changed."""
    annotations = replica_set.metadata.annotations
    figures = {DESIRED: str(bounds.desired), MOST: str(bounds.most)}
    if all(annotations.get(name) == text for name, text in figures.items()):
        return False
    annotations.update(figures)
    return True


def _age(replica_set: workloads_pb2.ReplicaSet) -> tuple[int, str]:
    meta = replica_set.metadata
    return time_ns(meta.creation_timestamp), meta.name


def _revision(replica_set: workloads_pb2.ReplicaSet) -> int:
    return _number(replica_set.metadata.annotations.get(REVISION)) or 0


def _number(text: str | None) -> int | None:
    """Return an annotation as a number, None for one that is absent or is not a number."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
        return None
    return int(text)
