"""Containers that exceed a memory limit: when they are killed, what goes on, and what restarts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from replay.results.kubectl.rows import pod_row
from replay.world.api.conditions import OOM_KILLED
from replay.world.kubelet.memory_kills import ONE_PROCESS
from replay.world.kubelet.memory_limits import KubeletMemory
from replay.world.models import Models, OomKill
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import S, World, create, create_pod, make_node, make_pod, update
from tests.unit.world.workloads.builders import make_job, phases, place

MIB = 1 << 20
MINUTE = 60 * S


def pod(
    name: str = "p",
    *,
    policy: str = "",
    limits: Mapping[str, str] | None = None,
    sidecars: Mapping[str, str] | None = None,
    inits: Mapping[str, str] | None = None,
    **usage: str,
) -> pod_pb2.Pod:
    """Return a pod on node n; limits of memory by container ("": none), usage by annotation.

    `usage` is by container, with "pod" for what is stated of the pod.
    """
    made = make_pod(name, node="n", priority=None)
    del made.spec.containers[:]
    made.spec.restart_policy = policy
    for container, limit in (limits or {"c": "512Mi"}).items():
        _limit(made.spec.containers.add(name=container), limit)
    for container, limit in (inits or {}).items():
        _limit(made.spec.init_containers.add(name=container), limit)
    for container, limit in (sidecars or {}).items():
        _limit(made.spec.init_containers.add(name=container, restart_policy="Always"), limit)
    for container, text in usage.items():
        suffix = "" if container == "pod" else f".{container}"
        made.metadata.annotations[f"reprieve/usage-memory{suffix}"] = text
    return made


def _limit(container: pod_pb2.Container, limit: str) -> None:
    container.resources.requests["memory"] = "64Mi"
    if limit:
        container.resources.limits["memory"] = limit


def world(*pods: pod_pb2.Pod, models: Models | None = None, node: str = "64Gi") -> World:
    """Return a world with one node and the pods on it."""
    made = World(models=models or Models())
    made.feed(0, create(make_node(memory=node)), *map(create_pod, pods))
    return made


def kills(played: World) -> list[tuple[float, str, str]]:
    """Return the kills as (seconds, container, whose limit)."""
    return [
        (round(entry.time_ns / S, 3), killed.container, killed.limit_of)
        for entry in played.entries
        if (killed := entry.observed.oom_killed).container
    ]


def shown(played: World, at_s: float, name: str = "p") -> tuple[str, str, str]:
    """Return kubectl's READY, STATUS and RESTARTS of a pod at a time."""
    played.run_until(round(at_s * S))
    row = pod_row(played.pod(name).message, round(at_s * S))
    return row[1], row[2], row[3]


def test_a_leak_is_killed_when_its_line_crosses_the_limit_and_restarts_with_backoff() -> None:
    """312 MiB are left at 50 MiB a minute: 374.4 s, and again from each restart.

    The waits before the restarts are 0, 10, 20 and 40 s: kills at 374.4, 748.8, 1133.2, 1527.6 and
    1942.0 s, each one byte of growth (about a microsecond) later.
    """
    played = world(pod(c="200Mi+50Mi/m"))
    assert shown(played, 374.4) == ("1/1", "Running", "0")
    assert shown(played, 374.5) == ("1/1", "Running", "1 (0s ago)")
    assert shown(played, 750) == ("0/1", "CrashLoopBackOff", "1 (1s ago)")
    assert shown(played, 759) == ("1/1", "Running", "2 (10s ago)")
    played.run_until(2000 * S)
    assert kills(played) == [
        (at_s, "c", "container") for at_s in (374.4, 748.8, 1133.2, 1527.6, 1942.0)
    ]
    last = played.pod("p").message.status.container_statuses[0].last_state.terminated
    assert (last.exit_code, last.reason) == (137, OOM_KILLED)
    assert last.finished_at.ToNanoseconds() - last.started_at.ToNanoseconds() >= 374 * S


def test_a_container_without_a_limit_is_not_killed() -> None:
    """Nor one that stays at its limit: only more than it is too much."""
    played = world(pod("free", limits={"c": ""}, c="+50Mi/m"), pod("full", c="512Mi"))
    played.run_until(2000 * S)
    assert kills(played) == []


def test_only_the_container_that_exceeds_its_limit_restarts() -> None:
    """The other one continues, and the pod is Running but not ready while one waits."""
    played = world(pod(limits={"web": "1Gi", "log": "128Mi"}, web="200Mi", log="+64Mi/m"))
    played.run_until(119 * S)
    assert kills(played) == []
    played.run_until(260 * S)
    assert kills(played) == [(120.0, "log", "container"), (240.0, "log", "container")]
    web, log = played.pod("p").message.status.container_statuses
    assert (web.restart_count, web.state.running.started_at.ToNanoseconds()) == (0, 0)
    assert log.restart_count == 2
    assert shown(played, 371) == ("1/2", "CrashLoopBackOff", "2 (0s ago)")
    assert phases(played) == {"p": "Running"}


def test_a_pods_usage_is_that_of_its_only_container_without_its_own() -> None:
    """Stated for the pod: of two containers one has a value of its own."""
    played = world(pod(limits={"web": "512Mi", "log": "128Mi"}, pod="+64Mi/m", log="1Mi"))
    played.run_until(500 * S)
    assert kills(played) == [(480.0, "web", "container")]


def test_a_sum_over_containers_kills_no_container_at_its_own_limit_and_is_noted() -> None:
    """The limit of the pod can be checked: where each container has one, that is their sum.

    640 MiB at 64 MiB a minute: 600 s. Requests are equal, so that each is taken to use half; of
    equals the last is killed.
    """
    played = world(
        pod(limits={"web": "512Mi", "log": "128Mi"}, pod="+64Mi/m"),
        pod("open", limits={"web": "512Mi", "log": ""}, pod="+64Mi/m"),
        pod("idle", limits={"web": "512Mi", "log": "128Mi"}, pod="0"),
    )
    played.run_until(650 * S)
    assert kills(played) == [(600.0, "log", "pod")]
    (note,) = [text for kind, text in played.journal.notes if kind == "usage"]
    assert "known as a sum only" in note
    assert played.journal.notes["usage", note] == 2


def test_a_limit_of_the_pod_kills_the_container_with_most_points() -> None:
    """The pod has 1 GiB, the containers no limits: at 150 s they use 750 and 274 MiB."""
    made = pod(limits={"web": "", "log": ""}, web="+300Mi/m", log="124Mi+60Mi/m")
    made.spec.resources.limits["memory"] = "1Gi"
    played = world(made)
    played.run_until(200 * S)
    assert kills(played) == [(150.0, "web", "pod")]


@pytest.mark.parametrize(("policy", "phase"), [("Never", "Failed"), ("OnFailure", "Running")])
def test_the_restart_policy_decides_the_fate_of_the_last_container(policy: str, phase: str) -> None:
    """A pod that is not restarted fails, with exit code 137 and the reason OOMKilled."""
    played = world(pod(policy=policy, c="+512Mi/m"))
    played.run_until(61 * S)
    status = played.pod("p").message.status
    assert status.phase == phase
    if phase == "Failed":
        terminated = status.container_statuses[0].state.terminated
        assert (terminated.exit_code, terminated.reason) == (137, OOM_KILLED)
        assert shown(played, 61) == ("0/1", OOM_KILLED, "0")


def test_a_pod_with_a_killed_container_fails_when_the_others_have_succeeded() -> None:
    """RestartPolicy Never: one container dies at 60 s, the other ends by itself at 100 s."""
    made = pod(policy="Never", limits={"web": "", "log": "64Mi"}, log="+64Mi/m")
    made.metadata.annotations["reprieve/service-time"] = "100s"
    played = world(made)
    played.run_until(99 * S)
    assert phases(played) == {"p": "Running"}
    played.run_until(100 * S)
    web, log = played.pod("p").message.status.container_statuses
    assert phases(played) == {"p": "Failed"}
    assert (web.state.terminated.exit_code, log.state.terminated.exit_code) == (0, 137)


def test_a_restarted_container_needs_its_whole_service_time_again() -> None:
    """Killed at 60 s of its 100 s; it would need 64 MiB more than its limit for each whole run."""
    made = pod(policy="OnFailure", limits={"c": "64Mi"}, c="+64Mi/m")
    made.metadata.annotations["reprieve/service-time"] = "50s"
    done = pod("late", policy="OnFailure", limits={"c": "64Mi"}, c="+64Mi/m")
    done.metadata.annotations["reprieve/service-time"] = "100s"
    played = world(made, done)
    played.run_until(300 * S)
    assert phases(played) == {"p": "Succeeded", "late": "Running"}
    assert len(kills(played)) == 4


def test_a_sidecar_restarts_whatever_the_pods_policy() -> None:
    """The pod's own container continues, and the pod ends with it."""
    made = pod(policy="Never", sidecars={"mesh": "64Mi"}, mesh="+64Mi/m", c="1Mi")
    made.metadata.annotations["reprieve/service-time"] = "200s"
    played = world(made)
    assert shown(played, 59) == ("2/2", "Running", "0")
    assert shown(played, 61) == ("2/2", "Running", "1 (0s ago)")
    assert shown(played, 121)[0] == "1/2"
    assert kills(played) == [(60.0, "mesh", "container"), (120.0, "mesh", "container")]
    played.run_until(200 * S)
    assert phases(played) == {"p": "Succeeded"}


@pytest.mark.parametrize("policy", ["Always", "Never"])
def test_an_init_container_that_needs_too_much_keeps_its_pod_from_running(policy: str) -> None:
    """It is killed at each start; a pod that is not restarted fails."""
    played = world(pod(policy=policy, inits={"migrate": "64Mi"}, migrate="100Mi"))
    if policy == "Never":
        assert phases(played) == {"p": "Pending"}
        assert shown(played, 0)[1] == "Init:OOMKilled"
        assert phases(played) == {"p": "Failed"}
        return
    assert shown(played, 1) == ("0/1", "Init:CrashLoopBackOff", "1 (1s ago)")
    played.run_until(31 * S)
    assert kills(played) == [(at_s, "migrate", "container") for at_s in (0.0, 0.0, 10.0, 30.0)]
    assert played.pod("p").running_ns is None
    assert played.timeline.is_idle


def test_a_job_fails_after_too_many_kills() -> None:
    """RestartPolicy OnFailure: restarts in place count, and a run continues for them."""
    played = World()
    job = make_job()
    job.spec.backoff_limit = 2
    template = job.spec.template
    template.spec.restart_policy = "OnFailure"
    template.spec.containers[0].resources.limits["memory"] = "64Mi"
    template.metadata.annotations["reprieve/usage-memory"] = "+64Mi/m"
    played.feed(0, create(make_node()), create(job))
    place(played, 0)
    played.run_until(MINUTE)
    assert not played.timeline.is_idle
    played.run_until(10 * MINUTE)
    assert [at_s for at_s, _, _ in kills(played)] == [60.0, 120.0]
    assert ("job-failed", "Job default/work: BackoffLimitExceeded") in played.journal.notes


def test_a_killed_container_does_not_keep_a_run_going() -> None:
    """The first kill is waited for; what comes after it would never end."""
    played = world(pod(c="+512Mi/m"))
    assert not played.timeline.is_idle
    played.run_until(61 * S)
    assert played.timeline.is_idle
    assert played.pressure.memory.repeats


def test_usage_that_was_recorded_with_its_restarts_kills_nothing() -> None:
    """A container that was killed while it was recorded leaves a sawtooth below its limit."""
    played = World()
    profile = trace_pb2.UsageProfile(id=1)
    for number in range(20):
        profile.segments.add(
            offset_duration_ns=number * 30 * S, memory_bytes=(512 if number % 4 == 3 else 100) * MIB
        )
    recorded = create_pod(pod(), usage_id=1)
    played.feed(0, create(make_node()), trace_pb2.Record(usage=profile), recorded)
    played.run_until(1000 * S)
    assert kills(played) == []


def test_recorded_usage_by_container_is_checked_by_container() -> None:
    """A lower limit than that of the recording kills, and the profile begins anew."""
    profile = trace_pb2.UsageProfile(id=1)
    for offset_s, web, log in ((0, 100, 10), (100, 300, 10)):
        segment = profile.segments.add(
            offset_duration_ns=offset_s * S, memory_bytes=(web + log) * MIB
        )
        segment.containers.add(name="web", memory_bytes=web * MIB)
        segment.containers.add(name="log", memory_bytes=log * MIB)
    played = World()
    made = pod(limits={"web": "256Mi", "log": "64Mi"})
    records = create(make_node()), trace_pb2.Record(usage=profile), create_pod(made, usage_id=1)
    played.feed(0, *records)
    played.run_until(250 * S)
    assert kills(played) == [(100.0, "web", "container"), (200.0, "web", "container")]


def test_one_process_may_be_killed_in_place_of_the_container() -> None:
    """The container continues, its usage begins anew, and nothing is restarted."""
    played = world(pod(c="+512Mi/m"), models=Models(oom_kill=OomKill.PROCESS))
    assert shown(played, 150) == ("1/1", "Running", "0")
    assert [at_s for at_s, _, _ in kills(played)] == [60.0, 120.0]
    assert all(
        entry.observed.oom_killed.container_survives
        for entry in played.entries
        if entry.observed.HasField("oom_killed")
    )


@pytest.mark.parametrize(
    ("mode", "restarts"), [(OomKill.KUBELET, "0"), (OomKill.CONTAINER, "1"), (OomKill.PROCESS, "0")]
)
def test_the_kubelets_setting_counts_unless_a_model_overrides_it(
    mode: OomKill, restarts: str
) -> None:
    """With singleProcessOOMKill one process is killed at 60 s; a note says what is assumed."""
    kubelet = KubeletMemory(kills_process=True)
    played = World(models=Models(oom_kill=mode), kubelet=kubelet)
    played.feed(0, create(make_node()), create_pod(pod(c="+512Mi/m")))
    assert shown(played, 70)[2].split()[0] == restarts
    assert (("usage", ONE_PROCESS) in played.journal.notes) is (mode is OomKill.KUBELET)


def test_a_restarted_container_becomes_ready_after_the_ready_delay() -> None:
    """Killed and restarted at 60 s, ready 20 s later; the other container is ready throughout."""
    played = world(
        pod(limits={"web": "1Gi", "log": "64Mi"}, web="1Mi", log="+64Mi/m"),
        models=Models(ready_delay_ns=20 * S),
    )
    assert shown(played, 19)[0] == "0/2"
    assert shown(played, 59)[0] == "2/2"
    assert shown(played, 79)[0] == "1/2"
    assert not played.pod("p").is_ready
    assert shown(played, 81)[0] == "2/2"
    assert played.pod("p").is_ready


def test_limits_may_be_switched_off() -> None:
    """Then a container grows past its limit."""
    played = world(pod(c="+512Mi/m"), models=Models(oom_kill=OomKill.OFF))
    played.run_until(300 * S)
    assert kills(played) == []


def reserved_node() -> node_pb2.Node:
    """Return a node of 16 GiB with 2 GiB reserved: kubepods has 14 GiB."""
    node = make_node(memory="16Gi")
    node.status.allocatable["memory"] = str((14 << 30) - (100 << 20))
    return node


def test_a_fast_leak_is_killed_at_the_limit_of_kubepods() -> None:
    """Allocatable is 14 GiB less the threshold of 100 MiB, which the limit does not subtract.

    2 GiB by the one, and the other reaches 12 GiB at 10 GiB a minute: 72 s. It has most points.
    """
    played = World()
    steady = pod("steady", limits={"c": ""}, c="2Gi")
    leak = pod("leak", limits={"c": ""}, c="+10Gi/m")
    played.feed(0, create(reserved_node()), create_pod(steady), create_pod(leak))
    played.run_until(73 * S)
    assert kills(played) == [(72.0, "c", "kubepods")]
    (killed,) = [
        entry.observed for entry in played.entries if entry.observed.HasField("oom_killed")
    ]
    assert (killed.object.name, killed.oom_killed.limit_bytes) == ("leak", 14 << 30)
    assert killed.oom_killed.usage_bytes == (12 << 30) + 1


def test_the_kernel_spares_a_guaranteed_pod_that_uses_more() -> None:
    """Guaranteed 12 GiB at -997, BestEffort at 1000: the small one dies at 30 s, 4 GiB of 16."""
    played = World()
    guaranteed = pod("bank", limits={"c": "13Gi"}, c="12Gi")
    for amounts in (
        guaranteed.spec.containers[0].resources.requests,
        guaranteed.spec.containers[0].resources.limits,
    ):
        amounts.update({"cpu": "1", "memory": "13Gi"})
    leak = pod("leak", limits={"c": ""}, c="+8Gi/m")
    leak.spec.containers[0].resources.Clear()
    played.feed(0, create(make_node(memory="16Gi")), create_pod(guaranteed), create_pod(leak))
    played.run_until(31 * S)
    observed = [entry.observed for entry in played.entries if entry.observed.HasField("oom_killed")]
    assert [entry.object.name for entry in observed] == ["leak"]
    assert (observed[0].oom_killed.limit_of, observed[0].oom_killed.oom_score_adj) == (
        "kubepods",
        1000,
    )


def test_a_container_that_is_too_large_from_its_start_is_killed_at_once() -> None:
    """And again after each backoff."""
    played = world(pod(c="600Mi"))
    played.run_until(31 * S)
    assert [at_s for at_s, _, _ in kills(played)] == [0.0, 0.0, 10.0, 30.0]


def test_a_pod_that_is_being_deleted_ends_when_its_last_container_is_killed() -> None:
    """Not at the end of its grace period, and it is not restarted."""
    made = pod(c="+512Mi/m")
    made.spec.termination_grace_period_seconds = 300
    played = world(made)
    played.run_until(30 * S)
    played.lifecycle.delete(30 * S, played.pod("p"), None, "deleted")
    played.run_until(61 * S)
    assert kills(played) == [(60.0, "c", "container")]
    assert played.names() == []


def test_without_node_pressure_only_limits_in_pods_are_enforced() -> None:
    """`--no-eviction` takes a node's memory as enough for its pods."""
    played = World(models=Models(eviction=False))
    leak = pod("leak", limits={"c": ""}, c="+10Gi/m")
    played.feed(0, create(reserved_node()), create_pod(leak), create_pod(pod(c="+512Mi/m")))
    played.run_until(119 * S)
    assert kills(played) == [(60.0, "c", "container")]


def resized(played: World, limit: str) -> pod_pb2.Pod:
    """Return an update of the pod `p` with another limit."""
    changed = pod_pb2.Pod()
    changed.CopyFrom(played.pod("p").message)
    changed.spec.containers[0].resources.limits["memory"] = limit
    return changed


def test_a_lowered_limit_counts_from_its_update_on_and_a_raised_one_too() -> None:
    """300Mi are used throughout: above 256Mi at 100 s. In a minute 512Mi more: 1Gi at 120 s."""
    lowered = world(pod(c="300Mi"))
    lowered.run_until(100 * S)
    lowered.feed(100 * S, update(resized(lowered, "256Mi")))
    lowered.kill(100 * S)
    assert kills(lowered)[:1] == [(100.0, "c", "container")]
    assert any("p has a lower memory limit" in text for kind, text in lowered.journal.notes)
    raised = world(pod(c="+512Mi/m"))
    raised.run_until(30 * S)
    raised.feed(30 * S, update(resized(raised, "1Gi")))
    raised.run_until(130 * S)
    assert kills(raised) == [(120.0, "c", "container")]


def test_an_update_of_other_fields_is_not_a_resize() -> None:
    """No note, and nothing is killed."""
    played = world(pod(c="300Mi"))
    played.run_until(100 * S)
    played.feed(100 * S, update(resized(played, "512Mi")))
    played.run_until(200 * S)
    assert kills(played) == []
    assert not any("memory limit" in text for _, text in played.journal.notes)
