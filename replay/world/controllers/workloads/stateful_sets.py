"""StatefulSets: pods with ordinals, created, deleted and replaced in their order.

A removed pod is created again under the same name, after it has been removed. Its missing
PersistentVolumeClaims are created with it (volume_claims.py).

Source: kubernetes v1.34 pkg/controller/statefulset/stateful_set_control.go, updateStatefulSet,
processReplica, processCondemned; stateful_set_utils.go, newStatefulSetPod, isRunningAndAvailable.
maxUnavailable of a rolling update is read where the feature gate MaxUnavailableStatefulSet is on,
by default from v1.35 on: v1.35 stateful_set_control.go,
updateStatefulSetAfterInvariantEstablished; stateful_set_utils.go, getStatefulSetMaxUnavailable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from replay.world.api.cluster import replicas
from replay.world.api.pod_record import PodRecord
from replay.world.controllers.workloads.pod_control import (
    REVISION_LABEL,
    ControllerRef,
    PodControl,
    shows_template,
    template_hash,
)
from replay.world.controllers.workloads.rolling_update import scaled
from replay.world.controllers.workloads.unfinished_rollout import ON_DELETE, UnfinishedRollout
from replay.world.controllers.workloads.volume_claims import Claims
from replay.world.state import WorldPart, WorldState
from reprieve.kube.v1beta1 import pod_pb2, workloads_pb2
from services.rpc.kube import fields

_ORDINAL = re.compile(r"-(\d{1,9})")
_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL = "apps.kubernetes.io/pod-index"
OLDER = ""
"""The revision of recorded pods that their set's recorded update has not replaced yet."""
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})")
_READS_MAX_UNAVAILABLE = (1, 35)
"""The first version with MaxUnavailableStatefulSet on (pkg/features/kube_features.go)."""


@dataclass(slots=True, kw_only=True)
class _Set:
    """A StatefulSet, its current revision (template), and the one that it is updated from.

    `made_from` is the revision of each pod that was created here. Other pods are of the `first`
    revision that was recorded, or of an OLDER one: where their labels have another name than
    `first_name`, the set's recorded status.updateRevision.
    """

    message: workloads_pb2.StatefulSet
    current: str
    before: str
    first_revision: str
    first_name: str
    templates: dict[str, workloads_pb2.PodTemplateSpec]
    made_from: dict[str, str] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """Return the lowest ordinal of its pods."""
        return self.message.spec.ordinals.start

    @property
    def replicas(self) -> int:
        """Return the desired number of pods."""
        return replicas(self.message.spec)

    @property
    def is_ordered(self) -> bool:
        """Return whether its pods are created and deleted one after the other."""
        return self.message.spec.pod_management_policy != "Parallel"

    def revision(self, pod: PodRecord) -> str:
        """Return the revision that a pod was made from."""
        made_from = self.made_from.get(pod.uid)
        if made_from is not None:
            return made_from
        name = pod.message.metadata.labels.get(REVISION_LABEL, "")
        is_older = name and self.first_name and name != self.first_name
        return OLDER if is_older else self.first_revision

    def infer_older(self, pods: Iterable[PodRecord]) -> None:
        """Infer the template of an OLDER revision from one of its pods, while there is one."""
        if self.before == OLDER and OLDER not in self.templates:
            older = next((pod for pod in pods if self.revision(pod) == OLDER), None)
            if older is not None:
                self.templates[OLDER] = _template_of(older.message)


class StatefulSets(WorldPart):
    """Keeps the pods of each set by their ordinals."""

    _reads_max_unavailable: bool
    _sets: dict[str, _Set]

    def __init__(self, state: WorldState, pod_control: PodControl, claims: Claims) -> None:
        super().__init__(state)
        self._reads_max_unavailable = state.models.stateful_max_unavailable
        self._pod_control = pod_control
        self._claims = claims

    def follow_version(self, kubernetes_version: str) -> None:
        """Read maxUnavailable where the trace is of a version that does so by default."""
        match = _VERSION.match(kubernetes_version)
        if match is not None and (int(match[1]), int(match[2])) >= _READS_MAX_UNAVAILABLE:
            self._reads_max_unavailable = True

    def put(self, message: workloads_pb2.StatefulSet) -> None:
        """Add or replace a StatefulSet. Raises FieldError for a bound that cannot be read."""
        uid = message.metadata.uid
        self._check_bound(message)
        revision = template_hash(message.spec.template)
        stored = self._sets.get(uid)
        if stored is None:
            status = message.status
            is_updating = status.current_revision not in ("", status.update_revision)
            stored = self._sets[uid] = _Set(
                message=message,
                current=revision,
                before=OLDER if is_updating else revision,
                first_revision=revision,
                first_name=status.update_revision,
                templates={},
            )
        stored.message, stored.current = message, revision
        stored.templates[revision] = message.spec.template
        self._cluster.scales[uid] = stored.replicas
        self._cluster.changed.owners[uid] = None

    def _check_bound(self, message: workloads_pb2.StatefulSet) -> None:
        """Refuse a maxUnavailable that is not one, and note one that is not read."""
        if _max_unavailable(message) > 1 and not self._reads_max_unavailable:
            meta = message.metadata
            self._journal.note(
                "not-simulated",
                f"StatefulSet {meta.namespace}/{meta.name}: maxUnavailable is not read, as before "
                "Kubernetes v1.35; its pods are replaced one after the other, unless "
                "--model stateful-max-unavailable=on",
            )

    def remove(self, uid: str) -> None:
        """Remove a set; claims stay."""
        del self._sets[uid]
        self._cluster.scales.pop(uid, None)

    def may_claim(self, uid: str, pod: PodRecord) -> bool:
        """Return whether a pod has a name of a set's pods.

        Source: kubernetes v1.34 pkg/controller/statefulset/stateful_set_utils.go, isMemberOf.
        """
        return _ordinal(pod, self._sets[uid].message.metadata.name) is not None

    def adopted(self, uid: str, pod: PodRecord) -> None:
        """Note the revision of an adopted pod; the labels of its identity are not added to it."""
        stateful_set = self._sets[uid]
        is_current = shows_template(pod.message, stateful_set.message.spec.template)
        stateful_set.made_from[pod.uid] = stateful_set.current if is_current else OLDER

    def disowned(self, uid: str, pod_uid: str, _pod: pod_pb2.Pod) -> None:
        """Forget the revision of a released pod."""
        self._sets[uid].made_from.pop(pod_uid, None)

    def sync(self, now_ns: int, uid: str) -> bool:
        """Create, delete or replace pods; return whether the set must be synced again at once."""
        stateful_set = self._sets[uid]
        pods = {
            ordinal: pod
            for pod in self._cluster.pods_by_owner.get(uid, {}).values()
            if (ordinal := _ordinal(pod, stateful_set.message.metadata.name)) is not None
        }
        stateful_set.infer_older(pods.values())
        desired = range(stateful_set.first, stateful_set.first + stateful_set.replicas)
        for ordinal in desired:
            step = self._keep(now_ns, stateful_set, pods, ordinal)
            if step is not None:
                return step
        condemned = sorted((ordinal for ordinal in pods if ordinal not in desired), reverse=True)
        for ordinal in condemned:
            step = self._condemn(now_ns, stateful_set, pods, ordinal)
            if step is not None:
                return step
        return self._roll(now_ns, stateful_set, pods, desired)

    def unfinished(self) -> Iterator[str]:
        """Yield a text for each rollout that is under way, waits or ends early, for users."""
        for uid, stateful_set in self._sets.items():
            pods = self._active(uid, stateful_set)
            older = [
                ordinal
                for ordinal, pod in pods.items()
                if stateful_set.revision(pod) != stateful_set.current
            ]
            if not older:
                continue
            rollout = UnfinishedRollout(
                kind="StatefulSet",
                meta=stateful_set.message.metadata,
                desired=stateful_set.replicas,
                updated=len(pods) - len(older),
                older=len(older),
            )
            strategy = stateful_set.message.spec.update_strategy
            partition = strategy.rolling_update.partition
            if strategy.type == ON_DELETE:
                yield rollout.on_delete_text()
            elif max(older) < stateful_set.first + partition:
                yield rollout.partition_text(partition)
            else:
                yield rollout.under_way_text()

    def _active(self, uid: str, stateful_set: _Set) -> dict[int, PodRecord]:
        """Return the desired pods that have neither ended nor are terminating, by ordinal."""
        return {
            ordinal: pod
            for pod in self._cluster.pods_by_owner.get(uid, {}).values()
            if (ordinal := _ordinal(pod, stateful_set.message.metadata.name)) is not None
            and stateful_set.first <= ordinal < stateful_set.first + stateful_set.replicas
            and pod.is_active
        }

    def _keep(
        self, now_ns: int, stateful_set: _Set, pods: dict[int, PodRecord], ordinal: int
    ) -> bool | None:
        """Create or replace the pod of an ordinal; return `sync`'s result, None to continue."""
        pod = pods.get(ordinal)
        if pod is not None and pod.is_terminal:
            if not pod.is_terminating:
                return self._delete(now_ns, pod)
            return False if stateful_set.is_ordered else None
        if pod is None:
            higher = range(ordinal + 1, stateful_set.first + stateful_set.replicas)
            missing = 1 + sum(other not in pods for other in higher)
            made = self._make(now_ns, stateful_set, ordinal, missing)
            return False if stateful_set.is_ordered or not made else None
        if stateful_set.is_ordered and (
            pod.is_terminating or not self._is_available(now_ns, stateful_set, pod)
        ):
            return False
        return None

    def _condemn(
        self, now_ns: int, stateful_set: _Set, pods: dict[int, PodRecord], ordinal: int
    ) -> bool | None:
        """Delete a pod beyond the replicas; an ordered set deletes one after the other.

        An ordered set deletes an unavailable pod only if it is the lowest of those.
        """
        pod = pods[ordinal]
        if pod.is_terminating:
            return False if stateful_set.is_ordered else None
        if stateful_set.is_ordered and not self._is_available(now_ns, stateful_set, pod):
            out = [
                other
                for other in sorted(pods)
                if pods[other].is_terminating
                or not self._is_available(now_ns, stateful_set, pods[other])
            ]
            if out and out[0] != ordinal:
                return False
        is_removed = self._delete(now_ns, pod)
        return is_removed if stateful_set.is_ordered else None

    def _roll(
        self, now_ns: int, stateful_set: _Set, pods: dict[int, PodRecord], desired: range
    ) -> bool:
        """Replace pods of older revisions, the highest ordinal first."""
        strategy = stateful_set.message.spec.update_strategy
        if strategy.type == ON_DELETE:
            return False
        if self._reads_max_unavailable:
            return self._roll_several(now_ns, stateful_set, pods, desired)
        lowest = stateful_set.first + strategy.rolling_update.partition
        for ordinal in reversed(desired):
            pod = pods.get(ordinal)
            if ordinal < lowest or pod is None:
                break
            if stateful_set.revision(pod) != stateful_set.current and not pod.is_terminating:
                return self._delete(now_ns, pod)
            if pod.is_terminating or not self._is_available(now_ns, stateful_set, pod):
                return False
        else:
            if not strategy.rolling_update.partition:
                stateful_set.before = stateful_set.current
        return False

    def _roll_several(
        self, now_ns: int, stateful_set: _Set, pods: dict[int, PodRecord], desired: range
    ) -> bool:
        """Replace as many pods as may be unavailable besides those that are."""
        partition = stateful_set.message.spec.update_strategy.rolling_update.partition
        available = [
            ordinal
            for ordinal in desired
            if (pod := pods.get(ordinal)) is not None
            and not pod.is_terminating
            and self._is_available(now_ns, stateful_set, pod)
        ]
        unavailable = stateful_set.replicas - len(available)
        old = [
            pod
            for ordinal in reversed(desired[partition:])
            if (pod := pods.get(ordinal)) is not None
            and stateful_set.revision(pod) != stateful_set.current
            and not pod.is_terminating
        ]
        if not old and not unavailable and not partition:
            stateful_set.before = stateful_set.current
        room = max(0, _max_unavailable(stateful_set.message) - unavailable)
        removed = [self._delete(now_ns, pod) for pod in old[:room]]
        return any(removed)

    def _is_available(self, now_ns: int, stateful_set: _Set, pod: PodRecord) -> bool:
        if pod.message.status.phase != "Running" or not pod.is_ready:
            return False
        return self._pod_control.is_available(now_ns, stateful_set.message, pod)

    def _delete(self, now_ns: int, pod: PodRecord) -> bool:
        """Delete a pod and return whether it was removed at once."""
        self._pod_control.delete(now_ns, pod)
        return pod.uid not in self._cluster.pods

    def _make(self, now_ns: int, stateful_set: _Set, ordinal: int, missing: int) -> bool:
        """Create the pod of an ordinal, one of so many that are missing, and its claims."""
        owner = ControllerRef("StatefulSet", stateful_set.message.metadata)
        partition = stateful_set.message.spec.update_strategy.rolling_update.partition
        is_new = stateful_set.message.spec.update_strategy.type == ON_DELETE or (
            ordinal >= stateful_set.first + partition
        )
        revision = stateful_set.current if is_new else stateful_set.before
        template = stateful_set.templates.get(revision, stateful_set.message.spec.template)
        pod = self._pod_control.draft(owner, template)
        meta = pod.metadata
        meta.name = f"{owner.meta.name}-{ordinal}"
        meta.labels[_NAME_LABEL], meta.labels[_INDEX_LABEL] = meta.name, str(ordinal)
        meta.labels[REVISION_LABEL] = f"{owner.meta.name}-{revision}"
        self._mount(now_ns, stateful_set, pod)
        if not self._pod_control.create(now_ns, owner, pod, place=str(ordinal), missing=missing):
            return False
        stateful_set.made_from[meta.uid] = revision
        return True

    def _mount(self, now_ns: int, stateful_set: _Set, pod: pod_pb2.Pod) -> None:
        """Mount a pod's own claims in place of the template's volumes of the same names."""
        templates = {
            claim.metadata.name: claim for claim in stateful_set.message.spec.volume_claim_templates
        }
        if not templates:
            return
        kept = [volume for volume in pod.spec.volumes if volume.name not in templates]
        del pod.spec.volumes[:]
        for name, claim in templates.items():
            claim_name = f"{name}-{pod.metadata.name}"
            self._claims.provide(now_ns, claim, pod.metadata.namespace, claim_name)
            pod.spec.volumes.add(name=name).persistent_volume_claim.claim_name = claim_name
        pod.spec.volumes.extend(kept)


def _max_unavailable(message: workloads_pb2.StatefulSet) -> int:
    """Return maxUnavailable as a number, at least 1; percentages of the replicas round down."""
    rolling = message.spec.update_strategy.rolling_update
    if not rolling.HasField("max_unavailable"):
        return 1
    where = "spec.updateStrategy.rollingUpdate.maxUnavailable"
    bound = fields.int_or_percent(rolling.max_unavailable, where)
    return max(1, scaled(bound, replicas(message.spec), rounds_up=False))


def _template_of(pod: pod_pb2.Pod) -> workloads_pb2.PodTemplateSpec:
    """Return the template that a pod was made from, as far as the pod shows it."""
    template = workloads_pb2.PodTemplateSpec()
    template.spec.CopyFrom(pod.spec)
    template.spec.ClearField("node_name")
    template.metadata.annotations.update(pod.metadata.annotations)
    template.metadata.labels.update(pod.metadata.labels)
    for name in (_NAME_LABEL, _INDEX_LABEL, REVISION_LABEL):
        template.metadata.labels.pop(name, "")
    return template


def _ordinal(pod: PodRecord, set_name: str) -> int | None:
    """Return the ordinal in a pod's name, None for a name that the set does not make."""
    name = pod.message.metadata.name
    match = _ORDINAL.fullmatch(name, len(set_name)) if name.startswith(set_name) else None
    return int(match[1]) if match else None
