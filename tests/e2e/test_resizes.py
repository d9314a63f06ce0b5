"""Resizes in place in a replay: the kubelet decides, and the scheduler counts what is in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.e2e.test_plain_loop import compared
from tests.unit.world.builders import S, create, create_pod, delete, make_node, make_pod, update

pytestmark = pytest.mark.e2e


def pod(name: str, memory: str, *, node: str = "", reported: str = "") -> pod_pb2.Pod:
    """Return a pod that requests so much; `reported` is in force, as its status says."""
    made = make_pod(name, node=node, ready=bool(node), grace_s=0)
    made.spec.containers[0].resources.requests["memory"] = memory
    if reported:
        container = made.status.container_statuses.add(name="c", ready=True)
        container.resources.requests["memory"] = reported
        container.allocated_resources["memory"] = reported
    return made


def at(seconds: int, record: trace_pb2.Record) -> trace_pb2.Record:
    """Return a record of that time."""
    record.time_ns = seconds * S
    return record


def bound_at(
    here: EmbeddedServices, folder: Path, *records: trace_pb2.Record, rules: str = "v1.34"
) -> dict[str, int]:
    """Return when each pod was bound, in seconds; look-ahead changes nothing."""
    header = trace_pb2.Record(header=trace_pb2.Header(format_version=2))
    ahead, _ = compared(
        here, [header, create(make_node("n", "4Gi")), *records], folder, rules=rules
    )
    return {
        decision.observed.object.name: decision.time_ns // S
        for decision in ahead.run.decisions()
        if decision.observed.HasField("scheduled") and not decision.refused
    }


@pytest.mark.parametrize("rules", ["v1.34", "v1.36"])
@pytest.mark.parametrize("reported", ["", "3Gi"])
def test_a_pod_that_waits_takes_what_another_gives_back(
    here: EmbeddedServices, tmp_path: Path, reported: str, rules: str
) -> None:
    """Whether the resized pod's status had reported resources before or not."""
    records = [
        create_pod(pod("p", "3Gi", node="n", reported=reported)),
        create_pod(pod("q", "2Gi")),
        at(40, update(pod("p", "2Gi"))),
    ]
    assert bound_at(here, tmp_path, *records, rules=rules) == {"q": 40}


def test_a_deferred_resize_holds_the_room_and_an_infeasible_one_does_not(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """`p` and `q` hold 2 Gi. 4 Gi for `p` are deferred, 5 Gi infeasible: then `r` takes 2 Gi."""
    records = [
        create_pod(pod("p", "1Gi", node="n")),
        create_pod(pod("q", "1Gi", node="n")),
        at(10, update(pod("p", "4Gi"))),
        at(20, create_pod(pod("r", "2Gi"))),
        at(40, update(pod("p", "5Gi"))),
    ]
    assert bound_at(here, tmp_path, *records) == {"r": 40}


def test_a_deferred_resize_is_allocated_before_a_pod_that_waits(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The scheduler has counted it since 10 s; what `q` leaves is not enough for both."""
    records = [
        create_pod(pod("p", "1Gi", node="n")),
        create_pod(pod("q", "2Gi", node="n")),
        at(10, update(pod("p", "3Gi"))),
        at(20, create_pod(pod("r", "2Gi"))),
        at(30, delete("Pod", "q", grace_s=0)),
        at(40, update(pod("p", "2Gi"))),
    ]
    assert bound_at(here, tmp_path, *records) == {"r": 40}
