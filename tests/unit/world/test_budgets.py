"""The disruption controller's counts."""

from __future__ import annotations

import pytest

from replay.world.models import Models
from reprieve.kube.v1beta1 import policy_pb2, workloads_pb2
from reprieve.trace.v1beta1 import trace_pb2
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

APP = {"app": "web"}


def make_world(
    budget: policy_pb2.PodDisruptionBudget, pods: int, *, ready: int, owner: str = "web"
) -> World:
    """Return a world with a budget over `pods` pods of a ReplicaSet, of which `ready` are ready."""
    world = World()
    world.feed(0, create(make_node()), create(budget))
    for index in range(pods):
        pod = make_pod(f"p{index}", node="n", labels=APP, owner=owner, ready=index < ready)
        world.inputs.feed(0, create_pod(pod))
    if owner:
        world.inputs.feed(0, create(make_replica_set(owner, replicas=pods)))
    world.settle(0)
    return world


def counts(world: World) -> tuple[int, int, int, int]:
    """Return healthy, desired, expected and allowed."""
    status = world.status()
    return (
        status.current_healthy,
        status.desired_healthy,
        status.expected_pods,
        status.disruptions_allowed,
    )


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"min_available": 3}, (5, 3, 6, 2)),
        ({"min_available": 9}, (5, 9, 6, 0)),
        ({"min_available": "50%"}, (5, 3, 6, 2)),
        ({"min_available": "51%"}, (5, 4, 6, 1)),
        ({"max_unavailable": 2}, (5, 4, 6, 1)),
        ({"max_unavailable": 9}, (5, 0, 6, 5)),
        ({"max_unavailable": "20%"}, (5, 4, 6, 1)),
        ({}, (5, 0, 0, 0)),
    ],
)
def test_a_budget_counts(bounds: dict[str, int | str], expected: tuple[int, int, int, int]) -> None:
    """Numbers and percentages of both kinds; percentages round up."""
    world = make_world(make_budget(**bounds), 6, ready=5)  # type: ignore[arg-type] # by name
    assert counts(world) == expected
    assert world.status().observed_generation == 3


def test_pods_without_a_controller_count_with_a_number_in_min_available_only() -> None:
    """Percentages and maxUnavailable are of the controllers' scales."""
    assert counts(make_world(make_budget(min_available=1), 3, ready=3, owner="")) == (3, 1, 3, 2)
    assert counts(make_world(make_budget(min_available="50%"), 3, ready=3, owner="")) == (
        3,
        0,
        0,
        0,
    )
    assert counts(make_world(make_budget(max_unavailable=1), 3, ready=3, owner="")) == (3, 0, 0, 0)


def test_a_controller_without_a_known_scale_allows_nothing_and_leaves_the_rest() -> None:
    """Upstream's fail-safe; the generation counts as not observed."""
    world = World()
    world.feed(
        0,
        create(make_budget(max_unavailable=1)),
        create_pod(make_pod(node="n", labels=APP, owner="job", ready=True)),
    )
    assert counts(world) == (0, 0, 0, 0)
    assert world.status().observed_generation == 0


@pytest.mark.parametrize("kind", [workloads_pb2.StatefulSet, workloads_pb2.ReplicationController])
def test_unsupported_controllers_are_counted_by_their_scale(
    kind: type[workloads_pb2.StatefulSet | workloads_pb2.ReplicationController],
) -> None:
    """Until they are deleted."""
    world = World()
    controller = kind()
    controller.metadata.name, controller.metadata.namespace = "db", "default"
    controller.metadata.uid = "uid-db"
    controller.spec.replicas = 3
    world.feed(
        0,
        create(controller),
        create(make_budget(max_unavailable=1)),
        create_pod(make_pod(node="n", labels=APP, owner="db", ready=True)),
    )
    assert counts(world) == (1, 2, 3, 0)
    world.feed(1, delete(kind.DESCRIPTOR.name, "db"))
    assert world.cluster.scales == {}


def test_a_deployments_scale_counts_once_for_all_its_replica_sets() -> None:
    """During a roll-out its pods belong to two ReplicaSets."""
    world = World()
    world.feed(
        0, create(make_node()), create(make_budget(max_unavailable=1, labels={"app": "app"}))
    )
    world.feed(0, create(make_deployment(replicas=3, image="a")))
    for pod in list(world.cluster.pods.values()):
        world.cluster.bind(0, pod, "n")
        world.lifecycle.bound(0, pod)
    world.run_until(0)
    world.feed(S, update(make_deployment(replicas=3, image="b")))
    assert len(world.cluster.replica_sets) == 2
    assert len(world.names()) == 4
    assert world.status().expected_pods == 3


def test_terminating_pods_are_not_healthy_but_are_there() -> None:
    """ExpectedPods of a plain number counts all pods."""
    world = make_world(make_budget(min_available=1), 3, ready=3, owner="")
    world.feed(S, delete("Pod", "p0"))
    assert counts(world) == (2, 1, 3, 1)
    world.run_until(100 * S)
    assert counts(world) == (2, 1, 2, 1)


def test_labels_decide_and_may_change() -> None:
    """A budget without a selector covers nothing, an empty one its whole namespace."""
    world = make_world(make_budget(min_available=0), 1, ready=1, owner="")
    pod = make_pod("p0", labels={"app": "other"})
    world.feed(1, update(pod))
    assert counts(world)[2] == 0
    everything = make_budget(min_available=0, labels={})
    everything.spec.selector.SetInParent()
    world.feed(2, update(everything))
    assert counts(world)[2] == 1
    nothing = make_budget(min_available=0)
    nothing.spec.ClearField("selector")
    world.feed(3, update(nothing))
    assert counts(world)[2] == 0


def test_other_namespaces_do_not_count() -> None:
    """Budgets are of one namespace."""
    world = make_world(make_budget(min_available=0), 1, ready=1, owner="")
    pod = make_pod("q", node="n", labels=APP, ready=True)
    pod.metadata.namespace = "other"
    world.feed(1, create_pod(pod))
    assert counts(world)[2] == 1


def test_granted_disruptions_count_as_unhealthy_until_they_are_over_or_given_up() -> None:
    """2 min after the grant, and at once when the pod terminates or is not there."""
    budget = make_budget(min_available=1)
    for name in ("p0", "p1", "gone"):
        budget.status.disrupted_pods[name].FromNanoseconds(10 * S)
    world = World()
    world.feed(
        10 * S,
        create(make_node()),
        create(budget),
        *(
            create_pod(make_pod(f"p{index}", node="n", labels=APP, ready=True))
            for index in range(4)
        ),
    )
    assert counts(world) == (2, 1, 4, 1)
    assert sorted(world.status().disrupted_pods) == ["p0", "p1"]
    world.feed(20 * S, delete("Pod", "p1"))
    assert (sorted(world.status().disrupted_pods), counts(world)) == (["p0"], (2, 1, 4, 1))
    world.run_until(130 * S)
    assert sorted(world.status().disrupted_pods) == ["p0"]
    world.run_until(131 * S)
    assert (sorted(world.status().disrupted_pods), counts(world)) == ([], (3, 1, 3, 2))


def test_a_users_update_leaves_the_status_to_the_controller() -> None:
    """What the message brings as its status is not read."""
    world = make_world(make_budget(min_available=1), 3, ready=3, owner="")
    changed = make_budget(min_available=2)
    changed.status.disruptions_allowed = 99
    changed.status.disrupted_pods["p0"].FromNanoseconds(0)
    world.feed(1, update(changed))
    assert counts(world) == (3, 2, 3, 1)
    assert changed.status.disruptions_allowed == 99


def test_an_unchanged_status_is_not_reported() -> None:
    """A status is written only when it changes."""
    world = make_world(make_budget(min_available=1), 3, ready=3, owner="")
    version = world.cluster.budgets["default/b"].metadata.resource_version
    world.feed(1, create_pod(make_pod("stranger")))
    world.cluster.status_changed(1, world.pod("p0"))
    world.settle(1)
    assert world.cluster.budgets["default/b"].metadata.resource_version == version


def test_a_deleted_budget_is_forgotten() -> None:
    """And an unknown one is accepted."""
    world = make_world(make_budget(min_available=1), 1, ready=1, owner="")
    world.events()
    world.feed(1, delete("PodDisruptionBudget", "b"), delete("PodDisruptionBudget", "b"))
    assert world.events() == ["remove"]
    world.feed(2, delete("Pod", "p0"))
    assert world.cluster.budgets == {}


def test_recorded_statuses_are_used_only_on_request() -> None:
    """They are observations otherwise."""
    observed = trace_pb2.Record()
    observed.observed.object.namespace, observed.observed.object.name = "default", "b"
    observed.observed.budget_status.status.disruptions_allowed = 7
    for recorded, allowed in ((True, 7), (False, 0)):
        world = World(models=Models(recorded_budget_status=recorded))
        world.feed(0, create(make_budget(min_available=1)), observed)
        world.feed(1, create_pod(make_pod(labels=APP)))
        assert world.status().disruptions_allowed == allowed


def test_a_budget_that_cannot_be_read_is_refused_whole() -> None:
    """The one that was there stays."""
    world = make_world(make_budget(min_available=1), 1, ready=1, owner="")
    before = policy_pb2.PodDisruptionBudget()
    before.CopyFrom(world.cluster.budgets["default/b"])
    world.feed(1, update(make_budget(min_available="many")))
    assert len(world.refusals()) == 1
    assert world.cluster.budgets["default/b"] == before
