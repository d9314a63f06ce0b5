"""Workload objects of a list whose deletion was requested before: they make no pods any more."""

from __future__ import annotations

from typing import Any

import pytest

from services.rpc.kube.fields import set_time
from tests.unit.world.builders import (
    S,
    World,
    create,
    create_pod,
    make_deployment,
    make_node,
    make_pod,
    make_replica_set,
)


def terminating(message: Any, *finalizers: str) -> Any:
    """Return the object with a deletion timestamp and finalizers."""
    set_time(message.metadata.deletion_timestamp, 0)
    message.metadata.finalizers.extend(finalizers)
    return message


def owned_pod() -> Any:
    """Return a running pod of the ReplicaSet web, which wants two."""
    pod = make_pod("web-a", node="n", ready=True, labels={"app": "web"})
    owner = make_replica_set("web", 2).metadata
    pod.metadata.owner_references.add(
        kind="ReplicaSet", name=owner.name, uid=owner.uid, controller=True
    )
    return pod


@pytest.mark.parametrize(
    ("finalizers", "left"),
    [
        ((), []),
        (("foregroundDeletion",), []),
        (("foregroundDeletion", "example.com/backup"), []),
        (("orphan",), ["web-a"]),
        (("example.com/backup",), ["web-a"]),
    ],
)
def test_a_set_that_is_being_deleted_makes_no_pods(
    finalizers: tuple[str, ...], left: list[str]
) -> None:
    """What it owns goes, unless it is orphaned, or the set itself waits for somebody else."""
    world = World()
    replica_set = terminating(make_replica_set("web", 2), *finalizers)
    world.feed(0, create(make_node()), create(replica_set), create_pod(owned_pod()))
    world.run_until(60 * S)
    assert world.names() == left
    assert not [what for _, what, _ in world.log() if what == "created"]


def test_a_deployment_that_is_being_deleted_takes_its_sets_and_their_pods() -> None:
    """And makes no set of its own."""
    world = World()
    deployment = terminating(make_deployment("site", 2), "foregroundDeletion")
    replica_set = make_replica_set("web", 2)
    replica_set.metadata.owner_references.add(
        kind="Deployment", name="site", uid=deployment.metadata.uid, controller=True
    )
    world.feed(
        0, create(make_node()), create(deployment), create(replica_set), create_pod(owned_pod())
    )
    world.run_until(60 * S)
    assert (world.names(), world.cluster.replica_sets, world.cluster.deployments) == ([], {}, {})
