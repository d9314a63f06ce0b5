"""Jobs."""

from __future__ import annotations

import pytest

from replay.world.api.pod_record import JOB_TRACKING
from reprieve.kube.v1beta1 import workloads_pb2
from tests.unit.world.builders import S, World, create, create_pod, delete, make_pod, update
from tests.unit.world.workloads.builders import end, make_cron_job, make_job, phases, place

INDEX = "batch.kubernetes.io/job-completion-index"


def waiting(world: World) -> list[str]:
    """Return the names of the pods that wait for a node."""
    return [pod.message.metadata.name for pod in world.cluster.pending.values()]


def run_one(world: World, now_ns: int, *, failed: bool = False) -> str:
    """Let the one pod that waits run and end in the same moment; return its name."""
    (name,) = waiting(world)
    place(world, now_ns)
    end(world, now_ns, name, failed=failed)
    return name


def failures(world: World) -> list[str]:
    """Return what was noted of Jobs that failed."""
    return [text for kind, text in world.journal.notes if kind == "job-failed"]


def test_a_job_makes_one_pod_and_is_over_when_it_succeeds() -> None:
    """Its pod stays to be looked at."""
    world = World()
    world.feed(0, create(make_job()))
    name = run_one(world, S)
    assert phases(world) == {name: "Succeeded"}
    pod = world.pod(name).message
    assert pod.metadata.labels["batch.kubernetes.io/job-name"] == "work"
    assert pod.metadata.owner_references[0].api_version == "batch/v1"


def test_parallelism_limits_running_pods_until_all_completions() -> None:
    """Never more than are still needed."""
    world = World()
    world.feed(0, create(make_job(completions=3, parallelism=2)))
    first, second = waiting(world)
    place(world, 0)
    end(world, S, first)
    (third,) = waiting(world)
    place(world, S)
    end(world, 2 * S, second)
    end(world, 3 * S, third)
    assert (waiting(world), len(world.names())) == ([], 3)


def test_without_completions_one_success_ends_the_job_and_the_others_run_on() -> None:
    """They are a work queue's."""
    world = World()
    world.feed(0, create(make_job(parallelism=3)))
    first, *others = waiting(world)
    place(world, 0)
    end(world, S, others[0], failed=True)
    end(world, 2 * S, first)
    assert waiting(world) == []
    world.run_until(100 * S)
    assert waiting(world) == []


def test_a_pod_that_fails_is_made_again_after_ten_seconds_then_twenty() -> None:
    """Until more have failed than the limit; then the Job has."""
    world = World()
    job = make_job()
    job.spec.backoff_limit = 2
    world.feed(0, create(job))
    at_s = 0
    for wait_s in (10, 20):
        run_one(world, at_s * S, failed=True)
        world.run_until((at_s + wait_s) * S - 1)
        assert waiting(world) == []
        at_s += wait_s
        world.run_until(at_s * S)
    run_one(world, at_s * S, failed=True)
    world.run_until(1000 * S)
    assert (waiting(world), len(world.names())) == ([], 3)
    assert failures(world) == ["Job default/work: BackoffLimitExceeded"]


def test_a_pod_that_is_deleted_counts_as_failed_and_is_replaced_after_the_wait() -> None:
    """Preempted, evicted or drained: pending as well as running."""
    world = World()
    world.feed(0, create(make_job()))
    world.feed(S, delete("Pod", waiting(world)[0]))
    assert waiting(world) == []
    world.run_until(11 * S)
    place(world, 11 * S)
    (name,) = world.names()
    world.feed(12 * S, delete("Pod", name))
    world.run_until(12 * S + 20 * S)
    assert len(waiting(world)) == 1


def policy(job: workloads_pb2.Job, action: str) -> None:
    """Let a Job answer disruptions with an action."""
    rule = job.spec.pod_failure_policy.rules.add(action=action)
    rule.on_pod_conditions.add(type="DisruptionTarget", status="True")


def test_a_disrupted_pod_may_be_left_out_of_the_count() -> None:
    """With a policy, a pod is replaced only once it has failed."""
    world = World()
    job = make_job()
    job.spec.backoff_limit = 0
    policy(job, "Ignore")
    world.feed(0, create(job))
    place(world, 0)
    (name,) = world.names()
    status = world.pod(name).message.status
    status.conditions.add(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    world.feed(S, delete("Pod", name))
    world.run_until(30 * S)
    assert waiting(world) == []
    world.run_until(41 * S)
    assert (len(waiting(world)), failures(world)) == (1, [])


def test_a_policy_may_fail_the_job_by_an_exit_code() -> None:
    """At the first such failure."""
    world = World()
    job = make_job()
    rule = job.spec.pod_failure_policy.rules.add(action="FailJob")
    rule.on_exit_codes.operator = "In"
    rule.on_exit_codes.values.append(1)
    world.feed(0, create(job))
    run_one(world, 0, failed=True)
    world.run_until(100 * S)
    assert (waiting(world), failures(world)) == ([], ["Job default/work: PodFailurePolicy"])


def test_a_job_that_runs_too_long_fails_and_its_pods_go() -> None:
    """ActiveDeadlineSeconds count from the Job's start."""
    world = World()
    job = make_job()
    job.spec.active_deadline_seconds = 60
    world.feed(0, create(job))
    place(world, 0)
    world.run_until(60 * S)
    assert list(phases(world).values()) == ["Terminating"]
    world.run_until(90 * S)
    assert (world.names(), failures(world)) == ([], ["Job default/work: DeadlineExceeded"])


def test_a_suspended_job_has_no_pods_and_what_it_deletes_is_not_a_failure() -> None:
    """It continues where it was."""
    world = World()
    world.feed(0, create(make_job()))
    place(world, 0)
    paused = make_job()
    paused.spec.suspend = True
    world.feed(S, update(paused))
    world.run_until(40 * S)
    assert world.names() == []
    world.feed(41 * S, update(make_job()))
    assert len(waiting(world)) == 1


def test_each_index_is_completed_once() -> None:
    """The lowest that is missing comes first, under the Job's name and its number."""
    world = World()
    job = make_job(completions=3, parallelism=2)
    job.spec.completion_mode = "Indexed"
    world.feed(0, create(job))
    assert [name.rsplit("-", 1)[0] for name in world.names()] == ["work-0", "work-1"]
    place(world, 0)
    zero, one = world.names()
    end(world, S, one)
    (two,) = waiting(world)
    assert world.pod(two).message.metadata.annotations[INDEX] == "2"
    end(world, 2 * S, zero, failed=True)
    world.run_until(12 * S)
    assert {name.rsplit("-", 1)[0] for name in waiting(world)} == {"work-2", "work-0"}


def test_an_index_may_fail_alone() -> None:
    """The others go on; at the end the Job has failed."""
    world = World()
    job = make_job(completions=2, parallelism=2)
    job.spec.completion_mode, job.spec.backoff_limit_per_index = "Indexed", 1
    world.feed(0, create(job))
    place(world, 0)
    zero, one = world.names()
    end(world, 0, zero, failed=True)
    world.run_until(10 * S)
    place(world, 10 * S)
    (again,) = [name for name, phase in phases(world).items() if phase == "Running" and name != one]
    end(world, 10 * S, again, failed=True)
    world.run_until(500 * S)
    assert (waiting(world), failures(world)) == ([], [])
    end(world, 501 * S, one)
    assert failures(world) == ["Job default/work: FailedIndexes"]


def test_a_recorded_job_continues_from_its_status() -> None:
    """What had succeeded before the recording counts; what runs is adopted."""
    world = World()
    job = make_job(completions=3, parallelism=2)
    job.status.succeeded = 2
    pod = make_pod("seen", owner="work", node="n", ready=True)
    pod.metadata.owner_references[0].kind = "Job"
    world.feed(0, create_pod(pod), create(job))
    assert world.names() == ["seen"]
    end(world, S, "seen")
    assert waiting(world) == []


def test_a_finished_job_is_deleted_after_its_time_to_live() -> None:
    """With its pods."""
    world = World()
    job = make_job()
    job.spec.ttl_seconds_after_finished = 30
    world.feed(0, create(job))
    run_one(world, 0)
    world.run_until(29 * S)
    assert len(world.names()) == 1
    world.run_until(30 * S)
    assert world.names() == []


@pytest.mark.parametrize("conditions", [["Complete"], ["Failed"]])
def test_a_job_that_had_finished_makes_nothing(conditions: list[str]) -> None:
    """By its recorded conditions."""
    world = World()
    job = make_job()
    for type_ in conditions:
        job.status.conditions.add(type=type_, status="True")
    world.feed(0, create(job))
    assert world.names() == []


def test_deleting_a_job_takes_its_pods() -> None:
    """Nobody makes them again."""
    world = World()
    world.feed(0, create(make_job()))
    world.feed(1, delete("Job", "work"))
    world.run_until(100 * S)
    assert world.names() == []


def test_a_failure_policy_that_cannot_be_read_is_refused_and_named() -> None:
    """Of a Job, and of what a CronJob would make."""
    world = World()
    job, cron = make_job(), make_cron_job()
    policy(job, "Explode")
    cron.spec.job_template.spec.CopyFrom(job.spec)
    world.feed(0, create(job), create(cron))
    assert world.names() == []
    assert [("'Explode' is not one of" in text) for text in world.refusals()] == [True]
    assert sum(world.journal.notes.values()) == 2


def test_a_recorded_status_of_absurd_indexes_is_passed_over() -> None:
    """Nothing is counted for ever."""
    job = make_job(completions=3)
    job.spec.completion_mode = "Indexed"
    job.status.completed_indexes = "0-1,x,5-99999999999999"
    world = World()
    world.feed(0, create(job))
    assert [name.rsplit("-", 1)[0] for name in world.names()] == ["work-2"]


def test_a_pod_counts_for_its_job_after_it_was_collected() -> None:
    """And nothing is kept of it but that."""
    world = World()
    world.feed(0, create(make_job(completions=2)))
    first = world.pod(run_one(world, S))
    world.lifecycle.delete(2 * S, first, 0, "collected")
    world.settle(2 * S)
    second = run_one(world, 3 * S)
    assert (waiting(world), world.names()) == ([], [second])
    assert list(world.workloads._jobs._jobs["uid-work"].counted) == [world.pod(second).uid]


@pytest.mark.parametrize(("finalizers", "made"), [([], 1), ([JOB_TRACKING], 0)])
def test_a_pod_that_terminated_before_the_trace_counts_by_its_finalizer(
    finalizers: list[str], made: int
) -> None:
    """A Job with one retry of which one has failed: the second failure ends it."""
    world = World()
    job = make_job()
    job.spec.backoff_limit = 1
    job.status.failed = 1
    pod = make_pod("work-1", node="n", ready=True)
    pod.metadata.owner_references.add(kind="Job", name="work", uid="uid-work", controller=True)
    pod.metadata.finalizers.extend(finalizers)
    pod.metadata.deletion_timestamp.FromNanoseconds(30 * S)
    pod.metadata.deletion_grace_period_seconds = 30
    world.feed(0, create_pod(pod), create(job))
    assert len(waiting(world)) == made
