"""StatefulSets."""

from __future__ import annotations

from reprieve.kube.v1beta1 import object_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import S, World, create, create_pod, delete, make_pod, update
from tests.unit.world.workloads.builders import end, make_stateful_set, phases, place


def test_pods_come_one_after_the_other_each_once_the_one_before_is_ready() -> None:
    """By number."""
    world = World()
    world.feed(0, create(make_stateful_set(replicas=3)))
    assert world.names() == ["db-0"]
    place(world, 0)
    assert world.names() == ["db-0", "db-1"]
    place(world, S)
    place(world, 2 * S)
    assert phases(world) == {"db-0": "Running", "db-1": "Running", "db-2": "Running"}
    meta = world.pod("db-2").message.metadata
    assert meta.labels["statefulset.kubernetes.io/pod-name"] == "db-2"
    assert meta.labels["apps.kubernetes.io/pod-index"] == "2"


def test_a_parallel_set_makes_and_deletes_all_at_once() -> None:
    """Nobody is waited for."""
    world = World()
    world.feed(0, create(make_stateful_set(replicas=3, policy="Parallel")))
    assert world.names() == ["db-0", "db-1", "db-2"]
    world.feed(S, update(make_stateful_set(replicas=1, policy="Parallel")))
    assert world.names() == ["db-0"]


def test_ordinals_begin_at_the_sets_start() -> None:
    """spec.ordinals.start."""
    world = World()
    message = make_stateful_set(replicas=2, policy="Parallel")
    message.spec.ordinals.start = 5
    world.feed(0, create(message))
    assert world.names() == ["db-5", "db-6"]


def test_a_pod_that_goes_is_made_again_under_its_name_once_it_has_gone() -> None:
    """With another UID; a ReplicaSet would not have waited."""
    world = World()
    world.feed(0, create(make_stateful_set(replicas=1)))
    place(world, 0)
    first = world.pod("db-0").uid
    world.feed(S, delete("Pod", "db-0"))
    assert phases(world) == {"db-0": "Terminating"}
    world.run_until(31 * S)
    assert phases(world) == {"db-0": "Pending"}
    assert world.pod("db-0").uid != first


def test_a_pod_that_has_ended_is_deleted_and_made_again_even_if_it_succeeded() -> None:
    """A StatefulSet's pods are to run for ever."""
    for failed in (False, True):
        world = World()
        world.feed(0, create(make_stateful_set(replicas=1)))
        place(world, 0)
        end(world, S, "db-0", failed=failed)
        assert phases(world) == {"db-0": "Pending"}


def test_the_same_pods_are_made_in_two_runs_whatever_happened_to_other_numbers() -> None:
    """The second db-1 has one UID, whether or not db-0 was replaced before."""
    uids = []
    for disturbed in (False, True):
        world = World()
        world.feed(0, create(make_stateful_set(replicas=2)))
        place(world, 0)
        place(world, 0)
        if disturbed:
            world.feed(S, delete("Pod", "db-0", grace_s=0))
            place(world, 2 * S)
        world.feed(3 * S, delete("Pod", "db-1", grace_s=0))
        uids.append(world.pod("db-1").uid)
    assert uids[0] == uids[1]


def test_an_ordered_set_shrinks_from_the_highest_number_one_at_a_time() -> None:
    """The next goes when the one before has gone."""
    world = World()
    world.feed(0, create(make_stateful_set(replicas=3)))
    for at_s in range(3):
        place(world, at_s * S)
    world.feed(5 * S, update(make_stateful_set(replicas=1)))
    assert phases(world) == {"db-0": "Running", "db-1": "Running", "db-2": "Terminating"}
    world.run_until(35 * S)
    assert phases(world) == {"db-0": "Running", "db-1": "Terminating"}
    world.run_until(100 * S)
    assert phases(world) == {"db-0": "Running"}


def test_a_new_template_replaces_pods_from_the_highest_number_down_to_the_partition() -> None:
    """Each once the one before is ready again."""
    world = World()
    world.feed(0, create(make_stateful_set(replicas=3, image="a")))
    for at_s in range(3):
        place(world, at_s * S)
    message = make_stateful_set(replicas=3, image="b")
    message.spec.update_strategy.rolling_update.partition = 1
    world.feed(5 * S, update(message))
    for at_s in (35, 65, 95):
        world.run_until(at_s * S)
        place(world, at_s * S)
    images = {
        pod.message.metadata.name: pod.message.spec.containers[0].image
        for pod in world.cluster.pods.values()
    }
    assert images == {"db-0": "a", "db-1": "b", "db-2": "b"}


def test_min_ready_seconds_hold_the_next_pod_back() -> None:
    """Looked at again when they are over."""
    world = World()
    message = make_stateful_set(replicas=2)
    message.spec.min_ready_seconds = 10
    world.feed(0, create(message))
    place(world, 0)
    assert world.names() == ["db-0"]
    world.run_until(10 * S)
    assert world.names() == ["db-0", "db-1"]


def test_recorded_pods_are_adopted_and_their_lives_are_reused_by_name() -> None:
    """The next db-0 lives as the next recorded db-0 did."""
    world = World()
    record = trace_pb2.Record()
    made = record.controller_pod
    made.owner.kind, made.owner.namespace, made.owner.name = "StatefulSet", "default", "db"
    made.ordinal, made.name, made.life.service_duration_ns = 7, "db-0", 9 * S
    pod = make_pod("db-0", owner="db", node="n", ready=True)
    pod.metadata.owner_references[0].kind = "StatefulSet"
    world.feed(0, record, create_pod(pod), create(make_stateful_set(replicas=1)))
    assert world.names() == ["db-0"]
    world.feed(S, delete("Pod", "db-0", grace_s=0))
    assert world.pod("db-0").life.service_duration_ns == 9 * S


def test_a_claim_is_made_bound_unless_its_class_waits_for_the_first_consumer() -> None:
    """No volume controller is simulated."""
    world = World()
    late = object_pb2.KubernetesObject()
    late.storage_class.metadata.name = "late"
    late.storage_class.volume_binding_mode = "WaitForFirstConsumer"
    message = make_stateful_set(replicas=1)
    for name, class_ in (("data", "late"), ("logs", "now")):
        claim = message.spec.volume_claim_templates.add()
        claim.metadata.name, claim.spec.storage_class_name = name, class_
        claim.spec.resources.requests["storage"] = "1Gi"
    world.feed(0, trace_pb2.Record(create=late), create(message))
    claims = {
        event.add.persistent_volume_claim.metadata.name: event.add.persistent_volume_claim
        for event in world.cluster.events
        if event.add.HasField("persistent_volume_claim")
    }
    assert claims["data-db-0"].spec.volume_name == ""
    assert claims["logs-db-0"].spec.volume_name.startswith("pvc-")
    volumes = world.pod("db-0").message.spec.volumes
    assert [volume.persistent_volume_claim.claim_name for volume in volumes] == list(claims)
    world.events()
    world.feed(1, delete("Pod", "db-0"))
    assert not any(event.add.HasField("persistent_volume_claim") for event in world.cluster.events)
    assert world.names() == ["db-0"]


def test_deleting_a_set_takes_its_pods() -> None:
    """Nobody makes them again."""
    world = World()
    world.feed(0, create(make_stateful_set()))
    world.feed(1, delete("StatefulSet", "db"))
    assert world.names() == []
