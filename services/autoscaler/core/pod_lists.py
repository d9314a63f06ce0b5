"""Selects the pods that a scale-up could help.

Pods on nodes and nominated ones are load. Of the others only those count that the scheduler has
refused; one that it has not tried yet may fit. Then expendable pods are dropped, and the pods of
nodes that are being drained are added, which will be looking for a node. Each is tried on the
simulated cluster, the most important first; those that fit are placed in it, where they are load
for the rest of the scan. Daemon pods need their own node, and young pods wait.

Source: kubernetes/autoscaler 1.36 utils/kubernetes/listers.go, ArrangePodsBySchedulability;
core/podlistprocessor; core/utils/expendable.go; core/static_autoscaler.go, filterOutYoungPods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterPod
from services.autoscaler.core.options import Options
from services.autoscaler.core.simulator.hinting import HintingSimulator
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot
from services.kube.time import DurationError, parse_duration_ns

SCALE_UP_DELAY = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"


@dataclass(slots=True)
class ArrangedPods:
    """Pods divided into those on nodes, nominated ones and unschedulable ones, in their order."""

    scheduled: list[ClusterPod] = field(default_factory=list)
    nominated: list[ClusterPod] = field(default_factory=list)
    unschedulable: list[ClusterPod] = field(default_factory=list)


def arranged(pods: Iterable[ClusterPod]) -> ArrangedPods:
    """Divide pods as ArrangedPods has them; pods that were not tried yet are left out."""
    result = ArrangedPods()
    for pod in pods:
        if pod.pod.node_name:
            result.scheduled.append(pod)
        elif pod.pod.deletion_ns is not None:
            continue
        elif pod.pod.nominated_node_name:
            result.nominated.append(pod)
        else:
            tried = pod.pod.condition("PodScheduled")
            refused = tried is not None and tried.status == "False"
            if refused and tried is not None and tried.reason == "Unschedulable":
                result.unschedulable.append(pod)
    return result


def without_expendable(pods: Iterable[ClusterPod], options: Options) -> list[ClusterPod]:
    """Return the pods whose priority is not below the cutoff, and those without one."""
    cutoff = options.expendable_pods_priority_cutoff
    return [pod for pod in pods if not (pod.has_priority and pod.pod.priority < cutoff)]


def to_help(
    unschedulable: Iterable[ClusterPod],
    snapshot: ClusterSnapshot,
    hints: HintingSimulator,
    *,
    draining: Iterable[str],
    options: Options,
) -> list[ClusterPod]:
    """Return the pods that do not fit anywhere, and leave the others placed in the snapshot.

    `draining` are the names of the nodes that are being drained.
    """
    pods = without_expendable(unschedulable, options)
    pods += _of_drained(snapshot, draining)
    pods.sort(key=lambda pod: -pod.pod.priority)
    placed = {id(pod) for pod, _ in hints.place(snapshot, pods)}
    hints.forget_old()
    return [pod for pod in pods if id(pod) not in placed and not pod.is_daemon]


def without_young(pods: Iterable[ClusterPod], options: Options, now: Now) -> list[ClusterPod]:
    """Return the pods that are older than the delay, which an annotation may only raise."""
    return [
        pod for pod in pods if now.is_after(pod.pod.creation_ns + _scale_up_delay_ns(pod, options))
    ]


def _of_drained(snapshot: ClusterSnapshot, draining: Iterable[str]) -> list[ClusterPod]:
    """Return the pods of drained nodes that will need another node, without their node."""
    return [
        replace(pod, pod=replace(pod.pod, node_name=""))
        for name in draining
        if name in snapshot
        for pod in snapshot.pods_on(name)
        if pod.pod.deletion_ns is None and pod.is_recreatable
    ]


def _scale_up_delay_ns(pod: ClusterPod, options: Options) -> int:
    delay_ns = options.new_pod_scale_up_delay_ns
    text = pod.pod.annotations.get(SCALE_UP_DELAY)
    if text is None:
        return delay_ns
    try:
        return max(delay_ns, parse_duration_ns(text))
    except DurationError:
        return delay_ns
