"""Memory control groups of this machine, version 1 and 2.

Source: cadvisor container/libcontainer/handler.go, setMemoryStats (working set); the kernel's
Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_UNLIMITED = 1 << 62
"""From here on a v1 limit is none: the kernel shows the largest number of pages."""


class CgroupError(ValueError):
    """A folder that is no memory control group; the text is for people."""


class Version(Enum):
    """The kernel's two interfaces."""

    V1 = "v1"
    V2 = "v2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A group's memory in bytes; `limit` is None where it has none."""

    usage: int
    working_set: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A memory control group, by its folder."""

    path: Path
    version: Version

    @classmethod
    def open(cls, path: Path) -> Cgroup:
        """Return the group of a folder. Raises CgroupError where it is none with memory."""
        if (path / "memory.usage_in_bytes").is_file():
            return cls(path, Version.V1)
        if (path / "memory.current").is_file():
            return cls(path, Version.V2)
        if (path / "cgroup.controllers").is_file():
            raise CgroupError(
                f"{path}: its memory controller is off, or it is the root of the hierarchy: name "
                "a group below it"
            )
        raise CgroupError(f"{path}: is no memory control group")

    def children(self) -> list[Cgroup]:
        """Return the groups below this one, by name."""
        try:
            folders = sorted(each for each in self.path.iterdir() if each.is_dir())
        except FileNotFoundError:
            return []
        return [Cgroup(each, self.version) for each in folders]

    def memory(self) -> Memory | None:
        """Return what is used, None where the group has gone.

        The working set is the usage less file pages that nobody has used for long.
        """
        names = _FILES[self.version]
        try:
            usage = int((self.path / names.usage).read_text())
            limit = (self.path / names.limit).read_text().strip()
            inactive = _stat((self.path / "memory.stat").read_text(), names.inactive)
        except (FileNotFoundError, OSError):
            return None
        bound = None if limit == "max" or int(limit) >= _UNLIMITED else int(limit)
        return Memory(usage=usage, working_set=max(0, usage - inactive), limit=bound)

    def processes(self) -> Iterator[int]:
        """Yield the ids of the processes in this group and all below it, as they are just now."""
        try:
            text = (self.path / "cgroup.procs").read_text()
        except OSError:
            return
        yield from map(int, text.split())
        for child in self.children():
            yield from child.processes()

    @property
    def exists(self) -> bool:
        """Tell whether the group is still there."""
        return self.path.is_dir()


@dataclass(frozen=True, slots=True)
class _Files:
    usage: str
    limit: str
    inactive: str


_FILES = {
    Version.V1: _Files("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file"),
    Version.V2: _Files("memory.current", "memory.max", "inactive_file"),
}


def _stat(text: str, name: str) -> int:
    """Return a figure of memory.stat, 0 where it is missing."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
