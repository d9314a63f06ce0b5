"""NodePorts: a deleted pod frees a port.

Source: kubernetes v1.34 plugins/nodeports/node_ports.go, EventsToRegister,
isSchedulableAfterPodDeleted.
"""

from __future__ import annotations

from services.framework.cluster_event import AnyPod, PendingPod
from services.framework.hints import events_of, frees_a_node, on, spec_of
from services.kube.requests import conflicts, host_ports


def port_freed(pod: PendingPod, old: AnyPod | None, _new: AnyPod | None) -> bool:
    """Return Queue (true) if a port of the deleted pod conflicted with this one's."""
    if old is None:
        return True
    freed = dict.fromkeys(host_ports(spec_of(old)), 1)
    return frees_a_node(old) and conflicts(host_ports(spec_of(pod)), freed)


EVENTS = events_of("NodePorts", on("PodDelete", port_freed), on("NodeAdd"))
