"""Counts how much of a trace's files has been read, for progress bars.

Importers open files in many places, and a file is read while the replay continues. So one watcher
holds for the process, as the bounds do, for as long as `watched` is entered.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

Watcher = Callable[[Path, int, int], None]
"""Receives a file, its bytes that have been read (compressed ones, where it is), and its size."""

_BUFFER_BYTES = 1 << 16
_watcher: Watcher | None = None


@contextlib.contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Report reads of files that `open_watched` opens to `watcher`."""
    global _watcher  # noqa: PLW0603 - one value for the process; see the module's docstring
    former, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = former


def open_watched(path: Path) -> BinaryIO:
    """Open a file of a trace for reading. Raises OSError."""
    if _watcher is None:
        return path.open("rb")
    return io.BufferedReader(_WatchedFile(path, _watcher), _BUFFER_BYTES)


class _WatchedFile(io.FileIO):
    def __init__(self, path: Path, watcher: Watcher) -> None:
        super().__init__(path, "rb")
        self._path = path
        self._watcher = watcher
        self._size = os.fstat(self.fileno()).st_size

    def readinto(self, buffer: Any) -> int:
        """Read into `buffer`, and report where the file is read."""
        count = super().readinto(buffer)
        self._watcher(self._path, self.tell(), self._size)
        return count
