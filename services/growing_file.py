"""Files that only grow, by whole writes, and that can be continued after a crash.

A write that fails, as on a full disk, leaves the file as it was before: what it holds is whole. A
process that is killed within a write can leave a part of it at the file's end, so readers stop
at the last whole line or frame.

A file keeps a running SHA-256 of what was written. So the digest at the file's end is of the bytes
that were meant, whatever a disk has made of them since, and a file is continued only where its
bytes up to that position still have the digest that they had.

`Buffered` gathers encoded records for such a file. Records are added by one thread; any thread may
flush them. `TimedFlush` does so from a thread of its own, so that a record is in the file a second
after it was added, also while its writer waits for something slow; it is on the disk after `sync`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Self, TypeVar

from services.folder import Folder

FLUSHED_EVERY_S = 0.5
_CHUNK_BYTES = 1 << 20
_T = TypeVar("_T")


class GrowingFile:
    """A file that is written from its beginning, or from a former size on.

    size: bytes that were written. Methods raise OSError.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        """Make a new file, in place of a former one. Raises OSError."""
        self.path = folder.path / name
        self.size = 0
        self._hash = hashlib.sha256()
        self._descriptor = folder.create(name)

    @classmethod
    def continued(cls, folder: Folder, name: str, size: int, sha256: str) -> Self:
        """Open a file whose first `size` bytes have a digest; nothing is changed until `cut`.

        Raises OSError, and ChangedFileError if the file has fewer bytes or other ones.
        """
        file = cls.__new__(cls)
        file.path = folder.path / name
        file.size = size
        file._descriptor = folder.open(name, os.O_RDWR | os.O_APPEND)
        try:
            file._hash = _hash_of_beginning(file._descriptor, file.path, size, sha256)
        except BaseException:
            file.close()
            raise
        return file

    @property
    def sha256(self) -> str:
        """Return the digest of what was written, hex."""
        return self._hash.hexdigest()

    @property
    def is_closed(self) -> bool:
        """Return whether the file was closed."""
        return self._descriptor < 0

    def append(self, data: bytes) -> None:
        """Write all of `data`, or nothing. Raises OSError."""
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except BaseException:
            # A full disk has room for a shorter file.
            with contextlib.suppress(OSError):
                self.cut()
            raise
        self.size += len(data)
        self._hash.update(data)

    def cut(self) -> None:
        """Remove what follows the bytes that were written."""
        os.ftruncate(self._descriptor, self.size)

    def sync(self) -> None:
        """Wait until the disk has what was written. Raises OSError."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def check_beginning(folder: Folder, name: str, size: int, sha256: str) -> None:
    """Raise as GrowingFile.continued does; the file is read only."""
    descriptor = folder.open(name)
    try:
        _hash_of_beginning(descriptor, folder.path / name, size, sha256)
    finally:
        os.close(descriptor)


def _hash_of_beginning(descriptor: int, path: Path, size: int, sha256: str) -> hashlib._Hash:
    """Return the running hash of a file's first `size` bytes. Raises ChangedFileError."""
    present = os.fstat(descriptor).st_size
    if not 0 <= size <= present:
        raise ChangedFileError(f"{path} has {present:,} bytes and had {size:,}: it was changed")
    running, rest = hashlib.sha256(), size
    while rest and (chunk := os.read(descriptor, min(rest, _CHUNK_BYTES))):
        running.update(chunk)
        rest -= len(chunk)
    if rest or running.hexdigest() != sha256:
        raise ChangedFileError(
            f"{path} has other bytes in its first {size:,} than were written: it was changed or "
            "damaged"
        )
    return running


class ChangedFileError(Exception):
    """A file that is to be continued does not begin with what was written to it."""


class Buffered(Generic[_T]):
    """Records on their way to a file; those of a write that fails are kept for the next.

    waiting: the records; one thread appends to this list, any thread may flush. written: how many
    have been written. `encoded` returns the bytes of some records, in order.
    """

    def __init__(self, file: GrowingFile, encoded: Callable[[Sequence[_T]], bytes]) -> None:
        self.file = file
        self.written = 0
        self._encoded = encoded
        self.waiting: list[_T] = []
        self._lock = threading.Lock()

    def flush(self) -> None:
        """Write the records that were added. Raises OSError."""
        with self._lock:
            # One operation of the list each: the other thread may append between them.
            records, before = self.waiting[:], self.file.size
            if not records:
                return
            try:
                self.file.append(self._encoded(records))
            finally:
                if self.file.size != before:
                    del self.waiting[: len(records)]
                    self.written += len(records)

    def sync(self) -> None:
        """Write the records, and wait until the disk has them. Raises OSError."""
        self.flush()
        self.file.sync()

    def close(self) -> None:
        """Write the records to the disk and close the file; a second call does nothing.

        Raises OSError.
        """
        if self.file.is_closed:
            return
        try:
            self.sync()
        finally:
            self.file.close()


class TimedFlush:
    """Flushes a writer every half second, from a thread; a context manager.

    An OSError is passed over: the records are kept, and the writer's own next flush raises it.
    """

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flush", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread, after the flush under way; a second call does nothing."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(FLUSHED_EVERY_S):
            with contextlib.suppress(OSError):
                self._flush()
