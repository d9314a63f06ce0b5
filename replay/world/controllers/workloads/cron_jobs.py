"""CronJobs: Jobs created by a schedule, and the schedules.

A schedule does not keep a replay running: a replay without a given end ends when all else has.

A schedule has five fields: minute, hour, day of the month, month, day of the week (0 to 6, 0 is
Sunday; names of months and days are allowed), with "*", "?", lists, ranges and steps; or it is a
word such as "@hourly", or "@every 90m". Where both day fields are restricted, a day that matches
either of them matches. A local time that a clock change skips does not match; one that occurs twice
matches twice.

Source: kubernetes v1.34 pkg/controller/cronjob/cronjob_controllerv2.go, syncCronJob,
cleanupFinishedJobs, getJobName; utils.go, nextScheduleTime, getJobFromTemplate2;
github.com/robfig/cron/v3 parser.go (ParseStandard), spec.go (Next), as kubernetes v1.34's CronJob
controller uses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from replay.hashing import object_uid
from replay.world.controllers.workloads.job_state import JobState, check_policy
from replay.world.controllers.workloads.jobs import Jobs
from replay.world.controllers.workloads.pod_control import ControllerRef
from replay.world.state import WorldState
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


class CronJobs:
    """Decides which Jobs to create, and which finished ones to delete."""

    _crons: dict[str, _Cron]

    def __init__(self, state: WorldState, jobs: Jobs) -> None:
        self._cluster = state.cluster
        self._timeline = state.timeline
        self._jobs = jobs
        self._crons = {}

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
        """Return the latest scheduled time that has no Job yet, None for none."""
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


_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTH_NAMES = "jan feb mar apr may jun jul aug sep oct nov dec"
_DAY_NAMES = "sun mon tue wed thu fri sat"
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES.split(), 1)}
_DAYS = {name: number for number, name in enumerate(_DAY_NAMES.split())}
_EVERY = re.compile(r"(\d+(?:\.\d+)?)(h|m|s)")
_SECONDS = {"h": 3600, "m": 60, "s": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS_AHEAD = 5
_DAY_S = 86_400


class ScheduleError(ValueError):
    """An invalid schedule; the text is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A parsed schedule; with `every_s` above 0, that interval from the last time and no fields."""

    minutes: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    either_day: bool = False
    every_s: int = 0
    zone: ZoneInfo | None = None

    def after(self, at_s: int) -> int | None:
        """Return the first time after `at_s`, s since the Unix epoch; None within five years."""
        if self.every_s:
            return at_s + self.every_s
        first = self._local(at_s).date()
        for ahead in range(366 * _YEARS_AHEAD):
            day = first + timedelta(days=ahead)
            if self._is_day(day):
                found = min((each for each in self._times(day) if each > at_s), default=None)
                if found is not None:
                    return found
        return None

    def latest(self, after_s: int, until_s: int) -> int | None:
        """Return the last time after `after_s` and up to `until_s`, None for none."""
        if self.every_s:
            number = (until_s - after_s) // self.every_s
            return after_s + number * self.every_s if number > 0 else None
        last, first = self._local(until_s).date(), self._local(after_s).date()
        for back in range((last - first).days + 1):
            day = last - timedelta(days=back)
            if self._is_day(day):
                times = (each for each in self._times(day) if after_s < each <= until_s)
                found = max(times, default=None)
                if found is not None:
                    return found
        return None

    def _local(self, at_s: int) -> datetime:
        return (_EPOCH + timedelta(seconds=at_s)).astimezone(self.zone or UTC)

    def _is_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        met = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return any(met) if self.either_day else all(met)

    def _times(self, day: date) -> Iterator[int]:
        zone = self.zone or UTC
        for hour in self.hours:
            for minute in self.minutes:
                for fold in (0, 1):
                    local = datetime(
                        day.year, day.month, day.day, hour, minute, tzinfo=zone, fold=fold
                    )
                    there = local.astimezone(UTC)
                    back = there.astimezone(zone)
                    if (back.hour, back.minute, back.fold) == (hour, minute, fold):
                        yield (there - _EPOCH) // timedelta(seconds=1)


def parse(text: str, zone: str = "") -> Schedule:
    """Parse a schedule; `zone` is an IANA name, "" for UTC. Raises ScheduleError."""
    text = _WORDS.get(text.strip(), text.strip())
    where = _zone(zone)
    if text.startswith("@every "):
        return Schedule(every_s=_every(text), zone=where)
    fields = text.split()
    if len(fields) != 5:
        shape = "a schedule has five, or is a word such as @daily"
        raise ScheduleError(f"{text!r} has {len(fields)} fields: {shape}")
    minutes, hours = _numbers(fields[0], 0, 59), _numbers(fields[1], 0, 23)
    return Schedule(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=_numbers(fields[2], 1, 31),
        months=_numbers(fields[3], 1, 12, _MONTHS),
        weekdays=_numbers(fields[4], 0, 6, _DAYS),
        either_day=fields[2][0] not in "*?" and fields[4][0] not in "*?",
        zone=where,
    )


def _zone(name: str) -> ZoneInfo | None:
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise ScheduleError(f"{name!r} is not a time zone of this machine's database") from error


def _every(text: str) -> int:
    length = text.removeprefix("@every ").strip()
    parts = _EVERY.findall(length)
    if not parts or "".join(map("".join, parts)) != length:
        raise ScheduleError(f"{length!r} is not a duration; write @every 1h30m")
    return max(1, int(sum(float(number) * _SECONDS[unit] for number, unit in parts)))


def _numbers(
    field: str, low: int, high: int, names: dict[str, int] | None = None
) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        found.update(_range(part, low, high, names or {}))
    return frozenset(found)


def _range(part: str, low: int, high: int, names: dict[str, int]) -> range:
    body, slash, step_text = part.partition("/")
    step = _number(step_text, {}) if slash else 1
    if body in {"*", "?"}:
        first, last = low, high
    else:
        first_text, dash, last_text = body.partition("-")
        first = _number(first_text, names)
        last = _number(last_text, names) if dash else (high if slash else first)
    if not (low <= first <= last <= high) or step < 1:
        raise ScheduleError(f"{part!r} is not within {low} to {high}")
    return range(first, last + 1, step)


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not (text.isascii() and text.isdigit()) or len(text) > 4:
        raise ScheduleError(f"{text!r} is not a number of a schedule")
    return int(text)
