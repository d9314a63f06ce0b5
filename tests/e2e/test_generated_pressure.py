"""A generated cluster whose pods come to use more than they request: the whole loop, many times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from replay.backends.processes import EmbeddedServices
from replay.generate.workload import GenerateOptions, generate
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from tests.e2e.replays import run

pytestmark = pytest.mark.e2e
OPTIONS = GenerateOptions(
    seed=5,
    nodes=4,
    pods=70,
    deployments=10,
    budgets=4,
    window_ns=300 * SECOND_NS,
    service_ns=360 * SECOND_NS,
    leaky_percent=60,
)
TRANSITION_NS = 300 * SECOND_NS
POLL_NS = 10 * SECOND_NS
SYSTEM_CRITICAL = 2_000_000_000


@pytest.fixture(scope="module")
def log(
    here: EmbeddedServices, tmp_path_factory: pytest.TempPathFactory
) -> list[trace_pb2.Decision]:
    """Replay the cluster once and return its decision log."""
    path = tmp_path_factory.mktemp("generated") / "run"
    return list(run(here, generate(OPTIONS), path).run.decisions())


def evictions(log: list[trace_pb2.Decision]) -> list[trace_pb2.Decision]:
    """Return the entries of evictions."""
    return [entry for entry in log if entry.observed.HasField("evicted")]


def pressures(log: list[trace_pb2.Decision]) -> Iterator[tuple[str, int, int]]:
    """Yield each node that was under pressure, since when and until when, ns; for ever: 2^63."""
    since: dict[str, int] = {}
    for entry in log:
        if not entry.observed.HasField("condition_changed"):
            continue
        name = entry.observed.object.name
        assert entry.observed.condition_changed.type == "MemoryPressure"
        if entry.observed.condition_changed.status == "True":
            since[name] = entry.time_ns
        else:
            yield name, since.pop(name), entry.time_ns
    yield from ((name, at_ns, 1 << 63) for name, at_ns in since.items())


def test_who_goes_is_the_first_of_the_ranking_that_is_not_critical(
    log: list[trace_pb2.Decision],
) -> None:
    """Pods that use more than they request, then lower priority, then most above the request."""
    assert len(evictions(log)) > 10
    for entry in evictions(log):
        evicted = entry.observed.evicted
        keys = [
            (not place.exceeds_request, place.priority, place.request - place.usage)
            for place in evicted.ranking
        ]
        assert keys == sorted(keys)
        assert evicted.available < 100 << 20
        place = evicted.ranking[evicted.rank - 1]
        assert place.pod.uid == entry.observed.object.uid
        ahead = evicted.ranking[: evicted.rank - 1]
        assert all(before.priority >= SYSTEM_CRITICAL for before in ahead)


def test_a_condition_holds_from_the_first_eviction_to_its_period_after_the_last(
    log: list[trace_pb2.Decision],
) -> None:
    """It comes with the step that evicts, and goes with the loop's first step after the period."""
    periods = list(pressures(log))
    assert len(periods) > 3
    for name, since_ns, until_ns in periods:
        times = [
            entry.time_ns
            for entry in evictions(log)
            if entry.observed.evicted.node_name == name and since_ns <= entry.time_ns < until_ns
        ]
        assert times[0] == since_ns
        if until_ns < 1 << 63:
            assert TRANSITION_NS <= until_ns - times[-1] < TRANSITION_NS + POLL_NS


def test_no_pod_is_bound_to_a_node_under_pressure(log: list[trace_pb2.Decision]) -> None:
    """Its taint keeps the scheduler away from the moment of the condition on until it goes."""
    periods = list(pressures(log))
    for entry in log:
        if entry.observed.HasField("scheduled"):
            node = entry.observed.scheduled.node_name
            assert not any(
                name == node and since_ns < entry.time_ns < until_ns
                for name, since_ns, until_ns in periods
            )


def test_evicted_replicas_are_recreated_elsewhere(log: list[trace_pb2.Decision]) -> None:
    """Their owner makes another pod once they have ended, and it gets another node or waits."""
    bound = {
        entry.observed.object.uid: entry.observed.scheduled.node_name
        for entry in log
        if entry.observed.HasField("scheduled")
    }
    made = [entry for entry in log if entry.observed.HasField("created")]
    owners = {entry.observed.object.uid: entry.observed.created.owner.name for entry in made}
    moved = 0
    for evicted in evictions(log):
        owner = owners.get(evicted.observed.object.uid)
        if owner is None:
            continue
        successor = next(
            later
            for later in made
            if later.observed.created.owner.name == owner and later.sequence > evicted.sequence
        )
        assert successor.time_ns - evicted.time_ns <= 2 * SECOND_NS
        node = bound.get(successor.observed.object.uid)
        moved += node is not None and node != evicted.observed.evicted.node_name
    assert moved >= 3
