"""The verdict on a workload: its numbers at the end, the worst moment, and the times below."""

from __future__ import annotations

import pytest

from replay.results.workloads.tally import WorkloadTally
from replay.results.workloads.verdict import WorkloadVerdict
from replay.state_codec import dump, load
from reprieve.kube.v1beta1 import meta_pb2, object_pb2, pod_pb2, policy_pb2, workloads_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.time import SECOND_NS
from tests.builders import make_node
from tests.unit.results import messages
from tests.unit.results.messages import START_NS
from tests.unit.world.workloads.builders import make_daemon_set, make_job, make_stateful_set

_FIELDS = {
    "Deployment": "deployment",
    "ReplicaSet": "replica_set",
    "StatefulSet": "stateful_set",
    "DaemonSet": "daemon_set",
    "Job": "job",
    "PodDisruptionBudget": "pod_disruption_budget",
    "PriorityClass": "priority_class",
    "Node": "node",
}


def put(message: object, at_s: int = 0) -> scheduler_pb2.Event:
    """Return the event of an object that is created or replaced."""
    holder = object_pb2.KubernetesObject(**{_FIELDS[type(message).__name__]: message})  # type: ignore[arg-type] # by its field
    return scheduler_pb2.Event(time_ns=START_NS + at_s * SECOND_NS, update=holder)


def deployment(replicas: int, name: str = "web", class_name: str = "") -> workloads_pb2.Deployment:
    """Return a Deployment of pods with the label app."""
    made = workloads_pb2.Deployment()
    made.metadata.name, made.metadata.namespace = name, "default"
    made.metadata.uid = f"uid-{name}"
    made.spec.replicas = replicas
    made.spec.template.metadata.labels["app"] = name
    made.spec.template.spec.priority_class_name = class_name
    return made


def replica_set(replicas: int, name: str = "web-1", owner: str = "web") -> workloads_pb2.ReplicaSet:
    """Return a ReplicaSet, by default that of the Deployment; owner "" if none."""
    made = workloads_pb2.ReplicaSet()
    made.metadata.name, made.metadata.namespace = name, "default"
    made.metadata.uid = f"uid-{name}"
    made.spec.replicas = replicas
    if owner:
        made.metadata.owner_references.add(
            kind="Deployment", name=owner, uid=f"uid-{owner}", controller=True
        )
    return made


def pod(
    name: str,
    kind: str = "ReplicaSet",
    owner: str = "web-1",
    *,
    node: str = "n",
    ready: bool = True,
) -> pod_pb2.Pod:
    """Return a pod of a controller; one that is not ready has no node."""
    made = messages.pod_message(
        name, node_name=node if ready else "", phase="Running" if ready else "Pending"
    )
    made.metadata.owner_references.add(kind=kind, name=owner, uid=f"uid-{owner}", controller=True)
    made.status.conditions.add(type="Ready", status="True" if ready else "False")
    return made


def now_ready(name: str, at_s: int) -> scheduler_pb2.Event:
    """Return the event of a pod that becomes ready."""
    status = pod_pb2.PodStatus(phase="Running")
    status.conditions.add(type="Ready", status="True")
    return messages.patched(name, at_s, status=status)


def succeeded(name: str, at_s: int) -> scheduler_pb2.Event:
    """Return the event of a pod that succeeds."""
    return messages.patched(name, at_s, status=pod_pb2.PodStatus(phase="Succeeded"))


def budget(healthy: int, desired: int, expected: int = 3) -> policy_pb2.PodDisruptionBudget:
    """Return the budget of the pods with app=web, with its status."""
    made = policy_pb2.PodDisruptionBudget()
    made.metadata.name, made.metadata.namespace = "web", "default"
    made.spec.selector.match_labels["app"] = "web"
    made.status.current_healthy, made.status.desired_healthy = healthy, desired
    made.status.expected_pods = expected
    return made


def whole_web() -> WorkloadTally:
    """Return a tally of a Deployment of three ready pods, a, b and c."""
    tally = WorkloadTally()
    tally.object_changed(put(deployment(3)))
    tally.object_changed(put(replica_set(3)))
    for name in "abc":
        tally.sent(messages.added(pod(name)))
    return tally


def only(tally: WorkloadTally, end_s: int = 100) -> WorkloadVerdict:
    """Return the only verdict, at the run's end."""
    [verdict] = tally.verdicts(START_NS + end_s * SECOND_NS)
    return verdict


def test_a_lost_pod_is_missed_from_its_loss_until_its_replacement_is_ready() -> None:
    """Its pods are those of the Deployment's ReplicaSets, of which none has a verdict."""
    tally = whole_web()
    tally.sent(messages.deleted("a", 10))
    tally.sent(messages.added(pod("d", ready=False), 12))
    tally.sent(now_ready("d", 40))
    verdict = only(tally)
    assert verdict.key == "Deployment default/web"
    assert (verdict.desired, verdict.pods, verdict.ready, verdict.unavailable) == (3, 3, 3, 0)
    assert (verdict.least_ready, verdict.least_desired) == (2, 3)
    assert (verdict.below.times, verdict.below.total_ns) == (1, 30 * SECOND_NS)
    assert verdict.sentence(START_NS) == "3 of 3, below desired from 10s for 30s"


def test_of_several_times_the_longest_is_named() -> None:
    """5 s, 20 s, and 10 s to the end."""
    tally = whole_web()
    for number, (lost_s, ready_s) in enumerate([(10, 15), (30, 50)]):
        tally.sent(messages.deleted("abc"[number], lost_s))
        tally.sent(messages.added(pod(f"new-{number}"), ready_s))
    tally.sent(messages.deleted("c", 90))
    verdict = only(tally)
    assert (verdict.below.times, verdict.below.total_ns) == (3, 35 * SECOND_NS)
    assert verdict.below.lasts
    assert verdict.sentence(START_NS) == "2 of 3, below desired 3 times, longest from 30s for 20s"


def test_a_pod_that_terminates_is_not_ready_for_a_deployment_but_for_a_stateful_set() -> None:
    """As in the column READY: readyReplicas of a StatefulSet counts it."""
    tally = whole_web()
    tally.object_changed(put(make_stateful_set("db", 1)))
    tally.sent(messages.added(pod("db-0", "StatefulSet", "db")))
    for name in ("a", "db-0"):
        tally.sent(messages.patched(name, 10, deletion_s=10))
    verdicts = {verdict.name: verdict for verdict in tally.verdicts(START_NS + 20 * SECOND_NS)}
    assert (verdicts["web"].ready, verdicts["web"].pods) == (2, 2)
    assert (verdicts["db"].ready, verdicts["db"].pods) == (1, 0)


def test_a_workload_that_loses_all_its_pods_at_the_first_instant_does_not_start() -> None:
    """They were ready when the run began: a release with Recreate, or a drain, at its beginning."""
    tally = whole_web()
    for name in "abc":
        tally.sent(messages.patched(name, deletion_s=30))
    for name in "def":
        tally.sent(messages.added(pod(name, ready=False), 30))
    for name in "def":
        tally.sent(now_ready(name, 50))
    verdict = only(tally)
    assert (verdict.least_ready, verdict.least_desired) == (0, 3)
    assert verdict.sentence(START_NS) == "3 of 3, below desired from 0s for 50s"


def test_what_lasts_no_time_does_not_count() -> None:
    """A pod that is replaced within its instant was never missed."""
    tally = whole_web()
    tally.sent(messages.deleted("a", 10))
    tally.sent(messages.added(pod("d"), 10))
    verdict = only(tally)
    assert verdict.was_whole
    assert (verdict.least_ready, verdict.least_desired) == (3, 3)


def test_a_start_does_not_count_unless_it_never_ends() -> None:
    """A workload starts without pods; only pods missing at the end count."""
    tally = WorkloadTally()
    for name in ("web", "shop"):
        tally.object_changed(put(deployment(1, name)))
        tally.object_changed(put(replica_set(1, f"{name}-1", name)))
        tally.sent(messages.added(pod(name, owner=f"{name}-1", ready=False)))
    tally.sent(now_ready("web", 30))
    shop, web = tally.verdicts(START_NS + 100 * SECOND_NS)
    assert web.was_whole
    assert shop.sentence(START_NS) == "0 of 1, below desired from 0s for 1m40s, to the end"


def test_a_workload_that_runs_in_part_when_the_run_begins_does_not_start() -> None:
    """One of two pods is ready at first, the other after 30 s: it was missed for so long."""
    tally = WorkloadTally()
    tally.object_changed(put(deployment(2)))
    tally.object_changed(put(replica_set(2)))
    tally.sent(messages.added(pod("a")))
    tally.sent(messages.added(pod("b", ready=False)))
    tally.sent(now_ready("b", 30))
    assert only(tally).below.total_ns == 30 * SECOND_NS


def test_a_budget_that_is_not_met_is_named_with_its_times() -> None:
    """Two of three must be healthy: one loss is allowed, a second one is not."""
    tally = whole_web()
    tally.sent(put(budget(3, 2)))
    tally.sent(messages.deleted("a", 10))
    tally.sent(put(budget(2, 2), 10))
    tally.sent(messages.deleted("b", 20))
    tally.sent(put(budget(1, 2), 20))
    tally.sent(messages.added(pod("d"), 50))
    tally.sent(put(budget(2, 2), 50))
    verdict = only(tally)
    assert verdict.budgets == ("web",)
    assert verdict.below_budget.total_ns == 30 * SECOND_NS
    assert verdict.below.total_ns == 90 * SECOND_NS
    assert verdict.sentence(START_NS) == "2 of 3, below its budget from 20s for 30s"


def test_another_workload_of_the_budgets_namespace_is_not_below_it() -> None:
    """A budget covers the pods that its selector matches."""
    tally = whole_web()
    tally.object_changed(put(deployment(1, "api")))
    tally.sent(put(budget(3, 3)))
    tally.sent(messages.deleted("a", 10))
    tally.sent(put(budget(2, 3), 10))
    verdicts = {verdict.name: verdict for verdict in tally.verdicts(START_NS + 20 * SECOND_NS)}
    assert verdicts["web"].below_budget.lasts
    assert verdicts["api"].unavailable == 1
    assert not verdicts["api"].below_budget.times


def test_a_workloads_change_waits_for_earlier_events_sent_late() -> None:
    """The pod was lost at 10 s and the Deployment scaled down at 20 s: 10 s below."""
    tally = whole_web()
    tally.object_changed(put(deployment(2), 20))
    tally.sent(messages.deleted("a", 10))
    assert only(tally).below.total_ns == 10 * SECOND_NS


def test_a_daemon_set_wants_a_pod_on_each_node_that_it_tolerates() -> None:
    """A node that a taint repels wants none, and the pod that stays there counts as desired."""
    tally = WorkloadTally()
    tally.object_changed(put(make_daemon_set("agent")))
    for name in ("a", "b", "c"):
        tally.sent(put(make_node(name).message()))
        tally.sent(messages.added(pod(f"on-{name}", "DaemonSet", "agent", node=name)))
    tainted = make_node("b").message()
    tainted.spec.taints.add(key="k", effect="NoSchedule")
    tally.sent(put(tainted, 10))
    tally.sent(messages.deleted("on-c", 20))
    verdict = only(tally)
    assert (verdict.desired, verdict.ready) == (3, 2)
    tally.sent(messages.deleted("on-b", 110))
    assert (only(tally, 200).desired, only(tally, 200).ready) == (2, 1)
    node = meta_pb2.ObjectReference(kind="Node", name="c")
    tally.sent(scheduler_pb2.Event(time_ns=START_NS + 210 * SECOND_NS, remove=node))
    assert (only(tally, 220).desired, only(tally, 220).ready) == (1, 1)


def test_a_job_wants_the_pods_that_should_run_now() -> None:
    """Of three completions two at a time: two, then two, then one, then none."""
    tally = WorkloadTally()
    tally.object_changed(put(make_job("work", completions=3, parallelism=2)))
    desired = []
    for number, name in enumerate("abc"):
        tally.sent(messages.added(pod(name, "Job", "work"), number * 10))
        desired.append(only(tally, number * 10).desired)
        tally.sent(succeeded(name, number * 10 + 5))
    assert [*desired, only(tally).desired] == [2, 2, 1, 0]


def test_a_job_that_is_over_or_suspended_wants_nothing() -> None:
    """Failed pods of a Job that has given up are not unavailable."""
    tally = WorkloadTally()
    failed, paused = make_job("failed"), make_job("paused")
    failed.status.conditions.add(type="Failed", status="True")
    paused.spec.suspend = True
    for job in (failed, paused):
        tally.object_changed(put(job))
    assert [verdict.desired for verdict in tally.verdicts(START_NS)] == [0, 0]


def test_refused_pods_are_those_of_the_deployment_and_count_while_they_are_missing() -> None:
    """The controller that admission refuses is the ReplicaSet."""
    tally = WorkloadTally()
    tally.object_changed(put(deployment(2, class_name="critcal")))
    tally.object_changed(put(replica_set(2)))
    tally.refused("uid-web-1", 2)
    assert (only(tally).refused, only(tally).not_created) == (2, 2)
    assert (only(tally).priority_class, only(tally).priority) == ("critcal", 0)
    for name in "ab":
        tally.sent(messages.added(pod(name), 110))
    assert (only(tally, 120).refused, only(tally, 120).not_created) == (2, 0)


def test_a_missing_pod_that_nothing_refused_is_unavailable_alone() -> None:
    """A StatefulSet waits with db-1 until db-0 is ready."""
    tally = WorkloadTally()
    tally.object_changed(put(make_stateful_set("db", 2)))
    tally.sent(messages.added(pod("db-0", "StatefulSet", "db", ready=False)))
    assert (only(tally).unavailable, only(tally).not_created) == (2, 0)


def test_what_is_removed_is_forgotten() -> None:
    """With its pods nothing is left of it."""
    tally = whole_web()
    for uid, kind in (("uid-web", "Deployment"), ("uid-web-1", "ReplicaSet")):
        ref = meta_pb2.ObjectReference(kind=kind, uid=uid, namespace="default")
        tally.object_changed(scheduler_pb2.Event(time_ns=START_NS + SECOND_NS, remove=ref))
    for name in "abc":
        tally.sent(messages.deleted(name, 2))
    assert tally.verdicts(START_NS + 10 * SECOND_NS) == []
    kept = (tally._workloads, tally._children, tally._counts, tally._pods, tally._short)
    assert not any(kept)


def test_the_worst_comes_first() -> None:
    """Below its budget at the end, then by missing pods, then by the time below."""
    tally = whole_web()
    for name, replicas in (("api", 5), ("cache", 1), ("idle", 0)):
        tally.object_changed(put(deployment(replicas, name)))
    tally.sent(put(budget(3, 3)))
    tally.sent(messages.deleted("a", 10))
    tally.sent(put(budget(2, 3), 10))
    names = [verdict.name for verdict in tally.verdicts(START_NS + 20 * SECOND_NS)]
    assert names == ["web", "api", "cache", "idle"]


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_restored_tally_continues_like_an_uninterrupted_one(cut: int) -> None:
    """Wherever the run is cut."""
    tally, continued = WorkloadTally(), WorkloadTally()
    tally.object_changed(put(deployment(3)))
    continued.object_changed(put(deployment(3)))
    continued.object_changed(put(make_daemon_set("agent")))
    tally.object_changed(put(make_daemon_set("agent")))
    events = [
        put(make_node("n").message()),
        messages.added(pod("on-n", "DaemonSet", "agent")),
        put(budget(3, 3)),
        *(messages.added(pod(name, owner="web")) for name in "abc"),
        messages.deleted("a", 10),
        put(budget(2, 3), 10),
        messages.added(pod("d", owner="web"), 20),
    ]
    for number, event in enumerate(events):
        tally.sent(event)
        continued.sent(event)
        if number == cut:
            continued = load(WorkloadTally, dump(WorkloadTally, continued))
    assert continued.verdicts(START_NS + 10**12) == tally.verdicts(START_NS + 10**12)
