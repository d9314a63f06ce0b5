"""Host ports and their conflicts."""

from __future__ import annotations

import pytest

from services.kube.requests import EVERY_ADDRESS, HostPort, conflicts, hold, host_ports, release
from tests.builders import make_pod

TCP80: HostPort = (EVERY_ADDRESS, "TCP", 80)


@pytest.mark.parametrize(
    ("wanted", "held", "expected"),
    [
        (TCP80, ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), TCP80, True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), False),
        (("::", "TCP", 80), ("10.0.0.2", "TCP", 80), False),
        (TCP80, (EVERY_ADDRESS, "UDP", 80), False),
        (TCP80, (EVERY_ADDRESS, "TCP", 81), False),
    ],
)
def test_ports_conflict_on_one_address_or_on_all(
    wanted: HostPort, held: HostPort, expected: bool
) -> None:
    """Only 0.0.0.0 and no address at all are wildcards."""
    assert conflicts([wanted], {held: 1}) is expected


def test_a_port_that_two_pods_hold_stays_held_when_one_goes() -> None:
    """Holders are counted."""
    held: dict[HostPort, int] = {}
    hold(held, [TCP80])
    hold(held, [TCP80])
    release(held, [TCP80])
    assert conflicts([TCP80], held)
    release(held, [TCP80])
    assert held == {}


def test_ports_of_the_pod_network_do_not_count() -> None:
    """Only host ports do."""
    pod = make_pod().host_port(80).container().host_port(0).obj()
    assert host_ports(pod.spec) == (TCP80,)
