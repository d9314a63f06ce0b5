"""A machine's memory, file systems and process IDs, and the kernel's notifications of low memory.

Memory is read from a control group, by either of the kernel's two interfaces, or from /proc for the
whole machine. With cgroup version 1, a group notifies through an event descriptor when its usage
crosses a threshold. Version 2 has no such thresholds; there, the group's events (limits reached,
kills) and memory stalls, if the kernel reports them, wake the manager.

Source: cadvisor container/libcontainer/handler.go, setMemoryStats (working set), machine/info.go
(memory's capacity); kubernetes v1.32 pkg/kubelet/stats/pidlimit/pidlimit_linux.go (process ids),
pkg/kubelet/eviction/memory_threshold_notifier.go, UpdateThreshold, threshold_notifier_linux.go,
NewCgroupNotifier, Start; the kernel's Documentation/admin-guide/cgroup-v1/memory.rst and
cgroup-v2.rst; statvfs(3).
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from services.eviction.core.observations import FsStats, MemoryStats, RlimitStats
from services.eviction.core.thresholds import Threshold

_UNLIMITED = 1 << 62
"""A v1 limit of this size or more means no limit: the kernel shows the largest number of pages."""


class CgroupError(ValueError):
    """A folder is not a memory control group; the message is for users."""


class CgroupVersion(Enum):
    """The kernel's two interfaces."""

    V1 = "v1"
    V2 = "v2"


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupMemory:
    """A group's memory in bytes; `limit` is None if there is no limit."""

    usage: int
    working_set: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A memory control group, by its folder."""

    path: Path
    version: CgroupVersion

    @classmethod
    def open(cls, path: Path) -> Cgroup:
        """Return the group of a folder. Raises CgroupError if it has no memory figures."""
        if (path / "memory.usage_in_bytes").is_file():
            return cls(path, CgroupVersion.V1)
        if (path / "memory.current").is_file():
            return cls(path, CgroupVersion.V2)
        if (path / "cgroup.controllers").is_file():
            raise CgroupError(
                f"{path}: its memory controller is off, or it is the root of the hierarchy: use a "
                "group below it"
            )
        raise CgroupError(f"{path}: is not a memory control group")

    def children(self) -> list[Cgroup]:
        """Return the groups below this one, by name."""
        try:
            folders = sorted(path for path in self.path.iterdir() if path.is_dir())
        except FileNotFoundError:
            return []
        return [Cgroup(folder, self.version) for folder in folders]

    def memory(self) -> CgroupMemory | None:
        """Return the group's memory, None if the group has been removed.

        The working set is the usage minus inactive file pages.
        """
        names = _FILES[self.version]
        try:
            usage = int((self.path / names.usage).read_text())
            limit = (self.path / names.limit).read_text().strip()
            inactive = _stat((self.path / "memory.stat").read_text(), names.inactive)
        except (FileNotFoundError, OSError):
            return None
        bound = None if limit == "max" or int(limit) >= _UNLIMITED else int(limit)
        return CgroupMemory(usage=usage, working_set=max(0, usage - inactive), limit=bound)

    def processes(self) -> Iterator[int]:
        """Yield the ids of the current processes in this group and all below it."""
        try:
            text = (self.path / "cgroup.procs").read_text()
        except OSError:
            return
        yield from map(int, text.split())
        for child in self.children():
            yield from child.processes()

    @property
    def exists(self) -> bool:
        """Whether the group still exists."""
        return self.path.is_dir()


@dataclass(frozen=True, slots=True)
class _Files:
    usage: str
    limit: str
    inactive: str


_FILES = {
    CgroupVersion.V1: _Files(
        "memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file"
    ),
    CgroupVersion.V2: _Files("memory.current", "memory.max", "inactive_file"),
}


def _stat(text: str, name: str) -> int:
    """Return a figure of memory.stat, 0 if it is missing."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a proc file system."""

    proc: Path = PROC

    def memory_capacity(self) -> int:
        """Return the machine's memory in bytes."""
        return self._meminfo("MemTotal")

    def memory(self, now_ns: int) -> MemoryStats:
        """Return the memory of the whole machine.

        The working set is the memory that is neither free nor inactive file pages, as cAdvisor
        computes it for the root group with either version of control groups.
        """
        capacity = self.memory_capacity()
        used = capacity - self._meminfo("MemFree") - self._meminfo("Inactive(file)")
        working_set = min(max(0, used), capacity)
        return MemoryStats(
            available_bytes=capacity - working_set, working_set_bytes=working_set, time_ns=now_ns
        )

    def pids(self, now_ns: int) -> RlimitStats:
        """Return the limit of process IDs, and the number of threads, each of which has one."""
        limits = [
            int((self.proc / "sys" / "kernel" / name).read_text())
            for name in ("pid_max", "threads-max")
        ]
        running = (self.proc / "loadavg").read_text().split()[3].partition("/")[2]
        return RlimitStats(max_pid=min(limits), running_processes=int(running), time_ns=now_ns)

    def _meminfo(self, name: str) -> int:
        for line in (self.proc / "meminfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return int(value.split()[0]) * 1024
        return 0


def file_system(path: Path, now_ns: int) -> FsStats:
    """Return the file system that `path` is on. Raises OSError for a path that does not exist."""
    statistics = os.statvfs(path)
    return FsStats(
        available_bytes=statistics.f_bavail * statistics.f_frsize,
        capacity_bytes=statistics.f_blocks * statistics.f_frsize,
        inodes_free=statistics.f_ffree,
        inodes=statistics.f_files,
        time_ns=now_ns,
    )


def group_memory(memory: CgroupMemory, capacity: int, now_ns: int) -> MemoryStats:
    """Return a group's memory; the capacity is its limit, or the machine's `capacity`."""
    limit = capacity if memory.limit is None else min(memory.limit, capacity)
    return MemoryStats(
        available_bytes=max(0, limit - memory.working_set),
        working_set_bytes=memory.working_set,
        time_ns=now_ns,
    )


_STALL = b"some 150000 1000000\0"
"""A trigger: wake if tasks have stalled for 150 ms within a second."""


def crossing(threshold: Threshold, stats: MemoryStats, memory: CgroupMemory) -> int:
    """Return the usage in bytes at which the working set leaves less than the threshold.

    This is the capacity minus the threshold's amount, plus the usage outside the working set.
    """
    capacity = (stats.available_bytes or 0) + (stats.working_set_bytes or 0)
    amount = threshold.value.amount(capacity).value()
    return max(0, capacity - amount + memory.usage - memory.working_set)


class Notifier(Protocol):
    """The kernel's notifications of one group."""

    def update(self, crossings: Sequence[int]) -> None:
        """Replace the usages, in bytes, whose crossing notifies."""

    def wait(self, timeout_s: float) -> bool:
        """Wait; return whether the kernel notified before the time was over."""

    def close(self) -> None:
        """End the notifications."""


def open_notifier(cgroup: Cgroup) -> Notifier:
    """Return a notifier for a group. Raises OSError if the kernel refuses."""
    return UsageNotifier(cgroup) if cgroup.version is CgroupVersion.V1 else EventNotifier(cgroup)


class UsageNotifier:
    """Version 1: thresholds on memory.usage_in_bytes, through an eventfd and epoll."""

    def __init__(self, cgroup: Cgroup) -> None:
        self._cgroup = cgroup
        self._epoll = select.epoll()
        self._event = -1

    def update(self, crossings: Sequence[int]) -> None:
        """Register these usages in place of the former ones."""
        self._unregister()
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
        """Wait for a crossing in either direction; the kernel notifies of both."""
        if not self._epoll.poll(timeout_s):
            return False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        return True

    def close(self) -> None:
        """Close the descriptors."""
        self._unregister()
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

    def _unregister(self) -> None:
        if self._event >= 0:
            self._epoll.unregister(self._event)
            os.close(self._event)
            self._event = -1


class EventNotifier:
    """Version 2: changes of memory.events, and stalls from memory.pressure if it exists."""

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
        """Do nothing: version 2 has no usage thresholds."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for an event."""
        ready = self._poll.poll(timeout_s * 1000)
        for descriptor, _ in ready:
            with contextlib.suppress(OSError):
                os.pread(descriptor, 4096, 0)
        return bool(ready)

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in self._files:
            os.close(descriptor)

    def _add(self, descriptor: int) -> None:
        self._files.append(descriptor)
        self._poll.register(descriptor, select.POLLPRI)
