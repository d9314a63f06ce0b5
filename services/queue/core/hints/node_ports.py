"""NodePorts: a pod that goes and held a host port that the waiting one wants.

Source: kubernetes v1.34 plugins/nodeports/node_ports.go, isSchedulableAfterPodDeleted;
pkg/scheduler/util/utils.go, GetHostPorts; framework/types.go, HostPortInfo.CheckConflict.
"""

from __future__ import annotations

from services.kube.pod import ContainerPort
from services.queue.core.happening import Happening
from services.queue.core.hints.objects import AnyPod, left_a_node, pods, spec_of
from services.queue.core.pod import QueuedPod

_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - an address to compare with, nothing is bound to it


def after_pod_deleted(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where a port of the pod that has gone would have conflicted."""
    known = pods(happening)
    if known is None or known[0] is None:
        return True
    gone = known[0]
    if not left_a_node(gone):
        return False
    freed = _host_ports(gone)
    return any(_conflict(wanted, each) for wanted in _host_ports(pod) for each in freed)


def _host_ports(pod: AnyPod) -> list[ContainerPort]:
    spec = spec_of(pod)
    sidecars = (each for each in spec.init_containers if each.restart_policy == "Always")
    return [
        port
        for container in (*spec.containers, *sidecars)
        for port in container.ports
        if port.host_port > 0
    ]


def _conflict(one: ContainerPort, other: ContainerPort) -> bool:
    if (one.host_port, one.protocol or "TCP") != (other.host_port, other.protocol or "TCP"):
        return False
    addresses = {one.host_ip or _EVERY_ADDRESS, other.host_ip or _EVERY_ADDRESS}
    return len(addresses) == 1 or _EVERY_ADDRESS in addresses
