"""CronJobs: Jobs by the clock.

What a schedule brings is no reason for a replay to go on: without an end of its own a replay ends
when everything else has.

Source: kubernetes v1.34 pkg/controller/cronjob/cronjob_controllerv2.go, syncCronJob,
cleanupFinishedJobs, getJobName; utils.go, nextScheduleTime, getJobFromTemplate2.
"""

from __future__ import annotations

from dataclasses import dataclass

from replay.identity import object_uid
from replay.world.cluster import Cluster
from replay.world.models import SECOND_NS
from replay.world.timeline import Kind, Timeline
from replay.world.workloads.cron_schedule import Schedule, ScheduleError, parse
from replay.world.workloads.job_state import JobState, check_policy
from replay.world.workloads.jobs import Jobs
from replay.world.workloads.making import Owner
from reprieve.kube.v1beta1 import workloads_pb2
from services.rpc.errors import FieldError
from services.rpc.kube_fields import set_time, time_ns, timestamp

SUCCESSFUL_KEPT, FAILED_KEPT = 3, 1
_SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"


@dataclass(slots=True, kw_only=True)
class _Cron:
    """A CronJob; `since_s` is when it last started a Job, or came."""

    message: workloads_pb2.CronJob
    schedule: Schedule
    since_s: int


class CronJobs:
    """Says which Jobs are to be made, and which have been kept for long enough."""

    def __init__(self, cluster: Cluster, timeline: Timeline, jobs: Jobs) -> None:
        self._cluster = cluster
        self._timeline = timeline
        self._jobs = jobs
        self._crons: dict[str, _Cron] = {}

    def __len__(self) -> int:
        return len(self._crons)

    def put(self, now_ns: int, message: workloads_pb2.CronJob) -> None:
        """Add or replace a CronJob. Raises FieldError for a schedule that cannot be read."""
        uid, spec = message.metadata.uid, message.spec
        try:
            schedule = parse(spec.schedule, spec.time_zone)
        except ScheduleError as error:
            raise FieldError("spec.schedule", str(error)) from error
        check_policy(spec.job_template.spec.pod_failure_policy)
        known = self._crons.get(uid)
        if known is None:
            since_ns = now_ns
            if message.status.HasField("last_schedule_time"):
                since_ns = time_ns(message.status.last_schedule_time)
            since_s = since_ns // SECOND_NS
            self._crons[uid] = _Cron(message=message, schedule=schedule, since_s=since_s)
        else:
            known.message, known.schedule = message, schedule
        self._cluster.changed.owners[uid] = None

    def remove(self, uid: str) -> list[str]:
        """Delete a CronJob; return the UIDs of its Jobs, which go with it."""
        del self._crons[uid]
        self._timeline.cancel(Kind.LOOK, uid)
        return [job.message.metadata.uid for job in self._jobs.of(uid)]

    def sync(self, now_ns: int, uid: str) -> tuple[list[workloads_pb2.Job], list[str]]:
        """Return the Jobs to make now and the UIDs of those to delete, and plan the next look."""
        cron = self._crons[uid]
        jobs = self._jobs.of(uid)
        made, gone = [], _outlived(cron.message.spec, jobs)
        spec, now_s = cron.message.spec, now_ns // SECOND_NS
        if spec.suspend:
            self._timeline.cancel(Kind.LOOK, uid)
            return [], gone
        due_s = self._due_s(cron, now_s)
        running = [job.message.metadata.uid for job in jobs if job.finished_ns is None]
        if due_s is not None and not (spec.concurrency_policy == "Forbid" and running):
            if spec.concurrency_policy == "Replace":
                gone += running
            cron.since_s = due_s
            made.append(_job_of(now_ns, cron.message, due_s))
        next_s = cron.schedule.after(max(now_s, cron.since_s))
        if next_s is not None:
            self._timeline.plan(next_s * SECOND_NS, Kind.LOOK, uid, idle=True)
        return made, gone

    def _due_s(self, cron: _Cron, now_s: int) -> int | None:
        """Return the last start that has come and was not made, None where there is none."""
        spec, since_s = cron.message.spec, cron.since_s
        if spec.HasField("starting_deadline_seconds"):
            since_s = max(since_s, now_s - spec.starting_deadline_seconds - 1)
        if since_s >= now_s:
            return None
        return cron.schedule.latest(since_s, now_s)


def _outlived(spec: workloads_pb2.CronJobSpec, jobs: list[JobState]) -> list[str]:
    """Return the UIDs of the oldest finished Jobs, but for as many as are kept."""
    kept = {"Complete": SUCCESSFUL_KEPT, "Failed": FAILED_KEPT}
    if spec.HasField("successful_jobs_history_limit"):
        kept["Complete"] = spec.successful_jobs_history_limit
    if spec.HasField("failed_jobs_history_limit"):
        kept["Failed"] = spec.failed_jobs_history_limit
    gone = []
    for verdict, limit in kept.items():
        ended = [job for job in jobs if job.finished_ns is not None and job.verdict == verdict]
        ended.sort(key=lambda job: (job.start_ns or 0, job.message.metadata.name))
        gone += [job.message.metadata.uid for job in ended[: max(0, len(ended) - limit)]]
    return gone


def _job_of(now_ns: int, cron: workloads_pb2.CronJob, due_s: int) -> workloads_pb2.Job:
    """Return the Job of one start, whose name tells the minute."""
    owner, template = Owner("CronJob", cron.metadata), cron.spec.job_template
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
