"""Nothing is created in a namespace that is being deleted."""

from __future__ import annotations

import pytest

from reprieve.kube.v1beta1 import namespace_pb2
from services.rpc.kube.fields import set_time
from tests.unit.world.builders import (
    World,
    create,
    create_pod,
    delete,
    make_node,
    make_pod,
    make_replica_set,
    update,
)

FORBIDDEN = "unable to create new content in namespace default because it is being terminated"


def make_namespace(phase: str = "Active", *, deleted: bool = False) -> namespace_pb2.Namespace:
    """Return the namespace of the tests' pods."""
    made = namespace_pb2.Namespace()
    made.metadata.name, made.status.phase = "default", phase
    if deleted:
        set_time(made.metadata.deletion_timestamp, 0)
    return made


@pytest.mark.parametrize("deleted", [False, True])
def test_a_pod_in_a_namespace_that_is_being_deleted_is_refused(*, deleted: bool) -> None:
    """In the API server's words, for a user's pod and for a controller's; what exists stays."""
    world = World()
    phase = "Active" if deleted else "Terminating"
    there = create_pod(make_pod("there", node="n", ready=True))
    world.feed(0, create(make_node()), there, create(make_namespace(phase, deleted=deleted)))
    world.feed(0, create_pod(make_pod("new")), create(make_replica_set("web", 1)))
    assert world.names() == ["there"]
    assert sum(FORBIDDEN in text for text in world.refusals()) == 2
    notes = [text for kind, text in world.journal.notes if kind == "not-simulated"]
    assert notes[0].startswith("Namespace default is being deleted: ")


def test_a_namespace_that_is_there_again_takes_pods() -> None:
    """It was deleted and created; one that is updated is not deleted either."""
    world = World()
    world.feed(0, create(make_node()), create(make_namespace("Terminating")))
    world.feed(0, delete("Namespace", "default"), create_pod(make_pod("a")))
    world.feed(0, update(make_namespace("Active")), create_pod(make_pod("b")))
    assert world.names() == ["a", "b"]
