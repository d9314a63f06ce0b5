"""Drains of generated clusters: the Eviction API never takes a workload below its budget."""

from __future__ import annotations

import math
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from replay.world.api.pod_record import PodRecord
from replay.world.controllers.disruption import EvictionRefusal
from replay.world.models import Models
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import (
    S,
    World,
    create,
    delete,
    make_budget,
    make_node,
    make_replica_set,
)

_NODES = ("n0", "n1", "n2", "n3")
_Evict = Callable[[int, PodRecord, str, int | None], EvictionRefusal | None]

amounts = st.one_of(st.integers(0, 5), st.sampled_from(["0%", "25%", "50%", "80%", "100%"]))
drains = st.builds(
    lambda names, parallel, after_s, order: trace_pb2.Drain(
        node_names=names,
        parallel=parallel,
        uncordon_delay_duration_ns=None if after_s is None else after_s * S,
        order=order,
    ),
    st.lists(st.sampled_from(_NODES), min_size=1, max_size=4, unique=True),
    st.integers(0, 3),
    st.sampled_from([None, 0, 3, 20]),
    st.sampled_from([trace_pb2.DRAIN_ORDER_UNSPECIFIED, trace_pb2.DRAIN_ORDER_LEAST_USED]),
)


def healthy(world: World) -> int:
    """Return how many pods of the workload are ready and not terminating, counted one by one."""
    return sum(pod.is_ready and not pod.is_terminating for pod in world.cluster.pods.values())


def desired(kind: str, amount: int | str, replicas: int) -> int:
    """Return the healthy pods that a budget demands, by the textbook."""
    value = math.ceil(replicas * int(amount[:-1]) / 100) if isinstance(amount, str) else amount
    return max(0, replicas - value) if kind == "max" else value


@settings(max_examples=60, deadline=None)
@given(
    replicas=st.integers(1, 6),
    kind=st.sampled_from(["min", "max"]),
    amount=amounts,
    asked=st.lists(st.tuples(st.integers(1, 60), drains), min_size=1, max_size=3),
    start_s=st.sampled_from([0, 2, 12, 31]),
    deleted=st.lists(st.integers(1, 80), max_size=4),
)
def test_no_eviction_leaves_fewer_healthy_pods_than_the_budget_demands(
    replicas: int,
    kind: str,
    amount: int | str,
    asked: list[tuple[int, trace_pb2.Drain]],
    start_s: int,
    deleted: list[int],
) -> None:
    """If users delete pods, too, none is evicted below the budget; drained nodes stay empty."""
    world = World(models=Models(start_delay_ns=start_s * S, shutdown_ns=4 * S))
    world.feed(0, *(create(make_node(name)) for name in _NODES))
    budget = (
        make_budget(min_available=amount) if kind == "min" else make_budget(max_unavailable=amount)
    )
    world.feed(0, create(make_replica_set(replicas=replicas)), create(budget))
    spread(world, 0)
    world.run_until(start_s * S)
    evict: _Evict = world.eviction_api.evict

    def checked(
        now_ns: int, pod: PodRecord, cause: str, grace_s: int | None = None
    ) -> EvictionRefusal | None:
        was_healthy = pod.is_ready and not pod.is_terminating
        refusal = evict(now_ns, pod, cause, grace_s)
        if refusal is None and was_healthy:
            assert healthy(world) >= desired(kind, amount, replicas)
        return refusal

    world.eviction_api.evict = checked  # type: ignore[method-assign] # each eviction is looked at
    begin_s = start_s + 1
    for second in range(begin_s, begin_s + 200):
        for at_s, drain in asked:
            if begin_s + at_s == second:
                action = trace_pb2.NodeAction(type=trace_pb2.NODE_ACTION_TYPE_DRAIN, drain=drain)
                world.feed(second * S, trace_pb2.Record(node_action=action))
        for at_s in deleted:
            running = [pod for pod in world.cluster.pods.values() if pod.is_ready]
            if begin_s + at_s == second and running:
                name = running[at_s % len(running)].message.metadata.name
                world.feed(second * S, delete("Pod", name))
        world.run_until(second * S)
        spread(world, second * S)
    allowed = replicas - desired(kind, amount, replicas)
    on_drained = any(
        node.spec.unschedulable and world.cluster.active_by_node.get(name)
        for name, node in world.cluster.nodes.items()
    )
    if allowed > 0 and not deleted and not all_cordoned(world):
        assert not on_drained


def spread(world: World, now_ns: int) -> None:
    """Bind the pending pods to the schedulable nodes in turn, and let them start."""
    open_nodes = [name for name in _NODES if not world.cluster.nodes[name].spec.unschedulable]
    if world.cluster.pending and open_nodes:
        for index, pod in enumerate(list(world.cluster.pending.values())):
            world.cluster.bind(now_ns, pod, open_nodes[index % len(open_nodes)])
            world.lifecycle.bound(now_ns, pod)
        world.run_until(now_ns)


def all_cordoned(world: World) -> bool:
    """Return whether replacements have nowhere to go."""
    return all(node.spec.unschedulable for node in world.cluster.nodes.values())
