"""Files that only grow, by whole writes, and that can be continued after a crash.

A write that fails, as on a full disk, leaves the file as it was before: what it holds is whole. A
process that is killed within a write can leave a part of it at the file's end, so readers stop
at the last whole line or frame.

`Buffered` gathers encoded records for such a file. Records are added by one thread; any thread may
flush them. `TimedFlush` does so from a thread of its own, so that a record is on the disk a second
after it was added, also while its writer waits for something slow.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Self, TypeVar

FLUSHED_EVERY_S = 0.5
_T = TypeVar("_T")


class GrowingFile:
    """A file that is written from its beginning, or from a former size on.

    size: where an existing file is continued; what follows is cut off. None: a new file. Methods
    raise OSError.
    """

    def __init__(self, path: Path, size: int | None = None) -> None:
        """Open the file. Raises OSError; ShortFileError where it has fewer bytes than `size`."""
        self.path = path
        self.size = size or 0
        self._file = path.open("wb" if size is None else "r+b", buffering=0)
        if size is not None:
            present = self._file.seek(0, os.SEEK_END)
            if present < size:
                self._file.close()
                raise ShortFileError(path, present, size)
            self._cut()

    @property
    def is_closed(self) -> bool:
        """Return whether the file was closed."""
        return self._file.closed

    def append(self, data: bytes) -> None:
        """Write all of `data`, or nothing. Raises OSError."""
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
            self.size += len(data)
        except BaseException:
            # A full disk has room for a shorter file; a device such as /dev/full cannot be cut.
            with contextlib.suppress(OSError):
                self._cut()
            raise

    def sync(self) -> None:
        """Wait until the disk has what was written. Raises OSError."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()

    def _cut(self) -> None:
        self._file.truncate(self.size)
        self._file.seek(self.size)


class ShortFileError(Exception):
    """A file that is to be continued has fewer bytes than it had."""

    def __init__(self, path: Path, present: int, size: int) -> None:
        super().__init__(f"{path} has {present:,} bytes and had {size:,}: it was changed")


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

    def sync(self) -> int:
        """Write the records, wait until the disk has them, and return the file's size."""
        self.flush()
        self.file.sync()
        return self.file.size

    def close(self) -> None:
        """Write the records and close the file; a second call does nothing. Raises OSError."""
        if self.file.is_closed:
            return
        try:
            self.flush()
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
