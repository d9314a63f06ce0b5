"""The scheduler service's EvaluatePod against what upstream's kube-scheduler did.

The same scenarios as in tests.golden.test_scheduling_extra_vectors, through the servicers of queue
and scheduler within this process; `reprieve conform` asks services over a connection.
"""

from __future__ import annotations

import grpc
import pytest

from replay.backends.processes import EmbeddedServices
from replay.conform.vectors.scheduling import scheduling_difference
from services.rpc.client import channel
from tests.golden.test_scheduling_extra_vectors import FILES
from tests.scheduling_vectors import whole_vectors

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def to_scheduler(here: EmbeddedServices) -> grpc.Channel:
    """Return a channel to the scheduler."""
    return channel(here.addresses["scheduler"])


@pytest.mark.parametrize("name", FILES)
def test_the_service_decides_as_upstream_did(to_scheduler: grpc.Channel, name: str) -> None:
    """Verdicts, scores, hosts, texts and all of preemption agree in every scenario."""
    rules, count_min = FILES[name]
    told = [scheduling_difference(to_scheduler, rules, vector) for vector in whole_vectors(name)]
    wrong = [each for each in told if each]
    assert len(told) >= count_min
    assert not wrong, f"{len(wrong)} of {len(told)} scenarios:\n" + "\n".join(wrong[:20])
