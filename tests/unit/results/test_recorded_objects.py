"""Objects that the scheduler does not receive: recorded, continued, and shown with statuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from replay.errors import RunError
from replay.results.kubectl.get import GetQuery, get
from replay.results.recorder import RunRecorder
from replay.results.run.directory import RunDirectory
from replay.results.run.manifest import Manifest
from replay.results.run.verification import verify
from reprieve.kube.v1beta1 import meta_pb2, object_pb2, pod_pb2, workloads_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.time import SECOND_NS
from services.rpc.kube.fields import set_time
from tests.builders import make_node
from tests.unit.results import messages
from tests.unit.results.messages import START_NS
from tests.unit.world.builders import World, create, delete
from tests.unit.world.workloads.builders import end, make_cron_job, make_daemon_set, make_job


def _event(message: object, at_s: int = 0, *, is_new: bool = True) -> scheduler_pb2.Event:
    field = {
        "Deployment": "deployment",
        "ReplicaSet": "replica_set",
        "DaemonSet": "daemon_set",
        "Job": "job",
        "CronJob": "cron_job",
    }[type(message).__name__]
    holder = object_pb2.KubernetesObject(**{field: message})  # type: ignore[arg-type] # by its field
    event = scheduler_pb2.Event(time_ns=START_NS + at_s * SECOND_NS)
    (event.add if is_new else event.update).CopyFrom(holder)
    return event


def _pod(name: str, kind: str, owner: str, *, ready: bool = True) -> pod_pb2.Pod:
    pod = messages.pod_message(name, node_name="n", phase="Running")
    meta = pod.metadata
    meta.owner_references.add(kind=kind, name=owner, uid=f"uid-{owner}", controller=True)
    pod.status.conditions.add(type="Ready", status="True" if ready else "False")
    return pod


def _deployment(replicas: int) -> workloads_pb2.Deployment:
    made = workloads_pb2.Deployment()
    made.metadata.name, made.metadata.namespace, made.metadata.uid = "web", "default", "uid-web"
    made.spec.replicas = replicas
    made.spec.template.metadata.labels["app"] = "web"
    made.spec.template.spec.containers.add(name="c", image="nginx")
    made.spec.selector.match_labels["app"] = "web"
    return made


def _replica_set(replicas: int) -> workloads_pb2.ReplicaSet:
    made = workloads_pb2.ReplicaSet()
    made.metadata.name, made.metadata.namespace, made.metadata.uid = "web-1", "default", "uid-web-1"
    made.metadata.owner_references.add(
        kind="Deployment", name="web", uid="uid-web", controller=True
    )
    made.spec.replicas = replicas
    made.spec.template.metadata.labels["app"] = "web"
    made.spec.template.spec.containers.add(name="c", image="nginx")
    return made


def _run(
    path: Path, rounds: Sequence[scheduler_pb2.Round], *objects: scheduler_pb2.Event
) -> RunDirectory:
    run = RunDirectory.create(path / "run")
    with RunRecorder(run) as recorder:
        for event in objects:
            recorder.object_changed(event)
        for round_ in rounds:
            recorder._round_log.write(round_)
        recorder.close()
    run.write_summary({"namespaces": ["default"]})
    run.write_manifest(Manifest(version="0", seed=0, rules="v1.34", traces=(), finished=True))
    run.end()
    return run


def _printed(run: RunDirectory, resource: str, **asked: object) -> str:
    pieces: list[str] = []
    get(run, GetQuery(**{"resource": resource, **asked}), pieces.append)  # type: ignore[arg-type] # keywords of one test
    return "".join(pieces)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Return a run of a Deployment of two pods, whose second one is ready after 5 s."""
    ready = pod_pb2.PodStatus(phase="Running")
    ready.conditions.add(type="Ready", status="True")
    selector_alone = workloads_pb2.ReplicaSet(metadata=_replica_set(0).metadata)
    rounds = [
        messages.round_of(
            messages.added(make_node("n").message()),
            _event(selector_alone),
            messages.added(_pod("a", "ReplicaSet", "web-1")),
            messages.added(_pod("b", "ReplicaSet", "web-1", ready=False)),
        ),
        messages.round_of(messages.patched("b", 5, status=ready), at_s=5),
        messages.round_of(messages.deleted("a", 9), at_s=9),
    ]
    return _run(tmp_path, rounds, _event(_deployment(2)), _event(_replica_set(2)))


def test_a_deployments_status_follows_from_the_pods_of_the_moment(run: RunDirectory) -> None:
    """The ReplicaSet is shown in full, not as the scheduler received it."""
    assert _printed(run, "deploy,rs", offset_ns=0) == (
        "NAME                  READY   UP-TO-DATE   AVAILABLE   AGE\n"
        "deployment.apps/web   1/2     2            1           0s\n"
        "\n"
        "NAME                    DESIRED   CURRENT   READY   AGE\n"
        "replicaset.apps/web-1   2         2         1       0s\n"
    )
    assert "web    1/2     1            1           9s" in _printed(run, "deploy")
    assert _printed(run, "all", output="name") == (
        "pod/b\ndeployment.apps/web\nreplicaset.apps/web-1\n"
    )


def test_a_watch_shows_an_owner_when_its_status_changes(run: RunDirectory) -> None:
    """A row for each change, without rows in which nothing is new."""
    rows = [line.split()[:4] for line in _printed(run, "deploy", watch=True).splitlines()[1:]]
    assert rows == [
        ["web", "0/2", "0", "0"],
        ["web", "1/2", "1", "1"],
        ["web", "1/2", "2", "1"],
        ["web", "2/2", "2", "2"],
        ["web", "1/2", "1", "1"],
    ]


def test_a_run_of_an_older_version_without_objects_is_refused(tmp_path: Path) -> None:
    """Instead of showing the partial objects that the scheduler received."""
    run = _run(tmp_path, [messages.round_of(_event(_replica_set(2)))])
    with pytest.raises(RunError, match="a version that recorded no ReplicaSets; replay its trace"):
        _printed(run, "rs")
    assert _printed(run, "po") == ""


def test_a_jobs_completions_include_deleted_pods(tmp_path: Path) -> None:
    """A running Job counts removed pods, too; a finished one has its recorded counts."""
    job = make_job("work", completions=2)
    ended = pod_pb2.PodStatus(phase="Succeeded")
    rounds = [
        messages.round_of(messages.added(_pod("a", "Job", "work"), 1), at_s=1),
        messages.round_of(messages.patched("a", 5, status=ended), messages.deleted("a", 6), at_s=6),
        messages.round_of(messages.added(_pod("b", "Job", "work"), 7), at_s=7),
        messages.round_of(messages.deleted("b", 9), at_s=9),
    ]
    done = make_job("work", completions=2)
    done.status.succeeded = 2
    done.status.conditions.add(type="Complete", status="True")
    set_time(done.status.start_time, START_NS)
    set_time(done.status.completion_time, START_NS + 9 * SECOND_NS)
    cron = make_cron_job("tick")
    rounds.insert(0, messages.round_of(messages.added(make_node("n").message())))
    run = _run(tmp_path, rounds, _event(job), _event(cron), _event(done, 9, is_new=False))
    assert "work   Running   1/2           6s         6s" in _printed(
        run, "job", offset_ns=6 * SECOND_NS
    )
    assert "work   Complete   2/2           9s         9s" in _printed(run, "job")
    assert "tick   * * * * *   <none>     False     0        <none> " in _printed(run, "cj")


def test_a_daemon_set_counts_the_nodes_that_should_run_it(tmp_path: Path) -> None:
    """Not the tainted one."""
    rounds = [
        messages.round_of(
            messages.added(make_node("n").message()),
            messages.added(make_node("m").message()),
            messages.added(make_node("t").taint("gpu").message()),
            messages.added(_pod("a", "DaemonSet", "agent")),
        )
    ]
    run = _run(tmp_path, rounds, _event(make_daemon_set("agent")))
    assert "agent   2         1         1       1            1           <none>" in _printed(
        run, "ds"
    )


def test_the_file_of_objects_is_verified_and_continued_at_its_position(tmp_path: Path) -> None:
    """A run without such objects has no file."""
    run = RunDirectory.create(tmp_path / "run")
    with RunRecorder(run) as recorder:
        empty, nothing = recorder.position(), run.recorded_files()
        recorder.object_changed(_event(_deployment(1)))
        position, files = recorder.position(), run.recorded_files()
        recorder.object_changed(_event(_deployment(5), 1, is_new=False))
        recorder.close()
    run.go_back(files)
    with RunRecorder(run, position=position) as recorder:
        recorder.object_changed(_event(_deployment(3), 1, is_new=False))
        recorder.close()
    sizes = [
        event.WhichOneof("event") == "update" and event.update.deployment.spec.replicas
        for round_ in run.object_rounds()
        for event in round_.events
    ]
    assert sizes == [False, 3]
    run.write_manifest(Manifest(version="0", seed=0, rules="v1.34", traces=(), finished=True))
    assert "objects.rounds.zst" in {Path(issue.path).name for issue in verify(run)}
    run.go_back(nothing)
    with RunRecorder(run, position=empty) as recorder:
        recorder.close()
    assert not run.has_objects


def test_the_world_passes_on_each_change_of_a_workload() -> None:
    """Put, replaced, resized by a rollout, finished with its status, removed."""
    world = World()
    for at_ns, replicas in ((0, 2), (1, 3)):
        world.feed(at_ns, create(_deployment(replicas)))
    world.feed(2, delete("Deployment", "web"))
    world.feed(3, create(make_job("work")))
    end(world, 4, next(pod.key.partition("/")[2] for pod in world.cluster.pods.values()))
    world.settle(4)
    passed = [_change(event) for event in world.objects]
    assert passed[:4] == [
        ("add", "Deployment", 2),
        ("add", "ReplicaSet", 2),
        ("update", "Deployment", 3),
        ("update", "ReplicaSet", 3),
    ]
    assert passed[4:] == [
        ("remove", "Deployment", 0),
        ("remove", "ReplicaSet", 0),
        ("add", "Job", 0),
        ("update", "Job", 1),
    ]


def _change(event: scheduler_pb2.Event) -> tuple[str, str, int]:
    """Return what happened, the kind, and the replicas, or how many pods of a Job succeeded."""
    match event.WhichOneof("event"):
        case "remove":
            return "remove", event.remove.kind, 0
        case "add" | "update" as case:
            holder = event.add if case == "add" else event.update
            kind = holder.WhichOneof("object") or ""
            message = getattr(holder, kind)
            if kind == "job":
                return case, "Job", message.status.succeeded
            return case, message.DESCRIPTOR.name, message.spec.replicas
    raise AssertionError(event)


def test_the_name_of_a_priority_class_is_shown_with_its_value(tmp_path: Path) -> None:
    """It is removed with its reference."""
    event = scheduler_pb2.Event(time_ns=START_NS)
    event.add.priority_class.metadata.name = "high"
    event.add.priority_class.value = 1000
    gone = meta_pb2.ObjectReference(kind="PriorityClass", name="high")
    removed = scheduler_pb2.Event(time_ns=START_NS + 5 * SECOND_NS, remove=gone)
    rounds = [
        messages.round_of(messages.added(make_node("n").message(), at_s), at_s=at_s)
        for at_s in (0, 9)
    ]
    run = _run(tmp_path, rounds, event, removed)
    shown = "high   1000    false            0s    PreemptLowerPriority"
    assert shown in _printed(run, "pc", offset_ns=0)
    assert _printed(run, "pc") == ""
