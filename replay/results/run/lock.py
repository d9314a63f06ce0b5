"""The lock of a run's folder: which process writes into it, and why a run broke off.

LOCK is a file in the folder with one JSON object: the process that made it, its host and the time.
A run holds an exclusive flock on the file; the kernel releases the flock when the process ends, for
whatever reason. A run that completes removes the file. A run that breaks off adds the reason. A
killed run leaves the file unchanged. The file has a fixed size, so the reason can be written even
on a full disk.

On a network file system, other machines see the lock only if the file system supports flock (NFS
does unless mounted with `local_lock` or `nolock`). If flock is not supported at all, runs proceed
without a lock.
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

from replay.errors import RunError, unreadable, unwritable
from services.folder import Folder, NotAFileError, open_file

LOCK = "run.lock"
_BYTES = 4096
_REASON_CHARS_MAX = 500
_TRIES, _PAUSE_S = 10, 0.02
"""`take` retries, because is_held takes a shared lock for a moment."""
_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """The content of a lock file.

    since: when the run began, as in 2026-01-31T12:00:00Z. broke_off: why the run ended early; "" if
    it still runs or was killed. refused: whether the run broke off because its input is invalid, so
    that resuming it would fail again.
    """

    pid: int = 0
    host: str = ""
    since: str = ""
    broke_off: str = ""
    refused: bool = False

    def __str__(self) -> str:
        """Return process, host and time for users."""
        return f"process {self.pid} on {self.host} since {self.since}"


class RunLock:
    """The lock of a folder, held from `take` to `release`; `folder` stays open for as long."""

    def __init__(self, folder: Folder, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor
        self._holder = LockHolder(
            pid=os.getpid(),
            host=socket.gethostname(),
            since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )

    @classmethod
    def take(cls, folder: Path) -> Self:
        """Lock a folder. Raises RunError if a live run holds it, and if it cannot be written.

        If this process ends without `release`, the lock is freed and the run counts as killed.
        """
        with contextlib.ExitStack() as stack:
            try:
                opened = stack.enter_context(Folder(folder))
                for _ in range(_TRIES):
                    descriptor = opened.open(LOCK, os.O_RDWR | os.O_CREAT)
                    if _locked(descriptor, fcntl.LOCK_EX) and opened.is_at(LOCK, descriptor):
                        lock = cls(opened, descriptor)
                        stack.callback(os.close, descriptor)
                        lock._put()
                        stack.pop_all()
                        return lock
                    os.close(descriptor)
                    time.sleep(_PAUSE_S)
            except OSError as error:
                raise unwritable(folder / LOCK, error) from error
        raise RunError(held_text(folder))

    @property
    def is_held(self) -> bool:
        """Return whether `release` has not been called yet."""
        return self._descriptor >= 0

    def release(self, broke_off: str = "", *, refused: bool = False) -> None:
        """Release the lock; a second call does nothing.

        broke_off: why the run ended early, "" if it is complete. refused: as in LockHolder.
        """
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError):
            if broke_off:
                reason = broke_off.partition("\n")[0][:_REASON_CHARS_MAX]
                self._holder = replace(self._holder, broke_off=reason, refused=refused)
                self._put()
            elif self.folder.is_at(LOCK, self._descriptor):
                self.folder.remove(LOCK)
        os.close(self._descriptor)
        self.folder.close()
        self._descriptor = -1

    def _put(self) -> None:
        text = orjson.dumps(asdict(self._holder))
        os.pwrite(self._descriptor, text[: _BYTES - 1].ljust(_BYTES - 1) + b"\n", 0)
        os.fsync(self._descriptor)


def is_held(folder: Path) -> bool:
    """Return whether a live run holds a folder. Raises RunError if its lock is not a file."""
    try:
        with Folder(folder) as opened:
            descriptor = opened.open(LOCK)
            try:
                return not _locked(descriptor, fcntl.LOCK_SH) and opened.is_at(LOCK, descriptor)
            finally:
                os.close(descriptor)
    except NotAFileError as error:
        raise unreadable(folder / LOCK, error) from error
    except OSError:
        return False


def read_holder(folder: Path) -> LockHolder | None:
    """Return the content of a folder's lock, of a live run or not; None without a lock.

    Raises RunError if the lock is not a file.
    """
    try:
        with open_file(folder / LOCK) as file:
            text = file.read(_BYTES)
    except NotAFileError as error:
        raise unreadable(folder / LOCK, error) from error
    except OSError:
        return None
    try:
        holder = orjson.loads(text)
        return LockHolder(
            pid=int(holder["pid"]),
            host=str(holder["host"]),
            since=str(holder["since"]),
            broke_off=str(holder["broke_off"]),
            refused=bool(holder.get("refused", False)),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return LockHolder()


def held_text(folder: Path) -> str:
    """Return the error message for a folder whose lock a live run holds."""
    holder = read_holder(folder)
    by = f" ({holder})" if holder is not None and holder.pid else ""
    return f"{folder} is held by a run that is still going{by}; end that run, or give another --run"


def _locked(descriptor: int, kind: int) -> bool:
    """Try to lock a file without waiting; return True also if its file system has no locks."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _UNSUPPORTED
    return True
