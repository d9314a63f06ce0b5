"""Being told by the kernel when memory grows short, before the next step would see it.

On version 1 a group announces the crossing of a threshold on its usage through an event descriptor.
Version 2 has no such thing; there the group's events (limits met, kills) and, where the kernel
offers it, stalls for want of memory wake the manager.

Source: kubernetes v1.32 pkg/kubelet/eviction/memory_threshold_notifier.go, UpdateThreshold;
threshold_notifier_linux.go, NewCgroupNotifier, Start.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Sequence
from typing import Protocol

from services.eviction.core.observations import MemoryStats
from services.eviction.core.thresholds import Threshold
from services.eviction.host.cgroups import Cgroup, Memory, Version

_STALL = b"some 150000 1000000\0"
"""Wake where tasks have stalled for 150 ms within a second."""


def crossing(threshold: Threshold, stats: MemoryStats, memory: Memory) -> int:
    """Return the usage in bytes at which the working set leaves less than the threshold.

    That is the capacity less the threshold's amount, plus what of the usage is no working set.
    """
    capacity = (stats.available_bytes or 0) + (stats.working_set_bytes or 0)
    amount = threshold.value.amount(capacity).value()
    return max(0, capacity - amount + memory.usage - memory.working_set)


class Notifier(Protocol):
    """What the kernel is asked to tell of one group."""

    def update(self, crossings: Sequence[int]) -> None:
        """Ask anew, for crossings of these usages in bytes."""

    def wait(self, timeout_s: float) -> bool:
        """Wait, and tell whether the kernel had something to tell before the time was over."""

    def close(self) -> None:
        """Ask for nothing any more."""


def open_notifier(cgroup: Cgroup) -> Notifier:
    """Return a notifier for a group. Raises OSError where the kernel refuses."""
    return UsageNotifier(cgroup) if cgroup.version is Version.V1 else EventNotifier(cgroup)


class UsageNotifier:
    """Version 1: thresholds on memory.usage_in_bytes, through an eventfd and epoll."""

    def __init__(self, cgroup: Cgroup) -> None:
        self._cgroup = cgroup
        self._epoll = select.epoll()
        self._event = -1

    def update(self, crossings: Sequence[int]) -> None:
        """Ask for these usages alone; those of before are forgotten."""
        self._forget()
        event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            for usage in crossings:
                self._register(event, usage)
        except OSError:
            os.close(event)
            raise
        self._event = event
        self._epoll.register(event, select.EPOLLIN)

    def wait(self, timeout_s: float) -> bool:
        """Wait for a crossing, in either direction, as the kernel announces them."""
        if not self._epoll.poll(timeout_s):
            return False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        return True

    def close(self) -> None:
        """Close what is open."""
        self._forget()
        self._epoll.close()

    def _register(self, event: int, usage: int) -> None:
        watched = os.open(self._cgroup.path / "memory.usage_in_bytes", os.O_RDONLY | os.O_CLOEXEC)
        try:
            control = os.open(self._cgroup.path / "cgroup.event_control", os.O_WRONLY)
            try:
                os.write(control, f"{event} {watched} {usage}".encode())
            finally:
                os.close(control)
        finally:
            os.close(watched)

    def _forget(self) -> None:
        if self._event >= 0:
            self._epoll.unregister(self._event)
            os.close(self._event)
            self._event = -1


class EventNotifier:
    """Version 2: changes of memory.events, and stalls by memory.pressure where there is one."""

    def __init__(self, cgroup: Cgroup) -> None:
        self._poll = select.poll()
        self._files: list[int] = []
        self._add(os.open(cgroup.path / "memory.events", os.O_RDONLY | os.O_CLOEXEC))
        with contextlib.suppress(OSError):
            stalls = os.open(
                cgroup.path / "memory.pressure", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
            )
            try:
                os.write(stalls, _STALL)
            except OSError:
                os.close(stalls)
                raise
            self._add(stalls)

    def update(self, crossings: Sequence[int]) -> None:
        """Nothing changes: the kernel takes no thresholds here."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for an event."""
        ready = self._poll.poll(timeout_s * 1000)
        for descriptor, _ in ready:
            with contextlib.suppress(OSError):
                os.pread(descriptor, 4096, 0)
        return bool(ready)

    def close(self) -> None:
        """Close what is open."""
        for descriptor in self._files:
            os.close(descriptor)

    def _add(self, descriptor: int) -> None:
        self._files.append(descriptor)
        self._poll.register(descriptor, select.POLLPRI)
