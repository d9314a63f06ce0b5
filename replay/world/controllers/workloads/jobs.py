"""Jobs: pods that run to completion, retried after a backoff, until enough have succeeded.

Source: kubernetes v1.34 pkg/controller/job/job_controller.go, syncJob, manageJob,
pastBackoffLimitOnFailure, pastActiveDeadline, deleteActivePods, activePodsForRemoval;
pkg/controller/ttlafterfinished. Success policies and managedBy are not served. A Job is synced at
each change of its pods; upstream collects changes for a second.
"""

from __future__ import annotations

from collections.abc import Callable

from replay.world.api.pod_record import PodRecord, controller_uid
from replay.world.controllers.workloads.job_state import INDEX, JobState, check_policy
from replay.world.controllers.workloads.pod_control import (
    GENERATED_BASE_MAX,
    ControllerRef,
    PodControl,
    first_to_go,
)
from replay.world.state import WorldPart, WorldState
from replay.world.timeline import ActionKind
from reprieve.kube.v1beta1 import pod_pb2, workloads_pb2
from services.kube.time import SECOND_NS


class Jobs(WorldPart):
    """Keeps the pods of each Job.

    `finished` is called with the time (ns) and the Job, with its status, when a Job finishes.
    """

    _jobs: dict[str, JobState]

    def __init__(self, state: WorldState, pod_control: PodControl) -> None:
        super().__init__(state)
        self._pod_control = pod_control
        self.finished: Callable[[int, workloads_pb2.Job], None] = lambda _now_ns, _job: None

    def put(self, message: workloads_pb2.Job) -> None:
        """Add or replace a Job; counted pods of a replaced one stay counted.

        Raises FieldError for an invalid pod failure policy.
        """
        check_policy(message.spec.pod_failure_policy)
        uid = message.metadata.uid
        stored = self._jobs.get(uid)
        if stored is None:
            self._jobs[uid] = JobState.of(message)
        else:
            if stored.message.spec.suspend and not message.spec.suspend:
                stored.start_ns = None
            stored.message = message
        self._cluster.changed.owners[uid] = None

    def remove(self, uid: str) -> None:
        """Remove a Job; its pods are deleted elsewhere."""
        del self._jobs[uid]
        self._timeline.cancel(ActionKind.LOOK, uid)

    def may_claim(self, uid: str, _pod: PodRecord) -> bool:
        """Return whether a Job still tracks its pods: a finished one does not."""
        return self._jobs[uid].finished_ns is None

    def adopted(self, uid: str, pod: PodRecord) -> None:
        """Count an adopted pod from now on, also one that has ended."""
        self._jobs[uid].uncounted[pod.uid] = pod

    def disowned(self, uid: str, pod_uid: str, _pod: pod_pb2.Pod) -> None:
        """Stop counting a released pod, which is neither a success nor a failure."""
        self._jobs[uid].uncounted.pop(pod_uid, None)

    def of(self, owner_uid: str) -> list[JobState]:
        """Return the Jobs of a CronJob, in the order of their creation."""
        return [
            job for job in self._jobs.values() if controller_uid(job.message.metadata) == owner_uid
        ]

    def sync(self, now_ns: int, uid: str) -> bool:
        """Count ended pods, create and delete pods; return False, as one sync is enough."""
        job = self._jobs[uid]
        present = self._cluster.pods_by_owner.get(uid, {})
        job.count(now_ns, list(present.values()), present)
        if job.finished_ns is not None:
            return False
        if job.start_ns is None and not job.message.spec.suspend:
            job.start_ns = now_ns
        active = [pod for pod in job.uncounted.values() if not pod.is_terminating]
        self._set_condition(now_ns, job, active)
        if job.condition:
            self._delete(now_ns, job, active)
            self._finish(now_ns, job)
        else:
            self._manage(now_ns, job, active)
            self._look_at_deadline(job)
        return False

    def expire(self, now_ns: int, uid: str) -> bool:
        """Return whether a Job's ttlSecondsAfterFinished is over; if not yet, plan a sync."""
        job = self._jobs[uid]
        spec = job.message.spec
        if job.finished_ns is None or not spec.HasField("ttl_seconds_after_finished"):
            return False
        due_ns = job.finished_ns + spec.ttl_seconds_after_finished * SECOND_NS
        if due_ns > now_ns:
            self._timeline.plan_earlier(due_ns, ActionKind.LOOK, uid)
        return due_ns <= now_ns

    # Conditions

    def _set_condition(self, now_ns: int, job: JobState, active: list[PodRecord]) -> None:
        if job.condition:
            return
        spec, reason = job.message.spec, ""
        if job.failed > job.backoff_limit or _past_limit_on_failure(job, active):
            reason = "BackoffLimitExceeded"
        elif self._is_past_deadline(now_ns, job):
            reason = "DeadlineExceeded"
        elif job.counts_by_index:
            failed = len(job.failed_indexes)
            if spec.HasField("max_failed_indexes") and failed > spec.max_failed_indexes:
                reason = "MaxFailedIndexesExceeded"
            elif failed and failed + len(job.completed_indexes) >= (job.completions or 0):
                reason = "FailedIndexes"
        if reason:
            job.condition, job.reason = "Failed", reason
        elif not active and _has_enough(job):
            job.condition = "Complete"

    def _finish(self, now_ns: int, job: JobState) -> None:
        uid = job.message.metadata.uid
        present = self._cluster.pods_by_owner.get(uid, {}).values()
        if any(not pod.is_terminal for pod in present):
            return
        job.finished_ns = now_ns
        self._timeline.cancel(ActionKind.LOOK, uid)
        if job.condition == "Failed":
            meta = job.message.metadata
            self._journal.note("job-failed", f"Job {meta.namespace}/{meta.name}: {job.reason}")
        self.finished(now_ns, job.with_status())

    def _is_past_deadline(self, now_ns: int, job: JobState) -> bool:
        spec = job.message.spec
        if not spec.HasField("active_deadline_seconds") or job.start_ns is None or spec.suspend:
            return False
        return now_ns >= job.start_ns + spec.active_deadline_seconds * SECOND_NS

    def _look_at_deadline(self, job: JobState) -> None:
        spec = job.message.spec
        if spec.HasField("active_deadline_seconds") and job.start_ns is not None:
            due_ns = job.start_ns + spec.active_deadline_seconds * SECOND_NS
            self._timeline.plan_earlier(due_ns, ActionKind.LOOK, job.message.metadata.uid)

    # Pods

    def _manage(self, now_ns: int, job: JobState, active: list[PodRecord]) -> None:
        """Create missing pods, or delete pods beyond the wanted number."""
        if job.message.spec.suspend:
            self._delete(now_ns, job, active)
            return
        desired = _desired(job, len(active))
        if len(active) > desired:
            order = first_to_go(active, active, now_ns)
            self._delete(now_ns, job, order[: len(active) - desired])
            return
        terminating = len(job.uncounted) - len(active)
        missing = desired - len(active) - (terminating if job.waits_for_end else 0)
        if missing <= 0:
            return
        uid = job.message.metadata.uid
        if not job.counts_by_index and job.row.due_ns() > now_ns:
            self._timeline.plan_earlier(job.row.due_ns(), ActionKind.LOOK, uid)
            return
        indexes: list[int | None] = [None] * missing
        later_ns = None
        if job.is_indexed:
            pending, later_ns = job.pending_indexes(now_ns, missing)
            indexes = [*pending]
        for place, index in enumerate(indexes):
            if not self._create(now_ns, job, index, len(indexes) - place):
                return
        if later_ns is not None:
            self._timeline.plan_earlier(later_ns, ActionKind.LOOK, uid)

    def _create(self, now_ns: int, job: JobState, index: int | None, missing: int) -> bool:
        owner = ControllerRef("Job", job.message.metadata)
        pod = self._pod_control.draft(owner, job.message.spec.template)
        owner_meta, labels = owner.meta, pod.metadata.labels
        labels["batch.kubernetes.io/controller-uid"] = labels["controller-uid"] = owner_meta.uid
        labels["batch.kubernetes.io/job-name"] = labels["job-name"] = owner_meta.name
        place = base = ""
        if index is not None:
            labels[INDEX] = pod.metadata.annotations[INDEX] = place = str(index)
            base = owner_meta.name[: GENERATED_BASE_MAX - len(f"-{index}-")] + f"-{index}-"
        if not self._pod_control.create(
            now_ns, owner, pod, place=place, base=base, missing=missing
        ):
            return False
        uid = pod.metadata.uid
        job.uncounted[uid] = self._cluster.pods[uid]
        return True

    def _delete(self, now_ns: int, job: JobState, pods: list[PodRecord]) -> None:
        for pod in list(pods):
            job.leave_out(pod)
            self._pod_control.delete(now_ns, pod)


def _desired(job: JobState, active: int) -> int:
    """Return how many pods should run."""
    if job.completions is None:
        return active if job.succeeded else job.parallelism
    missing = job.completions - job.successes
    if job.counts_by_index:
        missing -= len(job.failed_indexes)
    return max(0, min(missing, job.parallelism))


def _has_enough(job: JobState) -> bool:
    if job.completions is None:
        return job.succeeded > 0
    return job.successes >= job.completions


def _past_limit_on_failure(job: JobState, active: list[PodRecord]) -> bool:
    """Return whether restarts in place (OnFailure) have reached the backoff limit."""
    if job.message.spec.template.spec.restart_policy != "OnFailure":
        return False
    restarts = sum(
        container.restart_count
        for pod in active
        for container in pod.message.status.container_statuses
    )
    return restarts > 0 and restarts >= job.backoff_limit
