"""Adoption of orphans and release of dependents, kind by kind, with answers worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from replay.hashing import name_suffix
from reprieve.kube.v1beta1 import pod_pb2, workloads_pb2
from tests.unit.world.builders import (
    S,
    World,
    create,
    create_pod,
    delete,
    make_budget,
    make_deployment,
    make_node,
    make_pod,
    make_replica_set,
    update,
)
from tests.unit.world.workloads.builders import (
    end,
    make_daemon_set,
    make_job,
    make_stateful_set,
    phases,
    place,
)

WEB = {"app": "web"}


def selecting(
    workload: workloads_pb2.ReplicaSet
    | workloads_pb2.Deployment
    | workloads_pb2.StatefulSet
    | workloads_pb2.DaemonSet
    | workloads_pb2.Job,
    **labels: str,
) -> object:
    """Give a workload the selector of its template's label app, and of `labels`."""
    app = workload.spec.template.metadata.labels["app"]
    workload.spec.selector.match_labels.update({"app": app, **labels})
    workload.spec.template.metadata.labels.update(labels)
    return workload


def bare(
    name: str, labels: Mapping[str, str], *, owner: str = "", node: str = "n", ready: bool = True
) -> pod_pb2.Pod:
    """Return a running pod of the workloads' template with these labels."""
    pod = make_pod(name, node=node, labels=labels, ready=ready)
    pod.spec.containers[0].resources.Clear()
    if owner:
        pod.metadata.owner_references.add(kind="ReplicaSet", uid=owner, controller=True)
    return pod


def relabelled(world: World, name: str, **labels: str) -> pod_pb2.Pod:
    """Return an update of a pod that has these labels and no others."""
    changed = pod_pb2.Pod()
    changed.CopyFrom(world.pod(name).message)
    changed.metadata.labels.clear()
    changed.metadata.labels.update(labels)
    return changed


def owners(world: World) -> dict[str, str]:
    """Return the UID of each pod's controller by the pod's name, "" if none."""
    return {pod.message.metadata.name: pod.owner_uid for pod in world.cluster.pods.values()}


def test_a_replica_set_adopts_an_orphan_that_its_selector_matches() -> None:
    """One of two desired pods is there already: one more is created."""
    world = World()
    world.feed(0, create_pod(bare("old", WEB)), create(selecting(make_replica_set("web", 2))))
    made = [name for name in world.names() if name != "old"]
    assert len(made) == 1
    assert owners(world) == {"old": "uid-web", made[0]: "uid-web"}
    reference = world.pod("old").message.metadata.owner_references[0]
    assert (reference.api_version, reference.kind, reference.name) == (
        "apps/v1",
        "ReplicaSet",
        "web",
    )
    sent = [event for event in world.cluster.take_events() if event.HasField("update")]
    assert [event.update.pod.metadata.owner_references[0].uid for event in sent] == ["uid-web"]


def test_a_replica_set_of_full_size_deletes_one_pod_too_many_after_an_adoption() -> None:
    """The one that goes is the orphan: it is not ready, and the other one is."""
    world = World()
    world.feed(0, create(selecting(make_replica_set("web", 1))))
    (made,) = world.names()
    place(world, 0)
    world.feed(S, create_pod(bare("old", WEB, ready=False)))
    assert phases(world) == {made: "Running", "old": "Terminating"}


@pytest.mark.parametrize("label", ["none", "other"])
def test_a_pod_that_a_user_takes_out_of_its_replica_set_is_replaced_and_stays(label: str) -> None:
    """As with `kubectl label pod web-x app-`: the pod continues, without a controller."""
    world = World()
    world.feed(0, create(selecting(make_replica_set("web", 1))))
    (quarantined,) = world.names()
    place(world, 0)
    labels = {} if label == "none" else {"app": "other"}
    world.feed(S, update(relabelled(world, quarantined, **labels)))
    (replacement,) = set(world.names()) - {quarantined}
    assert owners(world) == {quarantined: "", replacement: "uid-web"}
    assert phases(world)[quarantined] == "Running"
    assert not world.pod(quarantined).message.metadata.owner_references


def test_a_quarantined_pod_that_gets_its_label_back_is_adopted_again_and_one_pod_goes() -> None:
    """The replacement goes, which has no node yet."""
    world = World()
    world.feed(0, create(selecting(make_replica_set("web", 1))))
    (pod,) = world.names()
    place(world, 0)
    world.feed(S, update(relabelled(world, pod)))
    world.feed(2 * S, update(relabelled(world, pod, app="web")))
    assert owners(world) == {pod: "uid-web"}


def test_a_pod_of_a_snapshot_whose_labels_its_owner_does_not_select_is_released() -> None:
    """A user has edited the snapshot."""
    world = World()
    world.feed(
        0,
        create(selecting(make_replica_set("web", 1))),
        create_pod(bare("web-a", {"tier": "x"}, owner="uid-web")),
    )
    assert owners(world)["web-a"] == ""
    assert len(world.names()) == 2


def test_what_is_not_adopted() -> None:
    """Pods that terminate, that have ended, of another namespace or controller, of other labels."""
    world = World()
    terminating = bare("terminating", WEB)
    terminating.metadata.deletion_timestamp.seconds = 60
    terminating.metadata.deletion_grace_period_seconds = 30
    ended = bare("ended", WEB)
    ended.status.phase = "Succeeded"
    elsewhere = bare("elsewhere", WEB)
    elsewhere.metadata.namespace = "other"
    others = bare("others", WEB, owner="uid-unknown")
    world.feed(
        0,
        *map(create_pod, (terminating, ended, elsewhere, others, bare("unlike", {"app": "w"}))),
        create(selecting(make_replica_set("web", 0))),
    )
    expected = dict.fromkeys(("terminating", "ended", "elsewhere", "unlike"), "")
    assert owners(world) == {**expected, "others": "uid-unknown"}


@pytest.mark.parametrize("has_selector", [False, True])
def test_a_controller_without_a_selector_or_that_is_being_deleted_claims_nothing(
    has_selector: bool,
) -> None:
    """Neither adopts nor releases."""
    world = World()
    replica_set = make_replica_set("web", 1)
    if has_selector:
        selecting(replica_set)
        replica_set.metadata.deletion_timestamp.seconds = 1
    world.feed(
        0,
        create(replica_set),
        create_pod(bare("orphan", WEB)),
        create_pod(bare("unlike", {}, owner="uid-web")),
    )
    assert owners(world) == {"orphan": "", "unlike": "uid-web"}


def test_of_two_controllers_that_match_the_first_one_adopts() -> None:
    """Upstream it is whichever acts first."""
    world = World()
    first, second = make_replica_set("web", 1), make_replica_set("web", 1)
    first.metadata.name, first.metadata.uid = "first", "uid-first"
    world.feed(
        0, create(selecting(first)), create(selecting(second)), create_pod(bare("orphan", WEB))
    )
    assert owners(world)["orphan"] == "uid-first"


def test_a_replication_controller_selects_by_the_labels_of_its_template() -> None:
    """As the API server fills in."""
    world = World()
    controller = workloads_pb2.ReplicationController()
    controller.metadata.name, controller.metadata.namespace = "web", "default"
    controller.metadata.uid = "uid-web"
    controller.spec.replicas = 1
    controller.spec.template.metadata.labels.update(WEB)
    controller.spec.template.spec.containers.add(name="c")
    world.feed(0, create_pod(bare("orphan", WEB)), create(controller))
    assert owners(world) == {"orphan": "uid-web"}
    assert world.pod("orphan").message.metadata.owner_references[0].api_version == "v1"


def test_a_selector_that_its_own_template_does_not_match_is_refused() -> None:
    """As by an API server: such a controller would create pods without end."""
    world = World()
    replica_set = selecting(make_replica_set("web", 1))
    assert isinstance(replica_set, workloads_pb2.ReplicaSet)
    replica_set.spec.template.metadata.labels["app"] = "other"
    world.feed(0, create(replica_set))
    assert not world.cluster.pods
    ((kind, text),) = world.journal.notes
    assert kind == "refused"
    assert "does not match template" in text


def test_a_stateful_set_adopts_pods_of_its_names_only() -> None:
    """db-0 is there; `db-x` and `other-0` have its labels and stay without a controller."""
    world = World()
    labels = {"app": "db"}
    world.feed(
        0,
        *(create_pod(bare(name, labels)) for name in ("db-0", "db-x", "other-0")),
        create(selecting(make_stateful_set("db", 2))),
    )
    assert owners(world) == {"db-0": "uid-db", "db-x": "", "other-0": "", "db-1": "uid-db"}


def test_a_stateful_set_condemns_an_adopted_pod_beyond_its_replicas() -> None:
    """db-4 of two replicas goes."""
    world = World()
    labels = {"app": "db"}
    world.feed(
        0,
        *(create_pod(bare(name, labels)) for name in ("db-0", "db-1", "db-4")),
        create(selecting(make_stateful_set("db", 2))),
    )
    assert phases(world) == {"db-0": "Running", "db-1": "Running", "db-4": "Terminating"}


@pytest.mark.parametrize("image", ["", "new"])
def test_a_stateful_set_applied_again_replaces_orphans_of_another_template_only(image: str) -> None:
    """Deleted with --cascade=orphan and applied again, as it was or with a new image."""
    world = World()
    world.feed(
        0,
        *(create_pod(bare(name, {"app": "db"})) for name in ("db-0", "db-1")),
        create(selecting(make_stateful_set("db", 2, image=image))),
    )
    expected = "Terminating" if image else "Running"
    assert phases(world) == {"db-0": "Running", "db-1": expected}


def test_a_stateful_set_waits_for_the_name_of_a_released_pod() -> None:
    """Db-0 exists, and is nobody's: the set's own comes only once that one has gone."""
    world = World()
    world.feed(0, create(selecting(make_stateful_set("db", 1))))
    place(world, 0)
    released = world.pod("db-0").uid
    world.feed(S, update(relabelled(world, "db-0", tier="x")))
    assert owners(world) == {"db-0": ""}
    text = "StatefulSet default/db could not create a pod: pod default/db-0 exists already"
    assert ("refused", text) in world.journal.notes
    world.feed(10 * S, delete("Pod", "db-0", grace_s=0))
    world.run_until(60 * S)
    assert owners(world) == {"db-0": "uid-db"}
    assert world.pod("db-0").uid != released


def test_a_daemon_set_adopts_the_pod_of_a_node_and_makes_those_of_others() -> None:
    """Node n has one already."""
    world = World()
    world.feed(
        0,
        create(make_node("n")),
        create(make_node("m")),
        create_pod(bare("old", {"app": "agent"})),
        create(selecting(make_daemon_set("agent"))),
    )
    (made,) = set(world.names()) - {"old"}
    assert owners(world) == {"old": "uid-agent", made: "uid-agent"}
    assert phases(world) == {"old": "Running", made: "Pending"}


def test_a_daemon_set_replaces_an_adopted_pod_of_another_template() -> None:
    """Its rolling update deletes the pod, and the next one is made when it has gone."""
    world = World()
    world.feed(
        0,
        create(make_node("n")),
        create_pod(bare("old", {"app": "agent"})),
        create(selecting(make_daemon_set("agent", image="new"))),
    )
    assert phases(world) == {"old": "Terminating"}
    world.run_until(31 * S)
    assert [pod.message.spec.containers[0].image for pod in world.cluster.pods.values()] == ["new"]


def test_a_daemon_set_replaces_a_released_pod_at_once() -> None:
    """The node has two pods then, of which one is the DaemonSet's."""
    world = World()
    world.feed(0, create(make_node("n")), create(selecting(make_daemon_set("agent"))))
    (released,) = world.names()
    place(world, 0)
    world.feed(S, update(relabelled(world, released, tier="x")))
    (made,) = set(world.names()) - {released}
    assert owners(world) == {released: "", made: "uid-agent"}


def test_a_daemon_set_whose_released_pod_goes_at_the_same_moment_makes_one() -> None:
    """An update and a deletion in one instant leave no trace of the pod on its node."""
    world = World()
    world.feed(0, create(make_node("n")), create(selecting(make_daemon_set("agent"))))
    (released,) = world.names()
    place(world, 0)
    changed = relabelled(world, released, tier="x")
    changed.metadata.ClearField("owner_references")
    world.feed(S, update(changed), delete("Pod", released, grace_s=0))
    (made,) = world.names()
    assert (made != released, owners(world)) == (True, {made: "uid-agent"})


def test_a_job_counts_an_adopted_pod_and_does_not_count_a_released_one() -> None:
    """The adopted pod succeeds: one of two completions. The released one is no failure."""
    world = World()
    job = make_job("work", completions=2, parallelism=1)
    selecting(job)
    world.feed(0, create_pod(bare("orphan", {"app": "work"})), create(job))
    assert owners(world) == {"orphan": "uid-work"}
    end(world, S, "orphan")
    (second,) = set(world.names()) - {"orphan"}
    place(world, 2 * S)
    world.feed(3 * S, update(relabelled(world, second)))
    (third,) = set(world.names()) - {"orphan", second}
    assert owners(world)[second] == ""
    place(world, 4 * S)
    end(world, 5 * S, third)
    (status,) = [obj.update.job.status for obj in world.objects if obj.update.job.status.succeeded]
    assert (status.succeeded, status.failed) == (2, 0)


def test_a_finished_job_adopts_nothing() -> None:
    """A pod with its labels that comes later has no controller."""
    world = World()
    job = make_job("work", completions=1)
    selecting(job)
    world.feed(0, create(job))
    (first,) = world.names()
    place(world, 0)
    end(world, S, first)
    world.feed(2 * S, create_pod(bare("late", {"app": "work"})))
    assert owners(world)["late"] == ""


def orphaned_set(
    deployment: workloads_pb2.Deployment, *, replicas: int
) -> workloads_pb2.ReplicaSet:
    """Return the ReplicaSet that a Deployment deleted with --cascade=orphan has left."""
    made = workloads_pb2.ReplicaSet()
    made.metadata.name, made.metadata.namespace = "app-7f9c", "default"
    made.metadata.uid = "uid-app-7f9c"
    made.metadata.labels.update({"app": "app", "pod-template-hash": "7f9c"})
    made.spec.replicas = replicas
    made.spec.template.CopyFrom(deployment.spec.template)
    made.spec.template.metadata.labels["pod-template-hash"] = "7f9c"
    made.spec.template.spec.restart_policy = "Always"
    made.spec.template.spec.scheduler_name = "default-scheduler"
    made.spec.template.spec.termination_grace_period_seconds = 30
    made.spec.selector.match_labels.update({"app": "app", "pod-template-hash": "7f9c"})
    return made


@pytest.mark.parametrize("image", ["", "new"])
def test_a_deployment_applied_again_adopts_its_replica_set(image: str) -> None:
    """As it was, it changes nothing; with a new image it rolls out from the adopted set."""
    world = World()
    former = make_deployment("app", 2)
    left = orphaned_set(former, replicas=2)
    labels = dict(left.spec.template.metadata.labels)
    pods = [bare(f"app-7f9c-{letter}", labels, owner=left.metadata.uid) for letter in "ab"]
    applied = make_deployment("app", 2, image)
    selecting(applied)
    world.feed(0, create(left), *map(create_pod, pods), create(applied))
    sets = list(world.cluster.replica_sets.values())
    assert {set_.metadata.owner_references[0].uid for set_ in sets} == {"uid-app"}
    assert len(sets) == (2 if image else 1)
    assert len(world.names()) == (3 if image else 2)


def test_a_replica_set_that_a_user_takes_from_its_deployment_is_replaced() -> None:
    """Its labels do not match the Deployment's selector any more; its pods stay its own."""
    world = World()
    deployment = make_deployment("app", 1)
    selecting(deployment)
    world.feed(0, create(deployment))
    (taken,) = world.cluster.replica_sets.values()
    changed = workloads_pb2.ReplicaSet()
    changed.CopyFrom(taken)
    changed.metadata.labels["app"] = "other"
    changed.metadata.name = taken.metadata.name
    world.feed(S, update(changed))
    assert not world.cluster.replica_sets[taken.metadata.uid].metadata.owner_references
    sets = [
        replica_set
        for replica_set in world.cluster.replica_sets.values()
        if replica_set.metadata.owner_references
    ]
    assert [set_.metadata.owner_references[0].uid for set_ in sets] == ["uid-app"]


def test_a_budget_counts_adopted_pods_by_their_controller() -> None:
    """With maxUnavailable a bare pod is not expected; an adopted one is, as its set's replica."""
    for replicas, expected in ((None, 0), (1, 1)):
        world = World()
        records = [create_pod(bare("old", WEB)), create(make_budget(max_unavailable=1))]
        if replicas is not None:
            records.append(create(selecting(make_replica_set("web", replicas))))
        world.feed(0, *records)
        assert world.status().expected_pods == expected
        assert world.status().disruptions_allowed == expected


def test_adopted_pods_do_not_change_the_names_of_those_that_are_created() -> None:
    """So that two runs pair their pods."""
    world = World()
    world.feed(0, create_pod(bare("old", WEB)), create(selecting(make_replica_set("web", 2))))
    assert world.names()[1] == "web-" + name_suffix("uid-web", 0, 5)
