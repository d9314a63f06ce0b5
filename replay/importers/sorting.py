"""Sorting what does not fit into memory: sorted files that are merged."""

from __future__ import annotations

import heapq
import struct
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO

KEPT_MAX = 100_000
_HEAD = struct.Struct("<qiqi")
_Item = tuple[int, int, int, bytes]


class Sorter:
    """Gives back data in order of (time, rank, number), where numbers count what is added.

    Up to `kept_max` items stay in memory; a context, at whose end its files are gone.
    """

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._kept: list[_Item] = []
        self._files: list[BinaryIO] = []
        self._count = 0

    def __enter__(self) -> Sorter:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the files."""
        for file in self._files:
            file.close()

    def add(self, at: int, rank: int, data: bytes, number: int | None = None) -> None:
        """Take an item; `number` None is the next one."""
        self._kept.append((at, rank, self._count if number is None else number, data))
        self._count += 1
        if len(self._kept) >= self._kept_max:
            self._spill()

    def sorted(self) -> Iterator[bytes]:
        """Yield the items' data in order; nothing is added any more."""
        self._kept.sort()
        for _, _, _, data in heapq.merge(self._kept, *map(_read, self._files)):
            yield data

    def _spill(self) -> None:
        self._kept.sort()
        file: BinaryIO = tempfile.TemporaryFile(prefix="reprieve-")  # noqa: SIM115 - closed at the end
        self._files.append(file)
        for at, rank, number, data in self._kept:
            file.write(_HEAD.pack(at, rank, number, len(data)))
            file.write(data)
        self._kept.clear()


def _read(file: BinaryIO) -> Iterator[_Item]:
    file.seek(0)
    while head := file.read(_HEAD.size):
        at, rank, number, length = _HEAD.unpack(head)
        yield at, rank, number, file.read(length)
