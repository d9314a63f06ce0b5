"""A restart of the scheduler: the next one lists all objects, and has nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from replay.cli.errors import REFUSED
from replay.errors import OutputError
from replay.results.run.directory import RunDirectory
from services.kube.time import SECOND_NS
from tests.e2e.commands import reprieve
from tests.e2e.test_explain_foreign import Elsewhere, Grumpy
from tests.torture.same_run import recorded_differences

pytestmark = pytest.mark.e2e

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "only"},
    "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}},
}
CLASSES = [
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
    for name, value in (("high", 100), ("middle", 50))
]
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "shared", "namespace": "default"},
    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
}
DEVICES = [
    {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}},
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "only-gpu"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "only",
            "pool": {"name": "only", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    },
]


def pod(name: str, cpu: str = "1", priority: str = "", **spec: object) -> dict[str, object]:
    """Return a pod's manifest; it asks for the node's whole CPU unless `cpu` is another."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    named = {"priorityClassName": priority} if priority else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **named, **spec},
    }


def replayed(folder: Path, objects: Sequence[object], *options: str) -> RunDirectory:
    """Replay the objects, and what `options` add; the run is in `folder`/run."""
    manifests = {"apiVersion": "v1", "kind": "List", "items": [NODE, *CLASSES, *objects]}
    (folder / "cluster.json").write_text(json.dumps(manifests))
    arguments = ("replay", "cluster.json", "--run", "run", "--force", "--no-eviction", "-q")
    reprieve(folder, *arguments, *options)
    return RunDirectory.open(folder / "run")


def later(folder: Path, name: str, *objects: object) -> str:
    """Write manifests for --apply; return their path."""
    items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    (folder / name).write_text(json.dumps(items))
    return name


def attempts_of(run: RunDirectory, name: str) -> list[tuple[float, int, str]]:
    """Return a pod's attempts: the time in s, the number, and the node, "" for a failure."""
    attempts = []
    for decision in run.decisions():
        observed, at_s = decision.observed, decision.time_ns / SECOND_NS
        if observed.object.name != name:
            continue
        if observed.HasField("scheduled"):
            bound = observed.scheduled
            attempts.append((at_s, bound.attempts, bound.node_name))
        elif observed.HasField("failed_scheduling"):
            attempts.append((at_s, observed.failed_scheduling.attempts, ""))
    return attempts


def preempted_at(run: RunDirectory) -> list[float]:
    """Return the times in s at which victims were deleted."""
    return [
        entry.time_ns / SECOND_NS
        for entry in run.decisions()
        if entry.observed.HasField("preempted")
    ]


def test_a_pod_in_back_off_is_tried_at_once(tmp_path: Path) -> None:
    """A node at 0.5 s moves the pod to backoffQ until 1 s; a new scheduler knows no back-off."""
    second = {**NODE, "metadata": {"name": "second"}}
    later(tmp_path, "node.json", second)
    objects = [pod("first"), pod("waiting")]
    options = ("--apply", "node.json,at=500ms", "--queue-rules", "v1.20")
    plain = replayed(tmp_path, objects, *options)
    assert attempts_of(plain, "waiting") == [(0, 1, ""), (1, 2, "second")]
    restarted = replayed(tmp_path, objects, *options, "--restart-scheduler", "700ms")
    assert attempts_of(restarted, "waiting") == [(0, 1, ""), (0.7, 1, "second")]
    notes = [note["text"] for note in restarted.summary()["notes"] if note["kind"] == "restart"]
    assert len(notes) == 1
    assert notes[0].startswith("the scheduler was restarted 700ms after the start of the trace: ")


def test_a_nominated_pod_keeps_its_nomination(tmp_path: Path) -> None:
    """Its victim is not preempted twice, and a pod of lower priority does not take its room."""
    late = later(
        tmp_path, "late.json", pod("high", priority="high"), pod("middle", "600m", "middle")
    )
    options = ("--apply", f"{late},at=1s", "--restart-scheduler", "5s")
    run = replayed(tmp_path, [pod("victim")], *options)
    assert attempts_of(run, "high") == [(1, 1, ""), (5, 1, ""), (31, 2, "only")]
    assert all(not node for _, _, node in attempts_of(run, "middle"))
    assert preempted_at(run) == [1]


def test_a_binding_under_way_is_lost(tmp_path: Path) -> None:
    """A pod that was assumed is a pending pod for the next scheduler, which decides anew."""
    options = ("--model", "bind-cost=5s", "--restart-scheduler", "2s")
    run = replayed(tmp_path, [pod("slow")], *options)
    assert attempts_of(run, "slow") == [(7, 1, "only")]


def test_deletions_of_victims_under_way_are_lost(tmp_path: Path) -> None:
    """They were calls of the scheduler that is gone; the next one preempts again."""
    late = later(tmp_path, "late.json", pod("high", priority="high"))
    victim = pod("victim", terminationGracePeriodSeconds=0)
    options = ("--apply", f"{late},at=1s", "--model", "preemption-delay=5s")
    assert preempted_at(replayed(tmp_path, [victim], *options)) == [6]
    run = replayed(tmp_path, [victim], *options, "--restart-scheduler", "3s")
    assert preempted_at(run) == [8]
    assert [at_s for at_s, _, _ in attempts_of(run, "high")][:2] == [1, 3]


def test_a_pod_with_gates_stays_gated(tmp_path: Path) -> None:
    """It is not tried, before and after."""
    gated = pod("gated", schedulingGates=[{"name": "example.com/wait"}])
    run = replayed(tmp_path, [gated], "--restart-scheduler", "2s")
    assert attempts_of(run, "gated") == []


def test_the_devices_of_claims_stay_allocated(tmp_path: Path) -> None:
    """The claim's status has them, and another claim finds none."""
    claims = [CLAIM, {**CLAIM, "metadata": {"name": "other", "namespace": "default"}}]
    pods = [
        pod(name, "100m", resourceClaims=[{"name": "gpu", "resourceClaimName": claim}])
        for name, claim in (("user", "shared"), ("second-user", "shared"), ("without", "other"))
    ]
    late = later(tmp_path, "late.json", *pods[1:])
    options = ("--apply", f"{late},at=3s", "--restart-scheduler", "2s")
    run = replayed(tmp_path, [*DEVICES, *claims, pods[0]], *options)
    assert attempts_of(run, "second-user") == [(3, 1, "only")]
    assert attempts_of(run, "without")[0] == (3, 1, "")


def test_pods_of_a_name_that_the_next_scheduler_serves_are_taken(tmp_path: Path) -> None:
    """Its configuration has another profile, which no scheduler had before."""
    (tmp_path / "other.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: other}]\n"
    )
    options = ("--restart-scheduler", "2s --scheduler-config other.yaml")
    pods = [pod("mine", "100m"), pod("other", "100m", schedulerName="other")]
    run = replayed(tmp_path, pods, *options)
    assert attempts_of(run, "mine") == [(0, 1, "only")]
    assert attempts_of(run, "other") == [(2, 1, "only")]


def test_another_scheduler_receives_the_state_as_events(tmp_path: Path) -> None:
    """One that only has the contract tries the pods that wait, and explains its own decisions."""
    elsewhere = Elsewhere()
    elsewhere.start(Grumpy(judges=True))  # type: ignore[abstract] # gRPC itself refuses the other methods
    try:
        late = later(tmp_path, "late.json", pod("late"))
        options = ("--apply", f"{late},at=1s", "--until", "1m")
        restart = ("--restart-scheduler", f"2s --scheduler {elsewhere.address}")
        run = replayed(tmp_path, [pod("first", "500m")], *options, *restart)
        assert [at_s for at_s, _, _ in attempts_of(run, "late")] == [1, 2]
        assert attempts_of(run, "first") == [(0, 1, "only")]
        explained = [
            reprieve(tmp_path, "explain", "late", "run", *more, "-o", "json").stdout
            for more in (("--at", "1s"), ("--at", "2s", "--scheduler", elsewhere.address))
        ]
    finally:
        elsewhere.stop()
    ours, theirs = map(json.loads, explained)
    assert ours["refused"][0]["plugin"] == "NodeResourcesFit"
    assert theirs["refused"][0]["plugin"] == "Weekday"


def test_a_decision_is_explained_by_the_scheduler_that_took_it(tmp_path: Path) -> None:
    """With its configuration, and from the state in which it was started."""
    late = later(tmp_path, "late.json", pod("late", "100m"))
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "ImageLocality"}]}}}],
    }
    (tmp_path / "other.json").write_text(json.dumps(config))
    second = {**NODE, "metadata": {"name": "second"}}
    options = ("--apply", f"{late},at=4s", "--keep-checkpoints", "0")
    restart = ("--restart-scheduler", "3s --scheduler-config other.json")
    replayed(tmp_path, [second, pod("early", "100m")], *options, *restart)
    weights = [
        json.loads(reprieve(tmp_path, "explain", name, "run", "-o", "json").stdout)["weights"]
        for name in ("early", "late")
    ]
    assert ["ImageLocality" in given for given in weights] == [True, False]


def test_a_run_with_a_restart_that_breaks_off_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a state after the restart, with the scheduler that was started then."""
    late = later(tmp_path, "late.json", pod("late", "400m"))
    options = ("--apply", f"{late},at=4s", "--checkpoint-every", "0s")
    restart = ("--restart-scheduler", "2s --seed 3 --rules v1.16")
    run = replayed(tmp_path, [pod("first", "500m"), pod("waits")], *options, *restart)
    whole = tmp_path / "whole"
    run.path.rename(whole)

    def full(*_: object, **_named: object) -> None:
        raise OutputError("the disk is full")

    monkeypatch.setattr("replay.runner.summarize", full)
    with pytest.raises(AssertionError):
        replayed(tmp_path, [pod("first", "500m"), pod("waits")], *options, *restart)
    monkeypatch.undo()
    reprieve(tmp_path, "resume", "run")
    assert not recorded_differences(tmp_path / "run", whole)


@pytest.mark.parametrize(
    ("restart", "problem"),
    [
        ("soon", "write a time and options"),
        ("0s", "the scheduler starts at the beginning"),
        ("2s --rules v0", "'v0' is not one of"),
        ("2s --start-delay 3s", "--start-delay is not an option of the scheduler"),
        ("2s --set deployment.web.replicas=3", "does not change the scheduler's configuration"),
        ("2m", "the replay ends before that"),
        ("2s --scheduler 127.0.0.1:1", "opened no session"),
    ],
)
def test_what_is_no_restart_is_refused(tmp_path: Path, restart: str, problem: str) -> None:
    """Before the run begins."""
    (tmp_path / "cluster.json").write_text(json.dumps(NODE))
    arguments = ("cluster.json", "--run", "run", "--until", "1m", "--restart-scheduler", restart)
    done = reprieve(tmp_path, "replay", *arguments, code=None)
    assert done.returncode in {REFUSED, 3}
    assert problem in " ".join(done.stderr.split())
    assert not (tmp_path / "run").exists()
