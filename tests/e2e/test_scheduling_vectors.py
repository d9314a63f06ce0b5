"""The scheduler service's EvaluatePod against what upstream's kube-scheduler did.

The same scenarios as in tests.golden.test_scheduling_extra_vectors, through the servicers of queue
and scheduler within this process with compiled kernels, and a share of them through services over a
connection.
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


CONNECTED_SHARE = 8


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("tier", ["compiled"], indirect=True)
@pytest.mark.usefixtures("tier")
def test_the_servicers_decide_as_upstream_did(here: EmbeddedServices, name: str) -> None:
    """Verdicts, scores, hosts, texts and all of preemption agree in every scenario."""
    difference = differences(channel(here.addresses["scheduler"]), name)
    assert len(difference) >= FILES[name][1]
    assert_none(difference)


@pytest.mark.parametrize("name", FILES)
def test_services_over_a_connection_decide_as_upstream_did(
    services: EmbeddedServices, name: str
) -> None:
    """In a share of the scenarios."""
    with channel(services.addresses["scheduler"]) as connected:
        difference = differences(connected, name, CONNECTED_SHARE)
    assert len(difference) >= FILES[name][1] // CONNECTED_SHARE
    assert_none(difference)


def differences(to_scheduler: grpc.Channel, name: str, share: int = 1) -> list[str]:
    """Return where each scenario of a file differs, "" if nowhere; of every `share`-th one."""
    vectors = list(whole_vectors(name))[::share]
    return [scheduling_difference(to_scheduler, FILES[name][0], vector) for vector in vectors]


def assert_none(told: list[str]) -> None:
    """Show the first of the differences."""
    wrong = [text for text in told if text]
    assert not wrong, f"{len(wrong)} of {len(told)} scenarios:\n" + "\n".join(wrong[:20])
