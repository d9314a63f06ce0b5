"""The objects of a run after each of its changes, with the statuses that controllers write.

A run's history holds the objects that the scheduler received; objects.rounds.zst holds the others.
This module reads both as one series of changes. It derives a workload's status from the pods at the
moment asked for, so a run need not record statuses.

Source: kubernetes v1.34 pkg/controller/replicaset/replica_set_utils.go, calculateStatus;
deployment/sync.go, calculateStatus; statefulset/stateful_set_control.go, updateStatus;
daemon/daemon_controller.go, updateDaemonSetStatus; job/job_controller.go, syncJob;
cronjob/cronjob_controllerv2.go, syncCronJob.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf.message import Message

from replay.errors import RunError
from replay.kube.kinds import KINDS
from replay.results.kubectl.deployment_conditions import conditions
from replay.results.kubectl.resources import ALL
from replay.results.run.cluster import ChangeType, ClusterObjects, ObjectChange, ObjectKey
from replay.results.run.directory import RunDirectory
from replay.world.api.admission.quotas import Quotas
from replay.world.api.conditions import is_ready, ready_since_ns
from replay.world.api.pod_record import JOB_TRACKING, controller_of, controller_uid
from replay.world.controllers.workloads.daemon_sets import NodeShouldRun, target, tolerant
from replay.world.controllers.workloads.deployments import same_template
from replay.world.controllers.workloads.job_state import (
    FailureAction,
    JobState,
    failure_action,
    index_of,
)
from replay.world.controllers.workloads.pod_control import REVISION_LABEL, template_hash
from reprieve.kube.v1beta1 import admission_pb2, meta_pb2, node_pb2, pod_pb2, workloads_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.daemon_pods import ShouldRun
from services.kube.pod import TERMINAL_PHASES
from services.kube.time import SECOND_NS
from services.rpc.kube.fields import optional_time_ns, set_time, time_ns

_RECORDED = frozenset(resource.kind for resource in ALL if resource.is_recorded)
_JOB_ENDS = frozenset({"Complete", "Failed"})


def changes(run: RunDirectory, kinds: Iterable[str]) -> Iterator[scheduler_pb2.Event]:
    """Yield the changes of a run in order, including all objects that `kinds` depend on.

    Raises RunError if the files cannot be read, and if a run has no objects of `kinds`
    because of its version.
    """
    sent = (event for round_ in run.rounds() for event in round_.events)
    if _RECORDED.isdisjoint(kinds):
        return sent
    others = (event for event in sent if _is_whole(run, event))
    recorded = (event for round_ in run.object_rounds() for event in round_.events)
    return heapq.merge(recorded, others, key=lambda event: event.time_ns)


def _is_whole(run: RunDirectory, event: scheduler_pb2.Event) -> bool:
    """Return whether an event of the history holds the whole object.

    Otherwise the object is recorded in full in objects.rounds.zst.
    """
    case = event.WhichOneof("event")
    if case == "remove":
        kind = event.remove.kind
    elif case in ("add", "update"):
        kind = KINDS.get(getattr(event, case).WhichOneof("object") or "", "")
    else:
        return True
    if kind in _RECORDED and not run.has_objects:
        raise RunError(
            f"{run.path} was made by a version that recorded no {kind}s; replay its trace again"
        )
    return kind not in _RECORDED


def objects_at(run: RunDirectory, kinds: Iterable[str], now_ns: int) -> RunObjects:
    """Return the objects at a moment, those of `kinds` among them. Raises RunError as `changes`."""
    held = RunObjects()
    for event in changes(run, kinds):
        if event.time_ns > now_ns:
            break
        held.take(event)
    return held


class RunObjects:
    """The objects after the last change, by kind, namespace and name."""

    def __init__(self) -> None:
        self._cluster = ClusterObjects()
        self._pods: dict[str, dict[str, pod_pb2.Pod]] = {}
        self._owner_uids: dict[str, str] = {}
        self._owned: dict[str, dict[ObjectKey, None]] = {}
        self._succeeded: dict[str, dict[str, int | None]] = {}
        self._failing: dict[str, dict[str, pod_pb2.Pod]] = {}
        self._counted_before: dict[str, None] = {}
        self._changed_ns: dict[str, int] = {}

    @property
    def objects(self) -> Mapping[ObjectKey, Message]:
        """Return the objects as they were sent or recorded, without derived statuses."""
        return self._cluster.objects

    def take(self, event: scheduler_pb2.Event) -> ObjectChange | None:
        """Apply an event and return the change, as ClusterObjects.take does."""
        before = self._stamp(event)
        change = self._cluster.take(event)
        if change is None:
            return None
        if isinstance(change.message, pod_pb2.Pod):
            self._take_pod(change, change.message)
        elif change.key[0] in _RECORDED:
            self._take_workload(change, before)
        return change

    def _stamp(self, event: scheduler_pb2.Event) -> Message | None:
        """Set a missing creation time to the time of the object's first change.

        Returns the object as it was before the event; None for a new one.
        """
        case = event.WhichOneof("event")
        if case not in ("add", "update"):
            return None
        holder = getattr(event, case)
        message = getattr(holder, holder.WhichOneof("object") or "", None)
        if message is None:
            return None
        meta: meta_pb2.ObjectMeta = message.metadata
        stored: Any = self.objects.get((message.DESCRIPTOR.name, meta.namespace, meta.name))
        if not meta.HasField("creation_timestamp"):
            first_ns = event.time_ns
            if stored is not None:
                first_ns = time_ns(stored.metadata.creation_timestamp)
            set_time(meta.creation_timestamp, first_ns)
        return stored if isinstance(stored, Message) else None

    def _take_pod(self, change: ObjectChange, pod: pod_pb2.Pod) -> None:
        owner_uid, uid = controller_uid(pod.metadata), pod.metadata.uid
        former_uid = self._owner_uids.get(uid, "")
        if former_uid != owner_uid:
            self._pods.get(former_uid, {}).pop(uid, None)
        if not owner_uid:
            self._owner_uids.pop(uid, None)
            return
        # As JobState.count: a pod that had ended when it was first seen was counted before.
        is_tracked = JOB_TRACKING in pod.metadata.finalizers
        was_counted = change.type is ChangeType.ADDED and not is_tracked
        has_succeeded = pod.status.phase == "Succeeded"
        is_failing = pod.status.phase == "Failed" or pod.metadata.HasField("deletion_timestamp")
        if was_counted and (has_succeeded or is_failing):
            self._counted_before[uid] = None
        if has_succeeded and uid not in self._counted_before:
            self._succeeded.setdefault(owner_uid, {})[uid] = index_of(pod)
        elif is_failing and _is_of_job(pod) and uid not in self._counted_before:
            self._failing.setdefault(owner_uid, {})[uid] = pod
        if change.type is ChangeType.DELETED:
            self._counted_before.pop(uid, None)
            self._pods.get(owner_uid, {}).pop(uid, None)
            self._owner_uids.pop(uid, None)
        else:
            self._pods.setdefault(owner_uid, {})[uid] = pod
            self._owner_uids[uid] = owner_uid

    def _take_workload(self, change: ObjectChange, before: Message | None) -> None:
        message: Any = change.message
        owner_uid, uid = controller_uid(message.metadata), message.metadata.uid
        former: Any = before
        if former is not None and controller_uid(former.metadata) != owner_uid:
            self._owned.get(controller_uid(former.metadata), {}).pop(change.key, None)
        owned = self._owned.setdefault(owner_uid, {}) if owner_uid else {}
        if change.type is ChangeType.DELETED:
            owned.pop(change.key, None)
            held = (self._owned, self._pods, self._succeeded, self._failing, self._changed_ns)
            for by_uid in held:
                by_uid.pop(uid, None)
            return
        owned[change.key] = None
        is_daemon_set = message.DESCRIPTOR.name == "DaemonSet"
        if is_daemon_set and before is not None and _template(before) != _template(message):
            self._changed_ns[uid] = change.at_ns

    def with_status(self, message: Message, now_ns: int) -> Message:
        """Return the object with its status at `now_ns`.

        It is a copy if a controller writes the status, otherwise `message` itself.
        """
        if message.DESCRIPTOR.name not in _RECORDED:
            return message
        made: Any = type(message)()
        made.CopyFrom(message)
        match made:
            case workloads_pb2.ReplicaSet() | workloads_pb2.ReplicationController():
                made.status.CopyFrom(self._replicated(made, now_ns))
            case workloads_pb2.Deployment():
                made.status.CopyFrom(self._deployed(made, now_ns))
            case workloads_pb2.StatefulSet():
                made.status.CopyFrom(self._replicated(made, now_ns, counts_terminating=True))
            case workloads_pb2.DaemonSet():
                made.status.CopyFrom(self._daemons(made, now_ns))
            case workloads_pb2.Job():
                self._count(made)
            case workloads_pb2.CronJob():
                self._schedule(made)
            case admission_pb2.ResourceQuota():
                self._charge(made, now_ns)
        result: Message = made
        return result

    def _charge(self, quota: admission_pb2.ResourceQuota, now_ns: int) -> None:
        """Fill in the pods' usage of a quota; usage of other objects stays as recorded."""
        pods = (message for message in self.objects.values() if isinstance(message, pod_pb2.Pod))
        quotas = Quotas()
        quotas.put(now_ns, quota, pods)
        quota.status.hard.update(quota.spec.hard)
        used = quotas.used(quota.metadata.namespace, quota.metadata.name)
        quota.status.used.update((name, str(amount)) for name, amount in used.items())

    def owner_key(self, message: Message) -> ObjectKey | None:
        """Return the workload whose status depends on the object; None if there is none."""
        meta: meta_pb2.ObjectMeta = message.metadata  # type: ignore[attr-defined] # of an object
        owner = controller_of(meta)
        key = None if owner is None else (owner.kind, meta.namespace, owner.name)
        return key if key in self.objects else None

    def _replicated(
        self, message: Any, now_ns: int, *, counts_terminating: bool = False
    ) -> workloads_pb2.WorkloadStatus:
        pods = self._pods.get(message.metadata.uid, {}).values()
        active = [
            pod
            for pod in pods
            if pod.status.phase not in TERMINAL_PHASES
            and (counts_terminating or not pod.metadata.HasField("deletion_timestamp"))
        ]
        wait_s = message.spec.min_ready_seconds
        return workloads_pb2.WorkloadStatus(
            replicas=len(active),
            ready_replicas=sum(is_ready(pod.status) for pod in active),
            available_replicas=sum(_is_available(pod, now_ns, wait_s) for pod in active),
        )

    def _deployed(
        self, message: workloads_pb2.Deployment, now_ns: int
    ) -> workloads_pb2.WorkloadStatus:
        total, newest, progress_ns = workloads_pb2.WorkloadStatus(), "", 0
        for key in self._owned.get(message.metadata.uid, {}):
            replica_set = self.objects.get(key)
            if not isinstance(replica_set, workloads_pb2.ReplicaSet):
                continue
            status = self._replicated(replica_set, now_ns)
            total.replicas += status.replicas
            total.ready_replicas += status.ready_replicas
            total.available_replicas += status.available_replicas
            is_newest = same_template(replica_set, message)
            if is_newest:
                total.updated_replicas += status.replicas
                newest = replica_set.metadata.name
                progress_ns = max(progress_ns, time_ns(replica_set.metadata.creation_timestamp))
            progress_ns = max(progress_ns, self._progress_ns(replica_set.metadata.uid, is_newest))
        total.unavailable_replicas = total.replicas - total.available_replicas
        total.conditions.extend(conditions(message, total, newest, now_ns - progress_ns))
        return total

    def _progress_ns(self, uid: str, is_newest: bool) -> int:
        """Return when a pod of a ReplicaSet last became ready.

        For the newest ReplicaSet, the creation of a pod counts, too.
        """
        times = [0]
        for pod in self._pods.get(uid, {}).values():
            if is_newest:
                times.append(time_ns(pod.metadata.creation_timestamp))
            times.append(ready_since_ns(pod.status) or 0)
        return max(times)

    def _daemons(
        self, message: workloads_pb2.DaemonSet, now_ns: int
    ) -> workloads_pb2.DaemonSetStatus:
        status = workloads_pb2.DaemonSetStatus()
        should_run = NodeShouldRun(tolerant(message.spec.template))
        on: dict[str, pod_pb2.Pod] = {}
        for pod in self._pods.get(message.metadata.uid, {}).values():
            on.setdefault(target(pod), pod)
        revision = template_hash(message.spec.template)
        since_ns = self._changed_ns.get(message.metadata.uid)
        for node in self.objects.values():
            if not isinstance(node, node_pb2.Node):
                continue
            daemon = on.get(node.metadata.name)
            if should_run.on(node) is ShouldRun.NO:
                status.number_misscheduled += daemon is not None
                continue
            if should_run.on(node) is not ShouldRun.YES and daemon is None:
                continue
            status.desired_number_scheduled += 1
            if daemon is None:
                continue
            status.current_number_scheduled += 1
            is_current = daemon.metadata.labels.get(REVISION_LABEL) == revision
            status.updated_number_scheduled += since_ns is None or is_current
            status.number_ready += is_ready(daemon.status)
            wait_s = message.spec.min_ready_seconds
            status.number_available += _is_available(daemon, now_ns, wait_s)
        return status

    def _count(self, job: workloads_pb2.Job) -> None:
        """Fill in a Job's pod counts; those of a finished Job are recorded.

        A terminating pod counts as failed at once, unless the Job replaces only failed pods. Pods
        deleted because the Job is suspended do not count as failed. Pods deleted because its
        parallelism was lowered do count here, unlike upstream.
        Source: kubernetes v1.34 pkg/controller/job/job_controller.go, isPodFailed,
        trackJobStatusAndRemoveFinalizers, countTerminatingPods.
        """
        status = job.status
        if any(
            condition.type in _JOB_ENDS and condition.status == "True"
            for condition in status.conditions
        ):
            return
        uid = job.metadata.uid
        succeeded = self._succeeded.get(uid, {})
        if job.spec.completion_mode == "Indexed":
            status.succeeded += len({index for index in succeeded.values() if index is not None})
        else:
            status.succeeded += len(succeeded)
        alive = [
            pod
            for pod in self._pods.get(uid, {}).values()
            if pod.status.phase not in TERMINAL_PHASES
        ]
        active = [pod for pod in alive if not pod.metadata.HasField("deletion_timestamp")]
        status.active, status.ready = len(active), sum(is_ready(pod.status) for pod in active)
        status.terminating = len(alive) - len(active)
        waits_for_end = JobState.of(job).waits_for_end or job.spec.suspend
        status.failed += sum(
            failure_action(job.spec.pod_failure_policy, pod.status) is not FailureAction.IGNORE
            for pod_uid, pod in self._failing.get(uid, {}).items()
            if pod.status.phase == "Failed" or not waits_for_end
            if pod_uid not in succeeded
        )
        if not status.HasField("start_time") and not job.spec.suspend:
            status.start_time.CopyFrom(job.metadata.creation_timestamp)

    def _schedule(self, cron: workloads_pb2.CronJob) -> None:
        """Fill in a CronJob's active Jobs and when the last one was created."""
        status = cron.status
        del status.active[:]
        for kind, namespace, name in self._owned.get(cron.metadata.uid, {}):
            job = self.objects.get((kind, namespace, name))
            if not isinstance(job, workloads_pb2.Job):
                continue
            created = job.metadata.creation_timestamp
            last_ns = optional_time_ns(status, "last_schedule_time")
            if last_ns is None or time_ns(created) > last_ns:
                status.last_schedule_time.CopyFrom(created)
            if not any(condition.type in _JOB_ENDS for condition in job.status.conditions):
                status.active.add(kind=kind, namespace=namespace, name=name, uid=job.metadata.uid)


def _template(daemon_set: Any) -> workloads_pb2.PodTemplateSpec:
    template: workloads_pb2.PodTemplateSpec = daemon_set.spec.template
    return template


def _is_of_job(pod: pod_pb2.Pod) -> bool:
    owner = controller_of(pod.metadata)
    return owner is not None and owner.kind == "Job"


def _is_available(pod: pod_pb2.Pod, now_ns: int, min_ready_s: int) -> bool:
    """Return whether a pod has been ready for so many seconds.

    Source: kubernetes v1.34 pkg/api/v1/pod/util.go, IsPodAvailable.
    """
    since_ns = ready_since_ns(pod.status)
    return since_ns is not None and (
        not min_ready_s or since_ns + min_ready_s * SECOND_NS <= now_ns
    )
