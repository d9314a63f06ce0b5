"""A replay notes fields that it does not simulate, as `validate` warns about them."""

from __future__ import annotations

from replay.trace.validate import NO_DEVICES
from reprieve.kube.v1beta1.pod_pb2 import PodSpec
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import (
    World,
    create,
    create_pod,
    make_deployment,
    make_pod,
    make_replica_set,
    update,
)


def ask(spec: PodSpec) -> None:
    """Set fields that are not simulated."""
    spec.resource_claims.add(name="gpu")


def noted(world: World) -> int:
    """Return how often the feature was noted."""
    return world.journal.notes["not-simulated", NO_DEVICES]


def test_each_pod_counts_with_and_without_a_template() -> None:
    """One text with its count; a pod that is refused does not count."""
    world = World()
    record = trace_pb2.Record(template=trace_pb2.Template(id=1, pod=make_pod()))
    record.template.pod.metadata.ClearField("uid")
    ask(record.template.pod.spec)
    world.feed(0, record)
    assert noted(world) == 0
    for name in ("a", "b"):
        made = trace_pb2.Record()
        made.pod_create.template_id = 1
        made.pod_create.pod.metadata.name = name
        world.feed(0, made)
    bare = make_pod("c")
    ask(bare.spec)
    world.feed(0, create_pod(bare))
    world.feed(0, create_pod(bare))
    assert (noted(world), len(world.refusals())) == (3, 1)


def test_a_controllers_template_counts_once() -> None:
    """However often its status is updated."""
    world = World()
    replica_set, deployment = make_replica_set(), make_deployment()
    for controller in (replica_set, deployment):
        ask(controller.spec.template.spec)
        world.feed(0, create(controller), update(controller))
    assert noted(world) == 2


def test_a_feature_that_an_update_brings_counts() -> None:
    """The template changes; the controller was known."""
    world = World()
    deployment = make_deployment()
    world.feed(0, create(deployment))
    ask(deployment.spec.template.spec)
    world.feed(1, update(deployment))
    assert noted(world) == 1
