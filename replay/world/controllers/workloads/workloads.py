"""All workload controllers as one: they keep the pods that workload objects specify.

Workloads run between rounds, on objects that have changed only. What one of them creates or
deletes is processed within the same run, until nothing changes any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from replay.hashing import object_uid
from replay.trace.validate import pod_features
from replay.world.api.admission import chain
from replay.world.api.admission.selectors import selector_of
from replay.world.api.cluster import Changed
from replay.world.api.controller_refs import ControllerRefs
from replay.world.api.pod_record import (
    PodRecord,
    controller_uid,
    holding,
    object_ref,
    set_controller,
)
from replay.world.controller import Controller, Ending
from replay.world.controllers.workloads.cron_jobs import CronJobs
from replay.world.controllers.workloads.daemon_sets import DaemonSets
from replay.world.controllers.workloads.deployments import Deployments
from replay.world.controllers.workloads.jobs import Jobs
from replay.world.controllers.workloads.pod_control import ControllerRef, PodControl
from replay.world.controllers.workloads.replica_sets import ReplicaSets
from replay.world.controllers.workloads.stateful_sets import StatefulSets
from replay.world.controllers.workloads.volume_claims import Claims
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.kube.v1beta1 import meta_pb2, object_pb2, pod_pb2, workloads_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.selector import LabelSelector
from services.kube.workloads import WORKLOAD_KINDS

_SPREAD = {
    WORKLOAD_KINDS[field]: field
    for field in ("replica_set", "replication_controller", "stateful_set")
}
"""The kinds whose pods have default spread constraints, with their fields."""

_CRON_JOBS = "CronJobs' schedules do not keep a replay running; use --until to replay them"

_Spread = workloads_pb2.ReplicaSet | workloads_pb2.ReplicationController | workloads_pb2.StatefulSet


class _PodController(Protocol):
    def remove(self, uid: str) -> None:
        """Remove an object, whose pods are deleted after that."""

    def sync(self, now_ns: int, uid: str) -> bool:
        """Create and delete pods; return whether the object must be synced again at once."""

    def may_claim(self, uid: str, pod: PodRecord) -> bool:
        """Return whether an object would adopt or release a pod, apart from the pod's labels."""

    def adopted(self, uid: str, pod: PodRecord) -> None:
        """Follow the adoption of a pod by an object."""

    def disowned(self, uid: str, pod_uid: str, pod: pod_pb2.Pod) -> None:
        """Follow the loss of a pod that an object does not own any more, or that is gone."""


class Workloads(Controller):
    """All workload controllers of a cluster.

    Owners of refused pods retry when an object that admission reads has changed.
    """

    keeps = frozenset(WORKLOAD_KINDS.values())
    watches = frozenset({*chain.KINDS.values(), *Claims.kinds})
    reads = frozenset({"header", "controller_pod"})
    actions = frozenset({ActionKind.LOOK})
    _uids_made: Counter[tuple[str, str, str]]
    _features: dict[tuple[str, str, str], frozenset[str]]
    _relabelled_sets: dict[str, None]
    _uids: dict[tuple[str, str, str], str]
    _objects: dict[str, tuple[str, meta_pb2.ObjectMeta]]
    _again: dict[str, None]
    _rolling: dict[str, None]
    _terminating: dict[str, None]
    _sent: dict[str, bytes]

    def __init__(self, state: WorldState, lifecycle: PodLifecycle) -> None:
        super().__init__(state)
        self._claims = Claims(state.cluster)
        self._pod_control = pod_control = PodControl(state, lifecycle)
        self._replica_sets = ReplicaSets(state.cluster, pod_control)
        self._deployments = Deployments(state, self._replica_sets, pod_control)
        self._stateful_sets = StatefulSets(state, pod_control, self._claims)
        self._daemon_sets = DaemonSets(state, pod_control)
        self._jobs = Jobs(state, pod_control)
        self._cron_jobs = CronJobs(state, self._jobs)
        self._jobs.finished = self._job_finished
        self._pod_controllers: dict[str, _PodController] = {
            "ReplicaSet": self._replica_sets,
            "ReplicationController": self._replica_sets,
            "StatefulSet": self._stateful_sets,
            "DaemonSet": self._daemon_sets,
            "Job": self._jobs,
        }
        self._pod_refs = ControllerRefs()
        self._replica_set_refs = ControllerRefs()
        self._relabelled_sets = {}
        self._again = {}
        self._rolling = {}
        self._terminating = {}

    def read(self, _now_ns: int, record: trace_pb2.Record) -> None:
        """Take the version that the trace is of, or the record of a pod that will be created."""
        if record.HasField("header"):
            self._stateful_sets.follow_version(record.header.kubernetes_version)
        else:
            self._pod_control.expect(record.controller_pod)

    def put(self, now_ns: int, message: object_pb2.KubernetesObject) -> None:
        """Add or replace a workload object, or follow a change of what admission or a claim reads.

        Features of the pods that are not simulated are noted, once each. Raises FieldError for an
        invalid workload object.
        """
        case = message.WhichOneof("object") or ""
        if case in chain.KINDS:
            self._pod_control.retry_refused(now_ns)
        elif case in WORKLOAD_KINDS:
            workload = getattr(message, case)
            self._fill_in_uid(WORKLOAD_KINDS[case], workload.metadata)
            self._put(now_ns, message)
            self._note_features(WORKLOAD_KINDS[case], workload)
        else:
            self._claims.see(message)

    def _fill_in_uid(self, kind: str, meta: meta_pb2.ObjectMeta) -> None:
        """Set a UID that the trace leaves out: that of the replaced object, or a new one."""
        meta.namespace = meta.namespace or "default"
        if meta.uid:
            return
        named = (kind, meta.namespace, meta.name)
        meta.uid = self._uids.get(named, "")
        if not meta.uid:
            meta.uid = object_uid(*named, ordinal=self._uids_made[named])
            self._uids_made[named] += 1

    def _note_features(self, kind: str, workload: Any) -> None:
        meta = workload.metadata
        named = (kind, meta.namespace, meta.name)
        noted = self._features.get(named, frozenset())
        spec = workload.spec.job_template.spec if kind == "CronJob" else workload.spec
        features = dict.fromkeys(
            pod_features(spec.template.spec, has_devices=self._cluster.device_claims.are_simulated)
        )
        for feature in features:
            if feature not in noted:
                self._journal.note("not-simulated", feature)
        self._features[named] = noted.union(features)

    def _put(self, now_ns: int, message: object_pb2.KubernetesObject) -> None:
        case = message.WhichOneof("object") or ""
        kind, selector = WORKLOAD_KINDS[case], selector_of(message)
        match case:
            case "replica_set":
                self._replica_sets.put(message.replica_set)
            case "replication_controller":
                self._replica_sets.put_replication_controller(message.replication_controller)
            case "deployment":
                self._deployments.put(message.deployment)
            case "stateful_set":
                self._stateful_sets.put(message.stateful_set)
            case "daemon_set":
                self._daemon_sets.put(message.daemon_set)
            case "job":
                self._jobs.put(message.job)
            case "cron_job":
                self._cron_jobs.put(now_ns, message.cron_job)
        self._remember(now_ns, message, selector)
        workload = getattr(message, case)
        if workload.metadata.HasField("deletion_timestamp"):
            self._terminating[workload.metadata.uid] = None
        if kind in _SPREAD:
            self._send(now_ns, kind, workload)

    def remove(self, now_ns: int, ref: meta_pb2.ObjectReference) -> None:
        """Delete a workload object, or follow a deletion of what admission or a claim reads."""
        if ref.kind in chain.KINDS.values():
            self._pod_control.retry_refused(now_ns)
        elif ref.kind in WORKLOAD_KINDS.values():
            uid = self._uids.get((ref.kind, ref.namespace or "default", ref.name))
            self._remove(now_ns, uid or ref.uid)
        else:
            self._claims.forget(ref)

    def _end_terminating(self, now_ns: int) -> None:
        """Delete the objects that the trace shows as being deleted.

        No controller makes pods for them. What they own goes with them, unless they orphan it, or
        exist until a finalizer of somebody else's is removed, and in the background.

        Source: kubernetes v1.34 pkg/controller/replicaset/replica_set.go, syncReplicaSet, and the
        other controllers' like it; pkg/controller/garbagecollector/garbagecollector.go,
        attemptToDeleteItem, processDeletingDependentsItem, orphanDependents.
        """
        uids, self._terminating = self._terminating, {}
        for uid in uids:
            _, meta = self._objects.get(uid, ("", None))
            if meta is not None:
                held = holding(meta.finalizers) and "foregroundDeletion" not in meta.finalizers
                stays = bool(held) or "orphan" in meta.finalizers
                self._remove(now_ns, uid, with_dependents=not stays)

    def _remove(self, now_ns: int, uid: str, *, with_dependents: bool = True) -> None:
        """Delete a workload object and, in the background, all that it owns.

        An unknown one is accepted. A Deployment whose ReplicaSet is deleted is synced again.
        """
        kind, meta = self._objects.pop(uid, ("", None))
        if meta is None:
            return
        self._journal.object_removed(now_ns, object_ref(kind, meta))
        self._pod_control.forget_refused(uid)
        self._pod_refs.remove(uid)
        self._replica_set_refs.remove(uid)
        if self._uids.get((kind, meta.namespace, meta.name)) == uid:
            del self._uids[kind, meta.namespace, meta.name]
        if self._sent.pop(uid, None) is not None:
            self._cluster.remove_other(now_ns, object_ref(kind, meta))
        if kind == "Deployment":
            self._deployments.remove(uid)
            for replica_set in self._replica_sets.of(uid) if with_dependents else ():
                self._remove(now_ns, replica_set.metadata.uid)
        elif kind == "CronJob":
            jobs = self._cron_jobs.remove(uid)
            for job_uid in jobs if with_dependents else ():
                self._remove(now_ns, job_uid)
        else:
            self._pod_controllers[kind].remove(uid)
            pods = list(self._cluster.pods_by_owner.get(uid, {}).values())
            for pod in pods if with_dependents else ():
                self._pod_control.delete(now_ns, pod)

    def act(self, _now_ns: int, action: Action) -> None:
        """Sync a workload object again, as planned."""
        changed = self._cluster.changed
        is_deployment = action.key in self._cluster.deployments
        (changed.deployments if is_deployment else changed.owners)[action.key] = None

    def conclude(self, ending: Ending) -> None:
        """Note the rollouts that are not finished, and the schedules that were not followed."""
        if ending.is_finished and len(self._cron_jobs):
            self._journal.note("cron-jobs", _CRON_JOBS)
        for text in self.unfinished_rollouts(ending.at_ns):
            self._journal.note("rollout", text)

    def concerns(self, pod: PodRecord) -> bool:
        """Return whether a pod has an owner, would be adopted, or counts for a quota."""
        if self._admission.quotas.covers(pod.message.metadata.namespace):
            return True
        return bool(pod.owner_uid or (self._objects and self._controller_of(pod)))

    def unfinished_rollouts(self, now_ns: int) -> Iterator[str]:
        """Yield a text for each rollout that is under way, waits or ends early, for users."""
        yield from self._deployments.unfinished(now_ns)
        yield from self._stateful_sets.unfinished()
        yield from self._daemon_sets.unfinished()

    def _claim(self, now_ns: int, changed: Changed) -> None:
        """Adopt orphans and release dependents: ReplicaSets, and pods whose labels are new."""
        self._claim_replica_sets(now_ns)
        for uid in changed.relabelled:
            pod = self._cluster.pods.get(uid)
            if pod is not None:
                self._claim_pod(now_ns, pod)
        self._adopt_orphans(now_ns)

    def _claim_replica_sets(self, now_ns: int) -> None:
        """Adopt and release ReplicaSets that have changed, and orphans near a new selector."""
        uids, self._relabelled_sets = self._relabelled_sets, {}
        namespaces = self._replica_set_refs.take_new()
        if namespaces:
            orphans = self._replica_sets.of("")
            uids |= {
                orphan.metadata.uid: None
                for orphan in orphans
                if orphan.metadata.namespace in namespaces
            }
        for uid in uids:
            replica_set = self._cluster.replica_sets.get(uid)
            if replica_set is None or self._objects[uid][0] != "ReplicaSet":
                continue
            owner_uid = self._replica_set_refs.owner(replica_set.metadata, lambda _uid: True)
            if owner_uid == controller_uid(replica_set.metadata):
                continue
            self._note_claimed("ReplicaSets", controller_uid(replica_set.metadata), owner_uid)
            claimed = workloads_pb2.ReplicaSet()
            claimed.CopyFrom(replica_set)
            set_controller(claimed.metadata, self._reference_to(owner_uid))
            self._put(now_ns, object_pb2.KubernetesObject(replica_set=claimed))

    def _adopt_orphans(self, now_ns: int) -> None:
        """Adopt the orphans that new selectors match."""
        for namespace in self._pod_refs.take_new():
            for pod in list(self._cluster.orphans.get(namespace, {}).values()):
                self._claim_pod(now_ns, pod)

    def _claim_pod(self, now_ns: int, pod: PodRecord) -> None:
        """Let a pod be released by its controller, or adopted by one."""
        owner_uid = self._controller_of(pod)
        if owner_uid == pod.owner_uid:
            return
        self._note_claimed("pods", pod.owner_uid, owner_uid)
        self._cluster.set_controller(now_ns, pod, self._reference_to(owner_uid))
        if owner_uid:
            kind, _ = self._objects[owner_uid]
            self._pod_controllers[kind].adopted(owner_uid, pod)

    def _controller_of(self, pod: PodRecord) -> str:
        """Return the UID of the controller that a pod should have, "" if none."""
        return self._pod_refs.owner(pod.message.metadata, partial(self._may_claim, pod))

    def _note_claimed(self, what: str, former_uid: str, owner_uid: str) -> None:
        """Note, for users, that a controller has released or adopted one of such objects."""
        if former_uid:
            text = f"released {what} whose labels its selector does not match"
            self._journal.note("released", f"{self._named(former_uid)} {text}")
        if owner_uid:
            text = f"adopted {what} without a controller whose labels its selector matches"
            self._journal.note("adopted", f"{self._named(owner_uid)} {text}")

    def _named(self, uid: str) -> str:
        kind, meta = self._objects[uid]
        return f"{kind} {meta.namespace}/{meta.name}"

    def _reference_to(self, owner_uid: str) -> meta_pb2.OwnerReference | None:
        if not owner_uid:
            return None
        kind, meta = self._objects[owner_uid]
        return ControllerRef(kind, meta).owner_reference()

    def _may_claim(self, pod: PodRecord, uid: str) -> bool:
        kind, _ = self._objects[uid]
        return self._pod_controllers[kind].may_claim(uid, pod)

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Sync the workload objects that have changed, or whose pods or nodes have."""
        if not self._objects and self._admission.quotas.is_empty:
            # Nothing is claimed, synced or released. Most rounds of such a trace change one pod.
            self._pod_control.pods_changed(now_ns, changed.pods)
            return
        self._end_terminating(now_ns)
        self._claim(now_ns, changed)
        if self._cluster.has_changed:
            changed.add(self._cluster.take_changed())
        self._release(now_ns, changed.pods)
        self._pod_control.pods_changed(now_ns, changed.pods)
        for pod_uid, uid in changed.disowned.items():
            self._disowned(uid, pod_uid, changed.pods[pod_uid])
        self._daemon_sets.pods_changed(changed.pods)
        self._roll_out(now_ns, changed.deployments)
        self._adopt_orphans(now_ns)
        waiting = dict(changed.owners) | self._daemon_sets.nodes_changed(changed.nodes)
        waiting |= self._cluster.changed.owners
        while waiting:
            for uid in waiting:
                self._sync(now_ns, uid)
            waiting, self._again = self._again, {}
            rolling, self._rolling = self._rolling, {}
            waiting |= self._roll_out(now_ns, rolling)
            self._adopt_orphans(now_ns)
        self._release(now_ns, self._cluster.changed.pods)

    def _release(self, now_ns: int, pods: Mapping[str, pod_pb2.Pod]) -> None:
        """Release changed pods from quotas; owners of refused pods retry."""
        if self._admission.pods_changed(now_ns, pods, self._cluster.pods):
            self._pod_control.retry_refused(now_ns)

    def _roll_out(self, now_ns: int, uids: Iterable[str]) -> dict[str, None]:
        """Take a step of each Deployment; return the ReplicaSets to sync, by UID."""
        resized: dict[str, None] = {}
        for uid in uids:
            step = self._deployments.sync(now_ns, uid)
            for replica_set in step.changed:
                resized[replica_set.metadata.uid] = None
                wrapped = object_pb2.KubernetesObject(replica_set=replica_set)
                self._remember(now_ns, wrapped, selector_of(wrapped))
                self._send(now_ns, "ReplicaSet", replica_set)
            for removed in step.removed:
                self._remove(now_ns, removed)
        return resized

    def _send(self, now_ns: int, kind: str, message: _Spread) -> None:
        """Send the scheduler the selector of pods with default spread constraints, if it is new."""
        wrapped = object_pb2.KubernetesObject()
        sent = getattr(wrapped, _SPREAD[kind])
        meta = message.metadata
        sent.metadata.name, sent.metadata.namespace = meta.name, meta.namespace
        sent.metadata.uid = meta.uid
        if isinstance(message, workloads_pb2.ReplicationController):
            sent.spec.selector.update(message.spec.selector)
        elif message.spec.HasField("selector"):
            sent.spec.selector.CopyFrom(message.spec.selector)
        text = wrapped.SerializeToString(deterministic=True)
        if self._sent.get(meta.uid) != text:
            self._cluster.put_other(now_ns, wrapped, is_new=meta.uid not in self._sent)
            self._sent[meta.uid] = text

    def _sync(self, now_ns: int, uid: str) -> None:
        kind, _ = self._objects.get(uid, ("", None))
        if kind == "CronJob":
            made, deleted = self._cron_jobs.sync(now_ns, uid)
            for job_uid in deleted:
                self._remove(now_ns, job_uid)
            for job in made:
                self._start(now_ns, job)
        elif kind in self._pod_controllers:
            if self._pod_controllers[kind].sync(now_ns, uid):
                self._again[uid] = None
            if kind == "ReplicaSet":
                owner_uid = controller_uid(self._cluster.replica_sets[uid].metadata)
                if self._deployments.is_rolling_out(owner_uid):
                    self._rolling[owner_uid] = None
            if kind == "Job" and self._jobs.expire(now_ns, uid):
                self._remove(now_ns, uid)

    def _start(self, now_ns: int, job: workloads_pb2.Job) -> None:
        meta = job.metadata
        if ("Job", meta.namespace, meta.name) not in self._uids:
            self._jobs.put(job)
            wrapped = object_pb2.KubernetesObject(job=job)
            self._remember(now_ns, wrapped, selector_of(wrapped))
            self._again[meta.uid] = None

    def _job_finished(self, now_ns: int, job: workloads_pb2.Job) -> None:
        self._again[controller_uid(job.metadata)] = None
        wrapped = object_pb2.KubernetesObject(job=job)
        self._journal.object_put(now_ns, wrapped, is_new=False)

    def _disowned(self, uid: str, pod_uid: str, message: pod_pb2.Pod) -> None:
        """Let the controller that has lost a pod follow that, unless it has adopted it again."""
        kind, _ = self._objects.get(uid, ("", None))
        pod = self._cluster.pods.get(pod_uid)
        if kind in self._pod_controllers and (pod is None or pod.owner_uid != uid):
            self._pod_controllers[kind].disowned(uid, pod_uid, message)

    def _remember(
        self, now_ns: int, message: object_pb2.KubernetesObject, selector: LabelSelector | None
    ) -> None:
        """Keep what is needed of a workload object, which is new or has changed."""
        case = message.WhichOneof("object") or ""
        kind, meta = WORKLOAD_KINDS[case], getattr(message, case).metadata
        self._journal.object_put(now_ns, message, is_new=meta.uid not in self._objects)
        self._uids[kind, meta.namespace, meta.name] = meta.uid
        self._objects[meta.uid] = (kind, meta)
        refs = self._replica_set_refs if kind == "Deployment" else self._pod_refs
        refs.put(meta, selector)
        if kind == "ReplicaSet":
            self._relabelled_sets[meta.uid] = None
