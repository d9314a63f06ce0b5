"""The scheduler service's EvaluatePod against what upstream's kube-scheduler did.

The same scenarios as in tests.golden.test_scheduling_extra_vectors, through a running service.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from replay.backends.processes import EmbeddedServices
from replay.conform.vectors.scheduling import scheduling_difference
from tests.golden.test_scheduling_extra_vectors import FILES
from tests.scheduling_vectors import whole_vectors

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def channel(services: EmbeddedServices) -> Iterator[grpc.Channel]:
    """Yield a channel to the scheduler that runs."""
    with grpc.insecure_channel(services.addresses["scheduler"]) as opened:
        yield opened


@pytest.mark.parametrize("name", FILES)
def test_the_service_decides_as_upstream_did(channel: grpc.Channel, name: str) -> None:
    """Verdicts, scores, hosts, texts and all of preemption agree in every scenario."""
    rules, count_min = FILES[name]
    told = [scheduling_difference(channel, rules, vector) for vector in whole_vectors(name)]
    wrong = [each for each in told if each]
    assert len(told) >= count_min
    assert not wrong, f"{len(wrong)} of {len(told)} scenarios:\n" + "\n".join(wrong[:20])
