"""The scheduler service's Evaluate against what upstream's kube-scheduler v1.34.1 did.

The same scenarios as in tests.golden.test_scheduling_extra_vectors, through a running service.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from replay.backends.processes import EmbeddedServices
from reprieve.scheduler.v1alpha1 import scheduler_service_pb2_grpc
from tests.golden.test_scheduling_extra_vectors import FILES
from tests.scheduling_answers import differences, request_of, vectors

DEADLINE_S = 30

pytestmark = pytest.mark.e2e

Stub = scheduler_service_pb2_grpc.SchedulerServiceStub


@pytest.fixture(scope="module")
def stub(services: EmbeddedServices) -> Iterator[Stub]:
    """Yield a stub of the scheduler that runs."""
    with grpc.insecure_channel(services.processes["scheduler"].address) as channel:
        yield Stub(channel)


@pytest.mark.parametrize("name", FILES)
def test_the_service_answers_what_upstream_did(stub: Stub, name: str) -> None:
    """Verdicts, scores, hosts, texts and all of preemption agree in every scenario."""
    count, wrong = 0, []
    for scenario, expected in vectors(name):
        count += 1
        found = stub.Evaluate(request_of(scenario), timeout=DEADLINE_S).evaluation
        wrong += differences(scenario, expected, found)
    assert count >= FILES[name]
    assert not wrong, f"{len(wrong)} differences in {count} scenarios:\n" + "\n".join(wrong[:20])
