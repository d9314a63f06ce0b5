"""Nodes that are drained, fall silent, come back, and go; taints that take pods."""

from __future__ import annotations

import pytest

from replay.world.models import Models
from reprieve.kube.v1beta1 import node_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import (
    S,
    World,
    create,
    create_pod,
    delete,
    make_budget,
    make_node,
    make_pod,
    make_replica_set,
    update,
)
from tests.unit.world.workloads.builders import make_daemon_set, phases, place

DRAIN = trace_pb2.NODE_ACTION_TYPE_DRAIN
FAIL = trace_pb2.NODE_ACTION_TYPE_FAIL
RECOVER = trace_pb2.NODE_ACTION_TYPE_RECOVER
UNREACHABLE = "node.kubernetes.io/unreachable"


def action(type_: trace_pb2.NodeActionType.ValueType, node: str = "n") -> trace_pb2.Record:
    """Return the record of an action on a node."""
    return trace_pb2.Record(node_action=trace_pb2.NodeAction(node_name=node, type=type_))


def running(name: str) -> trace_pb2.Record:
    """Return the record of a pod that runs on node n."""
    return create_pod(make_pod(name, node="n", ready=True, labels={"app": "web"}))


def taints(world: World, node: str = "n") -> set[tuple[str, str]]:
    """Return a node's taints."""
    return {(taint.key, taint.effect) for taint in world.cluster.nodes[node].spec.taints}


def causes(world: World) -> dict[str, str]:
    """Return why each pod that is no more was removed."""
    return {
        entry.observed.object.name: entry.observed.removed.cause
        for entry in world.entries
        if entry.observed.HasField("removed")
    }


def test_a_drain_cordons_the_node_and_evicts_all_but_daemon_pods() -> None:
    """In the words of the Eviction API."""
    world = World()
    world.feed(0, create(make_node()), create(make_daemon_set()), running("a"), running("b"))
    place(world, 0)
    world.feed(S, action(DRAIN))
    assert world.cluster.nodes["n"].spec.unschedulable
    assert taints(world) == {("node.kubernetes.io/unschedulable", "NoSchedule")}
    daemon = next(name for name in world.names() if name.startswith("agent"))
    assert phases(world) == {daemon: "Running", "a": "Terminating", "b": "Terminating"}
    reasons = {
        condition.type: condition.reason for condition in world.pod("a").message.status.conditions
    }
    assert reasons["DisruptionTarget"] == "EvictionByEvictionAPI"
    world.run_until(100 * S)
    assert causes(world) == {"a": "drained", "b": "drained"}


def test_a_drain_takes_what_the_budget_allows_and_tries_again_every_five_seconds() -> None:
    """The next goes once the one before has gone and a replacement is there."""
    world = World()
    world.feed(
        0,
        create(make_node()),
        create(make_node("other")),
        create(make_replica_set(replicas=2)),
        create(make_budget(min_available=1)),
    )
    place(world, 0)
    world.feed(S, action(DRAIN))
    assert sorted(phases(world).values()) == ["Pending", "Running", "Terminating"]
    (note,) = [text for kind, text in world.journal.notes if kind == "drain"]
    assert "would violate the pod's disruption budget" in note
    world.run_until(10 * S)
    assert sorted(phases(world).values()) == ["Pending", "Running", "Terminating"]
    place(world, 10 * S, "other")
    world.run_until(11 * S)
    assert sorted(phases(world).values()) == ["Pending", "Running", "Terminating", "Terminating"]


def test_a_drain_that_a_budget_never_allows_keeps_no_replay_going() -> None:
    """Until the budget lets it go on."""
    world = World()
    world.feed(0, create(make_node()), create(make_replica_set(replicas=1)))
    world.feed(0, create(make_budget(min_available=1)))
    place(world, 0)
    world.feed(S, action(DRAIN))
    assert world.timeline.is_idle
    world.feed(2 * S, delete("PodDisruptionBudget", "b"))
    assert not world.timeline.is_idle
    world.run_until(6 * S)
    assert "Terminating" in phases(world).values()


def test_a_pod_under_two_budgets_is_never_evicted() -> None:
    """The Eviction API does not support it."""
    world = World()
    budgets = [create(make_budget(name, min_available=0)) for name in "ab"]
    world.feed(0, create(make_node()), running("p"), *budgets)
    world.feed(S, action(DRAIN))
    assert phases(world) == {"p": "Running"}


def test_a_pod_that_is_not_ready_goes_where_its_budget_is_healthy_without_it() -> None:
    """And always where the budget says so."""
    for policy, gone in (("", False), ("AlwaysAllow", True)):
        world = World()
        budget = make_budget(min_available=1)
        budget.spec.unhealthy_pod_eviction_policy = policy
        world.feed(0, create(make_node()), running("p"), create(budget))
        world.pod("p").message.status.conditions[0].status = "False"
        world.feed(S, update(budget))
        world.feed(S, action(DRAIN))
        assert world.pod("p").is_terminating is gone


def test_a_silent_node_is_unknown_after_fifty_seconds_and_loses_its_pods_after_305_more() -> None:
    """It falls silent at 1 s: Unknown at the look at 55 s, tainted at the next, 300 s tolerated.

    Its pods terminate and are replaced; they are gone once it has come back.
    """
    world = World()
    world.feed(0, create(make_node()), create(make_node("other")))
    world.feed(0, create(make_replica_set(replicas=1)))
    place(world, 0)
    (first,) = world.names()
    world.feed(S, action(FAIL))
    world.run_until(54 * S)
    assert (taints(world), phases(world)) == (set(), {first: "Running"})
    world.run_until(55 * S)
    assert taints(world) == {(UNREACHABLE, "NoSchedule")}
    states = {
        condition.type: condition.status for condition in world.cluster.nodes["n"].status.conditions
    }
    assert (states, world.pod(first).is_ready) == ({"Ready": "Unknown"}, False)
    world.run_until(60 * S)
    assert taints(world) == {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
    world.run_until(359 * S)
    assert phases(world) == {first: "Running"}
    world.run_until(360 * S)
    assert sorted(phases(world).values()) == ["Pending", "Terminating"]
    world.run_until(900 * S)
    assert first in world.names()
    world.feed(1001 * S, action(RECOVER))
    world.run_until(1001 * S)
    assert first not in world.names()
    assert taints(world) == {(UNREACHABLE, "NoExecute")}
    world.run_until(1005 * S)
    assert taints(world) == set()


def test_a_node_that_comes_back_in_time_keeps_its_pods() -> None:
    """What they would have done in the meantime is done now."""
    world = World()
    pod = make_pod("p", node="n", ready=True)
    world.feed(0, create(make_node()), create_pod(pod, service_duration_ns=20 * S))
    world.feed(S, action(FAIL))
    world.run_until(30 * S)
    assert phases(world) == {"p": "Running"}
    world.feed(30 * S, action(RECOVER))
    world.run_until(30 * S)
    assert phases(world) == {"p": "Succeeded"}
    world.run_until(500 * S)
    assert taints(world) == set()


def test_daemon_pods_stay_on_a_silent_node() -> None:
    """They tolerate it for ever."""
    world = World()
    world.feed(0, create(make_node()), create(make_daemon_set()))
    place(world, 0)
    world.feed(S, action(FAIL))
    world.run_until(1000 * S)
    assert list(phases(world).values()) == ["Running"]


def tainted(key: str) -> node_pb2.Node:
    """Return node n with a NoExecute taint."""
    node = make_node()
    node.spec.taints.add(key=key, effect="NoExecute")
    return node


def test_pods_that_do_not_tolerate_a_taint_go_at_once_or_when_they_have_had_enough() -> None:
    """The least tolerationSeconds count."""
    world = World()
    patient = make_pod("patient", node="n", ready=True)
    patient.spec.tolerations.add(key="fire", operator="Exists", toleration_seconds=60)
    stubborn = make_pod("stubborn", node="n", ready=True)
    stubborn.spec.tolerations.add(operator="Exists")
    world.feed(0, create(make_node()), running("timid"), create_pod(patient), create_pod(stubborn))
    world.feed(S, update(tainted("fire")))
    assert phases(world) == {"timid": "Terminating", "patient": "Running", "stubborn": "Running"}
    world.run_until(61 * S)
    assert phases(world) == {"patient": "Terminating", "stubborn": "Running"}
    reasons = {
        condition.type: condition.reason
        for condition in world.pod("patient").message.status.conditions
    }
    assert reasons["DisruptionTarget"] == "DeletionByTaintManager"


def test_a_taint_that_is_removed_in_time_evicts_no_pod() -> None:
    """And one that comes again starts again."""
    world = World()
    world.feed(0, create(make_node()), running("p"))
    world.feed(S, update(tainted(UNREACHABLE)))
    world.feed(200 * S, update(make_node()))
    world.feed(250 * S, update(tainted(UNREACHABLE)))
    world.run_until(549 * S)
    assert phases(world) == {"p": "Running"}
    world.run_until(550 * S)
    assert phases(world) == {"p": "Terminating"}


def test_no_pod_is_evicted_where_the_taint_manager_is_switched_off() -> None:
    """--model taint-eviction=off."""
    world = World(models=Models(toleration_s=None))
    world.feed(0, create(tainted("fire")), running("p"))
    world.run_until(1000 * S)
    assert phases(world) == {"p": "Running"}


def test_the_pods_of_a_node_that_has_gone_are_collected_after_a_minute() -> None:
    """Until then they look as before; their owner makes others then."""
    world = World()
    world.feed(0, create(make_node()), create(make_replica_set(replicas=1)))
    place(world, 0)
    (first,) = world.names()
    world.feed(S, delete("Node", "n"))
    world.run_until(60 * S)
    assert phases(world) == {first: "Running"}
    world.run_until(61 * S)
    assert list(phases(world).values()) == ["Pending"]
    assert causes(world) == {first: "node-lost"}


def test_a_node_that_is_recreated_within_a_minute_keeps_its_pods() -> None:
    """As the garbage collector waits for."""
    world = World()
    world.feed(0, create(make_node()), running("p"))
    world.feed(S, delete("Node", "n"))
    world.feed(30 * S, create(make_node()))
    world.run_until(1000 * S)
    assert phases(world) == {"p": "Running"}


@pytest.mark.parametrize(
    ("status", "key"), [("False", "node.kubernetes.io/not-ready"), ("Unknown", UNREACHABLE)]
)
def test_conditions_become_taints(status: str, key: str) -> None:
    """Given in a manifest, or told by a recording a moment before the taint."""
    world = World()
    node = make_node()
    node.status.conditions.add(type="Ready", status=status)
    world.feed(S, create(node), create(make_node("other")))
    assert taints(world) == {(key, "NoSchedule")}
    world.run_until(5 * S)
    assert taints(world) == {(key, "NoSchedule"), (key, "NoExecute")}


def test_annotations_set_when_a_node_is_drained_fails_and_recovers() -> None:
    """Counted from its coming."""
    world = World()
    node = make_node()
    node.metadata.annotations["reprieve/fail-at"] = "10s"
    node.metadata.annotations["reprieve/recover-at"] = "2m"
    node.metadata.annotations["reprieve/drain-at"] = "2m10s"
    world.feed(5 * S, create(node), create(make_node("other")), running("p"))
    world.run_until(70 * S)
    assert (UNREACHABLE, "NoExecute") in taints(world)
    world.run_until(130 * S)
    assert taints(world) == set()
    world.run_until(135 * S)
    assert phases(world) == {"p": "Terminating"}


def test_what_cannot_be_is_refused_and_named() -> None:
    """Nothing is applied in part."""
    world = World()
    node = make_node("m")
    node.metadata.annotations["reprieve/drain-at"] = "soon"
    world.feed(0, create(node), action(DRAIN), create(make_node()), action(0))  # type: ignore[arg-type] # unspecified
    assert list(world.cluster.nodes) == ["n"]
    first, second, third = world.refusals()
    assert "reprieve/drain-at" in first
    assert "does not exist" in second
    assert "unknown type" in third
