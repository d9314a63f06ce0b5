"""What this machine says of itself: memory, file systems, process ids, boot time.

Source: kubernetes v1.32 pkg/kubelet/stats/pidlimit/pidlimit_linux.go (process ids); cadvisor
machine/info.go (memory's capacity) and utils/oomparser; statvfs(3).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from services.eviction.core.observations import FsStats, MemoryStats, RlimitStats
from services.eviction.host.cgroups import Memory

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine as `proc`, a proc file system, shows it."""

    proc: Path = PROC

    def memory_capacity(self) -> int:
        """Return the machine's memory in bytes."""
        return self._meminfo("MemTotal")

    def memory(self, now_ns: int) -> MemoryStats:
        """Return the memory of the whole machine.

        Its working set is all that is neither free nor file pages unused for long, which is what
        cAdvisor makes of the root group on either version of control groups.
        """
        capacity = self.memory_capacity()
        used = capacity - self._meminfo("MemFree") - self._meminfo("Inactive(file)")
        working_set = min(max(0, used), capacity)
        return MemoryStats(
            available_bytes=capacity - working_set,
            working_set_bytes=working_set,
            time_ns=now_ns,
        )

    def pids(self, now_ns: int) -> RlimitStats:
        """Return how many processes there may be, and how many threads there are."""
        limits = [
            int((self.proc / "sys" / "kernel" / name).read_text())
            for name in ("pid_max", "threads-max")
        ]
        running = (self.proc / "loadavg").read_text().split()[3].partition("/")[2]
        return RlimitStats(max_pid=min(limits), running_processes=int(running), time_ns=now_ns)

    def boot_ns(self) -> int:
        """Return when the machine was booted, ns since the Unix epoch."""
        found = re.search(r"^btime (\d+)$", (self.proc / "stat").read_text(), re.MULTILINE)
        return int(found[1]) * 1_000_000_000 if found else 0

    def _meminfo(self, name: str) -> int:
        for line in (self.proc / "meminfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return int(value.split()[0]) * 1024
        return 0


def file_system(path: Path, now_ns: int) -> FsStats:
    """Return the file system that `path` is on. Raises OSError where there is none."""
    found = os.statvfs(path)
    return FsStats(
        available_bytes=found.f_bavail * found.f_frsize,
        capacity_bytes=found.f_blocks * found.f_frsize,
        inodes_free=found.f_ffree,
        inodes=found.f_files,
        time_ns=now_ns,
    )


def group_memory(memory: Memory, capacity: int, now_ns: int) -> MemoryStats:
    """Return a group's memory: what its limit, or else the machine's memory, leaves available."""
    limit = capacity if memory.limit is None else min(memory.limit, capacity)
    return MemoryStats(
        available_bytes=max(0, limit - memory.working_set),
        working_set_bytes=memory.working_set,
        time_ns=now_ns,
    )
