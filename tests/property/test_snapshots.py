"""Clusters in mid-life, printed as kubectl would and read again: they go on as before.

What a world does of itself after a moment (controllers, pods that stop or end) is the same for the
world that lived until then and for the one that begins with the list of its objects.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from random import Random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.generate.workload import GenerateOptions, generate
from replay.importers.kubernetes import watch
from replay.importers.recording.interpreter import cut_at
from replay.importers.records import ImportOptions, Issues
from replay.importers.registry import open_trace
from replay.kube.changes import Raw, RecordedChange, controller, is_being_deleted, key, phase, uid
from replay.world.controllers.workloads.daemon_sets import target
from replay.world.controllers.workloads.workloads import Workloads
from replay.world.loop.replay import Limits, Replay
from replay.world.models import Models
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.workloads_pb2 import Job
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.pod import TERMINAL_PHASES
from services.kube.time import SECOND_NS
from services.rpc.kube.codec import object_to_json
from tests.builders import make_pod
from tests.property.test_world import RandomScheduler, check_places
from tests.unit.world.builders import controller_of
from tests.unit.world.workloads.builders import make_daemon_set, make_job, make_stateful_set

_AFTER_NS = 1800 * SECOND_NS
_Did = Counter[tuple[int, str, str]]


class Stopping(RandomScheduler):
    """Decides at random until a moment, and nothing after it; daemon pods go where they belong."""

    def __init__(self, seed: int, until_ns: int) -> None:
        super().__init__(seed)
        self._until_ns = until_ns

    def receive_outcomes(self) -> scheduler_pb2.RoundOutcomes:
        """Decide, or answer that nothing is decided any more."""
        late = self._told[0].time_ns > self._until_ns
        outcomes = super().receive_outcomes()
        return scheduler_pb2.RoundOutcomes() if late else outcomes

    def _decide(self, uid: str, outcome: scheduler_pb2.Outcome) -> None:
        super()._decide(uid, outcome)
        pinned = target(self.cluster.pods[uid].message)
        if pinned and outcome.HasField("bind"):
            outcome.bind.node_name = pinned
        if outcome.unschedulable.HasField("preemption"):
            self._spare_jobs(outcome.unschedulable)

    def _spare_jobs(self, verdict: scheduler_pb2.Unschedulable) -> None:
        victims = verdict.preemption.victims
        kept = [victim for victim in victims if not self._is_a_jobs(victim.pod.uid)]
        if not kept:
            verdict.ClearField("preemption")
            return
        del victims[:]
        victims.extend(kept)

    def _is_a_jobs(self, uid: str) -> bool:
        """Return whether a Job would wait after the pod's end, which no object shows."""
        owners = self.cluster.pods[uid].message.metadata.owner_references
        return any(owner.kind == "Job" for owner in owners)


class Unwatched:
    """Observes nothing."""

    def round_sent(self, round_: scheduler_pb2.Round) -> None:
        """Ignore it."""

    def outcomes(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Ignore it."""


def workload(seed: int, until_ns: int) -> list[trace_pb2.Record]:
    """Return a workload with every kind of controller, changed by users until a moment.

    Nothing but annotations tells how long pods run, as in manifests.
    """
    options = GenerateOptions(
        seed=seed, nodes=4, pods=30, deployments=3, budgets=3, window_ns=90 * SECOND_NS
    )
    random = Random(seed)  # noqa: S311 - chance makes the cases
    records = [record for record in generate(options) if not record.HasField("usage")]
    for record in records:
        if record.create.HasField("node"):
            # No object has the wait of a controller whose pods kubelets reject: all have room.
            record.create.node.status.allocatable.update(cpu="1k", memory="1Ti", pods="1k")
        record.header.ClearField("window_end_time_ns") if record.HasField("header") else None
        record.pod_create.ClearField("life") if record.HasField("pod_create") else None
        record.controller_pod.ClearField("life") if record.HasField("controller_pod") else None
    made = [KubernetesObject(daemon_set=make_daemon_set())]
    for number in range(2):
        numbered = make_stateful_set(f"db{number}", random.randrange(1, 4))
        numbered.spec.min_ready_seconds = random.choice([0, 20])
        numbered.spec.pod_management_policy = random.choice(["Parallel", "OrderedReady"])
        job = make_job(f"job{number}", completions=5, parallelism=2)
        job.spec.completion_mode = random.choice(["Indexed", "NonIndexed"])
        annotations = job.spec.template.metadata.annotations
        annotations["reprieve/service-time"] = f"{random.randrange(5, 50)}s"
        made += [KubernetesObject(stateful_set=numbered), KubernetesObject(job=job)]
    for obj in made:
        at_ns = random.randrange(options.window_ns)
        records.append(trace_pb2.Record(time_ns=at_ns, create=obj))
    records += [rejected_pod(number, random.randrange(options.window_ns)) for number in range(8)]
    deployments = [
        record.create.deployment for record in records if record.create.HasField("deployment")
    ]
    names = [
        record.pod_create.pod.metadata.name for record in records if record.HasField("pod_create")
    ]
    for _ in range(8):
        record = trace_pb2.Record(time_ns=random.randrange(options.window_ns))
        if random.random() < 0.6:
            ref = ObjectReference(kind="Pod", namespace="default", name=random.choice(names))
            record.delete.object.CopyFrom(ref)
        else:
            record.update.deployment.CopyFrom(random.choice(deployments))
            record.update.deployment.spec.replicas = random.randrange(8)
        records.append(record)
    ordered = sorted(records, key=lambda record: record.time_ns)
    return [record for record in ordered if record.time_ns <= until_ns]


def rejected_pod(number: int, at_ns: int) -> trace_pb2.Record:
    """Return the creation of a pod that every kubelet rejects, and that nothing replaces."""
    pod = make_pod(f"other{number}").uid(f"uid-other{number}").container("c").message()
    pod.spec.os.name = "windows"
    return trace_pb2.Record(time_ns=at_ns, pod_create=trace_pb2.PodCreate(pod=pod))


def played(
    records: list[trace_pb2.Record], scheduler: RandomScheduler, until_ns: int | None
) -> tuple[Replay, list[trace_pb2.Decision]]:
    """Play records and return the replay with what happened."""
    log: list[trace_pb2.Decision] = []
    replay = Replay(
        scheduler,
        None,
        models=Models(),
        sink=log.append,
        observer=Unwatched(),
        cluster=scheduler.cluster,
    )
    replay.run(iter(records), Limits(until_ns=until_ns))
    return replay, log


def printed(replay: Replay, records: list[trace_pb2.Record]) -> list[KubernetesObject]:
    """Return what the API server of a world would list; controllers as users last wrote them."""
    cluster = replay.cluster
    objects = [
        *(KubernetesObject(pod=pod.message) for pod in cluster.pods.values()),
        *(KubernetesObject(node=node) for node in cluster.nodes.values()),
        *(KubernetesObject(pod_disruption_budget=budget) for budget in cluster.budgets.values()),
        *(KubernetesObject(deployment=deployment) for deployment in cluster.deployments.values()),
        *(
            KubernetesObject(replica_set=replica_set)
            for replica_set in cluster.replica_sets.values()
        ),
    ]
    for record in records:
        match record.create.WhichOneof("object"):
            case "priority_class" | "stateful_set" | "daemon_set":
                objects.append(record.create)
            case "job":
                objects.append(KubernetesObject(job=_with_status(replay, record.create.job)))
    for obj in objects:
        meta = getattr(obj, obj.WhichOneof("object") or "").metadata
        if not meta.HasField("creation_timestamp"):
            meta.creation_timestamp.FromNanoseconds(1)
    return objects


def _with_status(replay: Replay, job: Job) -> Job:
    """Return a Job with the status that its controller would have written."""
    made = Job()
    made.CopyFrom(job)
    for state in controller_of(replay.controllers, Workloads)._jobs.of(""):
        if state.message.metadata.uid != job.metadata.uid:
            continue
        status = made.status
        status.succeeded, status.failed = state.succeeded, state.failed
        status.completed_indexes = ",".join(map(str, sorted(state.completed_indexes)))
        if state.start_ns is not None:
            status.start_time.FromNanoseconds(state.start_ns)
        if state.finished_ns is not None:
            condition = status.conditions.add(type=state.condition, status="True")
            condition.last_transition_time.FromNanoseconds(state.finished_ns)
    return made


def did(log: list[trace_pb2.Decision], since_ns: int) -> _Did:
    """Return the actions of a world after a moment: time, action, and pods or owners concerned."""
    found: _Did = Counter()
    for entry in log:
        observed, what = entry.observed, entry.observed.WhichOneof("observed") or ""
        if entry.time_ns <= since_ns or what == "failed_scheduling":
            continue
        name = observed.created.owner.name if what == "created" else observed.object.name
        found[entry.time_ns - since_ns, what, name] += 1
    return found


def printed_and_read(items: list[Raw], now_ns: int) -> list[trace_pb2.Record]:
    """Return the trace of a List of objects."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "list.json"
        path.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        return list(open_trace([path], options=ImportOptions(now_ns=now_ns)))


@settings(max_examples=25)
@given(seed=st.integers(0, 2**16), second=st.integers(1, 120), lists_sets=st.booleans())
def test_a_list_of_a_clusters_objects_continues_as_the_cluster_does(
    seed: int, second: int, lists_sets: bool
) -> None:
    """Nothing moves that would not have moved; with and without ReplicaSets in the list."""
    moment_ns = second * SECOND_NS
    records = workload(seed, moment_ns)
    replay, _ = played(records, Stopping(seed, moment_ns), moment_ns)
    objects = printed(replay, records)
    if not lists_sets:
        objects = [obj for obj in objects if not obj.HasField("replica_set")]
    _, log = played(records, Stopping(seed, moment_ns), moment_ns + _AFTER_NS)
    read = printed_and_read([object_to_json(obj) for obj in objects], moment_ns)
    scheduler = Stopping(seed, -1)
    _, read_log = played(read, scheduler, _AFTER_NS)
    check_places(scheduler.cluster)
    at_once = [entry for entry in read_log if entry.time_ns == moment_ns]
    assert [entry.observed.WhichOneof("observed") for entry in at_once] == []
    assert did(read_log, moment_ns) == did(log, moment_ns)


def test_kubelets_reject_pods_before_and_after_such_a_moment() -> None:
    """So that lists have pods that were rejected, and pods that will be."""
    _, log = played(workload(0, 60 * SECOND_NS), Stopping(0, 60 * SECOND_NS), None)
    rejected = [entry.time_ns for entry in log if entry.observed.HasField("rejected")]
    assert rejected
    assert min(rejected) < 30 * SECOND_NS < max(rejected)


RECORDINGS = Path(__file__).parents[2] / ".." / "shared" / "traces" / "recordings"


def standing(changes: Iterable[RecordedChange], moment_ns: int) -> list[Raw]:
    """Return the objects that stand at a moment of a recording."""
    cut = cut_at(lambda _issues: changes, moment_ns)(Issues())
    return [dict(entry.raw) for entry in takewhile(lambda record: record.initial, cut)]


def missing_pods(items: list[Raw]) -> Counter[str]:
    """Return how many pods each ReplicaSet lacks (below 0: has too many), by name, if any.

    Its Deployment's replicas count: a controller may not have seen them at that moment.
    """
    replicas_of = {
        uid(item): item["spec"].get("replicas", 1) for item in items if key(item)[0] == "Deployment"
    }
    active = Counter(
        (controller(item) or {}).get("uid")
        for item in items
        if key(item)[0] == "Pod"
        and phase(item) not in TERMINAL_PHASES
        and not is_being_deleted(item)
    )
    found: Counter[str] = Counter()
    for replica_set in items:
        if key(replica_set)[0] != "ReplicaSet":
            continue
        owner = controller(replica_set)
        replicas = (
            replicas_of.get(str(owner["uid"]), 0)
            if owner
            else replica_set["spec"].get("replicas", 1)
        )
        found[key(replica_set)[2]] = replicas - active[uid(replica_set)]
    return Counter({name: count for name, count in found.items() if count})


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="../shared/traces is not beside the project")
@pytest.mark.parametrize("name", ["a", "b2", "c", "e"])
def test_a_recorded_cluster_printed_at_any_moment_stays_as_it_is(name: str) -> None:
    """Running pods continue; a ReplicaSet only creates missing pods or deletes surplus ones."""
    files = sorted((RECORDINGS / name).glob("*.watch.jsonl.gz"))
    changes_of = watch.open_recording(files).changes
    recorded = list(changes_of(Issues()))
    first_ns, last_ns = (max(entry.at_ns for entry in recorded[:1]), recorded[-1].at_ns)
    random = Random(name)  # noqa: S311 - chance makes the cases
    for _ in range(6):
        moment_ns = random.randrange(first_ns, last_ns)
        items = standing(recorded, moment_ns)
        records = printed_and_read(items, moment_ns)
        scheduler = Stopping(0, -1)
        replay, log = played(records, scheduler, 20 * SECOND_NS)
        lacking = missing_pods(items)
        made = Counter(e.observed.created.owner.name for e in log if e.observed.HasField("created"))
        assert made == +lacking
        running = {
            uid(item)
            for item in items
            if key(item)[0] == "Pod" and phase(item) == "Running" and not is_being_deleted(item)
        }
        gone = {
            pod
            for pod in running
            if pod not in replay.cluster.pods or replay.cluster.pods[pod].is_terminating
        }
        assert len(gone) == sum((-lacking).values())
