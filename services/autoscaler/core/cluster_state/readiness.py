"""Determines whether a node is ready, and counts the nodes and instances of a group by state.

A node that is not ready counts as not started while it is young, and as unready after that: only an
unready one speaks against its group's health. An instance without a node counts as unregistered
while it is young, and as long unregistered after that: nobody waits for it any more.

Source: kubernetes/autoscaler 1.36 utils/kubernetes/ready.go, GetNodeReadiness; clusterstate/
clusterstate.go, Readiness.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from services.kube import taints
from services.kube.node import Node

_SPOILING = {"DiskPressure", "NetworkUnavailable"}
_NOT_READY_TAINTS = {taints.NOT_READY, taints.DISK_PRESSURE, taints.NETWORK_UNAVAILABLE}


def is_ready(node: Node) -> bool:
    """Return whether the node reports that it is ready, and nothing speaks against it.

    A node that reports nothing about its readiness is not ready.
    """
    reports = False
    for condition in node.conditions:
        if condition.type == "Ready":
            reports = True
            if condition.status in {"False", "Unknown"}:
                return False
        elif condition.type in _SPOILING and condition.status == "True":
            return False
    return reports and not any(taint.key in _NOT_READY_TAINTS for taint in node.taints)


@dataclass(slots=True, kw_only=True)
class Readiness:
    """Names of the nodes (provider IDs of the instances) of a group, or of a cluster, by state.

    `registered` are all nodes; the others divide them, apart from the unregistered instances.
    """

    registered: list[str] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)
    not_started: list[str] = field(default_factory=list)
    unready: list[str] = field(default_factory=list)
    suspended: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    unregistered: list[str] = field(default_factory=list)
    long_unregistered: list[str] = field(default_factory=list)
