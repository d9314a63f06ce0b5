"""Builders of the queue's values: pods, QueuedPodInfo, times in seconds."""

from __future__ import annotations

from services.kube.time import SECOND_NS
from services.queue.core.queued_pod import (
    AffinityTerm,
    InFlightPod,
    PopId,
    QueuedPod,
    QueuedPodInfo,
)
from services.queue.core.rules.versions import V1_20, QueueConfig, QueueVersion
from services.queue.core.scheduling_queue import SchedulingQueue


def seconds(count: float) -> int:
    """Return `count` seconds in ns."""
    return int(count * SECOND_NS)


def make_queued_pod(
    name: str = "p",
    *,
    priority: int = 0,
    version: int = 1,
    nominated: str = "",
    sort_key: bytes = b"",
    affinity: tuple[AffinityTerm, ...] = (),
) -> QueuedPod:
    """Return a pod of the namespace ns with UID uid-NAME; another version, another digest."""
    return QueuedPod(
        uid=f"uid-{name}",
        namespace="ns",
        name=name,
        priority=priority,
        nominated_node_name=nominated,
        sort_key=sort_key,
        digest=bytes([version]),
        affinity_terms=affinity,
    )


def make_pod_info(
    name: str = "p",
    *,
    priority: int = 0,
    at_ns: int = 0,
    sequence: int = 1,
    attempts: int = 1,
    sort_key: bytes = b"",
    affinity: tuple[AffinityTerm, ...] = (),
) -> QueuedPodInfo:
    """Return a pod added and last failed at `at_ns`."""
    return QueuedPodInfo(
        pod=make_queued_pod(name, priority=priority, sort_key=sort_key, affinity=affinity),
        timestamp_ns=at_ns,
        initial_attempt_ns=at_ns,
        attempts=attempts,
        sequence=sequence,
    )


def make_queue(*pods: QueuedPod, mode: QueueVersion = V1_20) -> SchedulingQueue:
    """Return a queue with `pods` added at 0, in this order."""
    queue = SchedulingQueue(QueueConfig(version=mode.name))
    for pod in pods:
        queue.add(pod, now_ns=0)
    return queue


def pop(queue: SchedulingQueue, now_ns: int = 0) -> InFlightPod:
    """Pop a pod that must be there."""
    popped = queue.pop(now_ns=now_ns)
    assert isinstance(popped, InFlightPod)
    return popped


def fail_next(queue: SchedulingQueue, now_ns: int = 0) -> PopId:
    """Pop the next pod and give it back as failed."""
    popped = pop(queue, now_ns)
    queue.add_unschedulable(popped.id, now_ns=now_ns)
    return popped.id


def names(
    pod_infos: tuple[QueuedPodInfo, ...] | list[QueuedPodInfo] | list[InFlightPod],
) -> list[str]:
    """Return the pods' names in order."""
    return [pod_info.pod.name for pod_info in pod_infos]
