"""Cuts the power at every moment of a run, in a model of a disk; nothing may be rotten or lost.

    python -m tests.torture.crashes --count 3 --seed 1

A replay in this process makes a run, and each of its operations on files is recorded on the way:
open, write, truncate, rename, remove, sync of a file and of the folder. For each prefix of these
operations, folders are made as a disk could hold them after a power cut there:

- names: those at the last sync of the folder, or after any later change of them, in order;
- content: all that was written (as after a kill), what was synced alone, or the written length
  with zeros in place of what was not synced.

Each such folder must be resumed to the bytes of the undisturbed run, or be that run, whole, or have
nothing of a run and be usable by the next. After the end of the command it must be the run.
Folders that are equal are tried once. The idea is that of ALICE and CrashMonkey.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import click

from replay.backends.processes import prepare
from replay.errors import RunError
from replay.generate.workload import GenerateOptions, generate
from replay.report.page import write_report
from replay.results.run.directory import RunDirectory
from replay.results.run.files import DECISIONS
from replay.results.run.verification import FAULTS, verify
from replay.runner import run_replay
from replay.settings import ReplaySettings
from services.folder import drafted
from services.kube.time import SECOND_NS
from services.telemetry.span import Sampling

_WRITERS = ("services.folder", "services.growing_file", "replay.results.run.lock")
"""The only modules that write into a run's folder, and DuckDB, whose files the first one moves."""
_ZEROS = "zeros"
_KINDS = ("written", "synced", _ZEROS)

Files = Mapping[str, bytes]
"""A folder's files by name."""


@dataclass(slots=True)
class _Inode:
    """A file: its content, and what of it the disk has for certain."""

    content: bytes = b""
    synced: bytes = b""

    def after(self, kind: str) -> bytes:
        """Return the content after a power cut."""
        if kind == "written":
            return self.content
        if kind == "synced":
            return self.synced
        left = len(self.content) - len(self.synced)
        return self.synced[: len(self.content)] + bytes(max(0, left))


@dataclass(slots=True)
class Disk:
    """A folder on a disk: `names` now, and after each change of them since the last sync."""

    inodes: dict[int, _Inode] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    since_sync: list[dict[str, int]] = field(default_factory=lambda: [{}])

    def link(self, name: str, inode: int, former: str = "") -> None:
        """Give a file a name, in place of a `former` one if that is not ""."""
        self.names.pop(former, None)
        self.names[name] = inode
        self.since_sync.append(dict(self.names))

    def unlink(self, name: str) -> None:
        """Take a name away."""
        self.names.pop(name, None)
        self.since_sync.append(dict(self.names))

    def sync_names(self) -> None:
        """Keep the names as they are now."""
        self.since_sync = [dict(self.names)]

    def append(self, inode: int, data: bytes) -> None:
        """Write at the end of a file."""
        self.inodes.setdefault(inode, _Inode()).content += data

    def cut(self, inode: int, size: int) -> None:
        """Truncate a file. A disk that has not heard of it has what it had."""
        file = self.inodes.setdefault(inode, _Inode())
        file.content = file.content[:size].ljust(size, b"\0")

    def sync(self, inode: int, content: bytes) -> None:
        """Keep a content of a file."""
        self.inodes[inode] = _Inode(content, content)

    def after_a_cut(self) -> Iterator[Files]:
        """Yield what the folder may be after a power cut now."""
        for names in self.since_sync:
            for kind in _KINDS:
                yield {
                    name: self.inodes.get(inode, _Inode()).after(kind)
                    for name, inode in names.items()
                }


Operation = Callable[[Disk], None]


class Recording:
    """The operations on the files of one folder, as the writing modules do them.

    It stands in place of the module `os` there. begun: how many operations the run had done when it
    could be resumed for the first time.
    """

    def __init__(self, folder: Path) -> None:
        self.operations: list[Operation] = []
        self.begun = 0
        self._lock = threading.Lock()
        self._root = folder.stat().st_ino

    def __getattr__(self, name: str) -> Any:
        """Return what is not recorded as it is."""
        return getattr(os, name)

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Record within the `with` block."""
        with contextlib.ExitStack() as stack:
            for name in _WRITERS:
                stack.enter_context(mock.patch(f"{name}.os", self))
            yield

    def open(self, name: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """Open a file; a new one has a new name."""
        with self._lock:
            is_new = flags & os.O_CREAT and self._is_root(dir_fd) and not self._kind(name, dir_fd)
            descriptor = os.open(name, flags, mode, dir_fd=dir_fd)
            if is_new:
                inode = os.fstat(descriptor).st_ino
                self._add(lambda disk: disk.link(name, inode))
            return descriptor

    def write(self, descriptor: int, data: Any) -> int:
        """Write at the end of a file."""
        with self._lock:
            count, inode = os.write(descriptor, data), os.fstat(descriptor).st_ino
            written = bytes(data[:count])
            self._add(lambda disk: disk.append(inode, written))
            return count

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        """Write the lock, whose content no reader depends on."""
        return os.pwrite(descriptor, data, offset)

    def ftruncate(self, descriptor: int, size: int) -> None:
        """Truncate a file."""
        with self._lock:
            os.ftruncate(descriptor, size)
            inode = os.fstat(descriptor).st_ino
            self._add(lambda disk: disk.cut(inode, size))

    def rename(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """Rename a file; one that comes from another folder has no former name."""
        with self._lock:
            inode = os.stat(source, dir_fd=src_dir_fd).st_ino
            os.rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            former = source if self._is_root(src_dir_fd) else ""
            if self._is_root(dst_dir_fd):
                self._add(lambda disk: disk.link(target, inode, former))

    def unlink(self, name: str, *, dir_fd: int) -> None:
        """Remove a file."""
        with self._lock:
            os.unlink(name, dir_fd=dir_fd)
            if self._is_root(dir_fd):
                self._add(lambda disk: disk.unlink(name))

    def fsync(self, descriptor: int) -> None:
        """Sync a file, or the names in the folder."""
        with self._lock:
            os.fsync(descriptor)
            inode = os.fstat(descriptor).st_ino
            if inode == self._root:
                self._add(Disk.sync_names)
                return
            content = Path(f"/proc/self/fd/{descriptor}").read_bytes()
            self._add(lambda disk: disk.sync(inode, content))

    def _add(self, operation: Operation) -> None:
        self.operations.append(operation)

    def _is_root(self, folder: int | None) -> bool:
        return folder is not None and os.fstat(folder).st_ino == self._root

    @staticmethod
    def _kind(name: str, folder: int | None) -> int:
        try:
            return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return 0


def workload(seed: int, pods: int) -> GenerateOptions:
    """Return the options of a workload."""
    return GenerateOptions(
        seed=seed,
        nodes=4,
        pods=pods,
        deployments=2,
        budgets=4,
        window_ns=60 * SECOND_NS,
        service_ns=20 * SECOND_NS,
        leaky_percent=10,
    )


class Crashed:
    """A run whose operations were recorded, and every folder that a power cut can make of it."""

    def __init__(self, folder: Path, options: GenerateOptions) -> None:
        """Make the run in `folder`/whole."""
        self._options = options
        self._folder = folder
        path = folder / "whole"
        path.mkdir()
        self._recording = Recording(path)
        with self._recording.recorded(), mock.patch("replay.recovery.SHARE", 0):
            finished = self._replayed(path, resumes=False)
            write_report(finished.run)
        self.run = RunDirectory.open(path)
        self._log = (path / DECISIONS).read_bytes()
        self._history = list(self.run.rounds())
        self._outcomes: dict[bytes, str] = {}

    @property
    def operations(self) -> int:
        """Return the number of recorded operations."""
        return len(self._recording.operations)

    def is_complete(self) -> bool:
        """Return whether the operations make the folder that there is: nothing writes beside."""
        disk = Disk()
        for operation in self._recording.operations:
            operation(disk)
        path = self.run.path
        there = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
        return there == {name: disk.inodes[inode].content for name, inode in disk.names.items()}

    def folders(self) -> Iterator[tuple[int, Files]]:
        """Yield each prefix, as the number of its operations, with each folder after it."""
        disk = Disk()
        yield from ((0, files) for files in disk.after_a_cut())
        for number, operation in enumerate(self._recording.operations, 1):
            operation(disk)
            yield from ((number, files) for files in disk.after_a_cut())

    def some_folders(self, count: int, chance: Random) -> Iterator[tuple[int, Files]]:
        """Yield the first folder with each set of files, the last ones, and `count` random ones."""
        seen = set[frozenset[str]]()
        every = list(self.folders())
        for number, files in every:
            names = frozenset(drafted(name) or name for name in files)
            if names not in seen or number == self.operations:
                seen.add(names)
                yield number, files
        yield from chance.sample(every, count)

    def outcome(self, number: int, files: Files) -> str:
        """Return what becomes of a folder; beginning with "BAD" where that must not be."""
        texts = sorted(files.items())
        digest = hashlib.sha256(repr([(n, hashlib.sha256(c).digest()) for n, c in texts]).encode())
        key = digest.digest()
        if key not in self._outcomes:
            self._outcomes[key] = self._tried(files)
        found = self._outcomes[key]
        if number == self.operations and found != "whole":
            return f"BAD: after the end of the command: {found}"
        if number >= self._recording.begun and found == "not begun":
            return "BAD: nothing of a run, after it had begun"
        return found

    @property
    def tried(self) -> int:
        """Return the number of different folders that were tried."""
        return len(self._outcomes)

    def _tried(self, files: Files) -> str:
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            path = Path(place) / "run"
            path.mkdir()
            for name, content in files.items():
                (path / name).write_bytes(content)
            try:
                return self._judged(path)
            except Exception as error:
                return f"BAD: {type(error).__name__}: {error}"

    def _judged(self, path: Path) -> str:
        try:
            run = RunDirectory.open(path)
        except RunError:
            RunDirectory.check(path)
            return "not begun"
        found = "whole"
        if not run.manifest().finished:
            notices: list[str] = []
            self._replayed(path, resumes=True, notice=notices.append)
            found = "resumed"
            if notices:
                return f"BAD: the checkpoint counts on what the disk has not: {notices}"
        run = RunDirectory.open(path)
        faults = [
            f"{issue.path} is {issue.verdict}" for issue in verify(run) if issue.verdict in FAULTS
        ]
        if faults:
            return f"BAD: {found}: {faults}"
        if (path / DECISIONS).read_bytes() != self._log or list(run.rounds()) != self._history:
            return f"BAD: {found}: other decisions"
        return found

    def _replayed(
        self, path: Path, *, resumes: bool, notice: Callable[[str], None] = lambda _: None
    ) -> Any:
        def progress(*_: object) -> None:
            self._recording.begun = self._recording.begun or len(self._recording.operations)

        settings = ReplaySettings(
            version="test",
            run_path=path,
            sampling=Sampling(0.3),
            in_process=True,
            checkpoint_every_ns=20_000_000,
            resumes=resumes,
        )
        return run_replay(settings, lambda: generate(self._options), progress, notice)


def torture(seeds: range, pods: int, show: Callable[[str], None]) -> int:
    """Try every folder of a run for each seed; return how many are bad."""
    bad = 0
    for seed in seeds:
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="crashes-") as folder:
            crashed = Crashed(Path(folder), workload(seed, pods))
            if not crashed.is_complete():
                show(f"{seed}: something else writes into the run's folder")
                bad += 1
            outcomes = Counter[str]()
            for number, files in crashed.folders():
                outcome = crashed.outcome(number, files)
                outcomes[outcome.partition(":")[0]] += 1
                if outcome.startswith("BAD"):
                    bad += 1
                    show(f"{seed}: after {number} of {crashed.operations} operations: {outcome}")
            shown = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))
            took_s = time.monotonic() - began_s
            show(
                f"{seed}: {crashed.operations} operations, {crashed.tried} different folders: "
                f"{shown}; {took_s:.0f} s"
            )
    return bad


@click.command()
@click.option("--count", default=3, show_default=True, help="Runs.")
@click.option("--seed", default=1, show_default=True, help="The seed of the first one.")
@click.option("--pods", default=120, show_default=True, help="Pods in each run.")
def main(count: int, seed: int, pods: int) -> None:
    """Cut the power at every moment of runs of generated workloads."""
    prepare()
    bad = torture(range(seed, seed + count), pods, click.echo)
    click.echo(f"{bad} bad")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
