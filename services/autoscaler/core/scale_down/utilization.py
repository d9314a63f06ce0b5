"""Computes the utilization of a node: the share of it that its pods request.

CPU and memory are compared, and the larger share counts. On a node with GPUs only these count. Pods
of daemon sets, and mirror pods, can be left out: then they are taken off both sides. Finished pods
count (the snapshot has none), and pods that should have been gone do not.

Source: kubernetes/autoscaler 1.36 simulator/utilization/info.go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from services.autoscaler.core.gpu import gpu_resource
from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterNode, ClusterPod
from services.autoscaler.core.scale_down.drainability import is_long_terminating
from services.kube.requests import CPU, MEMORY, pod_requests, spec_in_force


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """The share of a node's resources that is requested, and the resource that decides."""

    resource: str
    share: float
    cpu: float = 0.0
    memory: float = 0.0
    gpu: float = 0.0


def utilization(
    node: ClusterNode,
    pods: Iterable[ClusterPod],
    *,
    gpu_label: str,
    skip_daemon_pods: bool,
    skip_mirror_pods: bool,
    now: Now,
) -> Utilization | None:
    """Return a node's utilization, None if it has no CPU or no memory to compare with.

    A node with `gpu_label` whose GPUs are not there yet is not utilized.
    """
    counted: list[dict[str, int]] = []
    left_out: list[dict[str, int]] = []
    for pod in pods:
        skipped = (skip_daemon_pods and pod.is_daemon) or (skip_mirror_pods and pod.is_mirror)
        if skipped or not is_long_terminating(pod, now):
            (left_out if skipped else counted).append(_requests(pod))

    def share(resource: str) -> float | None:
        allocatable = node.node.allocatable.get(resource, 0)
        if not allocatable:
            return None
        requested = sum(amounts.get(resource, 0) for amounts in counted)
        return _ratio(
            requested, allocatable - sum(amounts.get(resource, 0) for amounts in left_out)
        )

    if gpu_label and gpu_label in node.node.labels:
        resource = gpu_resource(node.node)
        gpu = share(resource) or 0.0
        return Utilization(resource=resource, share=gpu, gpu=gpu)
    cpu, memory = share(CPU), share(MEMORY)
    if cpu is None or memory is None:
        return None
    resource, larger = (CPU, cpu) if cpu > memory else (MEMORY, memory)
    return Utilization(resource=resource, share=larger, cpu=cpu, memory=memory)


def _requests(pod: ClusterPod) -> dict[str, int]:
    return pod_requests(spec_in_force(pod.pod) if pod.pod.container_resources else pod.pod.spec)


def _ratio(requested: int, available: int) -> float:
    """Divide as Go does: nothing of nothing is not a number, and not above any threshold."""
    if available:
        return requested / available
    return math.inf if requested else math.nan
