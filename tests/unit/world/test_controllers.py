"""ReplicaSets and Deployments."""

from __future__ import annotations

import pytest

from replay.world.controllers.workloads.refusals import next_retry_ns
from reprieve.kube.v1beta1 import workloads_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import (
    S,
    World,
    create,
    create_pod,
    delete,
    make_class,
    make_deployment,
    make_node,
    make_pod,
    make_replica_set,
    update,
)

MS = S // 1000


def expected(
    kind: str, name: str, ordinal: int, *, pod_name: str = "", service_s: int = 0
) -> trace_pb2.Record:
    """Return the record that tells how an owner's next pod lives."""
    record = trace_pb2.Record()
    made = record.controller_pod
    made.owner.kind, made.owner.namespace, made.owner.name = kind, "default", name
    made.ordinal, made.name = ordinal, pod_name
    if service_s:
        made.life.service_duration_ns = service_s * S
    return record


def place(world: World, node: str = "n") -> None:
    """Bind all pending pods to a node and let them run."""
    for pod in list(world.cluster.pending.values()):
        world.cluster.bind(0, pod, node)
        world.lifecycle.bound(0, pod)
    world.run_until(0)


def sets(world: World) -> dict[str, int]:
    """Return the replicas of each ReplicaSet by name."""
    return {
        replica_set.metadata.name: replica_set.spec.replicas
        for replica_set in world.cluster.replica_sets.values()
    }


def test_a_replica_set_makes_its_pods_and_owns_them() -> None:
    """With the template's labels, by generated names."""
    world = World()
    world.feed(0, create(make_replica_set(replicas=2)))
    assert len(world.names()) == 2
    for pod in world.cluster.pods.values():
        meta = pod.message.metadata
        assert (meta.labels["app"], meta.generate_name, pod.owner_uid) == ("web", "web-", "uid-web")
        assert meta.name.startswith("web-")
        assert meta.owner_references[0].controller
        assert pod.message.spec.HasField("priority")


def test_absent_replicas_mean_one() -> None:
    """As upstream's defaults say."""
    world = World()
    replica_set = make_replica_set()
    replica_set.spec.ClearField("replicas")
    world.feed(0, create(replica_set))
    assert len(world.names()) == 1


def test_names_and_uids_are_equal_in_two_runs_and_differ_within_one() -> None:
    """They are hashes of owner and ordinal."""
    runs = []
    for _ in range(2):
        world = World()
        world.feed(0, create(make_replica_set(replicas=50)), create(make_deployment(replicas=3)))
        runs.append([(pod.uid, pod.key) for pod in world.cluster.pods.values()])
    assert runs[0] == runs[1]
    assert len({uid for uid, _ in runs[0]}) == len({key for _, key in runs[0]}) == 53


def test_a_long_owners_name_is_cut_so_that_its_pods_names_are_not_too_long() -> None:
    """A generated name has 63 letters at most."""
    world = World()
    world.feed(0, create(make_replica_set("w" * 80)))
    (name,) = world.names()
    assert (len(name), name[:58]) == (63, "w" * 58)


def test_a_pod_is_replaced_once_it_terminates_fails_or_goes() -> None:
    """A terminating pod is not waited for."""
    world = World()
    world.feed(0, create(make_node()), create(make_replica_set(replicas=1)))
    place(world)
    (first,) = world.names()
    world.feed(S, delete("Pod", first))
    assert len(world.names()) == 2
    (second,) = (pod.message.metadata.name for pod in world.cluster.pending.values())
    world.feed(2 * S, delete("Pod", second))
    (third,) = (pod.message.metadata.name for pod in world.cluster.pending.values())
    assert len({first, second, third}) == 3


def test_a_pod_that_has_ended_is_replaced_and_stays() -> None:
    """Its object is left for users to look at."""
    world = World()
    world.feed(
        0,
        create(make_node()),
        expected("ReplicaSet", "web", 0, service_s=5),
        create(make_replica_set()),
    )
    place(world)
    world.run_until(5 * S)
    assert [pod.message.status.phase for pod in world.cluster.pods.values()] == [
        "Succeeded",
        "Pending",
    ]


def test_a_pod_takes_name_and_life_from_the_recorded_pod_of_its_ordinal() -> None:
    """The trace's own message is left as it was."""
    world = World()
    record = expected("ReplicaSet", "web", 1, pod_name="web-seen", service_s=5)
    before = record.SerializeToString(deterministic=True)
    world.feed(0, record, create(make_replica_set(replicas=2)))
    pod = world.pod("web-seen")
    assert (pod.life.service_duration_ns, world.names()[1]) == (5 * S, "web-seen")
    pod.life.usage_id = 3
    assert record.SerializeToString(deterministic=True) == before


def test_a_recorded_name_that_is_taken_gives_way() -> None:
    """The pod is made under another name, with its life."""
    world = World()
    world.feed(
        0,
        create_pod(make_pod("web-seen")),
        expected("ReplicaSet", "web", 0, pod_name="web-seen", service_s=5),
        create(make_replica_set()),
    )
    name = world.names()[1]
    assert name != "web-seen"
    assert world.pod(name).life.service_duration_ns == 5 * S


def test_recorded_pods_are_adopted_and_count_among_the_ordinals() -> None:
    """Even those that have gone before the controller first makes one."""
    world = World()
    world.feed(
        0,
        *(create_pod(make_pod(f"old-{index}", owner="web")) for index in range(2)),
        expected("ReplicaSet", "web", 2, pod_name="third"),
        create(make_replica_set(replicas=2)),
    )
    assert world.names() == ["old-0", "old-1"]
    world.feed(1, delete("Pod", "old-0"))
    assert world.names() == ["old-1", "third"]


def test_pods_that_had_ended_when_the_trace_began_do_not_count_among_the_ordinals() -> None:
    """As the importers count."""
    world = World()
    ended = make_pod("ended", owner="web", node="n")
    ended.status.phase = "Failed"
    world.feed(
        0,
        create_pod(ended),
        expected("ReplicaSet", "web", 0, pod_name="first"),
        create(make_replica_set()),
    )
    assert world.names() == ["ended", "first"]


def test_scaling_up_adds_pods_and_scaling_down_takes_the_unassigned_first() -> None:
    """Ranking is upstream's."""
    world = World()
    world.feed(0, create(make_node()), create(make_replica_set(replicas=2)))
    place(world)
    running = world.names()
    world.feed(S, update(make_replica_set(replicas=4)))
    assert len(world.names()) == 4
    world.feed(2 * S, update(make_replica_set(replicas=2)))
    assert world.names() == running


def test_a_pod_that_is_refused_is_noted_and_made_at_the_first_retry_after_its_class_comes() -> None:
    """Retries come at 5 ms, 15 ms (5 + 10), 35 ms and so on; the ordinal is not used up."""
    world = World()
    replica_set = make_replica_set(replicas=2)
    replica_set.spec.template.spec.priority_class_name = "high"
    world.feed(0, expected("ReplicaSet", "web", 0, pod_name="first"), create(replica_set))
    assert world.names() == []
    assert "no PriorityClass with name high was found" in world.refusals()[0]
    world.feed(20 * MS, create(make_class("high", 5)))
    world.run_until(34 * MS)
    assert world.names() == []
    world.run_until(35 * MS)
    assert (world.names()[0], len(world.names())) == ("first", 2)


def test_a_refused_pod_is_one_entry_until_more_pods_are_missing() -> None:
    """One for two replicas, none for a repeated refusal, one for two replicas more."""
    world = World()
    replica_set = make_replica_set(replicas=2)
    replica_set.spec.template.spec.priority_class_name = "high"
    world.feed(0, create(replica_set))
    world.feed(S, update(replica_set))
    replica_set.spec.replicas = 4
    world.feed(2 * S, update(replica_set))
    entries = [entry for entry in world.entries if entry.observed.HasField("refused")]
    assert [(entry.time_ns, entry.observed.refused.pods) for entry in entries] == [
        (0, 2),
        (2 * S, 2),
    ]
    entry = entries[0].observed
    name = entry.object.name
    assert entry.refused.message == (
        f'pods "{name}" is forbidden: no PriorityClass with name high was found'
    )
    assert (entry.refused.owner.kind, entry.refused.owner.name) == ("ReplicaSet", "web")


@pytest.mark.parametrize(
    ("kind", "now_s", "retry_s"),
    [
        ("ReplicaSet", 0, 0.005),
        ("ReplicaSet", 1, 1.275),  # 5 ms * (2**8 - 1)
        ("ReplicaSet", 2000, 2310.715),  # 18 delays make 1310.715 s; then one each 1000 s
        ("ReplicaSet", 5000, 5310.715),
        ("Job", 0, 1),
        ("Job", 3, 7),
        ("Job", 200, 243),  # 1 + 2 + ... + 32 = 63, then one each 60 s
    ],
)
def test_retries_double_up_to_the_longest_delay(kind: str, now_s: int, retry_s: float) -> None:
    """The delays of client-go's work queue, and those of the Job controller."""
    assert next_retry_ns(kind, 0, now_s * S) == round(retry_s * S)


def test_a_deployment_makes_a_replica_set_whose_pods_carry_its_hash() -> None:
    """Name, label and selector agree."""
    world = World()
    world.feed(0, create(make_deployment(replicas=2)))
    ((name, replicas),) = sets(world).items()
    (replica_set,) = world.cluster.replica_sets.values()
    hash_ = replica_set.spec.template.metadata.labels["pod-template-hash"]
    assert (name, replicas) == (f"app-{hash_}", 2)
    assert replica_set.spec.selector.match_labels["pod-template-hash"] == hash_
    pods = world.cluster.pods.values()
    assert {pod.message.metadata.labels["pod-template-hash"] for pod in pods} == {hash_}


def test_a_template_without_metadata_keeps_its_replica_set() -> None:
    """The hash's label is the only one that the ReplicaSet's template has."""
    world = World()
    for at, replicas in enumerate((1, 3)):
        deployment = make_deployment(replicas=replicas)
        deployment.spec.template.ClearField("metadata")
        world.feed(at, (create if not at else update)(deployment))
    (replica_set,) = world.cluster.replica_sets.values()
    assert replica_set.spec.replicas == 3


def test_a_recorded_replica_set_of_a_deployment_is_taken_over() -> None:
    """The one with the Deployment's template, whatever its hash is."""
    world = World()
    deployment = make_deployment(replicas=1)
    recorded = make_replica_set("app-123", replicas=1)
    recorded.spec.template.CopyFrom(deployment.spec.template)
    recorded.spec.template.metadata.labels["pod-template-hash"] = "123"
    recorded.metadata.owner_references.add(
        kind="Deployment", name="app", uid="uid-app", controller=True
    )
    world.feed(0, create(deployment), create(recorded))
    assert sets(world) == {"app-123": 1}
    assert len(world.names()) == 1


def test_a_deployment_that_begins_paused_makes_nothing() -> None:
    """It has nothing to scale."""
    world = World()
    paused = make_deployment()
    paused.spec.paused = True
    world.feed(0, create(paused))
    assert sets(world) == {}


def test_deleting_a_deployment_takes_all_that_it_owns() -> None:
    """Running pods terminate, pending ones go at once, and nobody makes them again."""
    world = World()
    world.feed(0, create(make_node()), create(make_deployment(replicas=1)))
    place(world)
    world.feed(S, update(make_deployment(replicas=2)))
    world.feed(2 * S, delete("Deployment", "app"))
    assert (sets(world), len(world.names())) == ({}, 1)
    world.run_until(100 * S)
    assert (world.names(), world.cluster.pods_by_owner) == ([], {})


def test_a_deployment_makes_its_deleted_replica_set_again() -> None:
    """Found by its name, whatever UID the trace knows it by."""
    world = World()
    world.feed(0, create(make_deployment(replicas=1)))
    (name,) = sets(world)
    (uid,) = world.cluster.replica_sets
    world.feed(1, delete("ReplicaSet", name))
    assert list(sets(world).values()) == [1]
    assert uid not in world.cluster.replica_sets
    assert len(world.names()) == 1


def test_a_replica_set_without_a_uid_keeps_the_one_it_was_given() -> None:
    """An update is of the same object; one made again after a deletion is another."""
    world = World()
    replica_set = make_replica_set()
    replica_set.metadata.uid = ""
    world.feed(0, create(replica_set))
    world.feed(1, update(replica_set))
    (uid,) = world.cluster.replica_sets
    world.feed(2, delete("ReplicaSet", "web"), create(replica_set))
    (other,) = world.cluster.replica_sets
    assert uid != other
    assert replica_set.metadata.uid == ""


def test_deleting_an_unknown_controller_is_accepted() -> None:
    """The trace may know more than this replay made."""
    world = World()
    world.feed(0, delete("ReplicaSet", "none"), delete("Deployment", "none"))
    assert world.names() == []


def test_pods_of_a_controller_that_is_not_in_the_trace_are_left_alone() -> None:
    """Nobody replaces them."""
    world = World()
    world.feed(0, create_pod(make_pod(owner="unknown")))
    world.feed(1, delete("Pod", "p"))
    assert world.names() == []
    assert world.cluster.replica_sets == dict[str, workloads_pb2.ReplicaSet]()
