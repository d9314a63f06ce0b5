"""Finds the pods on this machine by their control groups, and ends their processes.

A kubelet creates a group for each pod. Groups of pods of the lower quality-of-service classes are
below a group for the class: kubepods/burstable/podUID with the driver cgroupfs,
kubepods-burstable.slice/kubepods-burstable-podUID.slice with systemd. Any other group directly
below the root also counts as a pod, named after its folder.

A pod's processes get SIGTERM first, and SIGKILL after the grace period. A process outside the group
is never signalled: a signal is sent through a pidfd, after the kernel has confirmed that the
process of the pidfd is in the group.

Source: kubernetes v1.32 pkg/kubelet/cm/pod_container_manager_linux.go, GetPodContainerName;
cgroup_manager_linux.go, ToSystemd; pkg/kubelet/pod_workers.go, killPodNow.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from services.eviction.core.observations import ContainerUsage, PodUsage
from services.eviction.core.pod import EvictionPod
from services.eviction.host.cgroups import Cgroup, CgroupError

POLL_S = 0.1
TIMEOUT_MIN_S = 10
_CLASS = re.compile(r"(?:.*-)?(?:burstable|besteffort)(?:\.slice)?\Z")
_POD = re.compile(r"(?:.*-)?pod(?P<uid>[0-9a-fA-F_-]{32,36})(?:\.slice)?\Z")
_SCOPE = re.compile(r"(?:[a-z-]+-)?(?P<id>[^.]+)(?:\.scope)?\Z")


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod with its group."""

    pod: EvictionPod
    cgroup: Cgroup


def running_pods(root: Cgroup, api_pods: Mapping[str, EvictionPod]) -> Iterator[RunningPod]:
    """Yield the pods below `root` that have processes, in their groups' order.

    `api_pods` has the pods of the API server, by UID, or by name for groups that no kubelet
    created. A pod that is not in `api_pods` has no requests and priority 0.
    """
    for cgroup in _pod_groups(root):
        if next(cgroup.processes(), None) is None:
            continue
        uid = uid_of(cgroup.path.name)
        pod = api_pods.get(uid) or EvictionPod(uid=uid, namespace="", name=cgroup.path.name)
        yield RunningPod(replace(pod, uid=uid), cgroup)


def usage(running: Iterable[RunningPod]) -> dict[str, PodUsage]:
    """Return the usage of each pod, by UID; control groups have no figures of disks."""
    usage_by_uid: dict[str, PodUsage] = {}
    for pod in running:
        memory = pod.cgroup.memory()
        if memory is None:
            continue
        usage_by_uid[pod.pod.uid] = PodUsage(
            memory_working_set_bytes=memory.working_set,
            containers=tuple(_containers(pod)),
            processes=sum(1 for _ in pod.cgroup.processes()),
        )
    return usage_by_uid


def uid_of(name: str) -> str:
    """Return the UID in the name of a pod's group; the name if it has none."""
    match = _POD.match(name)
    return match["uid"].replace("_", "-") if match else name


def _pod_groups(root: Cgroup) -> Iterator[Cgroup]:
    for child in root.children():
        if _CLASS.match(child.path.name):
            yield from child.children()
        else:
            yield child


def _containers(running: RunningPod) -> Iterator[ContainerUsage]:
    """Yield the containers' memory; a pod's only container has its name, others have their ID."""
    groups = running.cgroup.children()
    names = [container.name for container in running.pod.containers]
    is_single = len(names) == 1
    if not groups and is_single:
        groups = [running.cgroup]
    for group in groups:
        memory = group.memory()
        if memory is None:
            continue
        scope = _SCOPE.match(group.path.name)
        name = names[0] if is_single else (scope["id"] if scope else group.path.name)
        yield ContainerUsage(name=name, memory_working_set_bytes=memory.working_set)


def timeout_s(grace_s: int) -> int:
    """Return how long a kill may take: one and a half times the grace period, at least 10 s.

    Half a second is rounded down. Source: kubernetes v1.32 pkg/kubelet/pod_workers.go, killPodNow.
    """
    return max(TIMEOUT_MIN_S, grace_s + grace_s // 2)


def kill(
    cgroup: Cgroup,
    root: Cgroup,
    grace_s: int,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """End all processes of a group below `root`; return whether all have ended.

    SIGTERM first, SIGKILL after `grace_s`. Raises CgroupError for a group that is not below `root`.
    """
    inside = cgroup.path.resolve()
    if inside == root.path.resolve() or root.path.resolve() not in inside.parents:
        raise CgroupError(f"{cgroup.path}: is not below {root.path}: no process is signalled")
    began = clock()
    _send(cgroup, signal.SIGTERM)
    while _is_busy(cgroup) and clock() - began < grace_s:
        sleep(POLL_S)
    while _is_busy(cgroup) and clock() - began < timeout_s(grace_s):
        _send(cgroup, signal.SIGKILL)
        sleep(POLL_S)
    return not _is_busy(cgroup)


def _is_busy(cgroup: Cgroup) -> bool:
    return next(cgroup.processes(), None) is not None


def _send(cgroup: Cgroup, number: signal.Signals) -> None:
    for pid in list(cgroup.processes()):
        if pid <= 1 or pid == os.getpid():
            continue
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if pid in set(cgroup.processes()):
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            continue
        finally:
            os.close(descriptor)
