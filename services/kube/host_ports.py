"""Ports that pods hold on a node, and when two of them conflict.

Only "" and "0.0.0.0" stand for every address; "::" is an address like any other.

Upstream keeps a set, so that a pod that goes frees its port even where another pod holds the
same one; here holders are counted, which differs only where pods were placed past the filter.

Source: kubernetes v1.34 kube-scheduler/framework/types.go, HostPortInfo;
pkg/scheduler/util/utils.go, GetHostPorts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.kube.pod import PodSpec

HostPort = tuple[str, str, int]
"""Address ("0.0.0.0" for all), protocol and port."""

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - an address to compare with, nothing listens here


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of the containers and of the sidecars."""
    sidecars = (each for each in spec.init_containers if each.restart_policy == "Always")
    return tuple(
        (port.host_ip or EVERY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in (*spec.containers, *sidecars)
        for port in container.ports
        if port.host_port > 0
    )


def conflicts(wanted: Iterable[HostPort], held: Mapping[HostPort, int]) -> bool:
    """Tell whether one of the `wanted` ports is held already."""
    return any(_is_held(port, held) for port in wanted)


def _is_held(port: HostPort, held: Mapping[HostPort, int]) -> bool:
    address, protocol, number = port
    if address == EVERY_ADDRESS:
        return any(other[1] == protocol and other[2] == number for other in held)
    return port in held or (EVERY_ADDRESS, protocol, number) in held


def hold(held: dict[HostPort, int], ports: Iterable[HostPort]) -> None:
    """Count one holder more of each port."""
    for port in ports:
        held[port] = held.get(port, 0) + 1


def release(held: dict[HostPort, int], ports: Iterable[HostPort]) -> None:
    """Count one holder less of each port."""
    for port in ports:
        if held[port] == 1:
            del held[port]
        else:
            held[port] -= 1
