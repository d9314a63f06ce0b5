"""The lock of a run's folder: who writes into it, and why a run broke off.

LOCK is a file in the folder with one JSON object: the process that made it, its host and the time.
A run holds an exclusive flock on the file for as long as it lives; the kernel frees it when the
process ends, however it ends. A run that ends as it should removes the file. One that breaks off
adds the reason; one that was killed leaves the file as it was. The file keeps its size, so that the
reason can be written on a full disk.

On a network file system the lock is seen by other machines only where the file system carries
flock (NFS does unless mounted with `local_lock` or `nolock`); where flock is not supported at all,
runs go on without a lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

import orjson

from replay.errors import RunError, unwritable

LOCK = "run.lock"
_BYTES = 4096
_REASON_CHARS_MAX = 500
_TRIES, _PAUSE_S = 10, 0.02
"""Readers hold a shared lock for an instant."""
_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """A run as its lock describes it.

    since: when it began, as in 2026-01-31T12:00:00Z. broke_off: why it ended early; "" where it
    still runs or was killed. refused: its input was, so that it would break off there again.
    """

    pid: int = 0
    host: str = ""
    since: str = ""
    broke_off: str = ""
    refused: bool = False

    def __str__(self) -> str:
        """Return process, host and time for people."""
        return f"process {self.pid} on {self.host} since {self.since}"


class RunLock:
    """The lock of a folder, held from `take` to `release`."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self._path = folder / LOCK
        self._descriptor = descriptor
        self._holder = LockHolder(
            pid=os.getpid(),
            host=socket.gethostname(),
            since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )

    @classmethod
    def take(cls, folder: Path) -> Self:
        """Lock a folder. Raises RunError where a live run holds it, and where it cannot be written.

        The lock is let go, and the run reads as killed, when this process ends.
        """
        path = folder / LOCK
        for _ in range(_TRIES):
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise unwritable(path, error) from error
            if _locked(descriptor, fcntl.LOCK_EX) and _is_at(path, descriptor):
                lock = cls(folder, descriptor)
                lock._write()
                return lock
            os.close(descriptor)
            time.sleep(_PAUSE_S)
        raise RunError(held_text(folder))

    def release(self, broke_off: str = "", *, refused: bool = False) -> None:
        """Let the folder go; `broke_off` is why the run ended early, "" where it has its end.

        refused: its input was. A second call does nothing.
        """
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError):
            if broke_off:
                reason = broke_off.partition("\n")[0][:_REASON_CHARS_MAX]
                self._holder = replace(self._holder, broke_off=reason, refused=refused)
                self._put()
            elif _is_at(self._path, self._descriptor):
                self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = -1

    def _write(self) -> None:
        try:
            self._put()
        except OSError as error:
            os.close(self._descriptor)
            raise unwritable(self._path, error) from error

    def _put(self) -> None:
        text = orjson.dumps(asdict(self._holder))
        os.pwrite(self._descriptor, text[: _BYTES - 1].ljust(_BYTES - 1) + b"\n", 0)
        os.fsync(self._descriptor)


def is_held(folder: Path) -> bool:
    """Return whether a live run holds a folder."""
    path = folder / LOCK
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _locked(descriptor, fcntl.LOCK_SH) and _is_at(path, descriptor)
    finally:
        os.close(descriptor)


def read_holder(folder: Path) -> LockHolder | None:
    """Return the run that a folder's lock describes, live or not; None without a lock."""
    try:
        text = (folder / LOCK).read_bytes()
    except OSError:
        return None
    try:
        found = orjson.loads(text)
        return LockHolder(
            pid=int(found["pid"]),
            host=str(found["host"]),
            since=str(found["since"]),
            broke_off=str(found["broke_off"]),
            refused=bool(found.get("refused", False)),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return LockHolder()


def held_text(folder: Path) -> str:
    """Return the sentence that refuses a folder which a live run holds."""
    holder = read_holder(folder)
    by = f" ({holder})" if holder is not None and holder.pid else ""
    return f"{folder} is held by a run that is still going{by}; end that run, or give another --run"


def _locked(descriptor: int, kind: int) -> bool:
    """Lock a file without waiting; True also where its file system has no locks."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _UNSUPPORTED
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether the path still names the open file: its former holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
