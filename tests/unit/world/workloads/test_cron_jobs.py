"""CronJobs and their schedules."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from replay.world.controllers.workloads.cron_schedule import ScheduleError, parse
from tests.unit.world.builders import S, World, create, delete, update
from tests.unit.world.workloads.builders import end, make_cron_job, place

MINUTE = 60 * S


def jobs(world: World) -> list[str]:
    """Return the Jobs of the pods that there are, in the order of their coming."""
    named = [pod.message.metadata.labels["job-name"] for pod in world.cluster.pods.values()]
    return list(dict.fromkeys(named))


def finish(world: World, now_ns: int, *, failed: bool = False) -> None:
    """Let every pod that waits run and end."""
    names = [pod.message.metadata.name for pod in world.cluster.pending.values()]
    place(world, now_ns)
    for name in names:
        end(world, now_ns, name, failed=failed)


def seconds(text: str) -> int:
    """Return a moment in UTC as s since the Unix epoch."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("text", "after", "then"),
    [
        ("*/15 * * * *", "2026-01-01T00:15:00", "2026-01-01T00:30:00"),
        ("0 9-17/4 * * mon-fri", "2026-01-02T17:00:00", "2026-01-05T09:00:00"),
        ("30 2 29 feb *", "2026-01-01T00:00:00", "2028-02-29T02:30:00"),
        ("0 0 13 * 5", "2026-01-01T00:00:00", "2026-01-02T00:00:00"),
        ("0 0 13 * *", "2026-01-14T00:00:00", "2026-02-13T00:00:00"),
        ("5/20 * * * *", "2026-01-01T00:25:00", "2026-01-01T00:45:00"),
        ("@daily", "2026-01-01T00:00:00", "2026-01-02T00:00:00"),
        ("@every 1h30m", "2026-01-01T00:00:00", "2026-01-01T01:30:00"),
    ],
)
def test_the_next_time_of_a_schedule_is_crons(text: str, after: str, then: str) -> None:
    """Either day field counts where both are bounded."""
    schedule = parse(text)
    assert schedule.after(seconds(after)) == seconds(then)
    assert schedule.latest(seconds(after), seconds(then)) == seconds(then)
    assert schedule.latest(seconds(after), seconds(then) - 1) is None


def test_a_schedule_in_a_time_zone_follows_its_clocks() -> None:
    """02:30 is left out on one day of the year, and comes twice on another."""
    schedule = parse("30 2 * * *", "Europe/Berlin")
    spring = schedule.after(seconds("2026-03-28T02:00:00"))
    assert spring == seconds("2026-03-30T00:30:00")
    autumn = schedule.after(seconds("2026-10-24T12:00:00"))
    assert autumn == seconds("2026-10-25T00:30:00")
    assert schedule.after(autumn) == seconds("2026-10-25T01:30:00")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* * 0 * *",
        "a * * * *",
        "*/0 * * * *",
        "5-1 * * * *",
        "@every x",
    ],
)
def test_an_invalid_schedule_is_refused(text: str) -> None:
    """With a text for users."""
    with pytest.raises(ScheduleError):
        parse(text)


def test_a_cron_job_that_cannot_be_read_is_refused_and_named() -> None:
    """Nothing is planned."""
    world = World()
    world.feed(0, create(make_cron_job(schedule="often")))
    assert "spec.schedule" in world.refusals()[0]
    assert world.timeline.next_ns() is None


def test_a_job_starts_with_every_minute_and_is_named_after_it() -> None:
    """Not before the first, and a replay does not go on for its sake."""
    world = World()
    world.feed(0, create(make_cron_job()))
    assert (world.names(), world.timeline.is_idle) == ([], True)
    world.run_until(2 * MINUTE)
    assert jobs(world) == ["tick-1", "tick-2"]


def test_a_forbidding_cron_job_waits_for_the_one_before() -> None:
    """A start that was missed comes when it has ended."""
    world = World()
    message = make_cron_job()
    message.spec.concurrency_policy = "Forbid"
    world.feed(0, create(message))
    world.run_until(3 * MINUTE)
    assert jobs(world) == ["tick-1"]
    finish(world, 3 * MINUTE + S)
    assert jobs(world) == ["tick-1", "tick-3"]


def test_a_start_that_was_missed_for_too_long_does_not_come() -> None:
    """StartingDeadlineSeconds."""
    world = World()
    message = make_cron_job()
    message.spec.concurrency_policy, message.spec.starting_deadline_seconds = "Forbid", 10
    world.feed(0, create(message))
    world.run_until(MINUTE)
    finish(world, MINUTE + 30 * S)
    assert jobs(world) == ["tick-1"]
    world.run_until(2 * MINUTE)
    finish(world, 3 * MINUTE + 20 * S)
    assert jobs(world)[:2] == ["tick-1", "tick-2"]
    assert "tick-3" not in jobs(world)


def test_a_cron_job_with_replace_deletes_its_running_job() -> None:
    """The new Job begins at once."""
    world = World()
    message = make_cron_job()
    message.spec.concurrency_policy = "Replace"
    world.feed(0, create(message))
    world.run_until(2 * MINUTE)
    assert jobs(world) == ["tick-2"]


def test_a_suspended_cron_job_starts_nothing_until_it_is_resumed() -> None:
    """Then the last start that was missed comes, and no more of them."""
    world = World()
    paused = make_cron_job()
    paused.spec.suspend = True
    world.feed(0, create(paused))
    world.run_until(5 * MINUTE)
    world.feed(5 * MINUTE + S, update(make_cron_job()))
    assert jobs(world) == ["tick-5"]


def test_finished_jobs_are_kept_up_to_a_limit() -> None:
    """Three that succeeded and one that failed, the latest of each."""
    world = World()
    world.feed(0, create(make_cron_job()))
    for minute in range(1, 9):
        world.run_until(minute * MINUTE)
        finish(world, minute * MINUTE + S, failed=minute in {2, 3})
        for pod in list(world.cluster.pending.values()):
            world.lifecycle.delete(minute * MINUTE + S, pod, None, "deleted")
    kept = jobs(world)
    assert kept[-3:] == ["tick-6", "tick-7", "tick-8"]
    assert "tick-1" not in kept


def test_deleting_a_cron_job_takes_its_jobs_and_their_pods() -> None:
    """Nothing more starts."""
    world = World()
    world.feed(0, create(make_cron_job()))
    world.run_until(MINUTE)
    world.feed(MINUTE + S, delete("CronJob", "tick"))
    world.run_until(10 * MINUTE)
    assert world.names() == []
