"""Records that come in any order of time, given back in order.

A trace must tell how long a pod runs when it creates it, which a source tells only when the pod has
ended. Drafts are therefore gathered and sorted: in memory up to a number, beyond that in sorted
files that are merged, so that memory stays bounded.
"""

from __future__ import annotations

import heapq
import struct
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO

from replay.importers.records import Numbering, Templates
from reprieve.trace.v1alpha1.trace_pb2 import Record

KEPT_MAX = 100_000
_HEAD = struct.Struct("<qiqi")
_Draft = tuple[int, int, int, bytes]


class Drafts:
    """Gathers records without numbers; a context, at whose end its files are gone."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._kept: list[_Draft] = []
        self._files: list[BinaryIO] = []
        self._count = 0

    def __enter__(self) -> Drafts:
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

    def add(self, record: Record, rank: int = 0) -> None:
        """Take a record; of those of one time, lower ranks come first, then those added first."""
        self._kept.append((record.at_ns, rank, self._count, record.SerializeToString()))
        self._count += 1
        if len(self._kept) >= self._kept_max:
            self._spill()

    def records(self, numbering: Numbering, templates: Templates) -> Iterator[Record]:
        """Yield the records in order and numbered; what pods have in common is taken out."""
        self._kept.sort()
        for _, _, _, data in heapq.merge(self._kept, *map(_read, self._files)):
            record = Record.FromString(data)
            kind = record.WhichOneof("record") or ""
            if kind == "pod_create":
                life = record.pod_create.life if record.pod_create.HasField("life") else None
                yield from templates.pod_create(record.at_ns, record.pod_create.pod, life)
            else:
                yield numbering.record(record.at_ns, **{kind: getattr(record, kind)})

    def _spill(self) -> None:
        self._kept.sort()
        file: BinaryIO = tempfile.TemporaryFile(prefix="reprieve-")  # noqa: SIM115 - closed at the end
        self._files.append(file)
        for at_ns, rank, number, data in self._kept:
            file.write(_HEAD.pack(at_ns, rank, number, len(data)))
            file.write(data)
        self._kept.clear()


def _read(file: BinaryIO) -> Iterator[_Draft]:
    file.seek(0)
    while head := file.read(_HEAD.size):
        at_ns, rank, number, length = _HEAD.unpack(head)
        yield at_ns, rank, number, file.read(length)
