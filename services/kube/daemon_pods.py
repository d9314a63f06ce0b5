"""Decides on which nodes a DaemonSet's pods run, and which tolerations all daemon pods have.

Source: kubernetes v1.34 pkg/controller/daemon/daemon_controller.go, NodeShouldRunDaemonPod,
predicates; daemon/util/daemonset_util.go, AddOrUpdateDaemonPodTolerations.
"""

from __future__ import annotations

from enum import Enum

from services.kube import taints
from services.kube.node import Node
from services.kube.pod import PodSpec
from services.kube.taints import TaintEffect, Toleration, repels

_TOLERATED = (
    (taints.NOT_READY, TaintEffect.NO_EXECUTE),
    (taints.UNREACHABLE, TaintEffect.NO_EXECUTE),
    (taints.DISK_PRESSURE, TaintEffect.NO_SCHEDULE),
    (taints.MEMORY_PRESSURE, TaintEffect.NO_SCHEDULE),
    (taints.PID_PRESSURE, TaintEffect.NO_SCHEDULE),
    (taints.UNSCHEDULABLE, TaintEffect.NO_SCHEDULE),
)
_OF_THE_HOST = (taints.NETWORK_UNAVAILABLE, TaintEffect.NO_SCHEDULE)


class ShouldRun(Enum):
    """The decision whether a DaemonSet's pod should run on a node.

    CONTINUE: an existing pod should continue running, but no pod should be started.
    """

    YES = "yes"
    CONTINUE = "continue"
    NO = "no"


def tolerated(*, host_network: bool) -> tuple[tuple[str, TaintEffect], ...]:
    """Return the taints, as key and effect, that every daemon pod tolerates."""
    return (*_TOLERATED, _OF_THE_HOST) if host_network else _TOLERATED


def tolerations(*, host_network: bool) -> tuple[Toleration, ...]:
    """Return the tolerations that the controller adds to those of the template."""
    return tuple(
        Toleration(key=key, operator="Exists", effect=effect)
        for key, effect in tolerated(host_network=host_network)
    )


def should_run(spec: PodSpec, node: Node) -> ShouldRun:
    """Return whether a pod should run on the node, by the node's labels and taints.

    `spec` must already have the tolerations of daemon pods.
    """
    affinity = spec.node_affinity
    required = affinity.required if affinity is not None else None
    if not node.matches(spec.node_selector.items(), required):
        return ShouldRun.NO
    effects = {taint.effect for taint in node.taints if repels(taint, spec.tolerations)}
    if TaintEffect.NO_EXECUTE in effects:
        return ShouldRun.NO
    return ShouldRun.CONTINUE if effects else ShouldRun.YES
