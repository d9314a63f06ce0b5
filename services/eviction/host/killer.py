"""Ending the processes of a control group: asked first, killed after the grace period.

Nothing outside the group is ever touched: a signal goes to a process by a descriptor that is bound
to it, after the kernel has confirmed that the process is in the group.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from services.eviction.host.cgroups import Cgroup, CgroupError

POLL_S = 0.1
TIMEOUT_LEAST_S = 10


def timeout_s(grace_s: int) -> int:
    """Return how long a kill may take: one and a half times the grace period, at least 10 s.

    Half a second is rounded down.

    Source: kubernetes v1.32 pkg/kubelet/pod_workers.go, killPodNow.
    """
    return max(TIMEOUT_LEAST_S, grace_s + grace_s // 2)


def kill(
    cgroup: Cgroup,
    root: Cgroup,
    grace_s: int,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """End all processes of a group below `root`, and tell whether that succeeded.

    SIGTERM first, SIGKILL after `grace_s`. Raises CgroupError for a group that is not below `root`.
    """
    inside = cgroup.path.resolve()
    if inside == root.path.resolve() or root.path.resolve() not in inside.parents:
        raise CgroupError(f"{cgroup.path}: does not lie below {root.path}: nothing is touched")
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
