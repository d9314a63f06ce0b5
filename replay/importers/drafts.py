"""Records that come in any order of time, given back in order.

A trace must tell how long a pod runs when it creates it, which a source tells only when the pod has
ended. Drafts are therefore gathered and sorted, on disk where they are many, so that memory stays
bounded.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Mapping
from typing import Self

from replay.identity import object_uid
from replay.importers.made_objects import priority_class
from replay.importers.records import Issues, Numbering, Templates
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import Header, Record

_COPIES = struct.Struct("<i")


class Sorter:
    """Gives back data in order of (time, rank, number), where numbers count what is added.

    It is a database without a name, which SQLite keeps on disk where it is large; a context, at
    whose end it is gone.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("")
        self._database.execute(
            "CREATE TABLE item (at INTEGER, rank INTEGER, number INTEGER, data BLOB)"
        )
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._database.close()

    def put(self, at: int, rank: int, data: bytes, number: int | None = None) -> None:
        """Take an item; `number` None is the next one."""
        row = (at, rank, self._count if number is None else number, data)
        self._database.execute("INSERT INTO item VALUES (?, ?, ?, ?)", row)
        self._count += 1

    def sorted(self) -> Iterator[bytes]:
        """Yield the items' data in order; nothing is added any more."""
        query = "SELECT data FROM item ORDER BY at, rank, number, data"
        for (data,) in self._database.execute(query):
            yield data


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
