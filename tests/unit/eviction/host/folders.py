"""Control groups and a proc file system as files, as they were read on real machines."""

from __future__ import annotations

from pathlib import Path

UID = "0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER_UID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
MIB = 1 << 20


def v1(path: Path, *, usage: int, inactive: int, limit: int = 1 << 63, pids: str = "") -> Path:
    """Write a group of version 1."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "memory.usage_in_bytes").write_text(f"{usage}\n")
    (path / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (path / "memory.stat").write_text(
        f"cache 1\nrss 2\ninactive_file 5\ntotal_cache 3\ntotal_inactive_file {inactive}\n"
    )
    (path / "cgroup.procs").write_text(pids)
    return path


def v2(path: Path, *, usage: int, inactive: int, limit: str = "max", pids: str = "") -> Path:
    """Write a group of version 2."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.controllers").write_text("cpu memory pids\n")
    (path / "memory.current").write_text(f"{usage}\n")
    (path / "memory.max").write_text(f"{limit}\n")
    (path / "memory.stat").write_text(f"anon 1\nfile 2\ninactive_file {inactive}\nslab 9\n")
    (path / "memory.events").write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n")
    (path / "cgroup.procs").write_text(pids)
    return path


def proc(path: Path) -> Path:
    """Write a proc file system."""
    (path / "sys" / "kernel").mkdir(parents=True)
    (path / "meminfo").write_text(
        "MemTotal:        8000 kB\nMemFree:         3000 kB\nMemAvailable:    5000 kB\n"
        "Inactive(file):  1000 kB\n"
    )
    (path / "sys" / "kernel" / "pid_max").write_text("4194304\n")
    (path / "sys" / "kernel" / "threads-max").write_text("63000\n")
    (path / "loadavg").write_text("0.50 0.40 0.30 2/321 4567\n")
    (path / "stat").write_text("cpu 1 2 3\nbtime 1571904000\nprocesses 9\n")
    return path
