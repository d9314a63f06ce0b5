"""Records that come in any order of time, given back in order.

A trace must tell how long a pod runs when it creates it, which a source tells only when the pod has
ended. Drafts are therefore gathered and sorted, on disk beyond a number, so that memory stays
bounded.
"""

from __future__ import annotations

import heapq
import struct
import tempfile
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Self

from replay.identity import object_uid
from replay.importers.made_objects import priority_class
from replay.importers.records import Issues, Numbering, Templates
from reprieve.kube.v1alpha1.pod_pb2 import Pod
from reprieve.trace.v1alpha1.trace_pb2 import Header, Record

_COPIES = struct.Struct("<i")
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files:
            file.close()

    def put(self, at: int, rank: int, data: bytes, number: int | None = None) -> None:
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


class Drafts(Sorter):
    """Gathers records without numbers."""

    def add(
        self, record: Record, rank: int = 0, number: int | None = None, copies: int = 0
    ) -> None:
        """Take a record; of those of one time, lower ranks come first, then lower numbers.

        `number` None counts what is added. With `copies`, a pod stands for as many, which differ
        in their names: the pod's name and a number from 0.
        """
        data = _COPIES.pack(copies) + record.SerializeToString()
        self.put(record.at_ns, rank, data, number)

    def trace(self, header: Header, classes: Mapping[str, int], issues: Issues) -> Iterator[Record]:
        """Yield a whole trace: the header, priority classes, the drafts in order, and issues."""
        numbering = Numbering()
        yield numbering.header(header)
        for name, value in classes.items():
            yield numbering.record(0, create=priority_class(name, value))
        yield from self.records(numbering, Templates(numbering))
        yield from numbering.issues(issues)

    def records(self, numbering: Numbering, templates: Templates) -> Iterator[Record]:
        """Yield the records in order and numbered; what pods have in common is taken out."""
        for data in self.sorted():
            (copies,) = _COPIES.unpack_from(data)
            record = Record.FromString(data[_COPIES.size :])
            kind = record.WhichOneof("record") or ""
            if kind != "pod_create":
                yield numbering.record(record.at_ns, **{kind: getattr(record, kind)})
                continue
            create = record.pod_create
            life = create.life if create.HasField("life") else None
            for pod in _copied(create.pod, copies) if copies else (create.pod,):
                yield from templates.pod_create(record.at_ns, pod, life)


def _copied(pod: Pod, copies: int) -> Iterator[Pod]:
    for index in range(copies):
        copy = Pod()
        copy.CopyFrom(pod)
        copy.metadata.name = f"{pod.metadata.name}-{index}"
        copy.metadata.uid = object_uid("Pod", copy.metadata.namespace, copy.metadata.name)
        yield copy


def _read(file: BinaryIO) -> Iterator[_Item]:
    file.seek(0)
    while head := file.read(_HEAD.size):
        at, rank, number, length = _HEAD.unpack(head)
        yield at, rank, number, file.read(length)
