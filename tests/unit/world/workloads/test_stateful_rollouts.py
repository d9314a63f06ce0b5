"""Rolling updates of StatefulSets, with times that were reasoned by hand.

Pods are bound at once and ready 10 s later; a deleted one takes its whole grace period of 30 s.
"""

from __future__ import annotations

import pytest

from replay.world.models import Models
from reprieve.kube.v1beta1 import workloads_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import (
    S,
    World,
    create,
    create_pod,
    delete,
    make_node,
    make_pod,
    update,
)
from tests.unit.world.workloads.builders import make_stateful_set, phases, place


def db(
    image: str, replicas: int = 4, *, policy: str = "Parallel", unavailable: int | str = 2
) -> workloads_pb2.StatefulSet:
    """Return a version of the StatefulSet, named by its image."""
    made = make_stateful_set(replicas=replicas, policy=policy, image=image)
    bound = made.spec.update_strategy.rolling_update.max_unavailable
    if isinstance(unavailable, str):
        bound.string_value = unavailable
    else:
        bound.int_value = unavailable
    return made


def live(world: World, from_s: int, until_s: int) -> list[tuple[int, str]]:
    """Let time pass and bind new pods at once; return when which pods were deleted and made."""
    before, seen = terminating(world, ""), []
    at_ns = from_s * S
    while at_ns <= until_s * S:
        world.run_until(at_ns)
        while world.cluster.pending:
            place(world, at_ns)
        now = terminating(world, "-")
        at_s = at_ns // S
        seen += [(at_s, f"-{name}") for name in now if now[name] and not before.get(name)]
        seen += [(at_s, f"+{name}") for name in now if not now[name] and before.get(name)]
        before = now
        at_ns = world.timeline.next_ns() or (until_s + 1) * S
    return seen


def terminating(world: World, when: str) -> dict[str, bool]:
    """Return whether each pod terminates, by its number; all False without `when`."""
    return {
        name.removeprefix("db-"): bool(when) and phase == "Terminating"
        for name, phase in sorted(phases(world).items())
    }


def running(
    stateful_set: workloads_pb2.StatefulSet, *, reads: bool = True, version: str = ""
) -> World:
    """Return a world in which all pods are ready, at 100 s."""
    models = Models(ready_delay_ns=10 * S, stateful_max_unavailable=reads)
    world = World(models=models)
    header = trace_pb2.Record(header=trace_pb2.Header(kubernetes_version=version))
    world.feed(0, header, create(make_node()), create(stateful_set))
    live(world, 0, 99)
    return world


def images(world: World) -> dict[str, str]:
    """Return each pod's image by name."""
    pods = world.cluster.pods.values()
    return {pod.message.metadata.name: pod.message.spec.containers[0].image for pod in pods}


def test_a_parallel_set_replaces_as_many_as_may_be_unavailable() -> None:
    """Two by two: 30 s to terminate, 10 s to be ready."""
    world = running(db("a"))
    world.feed(100 * S, update(db("b")))
    assert live(world, 100, 500) == [
        (100, "-2"),
        (100, "-3"),
        (130, "+2"),
        (130, "+3"),
        (140, "-0"),
        (140, "-1"),
        (170, "+0"),
        (170, "+1"),
    ]
    assert set(images(world).values()) == {"b"}


def test_an_ordered_set_deletes_them_together_and_makes_them_one_after_the_other() -> None:
    """As it makes its pods: the lower number first, the next once that one is ready."""
    world = running(db("a", policy="OrderedReady"))
    world.feed(100 * S, update(db("b", policy="OrderedReady")))
    deleted = [step for step in live(world, 100, 500) if step[1].startswith("-")]
    assert deleted == [(100, "-2"), (100, "-3"), (150, "-0"), (150, "-1")]


def test_the_bound_in_percent_rounds_down_to_one_at_least() -> None:
    """20 % of 4 are 0."""
    world = running(db("a", unavailable="20%"))
    world.feed(100 * S, update(db("b", unavailable="20%")))
    assert live(world, 100, 139) == [(100, "-3"), (130, "+3")]


@pytest.mark.parametrize(
    ("version", "first"), [("v1.34.1", ["-3"]), ("", ["-3"]), ("v1.36.2", ["-2", "-3"])]
)
def test_the_bound_is_read_from_v1_35_on(version: str, first: list[str]) -> None:
    """Before, the gate is off: a note says so, and pods are replaced one after the other."""
    world = running(db("a"), reads=False, version=version)
    world.feed(100 * S, update(db("b")))
    assert live(world, 100, 129) == [(100, name) for name in first]
    notes = [text for kind, text in world.journal.notes if kind == "not-simulated"]
    assert bool(notes) == (len(first) == 1)


def snapshot(partition: int) -> World:
    """Return a world in the middle of an update: db-2 has the new template, db-0 and db-1 not."""
    world = World(models=Models(ready_delay_ns=10 * S))
    message = db("b", 3, unavailable=1)
    message.spec.update_strategy.rolling_update.partition = partition
    message.status.current_revision, message.status.update_revision = "db-old", "db-new"
    records = [create(make_node()), create(message)]
    for number, (image, revision) in enumerate((("a", "old"), ("a", "old"), ("b", "new"))):
        pod = make_pod(f"db-{number}", node="n", owner="db", ready=True)
        pod.metadata.owner_references[0].kind = "StatefulSet"
        pod.metadata.labels["controller-revision-hash"] = f"db-{revision}"
        pod.spec.containers[0].image = image
        records.append(create_pod(pod))
    world.feed(0, *records)
    return world


def test_a_snapshot_in_the_middle_of_an_update_continues_it() -> None:
    """Its status and the labels of its pods say which ones are old."""
    world = snapshot(partition=0)
    deleted = [step for step in live(world, 0, 200) if step[1].startswith("-")]
    assert deleted == [(0, "-1"), (40, "-0")]
    assert set(images(world).values()) == {"b"}


def test_a_pod_below_the_partition_is_made_again_from_the_old_template() -> None:
    """It is inferred from the pods of that template, as its revision is not in the trace."""
    world = snapshot(partition=2)
    assert live(world, 0, 100) == []
    world.feed(100 * S, delete("Pod", "db-0"), delete("Pod", "db-1"))
    live(world, 100, 200)
    assert images(world) == {"db-0": "a", "db-1": "a", "db-2": "b"}


@pytest.mark.parametrize(
    ("strategy", "partition", "text"),
    [
        ("OnDelete", 0, "its pods are deleted, with 0 of 4 pods updated and 4 of older templates"),
        ("RollingUpdate", 3, "partition 3: its rollout ends there, with 1 of 4 pods updated and 3"),
        ("RollingUpdate", 0, "at the end: 2 of 4 pods are updated, 2 are of older templates"),
    ],
)
def test_a_rollout_that_is_not_finished_is_noted(strategy: str, partition: int, text: str) -> None:
    """It waits for deletions, ends at a partition, or is under way; later it is finished."""
    world = running(db("a"), reads=True)
    assert list(world.workloads.unfinished_rollouts(99 * S)) == []
    message = db("b")
    message.spec.update_strategy.type = strategy
    message.spec.update_strategy.rolling_update.partition = partition
    world.feed(100 * S, update(message))
    live(world, 100, 139)
    (note,) = world.workloads.unfinished_rollouts(139 * S)
    assert note.startswith("StatefulSet default/db ")
    assert text in note
    world.feed(500 * S, update(db("b")))
    live(world, 500, 900)
    assert list(world.workloads.unfinished_rollouts(900 * S)) == []
