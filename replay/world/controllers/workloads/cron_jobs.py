"""CronJobs: Jobs created by a schedule (cron_schedule.py).

A schedule does not keep a replay running: a replay without a given end ends when all else has.

Source: kubernetes v1.34 pkg/controller/cronjob/cronjob_controllerv2.go, syncCronJob,
cleanupFinishedJobs, getJobName; utils.go, nextScheduleTime, getJobFromTemplate2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from replay.hashing import object_uid
from replay.world.controllers.workloads.cron_schedule import Schedule, ScheduleError, parse
from replay.world.controllers.workloads.job_state import JobState, check_policy
from replay.world.controllers.workloads.jobs import Jobs
from replay.world.controllers.workloads.pod_control import ControllerRef
from replay.world.state import WorldPart, WorldState
from replay.world.timeline import ActionKind
from reprieve.kube.v1beta1 import workloads_pb2
from services.kube.time import SECOND_NS
from services.rpc.errors import FieldError
from services.rpc.kube.fields import set_time, time_ns, timestamp

SUCCESSFUL_KEPT, FAILED_KEPT = 3, 1
_SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"


@dataclass(slots=True, kw_only=True)
class _Cron:
    """A CronJob; `since_s` is when it last created a Job, or was created, s since the epoch."""

    message: workloads_pb2.CronJob
    since_s: int
    schedule: Schedule = field(init=False)

    def __post_init__(self) -> None:
        """Parse the schedule. Raises ScheduleError."""
        self.schedule = parse(self.message.spec.schedule, self.message.spec.time_zone)


class CronJobs(WorldPart):
    """Decides which Jobs to create, and which finished ones to delete."""

    _crons: dict[str, _Cron]

    def __init__(self, state: WorldState, jobs: Jobs) -> None:
        super().__init__(state)
        self._jobs = jobs

    def __len__(self) -> int:
        return len(self._crons)

    def put(self, now_ns: int, message: workloads_pb2.CronJob) -> None:
        """Add or replace a CronJob. Raises FieldError for an invalid schedule or failure policy."""
        uid = message.metadata.uid
        stored = self._crons.get(uid)
        if stored is not None:
            since_s = stored.since_s
        elif message.status.HasField("last_schedule_time"):
            since_s = time_ns(message.status.last_schedule_time) // SECOND_NS
        else:
            since_s = now_ns // SECOND_NS
        try:
            cron = _Cron(message=message, since_s=since_s)
        except ScheduleError as error:
            raise FieldError("spec.schedule", str(error)) from error
        check_policy(message.spec.job_template.spec.pod_failure_policy)
        self._crons[uid] = cron
        self._cluster.changed.owners[uid] = None

    def remove(self, uid: str) -> list[str]:
        """Remove a CronJob; return the UIDs of its Jobs, which are to be deleted, too."""
        del self._crons[uid]
        self._timeline.cancel(ActionKind.LOOK, uid)
        return [job.message.metadata.uid for job in self._jobs.of(uid)]

    def sync(self, now_ns: int, uid: str) -> tuple[list[workloads_pb2.Job], list[str]]:
        """Return the Jobs to create now and the UIDs of those to delete; plan the next look."""
        cron = self._crons[uid]
        jobs = self._jobs.of(uid)
        made, deleted = [], _beyond_history_limit(cron.message.spec, jobs)
        spec, now_s = cron.message.spec, now_ns // SECOND_NS
        if spec.suspend:
            self._timeline.cancel(ActionKind.LOOK, uid)
            return [], deleted
        due_s = self._due_s(cron, now_s)
        running = [job.message.metadata.uid for job in jobs if job.finished_ns is None]
        if due_s is not None and not (spec.concurrency_policy == "Forbid" and running):
            if spec.concurrency_policy == "Replace":
                deleted += running
            cron.since_s = due_s
            made.append(_job_of(now_ns, cron.message, due_s))
        next_s = cron.schedule.after(max(now_s, cron.since_s))
        if next_s is not None:
            self._timeline.plan(next_s * SECOND_NS, ActionKind.LOOK, uid, idle=True)
        return made, deleted

    def _due_s(self, cron: _Cron, now_s: int) -> int | None:
        """Return the latest scheduled time that has no Job yet, None if none."""
        spec, since_s = cron.message.spec, cron.since_s
        if spec.HasField("starting_deadline_seconds"):
            since_s = max(since_s, now_s - spec.starting_deadline_seconds - 1)
        if since_s >= now_s:
            return None
        return cron.schedule.latest(since_s, now_s)


def _beyond_history_limit(spec: workloads_pb2.CronJobSpec, jobs: list[JobState]) -> list[str]:
    """Return the UIDs of the oldest finished Jobs, beyond those that the history limits keep."""
    kept = {"Complete": SUCCESSFUL_KEPT, "Failed": FAILED_KEPT}
    if spec.HasField("successful_jobs_history_limit"):
        kept["Complete"] = spec.successful_jobs_history_limit
    if spec.HasField("failed_jobs_history_limit"):
        kept["Failed"] = spec.failed_jobs_history_limit
    beyond = []
    for condition, limit in kept.items():
        ended = [job for job in jobs if job.finished_ns is not None and job.condition == condition]
        ended.sort(key=lambda job: (job.start_ns or 0, job.message.metadata.name))
        beyond += [job.message.metadata.uid for job in ended[: max(0, len(ended) - limit)]]
    return beyond


def _job_of(now_ns: int, cron: workloads_pb2.CronJob, due_s: int) -> workloads_pb2.Job:
    """Return the Job of a scheduled time, whose minute is in its name."""
    owner, template = ControllerRef("CronJob", cron.metadata), cron.spec.job_template
    made = workloads_pb2.Job()
    made.spec.CopyFrom(template.spec)
    meta = made.metadata
    meta.namespace, meta.name = owner.meta.namespace, f"{owner.meta.name}-{due_s // 60}"
    meta.uid = object_uid("Job", meta.namespace, meta.name, owner.meta.uid, due_s)
    meta.labels.update(template.metadata.labels)
    meta.annotations.update(template.metadata.annotations)
    meta.annotations[_SCHEDULED_AT] = timestamp(due_s * SECOND_NS).ToJsonString()
    set_time(meta.creation_timestamp, now_ns)
    owner.own(meta)
    return made
