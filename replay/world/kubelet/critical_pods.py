"""Selects the pods that a kubelet preempts to admit a critical pod.

A kubelet does not reject a critical pod (a mirror pod, or one of a system priority class) for want
of resources; it ends pods of its node that are not critical, or of lower priority, until the
requests fit. As few Guaranteed pods go as possible, then as few Burstable ones, then BestEffort
ones: each class must give only what the classes below it cannot. Within a class the next to go is
the pod whose requests come nearest to what is still missing, then the one that requests least
memory and CPU. If even all of them do not suffice, none is ended.

Source: kubernetes v1.34 pkg/kubelet/preemption/preemption.go, getPodsToPreempt,
getPodsToPreemptByDistance, distance; pkg/kubelet/types/pod_update.go, IsCriticalPod, Preemptable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from reprieve.eviction.v1beta1 import eviction_pb2
from services.kube.pod import SYSTEM_CRITICAL_PRIORITY
from services.kube.requests import CPU, MEMORY

PREEMPTING = "Preempting"
"""status.reason of a pod that a kubelet ended for a critical one."""
EVICTED_REASONS = frozenset({"Evicted", PREEMPTING})
"""status.reason of pods that a kubelet ends on purpose: logs have them as evicted."""
PREEMPTION_SIGNAL = "kubeletPreemption"
"""What the decision log has in place of an eviction signal."""


class NodePod(NamedTuple):
    """A pod that its kubelet has admitted: what it requests, "pods" (1) included."""

    uid: str
    qos_class: str
    requests: Mapping[str, int]


def is_critical(priority: int) -> bool:
    """Return whether a pod from the API server is critical."""
    return priority >= SYSTEM_CRITICAL_PRIORITY


def is_preemptable(priority: int, by_priority: int) -> bool:
    """Return whether a critical pod of `by_priority` may end a pod of `priority`."""
    return not is_critical(priority) or priority < by_priority


class NotEnough(NamedTuple):
    """The resources that are missing even if every preemptable pod is ended."""

    missing: Mapping[str, int]


def victims(missing: Mapping[str, int], pods: Iterable[NodePod]) -> list[NodePod] | NotEnough:
    """Return the pods to preempt for the `missing` resources, in order, out of `pods`."""
    classes: dict[str, list[NodePod]] = {"BestEffort": [], "Burstable": [], "Guaranteed": []}
    for pod in pods:
        classes[pod.qos_class].append(pod)
    best_effort, burstable, guaranteed = classes.values()
    if unmet := _less(missing, (*best_effort, *burstable, *guaranteed)):
        return NotEnough(unmet)
    last = _nearest(guaranteed, _less(missing, (*best_effort, *burstable)))
    middle = _nearest(burstable, _less(missing, (*best_effort, *last)))
    first = _nearest(best_effort, _less(missing, (*middle, *last)))
    return [*first, *middle, *last]


def eviction() -> eviction_pb2.Eviction:
    """Return the eviction of a preempted pod: it fails after its own grace period."""
    made = eviction_pb2.Eviction(
        reason=PREEMPTING,
        message="Preempted in order to admit critical pod",
        phase="Failed",
        signal=PREEMPTION_SIGNAL,
    )
    made.condition.type, made.condition.status = "DisruptionTarget", "True"
    made.condition.reason = "TerminationByKubelet"
    made.condition.message = "Pod was preempted by Kubelet to accommodate a critical pod."
    return made


def _less(missing: Mapping[str, int], pods: Iterable[NodePod]) -> dict[str, int]:
    """Return the resources that are still missing after `pods` are ended."""
    rest = dict(missing)
    for pod in pods:
        rest = {name: amount - pod.requests.get(name, 0) for name, amount in rest.items()}
    return {name: amount for name, amount in rest.items() if amount > 0}


def _nearest(pods: Sequence[NodePod], missing: Mapping[str, int]) -> list[NodePod]:
    """Return pods of one class that free `missing`, the nearest first; together they can."""
    candidates, chosen = list(pods), []
    while missing:
        # Of equal pods the last one goes, as upstream's comparison lets it replace the others.
        best = min(
            reversed(range(len(candidates))), key=lambda index: _rank(candidates[index], missing)
        )
        pod = candidates.pop(best)
        chosen.append(pod)
        missing = _less(missing, (pod,))
    return chosen


def _rank(pod: NodePod, missing: Mapping[str, int]) -> tuple[float, int, int]:
    """Return the distance of a pod's requests from what is missing, then its size.

    Each resource counts by the share of it that would still be missing, squared.
    """
    distance = sum(
        (max(0, amount - pod.requests.get(name, 0)) / amount) ** 2
        for name, amount in missing.items()
    )
    return distance, pod.requests.get(MEMORY, 0), pod.requests.get(CPU, 0)
